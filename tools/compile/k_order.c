// SPDX-License-Identifier: MIT
#include "k_order.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "quant.h"

/*
 * Whether each run of @size columns from the range's start is within one group, or for groups with
 * two levels within one block.
 */
static bool runs_fit(const struct source_tensor *t, struct range col, uint32_t size)
{
	uint32_t i;

	for (i = 1; i < col.n; i++) {
		uint64_t k = (uint64_t)col.first + i;
		bool differ = quant_group(t, k) != quant_group(t, k - 1);

		if (t->outer) {
			if ((i % t->group && differ) ||
			    (i % size && k / t->outer != (k - 1) / t->outer))
				return false;
		} else if (i % size && differ) {
			return false;
		}
	}
	return true;
}

static uint64_t padded(const uint32_t *count, uint32_t groups, uint32_t size)
{
	uint64_t n = 0;
	uint32_t g;

	for (g = 0; g < groups; g++)
		n += (count[g] + (uint64_t)size - 1) / size * size;
	return n;
}

/*
 * Sorts columns by group, each group padded to whole tile groups of the size that needs the least
 * memory.
 */
static int sort_columns(const struct source_tensor *t, struct range col, uint8_t dtype,
			uint16_t group, struct k_order *o)
{
	uint32_t first = UINT32_MAX, last = 0, groups, i, g, at = 0, size;
	uint32_t *count, *next;
	uint64_t best = UINT64_MAX;

	for (i = 0; i < col.n; i++) {
		g = quant_group(t, (uint64_t)col.first + i);
		first = g < first ? g : first;
		last = g > last ? g : last;
	}
	groups = last - first + 1;
	count = calloc((size_t)groups * 2, sizeof(*count));
	if (!count)
		return -ENOMEM;
	next = count + groups;
	for (i = 0; i < col.n; i++)
		count[quant_group(t, (uint64_t)col.first + i) - first]++;
	for (size = group ? group : 256; size >= (group ? group : 32u); size /= 2) {
		uint64_t n = padded(count, groups, size),
			 bytes = n / size * txda_tile_group_bytes(dtype, size);

		if (bytes < best) {
			best = bytes;
			o->group = (uint16_t)size;
			o->n = (uint32_t)n;
		}
	}
	o->columns = malloc((size_t)o->n * sizeof(*o->columns));
	if (!o->columns) {
		free(count);
		return -ENOMEM;
	}
	memset(o->columns, 0xff, (size_t)o->n * sizeof(*o->columns));
	for (g = 0; g < groups; g++) {
		next[g] = at;
		at += (count[g] + o->group - 1) / o->group * o->group;
	}
	for (i = 0; i < col.n; i++)
		o->columns[next[quant_group(t, (uint64_t)col.first + i) - first]++] = i;
	free(count);
	return 0;
}

int k_order_make(const struct source_tensor *t, struct range col, uint8_t dtype, uint16_t group,
		 struct k_order *ret)
{
	struct k_order o = {.n = col.n};
	uint32_t size;
	int r;

	for (size = 256; size >= 32 && !group; size /= 2) {
		if (runs_fit(t, col, size)) {
			o.group = (uint16_t)size;
			*ret = o;
			return 0;
		}
	}
	r = sort_columns(t, col, dtype, group, &o);
	if (!r)
		*ret = o;
	return r;
}

int k_order_pad(struct k_order *o, uint32_t n)
{
	uint32_t *columns;

	if (o->n == n)
		return 0;
	columns = realloc(o->columns, (size_t)n * sizeof(*columns));
	if (!columns)
		return -ENOMEM;
	memset(columns + o->n, 0xff, (size_t)(n - o->n) * sizeof(*columns));
	o->columns = columns;
	o->n = n;
	return 0;
}

bool k_order_equal(const struct k_order *a, const struct k_order *b)
{
	if (a->group != b->group || a->n != b->n || !a->columns != !b->columns)
		return false;
	return !a->columns || !memcmp(a->columns, b->columns, (size_t)a->n * sizeof(*a->columns));
}
