// SPDX-License-Identifier: MIT
#include "token_counts.h"

#include <string.h>

/* A power of two, at least twice as many. */
static unsigned slots_for(unsigned max)
{
	unsigned n = 16;

	while (n < 2 * (uint64_t)max)
		n *= 2;
	return n;
}

size_t token_counts_size(unsigned max)
{
	return sizeof(struct token_counts) + max * sizeof(struct token_count) +
	       slots_for(max) * sizeof(uint32_t);
}

struct token_counts *token_counts_init(void *memory, unsigned max)
{
	struct token_counts *c = memory;

	memset(memory, 0, token_counts_size(max));
	c->n_slots = slots_for(max);
	c->entries = (struct token_count *)(c + 1);
	c->slots = (uint32_t *)(c->entries + max);
	return c;
}

void token_counts_add(struct token_counts *c, int32_t token, bool generated)
{
	uint32_t at = (uint32_t)token * 2654435769u;

	for (at &= c->n_slots - 1; c->slots[at]; at = (at + 1) & (c->n_slots - 1)) {
		struct token_count *entry = &c->entries[c->slots[at] - 1];

		if (entry->token == token) {
			entry->generated += generated;
			return;
		}
	}
	c->entries[c->n] = (struct token_count){token, generated};
	c->slots[at] = ++c->n;
}
