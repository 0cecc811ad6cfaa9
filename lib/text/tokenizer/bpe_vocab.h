/* SPDX-License-Identifier: MIT */
/*
 * The strings of a vocabulary and a hash index over them. Internal to the tokeniser.
 *
 * Hashing is keyed with a random seed per index, so that no file can be made whose strings all
 * collide.
 */
#ifndef TXDA_TEXT_BPE_VOCAB_H
#define TXDA_TEXT_BPE_VOCAB_H

#include "text_buf.h"

/* Ids fit 21 bits: a pair of them and a merge rank pack into 64 (bpe.c). */
#define BPE_ID_LIMIT (1u << 21)

/* One string an id: at text.data + off[id], NUL-terminated. Holes have off UINT32_MAX. */
struct string_table {
	struct text_buf text;
	uint32_t *off;
	uint32_t *len;
	uint32_t n; /* ids 0 .. n-1 */
};

int string_table_init(struct string_table *table, uint32_t n);
void string_table_free(struct string_table *table);
/* Sets the string of @id (not set before). Returns 0, -ENOMEM, or -EFBIG beyond 1 GiB of text. */
int string_table_set(struct string_table *table, uint32_t id, const void *bytes, size_t len);

static inline bool string_table_has(const struct string_table *table, uint32_t id)
{
	return id < table->n && table->off[id] != UINT32_MAX;
}

struct string_slot {
	uint32_t tag; /* upper half of the hash */
	uint32_t id;  /* UINT32_MAX: empty */
};

/* Finds ids by string. Open addressing, at most half full. */
struct string_index {
	const struct string_table *table;
	struct string_slot *slots;
	uint64_t seed;
	uint32_t mask;
};

int string_index_init(struct string_index *index, const struct string_table *table,
		      size_t max_entries);
void string_index_free(struct string_index *index);
/* Adds @id under its string in the table. False when that string is there already. */
bool string_index_add(struct string_index *index, uint32_t id);

static inline uint64_t string_hash_mix(uint64_t a, uint64_t b)
{
	unsigned __int128 product = (unsigned __int128)a * b;

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t string_hash(const void *bytes, size_t len, uint64_t seed)
{
	const uint64_t k0 = 0xA0761D6478BD642Full, k1 = 0xE7037ED1A0B428DBull;
	const char *at = bytes;
	uint64_t a = 0, b = 0;
	uint32_t low, high;

	for (; len > 16; at += 16, len -= 16) {
		memcpy(&a, at, 8);
		memcpy(&b, at + 8, 8);
		seed = string_hash_mix(a ^ k0, b ^ seed ^ len);
	}
	if (len >= 8) {
		memcpy(&a, at, 8);
		memcpy(&b, at + len - 8, 8);
	} else if (len >= 4) {
		memcpy(&low, at, 4);
		memcpy(&high, at + len - 4, 4);
		a = low;
		b = high;
	} else if (len) {
		a = (uint64_t)(uint8_t)at[0] << 16 | (uint64_t)(uint8_t)at[len >> 1] << 8 |
		    (uint8_t)at[len - 1];
		b = 0;
	}
	return string_hash_mix(k1 ^ len, string_hash_mix(a ^ k0, b ^ seed));
}

/* Returns the id, or UINT32_MAX. */
static inline uint32_t string_index_find(const struct string_index *index, const void *bytes,
					 size_t len)
{
	const struct string_table *table = index->table;
	uint64_t hash = string_hash(bytes, len, index->seed);
	uint32_t tag = (uint32_t)(hash >> 32);

	for (uint32_t i = (uint32_t)hash & index->mask;; i = (i + 1) & index->mask) {
		const struct string_slot *slot = &index->slots[i];

		if (slot->id == UINT32_MAX)
			return UINT32_MAX;
		if (slot->tag == tag && table->len[slot->id] == len &&
		    !memcmp(table->text.data + table->off[slot->id], bytes, len))
			return slot->id;
	}
}

#endif
