/* SPDX-License-Identifier: MIT */
/*
 * Sources of weights: a safetensors checkpoint, a GGUF file, or a generator of random weights. All
 * of them find a tensor by name and shape, and read its elements.
 *
 * Threads: one source may be read by any number of threads.
 */
#ifndef TXDA_COMPILE_SOURCE_H
#define TXDA_COMPILE_SOURCE_H

#include <stdbool.h>
#include <stdint.h>

#include "error.h"
#include "safetensors.h"
#include "txda_isa.h"

struct gguf_model;

/* Neither checkpoint nor GGUF file: synthetic. */
struct source {
	struct safetensors *checkpoint;
	struct gguf_model *gguf;
};

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
	uint8_t bits, scale_dtype;
	uint8_t block_type; /* of ggml.h */
	bool zero_plus_one;
	/* Plain or F8: rows and columns are swapped; column 0 is row @first_row in the file. */
	bool transposed;
	uint32_t first_row;
	const uint8_t *scales, *zeros, *g_idx; /* zeros, g_idx: may be NULL */
	uint32_t group, n_groups, block_rows;  /* columns and rows that share a scale */
	uint32_t outer; /* SOURCE_GGML: columns of a block, which may have more scales than one */
};

/*
 * Finds @name with the shape [rows, cols], or [cols] when @rows is 0; also a convolution whose
 * kernels have @cols elements. -ENOENT if there is no such tensor, -EINVAL if its shape or type
 * differs; the error has the expected and actual values.
 */
int source_find(const struct source *s, const char *name, uint64_t rows, uint64_t cols,
		struct source_tensor *ret, struct tool_error *error);
/*
 * Matrix @index of @name, which consists of @n: [n, rows, cols], or [n, cols, rows]. If both are
 * possible, @in_first selects the latter.
 */
int source_find_stacked(const struct source *s, const char *name, uint32_t n, uint32_t index,
			uint64_t rows, uint64_t cols, bool in_first, struct source_tensor *ret,
			struct tool_error *error);
/* Synthetic sources have everything. */
bool source_has(const struct source *s, const char *name);
bool source_made_up(const struct source *s);

/* Swaps rows and columns; column 0 is the former row @first_row. */
void source_transpose(struct source_tensor *t, uint32_t first_row);

/* dst[i] = element (row, col + i) as float32. The range must lie within the tensor. */
void source_read(const struct source_tensor *t, uint64_t row, uint64_t col, uint64_t n, float *dst);

#endif /* TXDA_COMPILE_SOURCE_H */
