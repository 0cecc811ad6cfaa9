/* SPDX-License-Identifier: MIT */
/*
 * Quantised checkpoints: reads "quantization_config", and finds and reads matrices of each format.
 * A matrix keeps its precision if the chip has tiles for it (graph_linear.c); otherwise it is read
 * as float32 by source_read().
 *
 * Formats: GPTQ (4 and 8 bits, any group size, symmetric or not, act-order, the zero points of
 * versions 1 and 2), AWQ (gemm), FP8 (E4M3; scales by block, row or tensor) and those of
 * compressed-tensors that mean the same (pack-quantized, int-quantized, float-quantized); MXFP4 of
 * experts in one tensor.
 */
#ifndef TXDA_COMPILE_QUANT_H
#define TXDA_COMPILE_QUANT_H

#include <stdbool.h>
#include <stdint.h>
#include <cjson/cJSON.h>

#include "error.h"
#include "source.h"

enum quant_method { QUANT_NONE, QUANT_GPTQ, QUANT_AWQ, QUANT_FP8, QUANT_COMPRESSED, QUANT_MXFP4 };

struct quant_config {
	enum quant_method method;
	uint32_t bits;
	uint32_t group;			 /* columns that share a scale; 0: all */
	bool zero_plus_one;		 /* GPTQ version 1 stores zero points minus one */
	uint32_t block_rows, block_cols; /* FP8 */
};

/* Reads quantization_config (or compression_config) of a config.json. */
int quant_parse(const cJSON *config, struct quant_config *ret, struct tool_error *error);
/*
 * The same from a file beside config.json, as in older checkpoints: quantize_config.json (GPTQ) or
 * quant_config.json (@awq). It need not name the method.
 */
int quant_parse_file(const char *text, size_t bytes, bool awq, struct quant_config *ret,
		     struct tool_error *error);

/*
 * Finds the matrix NAME (of a weight NAME.weight or NAME.qweight …) with the shape [rows, cols], in
 * whichever format it is stored. Shapes, types, group indices and scales are checked, so the result
 * can be read without further checks.
 */
int quant_find(const struct source *s, const struct quant_config *q, const char *name,
	       uint64_t rows, uint64_t cols, struct source_tensor *ret, struct tool_error *error);

/*
 * Matrix @index of the @n in NAME_blocks and NAME_scales (MXFP4), or in NAME as for
 * source_find_stacked().
 */
int quant_find_stacked(const struct source *s, const char *name, uint32_t n, uint32_t index,
		       uint64_t rows, uint64_t cols, bool in_first, struct source_tensor *ret,
		       struct tool_error *error);

/*
 * For quantised matrices: the group of a column, the scale and the zero point of (row, group), and
 * @n codes from a column on; an element is scale * (code - zero), or an E4M3 or E2M1 number times
 * scale.
 */
uint32_t quant_group(const struct source_tensor *t, uint64_t col);
float quant_scale(const struct source_tensor *t, uint64_t row, uint32_t group);
int quant_zero(const struct source_tensor *t, uint64_t row, uint32_t group);
void quant_codes(const struct source_tensor *t, uint64_t row, uint64_t col, uint64_t n,
		 uint8_t *codes);
/* Whether all zero points are the middle code. */
bool quant_symmetric(const struct source_tensor *t);

/* For source_read(). */
void quant_read(const struct source_tensor *t, uint64_t row, uint64_t col, uint64_t n, float *dst);

float quant_f8(uint8_t code);
float quant_mx4(uint8_t code);
/* A scale of 8 bits of exponent. */
float quant_exponent(uint8_t e);

#endif /* TXDA_COMPILE_QUANT_H */
