// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <string.h>

#include "backend_drm.h"
#include "clock.h"
#include "txda_isa.h"

/* Since Linux 6.6; older versions of libdrm lack it. */
#ifndef DRM_IOCTL_SYNCOBJ_EVENTFD
struct drm_syncobj_eventfd {
	__u32 handle;
	__u32 flags;
	__u64 point;
	__s32 fd;
	__u32 pad;
};
#define DRM_IOCTL_SYNCOBJ_EVENTFD DRM_IOWR(0xCF, struct drm_syncobj_eventfd)
#endif

/* How long a waiter polls the word: about the cost of sleeping and waking up. */
#define SPIN_NS 5000

/* ---- queues with a timeline ------------------------------------------------------------------ */

int txda__drm_hwqueue_create(struct txda__vm *vm, uint32_t class_, uint32_t *ret_id,
			     uint32_t *ret_timeline)
{
	struct drm_txda_queue_create queue = {
		.vm_id = vm->id, .class_ = class_, .priority = DRM_TXDA_PRIORITY_NORMAL};
	struct drm_syncobj_create timeline = {0};
	struct drm_syncobj_destroy destroy = {0};
	int r;

	r = txda__drm_ioctl(vm->chip, DRM_IOCTL_SYNCOBJ_CREATE, &timeline);
	if (r < 0)
		return r;
	r = txda__drm_ioctl(vm->chip, DRM_IOCTL_TXDA_QUEUE_CREATE, &queue);
	if (r == -ENOSPC || r == -EDQUOT) {
		/*
		 * Taking turns beats nothing; drivers before 1.1 refuse it. A group of chips then
		 * fails, with a message that tells this reason.
		 */
		queue.flags = DRM_TXDA_QUEUE_SHARE;
		if (!txda__drm_ioctl(vm->chip, DRM_IOCTL_TXDA_QUEUE_CREATE, &queue))
			r = 0;
	}
	if (r < 0) {
		destroy.handle = timeline.handle;
		txda__drm_ioctl(vm->chip, DRM_IOCTL_SYNCOBJ_DESTROY, &destroy);
		return r;
	}
	*ret_id = queue.id;
	*ret_timeline = timeline.handle;
	return 0;
}

void txda__drm_hwqueue_destroy(struct drm_chip *chip, uint32_t id, uint32_t timeline)
{
	struct drm_txda_queue_destroy queue = {.id = id};
	struct drm_syncobj_destroy destroy = {.handle = timeline};

	if (id)
		txda__drm_ioctl(chip, DRM_IOCTL_TXDA_QUEUE_DESTROY, &queue);
	txda__drm_ioctl(chip, DRM_IOCTL_SYNCOBJ_DESTROY, &destroy);
}

int txda__drm_hwqueue_submit(struct drm_chip *chip, uint32_t id, uint32_t timeline, uint64_t va,
			     uint64_t bytes, uint64_t point)
{
	struct drm_txda_sync sync = {
		.flags = DRM_TXDA_SYNC_SIGNAL | DRM_TXDA_SYNC_TIMELINE,
		.handle = timeline,
		.point = point,
	};
	struct drm_txda_job job = {
		.stream_va = va,
		.stream_bytes = (uint32_t)bytes,
		.syncs = {.stride = sizeof(sync), .count = 1, .array = (uintptr_t)&sync},
	};
	struct drm_txda_queue_submit args = {
		.queue_id = id,
		.jobs = {.stride = sizeof(job), .count = 1, .array = (uintptr_t)&job},
	};

	return txda__drm_ioctl(chip, DRM_IOCTL_TXDA_QUEUE_SUBMIT, &args);
}

int txda__drm_timeline_wait(struct drm_chip *chip, uint32_t timeline, uint64_t point,
			    uint64_t deadline_ns)
{
	struct drm_syncobj_timeline_wait args = {
		.handles = (uintptr_t)&timeline,
		.points = (uintptr_t)&point,
		.timeout_nsec = deadline_ns > INT64_MAX ? INT64_MAX : (int64_t)deadline_ns,
		.count_handles = 1,
	};

	return txda__drm_ioctl(chip, DRM_IOCTL_SYNCOBJ_TIMELINE_WAIT, &args);
}

/* ---- the library's queues -------------------------------------------------------------------- */

int txda__drm_queue_new(struct txda__vm *vm, enum txda_queue_class queue_class,
			const struct txda__queue_events *events, struct txda__hwqueue **ret_queue)
{
	struct txda__hwqueue *queue = calloc(1, sizeof(*queue));
	struct drm_chip *chip = vm->chip;
	int r;

	if (!queue)
		return txda__fail(drm_context(chip), -ENOMEM, "out of memory");
	queue->vm = vm;
	queue->events = *events;
	r = txda__drm_hwqueue_create(
		vm, queue_class == TXDA_QUEUE_COPY ? DRM_TXDA_QUEUE_COPY : DRM_TXDA_QUEUE_COMPUTE,
		&queue->id, &queue->timeline);
	if (r < 0) {
		free(queue);
		return txda__fail(drm_context(chip), r, "chip %u: no queue: %s", chip->index,
				  r == -ENOSPC ? "this process has as many as it may"
					       : txda__drm_reason(r));
	}
	pthread_mutex_lock(&chip->lock);
	queue->next = chip->queues;
	chip->queues = queue;
	pthread_mutex_unlock(&chip->lock);
	*ret_queue = queue;
	return 0;
}

void txda__drm_queue_free(struct txda__hwqueue *queue)
{
	struct drm_chip *chip = queue->vm->chip;
	struct txda__hwqueue **at = &chip->queues;

	pthread_mutex_lock(&chip->lock);
	while (*at != queue)
		at = &(*at)->next;
	*at = queue->next;
	pthread_mutex_unlock(&chip->lock);
	txda__drm_hwqueue_destroy(chip, queue->id, queue->timeline);
	free(queue);
}

/* Its fences signal with errors; the timeline stays for those who wait. */
void txda__drm_queue_stop(struct txda__hwqueue *queue)
{
	struct drm_chip *chip = queue->vm->chip;
	struct drm_txda_queue_destroy args = {.id = queue->id};

	pthread_mutex_lock(&chip->lock);
	queue->id = 0; /* another queue may get the number */
	pthread_mutex_unlock(&chip->lock);
	txda__drm_ioctl(chip, DRM_IOCTL_TXDA_QUEUE_DESTROY, &args);
}

int txda__drm_queue_submit(struct txda__hwqueue *queue, uint64_t va, uint64_t bytes, uint64_t fence,
			   bool wait_soon)
{
	int r;

	(void)wait_soon;
	r = txda__drm_hwqueue_submit(queue->vm->chip, queue->id, queue->timeline, va, bytes, fence);
	return r == -EBUSY ? -EAGAIN : r;
}

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static bool passed(const uint64_t *word, uint64_t fence)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE) >= fence;
}

/* If the chip finishes within the polling time, no sleep is needed. */
static bool spin(const uint64_t *word, uint64_t fence, uint64_t deadline_ns)
{
	uint64_t end = clock_ns() + SPIN_NS;

	if (end > deadline_ns)
		end = deadline_ns;
	do {
		for (unsigned i = 0; i < 32; i++) {
			if (passed(word, fence))
				return true;
			relax();
		}
	} while (clock_ns() < end);
	return false;
}

int txda__drm_queue_wait(struct txda__hwqueue *queue, const uint64_t *word, uint64_t fence,
			 uint64_t deadline_ns)
{
	int r;

	if (spin(word, fence, deadline_ns))
		return 0;
	r = txda__drm_timeline_wait(queue->vm->chip, queue->timeline, fence, deadline_ns);
	if (passed(word, fence))
		return 0;
	if (r == -ETIME)
		return -ETIMEDOUT;
	/* Signalled, but the stream did not run to its end: it failed. */
	return r < 0 ? r : -EIO;
}

int txda__drm_queue_arm(struct txda__hwqueue *queue, uint64_t fence, int fd)
{
	struct drm_syncobj_eventfd args = {.handle = queue->timeline, .point = fence, .fd = fd};

	return txda__drm_ioctl(queue->vm->chip, DRM_IOCTL_SYNCOBJ_EVENTFD, &args);
}

int txda__drm_queue_fault(struct txda__hwqueue *queue, struct txda_fault *ret_fault, char *buf,
			  size_t len)
{
	return txda__drm_hwqueue_fault(queue->vm->chip, queue->id, ret_fault, buf, len);
}

int txda__drm_hwqueue_fault(struct drm_chip *chip, uint32_t id, struct txda_fault *ret_fault,
			    char *buf, size_t len)
{
	struct drm_txda_fault from = {0};
	struct drm_txda_queue_get_state state = {.id = id,
						 .fault = txda__drm_answer(&from, sizeof(from))};
	struct txda_fault fault = {.op = TXDA_NONE, .tensor = TXDA_NONE, .opcode = TXDA_NONE};
	int r;

	r = txda__drm_ioctl(chip, DRM_IOCTL_TXDA_QUEUE_GET_STATE, &state);
	if (atomic_load(&chip->lost)) {
		fault.code = TXDA_FAULT_LOST;
	} else if (r < 0) {
		snprintf(buf, len, "cannot read the queue's state: %s", strerror(-r));
	} else if (!state.state) {
		return 0;
	} else if (from.code) {
		fault.code = from.code;
		fault.queue = from.queue_id;
		fault.op = from.op;
		fault.tensor = from.tensor;
		fault.va = from.va;
		fault.packet_va = from.packet_va;
		fault.detail = from.detail;
	} else if (state.state & DRM_TXDA_QUEUE_TIMEDOUT) {
		fault.code = TXDA_FAULT_HANG;
	} else {
		snprintf(buf, len, "lost in a reset of the chip that another queue caused");
	}
	*ret_fault = fault;
	return fault.code == TXDA_FAULT_LOST ? -ENODEV : -EIO;
}
