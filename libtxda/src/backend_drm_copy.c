// SPDX-License-Identifier: MIT
/*
 * Copies to and from device memory through a lane, a staging buffer in host memory that the chip
 * can access, and the copy queue. While the chip copies one half of the lane the host fills or
 * empties the other. Each thread uses a lane of its own; all copies go through one queue, in
 * submission order.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backend_drm.h"
#include "fault.h"
#include "io.h"
#include "txda_isa.h"

/* Layout of a lane: the control page, then the halves. */
#define LANE_BYTES    (TXDA__PAGE + 2ull * DRM_LANE_BYTES)
#define LANE_VA_BYTES (DRM_COPIER_VA_BYTES / DRM_LANES)

/* Where a lane maps memory writable that is mapped read-only for the chip elsewhere. */
#define WINDOW	    (LANE_VA_BYTES / 2)
#define PIECE_BYTES (4ull << 20)

/*
 * The control page's contents for a half: its stream, and the fence word that the stream
 * signals.
 */
struct control {
	struct txda_pkt_copy copy;
	struct txda_pkt_fence signal;
	uint64_t word;
	uint64_t pad[15]; /* separate cache lines */
};

static struct control *control_of(const struct drm_lane *lane, unsigned half)
{
	return (struct control *)lane->control + half;
}

void txda__drm_copier_init(struct drm_copier *copier)
{
	pthread_mutex_init(&copier->lock, NULL);
	pthread_cond_init(&copier->idle, NULL);
}

static void free_lane(struct drm_chip *chip, struct drm_lane *lane)
{
	if (!lane->handle)
		return;
	munmap(lane->control, LANE_BYTES);
	txda__drm_handle_close(chip, lane->handle);
	memset(lane, 0, sizeof(*lane));
}

static void free_queue(struct txda__vm *vm)
{
	struct drm_copier *copier = &vm->copier;

	if (copier->queue)
		txda__drm_hwqueue_destroy(vm->chip, copier->queue, copier->timeline);
	copier->queue = 0;
	copier->timeline = 0;
	copier->last = 0;
	copier->broken = false;
}

void txda__drm_copier_fini(struct txda__vm *vm)
{
	struct drm_copier *copier = &vm->copier;

	free_queue(vm);
	for (unsigned i = 0; i < DRM_LANES; i++) {
		if (copier->lane[i].handle)
			txda__drm_vm_unmap(vm, copier->lane[i].va, LANE_BYTES);
		free_lane(vm->chip, &copier->lane[i]);
	}
	pthread_cond_destroy(&copier->idle);
	pthread_mutex_destroy(&copier->lock);
}

static int make_lane(struct txda__vm *vm, struct drm_lane *lane, unsigned index)
{
	struct drm_txda_bo_create args = {
		.size = LANE_BYTES, .places = DRM_TXDA_PLACE_HOST, .vm_id = vm->id};
	void *ptr = NULL;
	int r;

	r = txda__drm_ioctl(vm->chip, DRM_IOCTL_TXDA_BO_CREATE, &args);
	if (r < 0)
		return r;
	r = txda__drm_bo_map(vm->chip, args.handle, LANE_BYTES, &ptr);
	if (r < 0) {
		txda__drm_handle_close(vm->chip, args.handle);
		return r;
	}
	lane->va = vm->end + index * LANE_VA_BYTES;
	lane->handle = args.handle;
	lane->control = ptr;
	lane->half[0] = (char *)ptr + TXDA__PAGE;
	lane->half[1] = lane->half[0] + DRM_LANE_BYTES;
	r = txda__drm_vm_map(vm, args.handle, 0, lane->va, LANE_BYTES, false);
	if (r < 0)
		free_lane(vm->chip, lane);
	return r;
}

/* The copy queue, created on first use, and recreated once it has failed and no lane is busy. */
static int ready_queue(struct txda__vm *vm)
{
	struct drm_copier *copier = &vm->copier;

	if (copier->broken && copier->n_busy)
		return -EIO;
	if (copier->broken)
		free_queue(vm);
	if (copier->queue)
		return 0;
	return txda__drm_hwqueue_create(vm, DRM_TXDA_QUEUE_COPY, &copier->queue, &copier->timeline);
}

static struct drm_lane *find_idle(struct drm_copier *copier, unsigned *ret_index)
{
	for (unsigned i = 0; i < DRM_LANES; i++)
		if (!copier->lane[i].busy) {
			*ret_index = i;
			return &copier->lane[i];
		}
	return NULL;
}

/* A lane for exclusive use by this thread, waiting until one is free. */
static int take_lane(struct txda__vm *vm, struct drm_lane **ret_lane)
{
	struct drm_copier *copier = &vm->copier;
	struct drm_lane *lane;
	unsigned index;
	int r;

	pthread_mutex_lock(&copier->lock);
	while (!(lane = find_idle(copier, &index)))
		pthread_cond_wait(&copier->idle, &copier->lock);
	r = ready_queue(vm);
	if (r >= 0 && !lane->handle)
		r = make_lane(vm, lane, index);
	if (r >= 0) {
		lane->busy = true;
		copier->n_busy++;
		lane->point[0] = lane->point[1] = 0;
		control_of(lane, 0)->word = control_of(lane, 1)->word = 0;
		*ret_lane = lane;
	}
	pthread_mutex_unlock(&copier->lock);
	return r;
}

static void release_lane(struct drm_copier *copier, struct drm_lane *lane, bool failed)
{
	pthread_mutex_lock(&copier->lock);
	copier->broken |= failed;
	copier->n_busy--;
	lane->busy = false;
	pthread_cond_signal(&copier->idle);
	pthread_mutex_unlock(&copier->lock);
}

/* Waits for the pending copy of a half, if any. */
static int finish(struct txda__vm *vm, struct drm_lane *lane, unsigned half)
{
	uint64_t point = lane->point[half];
	int r = 0;

	if (!point)
		return 0;
	lane->point[half] = 0;
	if (__atomic_load_n(&control_of(lane, half)->word, __ATOMIC_ACQUIRE) < point)
		r = txda__drm_timeline_wait(vm->chip, vm->copier.timeline, point, TXDA_FOREVER);
	if (__atomic_load_n(&control_of(lane, half)->word, __ATOMIC_ACQUIRE) >= point)
		return 0;
	if (r < 0 || atomic_load(&vm->chip->lost))
		return r < 0 ? r : -ENODEV;
	return -EIO;
}

/* Copies between a half and @va. */
static int start(struct txda__vm *vm, struct drm_lane *lane, unsigned half, uint64_t va,
		 uint64_t bytes, bool to_device)
{
	uint64_t half_va = lane->va + TXDA__PAGE + half * (uint64_t)DRM_LANE_BYTES;
	uint64_t control_va = lane->va + half * sizeof(struct control);
	struct control *control = control_of(lane, half);
	struct drm_copier *copier = &vm->copier;
	uint64_t point;
	int r;

	control->copy = (struct txda_pkt_copy){
		.hdr = {.op = TXDA_PKT_COPY, .bytes = sizeof(control->copy)},
		.dst = to_device ? va : half_va,
		.src = to_device ? half_va : va,
		.bytes = bytes,
	};
	pthread_mutex_lock(&copier->lock);
	point = copier->last + 1;
	control->signal = (struct txda_pkt_fence){
		.hdr = {.op = TXDA_PKT_SIGNAL, .bytes = sizeof(control->signal)},
		.va = control_va + offsetof(struct control, word),
		.value = point,
	};
	r = txda__drm_hwqueue_submit(vm->chip, copier->queue, copier->timeline, control_va,
				     sizeof(control->copy) + sizeof(control->signal), point);
	if (r >= 0)
		copier->last = lane->point[half] = point;
	pthread_mutex_unlock(&copier->lock);
	return r;
}

/*
 * Waits for both halves, also after an error: the chip must be done with the memory before it is
 * reused. Returns the first error.
 */
static int settle(struct txda__vm *vm, struct drm_lane *lane, int error)
{
	for (unsigned half = 0; half < 2; half++) {
		int r = finish(vm, lane, half);

		if (error >= 0 && r < 0)
			error = r;
	}
	return error;
}

static int no_lane(struct txda__vm *vm, int error)
{
	if (atomic_load(&vm->chip->lost))
		return txda__fail(drm_context(vm->chip), -ENODEV, "chip %u is lost",
				  vm->chip->index);
	return txda__fail(drm_context(vm->chip), error, "chip %u: no copy queue: %s",
			  vm->chip->index, strerror(-error));
}

/*
 * Records why copies of @vm fail, for the holder of a lane; before the lane is released, while the
 * queue still has the reason.
 */
static int copy_failed(struct txda__vm *vm, int error)
{
	struct txda_context *context = drm_context(vm->chip);
	struct txda_fault fault;
	char text[200] = "";
	int r = 0;

	if (error == -EIO && vm->copier.queue)
		r = txda__drm_hwqueue_fault(vm->chip, vm->copier.queue, &fault, text, sizeof(text));
	/*
	 * The query above may have found the chip lost: a queue fails before its chip is known to
	 * be gone.
	 */
	if (atomic_load(&vm->chip->lost))
		return txda__fail(context, -ENODEV, "chip %u is lost", vm->chip->index);
	if (r < 0 && !text[0])
		txda__fault_text(&fault, NULL, text, sizeof(text));
	return txda__fail(context, error, "chip %u: copying failed: %s", vm->chip->index,
			  text[0] ? text : strerror(-error));
}

/* ---- into device memory ---------------------------------------------------------------------- */

/* The source of bytes: memory, or a file when @host is NULL. */
struct source {
	const char *host;
	int fd;
	uint64_t fd_offset;
};

/* The next @bytes of a source; fewer only at a file's end. */
static int64_t fetch(struct source *from, void *to, uint64_t bytes)
{
	int64_t n = (int64_t)bytes;

	if (from->host) {
		memcpy(to, from->host, bytes);
		from->host += bytes;
	} else {
		n = io_pread(from->fd, to, bytes, from->fd_offset);
		if (n > 0)
			from->fd_offset += (uint64_t)n;
	}
	return n;
}

/* Copies to @va. Sets *ret_done also on failure; *ret_broken: the copy queue failed. */
static int put_piece(struct txda__vm *vm, struct drm_lane *lane, uint64_t va, struct source *from,
		     uint64_t bytes, uint64_t *ret_done, bool *ret_broken)
{
	uint64_t done = 0;
	int64_t n = 1;
	int r = 0;

	for (unsigned half = 0; r >= 0 && n > 0 && done < bytes; half ^= 1) {
		r = finish(vm, lane, half);
		if (r < 0)
			break;
		n = fetch(from, lane->half[half],
			  bytes - done < DRM_LANE_BYTES ? bytes - done : DRM_LANE_BYTES);
		if (n > 0)
			r = start(vm, lane, half, va + done, (uint64_t)n, true);
		if (n > 0 && r >= 0)
			done += (uint64_t)n;
	}
	r = settle(vm, lane, r);
	*ret_done = done;
	*ret_broken = r < 0;
	if (r < 0)
		return copy_failed(vm, r);
	if (n < 0)
		return txda__fail(drm_context(vm->chip), (int)n, "reading the file: %s",
				  strerror((int)-n));
	return 0;
}

/*
 * Returns the bytes stored, fewer only at the file's end; records a message on failure.
 */
static int64_t put(struct txda__mem *mem, uint64_t offset, struct source *from, uint64_t bytes)
{
	struct txda__vm *vm = mem->vm;
	uint64_t total = 0, done, wanted;
	struct drm_lane *lane;
	bool broken = false;
	int r;

	r = take_lane(vm, &lane);
	if (r < 0)
		return no_lane(vm, r);
	do {
		uint64_t va = mem->va + offset + total, skip = 0;

		wanted = bytes - total < PIECE_BYTES ? bytes - total : PIECE_BYTES;
		if (mem->bound_read_only) {
			skip = va % TXDA__PAGE;
			r = txda__drm_vm_map(vm, mem->bo->handle, offset + total - skip,
					     lane->va + WINDOW,
					     txda__align(wanted + skip, TXDA__PAGE), false);
			va = lane->va + WINDOW + skip;
			if (r < 0)
				r = copy_failed(vm, r);
		}
		done = 0;
		if (r >= 0)
			r = put_piece(vm, lane, va, from, wanted, &done, &broken);
		if (mem->bound_read_only)
			txda__drm_vm_unmap(vm, lane->va + WINDOW,
					   txda__align(wanted + skip, TXDA__PAGE));
		total += done;
	} while (r >= 0 && done == wanted && total < bytes);
	release_lane(&vm->copier, lane, broken);
	return r < 0 ? r : (int64_t)total;
}

/*
 * Memory that the host accesses directly. Never device memory: accessing its mapping while the chip
 * is removed would kill the process.
 */
static bool by_view(const struct txda__mem *mem)
{
	return mem->mappable && mem->host;
}

int txda__drm_mem_write(struct txda__mem *mem, uint64_t offset, const void *host, uint64_t bytes)
{
	struct source from = {.host = host};
	int64_t n;
	void *view;
	int r;

	if (!bytes)
		return 0;
	if (by_view(mem)) {
		r = txda__drm_mem_map(mem, &view);
		if (r >= 0)
			memcpy((char *)view + offset, host, bytes);
		return r;
	}
	n = put(mem, offset, &from, bytes);
	return n < 0 ? (int)n : 0;
}

int64_t txda__drm_mem_load(struct txda__mem *mem, uint64_t offset, int fd, uint64_t fd_offset,
			   uint64_t bytes)
{
	struct source from = {.fd = fd, .fd_offset = fd_offset};
	int64_t n;
	void *view;
	int r;

	if (!by_view(mem))
		return put(mem, offset, &from, bytes);
	r = txda__drm_mem_map(mem, &view);
	if (r < 0)
		return r;
	n = io_pread(fd, (char *)view + offset, bytes, fd_offset);
	if (n < 0)
		txda__fail(drm_context(mem->vm->chip), (int)n, "reading the file: %s",
			   strerror((int)-n));
	return n;
}

/* ---- from device memory ---------------------------------------------------------------------- */

int txda__drm_mem_read(struct txda__mem *mem, uint64_t offset, void *host, uint64_t bytes)
{
	uint64_t asked = 0, n[2] = {0, 0}; /* bytes requested, per half */
	struct txda__vm *vm = mem->vm;
	struct drm_lane *lane;
	void *view;
	int r;

	if (!bytes)
		return 0;
	if (by_view(mem)) {
		r = txda__drm_mem_map(mem, &view);
		if (r >= 0)
			memcpy(host, (const char *)view + offset, bytes);
		return r;
	}
	r = take_lane(vm, &lane);
	if (r < 0)
		return no_lane(vm, r);
	for (unsigned half = 0; r >= 0 && (asked < bytes || n[half] || n[half ^ 1]); half ^= 1) {
		r = finish(vm, lane, half);
		if (r < 0)
			break;
		memcpy(host, lane->half[half], n[half]);
		host = (char *)host + n[half];
		n[half] = bytes - asked < DRM_LANE_BYTES ? bytes - asked : DRM_LANE_BYTES;
		if (n[half])
			r = start(vm, lane, half, mem->va + offset + asked, n[half], false);
		asked += n[half];
	}
	r = settle(vm, lane, r);
	if (r < 0)
		r = copy_failed(vm, r);
	release_lane(&vm->copier, lane, r < 0);
	return r;
}
