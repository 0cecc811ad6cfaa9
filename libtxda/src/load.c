// SPDX-License-Identifier: MIT
/*
 * From a file into a buffer. What costs is making fresh pages, in the kernel, one by one; so
 * several threads share a large load, piece by piece, and the calling thread is one of them and
 * tells of the progress.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buffer.h"
#include "thread.h"

#define PIECE	    (4ull << 20)
#define MAX_HELPERS 7

struct load {
	struct txda_buffer *buffer;
	const struct txda__backend_ops *ops;
	uint64_t offset, fd_offset, bytes;
	int fd;
	atomic_uint_fast64_t next; /* the piece that nobody has yet */
	atomic_uint_fast64_t done; /* bytes */
	atomic_int error;
	char message[TXDA__ERROR_BYTES]; /* of whoever set error first */
};

static void fail(struct load *load, int error)
{
	int none = 0;

	/* Words are noted per thread; the last one to be joined is not the one that failed. */
	if (atomic_compare_exchange_strong(&load->error, &none, error))
		snprintf(load->message, sizeof(load->message), "%s",
			 txda_context_error(load->buffer->device->context));
}

/* Loads one piece; false when there is none or something went wrong. */
static bool load_piece(struct load *load)
{
	uint64_t at, bytes;
	int64_t n;

	if (atomic_load(&load->error))
		return false;
	at = atomic_fetch_add(&load->next, 1) * PIECE;
	if (at >= load->bytes)
		return false;
	bytes = load->bytes - at < PIECE ? load->bytes - at : PIECE;
	n = load->ops->mem_load(load->buffer->mem, load->offset + at, load->fd,
				load->fd_offset + at, bytes);
	if (n != (int64_t)bytes) {
		fail(load, n < 0 ? (int)n : -ENODATA);
		return false;
	}
	atomic_fetch_add(&load->done, bytes);
	return true;
}

static void *help(void *arg)
{
	while (load_piece(arg))
		;
	return NULL;
}

static unsigned helpers_wanted(uint64_t bytes)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	uint64_t n = bytes / (4 * PIECE);

	if (cpus > 0 && n > (uint64_t)cpus - 1)
		n = (uint64_t)cpus - 1;
	return n > MAX_HELPERS ? MAX_HELPERS : (unsigned)n;
}

int txda__buffer_load(struct txda_buffer *buffer, uint64_t offset, int fd, uint64_t fd_offset,
		      uint64_t bytes, void (*progress)(void *arg, uint64_t done), void *arg)
{
	struct txda_context *context = buffer->device->context;
	struct load load = {.buffer = buffer,
			    .ops = context->backend->ops,
			    .offset = offset,
			    .fd_offset = fd_offset,
			    .bytes = bytes,
			    .fd = fd};
	pthread_t helper[MAX_HELPERS];
	unsigned wanted, n = 0;
	int r;

	if (!txda__range_ok(offset, bytes, buffer->bytes))
		return txda__fail(context, -ERANGE,
				  "%llu bytes at %llu do not fit into a buffer of %llu",
				  (unsigned long long)bytes, (unsigned long long)offset,
				  (unsigned long long)buffer->bytes);
	if (!txda__range_ok(fd_offset, bytes, INT64_MAX))
		return txda__fail(context, -EINVAL, "file offset %llu is too large",
				  (unsigned long long)fd_offset);

	wanted = helpers_wanted(bytes);
	while (n < wanted && !txda__thread_start(&helper[n], "txda-load", help, &load))
		n++;
	while (load_piece(&load))
		if (progress)
			progress(arg, atomic_load(&load.done));
	while (n)
		pthread_join(helper[--n], NULL);
	r = atomic_load(&load.error);
	if (r == -ENODATA)
		return txda__fail(context, r, "the file ends before %llu bytes at %llu",
				  (unsigned long long)bytes, (unsigned long long)fd_offset);
	if (r < 0)
		return txda__fail(context, r, "%s", load.message);
	if (progress)
		progress(arg, bytes);
	return 0;
}
