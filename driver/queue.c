// SPDX-License-Identifier: GPL-2.0
#include "queue.h"

#include <linux/capability.h>
#include <linux/jiffies.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/wait_bit.h>
#include <drm/drm_drv.h>
#include <drm/drm_print.h>

#include "array.h"
#include "compat/sched.h"
#include "compat/slab.h"
#include "device.h"
#include "fence.h"
#include "group.h"
#include "hwq.h"
#include "locks.h"
#include "vm.h"

/*
 * How many times the time limit is checked while it runs; a hang is detected a quarter late at
 * most.
 */
#define TXDA_QUEUE_CHECKS 4

int txda_queues_init(struct txda_device *tdev)
{
	struct txda_queues *queues = &tdev->queues;

	mutex_init(&queues->lock);
	mutex_init(&queues->fault_lock);
	INIT_LIST_HEAD(&queues->all);
	init_waitqueue_head(&queues->idle);
	return 0;
}

/* ---- References ----------------------------------------------------------------------------- */

static void txda_queue_release_work(struct work_struct *work)
{
	struct txda_queue *queue = container_of(work, struct txda_queue, release);
	struct txda_device *tdev = queue->tdev;

	mutex_lock(&tdev->queues.lock);
	list_del(&queue->link);
	mutex_unlock(&tdev->queues.lock);

	drm_sched_entity_fini(&queue->entity);
	/*
	 * Fences signal with interrupts off, and their callbacks may still be about to queue
	 * scheduler work for a dependency, or for a job that was freed long ago.
	 */
	synchronize_rcu();
	drm_sched_fini(&queue->sched);

	txda_vm_put(queue->vm);
	txda_user_put(queue->user);
	kfree(queue);
	drm_dev_put(&tdev->drm);
	module_put(THIS_MODULE);
}

static void txda_queue_release(struct kref *ref)
{
	struct txda_queue *queue = container_of(ref, struct txda_queue, ref);

	/* The scheduler's own work may have dropped the last reference. */
	queue_work(txda_release_wq, &queue->release);
}

void txda_queue_get(struct txda_queue *queue)
{
	kref_get(&queue->ref);
}

void txda_queue_put(struct txda_queue *queue)
{
	kref_put(&queue->ref, txda_queue_release);
}

struct txda_queue *txda_queue_lookup(struct txda_file *file, u32 id)
{
	struct txda_queue *queue;

	xa_lock(&file->queues);
	queue = xa_load(&file->queues, id);
	if (queue)
		kref_get(&queue->ref);
	xa_unlock(&file->queues);
	return queue;
}

/* ---- The end of a queue --------------------------------------------------------------------- */

static bool txda_queue_mark(struct txda_queue *queue, u32 state, int guilty_err, int drop_err)
{
	bool alive;

	spin_lock_irq(&queue->lock);
	alive = !queue->drop_err;
	if (alive) {
		WRITE_ONCE(queue->state, queue->state | state);
		queue->guilty_err = guilty_err;
		WRITE_ONCE(queue->drop_err, drop_err);
	}
	spin_unlock_irq(&queue->lock);
	return alive;
}

/* For a queue marked as ended: 0 when nothing of it runs on the chip. */
static int txda_queue_stop(struct txda_queue *queue)
{
	struct txda_device *tdev = queue->tdev;
	int idx, err;

	lockdep_assert_held(&queue->hw_lock);
	if (!queue->hwq)
		return 0;
	/* A removal has stopped the whole chip, and ends this queue. */
	if (!drm_dev_enter(&tdev->drm, &idx))
		return -ENODEV;
	err = txda_hwq_stop(queue->hwq);
	/* An idle queue's client did not cause this, and no client that a chip is gone. */
	if (err)
		txda_reset_schedule_for(tdev, "a queue does not stop",
					err != -ENODEV && txda_queue_running_ns(queue) ? queue
										       : NULL);
	drm_dev_exit(idx);
	return err;
}

static enum txda_user_kind txda_queue_user_kind(const struct txda_queue *queue)
{
	if (queue->shared)
		return TXDA_USER_SHARED_QUEUES;
	return queue->class == TXDA_CLASS_COPY ? TXDA_USER_COPY_QUEUES : TXDA_USER_COMPUTE_QUEUES;
}

/* Releases a dead queue's hardware queue, if nothing of it is running. */
static void txda_queue_detach(struct txda_queue *queue)
{
	struct txda_hwq *hwq;

	mutex_lock(&queue->hw_lock);
	spin_lock_irq(&queue->lock);
	hwq = queue->hwq;
	WRITE_ONCE(queue->hwq, NULL);
	spin_unlock_irq(&queue->lock);
	mutex_unlock(&queue->hw_lock);

	if (!hwq)
		return;
	txda_hwq_put(hwq);
	txda_user_uncharge(queue->user, txda_queue_user_kind(queue));
	/* Pairs with the waiter, which announces itself before it reads @hwq. */
	smp_mb();
	wake_up_var(&queue->hwq);
	txda_queue_put(queue);
}

bool txda_queue_kill(struct txda_queue *queue, u32 state, int guilty_err, int drop_err)
{
	bool alive;

	mutex_lock(&queue->hw_lock);
	alive = txda_queue_mark(queue, state, guilty_err, drop_err);
	if (!txda_queue_stop(queue))
		txda_jobs_flush(queue);
	mutex_unlock(&queue->hw_lock);

	if (alive && state & (DRM_TXDA_QUEUE_TIMEDOUT | DRM_TXDA_QUEUE_FATAL_FAULT))
		atomic64_inc(&queue->tdev->queues.resets);
	return alive;
}

/* The address space is used by a queue. @alone: which cannot take part in a collective. */
static int txda_queue_use_vm(struct txda_vm *vm, bool alone)
{
	int err;

	if (!txda_vm_use(vm))
		return -ENOENT;
	err = alone ? txda_groups_refuse(vm) : 0;
	if (err)
		txda_vm_unuse(vm);
	return err;
}

static void txda_queue_unuse_vm(struct txda_vm *vm, bool alone)
{
	if (alone)
		txda_groups_allow(vm);
	txda_vm_unuse(vm);
}

/* Ends a queue whose id is gone. */
static void txda_queue_close(struct txda_queue *queue)
{
	struct txda_device *tdev = queue->tdev;
	int idx, err = 0;
	bool up;

	up = txda_device_enter_teardown(tdev, &idx);
	mutex_lock(&queue->hw_lock);
	txda_queue_mark(queue, 0, -ECANCELED, -ECANCELED);
	queue->closed = true;
	if (up)
		err = txda_queue_stop(queue);
	else if (READ_ONCE(tdev->reset.leaving))
		err = -ENODEV; /* removal detaches it, and does not wait for this thread */
	if (!err)
		txda_jobs_flush(queue);
	txda_jobs_leave_file(queue);
	mutex_unlock(&queue->hw_lock);

	if (up)
		txda_queues_read_faults(tdev);
	if (!err)
		txda_queue_detach(queue);
	if (up)
		txda_device_exit(tdev, idx);
	/*
	 * The requested reset, or the removal in progress, does the rest: either releases the
	 * hardware queue even if the chip does not react. The address space, which may be freed
	 * next, must stay until the chip has stopped using it, however long that takes.
	 */
	if (err)
		wait_var_event(&queue->hwq, !READ_ONCE(queue->hwq));

	txda_queue_unuse_vm(queue->vm, queue->alone);
	txda_queue_put(queue);
}

void txda_queues_close_file(struct txda_file *file)
{
	struct txda_queue *queue;
	unsigned long id;

	xa_for_each(&file->queues, id, queue) {
		xa_erase(&file->queues, id);
		txda_queue_close(queue);
	}
}

void txda_queues_lose(struct txda_device *tdev, u32 state, int err)
{
	struct txda_queues *queues = &tdev->queues;
	struct txda_queue *queue;
	bool detach;

	mutex_lock(&queues->lock);
	list_for_each_entry(queue, &queues->all, link) {
		mutex_lock(&queue->hw_lock);
		txda_queue_mark(queue, state, err, err);
		txda_jobs_flush(queue);
		detach = queue->closed || err == -ENODEV;
		mutex_unlock(&queue->hw_lock);
		if (detach)
			txda_queue_detach(queue);
	}
	mutex_unlock(&queues->lock);
}

bool txda_queues_run(struct txda_device *tdev, const struct txda_user *but)
{
	struct txda_queues *queues = &tdev->queues;
	struct txda_queue *queue;
	bool run = false;

	mutex_lock(&queues->lock);
	list_for_each_entry(queue, &queues->all, link) {
		if (queue->user == but)
			continue;
		run |= txda_queue_is_working(queue);
	}
	mutex_unlock(&queues->lock);
	return run;
}

/* ---- Turns ---------------------------------------------------------------------------------- */

bool txda_queue_begin_turn(struct txda_queue *queue, struct txda_hwq *hwq, bool free, u32 index)
{
	bool alive, err = false;

	mutex_lock(&queue->hw_lock);
	if (queue->hwq == hwq) {
		alive = free && !queue->drop_err;
		err = alive && hwq->index != index && txda_hwq_bind(hwq, index);
		/* One that died where it was before is still there, and must be parked. */
		txda_share_settle(hwq, hwq->index == index);
		spin_lock_irq(&queue->lock);
		if (alive && !err)
			txda_jobs_feed(queue);
		spin_unlock_irq(&queue->lock);
	}
	mutex_unlock(&queue->hw_lock);
	return !err;
}

bool txda_queue_end_turn(struct txda_queue *queue, struct txda_hwq *hwq)
{
	bool dead = READ_ONCE(queue->drop_err), err;

	mutex_lock(&queue->hw_lock);
	err = queue->hwq == hwq && txda_hwq_park(hwq);
	mutex_unlock(&queue->hw_lock);
	/* Nothing of it runs, so it is not the one to blame. */
	if (err)
		txda_reset_schedule(queue->tdev, "a queue does not stop");
	if (dead)
		txda_queues_read_faults(queue->tdev);
	return !err;
}

/* ---- Suspend -------------------------------------------------------------------------------- */

int txda_queues_suspend(struct txda_device *tdev, u32 timeout_ms)
{
	struct txda_queues *queues = &tdev->queues;
	struct txda_queue *queue;

	if (wait_event_timeout(queues->idle, !atomic_read(&queues->jobs),
			       msecs_to_jiffies(timeout_ms)))
		return 0;
	mutex_lock(&queues->lock);
	list_for_each_entry(queue, &queues->all, link) {
		if (!atomic_read(&queue->jobs))
			continue;
		if (txda_queue_kill(queue, DRM_TXDA_QUEUE_INNOCENT, -EIO, -EIO))
			drm_info(&tdev->drm, "queue %u of process %d is lost, the machine sleeps\n",
				 queue->id, queue->client.pid);
	}
	mutex_unlock(&queues->lock);
	/* Jobs that still wait for others' fences never reach the chip. */
	return txda_queues_run(tdev, NULL) ? -EBUSY : 0;
}

void txda_queues_resume(struct txda_device *tdev)
{
	struct txda_queues *queues = &tdev->queues;
	struct txda_queue *queue;
	bool lost;

	mutex_lock(&queues->lock);
	list_for_each_entry(queue, &queues->all, link) {
		mutex_lock(&queue->hw_lock);
		lost = queue->hwq && !queue->drop_err && txda_hwq_restart(queue->hwq);
		if (lost) {
			txda_queue_mark(queue, DRM_TXDA_QUEUE_INNOCENT, -EIO, -EIO);
			txda_jobs_flush(queue);
		}
		mutex_unlock(&queue->hw_lock);
	}
	mutex_unlock(&queues->lock);
}

/* ---- Ioctls --------------------------------------------------------------------------------- */

static int txda_queue_check_args(struct txda_device *tdev, const struct drm_txda_queue_create *args)
{
	u32 max_ms = TXDA_MAX_TIMEOUT_MS;

	/* Others wait for its jobs. */
	if (args->flags & DRM_TXDA_QUEUE_SHARE)
		max_ms = READ_ONCE(tdev->queues.timeout_ms);
	if (args->flags & ~DRM_TXDA_QUEUE_SHARE || args->class_ > DRM_TXDA_QUEUE_COPY ||
	    args->priority > DRM_TXDA_PRIORITY_HIGH || args->timeout_ms > max_ms)
		return -EINVAL;
	if (args->priority == DRM_TXDA_PRIORITY_HIGH && !capable(CAP_SYS_NICE))
		return -EACCES;
	return 0;
}

static int txda_queue_init_sched(struct txda_queue *queue, u32 timeout_ms)
{
	struct drm_gpu_scheduler *sched = &queue->sched;
	struct drm_sched_init_args args = {
		.ops = &txda_job_sched_ops,
		.submit_wq = txda_wq,
		.timeout_wq = txda_wq,
		.credit_limit = queue->shared ? TXDA_SHARE_DEPTH : TXDA_HWQ_DEPTH,
		.timeout = max(msecs_to_jiffies(timeout_ms / TXDA_QUEUE_CHECKS), 1ul),
		.name = queue->class == TXDA_CLASS_COPY ? "txda-copy" : "txda-compute",
		.dev = queue->tdev->drm.dev,
	};
	int err;

	err = txda_sched_init(sched, &args);
	if (err)
		return err;
	err = drm_sched_entity_init(&queue->entity, DRM_SCHED_PRIORITY_KERNEL, &sched, 1, NULL);
	if (err)
		drm_sched_fini(sched);
	return err;
}

/* Takes over the caller's reference to @vm, and its use count, on success. */
static struct txda_queue *txda_queue_new(struct txda_file *file, struct txda_vm *vm,
					 const struct drm_txda_queue_create *args)
{
	struct txda_device *tdev = file->tdev;
	u32 timeout_ms = args->timeout_ms ?: READ_ONCE(tdev->queues.timeout_ms);
	struct txda_queue *queue;
	int err;

	queue = kzalloc_obj(*queue, GFP_KERNEL_ACCOUNT);
	if (!queue)
		return ERR_PTR(-ENOMEM);
	kref_init(&queue->ref);
	queue->tdev = tdev;
	queue->vm = vm;
	queue->class = args->class_ == DRM_TXDA_QUEUE_COPY ? TXDA_CLASS_COPY : TXDA_CLASS_COMPUTE;
	queue->shared = args->flags & DRM_TXDA_QUEUE_SHARE;
	txda_file_identify(file, &queue->client);
	queue->timeout_ns = (u64)timeout_ms * NSEC_PER_MSEC;
	queue->most_ns =
		NSEC_PER_MSEC * min(timeout_ms * (u64)TXDA_JOB_TIMEOUTS, (u64)TXDA_MAX_TIMEOUT_MS);
	queue->fence_context = dma_fence_context_alloc(1);
	queue->next_seqno = 1;
	mutex_init(&queue->hw_lock);
	mutex_init(&queue->submit_lock);
	spin_lock_init(&queue->lock);
	INIT_LIST_HEAD(&queue->running);
	INIT_WORK(&queue->report, txda_queue_report_work);
	INIT_WORK(&queue->release, txda_queue_release_work);
	txda_locks_show_queue(queue);

	err = txda_queue_init_sched(queue, timeout_ms);
	if (err) {
		kfree(queue);
		return ERR_PTR(err);
	}

	queue->user = file->user;
	txda_user_get(queue->user);
	drm_dev_get(&tdev->drm);
	__module_get(THIS_MODULE);
	mutex_lock(&tdev->queues.lock);
	list_add_tail(&queue->link, &tdev->queues.all);
	mutex_unlock(&tdev->queues.lock);
	return queue;
}

static int txda_queue_get_hwq(struct txda_queue *queue, u32 priority)
{
	/* DRM_TXDA_PRIORITY_* and TXDA_PRIORITY_* have the same values. */
	struct txda_hwq *hwq;
	int err;

	if (queue->shared)
		err = txda_hwq_get_parked(queue->tdev, queue->class, queue->vm->pt.vmid, priority,
					  txda_jobs_complete, queue, &hwq);
	else
		err = txda_hwq_get(queue->tdev, queue->class, queue->vm->pt.vmid, priority,
				   txda_jobs_complete, queue, &hwq);
	if (err)
		return err;
	if (queue->shared)
		txda_share_add(hwq, &queue->user->fair[queue->class],
			       txda_fair_weight(priority, task_nice(current)));

	/* Whoever goes through txda_queues.all sees it from now on. */
	mutex_lock(&queue->hw_lock);
	spin_lock_irq(&queue->lock);
	WRITE_ONCE(queue->hwq, hwq);
	spin_unlock_irq(&queue->lock);
	mutex_unlock(&queue->hw_lock);
	return 0;
}

/*
 * Assigns a hardware queue to the new queue and, last, an id: from then on the client can use it.
 */
static int txda_queue_publish(struct txda_queue *queue, struct txda_file *file, u32 priority,
			      u32 *ret_id)
{
	int err;

	/* The id is reserved first, without the queue: reserving it may fail for lack of memory. */
	err = xa_alloc(&file->queues, &queue->id, NULL, XA_LIMIT(1, TXDA_MAX_CLIENT_QUEUES),
		       GFP_KERNEL);
	if (err)
		return err == -EBUSY ? -ENOSPC : err;

	err = txda_user_charge(file->user, txda_queue_user_kind(queue));
	if (err)
		goto err_id;
	err = txda_queue_get_hwq(queue, priority);
	if (err)
		goto err_user;
	txda_queue_get(queue);

	queue->file = file;
	*ret_id = queue->id;
	xa_store(&file->queues, queue->id, queue, GFP_KERNEL);
	return 0;

err_user:
	txda_user_uncharge(file->user, txda_queue_user_kind(queue));
err_id:
	xa_erase(&file->queues, queue->id);
	return err;
}

static int txda_queue_create(struct txda_file *file, struct drm_txda_queue_create *args)
{
	/* Copy queues know no collectives. */
	bool alone = args->flags & DRM_TXDA_QUEUE_SHARE && args->class_ != DRM_TXDA_QUEUE_COPY;
	struct txda_queue *queue;
	struct txda_vm *vm;
	int err;

	vm = txda_vm_lookup(file, args->vm_id);
	if (!vm)
		return -ENOENT;
	err = txda_queue_use_vm(vm, alone);
	if (err)
		goto err_vm;
	if (READ_ONCE(vm->lost)) {
		err = -EIO;
		goto err_use;
	}

	queue = txda_queue_new(file, vm, args);
	if (IS_ERR(queue)) {
		err = PTR_ERR(queue);
		goto err_use;
	}
	queue->alone = alone;
	err = txda_queue_publish(queue, file, args->priority, &args->id);
	if (err) {
		/* The queue now owns the reference to the address space. */
		txda_queue_unuse_vm(vm, alone);
		txda_queue_put(queue);
	}
	return err;

err_use:
	txda_queue_unuse_vm(vm, alone);
err_vm:
	txda_vm_put(vm);
	return err;
}

int txda_ioctl_queue_create(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct drm_txda_queue_create *args = data;
	struct txda_device *tdev = to_txda(drm);
	int idx, err;

	err = txda_queue_check_args(tdev, args);
	if (err)
		return err;
	err = txda_device_enter(tdev, &idx);
	if (err)
		return err;
	err = txda_queue_create(to_txda_file(file), args);
	txda_device_exit(tdev, idx);
	return err;
}

int txda_ioctl_queue_destroy(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct txda_file *tfile = to_txda_file(file);
	struct drm_txda_queue_destroy *args = data;
	struct txda_queue *queue;

	if (args->pad)
		return -EINVAL;
	/* An id that QUEUE_CREATE has reserved has no queue yet, and is left alone. */
	xa_lock(&tfile->queues);
	queue = xa_load(&tfile->queues, args->id);
	if (queue)
		__xa_erase(&tfile->queues, args->id);
	xa_unlock(&tfile->queues);
	if (!queue)
		return -ENOENT;

	txda_queue_close(queue);
	return 0;
}

bool txda_queue_read_progress(struct txda_queue *queue, u64 *ret_progress)
{
	u64 progress;

	lockdep_assert_held(&queue->hw_lock);
	if (!queue->hwq)
		return false;
	progress = txda_hwq_progress(queue->hwq);
	if (!txda_device_alive(queue->tdev))
		return false;
	queue->progress = progress;
	*ret_progress = progress;
	return true;
}

int txda_ioctl_queue_get_state(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct drm_txda_queue_get_state *args = data;
	struct txda_device *tdev = to_txda(drm);
	struct drm_txda_fault fault;
	struct txda_queue *queue;
	u64 progress;
	int idx, err;
	bool up;

	err = txda_answer_check(&args->fault);
	if (err)
		return err;
	queue = txda_queue_lookup(to_txda_file(file), args->id);
	if (!queue)
		return -ENOENT;

	/* Outside of hw_lock, which fences wait for. */
	up = !txda_bars_enter(tdev, &idx);
	mutex_lock(&queue->hw_lock);
	if (up)
		txda_queue_read_progress(queue, &progress);
	args->progress = queue->progress;
	mutex_unlock(&queue->hw_lock);
	if (up)
		txda_bars_exit(tdev, idx);

	/* Counts jobs that the chip has finished but not signalled by interrupt yet. */
	txda_jobs_reap(queue);
	args->submitted = atomic64_read(&queue->submitted);
	args->completed = atomic64_read(&queue->completed);
	spin_lock_irq(&queue->lock);
	args->state = queue->state;
	fault = queue->fault;
	spin_unlock_irq(&queue->lock);

	txda_queue_put(queue);
	return txda_answer_put(&args->fault, &fault, sizeof(fault));
}
