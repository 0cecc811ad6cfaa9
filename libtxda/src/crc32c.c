// SPDX-License-Identifier: MIT
#include <string.h>

#include "crc32c.h"

#define POLYNOMIAL 0x82f63b78u

/* Four bits at a time: the table is small and needs no set-up. */
static const uint32_t nibble[16] = {
	0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
	0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
	0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
};

uint32_t txda__crc32c_portable(uint32_t crc, const void *data, size_t bytes)
{
	const unsigned char *p = data;

	crc = ~crc;
	for (size_t i = 0; i < bytes; i++) {
		crc ^= p[i];
		crc = crc >> 4 ^ nibble[crc & 15];
		crc = crc >> 4 ^ nibble[crc & 15];
	}
	return ~crc;
}

#if defined(__x86_64__)
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

/* x^(8 * bytes): what appending @bytes zeros multiplies a CRC with. */
static uint32_t shift_by(size_t bytes)
{
	uint32_t result = 1u << 31, power = 1u << 23; /* x^0, x^8 */

	for (; bytes; bytes >>= 1) {
		if (bytes & 1)
			result = multiply(power, result);
		power = multiply(power, power);
	}
	return result;
}

#define LANE 4096

/*
 * The instruction takes three cycles but a new one starts in each, so three runs go side by side.
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

uint32_t txda__crc32c(uint32_t crc, const void *data, size_t bytes)
{
	if (__builtin_cpu_supports("sse4.2"))
		return crc32c_sse42(crc, data, bytes);
	return txda__crc32c_portable(crc, data, bytes);
}
#else
uint32_t txda__crc32c(uint32_t crc, const void *data, size_t bytes)
{
	return txda__crc32c_portable(crc, data, bytes);
}
#endif
