// SPDX-License-Identifier: MIT

#include <errno.h>

#include "unit.h"
#include "kv_check.h"

#define BLOCK 4

static const int32_t tokens_a[BLOCK] = {1, 2, 3, 4}, tokens_b[BLOCK] = {5, 6, 7, 8};

static int new_kv(unsigned n_blocks, unsigned block_size, unsigned key_words, struct kv **kv)
{
	const struct kv_layout layout = {.block_size = block_size, .key_words = key_words};

	return kv_new(n_blocks, &layout, kv);
}

static bool match(struct kv *kv, uint64_t owner, struct kv_chain *chain, const int32_t *tokens,
		  uint32_t *block)
{
	return kv_match(kv, owner, chain, kv_hash(kv, owner, chain->hash, tokens), tokens, block);
}

/* The same for a first block, whose chain is of no interest. */
static bool match_first(struct kv *kv, uint64_t owner, const int32_t *tokens, uint32_t *block)
{
	return match(kv, owner, &(struct kv_chain){0}, tokens, block);
}

TEST(refuses_nonsense)
{
	struct kv *kv = NULL;

	assert_int_equal(new_kv(0, BLOCK, BLOCK, &kv), -EINVAL);
	assert_int_equal(new_kv(8, 0, 0, &kv), -EINVAL);
	assert_int_equal(new_kv(UINT32_MAX, BLOCK, BLOCK, &kv), -EINVAL);
	assert_null(kv);
	kv_free(NULL);
}

TEST(counts_references)
{
	struct kv *kv;
	uint32_t blocks[3], more;

	assert_int_equal(new_kv(3, BLOCK, BLOCK, &kv), 0);
	assert_int_equal(kv_free_blocks(kv), 3);
	for (unsigned i = 0; i < 3; i++)
		assert_true(kv_alloc(kv, 0, &blocks[i]));
	assert_false(kv_alloc(kv, 0, &more));
	assert_true(kv_check(kv));
	kv_release(kv, blocks, 3, true);
	assert_int_equal(kv_free_blocks(kv), 3);
	assert_true(kv_check(kv));
	kv_free(kv);
}

/* A committed prefix is found after its sequence is gone, by the same owner only and only at the same
 * place. */
TEST(finds_prefixes)
{
	struct kv *kv;
	uint32_t blocks[2], found[2];
	struct kv_chain chain = {0}, second, at = {0};

	assert_int_equal(new_kv(4, BLOCK, BLOCK, &kv), 0);
	assert_true(kv_alloc(kv, 0, &blocks[0]) && kv_alloc(kv, 0, &blocks[1]));
	kv_commit(kv, blocks[0], 1000, &chain, tokens_a);
	second = chain;
	kv_commit(kv, blocks[1], 1000, &second, tokens_b);
	kv_release(kv, blocks, 2, true);
	assert_int_equal(kv_free_blocks(kv), 4);

	assert_false(match_first(kv, 1001, tokens_a, &found[0]));
	assert_false(match_first(kv, 1000, tokens_b, &found[0]));
	at = second;
	assert_false(match(kv, 1000, &at, tokens_b, &found[0]));
	at = (struct kv_chain){0};
	assert_true(match(kv, 1000, &at, tokens_a, &found[0]));
	assert_int_equal(at.serial, chain.serial);
	assert_true(match(kv, 1000, &at, tokens_b, &found[1]));
	assert_int_equal(at.serial, second.serial);
	assert_memory_equal(found, blocks, sizeof(blocks));
	assert_int_equal(kv_free_blocks(kv), 2);
	assert_true(kv_check(kv));
	kv_release(kv, found, 2, true);
	assert_true(kv_check(kv));
	kv_free(kv);
}

/* Two who computed the same get the same serial, so that what follows is shared whoever's block
 * lives on. */
TEST(joins_equal_content)
{
	struct kv *kv;
	struct kv_chain chains[2] = {{0}};
	uint32_t blocks[2];

	assert_int_equal(new_kv(4, BLOCK, BLOCK, &kv), 0);
	assert_true(kv_alloc(kv, 0, &blocks[0]) && kv_alloc(kv, 0, &blocks[1]));
	for (unsigned i = 0; i < 2; i++)
		kv_commit(kv, blocks[i], 1, &chains[i], tokens_a);
	assert_int_equal(chains[0].serial, chains[1].serial);
	kv_release(kv, blocks, 2, true);
	assert_true(kv_check(kv));
	kv_free(kv);
}

/* Empty blocks are taken first, then the least recently used, a prefix's tail before its head. */
TEST(evicts_the_least_recently_used)
{
	struct kv *kv;
	uint32_t old[2], recent, taken[4], found;
	struct kv_chain chain = {0};

	assert_int_equal(new_kv(4, BLOCK, BLOCK, &kv), 0);
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
	assert_true(match_first(kv, 1, tokens_a, &found));
	kv_release(kv, &found, 1, true);
	assert_true(kv_alloc(kv, 0, &taken[2]));
	assert_int_equal(taken[2], recent);
	assert_false(match_first(kv, 1, tokens_b, &found));
	assert_true(kv_alloc(kv, 0, &taken[3]));
	assert_false(match_first(kv, 1, tokens_a, &found));
	kv_release(kv, taken, 4, true);
	assert_true(kv_check(kv));
	kv_free(kv);
}

/* What nobody will ask for again is taken before what somebody may, a prefix's tail before its head;
 * until then it is found. */
TEST(takes_what_was_given_up)
{
	struct kv *kv;
	uint32_t kept, up[2], taken[2], found[2];
	struct kv_chain chain = {0}, at = {0};

	assert_int_equal(new_kv(3, BLOCK, BLOCK, &kv), 0);
	assert_true(kv_alloc(kv, 0, &kept) && kv_alloc(kv, 0, &up[0]) && kv_alloc(kv, 0, &up[1]));
	kv_commit(kv, kept, 1, &(struct kv_chain){0}, tokens_a);
	kv_commit(kv, up[0], 2, &chain, tokens_a);
	kv_commit(kv, up[1], 2, &chain, tokens_b);
	kv_release(kv, &kept, 1, true);
	kv_release(kv, up, 2, false);
	assert_true(kv_check(kv));
	assert_true(match(kv, 2, &at, tokens_a, &found[0]) &&
		    match(kv, 2, &at, tokens_b, &found[1]));
	assert_memory_equal(found, up, sizeof(up));
	kv_release(kv, found, 2, false);
	assert_true(kv_alloc(kv, 0, &taken[0]));
	assert_int_equal(taken[0], up[1]);
	assert_true(kv_alloc(kv, 0, &taken[1]));
	assert_int_equal(taken[1], up[0]);
	assert_false(match_first(kv, 2, tokens_a, &found[0]));
	assert_true(match_first(kv, 1, tokens_a, &found[0]));
	kv_release(kv, taken, 2, true);
	kv_release(kv, found, 1, true);
	assert_true(kv_check(kv));
	kv_free(kv);
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
	struct kv *kv;

	memset(holders, 0, sizeof(holders));
	srand(7);
	assert_int_equal(new_kv(BLOCKS, BLOCK, BLOCK, &kv), 0);
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
			matching = matching && match(kv, 1, &chain, tokens, &block);
			if (matching) {
				assert_int_equal(depth[block], i + 1);
				assert_memory_equal(content[block], holders[h].tokens,
						    (i + 1) * sizeof(holders[h].tokens[0]));
			} else {
				if (!kv_alloc(kv, 0, &block))
					break;
				memcpy(content[block], holders[h].tokens,
				       (i + 1) * sizeof(holders[h].tokens[0]));
				depth[block] = i + 1;
				kv_commit(kv, block, 1, &chain, tokens);
			}
			holders[h].blocks[holders[h].n++] = block;
		}
		assert_true(kv_check(kv));
	}
	for (unsigned h = 0; h < HOLDERS; h++)
		kv_release(kv, holders[h].blocks, holders[h].n, true);
	assert_int_equal(kv_free_blocks(kv), BLOCKS);
	assert_true(kv_check(kv));
	kv_free(kv);
}

/* What stands behind the tokens of a key tells blocks apart, in every bit. */
TEST(keys_have_further_words)
{
	int32_t key[BLOCK + 2] = {0};
	struct kv_chain chain = {0}, at;
	uint32_t block, found;
	struct kv *kv;

	assert_int_equal(new_kv(4, BLOCK, BLOCK - 1, &kv), -EINVAL);
	assert_int_equal(new_kv(4, BLOCK, BLOCK + 2, &kv), 0);
	assert_int_equal(kv_key_words(kv), BLOCK + 2);
	assert_true(kv_alloc(kv, 0, &block));
	kv_commit(kv, block, 1, &chain, key);
	for (unsigned bit = 0; bit < 64; bit++) {
		key[BLOCK + bit / 32] ^= (int32_t)(1u << bit % 32);
		at = (struct kv_chain){0};
		assert_false(match(kv, 1, &at, key, &found));
		key[BLOCK + bit / 32] = 0;
	}
	at = (struct kv_chain){0};
	assert_true(match(kv, 1, &at, key, &found));
	assert_int_equal(found, block);
	kv_release(kv, &block, 1, true);
	kv_release(kv, &block, 1, true);
	assert_true(kv_check(kv));
	kv_free(kv);
}

TEST_MAIN
