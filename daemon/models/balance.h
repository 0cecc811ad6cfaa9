/* SPDX-License-Identifier: MIT */
/*
 * Routing of requests to replicas of a model: to the one that knows most of the prompt's prefix,
 * unless it is much busier than another; else to the least busy one.
 *
 * What a replica knows is recorded here, as the hash chains of the prompts that were sent to it, in
 * blocks of the KV cache's size. It is an estimate: the replica may have dropped blocks since. A
 * wrong estimate costs time and changes no result.
 *
 * Threads: the event loop's.
 */
#ifndef TXDA_MODELS_BALANCE_H
#define TXDA_MODELS_BALANCE_H

#include <stdint.h>

#define BALANCE_BUSY UINT32_MAX /* load value of a replica that takes no requests */

struct balance;

/* -ENOMEM. @replicas: at most 8 */
int balance_new(unsigned replicas, struct balance **ret);
void balance_free(struct balance *b); /* NULL is accepted */

/*
 * Chooses a replica for a prompt of @owner (engine_owner()); prefixes are shared only among its
 * requests. @loads: requests in flight of each replica. Returns its index, or -1 when all are
 * BALANCE_BUSY. balance_note() records the choice.
 */
int balance_choose(const struct balance *b, const int32_t *prompt, unsigned n, unsigned block,
		   uint64_t owner, const uint32_t *loads);
void balance_note(struct balance *b, const int32_t *prompt, unsigned n, unsigned block,
		  uint64_t owner, unsigned replica);
/* Forgets a replica's blocks: it starts with an empty cache. */
void balance_forget(struct balance *b, unsigned replica);

#endif
