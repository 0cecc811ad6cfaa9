/* SPDX-License-Identifier: MIT */
/*
 * The strings of a vocabulary and a hash index over them. Internal to the tokeniser.
 *
 * Hashing is keyed with a random seed per index, so that no file can be constructed whose strings
 * all collide.
 */
#ifndef TXDA_TEXT_BPE_VOCAB_H
#define TXDA_TEXT_BPE_VOCAB_H

#include "text_buf.h"

/* Ids fit 21 bits: a pair of them and a merge rank pack into 64 (bpe.c). */
#define BPE_ID_LIMIT (1u << 21)

/*
 * One string per id: at text.data + off[id], NUL-terminated. Unused ids have off UINT32_MAX. A
 * vocabulary may have several strings for an id: further ones are entries after the ids, with their
 * id in alias_of.
 */
struct string_table {
	struct text_buf text;
	uint32_t *off;
	uint32_t *len;
	uint32_t *alias_of; /* [entry - n] */
	uint32_t n;	    /* ids 0 .. n-1 */
	uint32_t n_aliases;
};

/* With room for @n_aliases, which the caller adds. */
int string_table_init(struct string_table *table, uint32_t n, uint32_t n_aliases);
void string_table_free(struct string_table *table);
/* Sets the string of an entry (not set before). Returns 0, -ENOMEM, or -EFBIG beyond 1 GiB of
 * text. */
int string_table_set(struct string_table *table, uint32_t entry, const void *bytes, size_t len);

static inline uint32_t string_table_id(const struct string_table *table, uint32_t entry)
{
	return entry < table->n ? entry : table->alias_of[entry - table->n];
}

static inline bool string_table_has(const struct string_table *table, uint32_t id)
{
	return id < table->n && table->off[id] != UINT32_MAX;
}

struct string_slot {
	uint32_t tag; /* upper half of the hash */
	uint32_t id;  /* an entry of the table; UINT32_MAX: empty */
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
/* Adds @entry under its string in the table. False if that string is already present. */
bool string_index_add(struct string_index *index, uint32_t entry);

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

/* The slot of the string; an empty slot if it is not present. */
static inline struct string_slot *string_index_slot(const struct string_index *index,
						    const void *bytes, size_t len)
{
	const struct string_table *table = index->table;
	uint64_t hash = string_hash(bytes, len, index->seed);
	uint32_t tag = (uint32_t)(hash >> 32);

	for (uint32_t i = (uint32_t)hash & index->mask;; i = (i + 1) & index->mask) {
		struct string_slot *slot = &index->slots[i];

		if (slot->id == UINT32_MAX)
			return slot;
		if (slot->tag == tag && table->len[slot->id] == len &&
		    !memcmp(table->text.data + table->off[slot->id], bytes, len))
			return slot;
	}
}

/* Returns the id, or UINT32_MAX. */
static inline uint32_t string_index_find(const struct string_index *index, const void *bytes,
					 size_t len)
{
	uint32_t entry = string_index_slot(index, bytes, len)->id;

	return entry < index->table->n || entry == UINT32_MAX
		       ? entry
		       : string_table_id(index->table, entry);
}

#endif
