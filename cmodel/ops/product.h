/* SPDX-License-Identifier: MIT */
/*
 * The product that LINEAR and MOE_LINEAR share: rows of activations, normalised, reordered and
 * packed (simd.h), times panels of one matrix of weights.
 *
 * Ownership: nothing is allocated; the caller has checked the tensors and provides scratch.
 * Threads: each core fills in a struct cm_product of its own.
 */
#ifndef CM_OPS_PRODUCT_H
#define CM_OPS_PRODUCT_H

#include "check.h"
#include "simd.h"

struct cm_product {
	const struct cm_tensor *x;    /* rows [X] */
	const struct cm_tensor *w;    /* tiles [.., N, K] */
	const struct cm_tensor *norm; /* [X] or NULL */
	const uint32_t *columns;      /* [K], below X or TXDA_NONE; or NULL */
	uint64_t width, n, k;	      /* X, N, K */
	float eps;
	bool precise, wide;
	bool i8, i16, grouped; /* activations: integers, or floats for groups */
	unsigned per;	       /* elements of K in a unit of the panel kernel */
	unsigned unit_bytes;   /* of packed activations, per row */
	unsigned mr;	       /* most rows of a block */
	uint64_t units;	       /* of K */
	uint64_t packed;       /* units of a packed row, padded to a whole step of tiles */
	uint64_t panel_bytes, group_bytes; /* of weights; group_bytes is 0 without groups */
};

/* @flags: TXDA_LINEAR_*. */
void cm_product_init(struct cm_product *p, const struct cm_launch *l, const struct cm_tensor *x,
		     const struct cm_tensor *w, const struct cm_tensor *norm,
		     const uint32_t *columns, float eps, uint32_t flags);

/* Bytes of @rows packed rows, and of a core's scratch for packing and multiplying. */
uint64_t cm_product_packed(const struct cm_product *p, uint64_t rows);
uint64_t cm_product_scratch(const struct cm_product *p);

/* Packs the rows @row[first .. end) of x into their places of a block of @mr rows at @to. */
void cm_product_pack(const struct cm_product *p, const uint64_t *row, unsigned first, unsigned end,
		     unsigned mr, void *to, float *scratch);

/* Units of K that all rows are multiplied with before the next ones are: as many as the first-level
 * cache holds of a panel. */
uint64_t cm_product_stretch(const struct cm_product *p, uint64_t rows);

/* Units of K of a piece: the sums of each are made by themselves, then added in order. All of them,
 * unless the matrix is a single panel, which would be work for one core. */
uint64_t cm_product_piece(const struct cm_product *p);

/* Address of unit @unit of panel @panel. */
const uint8_t *cm_product_at(const struct cm_product *p, const uint8_t *tiles, uint64_t panel,
			     uint64_t unit);

/* Some units of K of a panel, and the rows that they are multiplied with. */
struct cm_product_tile {
	const uint8_t *tiles; /* the matrix */
	uint64_t panel, unit, n;
	uint64_t start;	       /* the unit that starts the sums */
	const uint8_t *packed; /* rows, in blocks of @mr */
	uint64_t rows;
	unsigned mr;
	const uint8_t *next; /* weights to prefetch at the same time */
	void *scratch;	     /* this core's, of cm_product_scratch() bytes */
};

/* acc[row][32] (+)= the rows times the units. */
void cm_product_multiply(const struct cm_product *p, const struct cm_product_tile *t, float *acc);

/* The same block by block: where the next block of a tile's rows is, and what it needs. */
struct cm_product_blocks {
	const struct cm_product *p;
	const uint8_t *tiles;
	uint64_t panel;
	uint64_t rows; /* that are left */
	unsigned mr;
	uint64_t share;	       /* bytes of the next weights that a block prefetches */
	struct cm_panel block; /* weights and what else is common to all blocks */
	const uint8_t *row;    /* packed */
	uint64_t row_bytes;    /* of a packed row */
	uint64_t skipped;      /* of these, before the tile's units */
};

void cm_product_begin(struct cm_product_blocks *b, const struct cm_product *p,
		      const struct cm_product_tile *t);
/* The next block of rows, whose sums begin at acc[row][32]. */
void cm_product_block(struct cm_product_blocks *b, float *acc);

/* Whether the products use tile instructions (AMX). */
bool cm_product_in_tiles(const struct cm_product *p);

/* out[0..16) from the sums of a gated panel with bias; @act: a gated activation. */
void cm_gate(bool precise, uint32_t act, float limit, float *out, const float *acc);
/* Adds the bias[n] of panel @panel to its sums. */
void cm_product_bias(const struct cm_product *p, float *acc, const float *bias, uint64_t panel);
/* acc[32] of a panel: cap * tanh(acc / cap). */
void cm_softcap(bool precise, float cap, float *acc);
/* acc[32] of a panel: act(acc), a plain enum txda_activation. */
void cm_activate(bool precise, uint32_t act, float *acc);

/* Bytes of one matrix. */
uint64_t cm_product_bytes(const struct cm_product *p);

#endif /* CM_OPS_PRODUCT_H */
