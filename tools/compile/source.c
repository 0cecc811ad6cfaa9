// SPDX-License-Identifier: MIT
#include "source.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "floats.h"
#include "gguf_model.h"
#include "quant.h"

static bool is_norm(const char *name)
{
	size_t n = strlen(name);

	return strstr(name, "norm") && n > 7 && !strcmp(name + n - 7, ".weight");
}

/* FNV-1a: tensors of a synthetic model differ by name and are the same in each run. */
static uint32_t name_hash(const char *name)
{
	uint32_t h = 2166136261u;

	for (; *name; name++)
		h = (h ^ (unsigned char)*name) * 16777619u;
	return h;
}

/*
 * Norms near 1, the rest with a variance of 1 / columns, so that activations keep their magnitude.
 */
static struct source_tensor make_up(const char *name, uint64_t rows, uint64_t cols)
{
	struct source_tensor t = {
		.dtype = TXDA_BF16, .rows = rows ? rows : 1, .cols = cols, .seed = name_hash(name)};

	if (is_norm(name)) {
		t.mean = 1;
		t.spread = 0.1f;
	} else {
		t.spread = rows ? sqrtf(3.0f / (float)cols) : 0.02f;
	}
	return t;
}

/* A convolution's kernels are rows. */
static bool has_shape(const struct safetensors_tensor *t, uint64_t rows, uint64_t cols)
{
	uint64_t per_row = 1;
	unsigned i;

	if (!rows)
		return t->ndim == 1 && t->dim[0] == cols;
	for (i = 1; i < t->ndim; i++)
		per_row *= t->dim[i];
	return t->ndim > 1 && t->ndim != 3 && t->dim[0] == rows && per_row == cols;
}

/* The type of a plain tensor's elements. */
static int find_dtype(const struct safetensors_tensor *t, uint8_t *ret, struct tool_error *error)
{
	static const int8_t types[SAFETENSORS_DTYPE_COUNT] = {
		[SAFETENSORS_F32] = TXDA_F32 + 1,
		[SAFETENSORS_BF16] = TXDA_BF16 + 1,
		[SAFETENSORS_F16] = TXDA_F16 + 1,
	};

	if (!types[t->dtype])
		return tool_fail(error, -ENOTSUP,
				 "tensor \"%s\": dtype %s is not supported (F32, BF16 and F16 are)",
				 t->name, safetensors_dtype_name(t->dtype));
	*ret = (uint8_t)(types[t->dtype] - 1);
	return 0;
}

int source_find(const struct source *s, const char *name, uint64_t rows, uint64_t cols,
		struct source_tensor *ret, struct tool_error *error)
{
	const uint64_t want[2] = {rows ? rows : cols, cols};
	const unsigned ndim = rows ? 2 : 1;
	const struct safetensors_tensor *t;
	char expected[64], found[128];
	uint8_t dtype = 0;
	int r;

	if (s->gguf)
		return gguf_model_find(s->gguf, name, rows, cols, ret, error);
	if (!s->checkpoint) {
		*ret = make_up(name, rows, cols);
		return 0;
	}
	t = safetensors_find(s->checkpoint, name);
	safetensors_shape(ndim, want, expected, sizeof(expected));
	if (!t)
		return tool_fail(error, -ENOENT, "tensor \"%s\" %s is missing", name, expected);
	if (!has_shape(t, rows, cols))
		return tool_fail(error, -EINVAL, "tensor \"%s\": expected the shape %s, found %s",
				 name, expected,
				 safetensors_shape(t->ndim, t->dim, found, sizeof(found)));
	r = find_dtype(t, &dtype, error);
	if (r)
		return r;
	*ret = (struct source_tensor){
		.dtype = dtype,
		.rows = rows ? rows : 1,
		.cols = cols,
		.data = safetensors_use(s->checkpoint, t),
	};
	return 0;
}

int source_find_stacked(const struct source *s, const char *name, uint32_t n, uint32_t index,
			uint64_t rows, uint64_t cols, bool in_first, struct source_tensor *ret,
			struct tool_error *error)
{
	const uint64_t want[3] = {n, rows, cols}, turned[3] = {n, cols, rows};
	const struct safetensors_tensor *t;
	char a[64], b[64], found[128];
	uint8_t dtype = 0;
	bool straight;
	int r;

	if (s->gguf)
		return tool_fail(
			error, -ENOTSUP,
			"tensor \"%s\": %u matrices in one are not supported of GGUF files", name,
			n);
	if (!s->checkpoint) {
		*ret = make_up(name, rows, cols);
		ret->seed += index;
		return 0;
	}
	t = safetensors_find(s->checkpoint, name);
	safetensors_shape(3, want, a, sizeof(a));
	safetensors_shape(3, turned, b, sizeof(b));
	if (!t)
		return tool_fail(error, -ENOENT, "tensor \"%s\" %s is missing", name, a);
	straight = t->ndim == 3 && !memcmp(t->dim, want, sizeof(want));
	if (!straight && (t->ndim != 3 || memcmp(t->dim, turned, sizeof(turned))))
		return tool_fail(error, -EINVAL,
				 "tensor \"%s\": expected the shape %s or %s, found %s", name, a, b,
				 safetensors_shape(t->ndim, t->dim, found, sizeof(found)));
	r = find_dtype(t, &dtype, error);
	if (r)
		return r;
	*ret = (struct source_tensor){
		.dtype = dtype,
		.rows = rows,
		.cols = cols,
		.data = (const uint8_t *)safetensors_use(s->checkpoint, t) +
			index * rows * cols * (dtype == TXDA_F32 ? 4 : 2),
		.transposed = !straight || (rows == cols && in_first),
	};
	return 0;
}

bool source_has(const struct source *s, const char *name)
{
	if (s->gguf)
		return gguf_model_has(s->gguf, name);
	return !s->checkpoint || safetensors_find(s->checkpoint, name);
}

bool source_next_unused(const struct source *s, size_t *at, struct source_unused *ret)
{
	const struct safetensors_tensor *t;

	if (s->gguf)
		return gguf_model_next_unused(s->gguf, at, &ret->name, &ret->stored);
	while (s->checkpoint && (t = safetensors_tensor(s->checkpoint, *at))) {
		++*at;
		if (t->used)
			continue;
		ret->name = ret->stored = t->name;
		return true;
	}
	return false;
}

bool source_made_up(const struct source *s)
{
	return !s->checkpoint && !s->gguf;
}

void source_transpose(struct source_tensor *t, uint32_t first_row)
{
	uint64_t rows = t->rows;

	t->rows = t->cols;
	t->cols = rows;
	t->transposed = true;
	t->first_row = first_row;
}

/* A counter and a 32-bit mixing function: any element in any order, at the speed of memory. */
static void read_made_up(const struct source_tensor *t, uint64_t row, uint64_t col, uint64_t n,
			 float *dst)
{
	uint32_t base = (t->seed ^ (uint32_t)(row * 0x9e3779b9u)) * 0x85ebca6bu + (uint32_t)col;
	float unit = t->spread * 0x1p-31f, mean = t->mean;
	uint32_t i;

	for (i = 0; i < (uint32_t)n; i++) {
		uint32_t h = base + i;

		h = (h ^ h >> 16) * 0x7feb352du;
		h = (h ^ h >> 15) * 0x846ca68bu;
		h ^= h >> 16;
		dst[i] = mean + (float)(int32_t)h * unit;
	}
}

void source_read(const struct source_tensor *t, uint64_t row, uint64_t col, uint64_t n, float *dst)
{
	uint64_t at = row * t->cols + col, i;
	const uint8_t *p;
	uint16_t h;

	if (t->format != SOURCE_PLAIN && !t->transposed) {
		quant_read(t, row, col, n, dst);
		return;
	}
	if (t->transposed) {
		struct source_tensor straight = *t;

		straight.transposed = false;
		straight.rows = t->cols;
		straight.cols = t->rows;
		for (i = 0; i < n; i++)
			source_read(&straight, t->first_row + col + i, row, 1, dst + i);
		return;
	}
	if (!t->data) {
		read_made_up(t, row, col, n, dst);
		return;
	}
	switch (t->dtype) {
	case TXDA_F32: memcpy(dst, t->data + at * 4, n * 4); break;
	case TXDA_BF16:
		p = t->data + at * 2;
		for (i = 0; i < n; i++) {
			memcpy(&h, p + 2 * i, 2);
			dst[i] = bf16_to_float(h);
		}
		break;
	default:
		p = t->data + at * 2;
		for (i = 0; i < n; i++) {
			memcpy(&h, p + 2 * i, 2);
			dst[i] = f16_to_float(h);
		}
		break;
	}
}
