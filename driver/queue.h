/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Clients' queues: one drm_sched each with one entity, on one hardware queue (hwq.h).
 *
 * drm_sched handles dependencies, order and timeouts; the ring holds the jobs that it has released.
 * A queue that hangs (the chip's progress counter does not change for its time limit, or its job
 * runs for many times that) or faults is stopped on the chip and permanently dead: the job at fault
 * gets -ETIME or -EIO, those behind it -ECANCELED; other queues continue. If it cannot be stopped
 * the whole chip is reset (reset.h), and the other queues die as well, marked innocent.
 *
 * A shared queue waits for its turn on a hardware queue (share.h); nothing else is different.
 *
 * A dead queue keeps its scheduler: jobs that did not run yet pass through it as before, each when
 * its dependencies are done, and get an error instead of being executed. So every job ends in the
 * same way, and the scheduler is empty when it is destroyed. A fence signals with an error only
 * when the chip cannot access the job's memory any more.
 *
 * Lifetime: reference counted; the file's id holds one reference, each job one, the hardware queue
 * one. Destroying a queue drops jobs that have not started. The last reference destroys the
 * scheduler on txda_release_wq. A queue holds the DRM device and the module.
 * Threads: any; may sleep unless stated.
 */
#ifndef TXDA_QUEUE_H
#define TXDA_QUEUE_H

#include <linux/kref.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>
#include <drm/gpu_scheduler.h>

#include "drm/txda_drm.h"
#include "file.h"

struct txda_device;
struct txda_hwq;
struct txda_user;
struct txda_vm;

#define TXDA_MAX_CLIENT_QUEUES 16
#define TXDA_MAX_TIMEOUT_MS    600000
/*
 * Others wait for its fence, perhaps without a limit of their own: a job ends after this many of
 * its queue's time limits, and after TXDA_MAX_TIMEOUT_MS, whatever progress it makes.
 */
#define TXDA_JOB_TIMEOUTS 60
/* Limit of unfinished jobs per queue; beyond it submission fails with -EBUSY. */
#define TXDA_MAX_QUEUE_JOBS 1024

/**
 * struct txda_queue - One queue of a client.
 */
struct txda_queue {
	/** @ref: References. */
	struct kref ref;

	/** @tdev: The chip; a reference to the DRM device is held. */
	struct txda_device *tdev;

	/** @file: The client; NULL once the queue was destroyed or its file closed. Under @lock. */
	struct txda_file *file;

	/** @user: The user that @hwq is charged to, with a reference. */
	struct txda_user *user;

	/** @client: The client that created it. */
	struct txda_client client;

	/** @id: In its file. */
	u32 id;

	/** @class: What it can run. */
	enum txda_queue_class_id class;

	/** @shared: It takes turns with others (share.h). */
	bool shared;

	/** @alone: Its address space joins no group because of it. */
	bool alone;

	/** @vm: Its address space, with a reference. */
	struct txda_vm *vm;

	/** @hw_lock: Serialises stopping and releasing @hwq. No memory is allocated under it. */
	struct mutex hw_lock;

	/**
	 * @hwq: The hardware queue, which holds a reference to this one; NULL once released.
	 * Changes under @hw_lock and @lock.
	 */
	struct txda_hwq *hwq;

	/** @closed: Destroyed: @hwq is released as soon as it has stopped. Under @hw_lock. */
	bool closed;

	/** @sched: Its scheduler. */
	struct drm_gpu_scheduler sched;

	/** @entity: Its scheduler entity, which keeps jobs in order. */
	struct drm_sched_entity entity;

	/** @submit_lock: One QUEUE_SUBMIT at a time. */
	struct mutex submit_lock;

	/** @lock: Protects jobs on the ring, @state, @fault. Taken in hard interrupt context. */
	spinlock_t lock;

	/**
	 * @running: Jobs that the scheduler has released, oldest first. They are on the ring; of a
	 * shared queue at most the first is, when its turn has come.
	 */
	struct list_head running;

	/** @fence_context: Fence context of the jobs' fences. */
	u64 fence_context;

	/**
	 * @next_seqno: Sequence number of the next job; the chip stores it when done. Under
	 * @submit_lock.
	 */
	u64 next_seqno;

	/** @state: DRM_TXDA_QUEUE_*, 0: running. */
	u32 state;

	/**
	 * @drop_err: Error for jobs that will not run any more, 0: the queue is alive. Under @lock.
	 */
	int drop_err;

	/** @guilty_err: Error for the job that was running when the queue died. Under @lock. */
	int guilty_err;

	/** @fault: The fault that stopped it. */
	struct drm_txda_fault fault;

	/** @jobs: Jobs submitted and not done. */
	atomic_t jobs;

	/** @submitted: Number of jobs submitted so far. */
	atomic64_t submitted;

	/** @completed: How many of them are done. */
	atomic64_t completed;

	/** @timeout_ns: A job without progress for this long counts as hung. */
	u64 timeout_ns;

	/** @most_ns: A job that runs for this long does, too. */
	u64 most_ns;

	/** @last_done_ns: When the last job on the ring ended. Under @lock. */
	u64 last_done_ns;

	/** @progress: Progress of the hardware queue at the last read. Under @hw_lock. */
	u64 progress;

	/** @progress_seen: Its value when the time limit was last checked. Under @hw_lock. */
	u64 progress_seen;

	/** @progress_ns: When it last changed. Under @hw_lock. */
	u64 progress_ns;

	/** @report: Reports a hang or fault; holds a reference. */
	struct work_struct report;

	/** @release: Frees the queue. */
	struct work_struct release;

	/** @link: In txda_queues.all. */
	struct list_head link;
};

/**
 * struct txda_queues - All clients' queues of a chip.
 */
struct txda_queues {
	/** @lock: Protects @all; outermost of the queues' locks. */
	struct mutex lock;

	/** @all: struct txda_queue, until their last reference is gone. */
	struct list_head all;

	/** @fault_lock: Serialises readers of the chip's fault records. */
	struct mutex fault_lock;

	/** @jobs: Jobs of all queues, submitted and not done. */
	atomic_t jobs;

	/** @idle: Woken when @jobs reaches 0. */
	wait_queue_head_t idle;

	/**
	 * @timeout_ms: Time limit of queues that set none; the module parameter or sysfs attribute.
	 */
	u32 timeout_ms;

	/** @resets: Number of single queues stopped for a hang or fault. */
	atomic64_t resets;
};

int txda_queues_init(struct txda_device *tdev);

/* Ends all queues of a file that closes: stopped, pending jobs dropped, fences signalled. */
void txda_queues_close_file(struct txda_file *file);

/*
 * The chip has lost all work: each queue becomes @state (DRM_TXDA_QUEUE_INNOCENT) unless it was
 * dead already, and its fences signal @err. The chip must have been reset, or be gone: nothing of
 * it runs. With -ENODEV it does not come back, and the queues release everything that the chip
 * could have accessed. When it returns, no job reaches the chip any more.
 */
void txda_queues_lose(struct txda_device *tdev, u32 state, int err);
/*
 * For suspend, with new submissions blocked: waits until all queued work is done. Queues that are
 * not idle within @timeout_ms lose their work, as in a reset caused by another queue: a client
 * cannot block suspend. -EBUSY: a queue does not stop either. txda_queues_resume() sets the rings
 * up again.
 */
int txda_queues_suspend(struct txda_device *tdev, u32 timeout_ms);
void txda_queues_resume(struct txda_device *tdev);

int txda_ioctl_queue_create(struct drm_device *drm, void *data, struct drm_file *file);
int txda_ioctl_queue_destroy(struct drm_device *drm, void *data, struct drm_file *file);
int txda_ioctl_queue_get_state(struct drm_device *drm, void *data, struct drm_file *file);

/* The queue with that id, with a reference, or NULL. */
struct txda_queue *txda_queue_lookup(struct txda_file *file, u32 id);
void txda_queue_get(struct txda_queue *queue);
/* Any context. */
void txda_queue_put(struct txda_queue *queue);

/*
 * Ends the queue: @state is added to its state; the running job gets @guilty_err and all others
 * @drop_err, unless it was dead already. Stops it on the chip, or requests a reset if it does not
 * stop; the reset then signals the fences. Returns true if it was alive. Fences may wait for this.
 */
bool txda_queue_kill(struct txda_queue *queue, u32 state, int guilty_err, int drop_err);

/*
 * Reads its progress. Under txda_queue.hw_lock, in drm_dev_enter(). False: the chip does not
 * answer, or the queue has no hardware queue any more.
 */
bool txda_queue_read_progress(struct txda_queue *queue, u64 *ret_progress);

/* Whether any job is on a ring, except those of user @but. Fences may wait for this. */
bool txda_queues_run(struct txda_device *tdev, const struct txda_user *but);

/*
 * For share.h: binds its @hwq to hardware queue @index, if that is @free, and runs its first job,
 * unless it has lost @hwq or died meanwhile; stops and parks @hwq. The chip must be up. Fences wait
 * for this. False: the chip refused, and a chip reset was requested.
 */
bool txda_queue_begin_turn(struct txda_queue *queue, struct txda_hwq *hwq, bool free, u32 index);
bool txda_queue_end_turn(struct txda_queue *queue, struct txda_hwq *hwq);

/* In fault.c. */

/*
 * Reads the chip's fault records and ends the queues that they refer to, and those that stopped
 * without one. Process or threaded interrupt context, in drm_dev_enter(). Fences may wait for this.
 */
void txda_queues_fault(struct txda_device *tdev);
/*
 * Only reads the records. For a stopped queue that is about to change its owner, so that no record
 * is attributed to the next one.
 */
void txda_queues_read_faults(struct txda_device *tdev);
/* The same for one queue that appears to be stopped. In drm_dev_enter(). */
void txda_queue_check_stopped(struct txda_queue *queue);
/* Records where the queue hangs. In drm_dev_enter(), before it is stopped. */
void txda_queue_note_hang(struct txda_queue *queue);
/* Reports the end of a queue in the log and as an event, from a worker. Any context. */
void txda_queue_report(struct txda_queue *queue);
/* Work function of txda_queue.report. */
void txda_queue_report_work(struct work_struct *work);

/* Implemented in job.c. */

extern const struct drm_sched_backend_ops txda_job_sched_ops;
int txda_ioctl_queue_submit(struct drm_device *drm, void *data, struct drm_file *file);

/* Signals the jobs that the chip has finished. Callback of the hardware queue; any context. */
void txda_jobs_complete(struct txda_hwq *hwq);
void txda_jobs_reap(struct txda_queue *queue);
/* Puts the first job on the ring of a shared queue, if its turn has come. Under txda_queue.lock. */
void txda_jobs_feed(struct txda_queue *queue);
/* Signals the jobs left on a dead queue's ring; the chip must not access them any more. */
void txda_jobs_flush(struct txda_queue *queue);
/* Whether a job of it is on the ring. */
bool txda_queue_is_working(struct txda_queue *queue);
/* For how long the running job has kept the queue busy, 0: none is running. */
u64 txda_queue_running_ns(struct txda_queue *queue);
/* The client is closing: the time of jobs that end from now on is not added to its statistics. */
void txda_jobs_leave_file(struct txda_queue *queue);

#endif /* TXDA_QUEUE_H */
