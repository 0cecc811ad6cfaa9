/* SPDX-License-Identifier: MIT */
/*
 * The element types of GGUF files: rows of blocks, each with its scales. All bit patterns of a
 * block are valid numbers, so no checks are needed.
 *
 * For each there are tiles that can hold its codes and scales unchanged. The scales of the
 * chip's W4M, W5M and W6S have two levels: one scale per block, and small integers for each 32 or
 * 16 elements.
 */
#ifndef TXDA_COMPILE_GGML_H
#define TXDA_COMPILE_GGML_H

#include <stddef.h>
#include <stdint.h>

#include "source_tensor.h"

/* Numbered as in the files. */
enum ggml_type {
	GGML_F32 = 0,
	GGML_F16 = 1,
	GGML_Q4_0 = 2,
	GGML_Q4_1 = 3,
	GGML_Q5_0 = 6,
	GGML_Q5_1 = 7,
	GGML_Q8_0 = 8,
	GGML_Q4_K = 12,
	GGML_Q5_K = 13,
	GGML_Q6_K = 14,
	GGML_BF16 = 30,
	GGML_MXFP4 = 39,
	GGML_TYPES
};

struct ggml_format {
	const char *name;	  /* NULL: not supported */
	uint16_t elements, bytes; /* of a block */
	uint8_t tiles;		  /* enum txda_dtype */
	uint8_t bits;		  /* of codes; 0: plain */
	uint8_t group;		  /* elements that share all scales */
};

/* NULL: the type is unknown or not supported. */
const struct ggml_format *ggml_format(uint32_t type);
/* "F32, F16, …" in @buf. Returns buf. */
char *ggml_list(char *buf, size_t len);

/* A matrix at @data, with whole blocks in each row. */
struct source_tensor ggml_tensor(uint32_t type, uint64_t rows, uint64_t cols, const uint8_t *data);

/* For quant.h, which documents them. */
void ggml_codes(const struct source_tensor *t, uint64_t row, uint64_t col, uint64_t n,
		uint8_t *codes);
float ggml_scale(const struct source_tensor *t, uint64_t row, uint32_t group);
/* The scales of a group with two levels, as defined in txda_layouts.h. */
struct ggml_levels {
	uint16_t d, dmin;
	uint8_t s, m;
};
struct ggml_levels ggml_levels(const struct source_tensor *t, uint64_t row, uint32_t group);
void ggml_read(const struct source_tensor *t, uint64_t row, uint64_t col, uint64_t n, float *dst);

#endif /* TXDA_COMPILE_GGML_H */
