// SPDX-License-Identifier: MIT
#include "bpe.h"
#include "utf8.h"

#include <errno.h>
#include <stdio.h>
#include <sys/random.h>

/* Up to this many symbols, searching all pairs for the best one is faster than a heap. */
#define SMALL 48

#define SPACE_MARK     "\xE2\x96\x81" /* U+2581, SentencePiece's space */
#define SPACE_MARK_LEN 3

/* Limit of bpe_join_words(). */
#define MAX_JOINS (16u << 20)

static inline uint32_t merge_slot(const struct bpe *bpe, uint64_t pair)
{
	return (uint32_t)string_hash_mix(pair ^ bpe->merge_seed, 0x9E3779B97F4A7C15ull) &
	       bpe->merge_mask;
}

static inline uint64_t pair_key(uint32_t left, uint32_t right)
{
	return (uint64_t)left << 21 | right;
}

/* The rank of merging @left with @right, or BPE_NONE. */
static inline uint32_t merge_rank(const struct bpe *bpe, uint32_t left, uint32_t right)
{
	uint64_t pair = pair_key(left, right);

	for (uint32_t i = merge_slot(bpe, pair);; i = (i + 1) & bpe->merge_mask) {
		uint64_t entry = bpe->merges[i];

		if (entry == UINT64_MAX)
			return BPE_NONE;
		if (entry >> 22 == pair)
			return (uint32_t)entry & BPE_RANK_LIMIT;
	}
}

int bpe_init(struct bpe *bpe, uint32_t n_merges)
{
	uint32_t n_slots = 16;

	while (n_slots < n_merges + n_merges / 2)
		n_slots *= 2;
	if (getrandom(&bpe->merge_seed, sizeof(bpe->merge_seed), GRND_NONBLOCK) !=
	    sizeof(bpe->merge_seed))
		bpe->merge_seed = (uintptr_t)bpe;
	bpe->merge_mask = n_slots - 1;
	bpe->merges = malloc(n_slots * sizeof(*bpe->merges));
	bpe->merged = malloc((n_merges ? n_merges : 1) * sizeof(*bpe->merged));
	if (!bpe->merges || !bpe->merged)
		return -ENOMEM;
	memset(bpe->merges, 0xFF, n_slots * sizeof(*bpe->merges));
	return 0;
}

static void set_merge(struct bpe *bpe, uint32_t left, uint32_t right, uint32_t rank)
{
	uint64_t pair = pair_key(left, right);
	uint32_t i = merge_slot(bpe, pair);

	while (bpe->merges[i] != UINT64_MAX && bpe->merges[i] >> 22 != pair)
		i = (i + 1) & bpe->merge_mask;
	bpe->merges[i] = pair << 22 | rank;
}

void bpe_add_merge(struct bpe *bpe, uint32_t left, uint32_t right, uint32_t merged)
{
	set_merge(bpe, left, right, bpe->n_merges);
	bpe->merged[bpe->n_merges++] = merged;
}

/*
 * Finds the pairs of words that together are a word; with @add they become merges. Returns their
 * number.
 */
static uint32_t join_words(struct bpe *bpe, bool add)
{
	const struct string_table *table = bpe->words.table;
	uint32_t n = 0;

	for (uint32_t id = 0; id < table->n && n <= MAX_JOINS; id++) {
		uint32_t len = string_table_has(table, id) ? table->len[id] : 0, left, right;
		const char *word = table->text.data + (len ? table->off[id] : 0);

		for (uint32_t cut = 1; cut < len; cut++) {
			left = string_index_find(&bpe->words, word, cut);
			if (left == BPE_NONE)
				continue;
			right = string_index_find(&bpe->words, word + cut, len - cut);
			if (right == BPE_NONE)
				continue;
			if (add)
				set_merge(bpe, left, right, id);
			n++;
		}
	}
	return n;
}

int bpe_join_words(struct bpe *bpe)
{
	uint32_t n = join_words(bpe, false), words = bpe->words.table->n;
	int ret;

	if (n > MAX_JOINS)
		return -E2BIG;
	ret = bpe_init(bpe, n > words ? n : words);
	if (ret)
		return ret;
	for (uint32_t id = 0; id < words; id++)
		bpe->merged[id] = id;
	join_words(bpe, true);
	return 0;
}

/* Whether @word has a space mark after anything but another space mark. */
static bool space_mark_inside(const char *word, size_t len)
{
	for (size_t i = 1; i + SPACE_MARK_LEN <= len; i++) {
		if (memcmp(word + i, SPACE_MARK, SPACE_MARK_LEN))
			continue;
		if (i < SPACE_MARK_LEN ||
		    memcmp(word + i - SPACE_MARK_LEN, SPACE_MARK, SPACE_MARK_LEN))
			return true;
	}
	return false;
}

int bpe_finish(struct bpe *bpe)
{
	const struct string_table *table = bpe->words.table;
	char name[8];

	for (unsigned i = 0; i < 256; i++) {
		char c = (char)i;
		int n = snprintf(name, sizeof(name), "<0x%02X>", i);

		bpe->byte_token[i] = string_index_find(&bpe->words, name, (size_t)n);
		bpe->symbol[i] = BPE_NONE;
		if (bpe->byte_level || i < 0x80)
			bpe->symbol[i] = string_index_find(&bpe->words, &c, 1);
	}
	for (uint32_t i = 0; i < table->n + table->n_aliases; i++)
		if (table->len[i] > bpe->max_word)
			bpe->max_word = table->len[i];
	bpe->cut_at_space_mark =
		!bpe->byte_level && !bpe->ignore_merges && !table->n_aliases &&
		string_index_find(&bpe->words, SPACE_MARK, SPACE_MARK_LEN) != BPE_NONE;
	for (uint32_t i = 0; bpe->cut_at_space_mark && i < bpe->n_merges; i++)
		if (space_mark_inside(table->text.data + table->off[bpe->merged[i]],
				      table->len[bpe->merged[i]]))
			bpe->cut_at_space_mark = false;
	bpe->whole = calloc(table->n ? table->n : 1, sizeof(*bpe->whole));
	return bpe->whole ? 0 : -ENOMEM;
}

void bpe_free(struct bpe *bpe)
{
	string_index_free(&bpe->words);
	free(bpe->merges);
	free(bpe->merged);
	free(bpe->whole);
}

void bpe_scratch_free(struct bpe_scratch *scratch)
{
	free(scratch->symbols);
	free(scratch->block);
}

/* Merges @n <= SMALL symbols in place; returns how many remain. */
static size_t merge_small(const struct bpe *bpe, uint32_t *symbols, size_t n)
{
	uint32_t ranks[SMALL]; /* of symbol i with symbol i + 1 */

	for (size_t i = 0; i + 1 < n; i++)
		ranks[i] = merge_rank(bpe, symbols[i], symbols[i + 1]);
	while (n > 1) {
		uint32_t best = BPE_NONE;
		size_t at = 0;

		for (size_t i = 0; i + 1 < n; i++) {
			if (ranks[i] < best) {
				best = ranks[i];
				at = i;
			}
		}
		if (best == BPE_NONE)
			break;
		symbols[at] = bpe->merged[best];
		n--;
		for (size_t i = at + 1; i < n; i++) {
			symbols[i] = symbols[i + 1];
			ranks[i - 1] = ranks[i];
		}
		if (at + 1 < n)
			ranks[at] = merge_rank(bpe, symbols[at], symbols[at + 1]);
		if (at)
			ranks[at - 1] = merge_rank(bpe, symbols[at - 1], symbols[at]);
	}
	return n;
}

/* A min-heap of (rank << 32 | position): equal ranks merge from left to right. */
struct heap {
	uint64_t *items;
	size_t n;
};

static void heap_down(struct heap *heap, size_t at)
{
	uint64_t item = heap->items[at];

	for (;;) {
		size_t child = 2 * at + 1;

		if (child >= heap->n)
			break;
		if (child + 1 < heap->n && heap->items[child + 1] < heap->items[child])
			child++;
		if (heap->items[child] >= item)
			break;
		heap->items[at] = heap->items[child];
		at = child;
	}
	heap->items[at] = item;
}

static void heap_push(struct heap *heap, uint64_t item)
{
	size_t at = heap->n++;

	while (at && heap->items[(at - 1) / 2] > item) {
		heap->items[at] = heap->items[(at - 1) / 2];
		at = (at - 1) / 2;
	}
	heap->items[at] = item;
}

static uint64_t heap_pop(struct heap *heap)
{
	uint64_t top = heap->items[0];

	heap->items[0] = heap->items[--heap->n];
	if (heap->n)
		heap_down(heap, 0);
	return top;
}

/* Symbols as a doubly linked list; `rank` is that of the pair that starts at the node. */
struct node {
	uint32_t prev, next; /* UINT32_MAX: none */
	uint32_t rank;
};

static void rank_pair(const struct bpe *bpe, const uint32_t *symbols, struct node *nodes,
		      struct heap *heap, uint32_t at)
{
	uint32_t next = nodes[at].next;

	nodes[at].rank =
		next == UINT32_MAX ? BPE_NONE : merge_rank(bpe, symbols[at], symbols[next]);
	if (nodes[at].rank != BPE_NONE)
		heap_push(heap, (uint64_t)nodes[at].rank << 32 | at);
}

static void *scratch_block(struct bpe_scratch *scratch, size_t size)
{
	if (size > scratch->block_size) {
		free(scratch->block);
		scratch->block = malloc(size);
		scratch->block_size = scratch->block ? size : 0;
	}
	return scratch->block;
}

/*
 * The same as merge_small() in O(n log n). Returns how many symbols remain, or 0 if out of memory.
 */
static size_t merge_large(const struct bpe *bpe, struct bpe_scratch *scratch, size_t n)
{
	uint32_t *symbols = scratch->symbols;
	struct heap heap = {0};
	struct node *nodes;
	size_t left = 0;

	/* Each merge removes one entry and adds two, at most n - 1 times. */
	heap.items = scratch_block(scratch, n * (3 * sizeof(*heap.items) + sizeof(*nodes)));
	if (!heap.items)
		return 0;
	nodes = (struct node *)(heap.items + 3 * n);
	for (uint32_t i = 0; i < n; i++) {
		nodes[i].prev = i ? i - 1 : UINT32_MAX;
		nodes[i].next = i + 1 < n ? i + 1 : UINT32_MAX;
		nodes[i].rank = i + 1 < n ? merge_rank(bpe, symbols[i], symbols[i + 1]) : BPE_NONE;
		if (nodes[i].rank != BPE_NONE)
			heap.items[heap.n++] = (uint64_t)nodes[i].rank << 32 | i;
	}
	for (size_t i = heap.n / 2; i-- > 0;)
		heap_down(&heap, i);
	while (heap.n) {
		uint64_t top = heap_pop(&heap);
		uint32_t at = (uint32_t)top, rank = (uint32_t)(top >> 32), right;

		/* The pair has changed since the entry was added. */
		if (nodes[at].rank != rank)
			continue;
		right = nodes[at].next;
		symbols[at] = bpe->merged[rank];
		nodes[right].rank = BPE_NONE;
		nodes[at].next = nodes[right].next;
		if (nodes[at].next != UINT32_MAX)
			nodes[nodes[at].next].prev = at;
		rank_pair(bpe, symbols, nodes, &heap, at);
		if (nodes[at].prev != UINT32_MAX)
			rank_pair(bpe, symbols, nodes, &heap, nodes[at].prev);
	}
	for (uint32_t i = 0; i != UINT32_MAX; i = nodes[i].next)
		symbols[left++] = symbols[i];
	return left;
}

static bool reserve_symbols(struct bpe_scratch *scratch, size_t n)
{
	uint32_t *symbols;

	if (n <= scratch->n_symbols)
		return true;
	n = n < 256 ? 256 : n;
	symbols = realloc(scratch->symbols, n * sizeof(*symbols));
	if (!symbols)
		return false;
	scratch->symbols = symbols;
	scratch->n_symbols = n;
	return true;
}

/*
 * The symbols of a byte-level word. Bytes that are not in the vocabulary are unknown, or left out.
 */
static size_t byte_symbols(const struct bpe *bpe, const uint8_t *word, size_t len,
			   uint32_t *symbols)
{
	size_t n = 0;
	bool unknown = false;

	for (size_t i = 0; i < len; i++) {
		uint32_t id = bpe->symbol[word[i]];

		if (id == BPE_NONE) {
			id = bpe->unk;
			if (id == BPE_NONE || (unknown && bpe->fuse_unk))
				continue;
			unknown = true;
		} else {
			unknown = false;
		}
		symbols[n++] = id;
	}
	return n;
}

/* Adds the bytes of a character as tokens; 0 if the vocabulary does not have all of them. */
static size_t fallback_symbols(const struct bpe *bpe, const uint8_t *bytes, unsigned len,
			       uint32_t *symbols)
{
	for (unsigned i = 0; i < len; i++) {
		symbols[i] = bpe->byte_token[bytes[i]];
		if (symbols[i] == BPE_NONE)
			return 0;
	}
	return len;
}

/*
 * The symbols of a word of characters. An unknown one is held back until a known one follows, as in
 * the reference library, where fallback bytes may precede it.
 */
static size_t char_symbols(const struct bpe *bpe, const uint8_t *word, size_t len,
			   uint32_t *symbols)
{
	bool waiting = false;
	size_t n = 0;
	unsigned size;

	for (size_t i = 0; i < len; i += size) {
		uint32_t id;

		utf8_decode(word + i, &size);
		id = size == 1 ? bpe->symbol[word[i]]
			       : string_index_find(&bpe->words, word + i, size);
		if (id != BPE_NONE) {
			if (waiting)
				symbols[n++] = bpe->unk;
			waiting = false;
			symbols[n++] = id;
			continue;
		}
		if (bpe->byte_fallback) {
			size_t bytes = fallback_symbols(bpe, word + i, size, symbols + n);

			n += bytes;
			if (bytes)
				continue;
		}
		if (bpe->unk == BPE_NONE)
			continue;
		if (waiting && !bpe->fuse_unk)
			symbols[n++] = bpe->unk;
		waiting = true;
	}
	if (waiting)
		symbols[n++] = bpe->unk;
	return n;
}

static int encode_symbols(const struct bpe *bpe, struct bpe_scratch *scratch, const char *word,
			  size_t len, struct id_vec *out)
{
	size_t n;

	/* Room for more than the bytes: a failing fallback may write ahead. */
	if (!reserve_symbols(scratch, len + 4))
		return -ENOMEM;
	n = bpe->byte_level ? byte_symbols(bpe, (const uint8_t *)word, len, scratch->symbols)
			    : char_symbols(bpe, (const uint8_t *)word, len, scratch->symbols);
	if (!n)
		return 0;
	n = n <= SMALL ? merge_small(bpe, scratch->symbols, n) : merge_large(bpe, scratch, n);
	if (!n || !id_vec_reserve(out, n))
		return -ENOMEM;
	memcpy(out->data + out->len, scratch->symbols, n * sizeof(*out->data));
	out->len += n;
	return 0;
}

static int encode_word(const struct bpe *bpe, struct bpe_scratch *scratch, const char *word,
		       size_t len, struct id_vec *out)
{
	size_t before = out->len;
	uint32_t id = BPE_NONE;
	uint8_t whole;
	int ret;

	if (len <= bpe->max_word)
		id = string_index_find(&bpe->words, word, len);
	if (id == BPE_NONE)
		return encode_symbols(bpe, scratch, word, len, out);
	whole = atomic_load_explicit(&bpe->whole[id], memory_order_relaxed);
	if (whole == BPE_WHOLE_YES || bpe->ignore_merges)
		return id_vec_push(out, id) ? 0 : -ENOMEM;
	ret = encode_symbols(bpe, scratch, word, len, out);
	if (!ret && whole == BPE_WHOLE_UNKNOWN && !bpe->words.table->n_aliases) {
		whole = out->len == before + 1 && out->data[before] == id ? BPE_WHOLE_YES
									  : BPE_WHOLE_NO;
		atomic_store_explicit(&bpe->whole[id], whole, memory_order_relaxed);
	}
	return ret;
}

/* The next position after @at where a space mark follows something else, or @len. */
static size_t next_cut(const char *text, size_t at, size_t len)
{
	while (at + SPACE_MARK_LEN <= len && !memcmp(text + at, SPACE_MARK, SPACE_MARK_LEN))
		at += SPACE_MARK_LEN;
	for (; at < len; at++) {
		const char *lead = memchr(text + at, SPACE_MARK[0], len - at);

		if (!lead || (size_t)(text + len - lead) < SPACE_MARK_LEN)
			return len;
		at = (size_t)(lead - text);
		if (!memcmp(lead, SPACE_MARK, SPACE_MARK_LEN))
			return at;
	}
	return len;
}

int bpe_encode(const struct bpe *bpe, struct bpe_scratch *scratch, const char *word, size_t len,
	       struct id_vec *out)
{
	size_t start = 0;

	if (!bpe->cut_at_space_mark)
		return len ? encode_word(bpe, scratch, word, len, out) : 0;
	while (start < len) {
		size_t end = next_cut(word, start, len);
		int ret = encode_word(bpe, scratch, word + start, end - start, out);

		if (ret)
			return ret;
		start = end;
	}
	return 0;
}
