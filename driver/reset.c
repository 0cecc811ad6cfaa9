// SPDX-License-Identifier: GPL-2.0
#include "reset.h"

#include <linux/delay.h>
#include <linux/iopoll.h>
#include <linux/kobject.h>
#include <linux/suspend.h>
#include <drm/drm_drv.h>
#include <drm/drm_file.h>
#include <drm/drm_managed.h>
#include <drm/drm_print.h>

#include "copy.h"
#include "coredump.h"
#include "device.h"
#include "events.h"
#include "firmware.h"
#include "gem.h"
#include "group.h"
#include "hwmon.h"
#include "pmu.h"
#include "queue.h"
#include "sysfs.h"
#include "trace.h"
#include "vram.h"
#include "vm.h"

#define TXDA_RESET_TIMEOUT_US (3 * USEC_PER_SEC)
#define TXDA_RESET_POLL_US    200
/* How long threads inside have to leave before the chip is reset anyway. */
#define TXDA_RESET_LEAVE_US (5 * USEC_PER_SEC)
/* How long a client waits for the second half of a function reset before it gets -EIO. */
#define TXDA_RESET_WAIT (30 * HZ)
/*
 * A chip that is still too hot trips again at once, so thermal resets are at least this far apart.
 */
#define TXDA_RESET_REST (2 * HZ)
/* How long a suspend waits for queues to become idle; work still running then is lost. */
#define TXDA_SUSPEND_TIMEOUT_MS 10000

/* ---- Sections that need the chip up --------------------------------------------------------- */

/* Returns 0: entered; -EAGAIN: the chip is down, not entered. */
static int txda_device_try_enter(struct txda_device *tdev, int *ret_idx)
{
	struct txda_reset *reset = &tdev->reset;
	int idx, err = 0;

	if (!drm_dev_enter(&tdev->drm, &idx))
		return -ENODEV;
	down_read(&reset->lock);
	if (READ_ONCE(reset->leaving))
		err = -ENODEV;
	else if (reset->down || READ_ONCE(reset->stopping))
		err = -EAGAIN;
	else if (reset->wedged)
		err = -EIO;
	if (err) {
		up_read(&reset->lock);
		drm_dev_exit(idx);
		return err;
	}
	*ret_idx = idx;
	return 0;
}

/* Whether the wait is over. */
static bool txda_reset_is_over(struct txda_device *tdev)
{
	struct txda_reset *reset = &tdev->reset;

	return (!READ_ONCE(reset->down) && !READ_ONCE(reset->stopping)) ||
	       READ_ONCE(reset->leaving) || drm_dev_is_unplugged(&tdev->drm);
}

/*
 * Waits for that, at most @left jiffies. Returns the remaining time, -EIO on timeout, or
 * -ERESTARTSYS.
 */
static long txda_reset_wait_for(struct txda_device *tdev, bool signals, long left)
{
	struct txda_reset *reset = &tdev->reset;

	if (signals)
		left = wait_event_interruptible_timeout(reset->up, txda_reset_is_over(tdev), left);
	else
		left = wait_event_timeout(reset->up, txda_reset_is_over(tdev), left);
	return left ?: -EIO;
}

int txda_reset_wait(struct txda_device *tdev)
{
	long left = txda_reset_wait_for(tdev, true, TXDA_RESET_WAIT);

	return left < 0 ? left : 0;
}

static int txda_device_wait_enter(struct txda_device *tdev, bool signals, int *ret_idx)
{
	long left = TXDA_RESET_WAIT;
	int err;

	for (;;) {
		err = txda_device_try_enter(tdev, ret_idx);
		if (err != -EAGAIN)
			return err;
		/* Waits outside of drm_dev_enter(), so that removal need not wait for this. */
		left = txda_reset_wait_for(tdev, signals, left);
		if (left < 0)
			return left;
	}
}

int txda_device_enter(struct txda_device *tdev, int *ret_idx)
{
	return txda_device_wait_enter(tdev, true, ret_idx);
}

bool txda_device_enter_teardown(struct txda_device *tdev, int *ret_idx)
{
	struct txda_reset *reset = &tdev->reset;
	int err;

	/*
	 * Until a reset that is late has stopped the chip, anything may run on it; when it has, the
	 * chip is up.
	 */
	do
		err = txda_device_wait_enter(tdev, false, ret_idx);
	while (err == -EIO && !READ_ONCE(reset->down) && !READ_ONCE(reset->wedged));
	return !err;
}

void txda_device_exit(struct txda_device *tdev, int idx)
{
	up_read(&tdev->reset.lock);
	drm_dev_exit(idx);
}

static void txda_reset_set_down(struct txda_device *tdev, bool down)
{
	lockdep_assert_held_write(&tdev->reset.lock);
	/* Pairs with the reader: a thread that sees the chip up also sees the new counters. */
	smp_store_release(&tdev->reset.down, down);
	if (!down)
		wake_up_all(&tdev->reset.up);
}

/* ---- The CPU's ways to the chip ------------------------------------------------------------- */

int txda_bars_enter(struct txda_device *tdev, int *ret_idx)
{
	struct txda_reset *reset = &tdev->reset;
	int idx, err;

	if (!drm_dev_enter(&tdev->drm, &idx))
		return -ENODEV;
	down_read(&reset->bars_lock);
	if (reset->bars_off) {
		err = READ_ONCE(reset->down) ? -EAGAIN : -ENODEV;
		up_read(&reset->bars_lock);
		drm_dev_exit(idx);
		return err;
	}
	*ret_idx = idx;
	return 0;
}

void txda_bars_exit(struct txda_device *tdev, int idx)
{
	up_read(&tdev->reset.bars_lock);
	drm_dev_exit(idx);
}

bool txda_bars_try_enter(struct txda_device *tdev, int *ret_idx)
{
	struct txda_reset *reset = &tdev->reset;

	if (!drm_dev_enter(&tdev->drm, ret_idx))
		return false;
	mutex_lock(&reset->cut_lock);
	if (reset->bars_off) {
		txda_bars_try_exit(tdev, *ret_idx);
		return false;
	}
	return true;
}

void txda_bars_try_exit(struct txda_device *tdev, int idx)
{
	mutex_unlock(&tdev->reset.cut_lock);
	drm_dev_exit(idx);
}

int txda_bars_get(struct txda_device *tdev, u32 reg, u32 *ret_value)
{
	bool alive;
	u32 value;
	int idx;

	if (txda_bars_enter(tdev, &idx))
		return -ENODEV;
	value = txda_read(tdev, reg);
	alive = txda_device_alive(tdev);
	txda_bars_exit(tdev, idx);
	if (!alive)
		return -ENODEV;
	*ret_value = value;
	return 0;
}

bool txda_device_leaves(struct txda_device *tdev)
{
	bool alive;
	int idx;

	if (READ_ONCE(tdev->reset.leaving))
		return true;
	if (txda_bars_enter(tdev, &idx))
		return drm_dev_is_unplugged(&tdev->drm);
	alive = txda_device_alive(tdev);
	txda_bars_exit(tdev, idx);
	return !alive;
}

/*
 * The chip is down from here until txda_bars_open(). Client work is ended before the lock is taken:
 * a holder of the lock may be waiting for one of its fences.
 */
static void txda_bars_close(struct txda_device *tdev)
{
	down_write(&tdev->reset.bars_lock);
	mutex_lock(&tdev->reset.cut_lock);
	tdev->reset.bars_off = true;
	txda_pmu_close(tdev);
	mutex_unlock(&tdev->reset.cut_lock);
	txda_reset_set_down(tdev, true);
	txda_gem_unmap(tdev);
	up_write(&tdev->reset.bars_lock);
}

static void txda_bars_open(struct txda_device *tdev)
{
	down_write(&tdev->reset.bars_lock);
	mutex_lock(&tdev->reset.cut_lock);
	tdev->reset.bars_off = false;
	txda_pmu_open(tdev);
	mutex_unlock(&tdev->reset.cut_lock);
	txda_reset_set_down(tdev, false);
	up_write(&tdev->reset.bars_lock);
}

/* ---- Culprits ------------------------------------------------------------------------------- */

/* How long the command processor's clock may be unchanged on a working chip. */
#define TXDA_LIVENESS_MS 20

static void txda_culprit_drop(struct txda_queue **at)
{
	struct txda_queue *culprit = xchg(at, NULL);

	if (culprit)
		txda_queue_put(culprit);
}

/*
 * Takes over the reference. The first culprit is kept: queues that fail to stop later may do so
 * because of it.
 */
static void txda_culprit_set(struct txda_queue **at, struct txda_queue *culprit)
{
	if (cmpxchg(at, NULL, culprit))
		txda_queue_put(culprit);
}

/* Whether the chip executes anything at all. */
static bool txda_chip_lives(struct txda_device *tdev)
{
	u32 before, after;
	int idx;

	if (!txda_bars_try_enter(tdev, &idx))
		return false;
	before = txda_read(tdev, TXDA_REG_LIVENESS);
	msleep(TXDA_LIVENESS_MS);
	after = txda_read(tdev, TXDA_REG_LIVENESS);
	txda_bars_try_exit(tdev, idx);
	return before != after;
}

/*
 * When the whole chip has stalled, the first queue to reach its time limit need not be the cause.
 * That is known only if no other user had work on the chip.
 */
static void txda_culprit_judge(struct txda_device *tdev)
{
	struct txda_queue *culprit = xchg(&tdev->reset.culprit, NULL);
	bool cookie;

	if (!culprit)
		return;
	cookie = dma_fence_begin_signalling();
	if (txda_chip_lives(tdev) || !txda_queues_run(tdev, culprit->user))
		txda_culprit_set(&tdev->reset.culprit, culprit);
	else
		txda_queue_put(culprit);
	dma_fence_end_signalling(cookie);
}

/* ---- Down and up ---------------------------------------------------------------------------- */

int txda_chip_reset(struct txda_device *tdev)
{
	u32 word;
	int err;

	txda_ras_save(tdev);
	txda_pmu_save(tdev);
	txda_busy_save(tdev);
	txda_write(tdev, TXDA_REG_RESET, TXDA_RESET_CHIP);
	err = read_poll_timeout(txda_read, word, word != TXDA_RESET_CHIP, TXDA_RESET_POLL_US,
				TXDA_RESET_TIMEOUT_US, false, tdev, TXDA_REG_RESET);
	if (err)
		return -EIO;
	txda_pmu_restart(tdev);
	txda_busy_restart(tdev);
	return txda_device_alive(tdev) ? 0 : -ENODEV;
}

/*
 * A chip that does not stop is cut off from memory that is freed once its fences signal: bus
 * mastering is disabled. Its ports to other chips cannot be, so their buffers are kept.
 */
static void txda_reset_cut_off(struct txda_device *tdev)
{
	pci_clear_master(tdev->pdev);
	txda_peers_hold(tdev);
}

/*
 * The order matters: the chip stops, or is cut off, then its work is dropped. A fence that signals
 * allows memory to be freed, which the chip must not access any more by then. In between no shared
 * queue changes hands: it would not start.
 */
static int txda_reset_take_down(struct txda_device *tdev, int lose_err)
{
	int err;

	lockdep_assert_held_write(&tdev->reset.lock);
	mutex_lock(&tdev->reset.cut_lock);
	err = txda_chip_reset(tdev);
	if (err)
		txda_reset_cut_off(tdev);
	txda_irq_disable(tdev);
	txda_queues_lose(tdev, DRM_TXDA_QUEUE_INNOCENT, lose_err);
	mutex_unlock(&tdev->reset.cut_lock);
	/* Everyone who requested a reset until now is served by this one. */
	cancel_delayed_work(&tdev->reset.work);
	/* The first half of a function reset that follows a failed chip reset changes nothing. */
	if (tdev->reset.served)
		txda_culprit_drop(&tdev->reset.culprit);
	else
		tdev->reset.served = xchg(&tdev->reset.culprit, NULL);
	return err;
}

/*
 * Brings a chip that was just reset back into service. @restore: also restores the saved memory
 * contents.
 */
static int txda_reset_bring_up(struct txda_device *tdev, bool restore)
{
	int err;

	lockdep_assert_held_write(&tdev->reset.lock);
	err = txda_fw_boot(tdev);
	if (err)
		return err;
	txda_ras_restart(tdev);
	txda_irq_enable(tdev);
	txda_hwmon_restart(tdev);
	txda_mmu_restart(tdev);
	err = txda_copy_restart(tdev);
	if (err) {
		drm_err(&tdev->drm, "the copy queue does not start after a reset: %pe\n",
			ERR_PTR(err));
		return err;
	}
	if (restore)
		err = txda_vram_restore(tdev);
	if (!err)
		txda_groups_restart(tdev);
	return err;
}

/* Threads inside do not leave: they may be waiting for the very fences that are signalled here. */
static void txda_reset_cut(struct txda_device *tdev, int lose_err)
{
	struct txda_reset *reset = &tdev->reset;

	mutex_lock(&reset->cut_lock);
	/* In a function reset the clients' work has ended already. */
	if (!reset->bars_off) {
		if (txda_chip_reset(tdev))
			txda_reset_cut_off(tdev);
		txda_queues_lose(tdev, DRM_TXDA_QUEUE_INNOCENT, lose_err);
	}
	mutex_unlock(&reset->cut_lock);
}

/* Takes the lock for writing, with all fences of queues signalled before a long wait. */
static void txda_reset_enter(struct txda_device *tdev)
{
	struct txda_reset *reset = &tdev->reset;
	bool cookie = dma_fence_begin_signalling();
	bool locked;

	WRITE_ONCE(reset->stopping, true);
	if (read_poll_timeout(down_write_trylock, locked, locked, TXDA_RESET_POLL_US,
			      TXDA_RESET_LEAVE_US, false, &reset->lock))
		txda_reset_cut(tdev, -EIO);
	dma_fence_end_signalling(cookie);
	if (!locked)
		down_write(&reset->lock);
}

static void txda_reset_exit(struct txda_device *tdev)
{
	struct txda_reset *reset = &tdev->reset;

	/* Threads that enter afterwards see the state after the reset. */
	smp_store_release(&reset->stopping, false);
	wake_up_all(&reset->up);
	up_write(&reset->lock);
}

/* The strings of drm_dev_wedged_event(), which does not support accel minors. */
static void txda_reset_uevent(struct txda_device *tdev, char *wedged)
{
	char *env[2] = {};

	env[0] = wedged;
	kobject_uevent_env(&tdev->drm.accel->kdev->kobj, KOBJ_CHANGE, env);
}

static void txda_reset_set_wedged(struct txda_device *tdev, const char *reason)
{
	lockdep_assert_held_write(&tdev->reset.lock);
	if (tdev->reset.wedged)
		return;
	WRITE_ONCE(tdev->reset.wedged, true);
	txda_reset_cut_off(tdev);
	txda_queues_lose(tdev, DRM_TXDA_QUEUE_INNOCENT, -EIO);
	txda_culprit_drop(&tdev->reset.served);
	if (txda_device_alive(tdev))
		drm_err(&tdev->drm,
			"%s: the chip is out of service until a function reset or rebind\n",
			reason);
	else
		drm_err(&tdev->drm, "%s: the chip does not answer any more\n", reason);
	txda_reset_uevent(tdev, "WEDGED=rebind,bus-reset");
}

void txda_reset_wedge(struct txda_device *tdev, const char *reason)
{
	int idx;

	if (!drm_dev_enter(&tdev->drm, &idx))
		return;
	txda_reset_enter(tdev);
	/*
	 * Binds resume first: reporting takes memory, and memory reclaim may wait for their fences.
	 */
	if (tdev->reset.down)
		txda_vms_start(tdev);
	txda_reset_set_wedged(tdev, reason);
	if (tdev->reset.down)
		txda_reset_set_down(tdev, false);
	txda_reset_exit(tdev);
	drm_dev_exit(idx);
}

static void txda_reset_report(struct txda_device *tdev, const char *reason)
{
	struct txda_queue *culprit = tdev->reset.served;
	u32 ban_ms = culprit ? txda_user_blame(culprit->user, culprit->client.id) : 0;

	lockdep_assert_held_write(&tdev->reset.lock);
	atomic64_inc(&tdev->reset.chip_resets);
	txda_events_reset(tdev, reason, culprit, ban_ms);
	txda_reset_uevent(tdev, "WEDGED=none");
	txda_culprit_drop(&tdev->reset.served);
}

/* ---- Chip reset ----------------------------------------------------------------------------- */

static int txda_reset_recover(struct txda_device *tdev, const char *reason)
{
	bool cookie;
	int err;

	trace_txda_reset(tdev->drm.dev, reason);
	/* Fences of queues wait for this, then those of binds, which are paused. */
	cookie = dma_fence_begin_signalling();
	txda_vms_stop(tdev);
	txda_coredump_take(tdev, reason, tdev->reset.culprit);
	err = txda_reset_take_down(tdev, -EIO);
	if (!err)
		err = txda_reset_bring_up(tdev, false);
	txda_vms_start(tdev);
	dma_fence_end_signalling(cookie);

	if (!err) {
		txda_gem_free_quarantined(tdev);
		txda_reset_report(tdev, reason);
	}
	return err;
}

static void txda_reset_work(struct work_struct *work)
{
	struct txda_device *tdev = container_of(work, struct txda_device, reset.work.work);
	struct txda_reset *reset = &tdev->reset;
	const char *reason = READ_ONCE(reset->reason);
	int idx, err = 0;

	if (!drm_dev_enter(&tdev->drm, &idx))
		return;
	txda_culprit_judge(tdev);
	txda_reset_enter(tdev);
	/* A function reset in progress brings the chip up by itself. */
	if (!reset->down && !reset->wedged)
		err = txda_reset_recover(tdev, reason);
	else
		txda_culprit_drop(&reset->culprit);
	txda_reset_exit(tdev);

	/*
	 * Tries a function reset. If the PCI device is locked, its holder is about to remove or
	 * reset the device and may be waiting for this, so only a trylock is possible.
	 */
	if (err && err != -ENODEV) {
		drm_warn(&tdev->drm,
			 "the chip does not come back from a reset (%pe), trying the function\n",
			 ERR_PTR(err));
		err = pci_try_reset_function(tdev->pdev);
	}
	if (err)
		txda_reset_wedge(tdev, reason);
	drm_dev_exit(idx);
}

void txda_reset_schedule(struct txda_device *tdev, const char *reason)
{
	WRITE_ONCE(tdev->reset.reason, reason);
	mod_delayed_work(tdev->reset.wq, &tdev->reset.work, 0);
}

void txda_reset_flush(struct txda_device *tdev)
{
	/* One that is due later, after a thermal trip, stays so. */
	flush_work(&tdev->reset.work.work);
}

void txda_reset_schedule_for(struct txda_device *tdev, const char *reason,
			     struct txda_queue *culprit)
{
	if (culprit) {
		txda_queue_get(culprit);
		txda_culprit_set(&tdev->reset.culprit, culprit);
	}
	txda_reset_schedule(tdev, reason);
}

void txda_reset_schedule_hot(struct txda_device *tdev)
{
	struct txda_reset *reset = &tdev->reset;
	unsigned long now = jiffies, delay = 0;

	if (time_before(now, reset->rest_until))
		delay = reset->rest_until - now;
	reset->rest_until = now + delay + TXDA_RESET_REST;
	WRITE_ONCE(reset->reason, "thermal trip");
	queue_delayed_work(reset->wq, &reset->work, delay);
}

/* ---- Function reset ------------------------------------------------------------------------- */

void txda_reset_prepare(struct txda_device *tdev)
{
	int idx;

	if (!drm_dev_enter(&tdev->drm, &idx))
		return;
	txda_reset_enter(tdev);
	txda_vms_stop(tdev);
	txda_reset_take_down(tdev, -EIO);
	txda_bars_close(tdev);
	txda_reset_exit(tdev);
	drm_dev_exit(idx);
}

int txda_reset_done(struct txda_device *tdev)
{
	static const char reason[] = "function reset";
	int idx, err;

	if (!drm_dev_enter(&tdev->drm, &idx))
		return -ENODEV;
	down_write(&tdev->reset.lock);
	trace_txda_reset(tdev->drm.dev, reason);
	WRITE_ONCE(tdev->reset.wedged, false);
	/* Any setup in progress was based on DRAM contents that are now lost. */
	txda_vms_lost(tdev);
	txda_groups_leave_all(tdev);
	err = txda_device_alive(tdev) ? 0 : -ENODEV;
	if (!err) {
		pci_set_master(tdev->pdev);
		err = txda_reset_bring_up(tdev, false);
	}
	txda_vms_start(tdev);
	if (err) {
		txda_reset_set_wedged(tdev, reason);
	} else {
		txda_gem_free_quarantined(tdev);
		/* It may have been a bus reset, which leaves DRAM undefined. */
		txda_vram_set_unknown(tdev);
		txda_reset_report(tdev, reason);
	}
	txda_bars_open(tdev);
	up_write(&tdev->reset.lock);
	drm_dev_exit(idx);
	return err;
}

static pci_ers_result_t txda_pci_error_detected(struct pci_dev *pdev, pci_channel_state_t state)
{
	struct txda_device *tdev = pci_get_drvdata(pdev);

	drm_err(&tdev->drm, "PCI error, channel state %u\n", state);
	switch (state) {
	case pci_channel_io_normal:
		return PCI_ERS_RESULT_CAN_RECOVER;
	case pci_channel_io_frozen:
		txda_reset_prepare(tdev);
		return PCI_ERS_RESULT_NEED_RESET;
	default:
		txda_reset_wedge(tdev, "PCI error");
		return PCI_ERS_RESULT_DISCONNECT;
	}
}

static pci_ers_result_t txda_pci_mmio_enabled(struct pci_dev *pdev)
{
	struct txda_device *tdev = pci_get_drvdata(pdev);

	if (txda_device_alive(tdev))
		return PCI_ERS_RESULT_RECOVERED;
	/* The bus is reset next; there is no other callback for that. */
	txda_reset_prepare(tdev);
	return PCI_ERS_RESULT_NEED_RESET;
}

static pci_ers_result_t txda_pci_slot_reset(struct pci_dev *pdev)
{
	struct txda_device *tdev = pci_get_drvdata(pdev);

	pci_restore_state(pdev);
	pci_save_state(pdev);
	/* A bus reset may be meant for another device on the bus. */
	if (!READ_ONCE(tdev->reset.down))
		txda_reset_prepare(tdev);
	if (txda_device_alive(tdev))
		return PCI_ERS_RESULT_RECOVERED;
	/* Older kernels have no result code for devices whose recovery failed. */
	txda_reset_wedge(tdev, "PCI error");
	return PCI_ERS_RESULT_DISCONNECT;
}

static void txda_pci_resume(struct pci_dev *pdev)
{
	struct txda_device *tdev = pci_get_drvdata(pdev);

	if (READ_ONCE(tdev->reset.down))
		txda_reset_done(tdev);
}

static void txda_pci_reset_prepare(struct pci_dev *pdev)
{
	txda_reset_prepare(pci_get_drvdata(pdev));
}

static void txda_pci_reset_done(struct pci_dev *pdev)
{
	txda_reset_done(pci_get_drvdata(pdev));
}

const struct pci_error_handlers txda_pci_errors = {
	.error_detected = txda_pci_error_detected,
	.mmio_enabled = txda_pci_mmio_enabled,
	.slot_reset = txda_pci_slot_reset,
	.resume = txda_pci_resume,
	.reset_prepare = txda_pci_reset_prepare,
	.reset_done = txda_pci_reset_done,
};

/* ---- Suspend -------------------------------------------------------------------------------- */

static int txda_suspend(struct device *dev)
{
	struct txda_device *tdev = dev_get_drvdata(dev);
	int idx, err;

	if (!drm_dev_enter(&tdev->drm, &idx))
		return 0;
	down_write(&tdev->reset.lock);
	err = 0;
	if (tdev->reset.wedged)
		goto out;

	err = txda_queues_suspend(tdev, TXDA_SUSPEND_TIMEOUT_MS);
	if (err) {
		drm_warn(&tdev->drm, "cannot suspend, a queue does not stop: %pe\n", ERR_PTR(err));
		goto out;
	}
	/* After the queues, since their jobs may wait for binds. */
	txda_vms_stop(tdev);
	err = txda_vram_save(tdev);
	if (err) {
		drm_warn(&tdev->drm, "cannot suspend, device memory cannot be saved: %pe\n",
			 ERR_PTR(err));
		txda_queues_resume(tdev);
		txda_vms_start(tdev);
		goto out;
	}
	txda_irq_disable(tdev);
	/* If it does not stop, it loses power anyway. */
	txda_chip_reset(tdev);
	txda_vram_set_unknown(tdev);
	txda_bars_close(tdev);
out:
	up_write(&tdev->reset.lock);
	drm_dev_exit(idx);
	return err;
}

static int txda_resume_chip(struct txda_device *tdev)
{
	int err;

	if (!txda_device_alive(tdev))
		return -ENODEV;
	pci_set_master(tdev->pdev);
	err = txda_chip_reset(tdev);
	if (!err)
		err = txda_reset_bring_up(tdev, true);
	if (!err)
		txda_queues_resume(tdev);
	return err;
}

static int txda_resume(struct device *dev)
{
	struct txda_device *tdev = dev_get_drvdata(dev);
	int idx, err = 0;

	if (!drm_dev_enter(&tdev->drm, &idx))
		return 0;
	down_write(&tdev->reset.lock);
	if (tdev->reset.down) {
		err = txda_resume_chip(tdev);
		txda_vms_start(tdev);
		if (err)
			txda_reset_set_wedged(tdev, "resume");
		else
			txda_gem_free_quarantined(tdev);
		txda_bars_open(tdev);
	}
	up_write(&tdev->reset.lock);
	drm_dev_exit(idx);
	return err;
}

const struct dev_pm_ops txda_pm_ops = {SYSTEM_SLEEP_PM_OPS(txda_suspend, txda_resume)};

/* While everything still works: tasks run, and memory can be allocated. */
static int txda_reset_sleep(struct notifier_block *nb, unsigned long what, void *data)
{
	struct txda_device *tdev = container_of(nb, struct txda_device, reset.sleep);

	switch (what) {
	case PM_SUSPEND_PREPARE:
	case PM_HIBERNATION_PREPARE:
		return notifier_from_errno(txda_vram_prepare_save(tdev));
	case PM_POST_SUSPEND:
	case PM_POST_HIBERNATION:
	case PM_POST_RESTORE:
		txda_vram_end_save(tdev);
		return NOTIFY_OK;
	default:
		return NOTIFY_DONE;
	}
}

/* ---- Lifetime ------------------------------------------------------------------------------- */

static void txda_reset_release(struct drm_device *drm, void *wq)
{
	destroy_workqueue(wq);
}

int txda_reset_init(struct txda_device *tdev)
{
	struct txda_reset *reset = &tdev->reset;

	reset->down = true;
	reset->rest_until = jiffies;
	init_rwsem(&reset->lock);
	init_rwsem(&reset->bars_lock);
	mutex_init(&reset->cut_lock);
	init_waitqueue_head(&reset->up);
	INIT_DELAYED_WORK(&reset->work, txda_reset_work);
	atomic64_set(&reset->chip_resets, 0);
	/* Open files may request a reset after removal; the work is disabled by then. */
	reset->wq = alloc_ordered_workqueue("txda-reset", WQ_MEM_RECLAIM);
	if (!reset->wq)
		return -ENOMEM;
	return drmm_add_action_or_reset(&tdev->drm, txda_reset_release, reset->wq);
}

int txda_reset_set_up(struct txda_device *tdev)
{
	int err;

	tdev->reset.sleep.notifier_call = txda_reset_sleep;
	err = register_pm_notifier(&tdev->reset.sleep);
	if (err)
		return err;
	down_write(&tdev->reset.lock);
	txda_reset_set_down(tdev, false);
	up_write(&tdev->reset.lock);
	return 0;
}

void txda_reset_unplug(struct txda_device *tdev)
{
	struct txda_reset *reset = &tdev->reset;
	bool cookie;

	/* One in progress signals fences itself, and brings the chip up again. */
	disable_delayed_work_sync(&reset->work);
	cookie = dma_fence_begin_signalling();
	WRITE_ONCE(reset->stopping, true);
	/* Binds that wait for those fences fail. */
	txda_vms_lost(tdev);
	txda_reset_cut(tdev, -ENODEV);
	/* So do those that wait for the second half of a function reset. */
	txda_vms_start(tdev);
	pci_clear_master(tdev->pdev);
	/* Whoever sees it need not stop anything on the chip. */
	smp_store_release(&reset->leaving, true);
	wake_up_all(&reset->up);
	dma_fence_end_signalling(cookie);
}

void txda_reset_fini(struct txda_device *tdev)
{
	/* Fails if it was never registered. */
	unregister_pm_notifier(&tdev->reset.sleep);
	disable_delayed_work_sync(&tdev->reset.work);
	txda_culprit_drop(&tdev->reset.culprit);
	txda_culprit_drop(&tdev->reset.served);
	wake_up_all(&tdev->reset.up);
}
