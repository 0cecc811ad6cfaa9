/* SPDX-License-Identifier: MIT */
/* Bytes that all clients together make the daemon hold. One thread's; what was taken must be given
 * back exactly. The owner may lower the peak. */
#ifndef TXDA_SERVER_BUDGET_H
#define TXDA_SERVER_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

struct budget {
	uint64_t used, limit;
	uint64_t peak; /* most that was used */
};

static inline void budget_set(struct budget *b, uint64_t used)
{
	b->used = used;
	if (b->peak < used)
		b->peak = used;
}

static inline bool budget_take(struct budget *b, uint64_t bytes)
{
	if (b->used > b->limit || bytes > b->limit - b->used)
		return false;
	budget_set(b, b->used + bytes);
	return true;
}

/* Replaces @old bytes by @bytes, beyond the limit too: for what cannot be refused any more. */
static inline void budget_replace(struct budget *b, uint64_t old, uint64_t bytes)
{
	budget_set(b, b->used - old + bytes);
}

static inline void budget_give(struct budget *b, uint64_t bytes)
{
	b->used -= bytes;
}

#endif
