/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Reset, recovery, suspend and resume: everything that brings a chip down and up again while its
 * node stays.
 *
 * There are two kinds. A chip reset (TXDA_REG_RESET) keeps DRAM: address spaces and buffers
 * survive, queues are dead. After a function reset (FLR, power loss, PCI error recovery) DRAM is
 * lost: zeros after an FLR, else anything. Address spaces go as well; buffers keep their handles.
 *
 * One recovery runs at a time: it holds @lock for writing. Every ioctl that sets up or tears down
 * chip state holds it for reading, through txda_device_enter().
 *
 * PCI calls a function reset in two halves; between them the chip is @down.
 *
 * Fences: those of a chip that does not stop are signalled by @work only, so nothing on its path
 * may wait for memory. Readers of @lock do allocate: they get some time to leave (@stopping keeps
 * others out), then the chip is reset regardless, and their current operations fail. Removal does
 * so at once.
 */
#ifndef TXDA_RESET_H
#define TXDA_RESET_H

#include <linux/atomic.h>
#include <linux/mutex.h>
#include <linux/notifier.h>
#include <linux/rwsem.h>
#include <linux/types.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

struct txda_device;
struct txda_queue;

/**
 * struct txda_reset - State of recovery.
 */
struct txda_reset {
	/** @lock: See above; locks.h has the complete order of locks. */
	struct rw_semaphore lock;

	/** @wq: Workqueue of @work: fences may wait for it. */
	struct workqueue_struct *wq;

	/** @work: A requested chip reset; delayed when the chip must cool down. */
	struct delayed_work work;

	/** @reason: Reason for the log and events; a string constant. */
	const char *reason;

	/**
	 * @culprit: The queue because of which a reset was requested, with a reference; NULL: not
	 * known, or none.
	 */
	struct txda_queue *culprit;

	/** @served: The same of the reset in progress. Under @lock. */
	struct txda_queue *served;

	/** @stopping: The chip is about to be reset: no thread may enter until it has been. */
	bool stopping;

	/** @leaving: It was stopped and cut off for good: it is about to be removed. */
	bool leaving;

	/**
	 * @cut_lock: Held around a chip reset without @lock, and around changes of @bars_off. No
	 * memory is allocated under it.
	 */
	struct mutex cut_lock;

	/** @rest_until: No thermal reset before this time, in jiffies. Interrupt thread only. */
	unsigned long rest_until;

	/** @chip_resets: Number of chip resets since bind. */
	atomic64_t chip_resets;

	/**
	 * @down: Between the halves of a function reset or suspend, and in probe. Written under
	 * @lock.
	 */
	bool down;

	/**
	 * @bars_lock: Held around accesses to BAR0 and BAR2 on behalf of clients without @lock,
	 * page faults among them, so memory is allocated under it. Inside of @lock.
	 */
	struct rw_semaphore bars_lock;

	/**
	 * @bars_off: The BARs are unusable, or are about to be. Under @bars_lock and @cut_lock.
	 */
	bool bars_off;

	/** @sleep: Suspend notifier, called before and after the machine sleeps. */
	struct notifier_block sleep;

	/**
	 * @wedged: Recovery failed: the chip is out of service until an administrator resets it.
	 */
	bool wedged;

	/** @up: Woken when @down or @stopping ends. */
	wait_queue_head_t up;
};

/* The chip counts as down until txda_reset_set_up(), at the end of probe. */
int txda_reset_init(struct txda_device *tdev);
int txda_reset_set_up(struct txda_device *tdev);
/*
 * Before drm_dev_unplug(), which waits for threads inside, as these may wait for fences: stops the
 * chip, cuts it off, and signals all fences of queues. No chip reset runs and no thread enters any
 * more; address spaces are lost.
 */
void txda_reset_unplug(struct txda_device *tdev);
/* After this no reset runs or starts, and nobody waits for one. */
void txda_reset_fini(struct txda_device *tdev);

/*
 * Around every ioctl's changes to the chip: drm_dev_enter() and @lock for reading, with the chip
 * up. Waits while it is down or about to be reset. -ENODEV: gone; -EIO: recovery failed;
 * -ERESTARTSYS. Not for code that fences wait for: run_job, timedout_job and interrupts take only
 * drm_dev_enter() and must tolerate registers that read all ones.
 */
int txda_device_enter(struct txda_device *tdev, int *ret_idx);
/*
 * The same for teardown; not interruptible. False: gone or permanently down; do not access
 * registers.
 */
bool txda_device_enter_teardown(struct txda_device *tdev, int *ret_idx);
void txda_device_exit(struct txda_device *tdev, int idx);

/*
 * Waits, outside of such sections, until no function reset has the chip down. -EIO: timed out;
 * -ERESTARTSYS. The chip may be gone afterwards.
 */
int txda_reset_wait(struct txda_device *tdev);

/*
 * Around code that reads registers or maps DRAM for the CPU whatever state the chip is in: a hung
 * chip, or one in a chip reset, still has its BARs. -ENODEV: the BARs are gone; -EAGAIN: unusable
 * until txda_reset_wait() returns.
 */
int txda_bars_enter(struct txda_device *tdev, int *ret_idx);
void txda_bars_exit(struct txda_device *tdev, int idx);
/* Reads one register in such a section. -ENODEV: also while it is down. */
int txda_bars_get(struct txda_device *tdev, u32 reg, u32 *ret_value);

/*
 * The same for code that must not wait for memory, or that holds something a reset waits for: false
 * when the BARs are gone or temporarily unusable.
 */
bool txda_bars_try_enter(struct txda_device *tdev, int *ret_idx);
void txda_bars_try_exit(struct txda_device *tdev, int idx);

/*
 * Whether the chip is gone or about to go: it does not answer, and no function reset is in
 * progress.
 */
bool txda_device_leaves(struct txda_device *tdev);

/* Requests a chip reset; returns at once. Any context. @reason: a string constant. */
void txda_reset_schedule(struct txda_device *tdev, const char *reason);
/* Waits until a requested chip reset is over. Not in sections that need the chip up. */
void txda_reset_flush(struct txda_device *tdev);
/* The same because of a client's queue (or NULL), which is held to account for it. */
void txda_reset_schedule_for(struct txda_device *tdev, const char *reason,
			     struct txda_queue *culprit);
/* For a chip that tripped, from the interrupt thread: a rate-limited reset. */
void txda_reset_schedule_hot(struct txda_device *tdev);

/*
 * Resets the chip by its register: all queues stop, and it does not access memory any more. For
 * probe and remove, and the first step of a recovery. -EIO: it does not come back.
 */
int txda_chip_reset(struct txda_device *tdev);

/* PCI reset callbacks: down before the function loses its state, up when it is back. */
void txda_reset_prepare(struct txda_device *tdev);
int txda_reset_done(struct txda_device *tdev);
/*
 * Recovery failed: all queues are lost, and clients get -EIO until an administrator resets the
 * function.
 */
void txda_reset_wedge(struct txda_device *tdev, const char *reason);

extern const struct dev_pm_ops txda_pm_ops;
extern const struct pci_error_handlers txda_pci_errors;

#endif /* TXDA_RESET_H */
