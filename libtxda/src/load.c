// SPDX-License-Identifier: MIT
/*
 * Loads a file into a buffer. The main cost is the kernel's allocation of fresh pages, one by one,
 * so several threads share a large load, chunk by chunk. The calling thread is one of them and
 * reports the progress.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buffer.h"
#include "crc32c.h"
#include "thread.h"

#define PIECE	    TXDA__LOAD_PIECE
#define PART	    (256u << 10) /* fits into the cache */
#define MAX_HELPERS 7

struct load {
	struct txda_buffer *buffer;
	const struct txda__backend_ops *ops;
	uint64_t offset, fd_offset, bytes;
	int fd;
	uint32_t *crcs;		   /* of each chunk as stored in the buffer; NULL: not requested */
	atomic_uint_fast64_t next; /* the next chunk to be loaded */
	atomic_uint_fast64_t done; /* bytes */
	atomic_int error;
	char message[TXDA__ERROR_BYTES]; /* the first error, with its message */
};

static void fail(struct load *load, int error)
{
	int none = 0;

	/*
	 * Messages are recorded per thread, and the thread joined last need not be the one that
	 * failed.
	 */
	if (atomic_compare_exchange_strong(&load->error, &none, error))
		snprintf(load->message, sizeof(load->message), "%s",
			 txda_context_error(load->buffer->device->context));
}

/* Reads the chunk back, part by part: its memory has no host mapping. */
static int sum_parts(struct load *load, uint64_t at, uint64_t bytes, uint32_t *ret_crc)
{
	char *part = malloc(PART);
	uint32_t crc = 0;
	int r = part ? 0 : txda__fail(load->buffer->device->context, -ENOMEM, "out of memory");

	for (uint64_t done = 0, n; r >= 0 && done < bytes; done += n) {
		n = bytes - done < PART ? bytes - done : PART;
		r = txda_buffer_read(load->buffer, load->offset + at + done, part, n);
		if (r >= 0)
			crc = crc32c(crc, part, n);
	}
	free(part);
	*ret_crc = crc;
	return r;
}

/* Computes the checksum of the buffer's contents: the file may have changed meanwhile. */
static int sum_piece(struct load *load, uint64_t at, uint64_t bytes)
{
	uint32_t *crc = &load->crcs[at / PIECE];
	void *ptr;
	int r;

	if (load->ops->mem_read)
		return sum_parts(load, at, bytes, crc);
	r = txda_buffer_map(load->buffer, &ptr);
	if (r >= 0)
		*crc = crc32c(0, (const char *)ptr + load->offset + at, bytes);
	return r;
}

/* Loads one chunk; false when there is none left or an error occurred. */
static bool load_piece(struct load *load)
{
	uint64_t at, bytes;
	int64_t n;
	int r;

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
	r = load->crcs ? sum_piece(load, at, bytes) : 0;
	if (r < 0) {
		fail(load, r);
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

static void report(struct load *load, int (*progress)(void *arg, uint64_t done), void *arg)
{
	int r = 0;

	if (progress && !atomic_load(&load->error))
		r = progress(arg, atomic_load(&load->done));
	if (r < 0)
		fail(load, r);
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
		      uint64_t bytes, struct txda__sums *ret_sums,
		      int (*progress)(void *arg, uint64_t done), void *arg)
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

	if (ret_sums) {
		load.crcs = calloc(bytes / PIECE + 1, sizeof(*load.crcs));
		if (!load.crcs)
			return txda__fail(context, -ENOMEM, "out of memory");
	}
	wanted = helpers_wanted(bytes);
	while (n < wanted && !txda__thread_start(&helper[n], "txda-load", help, &load))
		n++;
	while (load_piece(&load))
		report(&load, progress, arg);
	while (n)
		pthread_join(helper[--n], NULL);
	report(&load, progress, arg);
	r = atomic_load(&load.error);
	if (ret_sums && r >= 0) {
		*ret_sums = (struct txda__sums){.piece = load.crcs};
		for (uint64_t at = 0; at < bytes; at += PIECE)
			ret_sums->all = crc32c_join(ret_sums->all, load.crcs[at / PIECE],
						    bytes - at < PIECE ? bytes - at : PIECE);
	} else {
		free(load.crcs);
	}
	if (r == -ENODATA)
		return txda__fail(context, r, "the file ends before %llu bytes at %llu",
				  (unsigned long long)bytes, (unsigned long long)fd_offset);
	return r < 0 ? txda__fail(context, r, "%s", load.message) : 0;
}
