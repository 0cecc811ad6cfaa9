/* SPDX-License-Identifier: MIT */
/*
 * The tokeniser: text to token ids and back, as a Hugging Face model directory describes it.
 *
 * txda_tokenizer_load() reads `tokenizer.json` (or, if there is none, `tokenizer.model`,
 * sentencepiece.h, or `tiktoken.model`, tiktoken.h) and `tokenizer_config.json` (optional) and
 * understands:
 *
 *   model           BPE: byte-level and SentencePiece style (byte_fallback, unk_token, fuse_unk,
 *                   ignore_merges; merges as strings or as pairs)
 *   normalizer      Sequence, NFC, NFD, NFKC, NFKD, Prepend, Replace, Lowercase, Strip, null
 *   pre_tokenizer   Sequence, Split (String or Regex, every behaviour, invert), ByteLevel, Digits,
 *                   Punctuation (every behaviour), Metaspace, WhitespaceSplit, null
 *   post_processor  TemplateProcessing, ByteLevel, RobertaProcessing, Sequence, null
 *   decoder         Sequence, ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace, null
 *   added_tokens    single_word, lstrip, rstrip, normalized, special
 *
 * Anything else is refused when the directory is loaded, with the JSON key and its value in the
 * message: a model is never served with tokens other than those it was trained on.
 *
 * Threads: a loaded tokeniser does not change; any number of threads may use it at once.
 * txda_tokenizer_free() must be called after all other calls have returned.
 *
 * Time: encoding is near-linear in the length of any text (including one word of a megabyte), as
 * long as the model's own expressions are.
 */
#ifndef TXDA_TEXT_TOKENIZER_H
#define TXDA_TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cjson/cJSON.h>

struct txda_tokenizer;

enum txda_tokenizer_format {
	TXDA_TOKENIZER_JSON,	      /* tokenizer.json */
	TXDA_TOKENIZER_SENTENCEPIECE, /* tokenizer.model */
	TXDA_TOKENIZER_TIKTOKEN,      /* tiktoken.model */
};

/* "No such token". */
#define TXDA_TOKEN_NONE UINT32_MAX

/* Flags of txda_tokenizer_encode(). */
enum {
	/* Run the post-processor: put the model's <s> and other special tokens around the text. */
	TXDA_ENCODE_ADD_SPECIAL = 1u << 0,
	/*
	 * Added tokens marked special are ordinary text: for untrusted text, which must not be able
	 * to forge the end of a turn. Added tokens that are not marked so are still recognised.
	 */
	TXDA_ENCODE_NO_SPECIAL_PARSE = 1u << 1,
};

/*
 * Loads the tokeniser of the model directory @dir. Returns 0 and the tokeniser, which the caller
 * frees with txda_tokenizer_free(); or -ENOENT and the other errors of open(2), -EINVAL (not
 * supported or invalid), -EFBIG, -ENOMEM, with the cause in @err (of @errlen bytes; may be NULL).
 */
int txda_tokenizer_load(const char *dir, struct txda_tokenizer **ret_tok, char *err, size_t errlen);

/*
 * Makes a tokeniser from the @len bytes of a file of @format. @config: tokenizer_config.json, or
 * NULL. Returns as above; errors do not name the file.
 */
int txda_tokenizer_parse(enum txda_tokenizer_format format, const char *text, size_t len,
			 const cJSON *config, struct txda_tokenizer **ret_tok, char *err,
			 size_t errlen);

void txda_tokenizer_free(struct txda_tokenizer *tok);

/*
 * Encodes the @len bytes at @text, which may hold NUL but must be valid UTF-8. *ret_ids (never NULL
 * on success) is freed with free(); *ret_n is the number of ids.
 *
 * Returns 0; -EILSEQ (not UTF-8); -EINVAL (unknown flag); -E2BIG (more than 1 GiB of text);
 * -ENOMEM; -EOVERFLOW (one of the model's expressions needs too many steps on this text).
 */
int txda_tokenizer_encode(const struct txda_tokenizer *tok, const char *text, size_t len,
			  unsigned flags, uint32_t **ret_ids, size_t *ret_n);

/*
 * Decodes @n ids to UTF-8; bytes that form no character become U+FFFD, unknown ids are ignored.
 * With @skip_special, tokens marked special are left out. *ret_text is freed with free(); a NUL
 * follows its *ret_len bytes (which may hold NULs themselves). Returns 0 or -ENOMEM.
 *
 * For text that is sent while it is generated, use detok.h.
 */
int txda_tokenizer_decode(const struct txda_tokenizer *tok, const uint32_t *ids, size_t n,
			  bool skip_special, char **ret_text, size_t *ret_len);

/*
 * Serialises the tables for decoding tokens to @out, for another process, in a format of this
 * build: 0, -ENOMEM.
 *
 * txda_tokenizer_import() creates a tokeniser from them that supports everything except
 * txda_tokenizer_encode(), which returns -ENOTSUP. The bytes are untrusted and checked completely.
 * 0, -EINVAL, -ENOMEM, -EFBIG.
 */
struct text_buf;
int txda_tokenizer_export(const struct txda_tokenizer *tok, struct text_buf *out);
int txda_tokenizer_import(const char *data, size_t len, struct txda_tokenizer **ret_tok);

/* The highest id plus one. A model's output layer may be wider. */
size_t txda_tokenizer_vocab_size(const struct txda_tokenizer *tok);

/* The id of tokenizer_config.json's eos_token, or TXDA_TOKEN_NONE. */
uint32_t txda_tokenizer_eos(const struct txda_tokenizer *tok);

/* Whether @id is an added token that is marked special. */
bool txda_tokenizer_is_special(const struct txda_tokenizer *tok, uint32_t id);

/*
 * The token as the vocabulary spells it ("Ġhello", "<0x0A>", "<|im_end|>"): NUL-terminated, owned
 * by the tokeniser; NULL for an unknown id. @ret_len may be NULL.
 */
const char *txda_tokenizer_piece(const struct txda_tokenizer *tok, uint32_t id, size_t *ret_len);

/* The id of the token with that spelling, or TXDA_TOKEN_NONE. */
uint32_t txda_tokenizer_piece_id(const struct txda_tokenizer *tok, const char *piece, size_t len);

/*
 * The bytes that the token stands for inside a text (" hello", "\n"); they need not form whole
 * characters. Owned by the tokeniser; NULL for an unknown id.
 */
const char *txda_tokenizer_bytes(const struct txda_tokenizer *tok, uint32_t id, size_t *ret_len);

#endif
