/* SPDX-License-Identifier: MIT */
/*
 * The tile instructions of kern_tiles.h as functions, so that its kernels run on CPUs without tiles.
 * A shape that the instructions would refuse ends the program.
 */
#ifndef TILES_EMULATED_H
#define TILES_EMULATED_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Called, not inlined: kernels use them in unrolled loops. */
#define TILE_FUNCTION static __attribute__((noinline)) void

struct emulated_tiles {
	uint8_t config[64]; /* as LDTILECFG reads it */
	uint8_t row[8][16][64];
};

static __thread struct emulated_tiles emulated;

static inline unsigned emulated_rows(unsigned t)
{
	unsigned rows = emulated.config[48 + t];

	if (!rows || rows > 16)
		abort();
	return rows;
}

static inline unsigned emulated_bytes(unsigned t)
{
	unsigned bytes = emulated.config[16 + 2 * t];

	if (!bytes || bytes > 64 || bytes % 4 || emulated.config[17 + 2 * t])
		abort();
	return bytes;
}

TILE_FUNCTION emulated_config(const void *c)
{
	memcpy(emulated.config, c, 64);
	memset(emulated.row, 0, sizeof(emulated.row));
	if (emulated.config[0] != 1)
		abort();
}

TILE_FUNCTION emulated_release(void)
{
	memset(&emulated, 0, sizeof(emulated));
}

TILE_FUNCTION emulated_zero(unsigned t)
{
	(void)emulated_rows(t);
	memset(emulated.row[t], 0, sizeof(emulated.row[t]));
}

TILE_FUNCTION emulated_load(unsigned t, const void *p, size_t stride)
{
	unsigned rows = emulated_rows(t), bytes = emulated_bytes(t);

	memset(emulated.row[t], 0, sizeof(emulated.row[t]));
	for (unsigned r = 0; r < rows; r++)
		memcpy(emulated.row[t][r], (const uint8_t *)p + r * stride, bytes);
}

TILE_FUNCTION emulated_store(unsigned t, void *p, size_t stride)
{
	unsigned rows = emulated_rows(t), bytes = emulated_bytes(t);

	for (unsigned r = 0; r < rows; r++)
		memcpy((uint8_t *)p + r * stride, emulated.row[t][r], bytes);
}

static inline void emulated_shapes(unsigned c, unsigned a, unsigned b)
{
	if (c == a || c == b || a == b || emulated_rows(c) != emulated_rows(a) ||
	    emulated_bytes(c) != emulated_bytes(b) || emulated_rows(b) != emulated_bytes(a) / 4)
		abort();
}

static inline float emulated_float(const uint8_t *p)
{
	uint32_t u = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 24;
	float f;

	memcpy(&f, &u, 4);
	return f;
}

/* The products of the step are summed first, then added (Intel's manual, TDPBF16PS). */
TILE_FUNCTION emulated_bf16(unsigned c, unsigned a, unsigned b)
{
	emulated_shapes(c, a, b);
	for (unsigned m = 0; m < emulated_rows(c); m++)
		for (unsigned n = 0; n < emulated_bytes(c) / 4; n++) {
			float sum = 0, to;

			for (unsigned k = 0; k < 2 * emulated_rows(b); k++)
				sum = fmaf(
					emulated_float(emulated.row[a][m] + 2 * k),
					emulated_float(emulated.row[b][k / 2] + 4 * n + k % 2 * 2),
					sum);
			memcpy(&to, emulated.row[c][m] + 4 * n, 4);
			to += sum;
			memcpy(emulated.row[c][m] + 4 * n, &to, 4);
		}
}

TILE_FUNCTION emulated_i8(unsigned c, unsigned a, unsigned b)
{
	emulated_shapes(c, a, b);
	for (unsigned m = 0; m < emulated_rows(c); m++)
		for (unsigned n = 0; n < emulated_bytes(c) / 4; n++) {
			int32_t sum;

			memcpy(&sum, emulated.row[c][m] + 4 * n, 4);
			for (unsigned k = 0; k < 4 * emulated_rows(b); k++)
				sum += (int8_t)emulated.row[a][m][k] *
				       emulated.row[b][k / 4][4 * n + k % 4];
			memcpy(emulated.row[c][m] + 4 * n, &sum, 4);
		}
}

#define TILE_CONFIG(c)			emulated_config(c)
#define TILE_RELEASE()			emulated_release()
#define TILE_ZERO(t)			emulated_zero(t)
#define TILE_LOAD(t, p, stride)		emulated_load(t, p, stride)
#define TILE_LOAD_PASSING(t, p, stride) emulated_load(t, p, stride)
#define TILE_STORE(t, p, stride)	emulated_store(t, p, stride)
#define TILE_BF16(c, a, b)		emulated_bf16(c, a, b)
#define TILE_I8(c, a, b)		emulated_i8(c, a, b)

#endif /* TILES_EMULATED_H */
