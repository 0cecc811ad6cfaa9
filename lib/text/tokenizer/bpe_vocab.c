// SPDX-License-Identifier: MIT
#include "bpe_vocab.h"

#include <errno.h>
#include <sys/random.h>

#define STRING_TEXT_LIMIT (1u << 30)

int string_table_init(struct string_table *table, uint32_t n, uint32_t n_aliases)
{
	size_t count = (size_t)n + n_aliases + 1;

	*table = (struct string_table){.n = n};
	table->off = malloc(count * sizeof(*table->off));
	table->len = calloc(count, sizeof(*table->len));
	table->alias_of = calloc((size_t)n_aliases + 1, sizeof(*table->alias_of));
	if (!table->off || !table->len || !table->alias_of) {
		string_table_free(table);
		return -ENOMEM;
	}
	memset(table->off, 0xFF, n * sizeof(*table->off));
	return 0;
}

void string_table_free(struct string_table *table)
{
	free(table->text.data);
	free(table->off);
	free(table->len);
	free(table->alias_of);
	*table = (struct string_table){0};
}

int string_table_set(struct string_table *table, uint32_t entry, const void *bytes, size_t len)
{
	size_t at = table->text.len;

	if (len >= STRING_TEXT_LIMIT - at)
		return -EFBIG;
	if (!text_buf_add(&table->text, bytes, len) || !text_buf_add(&table->text, "", 1))
		return -ENOMEM;
	table->off[entry] = (uint32_t)at;
	table->len[entry] = (uint32_t)len;
	return 0;
}

int string_index_init(struct string_index *index, const struct string_table *table,
		      size_t max_entries)
{
	size_t n_slots = 16;

	while (n_slots < 2 * max_entries)
		n_slots *= 2;
	*index = (struct string_index){.table = table, .mask = (uint32_t)(n_slots - 1)};
	/* If there are no random numbers, this process's addresses have to do. */
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

bool string_index_add(struct string_index *index, uint32_t entry)
{
	const struct string_table *table = index->table;
	const char *bytes = table->text.data + table->off[entry];
	struct string_slot *slot = string_index_slot(index, bytes, table->len[entry]);

	if (slot->id != UINT32_MAX)
		return false;
	*slot = (struct string_slot){
		.tag = (uint32_t)(string_hash(bytes, table->len[entry], index->seed) >> 32),
		.id = entry,
	};
	return true;
}
