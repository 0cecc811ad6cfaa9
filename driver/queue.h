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
 * Lifetime: reference counted; the file's id holds one, each job one. Destroying drops what has not
 * started.
 * Threads: any; may sleep unless stated.
 */
#ifndef TXDA_QUEUE_H
#define TXDA_QUEUE_H

#include <linux/kref.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <drm/gpu_scheduler.h>

#include "drm/txda_drm.h"
#include "file.h"

struct txda_device;
struct txda_hwq;
struct txda_vm;

#define TXDA_MAX_CLIENT_QUEUES	16
#define TXDA_MAX_TIMEOUT_MS	600000

/**
 * struct txda_queue - One queue of a client.
 */
struct txda_queue {
	/** @ref: References. */
	struct kref ref;

	/** @tdev: The chip; a reference to the DRM device is held. */
	struct txda_device *tdev;

	/** @file: The client, NULL once its file closed. Under @lock. */
	struct txda_file *file;

	/** @id: In its file. */
	u32 id;

	/** @class: What it can run. */
	enum txda_queue_class_id class;

	/** @vm: Its address space, with a reference. */
	struct txda_vm *vm;

	/** @hwq: The hardware queue, NULL once it is dead and returned. */
	struct txda_hwq *hwq;

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

	/** @fence_context: Of the hardware fences. */
	u64 fence_context;

	/** @next_seqno: Of the next job; the chip stores it when the job is done. */
	u64 next_seqno;

	/** @state: DRM_TXDA_QUEUE_*, 0: runs. */
	u32 state;

	/** @fault: What stopped it. */
	struct drm_txda_fault fault;

	/** @submitted: Jobs so far. */
	atomic64_t submitted;

	/** @completed: Of these, done. */
	atomic64_t completed;

	/** @progress_seen: The chip's counter when the time limit last ran out. */
	u64 progress_seen;

	/** @link: In txda_queues.all. */
	struct list_head link;
};

/**
 * struct txda_queues - All clients' queues of a chip.
 */
struct txda_queues {
	/** @lock: @all; outermost of the queues' locks. */
	struct mutex lock;

	/** @all: struct txda_queue. */
	struct list_head all;

	/** @wq: Submission and time limits of all schedulers. */
	struct workqueue_struct *wq;

	/** @timeout_ms: Of queues that name none; the module parameter or sysfs attribute. */
	u32 timeout_ms;

	/** @resets: Single queues that were stopped for a hang or fault. */
	atomic64_t resets;
};

int txda_queues_init(struct txda_device *tdev);

/* All queues of a file that closes: stopped, dropped, fences signalled. */
void txda_queues_close_file(struct txda_file *file);

/*
 * The chip loses all work: each queue becomes @state (DRM_TXDA_QUEUE_INNOCENT unless it already has
 * a worse one), its schedulers stop and its fences signal @err (-ENODEV for removal, -EIO for a
 * reset). When it returns, no job reaches the chip any more.
 */
void txda_queues_lose(struct txda_device *tdev, u32 state, int err);
/*
 * For suspend: stops new work and waits until what is queued is done. -EBUSY when it is not within
 * @timeout_ms; then everything goes on as before. txda_queues_resume() sets the rings up again.
 */
int txda_queues_suspend(struct txda_device *tdev, u32 timeout_ms);
void txda_queues_resume(struct txda_device *tdev);

/* Reads the chip's fault records, marks queues and address spaces. Threaded interrupt context. */
void txda_queues_fault(struct txda_device *tdev);

int txda_ioctl_queue_create(struct drm_device *drm, void *data, struct drm_file *file);
int txda_ioctl_queue_destroy(struct drm_device *drm, void *data, struct drm_file *file);
int txda_ioctl_queue_get_state(struct drm_device *drm, void *data, struct drm_file *file);

/* In job.c, which knows how a job goes through a queue. */
extern const struct drm_sched_backend_ops txda_job_sched_ops;
int txda_ioctl_queue_submit(struct drm_device *drm, void *data, struct drm_file *file);

#endif /* TXDA_QUEUE_H */
