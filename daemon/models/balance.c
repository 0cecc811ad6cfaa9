// SPDX-License-Identifier: MIT
#include "balance.h"

#include <errno.h>
#include <stdlib.h>

#define SLOTS (1u << 16) /* remembered blocks; new ones replace old ones */
/*
 * How much more load is accepted for a replica that knows the prompt: each known block counts like
 * one request less.
 */
#define BLOCKS_A_REQUEST 4
#define MAX_HEAD_START	 16

struct slot {
	uint64_t hash;
	uint8_t replicas; /* one bit per replica */
};

struct balance {
	unsigned n;
	struct slot slots[SLOTS];
};

int balance_new(unsigned replicas, struct balance **ret)
{
	struct balance *b = calloc(1, sizeof(*b));

	if (!b)
		return -ENOMEM;
	b->n = replicas;
	*ret = b;
	return 0;
}

void balance_free(struct balance *b)
{
	free(b);
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
	hash = (hash ^ value) * 0x9E3779B97F4A7C15ull;
	return hash ^ hash >> 29;
}

/* The hash of a prompt up to the end of the block that starts at @block_start. */
static uint64_t extend(uint64_t hash, const int32_t *block_start, unsigned block)
{
	for (unsigned i = 0; i < block; i++)
		hash = mix(hash, (uint32_t)block_start[i]);
	return hash;
}

/* Number of blocks from the prompt's beginning that each replica knows. */
static void count_known(const struct balance *b, const int32_t *prompt, unsigned n, unsigned block,
			uint64_t owner, unsigned *known)
{
	uint64_t hash = mix(1, owner);
	unsigned alive = (1u << b->n) - 1;

	for (unsigned at = 0; alive && n - at >= block; at += block) {
		const struct slot *slot;

		hash = extend(hash, prompt + at, block);
		slot = &b->slots[hash % SLOTS];
		alive &= slot->hash == hash ? slot->replicas : 0;
		for (unsigned i = 0; i < b->n; i++)
			known[i] += alive >> i & 1;
	}
}

int balance_choose(const struct balance *b, const int32_t *prompt, unsigned n, unsigned block,
		   uint64_t owner, const uint32_t *loads)
{
	unsigned known[8] = {0};
	int64_t best_cost = 0;
	int best = -1;

	count_known(b, prompt, n, block, owner, known);
	for (unsigned i = 0; i < b->n; i++) {
		unsigned start = known[i] / BLOCKS_A_REQUEST + (known[i] > 0);
		/*
		 * Two passes, so that among equally loaded replicas the one that knows more is
		 * chosen.
		 */
		int64_t cost = 2 * ((int64_t)loads[i] -
				    (start < MAX_HEAD_START ? start : MAX_HEAD_START)) -
			       (known[i] > 0);

		if (loads[i] == BALANCE_BUSY)
			continue;
		if (best < 0 || cost < best_cost) {
			best = (int)i;
			best_cost = cost;
		}
	}
	return best;
}

void balance_note(struct balance *b, const int32_t *prompt, unsigned n, unsigned block,
		  uint64_t owner, unsigned replica)
{
	uint64_t hash = mix(1, owner);

	for (unsigned at = 0; n - at >= block; at += block) {
		struct slot *slot;

		hash = extend(hash, prompt + at, block);
		slot = &b->slots[hash % SLOTS];
		if (slot->hash != hash)
			*slot = (struct slot){.hash = hash};
		slot->replicas |= (uint8_t)(1u << replica);
	}
}

void balance_forget(struct balance *b, unsigned replica)
{
	for (unsigned i = 0; i < SLOTS; i++)
		b->slots[i].replicas &= (uint8_t) ~(1u << replica);
}
