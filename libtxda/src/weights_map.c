// SPDX-License-Identifier: MIT
/*
 * Weights that are the pages of param.bin itself.
 *
 * Mapping a file whose pages are in memory takes a hundredth of the time of a copy into fresh
 * memory, so a model's first token need not wait for the copy. A thread makes it in the background,
 * since memory of its own has large pages, cannot be truncated by anybody and stays when the kernel
 * needs room. Each chunk takes the place of the file's pages between two launches, if it still has
 * the checksum that it had at the beginning; if not, the chip has computed with what it should not
 * have, and nobody can use the weights any more.
 */
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "buffer.h"
#include "crc32c.h"
#include "thread.h"
#include "weights.h"

/*
 * A chunk remains a mapping of its own, of which a process may have about 65,000, so their number
 * is limited, too.
 */
#define MIN_CHUNK  (32ull << 20)
#define MAX_CHUNKS 128

struct txda__owner {
	struct txda_buffer *buffer;
	const struct txda__backend_ops *ops;
	uint32_t *piece;
	uint64_t chunk;
	pthread_t thread;
	bool started;
	atomic_bool stop;
};

static bool only_ours(int fd, uint64_t bytes)
{
	struct stat st;

	return !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
	       !(st.st_mode & (S_IWGRP | S_IWOTH)) && (uint64_t)st.st_size == bytes;
}

int txda__weights_map(struct txda_weights *w, const struct txda__weights_wish *wish)
{
	int r;

	if (!wish->map || w->keep || !only_ours(wish->fd, w->bytes))
		return -ENOTSUP;
	r = txda__buffer_from_file(w->device, wish->fd, w->bytes, &w->buffer);
	/* A file system without mappings; too many of them. */
	return r == -ENODEV || r == -ENOSPC ? -ENOTSUP : r;
}

/* The checksum of the chunk at @at, from those of its pieces. */
static uint32_t chunk_sum(const struct txda__owner *o, uint64_t at, uint64_t bytes)
{
	uint32_t crc = 0;

	for (uint64_t done = 0, n; done < bytes; done += n) {
		n = bytes - done < TXDA__LOAD_PIECE ? bytes - done : TXDA__LOAD_PIECE;
		crc = crc32c_join(crc, o->piece[(at + done) / TXDA__LOAD_PIECE], n);
	}
	return crc;
}

static void *own(void *arg)
{
	struct txda__owner *o = arg;
	uint64_t total = o->buffer->bytes, at = 0;
	int r = 0;

	while (at < total && !r && !atomic_load(&o->stop)) {
		uint64_t bytes = total - at < o->chunk ? total - at : o->chunk;

		r = o->ops->mem_own(o->buffer->mem, at, bytes, chunk_sum(o, at, bytes), &o->stop);
		at += bytes;
	}
	/* Without memory for a copy the rest stays as it is. */
	if (r && r != -ENOMEM && r != -ECANCELED)
		o->ops->mem_owned(o->buffer->mem, false);
	else if (!r && at >= total)
		o->ops->mem_owned(o->buffer->mem, true);
	return NULL;
}

void txda__weights_own(struct txda_weights *w, uint32_t *piece)
{
	struct txda__owner *o = calloc(1, sizeof(*o));

	w->owner = o;
	if (!o) {
		free(piece);
		return;
	}
	*o = (struct txda__owner){
		.buffer = w->buffer,
		.ops = w->device->context->backend->ops,
		.piece = piece,
		.chunk = txda__align(w->bytes / MAX_CHUNKS + 1, MIN_CHUNK),
	};
	o->started = !txda__thread_start(&o->thread, "txda-own", own, o);
}

void txda__weights_own_end(struct txda_weights *w)
{
	struct txda__owner *o = w->owner;

	if (!o)
		return;
	atomic_store(&o->stop, true);
	if (o->started)
		pthread_join(o->thread, NULL);
	free(o->piece);
	free(o);
}
