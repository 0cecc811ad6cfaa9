/* SPDX-License-Identifier: MIT */
/*
 * What the parts of the tokeniser share. Everything here is filled while loading and only read
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
	TOKEN_IN_VOCAB = 1, /* in model.vocab, so that merges may make it */
	TOKEN_ADDED = 2,
	TOKEN_SPECIAL = 4,
	TOKEN_BYTE = 8, /* stands for one byte of a character (ByteFallback) */
};

/* How many ids the post-processor may put in front of or behind a text. */
#define TEMPLATE_MAX 64

struct id_list {
	uint32_t ids[TEMPLATE_MAX];
	unsigned n;
};

/* The decoder of tokenizer.json, as far as it is not already in txda_tokenizer.bytes. */
struct decoder {
	bool byte_level;     /* what tokens stand for are bytes of one UTF-8 text */
	bool byte_fallback;  /* only TOKEN_BYTE tokens are */
	bool join_by_spaces; /* no decoder at all */
	/* Metaspace: this character in the first token is nothing instead of a space. */
	char first_drop[8];
	/* Strip behind Fuse: so many of this character at the start of the text. */
	char strip[8];
	unsigned strip_start;
};

struct txda_tokenizer {
	struct string_table pieces; /* as the file spells them, added tokens included */
	struct string_index piece_index;
	uint8_t *flags;
	struct string_table keys;  /* byte-level: the raw bytes of model.vocab; else empty */
	struct string_table bytes; /* what each token stands for */
	struct bpe bpe;

	struct added_token *added;
	uint32_t n_added;
	struct added_set added_raw;	   /* looked for in the text as it comes */
	struct added_set added_normalized; /* looked for in normalised text */

	struct normalizer normalizer;
	struct pretok pretok;
	struct decoder decoder;
	struct id_list prefix, suffix; /* of the post-processor */
	uint32_t bos, eos;
};

/* tokenizer_vocab.c: model and added_tokens. 0, -EINVAL with a message, -ENOMEM, -EFBIG. */
int tokenizer_load_vocab(struct txda_tokenizer *tok, const cJSON *model, const cJSON *added,
			 const cJSON *config, struct json_errors *errors);
/* Reads model.merges, or finds them where ranks say it all (tiktoken.h); needs the vocabulary. */
int tokenizer_load_merges(struct txda_tokenizer *tok, const cJSON *model,
			  struct json_errors *errors);
int tokenizer_join_by_rank(struct txda_tokenizer *tok, struct json_errors *errors);
/* Fills the sets of added tokens; needs the normaliser. */
int tokenizer_index_added(struct txda_tokenizer *tok, struct json_errors *errors);

/* tokenizer_post.c: the post-processor, and what the config says about <s> and </s>. */
int tokenizer_load_post(struct txda_tokenizer *tok, const cJSON *post, const cJSON *config,
			struct json_errors *errors);

/* tokenizer_decoder.c: the decoder; fills tok->bytes. */
int tokenizer_load_decoder(struct txda_tokenizer *tok, const cJSON *decoder,
			   struct json_errors *errors);

/*
 * Byte-level spelling to bytes: GPT-2 writes each byte as a printable character. Returns the number
 * of bytes in @out (of @len), or SIZE_MAX when a character stands for no byte.
 */
size_t tokenizer_unspell(const char *piece, size_t len, char *out);

#endif
