/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The driver's view of a chip: registers, identity, and whether it is still present.
 *
 * Lifetime: struct txda_device is a DRM device and lives as long as the last open file of its node.
 * The registers live as long as the PCI device is bound; every access lies between drm_dev_enter()
 * and drm_dev_exit(), or in probe.
 * Threads: any, unless stated.
 */
#ifndef TXDA_DEVICE_H
#define TXDA_DEVICE_H

#include <linux/io.h>
#include <linux/pci.h>
#include <linux/spinlock.h>
#include <drm/drm_device.h>

#include "drm/txda_drm.h"
#include "evict.h"
#include "fwlog.h"
#include "gem.h"
#include "hwq.h"
#include "irq.h"
#include "mmu.h"
#include "queue.h"
#include "ras.h"
#include "reset.h"
#include "scrub.h"
#include "share.h"
#include "sysfs.h"
#include "txda_regs.h"
#include "user.h"
#include "vram.h"

/* Rings, packets, fault records and firmware images are used as they lie in memory. */
#ifdef __BIG_ENDIAN
#error "the chip is little-endian, and so must be the kernel"
#endif

struct firmware;
struct txda_copy;
struct txda_coredump;
struct txda_events;
struct txda_pmu;

/**
 * struct txda_device - One chip.
 */
struct txda_device {
	/** @drm: Base; first, so that it frees the whole. */
	struct drm_device drm;

	/** @pdev: The PCI function. */
	struct pci_dev *pdev;

	/** @regs: BAR0. */
	void __iomem *regs;

	/**
	 * @pair_lock: Reading the low half of a 64-bit register latches the high half. perf reads
	 * counters under its own raw locks.
	 */
	raw_spinlock_t pair_lock;

	/** @info: What DEV_QUERY reports about the chip; set once in probe. */
	struct drm_txda_device_info info;

	/** @compute_queues: Hardware compute queues, 1 to TXDA_MAX_QUEUES. */
	u32 compute_queues;

	/** @copy_queues: Hardware copy queues, 1 to TXDA_MAX_QUEUES. */
	u32 copy_queues;

	/** @wants_firmware: Its queues need firmware. */
	bool wants_firmware;

	/** @counts_c2c: It has counters of C2C traffic. */
	bool counts_c2c;

	/** @n_ports: C2C ports, at most TXDA_MAX_PORTS. */
	u32 n_ports;

	/** @card: Serial number of the card that carries the chip. */
	u64 card;

	/** @card_index: Its index on the card. */
	u32 card_index;

	/** @card_chips: Chips on the card. */
	u32 card_chips;

	/** @dram_reserved: Bytes at the start of DRAM that belong to firmware. */
	u64 dram_reserved;

	/** @dram_bytes: DRAM that buffers can use. */
	u64 dram_bytes;

	/** @dram_mappable: The part of it that is visible through BAR2. */
	u64 dram_mappable;

	/**
	 * @power_limit_mw: The limit set by power1_cap, 0: none. The chip loses it with each reset.
	 */
	u32 power_limit_mw;

	/** @fw: The firmware image, or NULL when the chip needs none. */
	const struct firmware *fw;

	/** @fwlog: Its firmware's log. */
	struct txda_fwlog fwlog;

	/** @vram: Its DRAM. */
	struct txda_vram vram;

	/** @scrub: Clearing of DRAM that was freed. */
	struct txda_scrub scrub;

	/** @mmu: Its VMIDs. */
	struct txda_mmu mmu;

	/** @gem: Its buffers. */
	struct txda_gem gem;

	/** @evict: Those of them that are idle. */
	struct txda_evict evict;

	/** @hwqs: Its hardware queues. */
	struct txda_hwqs hwqs;

	/** @shares: Those of each class that clients' queues take turns on. */
	struct txda_share shares[TXDA_CLASS_COUNT];

	/** @copy: The kernel's own copy queue. */
	struct txda_copy *copy;

	/** @queues: Clients' queues. */
	struct txda_queues queues;

	/** @irq: Its interrupts. */
	struct txda_irq irq;

	/** @ras: Error counters of its memory and links. */
	struct txda_ras ras;

	/** @reset: Recovery. */
	struct txda_reset reset;

	/** @vms: Clients' address spaces, struct txda_vm. Under @vms_lock. */
	struct list_head vms;

	/** @vms_lock: Protects @vms. */
	struct mutex vms_lock;

	/** @users: Accounting and limits per user. */
	struct txda_users users;

	/** @host_used: Bytes of host memory in buffers of this chip. */
	atomic64_t host_used;

	/** @busy: Utilisation. */
	struct txda_busy busy;

	/** @events: State of event reporting, with its rate limits. */
	struct txda_events *events;

	/** @pmu: Its perf counters, or NULL. */
	struct txda_pmu *pmu;

	/** @coredump: The dump waiting to be published. */
	struct txda_coredump *coredump;

	/** @link: In the device list of events.c. */
	struct list_head link;
};

static inline struct txda_device *to_txda(struct drm_device *drm)
{
	return container_of(drm, struct txda_device, drm);
}

static inline u32 txda_read(struct txda_device *tdev, u32 reg)
{
	return readl(tdev->regs + reg);
}

static inline void txda_write(struct txda_device *tdev, u32 reg, u32 value)
{
	writel(value, tdev->regs + reg);
}

/*
 * Writes the low half first; the high half makes the pair take effect. For pairs with a single
 * writer at a time.
 */
static inline void txda_write_pair(struct txda_device *tdev, u32 reg, u64 value)
{
	txda_write(tdev, reg, lower_32_bits(value));
	txda_write(tdev, reg + 4, upper_32_bits(value));
}

/* Reads the register pair at @reg (its low half) as one value. */
u64 txda_read_pair(struct txda_device *tdev, u32 reg);

/* The same for pairs that several threads or interrupt handlers write. */
void txda_write_pair_locked(struct txda_device *tdev, u32 reg, u64 value);

/*
 * Whether the chip still answers. A removed chip reads as all ones, so values read before are valid
 * only if this returns true afterwards.
 */
bool txda_device_alive(struct txda_device *tdev);

/*
 * The chip state as DEV_QUERY reports it. An unknown state is reported as one in which nothing
 * works.
 */
enum drm_txda_port_state txda_device_port_state(struct txda_device *tdev, u32 port);
enum drm_txda_firmware_state txda_device_firmware_state(struct txda_device *tdev);

/* The C2C port that is up and connected to @peer, or -EXDEV. In drm_dev_enter(). */
int txda_device_port_to(struct txda_device *tdev, const struct txda_device *peer);

/*
 * Maps the registers, checks that the chip is a TX8 that this driver supports, and fills in the
 * constant information. -ENODEV: not a TX8, or an unsupported one; the kernel log says why.
 */
int txda_device_init(struct txda_device *tdev);

#endif /* TXDA_DEVICE_H */
