// SPDX-License-Identifier: MIT
#include "bpe_vocab.h"

#include <errno.h>
#include <sys/random.h>

#define STRING_TEXT_LIMIT (1u << 30)

bool id_vec_grow(struct id_vec *vec, size_t more)
{
	size_t cap = vec->cap ? vec->cap : 64;
	uint32_t *data;

	if (more > SIZE_MAX / 16 - vec->len)
		return false;
	while (cap < vec->len + more)
		cap *= 2;
	data = realloc(vec->data, cap * sizeof(*data));
	if (!data)
		return false;
	vec->data = data;
	vec->cap = cap;
	return true;
}

int string_table_init(struct string_table *table, uint32_t n)
{
	size_t count = n ? n : 1;

	*table = (struct string_table){.n = n};
	table->off = malloc(count * sizeof(*table->off));
	table->len = calloc(count, sizeof(*table->len));
	if (!table->off || !table->len) {
		string_table_free(table);
		return -ENOMEM;
	}
	memset(table->off, 0xFF, count * sizeof(*table->off));
	return 0;
}

void string_table_free(struct string_table *table)
{
	free(table->text.data);
	free(table->off);
	free(table->len);
	*table = (struct string_table){0};
}

int string_table_set(struct string_table *table, uint32_t id, const void *bytes, size_t len)
{
	size_t at = table->text.len;

	if (len >= STRING_TEXT_LIMIT - at)
		return -EFBIG;
	if (!text_buf_add(&table->text, bytes, len) || !text_buf_add(&table->text, "", 1))
		return -ENOMEM;
	table->off[id] = (uint32_t)at;
	table->len[id] = (uint32_t)len;
	return 0;
}

int string_index_init(struct string_index *index, const struct string_table *table,
		      size_t max_entries)
{
	size_t n_slots = 16;

	while (n_slots < 2 * max_entries)
		n_slots *= 2;
	*index = (struct string_index){.table = table, .mask = (uint32_t)(n_slots - 1)};
	/* Without random numbers the addresses of this process have to do. */
	if (getrandom(&index->seed, sizeof(index->seed), GRND_NONBLOCK) != sizeof(index->seed))
		index->seed = (uintptr_t)index;
	index->slots = malloc(n_slots * sizeof(*index->slots));
	if (!index->slots)
		return -ENOMEM;
	memset(index->slots, 0xFF, n_slots * sizeof(*index->slots));
	return 0;
}

void string_index_free(struct string_index *index)
{
	free(index->slots);
	*index = (struct string_index){0};
}

bool string_index_add(struct string_index *index, uint32_t id)
{
	const struct string_table *table = index->table;
	const char *bytes = table->text.data + table->off[id];
	uint64_t hash = string_hash(bytes, table->len[id], index->seed);
	uint32_t i = (uint32_t)hash & index->mask;

	if (string_index_find(index, bytes, table->len[id]) != UINT32_MAX)
		return false;
	while (index->slots[i].id != UINT32_MAX)
		i = (i + 1) & index->mask;
	index->slots[i] = (struct string_slot){.tag = (uint32_t)(hash >> 32), .id = id};
	return true;
}
