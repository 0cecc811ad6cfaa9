/* SPDX-License-Identifier: MIT */
/*
 * Byte-pair encoding of one word: its symbols (bytes, or characters with byte fallback) are merged
 * pair by pair, always the merge that is earliest in the model's list, until none applies. Internal
 * to the tokeniser.
 *
 * Threads: a finished struct bpe is shared by all threads. `whole` is a cache in it: all threads
 * write the same value to an entry, with relaxed atomics.
 */
#ifndef TXDA_TEXT_BPE_H
#define TXDA_TEXT_BPE_H

#include "bpe_vocab.h"

#include <stdatomic.h>

#define BPE_NONE UINT32_MAX
/* Merge ranks fit 22 bits, beside two ids of 21. */
#define BPE_RANK_LIMIT ((1u << 22) - 1)

struct bpe {
	/*
	 * The index of words: raw bytes in a byte-level model, else as spelled in the vocabulary.
	 */
	struct string_index words;
	uint32_t max_word; /* length of the longest one in bytes */
	bool byte_level;
	bool byte_fallback;
	bool fuse_unk;
	bool ignore_merges; /*
	bool ignore_merges;  * a word that is in the vocabulary is that token, regardless of merges
	bool ignore_merges;  */
	/*
	 * No merge joins anything with a following U+2581 but another U+2581, so a text may be cut
	 * before it and the pieces encoded separately. Found by bpe_finish(); makes SentencePiece
	 * models, which have no pre-tokeniser, fast.
	 */
	bool cut_at_space_mark;
	uint32_t unk;
	uint32_t symbol[256]; /* id of a byte; in a non-byte-level model of an ASCII character */
	uint32_t byte_token[256]; /* <0x00> .. <0xFF>, for byte_fallback */

	uint64_t *merges; /* left id, right id, rank: 21, 21 and 22 bits; all ones: empty */
	uint64_t merge_seed;
	uint32_t merge_mask;
	uint32_t *merged; /* [rank]: the id that the merge makes */
	uint32_t n_merges;

	_Atomic uint8_t *whole; /* [id]: enum bpe_whole */
};

/*
 * Whether the word that spells a token is encoded as just that token; not cached if ids have
 * several words.
 */
enum bpe_whole { BPE_WHOLE_UNKNOWN, BPE_WHOLE_YES, BPE_WHOLE_NO };

/* Scratch memory for one thread; zero-initialised is empty. */
struct bpe_scratch {
	uint32_t *symbols;
	size_t n_symbols;
	void *block;
	size_t block_size;
};

/* Makes room for @n_merges; call once, with words, unk and flags set. Returns 0 or -ENOMEM. */
int bpe_init(struct bpe *bpe, uint32_t n_merges);
/* Adds the next merge in order of rank; of equal pairs the last one counts. */
void bpe_add_merge(struct bpe *bpe, uint32_t left, uint32_t right, uint32_t merged);
/*
 * For models without merges: any two tokens whose bytes together are a word are merged into it, the
 * lowest id first, of equal ones the leftmost. Instead of bpe_init(); 0, -ENOMEM, or -E2BIG (too
 * many).
 */
int bpe_join_words(struct bpe *bpe);
/* Call after the last merge. Returns 0 or -ENOMEM. */
int bpe_finish(struct bpe *bpe);
void bpe_free(struct bpe *bpe);

/* Appends the ids of the word (valid UTF-8, @len bytes) to @out. Returns 0 or -ENOMEM. */
int bpe_encode(const struct bpe *bpe, struct bpe_scratch *scratch, const char *word, size_t len,
	       struct id_vec *out);
void bpe_scratch_free(struct bpe_scratch *scratch);

#endif
