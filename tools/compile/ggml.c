// SPDX-License-Identifier: MIT
#include "ggml.h"

#include <stdio.h>
#include <string.h>

#include "floats.h"

#define MAX_ELEMENTS 256

static const struct ggml_format formats[GGML_TYPES] = {
	[GGML_F32] = {"F32", 1, 4, 0},	     [GGML_F16] = {"F16", 1, 2, 0},
	[GGML_BF16] = {"BF16", 1, 2, 0},     [GGML_Q8_0] = {"Q8_0", 32, 34, 8},
	[GGML_Q4_0] = {"Q4_0", 32, 18, 4},   [GGML_Q4_1] = {"Q4_1", 32, 20, 0},
	[GGML_Q5_0] = {"Q5_0", 32, 22, 8},   [GGML_Q5_1] = {"Q5_1", 32, 24, 0},
	[GGML_Q4_K] = {"Q4_K", 256, 144, 0}, [GGML_Q5_K] = {"Q5_K", 256, 176, 0},
	[GGML_Q6_K] = {"Q6_K", 256, 210, 0},
};

const struct ggml_format *ggml_format(uint32_t type)
{
	return type < GGML_TYPES && formats[type].name ? &formats[type] : NULL;
}

char *ggml_list(char *buf, size_t len)
{
	size_t at = 0;

	for (unsigned i = 0; i < GGML_TYPES && at < len; i++) {
		if (formats[i].name)
			at += (size_t)snprintf(buf + at, len - at, "%s%s", at ? ", " : "",
					       formats[i].name);
	}
	return buf;
}

struct source_tensor ggml_tensor(uint32_t type, uint64_t rows, uint64_t cols, const uint8_t *data)
{
	struct source_tensor t = {.rows = rows, .cols = cols, .data = data};

	switch (type) {
	case GGML_F32: t.dtype = TXDA_F32; return t;
	case GGML_F16: t.dtype = TXDA_F16; return t;
	case GGML_BF16: t.dtype = TXDA_BF16; return t;
	default: break;
	}
	t.format = SOURCE_GGML;
	t.block_type = (uint8_t)type;
	t.bits = formats[type].bits;
	t.group = formats[type].elements;
	t.n_groups = (uint32_t)(cols / t.group);
	t.block_rows = 1;
	return t;
}

static const uint8_t *block_at(const struct source_tensor *t, uint64_t row, uint64_t block)
{
	const struct ggml_format *f = &formats[t->block_type];

	return t->data + (row * (t->cols / f->elements) + block) * f->bytes;
}

static float half_at(const uint8_t *p)
{
	uint16_t h;

	memcpy(&h, p, 2);
	return f16_to_float(h);
}

/* The fifth bit of element @i, where @bits has one of each of 32. */
static unsigned fifth(const uint8_t *bits, unsigned i)
{
	return (bits[i / 8] >> i % 8 & 1u) << 4;
}

/* Element @i of 32 nibbles: the first half of them are low ones. */
static unsigned nibble(const uint8_t *p, unsigned i)
{
	return p[i % 16] >> (i / 16 * 4) & 15u;
}

/* ---- what is repacked ---- */

static uint8_t code_at(uint8_t type, const uint8_t *block, unsigned i)
{
	switch (type) {
	case GGML_Q8_0: return block[2 + i] ^ 0x80;
	case GGML_Q5_0: return (uint8_t)(128 - 16 + (nibble(block + 6, i) | fifth(block + 2, i)));
	default: return (uint8_t)nibble(block + 2, i); /* Q4_0 */
	}
}

void ggml_codes(const struct source_tensor *t, uint64_t row, uint64_t col, uint64_t n,
		uint8_t *codes)
{
	for (uint64_t i = col; i < col + n; i++)
		*codes++ = code_at(t->block_type, block_at(t, row, i / t->group),
				   (unsigned)(i % t->group));
}

float ggml_scale(const struct source_tensor *t, uint64_t row, uint32_t group)
{
	return half_at(block_at(t, row, group));
}

/* ---- what is read as float32, in the order of operations of the formats' definition ---- */

static void read_coded(uint8_t type, const uint8_t *block, float *y)
{
	const float d = half_at(block);
	const int zero = type == GGML_Q4_0 ? 8 : 128;

	for (unsigned i = 0; i < 32; i++)
		y[i] = d * (float)(code_at(type, block, i) - zero);
}

/* Q4_1 and Q5_1: a scale, a minimum, the fifth bits, nibbles. */
static void read_minimum(uint8_t type, const uint8_t *block, float *y)
{
	const float d = half_at(block), m = half_at(block + 2);
	const uint8_t *bits = type == GGML_Q5_1 ? block + 4 : NULL, *q = block + (bits ? 8 : 4);

	for (unsigned i = 0; i < 32; i++)
		y[i] = d * (float)(nibble(q, i) | (bits ? fifth(bits, i) : 0)) + m;
}

/* The scale and the minimum of part @j of 8, 6 bits each, in 12 bytes. */
static void k_scale(const uint8_t *p, unsigned j, float *scale, float *min)
{
	if (j < 4) {
		*scale = (float)(p[j] & 63);
		*min = (float)(p[j + 4] & 63);
	} else {
		*scale = (float)((p[j + 4] & 15) | (p[j - 4] >> 6) << 4);
		*min = (float)(p[j + 4] >> 4 | (p[j] >> 6) << 4);
	}
}

/* Q4_K and Q5_K: two scales for all, 8 parts of 32 with two each, fifth bits by part, nibbles. */
static void read_k45(uint8_t type, const uint8_t *block, float *y)
{
	const float d = half_at(block), dmin = half_at(block + 2);
	const uint8_t *bits = type == GGML_Q5_K ? block + 16 : NULL, *q = block + (bits ? 48 : 16);

	for (unsigned j = 0; j < 8; j++) {
		float scale, min;

		k_scale(block + 4, j, &scale, &min);
		scale *= d;
		min *= dmin;
		for (unsigned i = 0; i < 32; i++) {
			unsigned v = q[j / 2 * 32 + i] >> j % 2 * 4 & 15u;

			if (bits)
				v |= (bits[i] >> j & 1u) << 4;
			y[j * 32 + i] = scale * (float)v - min;
		}
	}
}

/* Q6_K: nibbles, two more bits of each, 16 scales of 8 bits, one for all. */
static void read_k6(const uint8_t *block, float *y)
{
	const float d = half_at(block + 208);

	for (unsigned i = 0; i < 256; i++) {
		unsigned half = i / 128, part = i % 128 / 32, at = i % 32;
		unsigned low = block[half * 64 + part % 2 * 32 + at] >> part / 2 * 4 & 15u;
		unsigned high = block[128 + half * 32 + at] >> part * 2 & 3u;

		y[i] = d * (float)(int8_t)block[192 + i / 16] *
		       (float)((int)(low | high << 4) - 32);
	}
}

static void read_block(uint8_t type, const uint8_t *block, float *y)
{
	switch (type) {
	case GGML_Q4_1:
	case GGML_Q5_1: read_minimum(type, block, y); break;
	case GGML_Q4_K:
	case GGML_Q5_K: read_k45(type, block, y); break;
	case GGML_Q6_K: read_k6(block, y); break;
	default: read_coded(type, block, y); break;
	}
}

void ggml_read(const struct source_tensor *t, uint64_t row, uint64_t col, uint64_t n, float *dst)
{
	float y[MAX_ELEMENTS];

	while (n) {
		uint64_t from = col % t->group, step = t->group - from < n ? t->group - from : n;

		read_block(t->block_type, block_at(t, row, col / t->group), y);
		memcpy(dst, y + from, step * sizeof(*dst));
		dst += step;
		col += step;
		n -= step;
	}
}
