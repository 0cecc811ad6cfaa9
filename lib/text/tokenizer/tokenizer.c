// SPDX-License-Identifier: MIT
#include "sentencepiece.h"
#include "tiktoken.h"
#include "tokenizer_internal.h"
#include "json_strict.h"

#include <errno.h>
#include <stdio.h>

/* Maximum size of tokenizer.json or tokenizer_config.json; the largest known have 34 MB. */
#define FILE_MAX_BYTES (256u << 20)

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

/* Creates a tokeniser from the trees. @where precedes messages ("" or a path and ": "). */
static int make(const cJSON *json, const cJSON *config, bool ranked, const char *where,
		struct txda_tokenizer **ret_tok, char *err, size_t errlen)
{
	char why[512] = "";
	struct json_errors errors = {.err = why, .errlen = sizeof(why)};
	struct txda_tokenizer *tok = calloc(1, sizeof(*tok));
	int ret = tok ? load_trees(tok, json, config, ranked, &errors) : -ENOMEM;

	if (ret) {
		txda_tokenizer_free(tok);
		if (err && errlen)
			snprintf(err, errlen, "%s%s", where, *why ? why : strerror(-ret));
		return ret;
	}
	*ret_tok = tok;
	return 0;
}

int txda_tokenizer_load_json(const char *json_text, size_t json_len, const char *config_text,
			     size_t config_len, struct txda_tokenizer **ret_tok, char *err,
			     size_t errlen)
{
	cJSON *json, *config = NULL;
	int ret = -EINVAL;

	json = txda_json_parse(json_text, json_len, err, errlen);
	if (!json)
		return -EINVAL;
	if (config_text)
		config = txda_json_parse(config_text, config_len, err, errlen);
	if (config || !config_text)
		ret = make(json, config, false, "", ret_tok, err, errlen);
	cJSON_Delete(json);
	cJSON_Delete(config);
	return ret;
}

static int load_tokenizer_json(const char *path, const cJSON *config, cJSON **ret_json, char *err,
			       size_t errlen)
{
	(void)config;
	return txda_json_load(path, FILE_MAX_BYTES, ret_json, err, errlen);
}

int txda_tokenizer_load(const char *dir, struct txda_tokenizer **ret_tok, char *err, size_t errlen)
{
	static const struct {
		const char *name;
		int (*load)(const char *path, const cJSON *config, cJSON **ret_json, char *err,
			    size_t errlen);
		bool ranked;
	} files[] = {
		{"tokenizer.json", load_tokenizer_json, false},
		{"tokenizer.model", sentencepiece_load, false},
		{"tiktoken.model", tiktoken_load, true},
	};
	cJSON *json = NULL, *config = NULL;
	size_t size = strlen(dir) + 32, i;
	char *path = malloc(size), why[512] = "";
	int ret;

	if (!path)
		return -ENOMEM;
	snprintf(path, size, "%s/tokenizer_config.json", dir);
	ret = txda_json_load(path, FILE_MAX_BYTES, &config, err, errlen);
	/* Not every model has this file. */
	ret = ret ? ret : -ENOENT;
	for (i = 0; ret == -ENOENT && i < sizeof(files) / sizeof(files[0]); i++) {
		snprintf(path, size, "%s/%s", dir, files[i].name);
		/* If there is none, the error refers to the usual one. */
		ret = files[i].load(path, config, &json, why, sizeof(why));
		if (err && errlen && (!i || ret != -ENOENT))
			snprintf(err, errlen, "%s", why);
	}
	if (!ret) {
		snprintf(path, size, "%s/%s: ", dir, files[i - 1].name);
		ret = make(json, config, files[i - 1].ranked, path, ret_tok, err, errlen);
	}
	cJSON_Delete(json);
	cJSON_Delete(config);
	free(path);
	return ret;
}

int txda_tokenizer_load_tiktoken(const char *text, size_t len, const char *config_text,
				 size_t config_len, struct txda_tokenizer **ret_tok, char *err,
				 size_t errlen)
{
	cJSON *json = NULL, *config = txda_json_parse(config_text, config_len, err, errlen);
	int ret = config ? tiktoken_convert(text, len, config, &json, err, errlen) : -EINVAL;

	if (!ret)
		ret = make(json, config, true, "", ret_tok, err, errlen);
	cJSON_Delete(json);
	cJSON_Delete(config);
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
