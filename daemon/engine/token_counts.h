/* SPDX-License-Identifier: MIT */
/*
 * How often each token occurred in a sequence, for penalties.
 *
 * Uses memory from the caller, sized for the maximum number of tokens to be counted. One thread at
 * a time.
 */
#ifndef TXDA_ENGINE_TOKEN_COUNTS_H
#define TXDA_ENGINE_TOKEN_COUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct token_count {
	int32_t token;
	uint32_t generated; /* number of occurrences */
};

struct token_counts {
	unsigned n, n_slots;
	struct token_count *entries; /* [n], including those of the prompt */
	uint32_t *slots;	     /* an index into entries, number + 1 */
};

/* Bytes for up to @max tokens. */
size_t token_counts_size(unsigned max);
struct token_counts *token_counts_init(void *memory, unsigned max);
/* Counts a token; @generated: not one of the prompt. */
void token_counts_add(struct token_counts *c, int32_t token, bool generated);

#endif
