/* SPDX-License-Identifier: MIT */
/* Fast hashes, the same on all machines; use sha256.h where an attacker may choose the keys. */
#ifndef TXDA_BASE_HASH_H
#define TXDA_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define HASH_FNV1A  0xcbf29ce484222325ull /* initial value */
#define HASH_GOLDEN 0x9e3779b97f4a7c15ull /* 2^64 by the golden ratio: steps of splitmix64 */

/* FNV-1a, continued from @hash. */
static inline uint64_t hash_fnv1a(uint64_t hash, const void *data, size_t bytes)
{
	const unsigned char *p = data;

	for (size_t i = 0; i < bytes; i++)
		hash = (hash ^ p[i]) * 0x100000001b3ull;
	return hash;
}

/* A bijection that spreads each bit of @x over all bits: the finaliser of splitmix64 (S. Vigna). */
static inline uint64_t hash_spread(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

#endif /* TXDA_BASE_HASH_H */
