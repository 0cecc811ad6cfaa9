// SPDX-License-Identifier: MIT
#include "crc32c.h"

#include <pthread.h>
#include <string.h>

#define POLYNOMIAL 0x82f63b78u

/* table[n][b]: what byte b does to the sum when n more bytes follow it in a group of 8. */
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

uint32_t cm_crc32c(uint32_t crc, const void *data, size_t bytes)
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
