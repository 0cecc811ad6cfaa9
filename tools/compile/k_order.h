/* SPDX-License-Identifier: MIT */
/*
 * In which order of K a matrix with groups goes into tiles. A tile group of 32 to 256 elements has
 * one scale a row, so its elements must be of one group of the source. Where the source's groups
 * are runs of K that divide so, the order stays; where they are not (GPTQ's act-order, a shard that
 * begins within a group, group sizes that are no multiple of 32), columns move together by groups,
 * each group padded to whole tile groups, and the chip reorders the activations (txda_isa.h,
 * LINEAR).
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
 * group that columns must be sorted by even where their order would do: matrices that follow one
 * another have one group and one K. -ENOMEM.
 */
int k_order_make(const struct source_tensor *t, struct range col, uint8_t dtype, uint16_t group,
		 struct k_order *ret);
/* Pads K to @n with columns that are none. -ENOMEM. */
int k_order_pad(struct k_order *o, uint32_t n);
bool k_order_equal(const struct k_order *a, const struct k_order *b);

#endif /* TXDA_COMPILE_K_ORDER_H */
