// SPDX-License-Identifier: MIT
#include "kept.h"

#include <stdlib.h>
#include <string.h>

#include "budget.h"

struct kept {
	struct account *account; /* exists as long as it is charged for the thing */
	const void *owner;
	char *key;
	size_t key_len;
	const struct kept_kind *kind;
	void *thing;
	TAILQ_ENTRY(kept) link;
};

void kept_init(struct kept_list *l, uint64_t limit)
{
	*l = (struct kept_list){.limit = limit};
	pthread_mutex_init(&l->lock, NULL);
	TAILQ_INIT(&l->entries);
}

/* Without the thing, which is charged by its kind. */
static uint64_t own_bytes(const struct kept *k)
{
	return sizeof(*k) + k->key_len;
}

static uint64_t bytes_of(const struct kept *k)
{
	return own_bytes(k) + k->kind->bytes(k->thing);
}

/* Moves an entry out of the list; the lock is held. */
static void take_out(struct kept_list *l, struct kept *k, struct kept_entries *out)
{
	TAILQ_REMOVE(&l->entries, k, link);
	l->n--;
	TAILQ_INSERT_TAIL(out, k, link);
}

/* The lock is not held: freeing a large thing takes long. */
static void drop_all(struct kept_entries *out)
{
	struct kept *k;

	while ((k = TAILQ_FIRST(out))) {
		TAILQ_REMOVE(out, k, link);
		k->kind->drop(k->thing);
		budget_release(k->account, own_bytes(k));
		free(k->key);
		free(k);
	}
}

void kept_clear(struct kept_list *l)
{
	drop_all(&l->entries);
	pthread_mutex_destroy(&l->lock);
}

static struct kept *find(struct kept_list *l, const struct account *a, const void *owner,
			 const char *key, size_t len)
{
	struct kept *k;

	TAILQ_FOREACH(k, &l->entries, link) {
		if (k->account == a && k->owner == owner && k->key_len == len &&
		    !memcmp(k->key, key, len))
			return k;
	}
	return NULL;
}

void *kept_find(struct account *a, const void *owner, const char *key, size_t len)
{
	struct kept_list *l = &a->budget->kept;
	void *thing = NULL;
	struct kept *k;

	pthread_mutex_lock(&l->lock);
	k = find(l, a, owner, key, len);
	if (k) {
		TAILQ_REMOVE(&l->entries, k, link);
		TAILQ_INSERT_TAIL(&l->entries, k, link);
		thing = k->kind->ref(k->thing);
	}
	pthread_mutex_unlock(&l->lock);
	return thing;
}

/* What the user keeps. */
static uint64_t all_of(const struct kept_list *l, const struct account *a)
{
	const struct kept *k;
	uint64_t bytes = 0;

	TAILQ_FOREACH(k, &l->entries, link)
		bytes += k->account == a ? bytes_of(k) : 0;
	return bytes;
}

static const struct account *who_keeps_most(const struct kept_list *l)
{
	const struct account *found = NULL;
	const struct kept *k;
	uint64_t most = 0;

	TAILQ_FOREACH(k, &l->entries, link) {
		uint64_t bytes = k->account == found ? 0 : all_of(l, k->account);

		if (bytes > most) {
			most = bytes;
			found = k->account;
		}
	}
	return found;
}

/*
 * Of the user who keeps most, the least recently used entry of those that no request uses, or of
 * all: to lose one that is used frees nothing yet, but others must not lose theirs instead.
 */
static struct kept *find_victim(const struct kept_list *l)
{
	const struct account *a = who_keeps_most(l);
	struct kept *k, *found = NULL;

	TAILQ_FOREACH(k, &l->entries, link) {
		if (k->account != a)
			continue;
		if (!k->kind->is_used(k->thing))
			return k;
		if (!found)
			found = k;
	}
	return found;
}

/* Moves entries out of the list until it is within its limits; the lock is held. */
static void shrink(struct kept_list *l, struct kept_entries *out)
{
	uint64_t bytes = 0;
	struct kept *k;

	TAILQ_FOREACH(k, &l->entries, link)
		bytes += bytes_of(k);
	while (l->n && (l->n > KEPT_MAX || bytes > l->limit)) {
		k = find_victim(l);
		bytes -= bytes_of(k) < bytes ? bytes_of(k) : bytes;
		take_out(l, k, out);
	}
}

void kept_add(struct account *a, const void *owner, char *key, size_t len,
	      const struct kept_kind *kind, void *thing)
{
	struct kept_list *l = &a->budget->kept;
	struct kept_entries out = TAILQ_HEAD_INITIALIZER(out);
	struct kept *k = malloc(sizeof(*k));

	if (!k) {
		free(key);
		return;
	}
	*k = (struct kept){a, owner, key, len, kind, thing, .link = {0}};
	pthread_mutex_lock(&l->lock);
	if (find(l, a, owner, key, len)) {
		pthread_mutex_unlock(&l->lock);
		free(key);
		free(k);
		return;
	}
	kind->ref(thing);
	budget_add(a, own_bytes(k));
	TAILQ_INSERT_TAIL(&l->entries, k, link);
	l->n++;
	shrink(l, &out);
	pthread_mutex_unlock(&l->lock);
	drop_all(&out);
}

void kept_shrink(struct kept_list *l)
{
	struct kept_entries out = TAILQ_HEAD_INITIALIZER(out);

	pthread_mutex_lock(&l->lock);
	shrink(l, &out);
	pthread_mutex_unlock(&l->lock);
	drop_all(&out);
}

void kept_forget(struct kept_list *l, const void *owner)
{
	struct kept_entries out = TAILQ_HEAD_INITIALIZER(out);
	struct kept *k, *next;

	pthread_mutex_lock(&l->lock);
	for (k = TAILQ_FIRST(&l->entries); k; k = next) {
		next = TAILQ_NEXT(k, link);
		if (k->owner == owner)
			take_out(l, k, &out);
	}
	pthread_mutex_unlock(&l->lock);
	drop_all(&out);
}

bool kept_evict(struct kept_list *l, const struct account *a)
{
	struct kept_entries out = TAILQ_HEAD_INITIALIZER(out);
	struct kept *k, *found = NULL;

	pthread_mutex_lock(&l->lock);
	TAILQ_FOREACH(k, &l->entries, link) {
		if (k->kind->is_used(k->thing) || (found && k->account != a))
			continue;
		found = k;
		if (!a || k->account == a)
			break;
	}
	if (found)
		take_out(l, found, &out);
	pthread_mutex_unlock(&l->lock);
	drop_all(&out);
	return found;
}

uint64_t kept_unused(struct kept_list *l, const struct account *a, uint64_t *ret_own)
{
	const struct kept *k;
	uint64_t all = 0, own = 0;

	pthread_mutex_lock(&l->lock);
	TAILQ_FOREACH(k, &l->entries, link) {
		uint64_t bytes = k->kind->is_used(k->thing) ? 0 : bytes_of(k);

		all += bytes;
		own += k->account == a ? bytes : 0;
	}
	pthread_mutex_unlock(&l->lock);
	if (ret_own)
		*ret_own = own;
	return all;
}
