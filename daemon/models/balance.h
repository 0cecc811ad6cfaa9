/* SPDX-License-Identifier: MIT */
/*
 * Which replica of a model a request goes to: the one that knows most of its beginning, as long as
 * it is not much busier than another; else the least busy one.
 *
 * What a replica knows is remembered here, as the hash chain of the prompts that went to it, in
 * blocks of the KV cache's size. It is a guess: the replica may have dropped blocks since. A wrong
 * guess costs time and changes no result.
 *
 * Threads: the event loop's.
 */
#ifndef TXDA_SERVER_BALANCE_H
#define TXDA_SERVER_BALANCE_H

#include <stdint.h>

#define BALANCE_BUSY UINT32_MAX /* as a load: takes no requests */

struct balance;

/* -ENOMEM. @replicas: at most 8 */
int balance_new(unsigned replicas, struct balance **ret);
void balance_free(struct balance *b); /* NULL is accepted */

/*
 * Chooses for a prompt of user @uid, as prefixes are shared by a user's own requests only.
 * @loads: requests in flight of each replica. Returns its index, or -1 when all are BALANCE_BUSY.
 * balance_note() tells that it went there.
 */
int balance_choose(const struct balance *b, const int32_t *prompt, unsigned n, unsigned block,
		   uint32_t uid, const uint32_t *loads);
void balance_note(struct balance *b, const int32_t *prompt, unsigned n, unsigned block,
		  uint32_t uid, unsigned replica);
/* A replica begins with an empty cache. */
void balance_forget(struct balance *b, unsigned replica);

#endif
