/* SPDX-License-Identifier: MIT */
/*
 * Finds and reads matrices of quantised checkpoints, in each of the formats of quant_config.h. A
 * matrix keeps its precision if the chip has tiles for it (graph_linear.c); otherwise it is read as
 * float32 by source_read().
 */
#ifndef TXDA_COMPILE_QUANT_H
#define TXDA_COMPILE_QUANT_H

#include <stdbool.h>
#include <stdint.h>

#include "error.h"
#include "quant_config.h"
#include "source_tensor.h"

struct source;

/*
 * Finds the matrix NAME (of a weight NAME.weight or NAME.qweight …) with the shape [rows, cols], in
 * whichever format it is stored. Shapes, types, group indices and scales are checked, so the result
 * can be read without further checks.
 */
int quant_find(const struct source *s, const struct quant_config *q, const char *name,
	       uint64_t rows, uint64_t cols, struct source_tensor *ret, struct tool_error *error);

/* Whether there is one, in whichever format. */
bool quant_has(const struct source *s, const char *name);

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

#endif /* TXDA_COMPILE_QUANT_H */
