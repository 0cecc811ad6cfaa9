// SPDX-License-Identifier: MIT
#include "kv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define NONE UINT32_MAX

struct kv_block {
	uint32_t refs;
	uint32_t prev, next; /* free queue, while refs is 0 */
	uint32_t chain;	     /* next block of the same hash bucket, while serial is not 0 */
	uint64_t serial;     /* 0: holds nothing to use again */
	uint64_t parent;
	uint64_t hash;
	uint64_t owner;
};

struct kv {
	unsigned n_blocks, block_size;
	unsigned n_free;
	uint32_t head, tail; /* free queue */
	uint64_t next_serial;
	uint64_t secret;   /* keys the hash: clients choose the tokens */
	uint32_t *buckets; /* [n_buckets], a power of two */
	unsigned n_buckets;
	int32_t *tokens; /* [n_blocks, block_size], of committed blocks */
	struct kv_block blocks[];
};

static uint64_t mix(uint64_t x)
{
	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93ull;
	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93ull;
	x ^= x >> 32;
	return x;
}

uint64_t kv_hash(const struct kv *kv, uint64_t owner, uint64_t before, const int32_t *tokens)
{
	uint64_t h = mix(kv->secret ^ before) + owner;

	for (unsigned i = 0; i < kv->block_size; i++)
		h = mix(h ^ (uint32_t)tokens[i]) + kv->secret;
	return h;
}

static void queue_remove(struct kv *kv, uint32_t b)
{
	struct kv_block *block = &kv->blocks[b];

	if (block->prev == NONE)
		kv->head = block->next;
	else
		kv->blocks[block->prev].next = block->next;
	if (block->next == NONE)
		kv->tail = block->prev;
	else
		kv->blocks[block->next].prev = block->prev;
	kv->n_free--;
}

/* Blocks that hold nothing to use @again go to the head: they are taken first. */
static void queue_add(struct kv *kv, uint32_t b, bool again)
{
	struct kv_block *block = &kv->blocks[b];

	if (block->serial && again) {
		block->prev = kv->tail;
		block->next = NONE;
		if (kv->tail == NONE)
			kv->head = b;
		else
			kv->blocks[kv->tail].next = b;
		kv->tail = b;
	} else {
		block->prev = NONE;
		block->next = kv->head;
		if (kv->head == NONE)
			kv->tail = b;
		else
			kv->blocks[kv->head].prev = b;
		kv->head = b;
	}
	kv->n_free++;
}

static void forget(struct kv *kv, uint32_t b)
{
	struct kv_block *block = &kv->blocks[b];
	uint32_t *link = &kv->buckets[block->hash & (kv->n_buckets - 1)];

	while (*link != b)
		link = &kv->blocks[*link].chain;
	*link = block->chain;
	block->serial = 0;
}

static uint32_t find(const struct kv *kv, uint64_t hash, uint64_t owner, uint64_t parent,
		     const int32_t *tokens)
{
	uint32_t b = kv->buckets[hash & (kv->n_buckets - 1)];

	for (; b != NONE; b = kv->blocks[b].chain) {
		const struct kv_block *block = &kv->blocks[b];

		if (block->hash == hash && block->parent == parent && block->owner == owner &&
		    !memcmp(kv->tokens + (size_t)b * kv->block_size, tokens,
			    kv->block_size * sizeof(*tokens)))
			break;
	}
	return b;
}

int kv_new(unsigned n_blocks, unsigned block_size, struct kv **ret)
{
	struct timespec now;
	struct kv *kv;

	if (!n_blocks || n_blocks >= NONE / 2 || !block_size)
		return -EINVAL;
	kv = calloc(1, sizeof(*kv) + n_blocks * sizeof(kv->blocks[0]));
	if (!kv)
		return -ENOMEM;
	kv->n_blocks = n_blocks;
	kv->block_size = block_size;
	kv->head = kv->tail = NONE;
	kv->next_serial = 1;
	if (getrandom(&kv->secret, sizeof(kv->secret), GRND_NONBLOCK) != sizeof(kv->secret)) {
		clock_gettime(CLOCK_REALTIME, &now);
		kv->secret = mix((uint64_t)now.tv_nsec << 32 ^ (uint64_t)now.tv_sec);
	}
	for (kv->n_buckets = 1; kv->n_buckets < n_blocks; kv->n_buckets *= 2)
		;
	kv->buckets = malloc(kv->n_buckets * sizeof(*kv->buckets));
	kv->tokens = calloc(n_blocks, block_size * sizeof(*kv->tokens));
	if (!kv->buckets || !kv->tokens) {
		kv_free(kv);
		return -ENOMEM;
	}
	memset(kv->buckets, 0xff, kv->n_buckets * sizeof(*kv->buckets));
	for (uint32_t b = n_blocks; b-- > 0;)
		queue_add(kv, b, false);
	*ret = kv;
	return 0;
}

void kv_free(struct kv *kv)
{
	if (!kv)
		return;
	free(kv->buckets);
	free(kv->tokens);
	free(kv);
}

unsigned kv_blocks(const struct kv *kv)
{
	return kv->n_blocks;
}

unsigned kv_block_size(const struct kv *kv)
{
	return kv->block_size;
}

unsigned kv_free_blocks(const struct kv *kv)
{
	return kv->n_free;
}

bool kv_alloc(struct kv *kv, uint32_t *ret_block)
{
	uint32_t b = kv->head;

	if (b == NONE)
		return false;
	queue_remove(kv, b);
	if (kv->blocks[b].serial)
		forget(kv, b);
	kv->blocks[b].refs = 1;
	*ret_block = b;
	return true;
}

void kv_share(struct kv *kv, const uint32_t *blocks, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		kv->blocks[blocks[i]].refs++;
}

void kv_release(struct kv *kv, const uint32_t *blocks, unsigned n, bool again)
{
	for (unsigned i = 0; i < n; i++) {
		uint32_t b = blocks[again ? n - 1 - i : i];

		if (!--kv->blocks[b].refs)
			queue_add(kv, b, again);
	}
}

unsigned kv_own_blocks(const struct kv *kv, const uint32_t *blocks, unsigned n)
{
	unsigned own = 0;

	while (n--)
		own += kv->blocks[blocks[n]].refs == 1;
	return own;
}

void kv_commit(struct kv *kv, uint32_t b, uint64_t owner, struct kv_chain *chain,
	       const int32_t *tokens)
{
	struct kv_block *block = &kv->blocks[b];
	uint64_t hash = kv_hash(kv, owner, chain->hash, tokens), parent = chain->serial;
	uint32_t same = find(kv, hash, owner, parent, tokens);

	if (same != NONE) {
		*chain = (struct kv_chain){kv->blocks[same].serial, hash};
		return;
	}
	if (block->serial)
		forget(kv, b);
	block->serial = kv->next_serial++;
	block->parent = parent;
	block->owner = owner;
	block->hash = hash;
	block->chain = kv->buckets[hash & (kv->n_buckets - 1)];
	kv->buckets[hash & (kv->n_buckets - 1)] = b;
	memcpy(kv->tokens + (size_t)b * kv->block_size, tokens, kv->block_size * sizeof(*tokens));
	*chain = (struct kv_chain){block->serial, hash};
}

bool kv_match(struct kv *kv, uint64_t owner, struct kv_chain *chain, uint64_t hash,
	      const int32_t *tokens, uint32_t *ret_block)
{
	uint32_t b = find(kv, hash, owner, chain->serial, tokens);

	if (b == NONE)
		return false;
	if (!kv->blocks[b].refs++)
		queue_remove(kv, b);
	*ret_block = b;
	*chain = (struct kv_chain){kv->blocks[b].serial, hash};
	return true;
}

bool kv_check(const struct kv *kv)
{
	unsigned free_blocks = 0, committed = 0, indexed = 0, queued = 0;
	uint32_t last = NONE;

	for (uint32_t b = 0; b < kv->n_blocks; b++) {
		free_blocks += !kv->blocks[b].refs;
		committed += kv->blocks[b].serial != 0;
	}
	for (uint32_t b = kv->head; b != NONE && queued <= kv->n_blocks; b = kv->blocks[b].next) {
		if (kv->blocks[b].refs || kv->blocks[b].prev != last)
			return false;
		last = b;
		queued++;
	}
	for (unsigned i = 0; i < kv->n_buckets; i++) {
		for (uint32_t b = kv->buckets[i]; b != NONE && indexed <= committed;
		     b = kv->blocks[b].chain)
			indexed++;
	}
	return free_blocks == kv->n_free && queued == kv->n_free && last == kv->tail &&
	       indexed == committed;
}
