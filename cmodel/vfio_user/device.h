/* SPDX-License-Identifier: MIT */
/*
 * A chip as a PCI function. device.c, queue.c and vm.c are one module behind this header; registers
 * (regs.h) and the accesses of clients (access.h) are layers above it.
 *
 * Locks. A device has two locks. op_lock is held around each message of the client and each control
 * command, so a device handles one at a time. lock protects its state and is held briefly;
 * completions and faults also take it, in the thread that leads the model's work. So:
 *  - op_lock is taken first and may be held while the model is paused (cm_queue_free() and others);
 *  - with lock held nothing may wait for the model, that is call what pauses it;
 *  - the locks of two devices are never held together.
 * Fields below say which of them guards them; "constant" ones are set when the device is made.
 *
 * Lifetime: devices live as long as their machine. A client comes and goes (vu_device_detach()), as
 * does the chip itself when its removal is simulated (vu_device_vanish(), vu_device_appear()).
 */
#ifndef VU_DEVICE_H
#define VU_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cmodel.h"
#include "config.h"
#include "faults.h"
#include "firmware.h"
#include "fwlog.h"
#include "guest.h"
#include "irq.h"
#include "log.h"
#include "queue.h"
#include "txda_regs.h"
#include "vm.h"

#define VU_COMPUTE_QUEUES 32
#define VU_COPY_QUEUES	  32
#define VU_QUEUES	  (VU_COMPUTE_QUEUES + VU_COPY_QUEUES)
#define VU_VMIDS	  TXDA_MAX_VMIDS
#define VU_CARD_CHIPS	  8				       /* all linked with each other */
#define VU_RESERVED_BYTES (16ull << 20)			       /* of DRAM, for firmware */
#define VU_FWLOG_AT	  (VU_RESERVED_BYTES - VU_FWLOG_BYTES) /* images end there */
#define VU_WORDS	  (TXDA_BAR_REGS_BYTES / 4)

#define VU_POWER_LIMIT_DEFAULT_MW 90000 /* above the maximum of the activity model */
#define VU_POWER_LIMIT_MIN_MW	  20000
#define VU_POWER_LIMIT_MAX_MW	  100000

/* Operations that can be made to hang. */
#define VU_STUCK_FLUSH (1u << 0) /* flushes of address spaces, until the chip is reset */
#define VU_STUCK_RESET (1u << 1) /* chip resets, until the function is reset */
#define VU_SLOW_STOP   (1u << 2) /* temporary: the next stop of a queue */
#define VU_STUCK_STOP  (1u << 3) /* the next stop of a queue, until the chip is reset */
#define VU_STUCK_REGS  (1u << 4) /* accesses to registers, until the function is reset */

struct vu_machine;

struct vu_sensor_base { /* counters at the last reset */
	uint64_t busy_ns, copy_busy_ns, bytes_read, bytes_written, c2c_sent, c2c_received;
	uint32_t ecc_corrected, ecc_uncorrected;
};

struct vu_device {
	/* constant */
	struct vu_machine *machine;
	struct cm_machine *cm;
	struct cm_chip *chip;
	unsigned index;		       /* of the chip on the machine */
	unsigned position, card_chips; /* on its card */
	uint64_t card_serial;
	char serial[TXDA_SERIAL_BYTES + 1];
	char name[TXDA_NAME_BYTES];
	uint64_t bar_bytes;
	int dram_fd;
	uint64_t dram_bytes;
	uint8_t *dram;

	pthread_mutex_t op_lock, lock;
	/* The chip was removed: reads return ones, writes are ignored. Stored under both locks. */
	_Atomic bool gone;
	_Atomic bool hung;	     /* its command processor; stored under op_lock */
	unsigned stuck;		     /* op_lock: VU_STUCK_*, operations that hang */
	bool resetting;		     /* op_lock: a reset that is stuck */
	uint64_t hung_ms;	     /* lock: LIVENESS at that time */
	uint64_t start_ns;	     /* lock: LIVENESS 0 */
	bool connected;		     /* lock: a client has it */
	bool tripped;		     /* lock: stopped by a thermal trip until a reset */
	uint32_t resets;	     /* lock */
	uint32_t power_limit_mw;     /* lock */
	struct vu_sensor_base base;  /* lock */
	struct vu_config config;     /* lock */
	struct vu_irq irq;	     /* lock */
	struct vu_guest guest;	     /* lock */
	struct vu_faults faults;     /* lock */
	struct vu_firmware firmware; /* lock */
	struct vu_fwlog fwlog;	     /* lock */
	struct vu_queue queue[VU_QUEUES];
	struct vu_vm vm[VU_VMIDS];
	/* op_lock: pairs of registers. _HI of what was read, _LO of what is being written. */
	uint32_t latched[VU_WORDS], staged[VU_WORDS];
	uint32_t msix_table[VU_MSIX_VECTORS * 4]; /* lock */
	/* lock: what vu_device_poll() has seen last */
	uint32_t seen_corrected, seen_uncorrected;
	uint32_t seen_hot;
	uint32_t seen_up;		      /* ports, a bit each */
	uint32_t link_errors[TXDA_MAX_PORTS]; /* lock: failures of each since reset */
};

/* ---- life ----------------------------------------------------------------------------------- */

/* Parameters of vu_device_init() besides the chip. */
struct vu_device_setup {
	unsigned position, card_chips;
	uint64_t card_serial;
	const char *serial;
	uint64_t bar_bytes;
	enum vu_irq_mode irq;
};

int vu_device_init(struct vu_device *d, struct vu_machine *machine, struct cm_machine *cm,
		   unsigned index, const struct vu_device_setup *setup);
void vu_device_fini(struct vu_device *d);

/* op_lock is held for these. */

/* A chip reset: stops all queues, drops rings, roots and groups. */
void vu_device_reset(struct vu_device *d);
/* A reset by register: the same, unless resets are stuck. */
void vu_device_request_reset(struct vu_device *d);
/* FLR: the same; configuration space and DRAM are as after power-on. */
void vu_device_flr(struct vu_device *d);
/* The client's reset of the device: an FLR that also brings a lost chip back. */
void vu_device_power_cycle(struct vu_device *d);
/*
 * A client has connected; has disconnected: its memory and eventfds are released, the device stays.
 */
void vu_device_attach(struct vu_device *d);
void vu_device_detach(struct vu_device *d);
/* The chip is removed; it, or another one of its kind, is plugged in. */
void vu_device_vanish(struct vu_device *d);
void vu_device_appear(struct vu_device *d);
/* The command processor hangs until the chip is reset. */
void vu_device_hang(struct vu_device *d);
/* Makes the operations @what (VU_STUCK_*) hang from now on. */
void vu_device_stick(struct vu_device *d, unsigned what);
/* Too hot: all queues are lost until the chip is reset. */
void vu_device_trip(struct vu_device *d);
/* Bus mastering, memory enable or power state may have changed. */
void vu_device_power_changed(struct vu_device *d);
/* Drops all cached translations of address spaces. */
void vu_device_forget_translations(struct vu_device *d);

/*
 * Checks the effects of injections on the chip and its neighbours, and raises the events for them.
 * *ret_change_ns: when to check again, UINT64_MAX: after the next injection. True: the chip is
 * lost.
 */
bool vu_device_poll(struct vu_device *d, uint64_t *ret_change_ns);

/* ---- what its parts ask --------------------------------------------------------------------- */

uint32_t vu_device_liveness(struct vu_device *d); /* lock */

/*
 * A message in the server's log and, as long as the chip works, in its own. lock is held.
 */
void vu_device_log(struct vu_device *d, enum vu_log_level level, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Whether the chip may reach system memory. lock is held. */
static inline bool vu_device_bus_master(const struct vu_device *d)
{
	return vu_config_bus_master(&d->config);
}

/*
 * The host address of a TXDA_ADDR range; NULL if the chip cannot reach it. Call it and use the
 * result with lock held.
 */
void *vu_device_at(struct vu_device *d, uint64_t addr, uint64_t bytes, bool write);

/* ---- links ---------------------------------------------------------------------------------- */

static inline unsigned vu_device_ports(const struct vu_device *d)
{
	return d->card_chips - 1;
}

/* The chip at the other end of a port, which is below vu_device_ports(). */
struct vu_device *vu_device_peer(struct vu_device *d, unsigned port);
/* The port of @d's peer that leads back to @d. */
unsigned vu_device_peer_port(const struct vu_device *d, unsigned port);
bool vu_device_link_up(struct vu_device *d, unsigned port);

#endif /* VU_DEVICE_H */
