// SPDX-License-Identifier: MIT
#include "ggml.h"

#include <stdio.h>
#include <string.h>

#include "floats.h"

static const struct ggml_format formats[GGML_TYPES] = {
	[GGML_F32] = {"F32", 1, 4, TXDA_F32},
	[GGML_F16] = {"F16", 1, 2, TXDA_F16},
	[GGML_BF16] = {"BF16", 1, 2, TXDA_BF16},
	[GGML_Q8_0] = {"Q8_0", 32, 34, TXDA_W8, 8, 32},
	[GGML_Q4_0] = {"Q4_0", 32, 18, TXDA_W4, 4, 32},
	[GGML_Q4_1] = {"Q4_1", 32, 20, TXDA_W4M, 4, 32},
	[GGML_Q5_0] = {"Q5_0", 32, 22, TXDA_W5M, 5, 32},
	[GGML_Q5_1] = {"Q5_1", 32, 24, TXDA_W5M, 5, 32},
	[GGML_Q4_K] = {"Q4_K", 256, 144, TXDA_W4M, 4, 32},
	[GGML_Q5_K] = {"Q5_K", 256, 176, TXDA_W5M, 5, 32},
	[GGML_Q6_K] = {"Q6_K", 256, 210, TXDA_W6S, 6, 16},
	[GGML_MXFP4] = {"MXFP4", 32, 17, TXDA_MX4, 4, 32},
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

	if (!formats[type].bits) {
		t.dtype = formats[type].tiles;
		return t;
	}
	t.format = SOURCE_GGML;
	t.block_type = (uint8_t)type;
	t.bits = formats[type].bits;
	t.group = formats[type].group;
	t.outer = formats[type].elements;
	t.n_groups = (uint32_t)(cols / t.group);
	t.block_rows = 1;
	return t;
}

static const uint8_t *block_at(const struct source_tensor *t, uint64_t row, uint64_t block)
{
	const struct ggml_format *f = &formats[t->block_type];

	return t->data + (row * (t->cols / f->elements) + block) * f->bytes;
}

static uint16_t half_bits(const uint8_t *p)
{
	uint16_t h;

	memcpy(&h, p, 2);
	return h;
}

/* The fifth bit of element @i; @bits has one bit for each of 32 elements. */
static unsigned fifth(const uint8_t *bits, unsigned i)
{
	return (bits[i / 8] >> i % 8 & 1u) << 4;
}

/* Element @i of 32 nibbles: the first half are the low ones. */
static unsigned nibble(const uint8_t *p, unsigned i)
{
	return p[i % 16] >> (i / 16 * 4) & 15u;
}

/* Element @i of 256 nibbles: of each 64, 32 low ones are followed by 32 high ones. */
static unsigned nibble_k(const uint8_t *p, unsigned i)
{
	return p[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15u;
}

/*
 * Q6_K: nibbles, then two more bits for each; each 128 elements consist of interleaved runs of 32.
 */
static unsigned code_k6(const uint8_t *block, unsigned i)
{
	unsigned half = i / 128, part = i % 128 / 32, at = i % 32;
	unsigned low = block[half * 64 + part % 2 * 32 + at] >> part / 2 * 4 & 15u;
	unsigned high = block[128 + half * 32 + at] >> part * 2 & 3u;

	return low | high << 4;
}

static uint8_t code_at(uint8_t type, const uint8_t *block, unsigned i)
{
	switch (type) {
	case GGML_MXFP4: return (uint8_t)nibble(block + 1, i);
	case GGML_Q8_0: return block[2 + i] ^ 0x80;
	case GGML_Q4_0: return (uint8_t)nibble(block + 2, i);
	case GGML_Q4_1: return (uint8_t)nibble(block + 4, i);
	case GGML_Q5_0: return (uint8_t)(nibble(block + 6, i) | fifth(block + 2, i));
	case GGML_Q5_1: return (uint8_t)(nibble(block + 8, i) | fifth(block + 4, i));
	case GGML_Q4_K: return (uint8_t)nibble_k(block + 16, i);
	case GGML_Q5_K:
		return (uint8_t)(nibble_k(block + 48, i) | (block[16 + i % 32] >> i / 32 & 1u)
								   << 4);
	default: return (uint8_t)code_k6(block, i);
	}
}

void ggml_codes(const struct source_tensor *t, uint64_t row, uint64_t col, uint64_t n,
		uint8_t *codes)
{
	for (uint64_t i = col; i < col + n; i++)
		*codes++ = code_at(t->block_type, block_at(t, row, i / t->outer),
				   (unsigned)(i % t->outer));
}

float ggml_scale(const struct source_tensor *t, uint64_t row, uint32_t group)
{
	const uint8_t *block = block_at(t, row, group);

	if (t->block_type == GGML_MXFP4)
		return exponent_to_float(block[0]);
	return f16_to_float(half_bits(block));
}

/* The scale and the minimum of part @j of 8, 6 bits each, in 12 bytes. */
static void levels_k(const uint8_t *p, unsigned j, struct ggml_levels *l)
{
	if (j < 4) {
		l->s = p[j] & 63;
		l->m = p[j + 4] & 63;
	} else {
		l->s = (uint8_t)((p[j + 4] & 15) | (p[j - 4] >> 6) << 4);
		l->m = (uint8_t)(p[j + 4] >> 4 | (p[j] >> 6) << 4);
	}
}

struct ggml_levels ggml_levels(const struct source_tensor *t, uint64_t row, uint32_t group)
{
	const unsigned per_block = t->outer / t->group;
	const uint8_t *block = block_at(t, row, group / per_block);
	struct ggml_levels l = {.d = half_bits(block), .s = 1, .m = 1};

	switch (t->block_type) {
	case GGML_Q5_0: /* 16 is subtracted from the codes */
		l.dmin = l.d;
		l.m = 16;
		break;
	case GGML_Q4_1:
	case GGML_Q5_1: /* the minimum is added, not subtracted */
		l.dmin = half_bits(block + 2) ^ 0x8000;
		break;
	case GGML_Q6_K:
		l.d = half_bits(block + 208);
		l.s = block[192 + group % per_block];
		break;
	default:
		l.dmin = half_bits(block + 2);
		levels_k(block + 4, group % per_block, &l);
		break;
	}
	return l;
}

/* The order of operations is that of the format definitions. */
void ggml_read(const struct source_tensor *t, uint64_t row, uint64_t col, uint64_t n, float *dst)
{
	uint8_t codes[32];

	while (n) {
		uint32_t group = (uint32_t)(col / t->group);
		uint64_t step = t->group - col % t->group;
		struct ggml_levels l;
		float d, min;

		step = step < n ? step : n;
		ggml_codes(t, row, col, step, codes);
		if (formats[t->block_type].tiles == TXDA_W6S) {
			l = ggml_levels(t, row, group);
			d = f16_to_float(l.d) * (float)(int8_t)l.s;
			for (uint64_t i = 0; i < step; i++)
				dst[i] = d * (float)(codes[i] - 32);
		} else if (txda_is_two_level(formats[t->block_type].tiles)) {
			l = ggml_levels(t, row, group);
			d = f16_to_float(l.d) * (float)l.s;
			min = f16_to_float(l.dmin) * (float)l.m;
			for (uint64_t i = 0; i < step; i++)
				dst[i] = d * (float)codes[i] - min;
		} else {
			d = ggml_scale(t, row, group);
			for (uint64_t i = 0; i < step; i++)
				dst[i] = d * (t->block_type == GGML_MXFP4
						      ? mx4_to_float(codes[i])
						      : (float)(codes[i] - (1 << (t->bits - 1))));
		}
		dst += step;
		col += step;
		n -= step;
	}
}
