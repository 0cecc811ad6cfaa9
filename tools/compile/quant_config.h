/* SPDX-License-Identifier: MIT */
/*
 * The formats of quantised checkpoints, as "quantization_config" describes them.
 *
 * Formats: GPTQ (4 and 8 bits, any group size, symmetric or not, act-order, the zero points of
 * versions 1 and 2), AWQ (gemm), FP8 (E4M3; scales by block, row or tensor) and those of
 * compressed-tensors (pack-quantized, int-quantized, float-quantized) and ModelOpt (FP8) that mean
 * the same; MXFP4 of experts in one tensor.
 */
#ifndef TXDA_COMPILE_QUANT_CONFIG_H
#define TXDA_COMPILE_QUANT_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cjson/cJSON.h>

#include "error.h"

enum quant_method { QUANT_NONE, QUANT_GPTQ, QUANT_AWQ, QUANT_FP8, QUANT_COMPRESSED, QUANT_MXFP4 };

struct quant_config {
	enum quant_method method;
	uint32_t bits;
	uint32_t group;			 /* columns that share a scale; 0: all */
	bool zeros;			 /* not symmetric: matrices must have zero points */
	bool mixed;			 /* some matrices have other bits or groups */
	bool zero_plus_one;		 /* GPTQ version 1 stores zero points minus one */
	uint32_t block_rows, block_cols; /* FP8 */
};

/* Reads quantization_config (or compression_config) of a config.json. */
int quant_parse(const cJSON *config, struct quant_config *ret, struct tool_error *error);
/*
 * The same from a file beside config.json: quantize_config.json (GPTQ) or quant_config.json (AWQ) of
 * older checkpoints, hf_quant_config.json of ModelOpt. @method: if it does not name one.
 */
int quant_parse_file(const char *text, size_t bytes, const char *method, struct quant_config *ret,
		     struct tool_error *error);

#endif /* TXDA_COMPILE_QUANT_CONFIG_H */
