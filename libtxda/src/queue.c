// SPDX-License-Identifier: MIT
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "queue.h"
#include "events.h"
#include "fault.h"
#include "monitor.h"

#define PIECE_ALIGN 64

static const struct txda__backend_ops *ops_of(const struct txda_queue *queue)
{
	return queue->device->context->backend->ops;
}

static void signal_fd(struct txda_queue *queue)
{
	int fd = atomic_load(&queue->fd);
	uint64_t one = 1;

	if (fd >= 0 && write(fd, &one, sizeof(one)) < 0)
		one = 0; /* the counter is full, so the fd is readable anyway */
}

/*
 * Makes the backend write to @fd when @fence passes, if that does not happen by itself. If the
 * backend is out of memory, the fd is written now: a spurious wake-up is allowed, a lost one is
 * not.
 */
static void arm(struct txda_queue *queue, uint64_t fence, int fd)
{
	if (fd >= 0 && ops_of(queue)->queue_arm &&
	    ops_of(queue)->queue_arm(queue->hw, fence, fd) < 0)
		signal_fd(queue);
}

static void on_passed(void *arg)
{
	signal_fd(arg);
}

/*
 * Saves the description of a fault while the program that it refers to still exists; the first
 * caller reports the event.
 */
static int save_fault(struct txda_queue *queue, unsigned code, const char *text)
{
	bool first = false;

	pthread_mutex_lock(&queue->lock);
	if (!atomic_load(&queue->faulted)) {
		snprintf(queue->fault, sizeof(queue->fault), "%s", text);
		queue->fault_code = code;
		first = true;
		atomic_store(&queue->faulted, true);
	}
	code = queue->fault_code;
	pthread_mutex_unlock(&queue->lock);
	if (first)
		txda__event(queue->device->context, TXDA_EVENT_FAULT, queue->device->index,
			    "%s%s%s", queue->purpose, queue->purpose[0] ? ": " : "", queue->fault);
	return code == TXDA_FAULT_LOST ? -ENODEV : -EIO;
}

/*
 * The backend is called without our lock, since it may wait for the thread that is about to call
 * on_faulted().
 */
static int latch_fault(struct txda_queue *queue)
{
	char text[sizeof(queue->fault)] = "";
	struct txda_fault fault = {0};

	if (!atomic_load(&queue->faulted)) {
		if (ops_of(queue)->queue_fault(queue->hw, &fault, text, sizeof(text)) >= 0)
			return 0;
		if (!text[0])
			txda__fault_text(&fault, queue->program, text, sizeof(text));
		atomic_store(&queue->progress.ended, true);
	}
	return save_fault(queue, fault.code, text);
}

void txda__queue_stop(struct txda_queue *queue, const char *why)
{
	save_fault(queue, TXDA_FAULT_COLLECTIVE, why);
	if (ops_of(queue)->queue_stop) {
		ops_of(queue)->queue_stop(queue->hw);
		atomic_store(&queue->progress.ended, true);
	}
	signal_fd(queue);
}

static void on_faulted(void *arg)
{
	latch_fault(arg);
	signal_fd(arg);
}

int txda__queue_check(struct txda_queue *queue)
{
	int r = latch_fault(queue);

	if (r < 0)
		txda__fail(queue->device->context, r, "chip %u: %s", queue->device->index,
			   queue->fault);
	return r;
}

int txda_queue_new(struct txda_device *device, enum txda_queue_class queue_class,
		   struct txda_queue **ret_queue)
{
	struct txda_context *context = device->context;
	struct txda__queue_events events = {.passed = on_passed, .faulted = on_faulted};
	struct txda_queue *queue;
	void *host;
	int r;

	if (txda__forked(context))
		return -EPERM;
	if (queue_class != TXDA_QUEUE_COMPUTE && queue_class != TXDA_QUEUE_COPY)
		return txda__fail(context, -EINVAL, "no queue class %d", (int)queue_class);
	queue = calloc(1, sizeof(*queue));
	if (!queue)
		return txda__fail(context, -ENOMEM, "out of memory");
	atomic_init(&queue->refs, 1);
	atomic_init(&queue->fd, -1);
	pthread_mutex_init(&queue->lock, NULL);
	queue->device = txda_device_ref(device);
	r = txda__buffer_new(device, TXDA__PAGE + TXDA__RING_BYTES, TXDA_MEMORY_HOST, false,
			     TXDA__MEM_PRIVATE, &queue->memory);
	if (r >= 0)
		r = txda_buffer_map(queue->memory, &host);
	if (r >= 0) {
		queue->progress.word = host;
		queue->ring = (char *)host + TXDA__PAGE;
		queue->word_va = txda_buffer_va(queue->memory);
		queue->ring_va = queue->word_va + TXDA__PAGE;
		events.arg = queue;
		r = context->backend->ops->queue_new(queue->memory->space->vm, queue_class, &events,
						     &queue->hw);
	}
	if (r >= 0)
		txda__space_add_queue(queue->memory->space, &queue->progress);
	if (r < 0) {
		txda_queue_unref(queue);
		return r;
	}
	*ret_queue = queue;
	return 0;
}

/* Takes the buffers of the oldest copy, if its fence has passed. */
static bool take_held(struct txda_queue *queue, struct txda__held *ret)
{
	bool taken;

	if (!atomic_load(&queue->n_held))
		return false;
	pthread_mutex_lock(&queue->lock);
	*ret = queue->held[queue->oldest_held];
	taken = queue->n_held && ret->fence <= txda__queue_passed(queue);
	if (taken) {
		queue->oldest_held = (queue->oldest_held + 1) % TXDA__IN_FLIGHT;
		queue->n_held--;
	}
	pthread_mutex_unlock(&queue->lock);
	return taken;
}

static void drop(const struct txda__held *held)
{
	txda_buffer_unref(held->dst);
	txda_buffer_unref(held->src);
}

/* Of copies that have passed. */
static void drop_held(struct txda_queue *queue)
{
	struct txda__held held;

	while (take_held(queue, &held))
		drop(&held);
}

struct txda_queue *txda_queue_ref(struct txda_queue *queue)
{
	if (queue)
		txda__ref(&queue->refs);
	return queue;
}

struct txda_queue *txda_queue_unref(struct txda_queue *queue)
{
	struct txda_device *device;

	if (!queue || !txda__unref(&queue->refs))
		return NULL;
	device = queue->device;
	if (!txda__inherited(device->context)) {
		if (queue->hw) {
			ops_of(queue)->queue_free(queue->hw);
			txda__space_remove_queue(queue->memory->space, &queue->progress);
		}
		if (queue->owns_fd)
			close(atomic_load(&queue->fd));
		for (; queue->n_held; queue->n_held--)
			drop(&queue->held[queue->oldest_held++ % TXDA__IN_FLIGHT]);
		pthread_mutex_destroy(&queue->lock);
	}
	txda_buffer_unref(queue->memory);
	free(queue);
	txda_device_unref(device);
	return NULL;
}

/* Releases the pieces of the ring before the last passed one. */
static void reap(struct txda_queue *queue)
{
	uint64_t passed = txda__queue_passed(queue);

	while (queue->n_pieces && queue->piece[queue->oldest].fence < passed) {
		queue->oldest = (queue->oldest + 1) % TXDA__IN_FLIGHT;
		queue->n_pieces--;
	}
}

/*
 * Allocates @bytes of the ring; false when it is full. The used part is one contiguous run of
 * pieces, possibly wrapped around the end. When everything has passed, the last piece is still in
 * use (reap()), so the next one goes to the start of the other half: a queue that is drained after
 * each submission alternates between the same two places.
 */
static bool find_room(struct txda_queue *queue, uint32_t bytes, uint32_t *ret_start)
{
	const struct txda__piece *oldest;
	bool fits_before, fits_behind;

	reap(queue);
	oldest = &queue->piece[queue->oldest];
	if (!queue->n_pieces) {
		*ret_start = 0;
		return true;
	}
	if (queue->n_pieces == TXDA__IN_FLIGHT)
		return false;
	if (queue->n_pieces == 1 && oldest->fence <= txda__queue_passed(queue)) {
		*ret_start = oldest->start < TXDA__RING_BYTES / 2 ? TXDA__RING_BYTES / 2 : 0;
		return true;
	}
	if (queue->write <= oldest->start) { /* wrapped around the end */
		fits_before = false;
		fits_behind = bytes <= oldest->start - queue->write;
	} else {
		fits_before = bytes <= oldest->start;
		fits_behind = bytes <= TXDA__RING_BYTES - queue->write;
	}
	*ret_start = fits_behind ? queue->write : 0;
	return fits_behind || fits_before;
}

/* Returns the queue's fault, or @r if none is recorded. */
static int refuse(struct txda_queue *queue, int r)
{
	int fault = txda__queue_check(queue);

	return fault < 0 ? fault
			 : txda__fail(queue->device->context, r,
				      "chip %u did not accept the stream: %s", queue->device->index,
				      r == -EPERM ? "this user is banned from it for a while, its "
						    "jobs made resets necessary"
						  : strerror(-r));
}

/*
 * Before the chip gets the copy: its fence may pass at once. There is room: the ring had it for the
 * stream, and what passed before was dropped after that.
 */
static void hold(struct txda_queue *queue, uint64_t fence, const struct txda__held *held)
{
	pthread_mutex_lock(&queue->lock);
	queue->held[(queue->oldest_held + queue->n_held++) % TXDA__IN_FLIGHT] =
		(struct txda__held){fence, txda_buffer_ref(held->dst), txda_buffer_ref(held->src)};
	pthread_mutex_unlock(&queue->lock);
}

/* The chip did not get it. The caller has references, so these are not the last. */
static void unhold(struct txda_queue *queue, const struct txda__held *held)
{
	pthread_mutex_lock(&queue->lock);
	queue->n_held--;
	pthread_mutex_unlock(&queue->lock);
	drop(held);
}

/* @held: what the stream uses, or NULL. */
static int submit(struct txda_queue *queue, const void *packets, size_t bytes, unsigned flags,
		  const struct txda__held *held, uint64_t *ret_fence)
{
	struct txda_context *context = queue->device->context;
	struct txda_pkt_fence signal = {
		.hdr = {.op = TXDA_PKT_SIGNAL,
			.flags = ops_of(queue)->signals ? TXDA_SIGNAL_IRQ : 0,
			.bytes = sizeof(signal)},
		.va = queue->word_va,
		.value = atomic_load_explicit(&queue->progress.last, memory_order_relaxed) + 1,
	};
	size_t total = bytes + sizeof(signal);
	uint32_t start;
	int r;

	if (bytes % 8 || bytes > TXDA_STREAM_MAX_BYTES - sizeof(signal))
		return txda__fail(context, -EINVAL,
				  "a stream of %zu bytes; it must be a multiple of 8 up to %zu",
				  bytes, TXDA_STREAM_MAX_BYTES - sizeof(signal));
	if (flags & ~TXDA_SUBMIT_WAIT_SOON)
		return txda__fail(context, -EINVAL, "unknown submit flags 0x%x",
				  flags & ~TXDA_SUBMIT_WAIT_SOON);
	/* The fault handler may still read the last stream, so nothing may overwrite it. */
	if (atomic_load(&queue->faulted) || queue->refused)
		return refuse(queue, -ENODEV);
	if (!find_room(queue, (uint32_t)txda__align(total, PIECE_ALIGN), &start))
		return txda__fail(context, -EAGAIN, "%u streams are in flight", queue->n_pieces);

	if (bytes)
		memcpy(queue->ring + start, packets, bytes);
	memcpy(queue->ring + start + bytes, &signal, sizeof(signal));
	drop_held(queue);
	if (held)
		hold(queue, signal.value, held);
	r = ops_of(queue)->queue_submit(queue->hw, queue->ring_va + start, total, signal.value,
					flags & TXDA_SUBMIT_WAIT_SOON);
	if (r < 0 && held)
		unhold(queue, held);
	if (r == -EAGAIN)
		return txda__fail(context, r, "%u streams are in flight", queue->n_pieces);
	if (r < 0) {
		queue->refused = r == -ENODEV || r == -EIO;
		return refuse(queue, r);
	}
	queue->write = start + (uint32_t)txda__align(total, PIECE_ALIGN);
	queue->piece[(queue->oldest + queue->n_pieces++) % TXDA__IN_FLIGHT] =
		(struct txda__piece){signal.value, start, queue->write};
	atomic_store(&queue->progress.last, signal.value);
	arm(queue, signal.value, atomic_load(&queue->fd));
	if (ret_fence)
		*ret_fence = signal.value;
	txda__monitor_poke(&context->monitor);
	return 0;
}

int txda_queue_submit(struct txda_queue *queue, const void *packets, size_t bytes, unsigned flags,
		      uint64_t *ret_fence)
{
	return txda__forked(queue->device->context)
		       ? -EPERM
		       : submit(queue, packets, bytes, flags, NULL, ret_fence);
}

static int wait_for(struct txda_queue *queue, uint64_t fence, uint64_t deadline_ns)
{
	struct txda_context *context = queue->device->context;
	uint64_t last = atomic_load(&queue->progress.last);
	int r;

	if (txda__queue_passed(queue) >= fence)
		return 0;
	if (fence > last)
		return txda__fail(context, -EINVAL,
				  "chip %u: fence %llu was not given out; the last one is %llu",
				  queue->device->index, (unsigned long long)fence,
				  (unsigned long long)last);
	r = ops_of(queue)->queue_wait(queue->hw, queue->progress.word, fence, deadline_ns);
	if (r >= 0 || txda__queue_passed(queue) >= fence)
		return 0;
	if (r == -ETIMEDOUT)
		return txda__fail(context, r, "chip %u: fence %llu has not passed (%llu has)",
				  queue->device->index, (unsigned long long)fence,
				  (unsigned long long)txda__queue_passed(queue));
	if (txda__queue_check(queue) < 0)
		r = queue->fault_code == TXDA_FAULT_LOST ? -ENODEV : -EIO;
	else
		txda__fail(context, r, "waiting for chip %u: %s", queue->device->index,
			   strerror(-r));
	return r;
}

int txda_queue_wait(struct txda_queue *queue, uint64_t fence, uint64_t deadline_ns)
{
	int r;

	if (txda__forked(queue->device->context))
		return -EPERM;
	r = wait_for(queue, fence, deadline_ns);
	drop_held(queue);
	return r;
}

int txda_queue_passed(struct txda_queue *queue, uint64_t *ret_fence)
{
	if (txda__forked(queue->device->context))
		return -EPERM;
	/* What passes meanwhile may be dropped later, what is told to have passed is dropped. */
	*ret_fence = txda__queue_passed(queue);
	drop_held(queue);
	return 0;
}

void txda__queue_set_fd(struct txda_queue *queue, int fd)
{
	atomic_store(&queue->fd, fd);
	/*
	 * Arms the fd for the fences in flight. A concurrent submission stores its fence and then
	 * checks for an fd, so at least one of the two sees the other.
	 */
	for (uint64_t fence = txda__queue_passed(queue) + 1;
	     fence <= atomic_load(&queue->progress.last); fence++)
		arm(queue, fence, fd);
}

int txda_queue_fd(struct txda_queue *queue)
{
	int fd;

	if (txda__forked(queue->device->context))
		return -EPERM;
	pthread_mutex_lock(&queue->lock);
	fd = atomic_load(&queue->fd);
	if (fd < 0) {
		/* Initially readable: a fence may have passed just before the fd was created. */
		fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
		if (fd < 0) {
			fd = txda__fail(queue->device->context, -errno, "cannot make an eventfd");
		} else {
			queue->owns_fd = true;
			txda__queue_set_fd(queue, fd);
		}
	}
	pthread_mutex_unlock(&queue->lock);
	return fd;
}

int txda_queue_fault(struct txda_queue *queue, char *buf, size_t len)
{
	if (txda__forked(queue->device->context))
		return -EPERM;
	return snprintf(buf, len, "%s", latch_fault(queue) < 0 ? queue->fault : "");
}

int txda_queue_copy(struct txda_queue *queue, struct txda_buffer *dst, uint64_t dst_offset,
		    struct txda_buffer *src, uint64_t src_offset, uint64_t bytes,
		    uint64_t *ret_fence)
{
	struct txda_context *context = queue->device->context;
	struct txda_pkt_copy copy = {.hdr = {.op = TXDA_PKT_COPY, .bytes = sizeof(copy)},
				     .bytes = bytes};
	struct txda__held held = {.dst = dst, .src = src};
	int r;

	if (txda__forked(context))
		return -EPERM;
	if (dst->device != queue->device || src->device != queue->device)
		return txda__fail(context, -EXDEV, "the buffers are not both chip %u's",
				  queue->device->index);
	r = txda__buffer_check_space(dst, queue->memory->space);
	if (r >= 0)
		r = txda__buffer_check_space(src, queue->memory->space);
	if (r >= 0)
		r = txda__buffer_check_used(dst);
	if (r >= 0)
		r = txda__buffer_check_used(src);
	if (r < 0)
		return r;
	if (dst->read_only)
		return txda__fail(context, -EACCES, "copy into a buffer that the chip only reads");
	if (!txda__range_ok(dst_offset, bytes, dst->bytes) ||
	    !txda__range_ok(src_offset, bytes, src->bytes))
		return txda__fail(context, -ERANGE,
				  "copy of %llu bytes from %llu of %llu to %llu of %llu",
				  (unsigned long long)bytes, (unsigned long long)src_offset,
				  (unsigned long long)src->bytes, (unsigned long long)dst_offset,
				  (unsigned long long)dst->bytes);
	copy.dst = dst->va + dst_offset;
	copy.src = src->va + src_offset;
	if (copy.dst < copy.src + bytes && copy.src < copy.dst + bytes)
		return txda__fail(
			context, -EINVAL,
			"copy of %llu bytes from %llu to %llu of one buffer: they overlap",
			(unsigned long long)bytes, (unsigned long long)src_offset,
			(unsigned long long)dst_offset);
	return submit(queue, &copy, sizeof(copy), 0, &held, ret_fence);
}
