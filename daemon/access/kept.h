/* SPDX-License-Identifier: MIT */
/*
 * A cache of things for users' later requests, such as compiled grammars, found by their text.
 *
 * Their memory is charged to the user whose request created them (the cache charges its entries,
 * the creator the thing itself), so it counts towards the limit and the user's share. It is the
 * first to be freed when a request would not fit otherwise: the user's own things, then those of
 * others, least recently used first. Things in use by a request are not evicted, since that would
 * free nothing.
 *
 * All that is kept has at most one KEPT_PART-th of the limit and KEPT_MAX entries; beyond that the
 * user who keeps most loses the least recently used one, of those that no request uses as long as
 * there are any. A user finds only what its own requests made: response times must not reveal what
 * others request.
 *
 * Threads: any.
 */
#ifndef TXDA_ACCESS_KEPT_H
#define TXDA_ACCESS_KEPT_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#define KEPT_MAX  256
#define KEPT_PART 4

struct account;
struct kept;

/* What can be done with a thing. Called with the list's lock held, but for drop(): none may wait. */
struct kept_kind {
	void *(*ref)(void *thing);
	void (*drop)(void *thing);
	size_t (*bytes)(void *thing); /* that it holds now */
	bool (*is_used)(void *thing); /* by others than the list */
};

TAILQ_HEAD(kept_entries, kept);

/* All that a budget's users keep. */
struct kept_list {
	pthread_mutex_t lock;
	struct kept_entries entries; /* least recently used first */
	unsigned n;
	uint64_t limit; /* bytes */
};

void kept_init(struct kept_list *l, uint64_t limit);
void kept_clear(struct kept_list *l);

/* The user's thing with that key, with a reference, or NULL. @owner: who made it; of the key. */
void *kept_find(struct account *a, const void *owner, const char *key, size_t len);
/* Keeps @thing, with a reference of its own, unless there is no room. Takes over @key. */
void kept_add(struct account *a, const void *owner, char *key, size_t len,
	      const struct kept_kind *kind, void *thing);
/* Drops what exceeds the limits: things grow after they were added, while requests use them. */
void kept_shrink(struct kept_list *l);
/* Drops all that @owner made. */
void kept_forget(struct kept_list *l, const void *owner);

/*
 * Frees one unused thing, one of @a (NULL: of anyone) if it has any. False: there is none.
 */
bool kept_evict(struct kept_list *l, const struct account *a);
/* Bytes that evicting could free: all, and those of @a. @a and @ret_own may be NULL. */
uint64_t kept_unused(struct kept_list *l, const struct account *a, uint64_t *ret_own);

#endif
