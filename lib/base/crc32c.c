// SPDX-License-Identifier: MIT
#include "crc32c.h"

#include <pthread.h>
#include <string.h>

#define POLYNOMIAL 0x82f63b78u

/* table[n][b]: contribution of byte b to the sum if n more bytes follow it in a group of 8. */
static uint32_t table[8][256];
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

static void make_table(void)
{
	for (uint32_t b = 0; b < 256; b++) {
		uint32_t sum = b;

		for (unsigned bit = 0; bit < 8; bit++)
			sum = sum >> 1 ^ (sum & 1 ? POLYNOMIAL : 0);
		table[0][b] = sum;
	}
	for (unsigned n = 1; n < 8; n++) {
		for (uint32_t b = 0; b < 256; b++)
			table[n][b] = table[n - 1][b] >> 8 ^ table[0][table[n - 1][b] & 255];
	}
}

uint32_t crc32c_portable(uint32_t crc, const void *data, size_t bytes)
{
	const uint8_t *at = data;

	pthread_once(&table_once, make_table);
	crc = ~crc;
	for (; bytes >= 8; bytes -= 8, at += 8) {
		uint32_t low = crc ^ ((uint32_t)at[0] | (uint32_t)at[1] << 8 |
				      (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);

		crc = table[7][low & 255] ^ table[6][low >> 8 & 255] ^ table[5][low >> 16 & 255] ^
		      table[4][low >> 24] ^ table[3][at[4]] ^ table[2][at[5]] ^ table[1][at[6]] ^
		      table[0][at[7]];
	}
	while (bytes--)
		crc = crc >> 8 ^ table[0][(crc ^ *at++) & 255];
	return ~crc;
}

/* The product of two polynomials modulo the CRC's, all reflected. */
static uint32_t multiply(uint32_t a, uint32_t b)
{
	uint32_t product = 0;

	for (uint32_t bit = 1u << 31; bit; bit >>= 1) {
		if (a & bit)
			product ^= b;
		b = b >> 1 ^ (b & 1 ? POLYNOMIAL : 0);
	}
	return product;
}

/* x^n modulo the CRC's polynomial. */
static uint32_t power_of_x(size_t n)
{
	uint32_t result = 1u << 31, power = 1u << 30; /* x^0, x^1 */

	for (; n; n >>= 1) {
		if (n & 1)
			result = multiply(power, result);
		power = multiply(power, power);
	}
	return result;
}

/* The factor by which appending @bytes zeros multiplies a CRC. */
static uint32_t shift_by(size_t bytes)
{
	return power_of_x(8 * bytes);
}

uint32_t crc32c_join(uint32_t first, uint32_t second, size_t bytes)
{
	return multiply(shift_by(bytes), first) ^ second;
}

#if defined(__x86_64__)
#include <immintrin.h>

#define LANE 4096

/*
 * The instruction has a latency of three cycles and a throughput of one per cycle, so three streams
 * are interleaved.
 */
__attribute__((target("sse4.2"))) static uint32_t crc32c_sse42(uint32_t crc, const void *data,
							       size_t bytes)
{
	const unsigned char *p = data;
	uint64_t a = ~crc, word;

	if (bytes >= 3 * LANE) {
		uint32_t shift = shift_by(LANE);

		for (; bytes >= 3 * LANE; bytes -= 3 * LANE, p += 3 * LANE) {
			uint64_t b = 0, c = 0, x, y, z;

			for (size_t i = 0; i < LANE; i += 8) {
				memcpy(&x, p + i, 8);
				memcpy(&y, p + LANE + i, 8);
				memcpy(&z, p + 2 * LANE + i, 8);
				a = __builtin_ia32_crc32di(a, x);
				b = __builtin_ia32_crc32di(b, y);
				c = __builtin_ia32_crc32di(c, z);
			}
			a = multiply(shift, (uint32_t)a) ^ (uint32_t)b;
			a = multiply(shift, (uint32_t)a) ^ (uint32_t)c;
		}
	}
	for (; bytes >= 8; bytes -= 8, p += 8) {
		memcpy(&word, p, 8);
		a = __builtin_ia32_crc32di(a, word);
	}
	for (; bytes; bytes--)
		a = __builtin_ia32_crc32qi((uint32_t)a, *p++);
	return ~(uint32_t)a;
}

#define FOLD 256 /* bytes at once, in four registers */

/*
 * Carry-less products fold the message: what is FOLD bytes further to the left is worth x^(8 FOLD)
 * times as much, so each register is multiplied by that, modulo the polynomial, and added to what
 * follows. A product of reflected halves comes out multiplied by x, and constants of 32 bits lie x^32
 * too high in their halves. The last registers are a message with the same remainder.
 */
__attribute__((target("avx512f,vpclmulqdq"))) static uint32_t
crc32c_avx512(uint32_t crc, const void *data, size_t bytes)
{
	const uint64_t left = power_of_x(8 * FOLD + 31), right = power_of_x(8 * FOLD - 33);
	const __m512i k = _mm512_broadcast_i32x4(_mm_set_epi64x((int64_t)right, (int64_t)left));
	const unsigned char *p = data;
	_Alignas(64) unsigned char rest[FOLD];
	__m512i x[4];

	for (int i = 0; i < 4; i++)
		x[i] = _mm512_loadu_si512(p + i * 64);
	x[0] = _mm512_xor_si512(x[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)~crc)));
	for (p += FOLD, bytes -= FOLD; bytes >= FOLD; p += FOLD, bytes -= FOLD)
		for (int i = 0; i < 4; i++)
			x[i] = _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(x[i], k, 0x00),
							 _mm512_clmulepi64_epi128(x[i], k, 0x11),
							 _mm512_loadu_si512(p + i * 64), 0x96);
	for (int i = 0; i < 4; i++)
		_mm512_store_si512(rest + i * 64, x[i]);
	return crc32c_sse42(crc32c_sse42(~0u, rest, FOLD), p, bytes);
}

static uint32_t crc32c_best(uint32_t crc, const void *data, size_t bytes)
{
	if (bytes >= 4 * FOLD && __builtin_cpu_supports("avx512f") &&
	    __builtin_cpu_supports("vpclmulqdq"))
		return crc32c_avx512(crc, data, bytes);
	return crc32c_sse42(crc, data, bytes);
}

uint32_t crc32c(uint32_t crc, const void *data, size_t bytes)
{
	if (__builtin_cpu_supports("sse4.2"))
		return crc32c_best(crc, data, bytes);
	return crc32c_portable(crc, data, bytes);
}
#else
uint32_t crc32c(uint32_t crc, const void *data, size_t bytes)
{
	return crc32c_portable(crc, data, bytes);
}
#endif
