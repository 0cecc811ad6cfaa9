/* SPDX-License-Identifier: MIT */
/*
 * SHA-256 (FIPS 180-4), for example for keys of the compile cache, for which a hostile model must
 * not be able to produce collisions.
 */
#ifndef TXDA_BASE_SHA256_H
#define TXDA_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

struct sha256 {
	uint32_t state[8];
	uint64_t bytes;
	uint8_t block[64];
};

void sha256_init(struct sha256 *h);
void sha256_update(struct sha256 *h, const void *data, size_t bytes);
/*
 * Adds a string preceded by its length, so that the boundaries of adjacent strings are part of the
 * hash.
 */
void sha256_string(struct sha256 *h, const char *text);
void sha256_u64(struct sha256 *h, uint64_t value);
void sha256_final(struct sha256 *h, uint8_t digest[32]);
/* The first 128 bits as hex, NUL-terminated. */
void sha256_hex128(struct sha256 *h, char hex[33]);

#endif /* TXDA_BASE_SHA256_H */
