// SPDX-License-Identifier: GPL-2.0
/*
 * The path of a job: QUEUE_SUBMIT, drm_sched, the ring, its fence.
 */
#include <linux/ktime.h>
#include <drm/drm_drv.h>
#include <drm/drm_exec.h>

#include "array.h"
#include "compat/sched.h"
#include "compat/slab.h"
#include "coredump.h"
#include "device.h"
#include "fence.h"
#include "hwq.h"
#include "queue.h"
#include "sync.h"
#include "trace.h"
#include "txda_isa.h"
#include "vm.h"

/**
 * struct txda_job - One stream.
 *
 * Lives as long as its fence; all other resources are released when drm_sched frees the job.
 */
struct txda_job {
	/** @fence: First, see fence.h. Its sequence number is what the chip stores. */
	struct txda_fence fence;

	/** @base: The drm_sched job. */
	struct drm_sched_job base;

	/** @queue: With a reference. */
	struct txda_queue *queue;

	/** @link: In txda_queue.running, from when the scheduler released it to its end. */
	struct list_head link;

	/** @pushed_ns: When it went onto the ring, 0: it has not yet. */
	u64 pushed_ns;

	/** @stream_va: Address of the stream. */
	u64 stream_va;

	/** @stream_bytes: Its size. */
	u32 stream_bytes;
};

static struct txda_job *to_txda_job(struct drm_sched_job *job)
{
	return container_of(job, struct txda_job, base);
}

static void txda_job_push(struct txda_job *job)
{
	struct txda_queue *queue = job->queue;

	lockdep_assert_held(&queue->lock);
	job->pushed_ns = ktime_get_ns();
	trace_txda_job_run(queue->tdev->drm.dev, queue->id, READ_ONCE(queue->hwq->index),
			   job->fence.base.seqno, job->stream_bytes);
	txda_hwq_push(queue->hwq, job->stream_va, job->stream_bytes, job->fence.base.seqno);
}

void txda_jobs_feed(struct txda_queue *queue)
{
	struct txda_job *job;

	lockdep_assert_held(&queue->lock);
	job = list_first_entry_or_null(&queue->running, struct txda_job, link);
	if (!job)
		txda_share_rest(queue->hwq);
	else if (!job->pushed_ns && txda_share_start(queue->hwq))
		txda_job_push(job);
}

/* ---- On the ring ---------------------------------------------------------------------------- */

/*
 * The job is done, or will never run. Counters are updated first, since a thread that waits for the
 * fence may read them. Signalling must be the last access to the job here: drm_sched may free it at
 * once. The memory stays valid until the end of this section, since interrupts are off (an RCU
 * read-side section).
 */
static void txda_job_end(struct txda_job *job, int err)
{
	struct txda_queue *queue = job->queue;
	struct txda_queues *queues = &queue->tdev->queues;

	lockdep_assert_held(&queue->lock);
	if (err)
		dma_fence_set_error(&job->fence.base, err);
	else
		atomic64_inc(&queue->completed);
	trace_txda_job_done(queue->tdev->drm.dev, queue->id,
			    queue->hwq ? READ_ONCE(queue->hwq->index) : ~0u, job->fence.base.seqno,
			    err);

	atomic_dec(&queue->jobs);
	atomic_dec(&queue->vm->jobs);
	if (atomic_dec_and_test(&queues->jobs))
		wake_up_all(&queues->idle);
	dma_fence_signal(&job->fence.base);
}

/* When it began: the ring executes one job at a time, so when the one before it had ended. */
static u64 txda_job_since(const struct txda_job *job)
{
	return max(job->pushed_ns, job->queue->last_done_ns);
}

static void txda_job_leave_ring(struct txda_job *job)
{
	struct txda_queue *queue = job->queue;
	u64 now = ktime_get_ns(), busy = now - txda_job_since(job);

	if (queue->file)
		atomic64_add(busy, &queue->file->busy_ns[queue->class]);
	txda_share_end(queue->hwq, busy);
	queue->last_done_ns = now;
}

/* The same as txda_job_end() for a job that the scheduler had released before. */
static void txda_job_leave(struct txda_job *job, int err)
{
	lockdep_assert_held(&job->queue->lock);
	if (job->pushed_ns)
		txda_job_leave_ring(job);
	list_del(&job->link);
	txda_job_end(job, err);
}

static void txda_jobs_reap_locked(struct txda_queue *queue)
{
	struct txda_job *job, *next;
	u64 done;

	lockdep_assert_held(&queue->lock);
	if (list_empty(&queue->running))
		return;
	done = txda_hwq_done(queue->hwq);
	list_for_each_entry_safe(job, next, &queue->running, link) {
		if (job->fence.base.seqno > done)
			break;
		txda_job_leave(job, 0);
	}
	if (queue->shared && !queue->drop_err)
		txda_jobs_feed(queue);
}

void txda_jobs_reap(struct txda_queue *queue)
{
	unsigned long flags;

	spin_lock_irqsave(&queue->lock, flags);
	txda_jobs_reap_locked(queue);
	spin_unlock_irqrestore(&queue->lock, flags);
}

void txda_jobs_complete(struct txda_hwq *hwq)
{
	txda_jobs_reap(hwq->priv);
}

void txda_jobs_flush(struct txda_queue *queue)
{
	struct txda_job *job, *next;
	unsigned long flags;
	int err;

	spin_lock_irqsave(&queue->lock, flags);
	txda_jobs_reap_locked(queue);
	err = queue->guilty_err;
	list_for_each_entry_safe(job, next, &queue->running, link) {
		txda_job_leave(job, err);
		err = queue->drop_err;
	}
	if (queue->hwq)
		txda_share_rest(queue->hwq);
	spin_unlock_irqrestore(&queue->lock, flags);
}

void txda_jobs_leave_file(struct txda_queue *queue)
{
	spin_lock_irq(&queue->lock);
	queue->file = NULL;
	spin_unlock_irq(&queue->lock);
}

/* ---- drm_sched's side ----------------------------------------------------------------------- */

static struct dma_fence *txda_job_run(struct drm_sched_job *base)
{
	struct txda_job *job = to_txda_job(base);
	struct txda_queue *queue = job->queue;
	struct txda_device *tdev = queue->tdev;
	bool cookie = dma_fence_begin_signalling();
	bool there;
	int idx;

	there = drm_dev_enter(&tdev->drm, &idx);
	spin_lock_irq(&queue->lock);
	if (queue->drop_err || !there) {
		txda_job_end(job, queue->drop_err ?: -ENODEV);
	} else {
		list_add_tail(&job->link, &queue->running);
		if (queue->shared)
			txda_jobs_feed(queue);
		else
			txda_job_push(job);
	}
	spin_unlock_irq(&queue->lock);
	if (there)
		drm_dev_exit(idx);
	dma_fence_end_signalling(cookie);

	return dma_fence_get(&job->fence.base);
}

/* When the oldest job on the ring started executing; false: the ring is empty. */
static bool txda_queue_working_since(struct txda_queue *queue, u64 *ret_ns)
{
	struct txda_job *job;

	spin_lock_irq(&queue->lock);
	job = list_first_entry_or_null(&queue->running, struct txda_job, link);
	if (job && !job->pushed_ns)
		job = NULL;
	if (job)
		*ret_ns = txda_job_since(job);
	spin_unlock_irq(&queue->lock);
	return job;
}

bool txda_queue_is_working(struct txda_queue *queue)
{
	u64 since;

	return txda_queue_working_since(queue, &since);
}

u64 txda_queue_running_ns(struct txda_queue *queue)
{
	u64 now = ktime_get_ns(), since;

	if (!txda_queue_working_since(queue, &since))
		return 0;
	return now > since ? now - since : 0;
}

/*
 * Whether the queue has work but made no progress for its time limit, or others have waited for so
 * long for its job to end; or its job runs for longer than any may.
 */
static bool txda_queue_hangs(struct txda_queue *queue)
{
	u64 now = ktime_get_ns(), since, progress;
	bool hangs = false;

	mutex_lock(&queue->hw_lock);
	if (txda_queue_read_progress(queue, &progress) && txda_queue_working_since(queue, &since)) {
		if (progress != queue->progress_seen) {
			queue->progress_seen = progress;
			queue->progress_ns = now;
		}
		hangs = now > since && now - since >= queue->timeout_ns &&
			(txda_share_wanted_ns(queue->hwq) >= queue->timeout_ns ||
			 now - queue->progress_ns >= queue->timeout_ns ||
			 now - since >= queue->most_ns);
	}
	mutex_unlock(&queue->hw_lock);
	return hangs;
}

/*
 * Part of the oldest job's time limit has passed. Whatever the result, the queue signals all its
 * fences itself, so drm_sched is always told to carry on.
 */
static enum drm_gpu_sched_stat txda_job_timedout(struct drm_sched_job *base)
{
	struct txda_queue *queue = to_txda_job(base)->queue;
	struct txda_device *tdev = queue->tdev;
	bool cookie = dma_fence_begin_signalling();
	int idx;

	/* An interrupt may have been lost. */
	txda_jobs_reap(queue);
	if (!drm_dev_enter(&tdev->drm, &idx))
		goto out;

	/* The chip's progress cannot be known, and there will be none. */
	if (!txda_device_alive(tdev))
		txda_reset_schedule(tdev, "time limit of a job");
	txda_queue_check_stopped(queue);
	if (txda_queue_hangs(queue)) {
		txda_queue_note_hang(queue);
		txda_coredump_take(tdev, "hang", queue);
		if (txda_queue_kill(queue, DRM_TXDA_QUEUE_TIMEDOUT, -ETIME, -ECANCELED))
			txda_queue_report(queue);
	}
	drm_dev_exit(idx);
out:
	dma_fence_end_signalling(cookie);
	return txda_sched_keep(base);
}

static void txda_job_free(struct drm_sched_job *base)
{
	struct txda_job *job = to_txda_job(base);
	struct txda_queue *queue = job->queue;

	drm_sched_job_cleanup(base);
	dma_fence_put(&job->fence.base);
	txda_queue_put(queue);
}

const struct drm_sched_backend_ops txda_job_sched_ops = {
	.run_job = txda_job_run,
	.timedout_job = txda_job_timedout,
	.free_job = txda_job_free,
};

/* ---- QUEUE_SUBMIT --------------------------------------------------------------------------- */

/**
 * struct txda_submit - One QUEUE_SUBMIT call in progress.
 */
struct txda_submit {
	/** @queue: With a reference. */
	struct txda_queue *queue;

	/** @count: Jobs. */
	u32 count;

	/** @ready: How many of them have an initialised fence and scheduler job. */
	u32 ready;

	/** @job: The jobs, until they are pushed. */
	struct txda_job *job[DRM_TXDA_MAX_JOBS];

	/** @syncs: Of each job. */
	struct txda_syncs syncs[] __counted_by(count);
};

static int txda_job_check(struct txda_device *tdev, const struct drm_txda_job *args)
{
	u64 end, va_end = 1ull << tdev->info.va_bits;

	if (args->flags || args->stream_bytes > tdev->info.max_stream_bytes ||
	    args->stream_bytes % 8 || args->stream_va % 8)
		return -EINVAL;
	if (!args->stream_bytes)
		return args->stream_va ? -EINVAL : 0;
	if (check_add_overflow(args->stream_va, (u64)args->stream_bytes, &end) || end > va_end)
		return -EINVAL;
	return 0;
}

/* Also for a job that was only partly built. */
static void txda_submit_free(struct txda_submit *submit)
{
	u32 i;

	for (i = 0; i < submit->count; i++) {
		struct txda_job *job = submit->job[i];

		txda_syncs_put(&submit->syncs[i]);
		if (!job)
			continue;
		if (i < submit->ready) {
			drm_sched_job_cleanup(&job->base);
			dma_fence_put(&job->fence.base);
		} else {
			kfree(job);
		}
	}
	kvfree(submit);
}

/* Copies the client's arrays and allocates memory for the jobs. */
static struct txda_submit *txda_submit_new(struct txda_queue *queue, struct drm_file *file,
					   const struct drm_txda_array *jobs)
{
	struct txda_submit *submit;
	struct drm_txda_job *args;
	int err = 0;
	u32 i;

	args = txda_array_get(jobs, sizeof(*args), sizeof(*args), DRM_TXDA_MAX_JOBS);
	if (IS_ERR(args))
		return ERR_CAST(args);
	if (!args)
		return ERR_PTR(-EINVAL);

	submit = kvzalloc_flex(*submit, syncs, jobs->count, GFP_KERNEL_ACCOUNT);
	if (!submit) {
		err = -ENOMEM;
		goto out_args;
	}
	submit->queue = queue;
	submit->count = jobs->count;
	for (i = 0; !err && i < submit->count; i++) {
		struct txda_job *job;

		err = txda_job_check(queue->tdev, &args[i]);
		if (err)
			break;
		job = kzalloc_obj(*job, GFP_KERNEL_ACCOUNT);
		if (!job) {
			err = -ENOMEM;
			break;
		}
		job->queue = queue;
		job->stream_va = args[i].stream_va;
		job->stream_bytes = args[i].stream_bytes;
		submit->job[i] = job;
		err = txda_syncs_get(file, &args[i].syncs, &submit->syncs[i]);
	}
	if (err)
		txda_submit_free(submit);

out_args:
	kvfree(args);
	return err ? ERR_PTR(err) : submit;
}

/* Everything else that can fail. */
static int txda_submit_prepare(struct txda_submit *submit, struct drm_file *file)
{
	struct txda_queue *queue = submit->queue;
	struct txda_sync_table table;
	u32 i;
	int err;

	lockdep_assert_held(&queue->submit_lock);
	if (READ_ONCE(queue->drop_err) || READ_ONCE(queue->vm->lost))
		return -EIO;
	if (atomic_read(&queue->jobs) + submit->count > TXDA_MAX_QUEUE_JOBS)
		return -EBUSY;
	err = txda_user_may_submit(to_txda_file(file));
	if (err)
		return err;

	err = txda_sync_table_init(&table, submit->syncs, submit->count);
	for (i = 0; i < submit->count && !err; i++) {
		struct txda_job *job = submit->job[i];

		err = txda_sched_job_init(&job->base, &queue->entity, 1, file, file->client_id);
		if (err)
			break;
		txda_fence_init(&job->fence, queue->sched.name, queue->fence_context,
				queue->next_seqno + i);
		submit->ready++;
		err = txda_syncs_add_waits(&submit->syncs[i], &table, queue->fence_context,
					   &job->base);
	}
	txda_sync_table_fini(&table);
	return err;
}

/* Nothing can fail from here on, and the jobs belong to the scheduler. */
static void txda_submit_push(struct txda_submit *submit)
{
	struct txda_queue *queue = submit->queue;
	struct txda_device *tdev = queue->tdev;
	u32 i;

	atomic_add(submit->count, &tdev->queues.jobs);
	atomic_add(submit->count, &queue->vm->jobs);
	atomic_add(submit->count, &queue->jobs);
	atomic64_add(submit->count, &queue->submitted);
	queue->next_seqno += submit->count;

	for (i = 0; i < submit->count; i++) {
		struct txda_job *job = submit->job[i];

		trace_txda_job_queue(tdev->drm.dev, queue->id, ~0u, job->fence.base.seqno,
				     job->stream_bytes);
		submit->job[i] = NULL;
		txda_queue_get(queue);
		drm_sched_job_arm(&job->base);
		txda_syncs_signal(&submit->syncs[i], &job->fence.base);
		drm_sched_entity_push_job(&job->base);
	}
}

static int txda_submit_run(struct txda_submit *submit, struct drm_file *file)
{
	struct txda_queue *queue = submit->queue;
	struct txda_job *last = submit->job[submit->count - 1];
	struct drm_exec exec;
	int err;

	err = txda_submit_prepare(submit, file);
	if (err)
		return err;

	err = txda_vm_lock_resvs(queue->vm, &exec);
	if (err)
		return err;
	/* Jobs of a queue end in order, so the last fence stands for all of them. */
	txda_vm_add_fence(queue->vm, &exec, &last->fence.base);
	txda_submit_push(submit);
	txda_vm_unlock_resvs(queue->vm, &exec);
	return 0;
}

int txda_ioctl_queue_submit(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct drm_txda_queue_submit *args = data;
	struct txda_device *tdev = to_txda(drm);
	struct txda_submit *submit;
	struct txda_queue *queue;
	int idx, err;

	if (args->flags)
		return -EINVAL;
	queue = txda_queue_lookup(to_txda_file(file), args->queue_id);
	if (!queue)
		return -ENOENT;

	submit = txda_submit_new(queue, file, &args->jobs);
	if (IS_ERR(submit)) {
		err = PTR_ERR(submit);
		goto out_queue;
	}
	/* While the chip is down or about to be reset, no new jobs are accepted. */
	err = txda_device_enter(tdev, &idx);
	if (err)
		goto out_submit;
	err = mutex_lock_interruptible(&queue->submit_lock);
	if (err)
		goto out_device;
	err = txda_submit_run(submit, file);
	mutex_unlock(&queue->submit_lock);

out_device:
	txda_device_exit(tdev, idx);
out_submit:
	txda_submit_free(submit);
out_queue:
	txda_queue_put(queue);
	return err;
}
