/* SPDX-License-Identifier: MIT */
/* A matrix of a checkpoint as it is stored (source.h finds it and reads its elements). */
#ifndef TXDA_COMPILE_SOURCE_TENSOR_H
#define TXDA_COMPILE_SOURCE_TENSOR_H

#include <stdbool.h>
#include <stdint.h>

#include "txda_isa.h"

/* How a matrix is stored; more in quant.h. */
enum source_format {
	SOURCE_PLAIN,
	SOURCE_GPTQ,   /* codes [K bits / 32, N], scales and zero points [groups, N] */
	SOURCE_AWQ,    /* codes [K, N / 8] in AWQ's order, scales as GPTQ */
	SOURCE_PACKED, /* codes [N, K bits / 32], scales [N, groups] */
	SOURCE_INT8,   /* I8 [N, K], scales [N, groups] */
	SOURCE_F8,     /* E4M3 [N, K], scales [blocks of rows, groups] */
	SOURCE_MX4,    /* E2M1 [N, K / 2], scales of 8 bits of exponent [N, groups] */
	SOURCE_GGML,   /* blocks of @group elements (ggml.h) */
};

/* A matrix [rows, cols]; a vector has one row. Small enough to copy. */
struct source_tensor {
	uint8_t dtype; /* TXDA_F32, TXDA_BF16 or TXDA_F16; plain ones */
	uint8_t format;
	uint64_t rows, cols;
	const uint8_t *data; /* NULL: synthetic, generated from: */
	uint32_t seed;
	float mean, spread; /* uniform in mean +- spread */

	/* With a format. */
	uint8_t bits, scale_dtype; /* TXDA_U8: bits of exponent */
	uint8_t block_type;	   /* of ggml.h */
	bool zero_plus_one;
	/* Plain or F8: rows and columns are swapped; column 0 is row @first_row in the file. */
	bool transposed;
	uint32_t first_row;
	const uint8_t *scales, *zeros, *g_idx; /* zeros, g_idx: may be NULL */
	uint32_t group, n_groups, block_rows;  /* columns and rows that share a scale */
	uint32_t outer; /* SOURCE_GGML: columns of a block, which may have more scales than one */
};

#endif /* TXDA_COMPILE_SOURCE_TENSOR_H */
