// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "buffer.h"
#include "clock.h"
#include "crc32c.h"
#include "set_error.h"
#include "space.h"
#include "weights.h"

/*
 * Size of the chunks that are read back: they fit into the cache, and device memory need not be
 * mapped.
 */
#define VERIFY_BYTES (1u << 20)
/* How often somebody who waits for another's load is asked whether to go on. */
#define ASK_NS 10000000

void txda__weights_init(struct txda__weights_table *table)
{
	pthread_condattr_t attr;

	pthread_mutex_init(&table->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&table->changed, &attr);
	pthread_condattr_destroy(&attr);
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

int txda__weights_identify(struct txda_context *context, int fd, const char *name,
			   struct txda_weights *key)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return txda__fail(context, -errno, "%s: %s", name, strerror(errno));
	key->dev = st.st_dev;
	key->inode = st.st_ino;
	key->mtime_ns = to_ns(st.st_mtim);
	key->ctime_ns = to_ns(st.st_ctim);
	return 0;
}

bool txda__weights_same_file(const struct txda_weights *a, const struct txda_weights *b)
{
	return a->dev == b->dev && a->inode == b->inode && a->bytes == b->bytes &&
	       a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns && a->crc32c == b->crc32c;
}

int txda__weights_memory_id(struct txda__space *space, uint64_t *ret_id)
{
	const struct txda__backend_ops *ops = space->context->backend->ops;

	if (ops->vm_memory_id)
		return ops->vm_memory_id(space->vm, ret_id);
	*ret_id = 0;
	return 0;
}

static int judge_sum(uint32_t crc, uint32_t wanted, char *message, size_t size)
{
	return crc == wanted
		       ? 0
		       : set_error(-EBADMSG, message, size,
				   "checksum is 0x%08x; model_info.json says 0x%08x", crc, wanted);
}

static int verify_buffer(struct txda_buffer *buffer, const struct txda__weights_wish *wish,
			 char *message, size_t size)
{
	uint64_t total = txda_buffer_bytes(buffer), bytes;
	void *part = malloc(VERIFY_BYTES);
	uint32_t crc = 0;
	int r = 0;

	if (!part)
		return set_error(-ENOMEM, message, size, "out of memory");
	for (uint64_t at = 0; at < total && r >= 0; at += bytes) {
		bytes = total - at < VERIFY_BYTES ? total - at : VERIFY_BYTES;
		r = txda_buffer_read(buffer, at, part, bytes);
		if (r >= 0)
			crc = crc32c(crc, part, bytes);
		if (r >= 0)
			r = wish->progress(wish->arg, at + bytes);
	}
	free(part);
	if (r < 0)
		return set_error(r, message, size, "%s",
				 txda_context_error(buffer->device->context));
	return judge_sum(crc, wish->crc32c, message, size);
}

/* Without the lock: the state is LOADING, so no other thread uses @w. */
static int load(struct txda_weights *w, const struct txda__weights_wish *wish)
{
	unsigned flags = (w->keep ? TXDA__MEM_KEEP : TXDA__MEM_PRIVATE) | TXDA__MEM_LARGE |
			 TXDA__MEM_UNMAPPED;
	struct txda_context *context = w->device->context;
	struct txda__sums sums = {0};
	bool mapped = false;
	int r;

	posix_fadvise(wish->fd, 0, (off_t)w->bytes, POSIX_FADV_SEQUENTIAL);
	r = txda__weights_memory_id(w->space, &w->memory_id);
	if (r >= 0) {
		r = txda__weights_map(w, wish);
		mapped = r >= 0;
	}
	if (r == -ENOTSUP)
		r = txda__buffer_new(w->device, w->bytes, TXDA_MEMORY_DEVICE, true, flags,
				     &w->buffer);
	if (r >= 0)
		r = txda__buffer_check_space(w->buffer, w->space);
	if (r >= 0)
		r = txda__buffer_load(w->buffer, 0, wish->fd, 0, w->bytes,
				      wish->verify || mapped ? &sums : NULL, wish->progress,
				      wish->arg);
	if (r >= 0 && w->keep)
		r = context->backend->ops->mem_freeze(w->buffer->mem);
	if (r < 0)
		snprintf(w->message, sizeof(w->message), "%s", txda_context_error(context));
	else if (sums.piece)
		r = judge_sum(sums.all, w->crc32c, w->message, sizeof(w->message));
	if (r < 0)
		w->buffer = txda_buffer_unref(w->buffer);
	if (r >= 0 && mapped)
		txda__weights_own(w, sums.piece);
	else
		free(sums.piece);
	return r;
}

static void unlink_locked(struct txda__weights_table *table, struct txda_weights *w)
{
	struct txda_weights **at = &table->first;

	while (*at && *at != w)
		at = &(*at)->next;
	if (*at)
		*at = w->next;
}

struct txda_weights *txda__weights_find(struct txda__weights_table *table,
					const struct txda_weights *key)
{
	for (struct txda_weights *w = table->first; w; w = w->next)
		if (w->state != TXDA__WEIGHTS_FAILED && w->space == key->space &&
		    txda__weights_same_file(w, key)) {
			w->refs++;
			return w;
		}
	return NULL;
}

struct txda_weights *txda__weights_add(struct txda__weights_table *table,
				       const struct txda_weights *key)
{
	struct txda_weights *w = malloc(sizeof(*w));

	if (w) {
		*w = *key;
		txda_device_ref(w->device);
		w->refs = 1;
		w->next = table->first;
		table->first = w;
	}
	return w;
}

/* Waits until the thread that loads has an outcome, or this one does not want to wait any more. */
static int wait_for_other(struct txda__weights_table *table, struct txda_weights *w,
			  const struct txda__weights_wish *wish)
{
	int r = 0;

	pthread_mutex_lock(&table->lock);
	while (w->state == TXDA__WEIGHTS_LOADING && r >= 0) {
		uint64_t until = clock_ns() + ASK_NS;
		struct timespec ts = {(time_t)(until / 1000000000), (long)(until % 1000000000)};

		pthread_cond_timedwait(&table->changed, &table->lock, &ts);
		pthread_mutex_unlock(&table->lock);
		r = wish->progress(wish->arg, 0);
		pthread_mutex_lock(&table->lock);
	}
	if (r >= 0)
		r = w->error;
	pthread_mutex_unlock(&table->lock);
	return r;
}

/* Loads or waits, with a reference held. */
static int settle(struct txda__weights_table *table, struct txda_weights *w, bool mine,
		  const struct txda__weights_wish *wish)
{
	bool verify = wish->verify;
	int r;

	if (mine) {
		r = load(w, wish);
		pthread_mutex_lock(&table->lock);
		w->state = r < 0 ? TXDA__WEIGHTS_FAILED : TXDA__WEIGHTS_READY;
		w->error = r;
		w->verified = verify || w->owner;
		pthread_cond_broadcast(&table->changed);
		pthread_mutex_unlock(&table->lock);
		return r;
	}
	r = wait_for_other(table, w, wish);
	pthread_mutex_lock(&table->lock);
	verify &= !w->verified;
	pthread_mutex_unlock(&table->lock);
	if (r >= 0 && verify) {
		char message[sizeof(w->message)];

		r = verify_buffer(w->buffer, wish, message, sizeof(message));
		if (r < 0)
			return txda__fail(w->device->context, r, "%s", message);
		pthread_mutex_lock(&table->lock);
		w->verified = true;
		pthread_mutex_unlock(&table->lock);
	}
	return r < 0 ? r : wish->progress(wish->arg, w->bytes);
}

/* Why its load failed; 0: it did not, so far. */
static int failed(struct txda__weights_table *table, struct txda_weights *w)
{
	int r;

	pthread_mutex_lock(&table->lock);
	r = w->error;
	pthread_mutex_unlock(&table->lock);
	return r;
}

/* One attempt. *@ret_again: another thread loaded, and gave up. */
static int try_get(struct txda_device *device, const struct txda__weights_wish *wish,
		   struct txda_weights **ret_weights, bool *ret_again)
{
	struct txda_context *context = device->context;
	struct txda__weights_table *table = &context->weights;
	struct txda_weights key = {.device = device,
				   .bytes = wish->bytes,
				   .crc32c = wish->crc32c,
				   .keep = wish->keep,
				   .state = TXDA__WEIGHTS_LOADING},
			    *w;
	bool mine;
	int r;

	r = txda__weights_identify(context, wish->fd, wish->name, &key);
	if (r >= 0)
		r = txda__space_get(device, &key.space);
	if (r < 0)
		return r;
	pthread_mutex_lock(&table->lock);
	w = txda__weights_find(table, &key);
	mine = !w;
	if (mine)
		w = txda__weights_add(table, &key);
	pthread_mutex_unlock(&table->lock);
	if (!mine || !w)
		txda__space_put(key.space);
	if (!w)
		return txda__fail(context, -ENOMEM, "out of memory");
	r = settle(table, w, mine, wish);
	if (r >= 0) {
		*ret_weights = w;
		return 0;
	}
	/* The message of a failed load goes to all threads that waited for it. */
	if (failed(table, w) != r)
		txda__fail_prefix(context, r, "%s", wish->name);
	else if (!mine && (r == -ECANCELED || r == -ETIMEDOUT))
		*ret_again = true;
	else
		txda__fail(context, r, "%s: %s", wish->name, w->message);
	txda_weights_unref(w);
	return r;
}

int txda__weights_get(struct txda_device *device, const struct txda__weights_wish *wish,
		      struct txda_weights **ret_weights)
{
	bool again;
	int r;

	do {
		again = false;
		r = try_get(device, wish, ret_weights, &again);
	} while (again);
	return r;
}

struct txda_weights *txda_weights_ref(struct txda_weights *weights)
{
	struct txda__weights_table *table;

	if (weights && txda__inherited(weights->device->context)) {
		__atomic_add_fetch(&weights->refs, 1, __ATOMIC_RELAXED);
	} else if (weights) {
		table = &weights->device->context->weights;
		pthread_mutex_lock(&table->lock);
		weights->refs++;
		pthread_mutex_unlock(&table->lock);
	}
	return weights;
}

struct txda_weights *txda_weights_unref(struct txda_weights *weights)
{
	struct txda__weights_table *table;
	struct txda_device *device;
	bool last;

	if (!weights)
		return NULL;
	device = weights->device;
	if (txda__inherited(device->context)) {
		last = __atomic_sub_fetch(&weights->refs, 1, __ATOMIC_ACQ_REL) == 0;
	} else {
		table = &device->context->weights;
		pthread_mutex_lock(&table->lock);
		last = --weights->refs == 0;
		if (last)
			unlink_locked(table, weights);
		pthread_mutex_unlock(&table->lock);
		if (last)
			txda__weights_own_end(weights);
	}
	if (last) {
		txda_buffer_unref(weights->buffer);
		txda__space_put(weights->space);
		free(weights);
		txda_device_unref(device);
	}
	return NULL;
}
