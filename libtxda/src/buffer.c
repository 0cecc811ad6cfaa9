// SPDX-License-Identifier: MIT
#include <stdlib.h>
#include <string.h>

#include "buffer.h"

#include "monitor.h"
#include "space.h"

#define LARGE_PAGE (2ull << 20)

static const struct txda__backend_ops *ops_of(const struct txda_buffer *buffer)
{
	return buffer->device->context->backend->ops;
}

/* Binds @mem at an address. On failure the caller still owns @mem. */
static int place(struct txda_device *device, struct txda__space *space, struct txda__mem *mem,
		 uint64_t bytes, uint64_t room, bool read_only, struct txda_buffer **ret_buffer)
{
	struct txda_context *context = device->context;
	uint64_t align = room >= LARGE_PAGE ? LARGE_PAGE : TXDA__PAGE;
	struct txda_buffer *buffer;
	int r;

	buffer = calloc(1, sizeof(*buffer));
	if (!buffer)
		return txda__fail(context, -ENOMEM, "out of memory");
	r = txda__space_take(space, room + TXDA__PAGE, align, &buffer->range);
	if (r < 0) {
		free(buffer);
		return r;
	}
	r = context->backend->ops->mem_bind(mem, buffer->range->va, read_only);
	if (r < 0) {
		txda__space_release(space, buffer->range);
		free(buffer);
		return r;
	}
	atomic_init(&buffer->refs, 1);
	buffer->device = txda_device_ref(device);
	buffer->space = txda__space_ref(space);
	buffer->mem = mem;
	buffer->bytes = bytes;
	buffer->room = room;
	buffer->va = buffer->range->va;
	buffer->read_only = read_only;
	*ret_buffer = buffer;
	return 0;
}

int txda__buffer_new(struct txda_device *device, uint64_t bytes, enum txda_memory memory,
		     bool read_only, unsigned flags, struct txda_buffer **ret_buffer)
{
	struct txda_context *context = device->context;
	const struct txda__backend_ops *ops = context->backend->ops;
	struct txda__space *space;
	struct txda__mem *mem;
	uint64_t room;
	int r;

	if (!bytes || bytes > (1ull << 40))
		return txda__fail(context, -EINVAL,
				  "a buffer of %llu bytes was requested; the size must be from 1 "
				  "byte to 1 TiB",
				  (unsigned long long)bytes);
	room = txda__align(bytes, TXDA__PAGE);
	r = txda__space_get(device, &space);
	if (r < 0)
		return r;
	r = ops->mem_new(space->vm, room, memory, flags, &mem);
	if (r >= 0) {
		r = place(device, space, mem, bytes, room, read_only, ret_buffer);
		if (r < 0)
			ops->mem_free(mem);
		else
			txda__monitor_poke(&context->monitor);
	}
	txda__space_put(space);
	return r;
}

int txda__buffer_from_file(struct txda_device *device, int fd, uint64_t bytes,
			   struct txda_buffer **ret_buffer)
{
	struct txda_context *context = device->context;
	const struct txda__backend_ops *ops = context->backend->ops;
	struct txda__space *space;
	struct txda__mem *mem;
	int r;

	if (!ops->mem_from_file)
		return -ENOTSUP;
	r = txda__space_get(device, &space);
	if (r < 0)
		return r;
	r = ops->mem_from_file(space->vm, fd, bytes, &mem);
	if (r >= 0) {
		r = place(device, space, mem, bytes, txda__align(bytes, TXDA__PAGE), true,
			  ret_buffer);
		if (r < 0)
			ops->mem_free(mem);
		else
			txda__monitor_poke(&context->monitor);
	}
	txda__space_put(space);
	return r;
}

int txda_buffer_new(struct txda_device *device, uint64_t bytes, enum txda_memory memory,
		    unsigned flags, struct txda_buffer **ret_buffer)
{
	struct txda_context *context = device->context;

	if (txda__forked(context))
		return -EPERM;
	if (memory != TXDA_MEMORY_DEVICE && memory != TXDA_MEMORY_HOST)
		return txda__fail(context, -EINVAL, "no memory kind %d", (int)memory);
	if (flags & ~(TXDA_BUFFER_READ_ONLY | TXDA_BUFFER_PRIVATE))
		return txda__fail(context, -EINVAL, "unknown buffer flags 0x%x",
				  flags & ~(TXDA_BUFFER_READ_ONLY | TXDA_BUFFER_PRIVATE));
	return txda__buffer_new(
		device, bytes, memory, flags & TXDA_BUFFER_READ_ONLY,
		flags & TXDA_BUFFER_PRIVATE ? TXDA__MEM_PRIVATE | TXDA__MEM_LARGE : 0, ret_buffer);
}

int txda__buffer_import(struct txda_device *device, struct txda__space *space, int fd,
			uint64_t bytes, unsigned flags, struct txda_buffer **ret_buffer)
{
	struct txda_context *context = device->context;
	const struct txda__backend_ops *ops = context->backend->ops;
	bool read_only = flags & TXDA__IMPORT_READ_ONLY;
	struct txda__mem *mem;
	uint64_t room;
	int r;

	r = ops->mem_import(space->vm, fd, flags, &mem, &room);
	if (r < 0)
		return r;
	if (bytes && txda__align(bytes, TXDA__PAGE) != room)
		r = txda__fail(context, -EINVAL, "the memory has %llu bytes; %llu were requested",
			       (unsigned long long)room,
			       (unsigned long long)txda__align(bytes, TXDA__PAGE));
	else
		r = place(device, space, mem, bytes ? bytes : room, room, read_only, ret_buffer);
	if (r < 0) {
		ops->mem_free(mem);
		return r;
	}
	(*ret_buffer)->sealed = read_only;
	txda__monitor_poke(&context->monitor);
	return 0;
}

int txda_buffer_import(struct txda_device *device, int fd, unsigned flags,
		       struct txda_buffer **ret_buffer)
{
	struct txda__space *space;
	int r;

	if (txda__forked(device->context))
		return -EPERM;
	if (flags & ~TXDA_BUFFER_READ_ONLY)
		return txda__fail(device->context, -EINVAL, "unknown buffer flags 0x%x",
				  flags & ~TXDA_BUFFER_READ_ONLY);
	r = txda__space_get(device, &space);
	if (r < 0)
		return r;
	r = txda__buffer_import(device, space, fd, 0,
				flags & TXDA_BUFFER_READ_ONLY ? TXDA__IMPORT_READ_ONLY : 0,
				ret_buffer);
	txda__space_put(space);
	return r;
}

int txda_buffer_share(struct txda_buffer *buffer, unsigned flags, int *ret_fd)
{
	struct txda_context *context = buffer->device->context;

	if (txda__forked(context))
		return -EPERM;
	if (flags & ~TXDA_SHARE_READ_ONLY)
		return txda__fail(context, -EINVAL, "unknown share flags 0x%x",
				  flags & ~TXDA_SHARE_READ_ONLY);
	return ops_of(buffer)->mem_export(buffer->mem, flags & TXDA_SHARE_READ_ONLY, ret_fd);
}

int txda_buffer_export(struct txda_buffer *buffer, int *ret_fd)
{
	return txda_buffer_share(buffer, 0, ret_fd);
}

struct txda_buffer *txda_buffer_ref(struct txda_buffer *buffer)
{
	if (buffer)
		txda__ref(&buffer->refs);
	return buffer;
}

struct txda_buffer *txda_buffer_unref(struct txda_buffer *buffer)
{
	struct txda_device *device;

	if (!buffer || !txda__unref(&buffer->refs))
		return NULL;
	device = buffer->device;
	if (!txda__inherited(device->context)) {
		if (!buffer->idle)
			ops_of(buffer)->mem_unbind(buffer->mem);
		ops_of(buffer)->mem_free(buffer->mem);
		txda__monitor_poke(&device->context->monitor);
	}
	txda__space_release(buffer->space, buffer->range);
	txda__space_put(buffer->space);
	free(buffer);
	txda_device_unref(device);
	return NULL;
}

uint64_t txda_buffer_bytes(struct txda_buffer *buffer)
{
	return buffer->bytes;
}

uint64_t txda_buffer_va(struct txda_buffer *buffer)
{
	return buffer->va;
}

int txda__buffer_check_used(struct txda_buffer *buffer)
{
	return buffer->idle ? txda__fail(buffer->device->context, -EBUSY,
					 "the buffer is idle (txda_buffer_advise())")
			    : 0;
}

int txda__buffer_check_space(struct txda_buffer *buffer, const struct txda__space *space)
{
	return buffer->space == space
		       ? 0
		       : txda__fail(buffer->device->context, -ENODEV,
				    "chip %u was reset: what was made before cannot be used with "
				    "what was made after",
				    buffer->device->index);
}

int txda__buffer_check_write(struct txda_buffer *buffer)
{
	return buffer->sealed ? txda__fail(buffer->device->context, -EACCES,
					   "the buffer was imported to be read only")
			      : txda__buffer_check_used(buffer);
}

int txda_buffer_map(struct txda_buffer *buffer, void **ret_ptr)
{
	int r = txda__forked(buffer->device->context) ? -EPERM : txda__buffer_check_used(buffer);

	if (r < 0)
		return r;
	return ops_of(buffer)->mem_map(buffer->mem, ret_ptr);
}

static int check_range(struct txda_buffer *buffer, uint64_t offset, uint64_t bytes)
{
	if (txda__range_ok(offset, bytes, buffer->bytes))
		return txda__buffer_check_used(buffer);
	return txda__fail(buffer->device->context, -ERANGE,
			  "bytes %llu to %llu of a buffer of %llu", (unsigned long long)offset,
			  (unsigned long long)(offset + bytes), (unsigned long long)buffer->bytes);
}

int txda_buffer_write(struct txda_buffer *buffer, uint64_t offset, const void *src, uint64_t bytes)
{
	void *ptr;
	int r;

	if (txda__forked(buffer->device->context))
		return -EPERM;
	r = check_range(buffer, offset, bytes);
	if (r >= 0)
		r = txda__buffer_check_write(buffer);
	if (r >= 0 && ops_of(buffer)->mem_write)
		return ops_of(buffer)->mem_write(buffer->mem, offset, src, bytes);
	if (r >= 0)
		r = txda_buffer_map(buffer, &ptr);
	if (r >= 0)
		memcpy((char *)ptr + offset, src, bytes);
	return r;
}

int txda_buffer_read(struct txda_buffer *buffer, uint64_t offset, void *dst, uint64_t bytes)
{
	void *ptr;
	int r;

	if (txda__forked(buffer->device->context))
		return -EPERM;
	r = check_range(buffer, offset, bytes);
	if (r >= 0 && ops_of(buffer)->mem_read)
		return ops_of(buffer)->mem_read(buffer->mem, offset, dst, bytes);
	if (r >= 0)
		r = txda_buffer_map(buffer, &ptr);
	if (r >= 0)
		memcpy(dst, (const char *)ptr + offset, bytes);
	return r;
}

int txda_buffer_advise(struct txda_buffer *buffer, enum txda_advice advice, bool *ret_kept)
{
	const struct txda__backend_ops *ops = ops_of(buffer);
	bool kept = true, used = advice == TXDA_ADVICE_WILLNEED;
	int r;

	if (txda__forked(buffer->device->context))
		return -EPERM;
	if (advice < TXDA_ADVICE_WILLNEED || advice > TXDA_ADVICE_DONTNEED)
		return txda__fail(buffer->device->context, -EINVAL, "no advice %d", (int)advice);
	if (ops->mem_advise && (!used || buffer->idle)) {
		r = ops->mem_advise(buffer->mem, advice, &kept);
		buffer->dropped |= !kept;
		if (r < 0)
			return r;
		buffer->idle = r;
	}
	if (ret_kept)
		*ret_kept = !buffer->dropped;
	if (used)
		buffer->dropped = false;
	return 0;
}

int txda_buffer_load(struct txda_buffer *buffer, uint64_t offset, int fd, uint64_t fd_offset,
		     uint64_t bytes)
{
	int r = txda__forked(buffer->device->context) ? -EPERM : txda__buffer_check_write(buffer);

	return r < 0 ? r
		     : txda__buffer_load(buffer, offset, fd, fd_offset, bytes, NULL, NULL, NULL);
}
