// SPDX-License-Identifier: MIT
#include "tokenizer_internal.h"
#include "utf8.h"

#include <errno.h>
#include <stdio.h>

/* Maximum length of a spelling in a vocabulary. */
#define PIECE_MAX 65536

size_t tokenizer_unspell(const char *piece, size_t len, char *out)
{
	const uint8_t *s = (const uint8_t *)piece;
	size_t n = 0;
	unsigned size;

	for (size_t i = 0; i < len; i += size) {
		uint32_t cp = utf8_decode(s + i, &size);

		/* The 68 bytes that do not print are U+0100 .. U+0143, in their order. */
		if (cp >= 0x100 && cp <= 0x120)
			cp -= 0x100;
		else if (cp >= 0x121 && cp <= 0x142)
			cp = cp - 0x121 + 0x7F;
		else if (cp == 0x143)
			cp = 0xAD;
		else if (cp > 0xFF || cp < 0x21 || (cp > 0x7E && cp < 0xA1) || cp == 0xAD)
			return SIZE_MAX;
		out[n++] = (char)cp;
	}
	return n;
}

static uint32_t count_children(const cJSON *json)
{
	const cJSON *item;
	uint32_t n = 0;

	cJSON_ArrayForEach(item, json)
		n++;
	return n;
}

/* The highest id in model.vocab and the added tokens, plus one. */
static uint32_t count_ids(const cJSON *vocab, const cJSON *added, struct json_errors *errors)
{
	uint32_t n = 0, id;
	const cJSON *item;
	char path[64];
	unsigned i = 0;

	cJSON_ArrayForEach(item, vocab) {
		if (!json_is_number(item, BPE_ID_LIMIT - 1, &id))
			json_fail(errors,
				  "model.vocab: the id of \"%.80s\" is not a whole number below %u",
				  item->string, BPE_ID_LIMIT);
		else if (id >= n)
			n = id + 1;
	}
	cJSON_ArrayForEach(item, added) {
		snprintf(path, sizeof(path), "added_tokens[%u]", i++);
		id = json_get_number(&(struct json_at){errors, item, path}, "id", BPE_ID_LIMIT - 1);
		if (id >= n)
			n = id + 1;
	}
	return n;
}

static int set_piece(struct txda_tokenizer *tok, uint32_t entry, const char *text,
		     struct json_errors *errors)
{
	size_t len = strlen(text);
	int ret;

	if (len > PIECE_MAX)
		return json_fail(errors, "token %u has %zu bytes, more than the limit of %d",
				 string_table_id(&tok->pieces, entry), len, PIECE_MAX);
	ret = string_table_set(&tok->pieces, entry, text, len);
	if (!ret)
		string_index_add(&tok->piece_index, entry);
	return ret;
}

/*
 * As in the reference library: of equal tokens the last counts, and several tokens may have the
 * same id, whose spelling is that of the last one.
 */
static int load_pieces(struct txda_tokenizer *tok, const cJSON *vocab, struct json_errors *errors)
{
	struct string_table *pieces = &tok->pieces;
	const cJSON *item = vocab->child ? vocab->child->prev : NULL;
	int ret = 0;

	for (; !ret && item; item = item == vocab->child ? NULL : item->prev) {
		uint32_t id = (uint32_t)item->valuedouble, entry = id;

		if (string_index_find(&tok->piece_index, item->string, strlen(item->string)) !=
		    TXDA_TOKEN_NONE)
			continue;
		if (string_table_has(pieces, id)) {
			entry = pieces->n + pieces->n_aliases++;
			pieces->alias_of[entry - pieces->n] = id;
		}
		ret = set_piece(tok, entry, item->string, errors);
		tok->flags[id] = TOKEN_IN_VOCAB;
	}
	return ret;
}

static int load_added_token(struct txda_tokenizer *tok, const struct json_at *at, uint32_t id)
{
	struct added_token *token = &tok->added[tok->n_added];
	const char *content = json_get_string(at, "content");
	uint32_t known;
	int ret;

	token->single_word = json_get_bool(at, "single_word", false);
	token->lstrip = json_get_bool(at, "lstrip", false);
	token->rstrip = json_get_bool(at, "rstrip", false);
	token->special = json_get_bool(at, "special", false);
	token->normalized = json_get_bool(at, "normalized", !token->special);
	if (strlen(content) > ADDED_TOKEN_MAX)
		json_fail(at->errors, "%s.content has %zu bytes, more than the limit of %d",
			  at->path, strlen(content), ADDED_TOKEN_MAX);
	if (at->errors->code || !*content)
		return at->errors->code;
	/* A token that is already in the vocabulary keeps its id there. */
	known = string_index_find(&tok->piece_index, content, strlen(content));
	if (known != TXDA_TOKEN_NONE)
		id = known;
	if (known != TXDA_TOKEN_NONE && (tok->flags[id] & TOKEN_ADDED))
		return 0;
	if (known == TXDA_TOKEN_NONE) {
		if (string_table_has(&tok->pieces, id))
			return json_fail(at->errors, "id %u belongs to \"%.80s\" and to \"%.80s\"",
					 id, tok->pieces.text.data + tok->pieces.off[id], content);
		ret = set_piece(tok, id, content, at->errors);
		if (ret)
			return ret;
	}
	token->id = id;
	tok->flags[id] |= TOKEN_ADDED | (token->special ? TOKEN_SPECIAL : 0);
	tok->n_added++;
	return 0;
}

static int load_added(struct txda_tokenizer *tok, const cJSON *added, const cJSON *config_added,
		      struct json_errors *errors)
{
	const cJSON *item;
	unsigned i = 0;
	char path[96];
	int ret;

	cJSON_ArrayForEach(item, added) {
		const struct json_at at = {errors, item, path};

		snprintf(path, sizeof(path), "added_tokens[%u]", i++);
		ret = load_added_token(tok, &at, json_get_number(&at, "id", BPE_ID_LIMIT - 1));
		if (ret)
			return ret;
	}
	/* tokenizer_config.json may have tokens that tokenizer.json lacks. */
	cJSON_ArrayForEach(item, config_added) {
		char *end;
		unsigned long id = strtoul(item->string ? item->string : "", &end, 10);

		snprintf(path, sizeof(path), "tokenizer_config.json: added_tokens_decoder.%.40s",
			 item->string ? item->string : "");
		if (!item->string || !*item->string || *end || id >= tok->pieces.n)
			return json_fail(errors, "%s: not an id below %u", path, tok->pieces.n);
		ret = load_added_token(tok, &(struct json_at){errors, item, path}, (uint32_t)id);
		if (ret)
			return ret;
	}
	return 0;
}

/*
 * In a byte-level model words are looked up by their bytes; tokens that spell no bytes are never
 * found.
 */
static int index_words(struct txda_tokenizer *tok, uint32_t n_vocab)
{
	const struct string_table *pieces = &tok->pieces;
	struct string_table *keys = &tok->keys;
	char bytes[PIECE_MAX];
	int ret;

	ret = tok->bpe.byte_level ? string_table_init(keys, pieces->n, pieces->n_aliases) : 0;
	if (!ret && tok->bpe.byte_level && pieces->n_aliases)
		memcpy(keys->alias_of, pieces->alias_of,
		       pieces->n_aliases * sizeof(*keys->alias_of));
	if (!ret)
		ret = string_index_init(&tok->bpe.words, tok->bpe.byte_level ? keys : pieces,
					n_vocab);
	for (uint32_t i = 0; !ret && i < pieces->n + pieces->n_aliases; i++) {
		if (!(tok->flags[string_table_id(pieces, i)] & TOKEN_IN_VOCAB))
			continue;
		if (tok->bpe.byte_level) {
			size_t len = tokenizer_unspell(pieces->text.data + pieces->off[i],
						       pieces->len[i], bytes);

			if (len == SIZE_MAX)
				continue;
			ret = string_table_set(keys, i, bytes, len);
			if (ret)
				break;
		}
		string_index_add(&tok->bpe.words, i);
	}
	if (tok->bpe.byte_level)
		keys->n_aliases = pieces->n_aliases;
	return ret;
}

static void load_flags(struct txda_tokenizer *tok, const struct json_at *at)
{
	static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
	const cJSON *dropout = json_get(at->json, "dropout");
	struct bpe *bpe = &tok->bpe;

	if (dropout && !(cJSON_IsNumber(dropout) && dropout->valuedouble == 0))
		json_unsupported(at, "dropout", dropout);
	for (unsigned i = 0; i < 2; i++) {
		const cJSON *affix = json_get(at->json, affixes[i]);

		if (affix && !(cJSON_IsString(affix) && !affix->valuestring[0]))
			json_unsupported(at, affixes[i], affix);
	}
	bpe->byte_fallback = json_get_bool(at, "byte_fallback", false);
	bpe->fuse_unk = json_get_bool(at, "fuse_unk", false);
	bpe->ignore_merges = json_get_bool(at, "ignore_merges", false);
}

static int load_unk(struct txda_tokenizer *tok, const struct json_at *at)
{
	const cJSON *unk = json_get(at->json, "unk_token");

	tok->bpe.unk = BPE_NONE;
	if (!unk)
		return 0;
	if (!cJSON_IsString(unk))
		return json_unsupported(at, "unk_token", unk);
	tok->bpe.unk =
		string_index_find(&tok->piece_index, unk->valuestring, strlen(unk->valuestring));
	if (tok->bpe.unk == BPE_NONE || !(tok->flags[tok->bpe.unk] & TOKEN_IN_VOCAB))
		return json_fail(at->errors, "model.unk_token: \"%.80s\" is not in model.vocab",
				 unk->valuestring);
	return 0;
}

int tokenizer_load_vocab(struct txda_tokenizer *tok, const cJSON *model, const cJSON *added,
			 const cJSON *config, struct json_errors *errors)
{
	const cJSON *type = json_get(model, "type"), *vocab = json_get(model, "vocab");
	const cJSON *config_added = json_get(config, "added_tokens_decoder"), *item;
	const struct json_at at = {errors, model, "model"};
	uint32_t n_ids, n_vocab = count_children(vocab), n_added;
	int ret;

	/* Old files omit the type; the presence of merges implies it. */
	if (!cJSON_IsObject(model) ||
	    (type && !(cJSON_IsString(type) && !strcmp(type->valuestring, "BPE"))))
		return json_unsupported(&at, "type", type);
	if (!cJSON_IsObject(vocab))
		return json_fail(errors, "model.vocab is missing or no object");
	n_ids = count_ids(vocab, added, errors);
	load_flags(tok, &at);
	if (errors->code)
		return errors->code;
	cJSON_ArrayForEach(item, config_added) {
		unsigned long id = item->string ? strtoul(item->string, NULL, 10) : 0;

		if (id >= n_ids && id < BPE_ID_LIMIT)
			n_ids = (uint32_t)id + 1;
	}
	n_added = count_children(added) + count_children(config_added);
	tok->flags = calloc(n_ids ? n_ids : 1, 1);
	tok->added = calloc(n_added ? n_added : 1, sizeof(*tok->added));
	if (!tok->flags || !tok->added)
		return -ENOMEM;
	ret = string_table_init(&tok->pieces, n_ids, n_vocab);
	if (!ret)
		ret = string_index_init(&tok->piece_index, &tok->pieces, (size_t)n_vocab + n_added);
	if (!ret)
		ret = load_pieces(tok, vocab, errors);
	if (!ret)
		ret = load_unk(tok, &at);
	if (!ret)
		ret = load_added(tok, added, config_added, errors);
	return ret ? ret : index_words(tok, n_vocab);
}

/* Splits a merge into its halves: "a b", or ["a", "b"]. */
static bool merge_halves(const cJSON *merge, const char **ret_left, size_t *ret_left_len,
			 const char **ret_right)
{
	if (cJSON_IsString(merge)) {
		const char *space = strchr(merge->valuestring, ' ');

		if (!space || strchr(space + 1, ' '))
			return false;
		*ret_left = merge->valuestring;
		*ret_left_len = (size_t)(space - merge->valuestring);
		*ret_right = space + 1;
		return true;
	}
	if (!cJSON_IsArray(merge) || !cJSON_IsString(merge->child) ||
	    !cJSON_IsString(merge->child->next) || merge->child->next->next)
		return false;
	*ret_left = merge->child->valuestring;
	*ret_left_len = strlen(*ret_left);
	*ret_right = merge->child->next->valuestring;
	return true;
}

static uint32_t find_in_vocab(const struct txda_tokenizer *tok, const char *text, size_t len)
{
	uint32_t id = string_index_find(&tok->piece_index, text, len);

	return id != TXDA_TOKEN_NONE && (tok->flags[id] & TOKEN_IN_VOCAB) ? id : TXDA_TOKEN_NONE;
}

static int load_merge(struct txda_tokenizer *tok, const cJSON *merge, unsigned index,
		      struct text_buf *joined, struct json_errors *errors)
{
	uint32_t left_id, right_id, merged_id;
	const char *left, *right;
	size_t left_len;

	if (!merge_halves(merge, &left, &left_len, &right))
		return json_fail(errors, "model.merges[%u] is not a pair of tokens", index);
	joined->len = 0;
	if (!text_buf_add(joined, left, left_len) || !text_buf_add_string(joined, right) ||
	    !text_buf_end(joined))
		return -ENOMEM;
	left_id = find_in_vocab(tok, left, left_len);
	right_id = find_in_vocab(tok, right, joined->len - left_len);
	merged_id = find_in_vocab(tok, joined->data, joined->len);
	if (left_id == TXDA_TOKEN_NONE || right_id == TXDA_TOKEN_NONE ||
	    merged_id == TXDA_TOKEN_NONE)
		return json_fail(errors,
				 "model.merges[%u]: \"%.*s\", \"%.80s\" or both together are "
				 "not in model.vocab",
				 index, left_len < 80 ? (int)left_len : 80, left, right);
	bpe_add_merge(&tok->bpe, left_id, right_id, merged_id);
	return 0;
}

int tokenizer_load_merges(struct txda_tokenizer *tok, const cJSON *model,
			  struct json_errors *errors)
{
	const cJSON *merges = json_get(model, "merges"), *merge;
	struct text_buf joined = {0};
	uint32_t n = count_children(merges);
	unsigned index = 0;
	int ret;

	if (!cJSON_IsArray(merges))
		return json_fail(errors, "model.merges is missing or no array");
	if (n > BPE_RANK_LIMIT)
		return json_fail(errors, "model.merges has %u entries, more than the limit of %u",
				 n, BPE_RANK_LIMIT);
	ret = bpe_init(&tok->bpe, n);
	cJSON_ArrayForEach(merge, merges) {
		if (ret)
			break;
		/* Files converted from merges.txt may still contain its first line. */
		if (!index && cJSON_IsString(merge) &&
		    !strncmp(merge->valuestring, "#version", 8)) {
			index++;
			continue;
		}
		ret = load_merge(tok, merge, index++, &joined, errors);
	}
	free(joined.data);
	return ret ? ret : bpe_finish(&tok->bpe);
}

int tokenizer_join_by_rank(struct txda_tokenizer *tok, struct json_errors *errors)
{
	int ret = bpe_join_words(&tok->bpe);

	if (ret == -E2BIG)
		return json_fail(errors, "more than 16777216 pairs of tokens are tokens, too");
	return ret ? ret : bpe_finish(&tok->bpe);
}

int tokenizer_index_added(struct txda_tokenizer *tok, struct json_errors *errors)
{
	struct normalize_run run = {0};
	int ret = 0;

	tok->added_raw.tokens = tok->added;
	tok->added_normalized.tokens = tok->added;
	for (uint32_t i = 0; !ret && i < tok->n_added; i++) {
		const struct added_token *token = &tok->added[i];
		const char *text = tok->pieces.text.data + tok->pieces.off[token->id];
		size_t len = tok->pieces.len[token->id];

		if (token->normalized)
			ret = normalize(&tok->normalizer, &run, text, len, &text, &len);
		if (!ret)
			ret = added_set_add(token->normalized ? &tok->added_normalized
							      : &tok->added_raw,
					    text, len, i);
		if (ret == -E2BIG)
			ret = json_fail(errors,
					"added_tokens[%u].content has %zu bytes when "
					"normalised, more than the limit of %d",
					i, len, ADDED_TOKEN_MAX);
	}
	normalize_run_free(&run);
	return ret;
}
