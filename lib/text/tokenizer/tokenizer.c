// SPDX-License-Identifier: MIT
#include "sentencepiece.h"
#include "tiktoken.h"
#include "tokenizer_internal.h"
#include "json_strict.h"
#include "owned.h"

#include <errno.h>
#include <stdio.h>

#define CONFIG_MAX_BYTES (256u << 20)

/* @ranked: there are no merges, since ids are ranks. */
static int load_trees(struct txda_tokenizer *tok, const cJSON *json, const cJSON *config,
		      bool ranked, struct json_errors *errors)
{
	const cJSON *model = json_get(json, "model");
	int ret;

	if (!cJSON_IsObject(json) || !model)
		return json_fail(errors, "\"model\" is missing");
	if (config && !cJSON_IsObject(config))
		return json_fail(errors, "tokenizer_config.json is not an object");
	ret = normalizer_load(&tok->normalizer, json_get(json, "normalizer"), errors);
	if (!ret)
		ret = pretok_load(&tok->pretok, json_get(json, "pre_tokenizer"), errors);
	tok->bpe.byte_level = tok->pretok.byte_level;
	if (!ret)
		ret = tokenizer_load_vocab(tok, model, json_get(json, "added_tokens"), config,
					   errors);
	if (!ret)
		ret = ranked ? tokenizer_join_by_rank(tok, errors)
			     : tokenizer_load_merges(tok, model, errors);
	if (!ret)
		ret = tokenizer_index_added(tok, errors);
	if (!ret)
		ret = tokenizer_load_post(tok, json_get(json, "post_processor"), config, errors);
	if (!ret)
		ret = tokenizer_load_decoder(tok, json_get(json, "decoder"), errors);
	return ret;
}

static int convert_json(const char *text, size_t len, const cJSON *config, cJSON **ret_json,
			char *err, size_t errlen)
{
	(void)config;
	*ret_json = txda_json_parse(text, len, err, errlen);
	return *ret_json ? 0 : -EINVAL;
}

/* In the order in which they are looked for; the largest known tokenizer.json has 34 MB. */
static const struct format {
	const char *file;
	size_t max_bytes;
	int (*convert)(const char *text, size_t len, const cJSON *config, cJSON **ret_json,
		       char *err, size_t errlen);
	bool ranked;
} formats[] = {
	[TXDA_TOKENIZER_JSON] = {"tokenizer.json", 256u << 20, convert_json, false},
	[TXDA_TOKENIZER_SENTENCEPIECE] = {"tokenizer.model", 256u << 20, sentencepiece_convert,
					  false},
	[TXDA_TOKENIZER_TIKTOKEN] = {"tiktoken.model", 64u << 20, tiktoken_convert, true},
};

#define FORMATS (sizeof(formats) / sizeof(formats[0]))

int txda_tokenizer_parse(enum txda_tokenizer_format format, const char *text, size_t len,
			 const cJSON *config, struct txda_tokenizer **ret_tok, char *err,
			 size_t errlen)
{
	char why[512] = "";
	struct json_errors errors = {.err = why, .errlen = sizeof(why)};
	struct txda_tokenizer *tok = calloc(1, sizeof(*tok));
	cJSON *json = NULL;
	int ret = -ENOMEM;

	if (tok)
		ret = formats[format].convert(text, len, config, &json, why, sizeof(why));
	if (!ret)
		ret = load_trees(tok, json, config, formats[format].ranked, &errors);
	cJSON_Delete(json);
	if (!ret) {
		*ret_tok = tok;
		return 0;
	}
	txda_tokenizer_free(tok);
	if (err && errlen)
		snprintf(err, errlen, "%s", *why ? why : strerror(-ret));
	return ret;
}

/* Reads the first file of the directory that exists; if there is none, the error names the first. */
static int read_file(const char *dir, size_t *ret_format, char *path, size_t size, char **ret_text,
		     size_t *ret_len, char *err, size_t errlen)
{
	char why[512];
	int ret = -ENOENT;

	for (size_t i = 0; i < FORMATS && ret == -ENOENT; i++) {
		snprintf(path, size, "%s/%s", dir, formats[i].file);
		ret = owned_read_path(path, formats[i].max_bytes, ret_text, ret_len, why,
				      sizeof(why));
		if (ret && err && errlen && (!i || ret != -ENOENT))
			snprintf(err, errlen, "%s", why);
		*ret_format = i;
	}
	return ret;
}

int txda_tokenizer_load(const char *dir, struct txda_tokenizer **ret_tok, char *err, size_t errlen)
{
	size_t size = strlen(dir) + 32, len, format;
	char *path = malloc(size), *text, why[512];
	cJSON *config = NULL;
	int ret;

	if (!path)
		return -ENOMEM;
	snprintf(path, size, "%s/tokenizer_config.json", dir);
	ret = txda_json_load(path, CONFIG_MAX_BYTES, &config, err, errlen);
	/* Not every model has this file. */
	if (!ret || ret == -ENOENT)
		ret = read_file(dir, &format, path, size, &text, &len, err, errlen);
	if (!ret) {
		ret = txda_tokenizer_parse((enum txda_tokenizer_format)format, text, len, config,
					   ret_tok, why, sizeof(why));
		free(text);
		if (ret && err && errlen)
			snprintf(err, errlen, "%s: %s", path, why);
	}
	cJSON_Delete(config);
	free(path);
	return ret;
}

void txda_tokenizer_free(struct txda_tokenizer *tok)
{
	if (!tok)
		return;
	bpe_free(&tok->bpe);
	string_index_free(&tok->piece_index);
	string_table_free(&tok->pieces);
	string_table_free(&tok->keys);
	string_table_free(&tok->bytes);
	added_set_free(&tok->added_raw);
	added_set_free(&tok->added_normalized);
	normalizer_free(&tok->normalizer);
	pretok_free(&tok->pretok);
	free(tok->flags);
	free(tok->added);
	free(tok);
}

size_t txda_tokenizer_vocab_size(const struct txda_tokenizer *tok)
{
	return tok->pieces.n;
}

uint32_t txda_tokenizer_eos(const struct txda_tokenizer *tok)
{
	return tok->eos;
}

bool txda_tokenizer_is_special(const struct txda_tokenizer *tok, uint32_t id)
{
	return id < tok->pieces.n && (tok->flags[id] & TOKEN_SPECIAL);
}

static const char *lookup(const struct string_table *table, uint32_t id, size_t *ret_len)
{
	if (!string_table_has(table, id))
		return NULL;
	if (ret_len)
		*ret_len = table->len[id];
	return table->text.data + table->off[id];
}

const char *txda_tokenizer_piece(const struct txda_tokenizer *tok, uint32_t id, size_t *ret_len)
{
	return lookup(&tok->pieces, id, ret_len);
}

uint32_t txda_tokenizer_piece_id(const struct txda_tokenizer *tok, const char *piece, size_t len)
{
	return string_index_find(&tok->piece_index, piece, len);
}

const char *txda_tokenizer_bytes(const struct txda_tokenizer *tok, uint32_t id, size_t *ret_len)
{
	return lookup(&tok->bytes, id, ret_len);
}
