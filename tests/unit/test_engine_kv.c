// SPDX-License-Identifier: MIT

#include <errno.h>

#include "unit.h"
#include "kv_check.h"

#define BLOCK 4

static const int32_t tokens_a[BLOCK] = {1, 2, 3, 4}, tokens_b[BLOCK] = {5, 6, 7, 8};

static struct kv *kv;

static int open_kv(unsigned n_blocks, unsigned block_size, unsigned key_words)
{
	const struct kv_layout layout = {.block_size = block_size, .key_words = key_words};

	return kv_new(n_blocks, &layout, &kv);
}

/* All is in order, and everything has been given back. */
static int close_kv(void **state)
{
	if (kv) {
		assert_true(kv_check(kv));
		assert_int_equal(kv_free_blocks(kv), kv_blocks(kv));
	}
	kv_free(kv);
	kv = NULL;
	return 0;
}

static bool match(uint64_t owner, struct kv_chain *chain, const int32_t *tokens, uint32_t *block)
{
	return kv_match(kv, owner, chain, kv_hash(kv, owner, chain->hash, tokens), tokens, block);
}

/* The same for a first block, whose chain is of no interest. */
static bool match_first(uint64_t owner, const int32_t *tokens, uint32_t *block)
{
	return match(owner, &(struct kv_chain){0}, tokens, block);
}

TEST(refuses_nonsense)
{
	assert_int_equal(open_kv(0, BLOCK, BLOCK), -EINVAL);
	assert_int_equal(open_kv(8, 0, 0), -EINVAL);
	assert_int_equal(open_kv(UINT32_MAX, BLOCK, BLOCK), -EINVAL);
	assert_null(kv);
}

TEST(counts_references)
{
	uint32_t blocks[3], more;

	assert_int_equal(open_kv(3, BLOCK, BLOCK), 0);
	assert_int_equal(kv_free_blocks(kv), 3);
	for (unsigned i = 0; i < 3; i++)
		assert_true(kv_alloc(kv, 0, &blocks[i]));
	assert_false(kv_alloc(kv, 0, &more));
	assert_true(kv_check(kv));
	kv_release(kv, blocks, 3, true);
	assert_int_equal(kv_free_blocks(kv), 3);
}

/* A committed prefix is found after its sequence is gone, by the same owner only and only at the same
 * place. */
TEST(finds_prefixes)
{
	uint32_t blocks[2], found[2];
	struct kv_chain chain = {0}, second, at = {0};

	assert_int_equal(open_kv(4, BLOCK, BLOCK), 0);
	assert_true(kv_alloc(kv, 0, &blocks[0]) && kv_alloc(kv, 0, &blocks[1]));
	kv_commit(kv, blocks[0], 1000, &chain, tokens_a);
	second = chain;
	kv_commit(kv, blocks[1], 1000, &second, tokens_b);
	kv_release(kv, blocks, 2, true);
	assert_int_equal(kv_free_blocks(kv), 4);

	assert_false(match_first(1001, tokens_a, &found[0]));
	assert_false(match_first(1000, tokens_b, &found[0]));
	at = second;
	assert_false(match(1000, &at, tokens_b, &found[0]));
	at = (struct kv_chain){0};
	assert_true(match(1000, &at, tokens_a, &found[0]));
	assert_int_equal(at.hash, chain.hash);
	assert_true(match(1000, &at, tokens_b, &found[1]));
	assert_int_equal(at.hash, second.hash);
	assert_memory_equal(found, blocks, sizeof(blocks));
	assert_int_equal(kv_free_blocks(kv), 2);
	assert_true(kv_check(kv));
	kv_release(kv, found, 2, true);
}

/* Of two who computed the same the second one holds the first one's block, and its own is free. */
TEST(joins_equal_content)
{
	struct kv_chain chains[2] = {{0}};
	uint32_t blocks[2];

	assert_int_equal(open_kv(4, BLOCK, BLOCK), 0);
	assert_true(kv_alloc(kv, 0, &blocks[0]) && kv_alloc(kv, 0, &blocks[1]));
	assert_int_equal(kv_commit(kv, blocks[0], 1, &chains[0], tokens_a), blocks[0]);
	assert_int_equal(kv_commit(kv, blocks[1], 1, &chains[1], tokens_a), blocks[0]);
	assert_int_equal(chains[0].hash, chains[1].hash);
	assert_int_equal(chains[1].block, blocks[0]);
	assert_int_equal(kv_free_blocks(kv), 3);
	assert_int_equal(kv_own_blocks(kv, blocks, 1), 0);
	/* Once more changes nothing. */
	chains[1] = (struct kv_chain){0};
	assert_int_equal(kv_commit(kv, blocks[0], 1, &chains[1], tokens_a), blocks[0]);
	assert_int_equal(kv_free_blocks(kv), 3);
	kv_release(kv, blocks, 1, true);
	kv_release(kv, blocks, 1, true);
}

/* A running sequence keeps its prefix, whoever computed the same before and is gone. */
TEST(keeps_the_prefix_of_who_runs)
{
	struct kv_chain chain = {0}, at = {0};
	uint32_t first, own[2], others[4], found[2];
	unsigned n = 0;

	assert_int_equal(open_kv(4, BLOCK, BLOCK), 0);
	assert_true(kv_alloc(kv, 0, &first) && kv_alloc(kv, 0, &own[0]));
	kv_commit(kv, first, 1, &(struct kv_chain){0}, tokens_a);
	own[0] = kv_commit(kv, own[0], 1, &chain, tokens_a);
	kv_release(kv, &first, 1, true);
	assert_true(kv_alloc(kv, 0, &own[1]));
	own[1] = kv_commit(kv, own[1], 1, &chain, tokens_b);
	/* All the rest goes to others. */
	while (kv_alloc(kv, 0, &others[n]))
		n++;
	assert_int_equal(n, 2);
	kv_release(kv, own, 2, true);
	assert_true(match(1, &at, tokens_a, &found[0]) && match(1, &at, tokens_b, &found[1]));
	assert_memory_equal(found, own, sizeof(own));
	kv_release(kv, found, 2, true);
	kv_release(kv, others, n, true);
}

/* What is behind a block that was evicted is found again once that one has been computed again. */
TEST(finds_what_is_behind_a_block_computed_again)
{
	struct kv_chain chain = {0}, at = {0};
	uint32_t blocks[2], other, again, found[2];

	assert_int_equal(open_kv(3, BLOCK, BLOCK), 0);
	assert_true(kv_alloc(kv, 0, &blocks[0]) && kv_alloc(kv, 0, &blocks[1]));
	kv_commit(kv, blocks[0], 1, &chain, tokens_a);
	kv_commit(kv, blocks[1], 1, &chain, tokens_b);
	kv_release(kv, blocks, 1, false);
	assert_true(kv_alloc(kv, 0, &other));
	assert_int_equal(other, blocks[0]);
	assert_false(match(1, &at, tokens_a, &found[0]));
	assert_true(kv_alloc(kv, 0, &again));
	kv_commit(kv, again, 1, &(struct kv_chain){0}, tokens_a);
	assert_true(match(1, &at, tokens_a, &found[0]) && match(1, &at, tokens_b, &found[1]));
	assert_int_equal(found[0], again);
	assert_int_equal(found[1], blocks[1]);
	kv_release(kv, found, 2, true);
	kv_release(kv, &again, 1, true);
	kv_release(kv, &other, 1, true);
	kv_release(kv, blocks + 1, 1, true);
}

/* Empty blocks are taken first, then the least recently used, a prefix's tail before its head. */
TEST(evicts_the_least_recently_used)
{
	uint32_t old[2], recent, taken[4], found;
	struct kv_chain chain = {0};

	assert_int_equal(open_kv(4, BLOCK, BLOCK), 0);
	assert_true(kv_alloc(kv, 0, &old[0]) && kv_alloc(kv, 0, &old[1]));
	assert_true(kv_alloc(kv, 0, &recent));
	kv_commit(kv, old[0], 1, &chain, tokens_a);
	kv_commit(kv, old[1], 1, &chain, tokens_b);
	kv_commit(kv, recent, 1, &(struct kv_chain){0}, tokens_b);
	kv_release(kv, old, 2, true);
	kv_release(kv, &recent, 1, true);
	assert_true(kv_alloc(kv, 0, &taken[0]));
	assert_true(taken[0] != old[0] && taken[0] != old[1] && taken[0] != recent);
	assert_true(kv_alloc(kv, 0, &taken[1]));
	assert_int_equal(taken[1], old[1]);
	assert_true(match_first(1, tokens_a, &found));
	kv_release(kv, &found, 1, true);
	assert_true(kv_alloc(kv, 0, &taken[2]));
	assert_int_equal(taken[2], recent);
	assert_false(match_first(1, tokens_b, &found));
	assert_true(kv_alloc(kv, 0, &taken[3]));
	assert_false(match_first(1, tokens_a, &found));
	kv_release(kv, taken, 4, true);
}

/* What nobody will ask for again is taken before what somebody may, a prefix's tail before its head;
 * until then it is found. */
TEST(takes_what_was_given_up)
{
	uint32_t kept, up[2], taken[2], found[2];
	struct kv_chain chain = {0}, at = {0};

	assert_int_equal(open_kv(3, BLOCK, BLOCK), 0);
	assert_true(kv_alloc(kv, 0, &kept) && kv_alloc(kv, 0, &up[0]) && kv_alloc(kv, 0, &up[1]));
	kv_commit(kv, kept, 1, &(struct kv_chain){0}, tokens_a);
	kv_commit(kv, up[0], 2, &chain, tokens_a);
	kv_commit(kv, up[1], 2, &chain, tokens_b);
	kv_release(kv, &kept, 1, true);
	kv_release(kv, up, 2, false);
	assert_true(kv_check(kv));
	assert_true(match(2, &at, tokens_a, &found[0]) && match(2, &at, tokens_b, &found[1]));
	assert_memory_equal(found, up, sizeof(up));
	kv_release(kv, found, 2, false);
	assert_true(kv_alloc(kv, 0, &taken[0]));
	assert_int_equal(taken[0], up[1]);
	assert_true(kv_alloc(kv, 0, &taken[1]));
	assert_int_equal(taken[1], up[0]);
	assert_false(match_first(2, tokens_a, &found[0]));
	assert_true(match_first(1, tokens_a, &found[0]));
	kv_release(kv, taken, 2, true);
	kv_release(kv, found, 1, true);
}

/* Random use against a plain record of who holds what; every match must hold the content that was
 * asked for. */
TEST(random_use)
{
	enum { BLOCKS = 16, HOLDERS = 8, DEPTH = 4 };
	struct {
		uint32_t blocks[DEPTH];
		int32_t tokens[DEPTH][BLOCK];
		unsigned n;
	} holders[HOLDERS];
	int32_t content[BLOCKS][DEPTH * BLOCK];
	unsigned depth[BLOCKS] = {0};

	memset(holders, 0, sizeof(holders));
	srand(7);
	assert_int_equal(open_kv(BLOCKS, BLOCK, BLOCK), 0);
	for (unsigned round = 0; round < 20000; round++) {
		unsigned h = (unsigned)rand() % HOLDERS, want = 1 + (unsigned)rand() % DEPTH;
		struct kv_chain chain = {0};
		bool matching = true;

		kv_release(kv, holders[h].blocks, holders[h].n, true);
		holders[h].n = 0;
		for (unsigned i = 0; i < want; i++) {
			int32_t *tokens = holders[h].tokens[i];
			uint32_t block;

			for (unsigned j = 0; j < BLOCK; j++)
				tokens[j] = j ? 0 : rand() % 2;
			matching = matching && match(1, &chain, tokens, &block);
			if (matching) {
				assert_int_equal(depth[block], i + 1);
				assert_memory_equal(content[block], holders[h].tokens,
						    (i + 1) * sizeof(holders[h].tokens[0]));
			} else {
				if (!kv_alloc(kv, 0, &block))
					break;
				block = kv_commit(kv, block, 1, &chain, tokens);
				memcpy(content[block], holders[h].tokens,
				       (i + 1) * sizeof(holders[h].tokens[0]));
				depth[block] = i + 1;
			}
			holders[h].blocks[holders[h].n++] = block;
		}
		assert_true(kv_check(kv));
	}
	for (unsigned h = 0; h < HOLDERS; h++)
		kv_release(kv, holders[h].blocks, holders[h].n, true);
}

/* What stands behind the tokens of a key tells blocks apart, in every bit. */
TEST(keys_have_further_words)
{
	int32_t key[BLOCK + 2] = {0};
	struct kv_chain chain = {0}, at;
	uint32_t block, found;

	assert_int_equal(open_kv(4, BLOCK, BLOCK - 1), -EINVAL);
	assert_int_equal(open_kv(4, BLOCK, BLOCK + 2), 0);
	assert_int_equal(kv_key_words(kv), BLOCK + 2);
	assert_true(kv_alloc(kv, 0, &block));
	kv_commit(kv, block, 1, &chain, key);
	for (unsigned bit = 0; bit < 64; bit++) {
		key[BLOCK + bit / 32] ^= (int32_t)(1u << bit % 32);
		at = (struct kv_chain){0};
		assert_false(match(1, &at, key, &found));
		key[BLOCK + bit / 32] = 0;
	}
	at = (struct kv_chain){0};
	assert_true(match(1, &at, key, &found));
	assert_int_equal(found, block);
	kv_release(kv, &block, 1, true);
	kv_release(kv, &block, 1, true);
}

TEST_MAIN_EACH(NULL, close_kv)
