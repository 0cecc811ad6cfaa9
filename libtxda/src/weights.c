// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "buffer.h"
#include "crc32c.h"

/* Read back in parts: some stay in the cache, and device memory need not be mapped. */
#define VERIFY_BYTES (1u << 20)

void txda__weights_init(struct txda__weights_table *table)
{
	pthread_mutex_init(&table->lock, NULL);
	pthread_cond_init(&table->changed, NULL);
	table->first = NULL;
}

void txda__weights_fini(struct txda__weights_table *table)
{
	pthread_cond_destroy(&table->changed);
	pthread_mutex_destroy(&table->lock);
}

static uint64_t to_ns(struct timespec ts)
{
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

static bool same_file(const struct txda__weights *a, const struct txda__weights *b)
{
	return a->space == b->space && a->dev == b->dev && a->inode == b->inode &&
	       a->bytes == b->bytes && a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns &&
	       a->crc32c == b->crc32c;
}

static int verify_buffer(struct txda_buffer *buffer, uint32_t wanted, char *message, size_t size)
{
	uint64_t total = txda_buffer_bytes(buffer), bytes;
	void *part = malloc(VERIFY_BYTES);
	uint32_t crc = 0;
	int r = 0;

	if (!part)
		return txda__say(message, size, -ENOMEM, "out of memory");
	for (uint64_t at = 0; at < total && r >= 0; at += bytes) {
		bytes = total - at < VERIFY_BYTES ? total - at : VERIFY_BYTES;
		r = txda_buffer_read(buffer, at, part, bytes);
		if (r >= 0)
			crc = txda__crc32c(crc, part, bytes);
	}
	free(part);
	if (r < 0)
		return txda__say(message, size, r, "%s",
				 txda_context_error(buffer->device->context));
	if (crc != wanted)
		return txda__say(message, size, -EBADMSG,
				 "checksum is 0x%08x; model_info.json says 0x%08x", crc, wanted);
	return 0;
}

/* Without the lock: the state is LOADING, so nobody else touches @w. */
static int load(struct txda__weights *w, int fd, bool verify,
		void (*progress)(void *arg, uint64_t done), void *arg)
{
	struct txda_context *context = w->device->context;
	int r;

	posix_fadvise(fd, 0, (off_t)w->bytes, POSIX_FADV_SEQUENTIAL);
	r = txda__buffer_new(w->device, w->bytes, TXDA_MEMORY_DEVICE, true,
			     TXDA__MEM_PRIVATE | TXDA__MEM_LARGE | TXDA__MEM_UNMAPPED, &w->buffer);
	if (r >= 0)
		r = txda__buffer_load(w->buffer, 0, fd, 0, w->bytes, progress, arg);
	if (r < 0)
		snprintf(w->message, sizeof(w->message), "%s", txda_context_error(context));
	else if (verify)
		r = verify_buffer(w->buffer, w->crc32c, w->message, sizeof(w->message));
	if (r < 0)
		w->buffer = txda_buffer_unref(w->buffer);
	return r;
}

static void unlink_locked(struct txda__weights_table *table, struct txda__weights *w)
{
	struct txda__weights **at = &table->first;

	while (*at && *at != w)
		at = &(*at)->next;
	if (*at)
		*at = w->next;
}

/* Finds the same file or adds @key. *ret_mine: this thread loads it. */
static struct txda__weights *find_or_add(struct txda__weights_table *table,
					 const struct txda__weights *key, bool *ret_mine)
{
	struct txda__weights *w;

	*ret_mine = false;
	for (w = table->first; w; w = w->next)
		if (w->state != TXDA__WEIGHTS_FAILED && same_file(w, key)) {
			w->refs++;
			return w;
		}
	w = malloc(sizeof(*w));
	if (w) {
		*w = *key;
		w->refs = 1;
		w->state = TXDA__WEIGHTS_LOADING;
		w->next = table->first;
		table->first = w;
		*ret_mine = true;
	}
	return w;
}

/* Loads or waits, with a reference held. */
static int settle(struct txda__weights_table *table, struct txda__weights *w, bool mine, int fd,
		  bool verify, void (*progress)(void *arg, uint64_t done), void *arg)
{
	int r;

	if (mine) {
		r = load(w, fd, verify, progress, arg);
		pthread_mutex_lock(&table->lock);
		w->state = r < 0 ? TXDA__WEIGHTS_FAILED : TXDA__WEIGHTS_READY;
		w->error = r;
		w->verified = verify;
		pthread_cond_broadcast(&table->changed);
		pthread_mutex_unlock(&table->lock);
		return r;
	}
	pthread_mutex_lock(&table->lock);
	while (w->state == TXDA__WEIGHTS_LOADING)
		pthread_cond_wait(&table->changed, &table->lock);
	r = w->error;
	verify &= !w->verified;
	pthread_mutex_unlock(&table->lock);
	if (r >= 0 && verify) {
		char message[sizeof(w->message)];

		r = verify_buffer(w->buffer, w->crc32c, message, sizeof(message));
		if (r < 0)
			return txda__fail(w->device->context, r, "%s", message);
		pthread_mutex_lock(&table->lock);
		w->verified = true;
		pthread_mutex_unlock(&table->lock);
	}
	if (r >= 0 && progress)
		progress(arg, w->bytes);
	return r;
}

int txda__weights_get(struct txda_device *device, int fd, const char *name, uint64_t bytes,
		      uint32_t crc32c, bool verify, void (*progress)(void *arg, uint64_t done),
		      void *arg, struct txda__weights **ret_weights)
{
	struct txda_context *context = device->context;
	struct txda__weights_table *table = &context->weights;
	struct txda__weights key = {.device = device, .bytes = bytes, .crc32c = crc32c}, *w;
	struct stat st;
	bool mine;
	int r;

	if (fstat(fd, &st) < 0)
		return txda__fail(context, -errno, "%s: %s", name, strerror(errno));
	key.dev = st.st_dev;
	key.inode = st.st_ino;
	key.mtime_ns = to_ns(st.st_mtim);
	key.ctime_ns = to_ns(st.st_ctim);

	r = txda__space_get(device, &key.space);
	if (r < 0)
		return r;
	pthread_mutex_lock(&table->lock);
	w = find_or_add(table, &key, &mine);
	pthread_mutex_unlock(&table->lock);
	if (!mine)
		txda__space_put(key.space);
	if (!w)
		return txda__fail(context, -ENOMEM, "out of memory");
	r = settle(table, w, mine, fd, verify, progress, arg);
	if (r < 0) {
		/* A failed load's words are everybody's who waited for it. */
		if (w->state == TXDA__WEIGHTS_FAILED)
			txda__fail(context, r, "%s: %s", name, w->message);
		else
			txda__fail_prefix(context, r, "%s", name);
		txda__weights_unref(w);
		return r;
	}
	*ret_weights = w;
	return 0;
}

void txda__weights_unref(struct txda__weights *weights)
{
	struct txda__weights_table *table;
	bool last;

	if (!weights)
		return;
	table = &weights->device->context->weights;
	pthread_mutex_lock(&table->lock);
	last = --weights->refs == 0;
	if (last)
		unlink_locked(table, weights);
	pthread_mutex_unlock(&table->lock);
	if (last) {
		txda_buffer_unref(weights->buffer);
		txda__space_put(weights->space);
		free(weights);
	}
}
