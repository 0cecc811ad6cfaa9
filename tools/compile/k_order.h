/* SPDX-License-Identifier: MIT */
/*
 * The order of K in which a matrix with groups is stored in tiles. A tile group of 32 to 256
 * elements has one scale per row, so its elements must be of one group of the source. If the
 * source's groups are suitable runs of K, the order is kept; otherwise (GPTQ's act-order, a shard
 * that begins within a group, group sizes that are not a multiple of 32) columns are sorted by
 * groups, each group padded to whole tile groups, and the chip reorders the activations
 * (txda_isa.h, LINEAR).
 */
#ifndef TXDA_COMPILE_K_ORDER_H
#define TXDA_COMPILE_K_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "shard.h"
#include "source.h"

struct k_order {
	uint16_t group;	   /* of the tiles */
	uint32_t n;	   /* K with padding */
	uint32_t *columns; /* [n], from the range's start, or TXDA_NONE; NULL: in order. free() */
};

/*
 * For the columns @col of @t, a matrix with a format, in tiles of @dtype. @group: 0, or the tile
 * group by which columns must be sorted even if their order is suitable: consecutive matrices have
 * the same group and K. -ENOMEM.
 */
int k_order_make(const struct source_tensor *t, struct range col, uint8_t dtype, uint16_t group,
		 struct k_order *ret);
/* Pads K to @n with empty columns. -ENOMEM. */
int k_order_pad(struct k_order *o, uint32_t n);
bool k_order_equal(const struct k_order *a, const struct k_order *b);

#endif /* TXDA_COMPILE_K_ORDER_H */
