/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Reset, recovery, suspend and resume: what brings a chip down and up again under a node that
 * stays.
 *
 * Two depths. A chip reset (TXDA_REG_RESET) keeps DRAM: address spaces and buffers live on, queues
 * are dead. A function reset (FLR, power loss, PCI error recovery) clears DRAM: address spaces are
 * lost as well; buffers keep their handles and read as zeros.
 *
 * One recovery at a time: it holds @lock for writing, everything that sets up or tears down chip
 * state from ioctls holds it for reading, by txda_device_enter().
 *
 * A function reset has two halves that PCI calls, and between them the chip is @down.
 *
 * Fences. Those of a chip that does not stop signal by @work alone, so nothing on the way there may
 * wait for memory. Readers of @lock allocate: while they are inside they have a while to leave
 * (@stopping keeps others out), then the chip is reset under them, and what they do just now fails.
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

/**
 * struct txda_reset - State of recovery.
 */
struct txda_reset {
	/** @lock: See above; locks.h has all of them in their order. */
	struct rw_semaphore lock;

	/** @wq: For @work: fences may wait for it. */
	struct workqueue_struct *wq;

	/** @work: A chip reset that somebody called for; delayed when the chip needs a rest. */
	struct delayed_work work;

	/** @reason: For the log and events; a string constant. */
	const char *reason;

	/** @stopping: @work is about to reset the chip: nobody enters until it has. */
	bool stopping;

	/**
	 * @cut_lock: Around a chip reset without @lock, and around the change of @bars_off. No
	 * memory is allocated under it.
	 */
	struct mutex cut_lock;

	/** @rest_until: No reset for heat before that, in jiffies. Interrupt thread. */
	unsigned long rest_until;

	/** @chip_resets: Since bind. */
	atomic64_t chip_resets;

	/**
	 * @down: Between the halves of a function reset or suspend, and in probe. Written under
	 * @lock.
	 */
	bool down;

	/**
	 * @bars_lock: Around what clients have the CPU do in BAR0 and BAR2 without @lock, a page
	 * fault among it, so memory is allocated under it. Inside of @lock.
	 */
	struct rw_semaphore bars_lock;

	/**
	 * @bars_off: The function is about to lose its BARs, or has. Under @bars_lock and
	 * @cut_lock.
	 */
	bool bars_off;

	/** @sleep: Called before the machine goes to sleep, and after. */
	struct notifier_block sleep;

	/** @wedged: Recovery failed: the chip serves nobody until an administrator resets it. */
	bool wedged;

	/** @up: Woken when @down or @stopping ends. */
	wait_queue_head_t up;
};

/* The chip counts as down until txda_reset_set_up(), the end of probe. */
int txda_reset_init(struct txda_device *tdev);
int txda_reset_set_up(struct txda_device *tdev);
/* No reset runs or starts any more. */
void txda_reset_fini(struct txda_device *tdev);

/*
 * Around whatever an ioctl changes on the chip: drm_dev_enter() and @lock for reading, with the
 * chip up. Waits while it is down or about to be reset. -ENODEV: gone; -EIO: recovery failed;
 * -ERESTARTSYS. Not for what fences wait for: run_job, timedout_job and interrupts take
 * drm_dev_enter() alone and stand registers that read all ones.
 */
int txda_device_enter(struct txda_device *tdev, int *ret_idx);
/* For teardown, which no signal stops. False: gone or down for good; touch no register. */
bool txda_device_enter_teardown(struct txda_device *tdev, int *ret_idx);
void txda_device_exit(struct txda_device *tdev, int idx);

/*
 * Until no function reset has the chip down, outside of such sections. -EIO: it lasts too long;
 * -ERESTARTSYS. The chip may be gone by then.
 */
int txda_reset_wait(struct txda_device *tdev);

/*
 * Around what reads registers or maps DRAM for the CPU, and takes the chip as it is: a hung one, or
 * one in a chip reset, still has its BARs. -ENODEV: they are gone; -EAGAIN: until txda_reset_wait()
 * returns.
 */
int txda_bars_enter(struct txda_device *tdev, int *ret_idx);
void txda_bars_exit(struct txda_device *tdev, int idx);
/* One register, in such a section of its own. -ENODEV: also while it is down. */
int txda_bars_get(struct txda_device *tdev, u32 reg, u32 *ret_value);

/*
 * The same where no memory may be waited for, and for those who hold what a reset waits for: false
 * when the BARs are gone, or out of reach for a while.
 */
bool txda_bars_try_enter(struct txda_device *tdev, int *ret_idx);
void txda_bars_try_exit(struct txda_device *tdev, int idx);

/* Whether the chip is about to go, or has: it does not answer, and nobody resets its function. */
bool txda_device_leaves(struct txda_device *tdev);

/* Calls for a chip reset; returns at once. Any context. @reason: a string constant. */
void txda_reset_schedule(struct txda_device *tdev, const char *reason);
/* For a chip that tripped, from the interrupt thread: a reset, but not one after the other. */
void txda_reset_schedule_hot(struct txda_device *tdev);

/*
 * Resets the chip by its register: all queues stop, nothing of it touches memory any more. For
 * probe and remove, and the first step of a recovery. -EIO: it does not come back.
 */
int txda_chip_reset(struct txda_device *tdev);

/* For PCI: down before the function loses its state, up when it has come back. */
void txda_reset_prepare(struct txda_device *tdev);
int txda_reset_done(struct txda_device *tdev);
/* No way back: all queues are lost, clients get -EIO until an administrator resets the function. */
void txda_reset_wedge(struct txda_device *tdev, const char *reason);

extern const struct dev_pm_ops txda_pm_ops;
extern const struct pci_error_handlers txda_pci_errors;

#endif /* TXDA_RESET_H */
