/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Clients' queues: one drm_sched each with one entity, on one hardware queue (hwq.h).
 *
 * drm_sched takes care of dependencies, order and the time limit; the ring holds what it lets run.
 * A queue that hangs (no progress of the chip's counter for its time limit) or faults is stopped on
 * the chip and dead for good: the job at fault gets -ETIME or -EIO, those behind it -ECANCELED;
 * other queues go on. When it cannot be stopped the whole chip is reset (reset.h), and the others
 * are dead too, as innocents.
 *
 * A dead queue keeps its scheduler: jobs that did not run yet come through it as before, each when
 * its waits are over, and get an error instead of the chip. So every job ends in the same way, and
 * the scheduler is empty when it is taken down. A fence signals with an error only when the chip
 * cannot touch the job's memory any more.
 *
 * Lifetime: reference counted; the file's id holds one, each job one, the hardware queue one.
 * Destroying drops what has not started. The last reference takes the scheduler down on
 * txda_release_wq. A queue holds the DRM device and the module.
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
/* Jobs of a queue that were submitted and are not done; more are -EBUSY. */
#define TXDA_MAX_QUEUE_JOBS 1024

/**
 * struct txda_queue - One queue of a client.
 */
struct txda_queue {
	/** @ref: References. */
	struct kref ref;

	/** @tdev: The chip; a reference to the DRM device is held. */
	struct txda_device *tdev;

	/** @file: The client, NULL once its queue was destroyed or its file closed. Under @lock. */
	struct txda_file *file;

	/** @user: To whom @hwq is charged. Under @hw_lock. */
	struct txda_user *user;

	/** @pid: The process that created it, for events. */
	pid_t pid;

	/** @id: In its file. */
	u32 id;

	/** @class: What it can run. */
	enum txda_queue_class_id class;

	/** @vm: Its address space, with a reference. */
	struct txda_vm *vm;

	/** @hw_lock: Stopping and giving back @hwq. No memory is allocated under it. */
	struct mutex hw_lock;

	/**
	 * @hwq: The hardware queue, which holds a reference to this one; NULL once it was given
	 * back. Changes under @hw_lock and @lock.
	 */
	struct txda_hwq *hwq;

	/** @closed: Destroyed: @hwq is given back as soon as it has stopped. Under @hw_lock. */
	bool closed;

	/** @sched: Its scheduler. */
	struct drm_gpu_scheduler sched;

	/** @entity: Its order of jobs. */
	struct drm_sched_entity entity;

	/** @submit_lock: One QUEUE_SUBMIT at a time. */
	struct mutex submit_lock;

	/** @lock: Jobs on the ring, @state, @fault. Taken in hard interrupt context. */
	spinlock_t lock;

	/** @running: Jobs on the ring, oldest first. */
	struct list_head running;

	/** @fence_context: Of the jobs' fences. */
	u64 fence_context;

	/** @next_seqno: Of the next job; the chip stores it when done. Under @submit_lock. */
	u64 next_seqno;

	/** @state: DRM_TXDA_QUEUE_*, 0: runs. */
	u32 state;

	/** @drop_err: What jobs get that do not run any more, 0: it is alive. Under @lock. */
	int drop_err;

	/** @guilty_err: What the job gets that was running when the queue died. Under @lock. */
	int guilty_err;

	/** @fault: What stopped it. */
	struct drm_txda_fault fault;

	/** @jobs: Submitted and not done. */
	atomic_t jobs;

	/** @submitted: Jobs so far. */
	atomic64_t submitted;

	/** @completed: Of these, done. */
	atomic64_t completed;

	/** @timeout_ns: Without progress for so long a job counts as hung. */
	u64 timeout_ns;

	/** @last_done_ns: When the last job on the ring ended. Under @lock. */
	u64 last_done_ns;

	/** @progress: Of the hardware queue, as it was seen last. Under @hw_lock. */
	u64 progress;

	/** @progress_seen: Its value when the time limit was last looked at. Under @hw_lock. */
	u64 progress_seen;

	/** @progress_ns: When it had changed. Under @hw_lock. */
	u64 progress_ns;

	/** @report: Tells of a hang or fault, with a reference. */
	struct work_struct report;

	/** @release: Takes it down. */
	struct work_struct release;

	/** @link: In txda_queues.all. */
	struct list_head link;
};

/**
 * struct txda_queues - All clients' queues of a chip.
 */
struct txda_queues {
	/** @lock: @all; outermost of the queues' locks. */
	struct mutex lock;

	/** @all: struct txda_queue, until their last reference is gone. */
	struct list_head all;

	/** @fault_lock: One reader of the chip's fault records. */
	struct mutex fault_lock;

	/** @jobs: Of all queues, submitted and not done. */
	atomic_t jobs;

	/** @idle: Woken when there are no @jobs any more. */
	wait_queue_head_t idle;

	/** @timeout_ms: Of queues that name none; the module parameter or sysfs attribute. */
	u32 timeout_ms;

	/** @resets: Single queues that were stopped for a hang or fault. */
	atomic64_t resets;
};

int txda_queues_init(struct txda_device *tdev);

/* All queues of a file that closes: stopped, dropped, fences signalled. */
void txda_queues_close_file(struct txda_file *file);

/*
 * The chip has lost all work: each queue becomes @state (DRM_TXDA_QUEUE_INNOCENT) unless it was
 * dead already, and its fences signal @err. The chip was reset before, or is gone: nothing of it
 * runs. With -ENODEV it does not come back, and the queues give up all that the chip could have
 * used. When it returns, no job reaches the chip any more.
 */
void txda_queues_lose(struct txda_device *tdev, u32 state, int err);
/*
 * For suspend, with new submissions held off: waits until what is queued is done. Queues that are
 * not idle within @timeout_ms lose it, as by another one's reset: a sleep is nothing that a client
 * can forbid. -EBUSY: one of them does not stop either. txda_queues_resume() sets the rings up
 * again.
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
 * Ends the queue: @state joins its state, the job that runs gets @guilty_err and all others
 * @drop_err, unless it was dead already. Stops it on the chip, or calls for a reset when it does
 * not stop, which signals the fences then. True: it was alive. Fences may wait for this.
 */
bool txda_queue_kill(struct txda_queue *queue, u32 state, int guilty_err, int drop_err);

/*
 * Reads its progress. Under txda_queue.hw_lock, in drm_dev_enter(). False: the chip
 * does not answer, or the queue is not on it any more.
 */
bool txda_queue_read_progress(struct txda_queue *queue, u64 *ret_progress);

/* In fault.c. */

/*
 * Reads the chip's fault records and ends the queues that they are about, and those that stopped
 * without one. Process or threaded interrupt context, in drm_dev_enter(). Fences may wait for this.
 */
void txda_queues_fault(struct txda_device *tdev);
/*
 * The records alone. A queue that was stopped and is about to change its owner must not leave one
 * behind.
 */
void txda_queues_read_faults(struct txda_device *tdev);
/* The same for one queue that looks stopped. In drm_dev_enter(). */
void txda_queue_check_stopped(struct txda_queue *queue);
/* Notes where the queue hangs. In drm_dev_enter(), before it is stopped. */
void txda_queue_note_hang(struct txda_queue *queue);
/* Tells of the end of a queue in the log and by an event, later. Any context. */
void txda_queue_report(struct txda_queue *queue);
/* Work function of txda_queue.report. */
void txda_queue_report_work(struct work_struct *work);

/* In job.c, which knows how a job goes through a queue. */

extern const struct drm_sched_backend_ops txda_job_sched_ops;
int txda_ioctl_queue_submit(struct drm_device *drm, void *data, struct drm_file *file);

/* Signals what the chip has done. Callback of the hardware queue; any context. */
void txda_jobs_complete(struct txda_hwq *hwq);
void txda_jobs_reap(struct txda_queue *queue);
/* Signals what is left of a dead queue's ring; the chip cannot touch it any more. */
void txda_jobs_flush(struct txda_queue *queue);
/* For how long the job that runs has kept the queue busy, 0: none does. */
u64 txda_queue_running_ns(struct txda_queue *queue);
/* The client goes: jobs that end from now on do not count as its time. */
void txda_jobs_leave_file(struct txda_queue *queue);

#endif /* TXDA_QUEUE_H */
