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
#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "safetensors.h"
#include "source_tensor.h"

struct gguf_model;

/* Neither checkpoint nor GGUF file: synthetic. */
struct source {
	struct safetensors *checkpoint;
	struct gguf_model *gguf;
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
/* Whether it exists, which does not use it. Synthetic sources have everything. */
bool source_has(const struct source *s, const char *name);
bool source_made_up(const struct source *s);

/*
 * The next tensor from *@at on, which counts up from 0, that nobody has found yet, so that no graph
 * has read it; false: there are no more. The strings belong to the source.
 */
struct source_unused {
	const char *name;   /* as families call it */
	const char *stored; /* in the file */
};
bool source_next_unused(const struct source *s, size_t *at, struct source_unused *ret);

/* Swaps rows and columns; column 0 is the former row @first_row. */
void source_transpose(struct source_tensor *t, uint32_t first_row);

/* dst[i] = element (row, col + i) as float32. The range must lie within the tensor. */
void source_read(const struct source_tensor *t, uint64_t row, uint64_t col, uint64_t n, float *dst);

#endif /* TXDA_COMPILE_SOURCE_H */
