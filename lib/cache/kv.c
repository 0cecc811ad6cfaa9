// SPDX-License-Identifier: MIT
#include "kv_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define NONE KV_NONE

static uint64_t mix(uint64_t x)
{
	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93ull;
	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93ull;
	x ^= x >> 32;
	return x;
}

uint64_t kv_hash(const struct kv *kv, uint64_t owner, uint64_t before, const int32_t *key)
{
	uint64_t h = mix(kv->secret ^ before) + owner;

	for (unsigned i = 0; i < kv->layout.key_words; i++)
		h = mix(h ^ (uint32_t)key[i]) + kv->secret;
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

/*
 * Blocks whose contents will not be used @again go to the head of the queue: they are allocated
 * first.
 */
static void queue_add(struct kv *kv, uint32_t b, bool again)
{
	struct kv_block *block = &kv->blocks[b];

	if (again && (block->indexed || block->committed != NONE)) {
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

static void detach(struct kv *kv, uint32_t b)
{
	uint32_t *first = kv_attachment(kv, kv->blocks[b].committed, kv->blocks[b].group);

	for (uint32_t at = *first; at != NONE; at = kv->blocks[at].chain)
		kv->blocks[at].committed = NONE;
	*first = NONE;
}

static void forget(struct kv *kv, uint32_t b)
{
	struct kv_block *block = &kv->blocks[b];
	uint32_t *link = &kv->buckets[block->hash & (kv->n_buckets - 1)];

	while (*link != b)
		link = &kv->blocks[*link].chain;
	*link = block->chain;
	block->indexed = false;
	for (unsigned g = 1; g <= kv->n_attached; g++) {
		if (*kv_attachment(kv, b, g) != NONE)
			detach(kv, *kv_attachment(kv, b, g));
	}
}

static uint32_t find(const struct kv *kv, uint64_t hash, uint64_t owner, uint64_t parent,
		     const int32_t *key)
{
	uint32_t b = kv->buckets[hash & (kv->n_buckets - 1)];

	for (; b != NONE; b = kv->blocks[b].chain) {
		const struct kv_block *block = &kv->blocks[b];

		if (block->hash == hash && block->parent == parent && block->owner == owner &&
		    !memcmp(kv->keys + (size_t)b * kv->layout.key_words, key,
			    kv->layout.key_words * sizeof(*key)))
			break;
	}
	return b;
}

unsigned kv_layout_window(const struct kv_layout *l, unsigned group)
{
	uint64_t positions = (uint64_t)l->reach[group] + l->ahead;

	/*
	 * The first of them may be the end of its block, and a block is released only when it is
	 * full.
	 */
	return l->reach[group] ? (unsigned)((positions + l->block_size - 1) / l->block_size) + 2
			       : 0;
}

/* Blocks of a group that a sequence holds at once for @blocks blocks of positions. */
static unsigned at_once(const struct kv_layout *l, unsigned group, unsigned blocks)
{
	unsigned most = kv_layout_window(l, group);

	return most && most < blocks ? most : blocks;
}

uint64_t kv_layout_need(const struct kv_layout *l, unsigned tokens)
{
	unsigned blocks = tokens / l->block_size + (tokens % l->block_size != 0);
	uint64_t need = at_once(l, 0, blocks);

	for (unsigned g = 1; g < l->n_groups; g++)
		need += at_once(l, g, blocks);
	/* The snapshot that it continues from, and the state after it. */
	return need + 2ull * l->state_blocks;
}

unsigned kv_layout_fit(const struct kv_layout *l, unsigned n_blocks)
{
	unsigned low = 0, high = l->max_blocks;

	if (high > UINT32_MAX / l->block_size)
		high = UINT32_MAX / l->block_size;
	while (low < high) {
		unsigned mid = high - (high - low) / 2;

		if (kv_layout_need(l, mid * l->block_size) <= n_blocks)
			low = mid;
		else
			high = mid - 1;
	}
	return low * l->block_size;
}

int kv_new(unsigned n_blocks, const struct kv_layout *layout, struct kv **ret)
{
	struct timespec now;
	size_t n_attached;
	struct kv *kv;

	if (!n_blocks || n_blocks >= NONE / 2 || !layout->block_size ||
	    layout->key_words < layout->block_size || layout->n_groups > KV_MAX_GROUPS)
		return -EINVAL;
	kv = calloc(1, sizeof(*kv) + n_blocks * sizeof(kv->blocks[0]));
	if (!kv)
		return -ENOMEM;
	kv->layout = *layout;
	if (!kv->layout.n_groups)
		kv->layout.n_groups = 1;
	kv->n_blocks = n_blocks;
	kv->head = kv->tail = NONE;
	if (getrandom(&kv->secret, sizeof(kv->secret), GRND_NONBLOCK) != sizeof(kv->secret)) {
		clock_gettime(CLOCK_REALTIME, &now);
		kv->secret = mix((uint64_t)now.tv_nsec << 32 ^ (uint64_t)now.tv_sec);
	}
	for (kv->n_buckets = 1; kv->n_buckets < n_blocks; kv->n_buckets *= 2)
		;
	kv->buckets = malloc(kv->n_buckets * sizeof(*kv->buckets));
	kv->keys = calloc(n_blocks, layout->key_words * sizeof(*kv->keys));
	kv->n_attached = kv->layout.n_groups - 1 + (layout->state_blocks != 0);
	n_attached = (size_t)n_blocks * kv->n_attached;
	kv->attached = malloc((n_attached + 1) * sizeof(*kv->attached));
	if (!kv->buckets || !kv->keys || !kv->attached) {
		kv_free(kv);
		return -ENOMEM;
	}
	memset(kv->buckets, 0xff, kv->n_buckets * sizeof(*kv->buckets));
	memset(kv->attached, 0xff, n_attached * sizeof(*kv->attached));
	for (uint32_t b = n_blocks; b-- > 0;) {
		kv->blocks[b].committed = NONE;
		queue_add(kv, b, false);
	}
	*ret = kv;
	return 0;
}

void kv_free(struct kv *kv)
{
	if (!kv)
		return;
	free(kv->buckets);
	free(kv->keys);
	free(kv->attached);
	free(kv);
}

unsigned kv_blocks(const struct kv *kv)
{
	return kv->n_blocks;
}

unsigned kv_block_size(const struct kv *kv)
{
	return kv->layout.block_size;
}

unsigned kv_key_words(const struct kv *kv)
{
	return kv->layout.key_words;
}

unsigned kv_free_blocks(const struct kv *kv)
{
	return kv->n_free;
}

const struct kv_layout *kv_layout(const struct kv *kv)
{
	return &kv->layout;
}

unsigned kv_used_blocks(const struct kv *kv, unsigned group)
{
	return kv->used[group];
}

bool kv_alloc(struct kv *kv, unsigned group, uint32_t *ret_block)
{
	uint32_t b = kv->head;
	struct kv_block *block;

	if (b == NONE)
		return false;
	block = &kv->blocks[b];
	queue_remove(kv, b);
	if (block->indexed)
		forget(kv, b);
	if (block->committed != NONE)
		detach(kv, b);
	block->refs = 1;
	block->group = (uint8_t)group;
	kv->used[group]++;
	*ret_block = b;
	return true;
}

void kv_take(struct kv *kv, uint32_t b)
{
	struct kv_block *block = &kv->blocks[b];

	if (block->refs++)
		return;
	queue_remove(kv, b);
	kv->used[block->group]++;
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

		if (--kv->blocks[b].refs)
			continue;
		kv->used[kv->blocks[b].group]--;
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

uint32_t kv_commit(struct kv *kv, uint32_t b, uint64_t owner, struct kv_chain *chain,
		   const int32_t *key)
{
	struct kv_block *block = &kv->blocks[b];
	uint64_t hash = kv_hash(kv, owner, chain->hash, key), parent = chain->hash;
	uint32_t same = find(kv, hash, owner, parent, key);

	*chain = (struct kv_chain){hash, same};
	if (same == b)
		return b;
	if (same != NONE) {
		kv_take(kv, same);
		kv_release(kv, &b, 1, false);
		return same;
	}
	if (block->indexed)
		forget(kv, b);
	block->indexed = true;
	block->parent = parent;
	block->owner = owner;
	block->hash = hash;
	block->chain = kv->buckets[hash & (kv->n_buckets - 1)];
	kv->buckets[hash & (kv->n_buckets - 1)] = b;
	memcpy(kv->keys + (size_t)b * kv->layout.key_words, key,
	       kv->layout.key_words * sizeof(*key));
	chain->block = b;
	return b;
}

bool kv_match(struct kv *kv, uint64_t owner, struct kv_chain *chain, uint64_t hash,
	      const int32_t *key, uint32_t *ret_block)
{
	uint32_t b = find(kv, hash, owner, chain->hash, key);

	if (b == NONE)
		return false;
	kv_take(kv, b);
	*ret_block = b;
	*chain = kv_chain_at(kv, b);
	return true;
}

struct kv_chain kv_chain_at(const struct kv *kv, uint32_t b)
{
	return (struct kv_chain){kv->blocks[b].hash, b};
}

void kv_attach(struct kv *kv, uint32_t committed, unsigned group, const uint32_t *blocks,
	       unsigned n)
{
	uint32_t *link = kv_attachment(kv, committed, group);

	if (*link != NONE)
		return;
	for (unsigned i = 0; i < n; i++) {
		struct kv_block *block = &kv->blocks[blocks[i]];

		if (block->committed != NONE)
			detach(kv, blocks[i]);
		block->committed = committed;
		*link = blocks[i];
		link = &block->chain;
	}
	*link = NONE;
}

bool kv_attached(const struct kv *kv, uint32_t committed, unsigned group, uint32_t *blocks,
		 unsigned n)
{
	uint32_t at = *kv_attachment(kv, committed, group);

	if (at == NONE)
		return false;
	for (unsigned i = 0; blocks && i < n; i++, at = kv->blocks[at].chain)
		blocks[i] = at;
	return true;
}
