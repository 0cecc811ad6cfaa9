// SPDX-License-Identifier: MIT
#include "sentencepiece.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"

#define MAX_PIECES	(1u << 20)
#define MAX_PIECE_BYTES 1024
#define MAX_MERGES	(8u << 20)

/* SentencePiece.Type */
enum {
	PIECE_NORMAL = 1,
	PIECE_UNKNOWN,
	PIECE_CONTROL,
	PIECE_USER_DEFINED,
	PIECE_UNUSED,
	PIECE_BYTE
};
/* TrainerSpec.ModelType */
enum { MODEL_UNIGRAM = 1, MODEL_BPE, MODEL_WORD, MODEL_CHAR };

struct piece {
	const uint8_t *text;
	uint32_t bytes, id, type;
	float score;
};

struct merge {
	uint32_t piece;	     /* index of the resulting piece */
	uint32_t left_bytes; /* length of its left part */
};

struct reader {
	const uint8_t *at, *end;
};

struct model {
	struct piece *pieces, **sorted; /* by id, by text */
	uint32_t n;
	size_t room;
	uint32_t type;
	bool dummy_prefix, byte_fallback;
	bool strip_spaces;  /* at both ends of the text, and all but one of a run */
	bool space_suffix;  /* words end with the mark of a space instead of beginning with it */
	bool plain_spaces;  /* spaces have no mark */
	struct reader rule; /* name of the normalisation rule; empty: none */
	bool has_table;	    /* of characters that the rule replaces */
	char *err;
	size_t errlen;
};

static int fail(const struct model *m, int code, const char *what, unsigned long long value)
{
	if (m->err && m->errlen)
		snprintf(m->err, m->errlen, "%s: %llu", what, value);
	return code;
}

/* ---- the protocol buffer ---- */

static bool read_varint(struct reader *r, uint64_t *ret)
{
	uint64_t v = 0;
	unsigned shift;

	for (shift = 0; shift < 64; shift += 7) {
		if (r->at == r->end)
			return false;
		v |= (uint64_t)(*r->at & 127) << shift;
		if (!(*r->at++ & 128)) {
			*ret = v;
			return true;
		}
	}
	return false;
}

/* Reads one field: its number, and its value as a number or as bytes. False if it is malformed. */
static bool read_field(struct reader *r, uint32_t *ret_number, uint64_t *ret_value,
		       struct reader *ret_bytes)
{
	uint64_t key, n;

	if (!read_varint(r, &key))
		return false;
	*ret_number = (uint32_t)(key >> 3);
	*ret_value = 0;
	*ret_bytes = (struct reader){r->at, r->at};
	switch (key & 7) {
	case 0: return read_varint(r, ret_value);
	case 1: n = 8; break;
	case 5: n = 4; break;
	case 2:
		if (!read_varint(r, &n))
			return false;
		break;
	default: return false;
	}
	if (n > (uint64_t)(r->end - r->at))
		return false;
	*ret_bytes = (struct reader){r->at, r->at + n};
	r->at += n;
	return true;
}

static int add_piece(struct model *m, struct reader r)
{
	struct piece p = {.type = PIECE_NORMAL, .id = m->n};
	struct reader bytes;
	uint64_t value;
	uint32_t number;

	while (r.at < r.end) {
		if (!read_field(&r, &number, &value, &bytes))
			return fail(m, -EINVAL, "a corrupt record in piece", m->n);
		if (number == 1) {
			p.text = bytes.at;
			p.bytes = (uint32_t)(bytes.end - bytes.at);
		} else if (number == 2 && bytes.end - bytes.at == 4) {
			memcpy(&p.score, bytes.at, 4);
		} else if (number == 3) {
			p.type = (uint32_t)value;
		}
	}
	if (!p.bytes || p.bytes > MAX_PIECE_BYTES || p.score != p.score)
		return fail(m, -EINVAL,
			    "the text is missing or too long, or the score is missing, in piece",
			    m->n);
	if (m->n == MAX_PIECES)
		return fail(m, -E2BIG, "more pieces than", MAX_PIECES);
	if (!array_grow(&m->pieces, &m->room, m->n + 1, sizeof(*m->pieces)))
		return fail(m, -ENOMEM, "no memory for pieces", m->n + 1);
	m->pieces[m->n++] = p;
	return 0;
}

static int read_trainer(struct model *m, struct reader r)
{
	struct reader bytes;
	uint64_t value;
	uint32_t number;

	while (r.at < r.end) {
		if (!read_field(&r, &number, &value, &bytes))
			return fail(m, -EINVAL, "a corrupt record of settings", 1);
		switch (number) {
		case 3: m->type = (uint32_t)value; break;
		case 24: m->space_suffix = value; break;
		case 35: m->byte_fallback = value; break;
		default: break;
		}
	}
	return 0;
}

/*
 * A rule is named in every file that SentencePiece wrote, and its absent settings have that
 * program's defaults; files made from GGUF models name none, and only the prefix applies.
 */
static int read_normalizer(struct model *m, struct reader r)
{
	bool strip_spaces = true;
	struct reader bytes;
	uint64_t value;
	uint32_t number;

	while (r.at < r.end) {
		if (!read_field(&r, &number, &value, &bytes))
			return fail(m, -EINVAL, "a corrupt record of settings", 0);
		switch (number) {
		case 1: m->rule = bytes; break;
		case 2: m->has_table = bytes.at < bytes.end; break;
		case 3: m->dummy_prefix = value; break;
		case 4: strip_spaces = value; break;
		case 5: m->plain_spaces = !value; break;
		default: break;
		}
	}
	m->strip_spaces = strip_spaces && m->rule.at < m->rule.end;
	return 0;
}

static int check_settings(const struct model *m)
{
	if (m->type != MODEL_BPE)
		return fail(m, -ENOTSUP, "only BPE models (type 2) are supported, this is of type",
			    m->type);
	if (m->space_suffix)
		return fail(m, -ENOTSUP,
			    "only the value 0 of treat_whitespace_as_suffix is "
			    "supported, not",
			    1);
	if (m->plain_spaces)
		return fail(m, -ENOTSUP, "only the value 1 of escape_whitespaces is supported, not",
			    0);
	if (!m->has_table)
		return 0;
	if (m->err && m->errlen)
		snprintf(m->err, m->errlen,
			 "only the normalisation rule identity is supported, this is '%.*s'",
			 (int)(m->rule.end - m->rule.at < 64 ? m->rule.end - m->rule.at : 64),
			 (const char *)m->rule.at);
	return -ENOTSUP;
}

static int by_text(const void *a, const void *b)
{
	const struct piece *x = *(struct piece *const *)a, *y = *(struct piece *const *)b;
	uint32_t n = x->bytes < y->bytes ? x->bytes : y->bytes;
	int c = memcmp(x->text, y->text, n);

	return c ? c : x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static int read_model(struct model *m, const uint8_t *data, size_t size)
{
	struct reader r = {data, data + size}, bytes;
	uint64_t value;
	uint32_t number, i;
	int ret = 0;

	m->type = MODEL_UNIGRAM;
	m->dummy_prefix = true;
	while (r.at < r.end && !ret) {
		if (!read_field(&r, &number, &value, &bytes))
			ret = fail(m, -EINVAL, "a corrupt record at byte",
				   (unsigned long long)(r.at - data));
		else if (number == 1)
			ret = add_piece(m, bytes);
		else if (number == 2)
			ret = read_trainer(m, bytes);
		else if (number == 3)
			ret = read_normalizer(m, bytes);
	}
	if (!ret)
		ret = check_settings(m);
	if (ret)
		return ret;
	m->sorted = calloc(m->n + 1, sizeof(*m->sorted));
	if (!m->sorted)
		return fail(m, -ENOMEM, "no memory for pieces", m->n);
	for (i = 0; i < m->n; i++)
		m->sorted[i] = &m->pieces[i];
	qsort(m->sorted, m->n, sizeof(*m->sorted), by_text);
	for (i = 1; i < m->n; i++) {
		if (!by_text(&m->sorted[i - 1], &m->sorted[i]))
			return fail(m, -EINVAL, "the same text as another has piece",
				    m->sorted[i]->id);
	}
	return 0;
}

/* ---- merges ---- */

/* Whether it is a piece of ordinary text; control pieces and bytes are not. */
static bool is_piece(const struct model *m, const uint8_t *text, uint32_t bytes)
{
	struct piece key = {.text = text, .bytes = bytes}, *want = &key;
	struct piece **found = bsearch(&want, m->sorted, m->n, sizeof(*m->sorted), by_text);

	return found && (*found)->type == PIECE_NORMAL;
}

struct order {
	const struct model *m;
};

/* Best score first; equal ones by id, then the longer left part. */
static int by_rank(const void *a, const void *b, void *arg)
{
	const struct model *m = ((const struct order *)arg)->m;
	const struct merge *x = a, *y = b;
	float s = m->pieces[x->piece].score, t = m->pieces[y->piece].score;

	if (s != t)
		return s > t ? -1 : 1;
	if (x->piece != y->piece)
		return x->piece < y->piece ? -1 : 1;
	return x->left_bytes > y->left_bytes ? -1 : x->left_bytes < y->left_bytes;
}

/*
 * Every split of every piece into two others: the merges of SentencePiece, with the piece's score.
 */
static int find_merges(const struct model *m, struct merge **ret, uint32_t *ret_n)
{
	struct merge *merges = NULL;
	uint32_t n = 0, i, cut;
	size_t room = 0;
	struct order order = {m};

	for (i = 0; i < m->n; i++) {
		const struct piece *p = &m->pieces[i];

		for (cut = 1; p->type == PIECE_NORMAL && cut < p->bytes; cut++) {
			if ((p->text[cut] & 0xc0) == 0x80 || !is_piece(m, p->text, cut) ||
			    !is_piece(m, p->text + cut, p->bytes - cut))
				continue;
			if (n == MAX_MERGES ||
			    !array_grow(&merges, &room, (size_t)n + 1, sizeof(*merges))) {
				free(merges);
				return fail(m, -ENOMEM, "no memory for more merges than", n);
			}
			merges[n++] = (struct merge){i, cut};
		}
	}
	if (n)
		qsort_r(merges, n, sizeof(*merges), by_rank, &order);
	*ret = merges;
	*ret_n = n;
	return 0;
}

/* ---- in the words of tokenizer.json ---- */

static void copy_text(char *to, const uint8_t *text, uint32_t bytes)
{
	memcpy(to, text, bytes);
	to[bytes] = '\0';
}

static cJSON *typed(const char *type)
{
	cJSON *json = cJSON_CreateObject();

	cJSON_AddStringToObject(json, "type", type);
	return json;
}

/* @kind: "String" or "Regex" */
static cJSON *replace(const char *kind, const char *from, const char *to)
{
	cJSON *json = typed("Replace");

	cJSON_AddStringToObject(cJSON_AddObjectToObject(json, "pattern"), kind, from);
	cJSON_AddStringToObject(json, "content", to);
	return json;
}

static const char *const metaspace = "\xe2\x96\x81";

static cJSON *make_normalizer(const struct model *m)
{
	cJSON *json = typed("Sequence"), *list = cJSON_AddArrayToObject(json, "normalizers"),
	      *prefix;

	if (m->strip_spaces) {
		/* at the end, marks that the text itself has, too */
		cJSON_AddItemToArray(list, replace("Regex", "\\A +|[ \xe2\x96\x81]+\\z", ""));
		cJSON_AddItemToArray(list, replace("Regex", " {2,}", " "));
	}
	if (m->dummy_prefix) {
		prefix = typed("Prepend");
		cJSON_AddStringToObject(prefix, "prepend", metaspace);
		cJSON_AddItemToArray(list, prefix);
	}
	cJSON_AddItemToArray(list, replace("String", " ", metaspace));
	return json;
}

static cJSON *make_decoder(const struct model *m)
{
	cJSON *json = typed("Sequence"), *list = cJSON_AddArrayToObject(json, "decoders"), *strip;

	cJSON_AddItemToArray(list, replace("String", metaspace, " "));
	cJSON_AddItemToArray(list, typed("ByteFallback"));
	cJSON_AddItemToArray(list, typed("Fuse"));
	if (m->dummy_prefix) {
		strip = typed("Strip");
		cJSON_AddStringToObject(strip, "content", " ");
		cJSON_AddNumberToObject(strip, "start", 1);
		cJSON_AddNumberToObject(strip, "stop", 0);
		cJSON_AddItemToArray(list, strip);
	}
	return json;
}

static void add_special(cJSON *single, cJSON *specials, const char *name, uint32_t id)
{
	cJSON *item = cJSON_CreateObject(), *token = cJSON_AddObjectToObject(item, "SpecialToken");
	cJSON *entry = cJSON_AddObjectToObject(specials, name);

	cJSON_AddStringToObject(token, "id", name);
	cJSON_AddNumberToObject(token, "type_id", 0);
	cJSON_AddItemToArray(single, item);
	cJSON_AddStringToObject(entry, "id", name);
	cJSON_AddItemToArray(cJSON_AddArrayToObject(entry, "ids"), cJSON_CreateNumber(id));
	cJSON_AddItemToArray(cJSON_AddArrayToObject(entry, "tokens"), cJSON_CreateString(name));
}

static uint32_t find_id(const struct model *m, const char *name)
{
	struct piece key = {.text = (const uint8_t *)name, .bytes = (uint32_t)strlen(name)},
		     *want = &key;
	struct piece **found = bsearch(&want, m->sorted, m->n, sizeof(*m->sorted), by_text);

	return found ? (*found)->id : UINT32_MAX;
}

static bool wants(const cJSON *config, const char *key, bool otherwise)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(config, key);

	return cJSON_IsBool(item) ? cJSON_IsTrue(item) : otherwise;
}

static cJSON *make_post(const struct model *m, const cJSON *config)
{
	cJSON *json = typed("TemplateProcessing"), *single = cJSON_AddArrayToObject(json, "single");
	cJSON *specials = cJSON_AddObjectToObject(json, "special_tokens"), *item, *text;
	uint32_t bos = find_id(m, "<s>"), eos = find_id(m, "</s>");

	if (bos != UINT32_MAX && wants(config, "add_bos_token", true))
		add_special(single, specials, "<s>", bos);
	item = cJSON_CreateObject();
	text = cJSON_AddObjectToObject(item, "Sequence");
	cJSON_AddStringToObject(text, "id", "A");
	cJSON_AddNumberToObject(text, "type_id", 0);
	cJSON_AddItemToArray(single, item);
	if (eos != UINT32_MAX && wants(config, "add_eos_token", false))
		add_special(single, specials, "</s>", eos);
	return json;
}

/* Marks of spaces to spaces. Whether there are any. */
static bool unmark(char *text)
{
	char *mark = strstr(text, metaspace), *at = text;
	bool found = mark != NULL;

	for (; mark; mark = strstr(text, metaspace)) {
		memmove(at, text, (size_t)(mark - text));
		at += mark - text;
		*at++ = ' ';
		text = mark + strlen(metaspace);
	}
	if (found)
		memmove(at, text, strlen(text) + 1);
	return found;
}

static void add_token(const struct piece *p, const char *text, cJSON *added)
{
	cJSON *token = cJSON_CreateObject();

	cJSON_AddNumberToObject(token, "id", p->id);
	cJSON_AddStringToObject(token, "content", text);
	cJSON_AddBoolToObject(token, "single_word", false);
	cJSON_AddBoolToObject(token, "lstrip", false);
	cJSON_AddBoolToObject(token, "rstrip", false);
	cJSON_AddBoolToObject(token, "normalized", false);
	cJSON_AddBoolToObject(token, "special", p->type != PIECE_USER_DEFINED);
	cJSON_AddItemToArray(added, token);
}

static cJSON *make_json(const struct model *m, const cJSON *config, const struct merge *merges,
			uint32_t n)
{
	cJSON *root = cJSON_CreateObject(), *added = cJSON_AddArrayToObject(root, "added_tokens"),
	      *model, *vocab, *list;
	char left[MAX_PIECE_BYTES + 1], right[MAX_PIECE_BYTES + 1];
	uint32_t i;

	cJSON_AddItemToObject(root, "normalizer", make_normalizer(m));
	cJSON_AddNullToObject(root, "pre_tokenizer");
	cJSON_AddItemToObject(root, "post_processor", make_post(m, config));
	cJSON_AddItemToObject(root, "decoder", make_decoder(m));
	model = typed("BPE");
	cJSON_AddItemToObject(root, "model", model);
	vocab = cJSON_AddObjectToObject(model, "vocab");
	for (i = 0; i < m->n; i++) {
		const struct piece *p = &m->pieces[i];

		copy_text(left, p->text, p->bytes);
		cJSON_AddNumberToObject(vocab, left, i);
		/* found in the text before its spaces are marked, hence the second spelling */
		if (p->type == PIECE_USER_DEFINED && unmark(left))
			cJSON_AddNumberToObject(vocab, left, i);
		if (p->type == PIECE_UNKNOWN)
			cJSON_AddStringToObject(model, "unk_token", left);
		if (p->type == PIECE_UNKNOWN || p->type == PIECE_CONTROL ||
		    p->type == PIECE_USER_DEFINED)
			add_token(p, left, added);
	}
	cJSON_AddBoolToObject(model, "fuse_unk", true);
	cJSON_AddBoolToObject(model, "byte_fallback", m->byte_fallback);
	list = cJSON_AddArrayToObject(model, "merges");
	for (i = 0; i < n; i++) {
		const struct piece *p = &m->pieces[merges[i].piece];
		cJSON *pair = cJSON_CreateArray();

		copy_text(left, p->text, merges[i].left_bytes);
		copy_text(right, p->text + merges[i].left_bytes, p->bytes - merges[i].left_bytes);
		cJSON_AddItemToArray(pair, cJSON_CreateString(left));
		cJSON_AddItemToArray(pair, cJSON_CreateString(right));
		cJSON_AddItemToArray(list, pair);
	}
	return root;
}

int sentencepiece_convert(const char *text, size_t size, const cJSON *config, cJSON **ret_json,
			  char *err, size_t errlen)
{
	struct model m = {.err = err, .errlen = errlen};
	struct merge *merges = NULL;
	uint32_t n = 0, i;
	int ret = read_model(&m, (const uint8_t *)text, size);

	/* Byte fallback is on if all byte pieces exist, whatever older files state. */
	for (i = 0; i < m.n; i++)
		m.byte_fallback |= m.pieces[i].type == PIECE_BYTE;
	if (!ret)
		ret = find_merges(&m, &merges, &n);
	if (!ret) {
		*ret_json = make_json(&m, config, merges, n);
		if (!*ret_json)
			ret = fail(&m, -ENOMEM, "no memory for pieces", m.n);
	}
	free(merges);
	free(m.sorted);
	free(m.pieces);
	return ret;
}
