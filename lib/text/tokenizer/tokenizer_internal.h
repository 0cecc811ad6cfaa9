/* SPDX-License-Identifier: MIT */
/*
 * Shared by the parts of the tokeniser. Everything here is filled while loading and only read
 * afterwards.
 */
#ifndef TXDA_TEXT_TOKENIZER_INTERNAL_H
#define TXDA_TEXT_TOKENIZER_INTERNAL_H

#include "bpe.h"
#include "pretok.h"
#include "tokenizer.h"
#include "tokenizer_added.h"
#include "tokenizer_json.h"
#include "tokenizer_normalize.h"

/* Bits of txda_tokenizer.flags[id]. */
enum {
	TOKEN_IN_VOCAB = 1, /* in model.vocab, so that merges may produce it */
	TOKEN_ADDED = 2,
	TOKEN_SPECIAL = 4,
	TOKEN_BYTE = 8, /* stands for one byte of a character (ByteFallback) */
};

/* Maximum number of ids that the post-processor adds before or after a text. */
#define TEMPLATE_MAX 64

struct id_list {
	uint32_t ids[TEMPLATE_MAX];
	unsigned n;
};

/* The decoder of tokenizer.json, as far as it is not already in txda_tokenizer.bytes. */
struct decoder {
	bool byte_level;     /* tokens stand for bytes of one UTF-8 text */
	bool byte_fallback;  /* only TOKEN_BYTE tokens do */
	bool join_by_spaces; /* there is no decoder at all */
	/* Metaspace: this character is dropped in the first token instead of becoming a space. */
	char first_drop[8];
	/* Strip after Fuse: number of this character to remove at the start of the text. */
	char strip[8];
	unsigned strip_start;
};

struct txda_tokenizer {
	struct string_table pieces; /* as spelled in the file, including added tokens */
	struct string_index piece_index;
	uint8_t *flags;
	struct string_table keys;  /* byte-level: the raw bytes of model.vocab; else empty */
	struct string_table bytes; /* the bytes that each token stands for */
	struct bpe bpe;

	struct added_token *added;
	uint32_t n_added;
	struct added_set added_raw;	   /* matched in the original text */
	struct added_set added_normalized; /* matched in normalised text */

	struct normalizer normalizer;
	struct pretok pretok;
	struct decoder decoder;
	struct id_list prefix, suffix; /* of the post-processor */
	uint32_t bos, eos;
};

/* tokenizer_vocab.c: model and added_tokens. 0, -EINVAL with a message, -ENOMEM, -EFBIG. */
int tokenizer_load_vocab(struct txda_tokenizer *tok, const cJSON *model, const cJSON *added,
			 const cJSON *config, struct json_errors *errors);
/* Reads model.merges, or derives them if ranks imply them (tiktoken.h); needs the vocabulary. */
int tokenizer_load_merges(struct txda_tokenizer *tok, const cJSON *model,
			  struct json_errors *errors);
int tokenizer_join_by_rank(struct txda_tokenizer *tok, struct json_errors *errors);
/* Fills the sets of added tokens; needs the normaliser. */
int tokenizer_index_added(struct txda_tokenizer *tok, struct json_errors *errors);

/* tokenizer_post.c: the post-processor, and the config's settings for <s> and </s>. */
int tokenizer_load_post(struct txda_tokenizer *tok, const cJSON *post, const cJSON *config,
			struct json_errors *errors);

/* tokenizer_decoder.c: the decoder; fills tok->bytes. */
int tokenizer_load_decoder(struct txda_tokenizer *tok, const cJSON *decoder,
			   struct json_errors *errors);

/*
 * Byte-level spelling to bytes: GPT-2 writes each byte as a printable character. Returns the number
 * of bytes in @out (of @len), or SIZE_MAX if a character stands for no byte.
 */
size_t tokenizer_unspell(const char *piece, size_t len, char *out);

#endif
