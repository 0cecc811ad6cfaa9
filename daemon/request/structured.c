// SPDX-License-Identifier: MIT
#include "structured.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar_build.h"
#include "grammar_gbnf.h"
#include "grammar_regex.h"
#include "grammar_schema.h"
#include "text_buf.h"
#include "tokenizer.h"

#define MAX_KEPT       32
#define MAX_KEPT_BYTES ((size_t)256 << 20)

struct kept {
	struct grammar *grammar;
	char *key;
	size_t key_len;
	uint64_t used; /* rises with each use */
};

struct structured {
	const struct txda_tokenizer *tokenizer;
	struct grammar_vocab *vocab;
	pthread_mutex_t lock;
	struct kept kept[MAX_KEPT]; /* under lock, as is the rest */
	unsigned n_kept;
	uint64_t uses;
};

int structured_new(const struct txda_tokenizer *tokenizer, unsigned width, struct structured **ret)
{
	size_t n = txda_tokenizer_vocab_size(tokenizer);
	struct grammar_token *tokens;
	struct structured *s = calloc(1, sizeof(*s));
	int error;

	n = n < width ? n : width;
	tokens = calloc(n + 1, sizeof(*tokens));
	if (!s || !tokens) {
		free(s);
		free(tokens);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < n; i++) {
		tokens[i].bytes = txda_tokenizer_bytes(tokenizer, i, &tokens[i].len);
		tokens[i].special = txda_tokenizer_is_special(tokenizer, i);
	}
	error = grammar_vocab_new(tokens, (uint32_t)n, width, &s->vocab);
	free(tokens);
	if (error) {
		free(s);
		return error;
	}
	s->tokenizer = tokenizer;
	pthread_mutex_init(&s->lock, NULL);
	*ret = s;
	return 0;
}

void structured_free(struct structured *s)
{
	if (!s)
		return;
	for (unsigned i = 0; i < s->n_kept; i++) {
		grammar_unref(s->kept[i].grammar);
		free(s->kept[i].key);
	}
	grammar_vocab_unref(s->vocab);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

struct grammar_vocab *structured_vocab(const struct structured *s)
{
	return s->vocab;
}

/* ---- what was made before -------------------------------------------------------------------- */

/* All that the grammar depends on, as bytes; false: out of memory. */
static bool make_key(const struct api_params *p, enum reply_tools tools, struct text_buf *key)
{
	const struct api_format *f = &p->format;
	const cJSON *value = f->form ? f->value : p->tools;
	char *text = value ? cJSON_PrintUnformatted(value) : NULL;
	char head[160];
	bool ok;

	snprintf(head, sizeof(head), "%d %d %d %d %d %d %.80s|", (int)f->form, f->strict,
		 f->compact, (int)p->tool_choice, p->parallel_tools, (int)tools,
		 p->tool_choice == API_TOOLS_NAMED ? p->tool_name : "");
	ok = (!value || text) && text_buf_add_string(key, head) &&
	     (!f->whitespace || text_buf_add_string(key, f->whitespace)) &&
	     text_buf_add(key, "", 1) && (!text || text_buf_add_string(key, text));
	free(text);
	return ok;
}

/* Locked. */
static struct kept *find(struct structured *s, const struct text_buf *key)
{
	for (unsigned i = 0; i < s->n_kept; i++) {
		if (s->kept[i].key_len == key->len && !memcmp(s->kept[i].key, key->data, key->len))
			return &s->kept[i];
	}
	return NULL;
}

/* Locked. */
static void drop(struct structured *s, unsigned i)
{
	grammar_unref(s->kept[i].grammar);
	free(s->kept[i].key);
	s->kept[i] = s->kept[--s->n_kept];
}

static unsigned oldest(const struct structured *s)
{
	unsigned found = 0;

	for (unsigned i = 1; i < s->n_kept; i++) {
		if (s->kept[i].used < s->kept[found].used)
			found = i;
	}
	return found;
}

/* Keeps a grammar under its key, which it takes. */
static void keep(struct structured *s, struct text_buf *key, struct grammar *g)
{
	size_t bytes = grammar_memory(g) + key->len;

	pthread_mutex_lock(&s->lock);
	for (unsigned i = 0; i < s->n_kept; i++)
		bytes += grammar_memory(s->kept[i].grammar) + s->kept[i].key_len;
	while (s->n_kept && (s->n_kept == MAX_KEPT || bytes > MAX_KEPT_BYTES)) {
		unsigned i = oldest(s);

		bytes -= grammar_memory(s->kept[i].grammar) + s->kept[i].key_len;
		drop(s, i);
	}
	if (!find(s, key) && bytes <= MAX_KEPT_BYTES) {
		s->kept[s->n_kept++] = (struct kept){
			.grammar = grammar_ref(g),
			.key = key->data,
			.key_len = key->len,
			.used = ++s->uses,
		};
		*key = (struct text_buf){0};
	}
	pthread_mutex_unlock(&s->lock);
}

static struct grammar *find_kept(struct structured *s, const struct text_buf *key)
{
	struct grammar *g = NULL;
	struct kept *kept;

	pthread_mutex_lock(&s->lock);
	kept = find(s, key);
	if (kept) {
		kept->used = ++s->uses;
		g = grammar_ref(kept->grammar);
	}
	pthread_mutex_unlock(&s->lock);
	return g;
}

/* ---- making one ------------------------------------------------------------------------------ */

static uint32_t schema_rule(struct grammar_builder *b, const struct api_format *f)
{
	const struct grammar_json_options options = {
		.strict = f->strict,
		.compact = f->compact,
		.whitespace = f->whitespace,
	};
	struct grammar_json *j = grammar_json_new(b, &options);
	uint32_t root;

	if (!j) {
		grammar_fail(b, -ENOMEM, "out of memory");
		return 0;
	}
	root = f->form == API_FORM_OBJECT ? grammar_json_object(j)
					  : grammar_json_schema(j, f->value, f->value);
	grammar_json_finish(j);
	grammar_json_free(j);
	return root;
}

static uint32_t choice_rule(struct grammar_builder *b, const struct api_format *f)
{
	size_t n = (size_t)cJSON_GetArraySize(f->value), i = 0;
	struct grammar_bytes *strings = calloc(n + 1, sizeof(*strings));
	uint32_t root = grammar_rule(b, "choice");
	const cJSON *item;

	if (!strings) {
		grammar_fail(b, -ENOMEM, "out of memory");
		return 0;
	}
	cJSON_ArrayForEach(item, f->value) {
		strings[i].bytes = item->valuestring;
		strings[i++].len = strlen(item->valuestring);
	}
	grammar_define(b, root, grammar_one_of(b, strings, n));
	free(strings);
	return root;
}

static uint32_t form_rule(struct grammar_builder *b, const struct api_format *f)
{
	const struct grammar_regex_options whole = {0};
	const char *text = cJSON_IsString(f->value) ? f->value->valuestring : "";
	uint32_t root = 0;

	switch (f->form) {
	case API_FORM_OBJECT:
	case API_FORM_SCHEMA: return schema_rule(b, f);
	case API_FORM_CHOICE: return choice_rule(b, f);
	case API_FORM_GRAMMAR: grammar_gbnf(b, text, strlen(text), &root); return root;
	default:
		root = grammar_rule(b, "expression");
		grammar_define(b, root, grammar_regex(b, text, strlen(text), &whole));
		return root;
	}
}

static bool refused(const struct api_params *p, int error, const char *words, struct api_error *e)
{
	const char *param = p->format.form ? p->format.param : "tools";

	if (error == -ENOMEM)
		return api_error_set(e, 500, NULL, NULL, "out of memory");
	return api_error_set(e, 400, "invalid_grammar", param, "%s cannot be used: %s", param,
			     words);
}

/* Finds the first mask: what is far too ambiguous or complex is found out before it is queued. */
static bool try_out(struct structured *s, const struct api_params *p, struct grammar *g,
		    struct api_error *e)
{
	struct grammar_matcher *m;
	struct grammar_mask mask;
	int error = grammar_matcher_new(g, s->vocab, &m);

	if (error)
		return refused(p, error, "it is too complex", e);
	error = grammar_matcher_mask(m, &mask);
	grammar_matcher_free(m);
	if (error)
		return refused(p, error, "it is too complex", e);
	if (!mask.n && !mask.end)
		return refused(p, -EINVAL, "no token of the model's vocabulary begins it", e);
	return true;
}

static bool make(struct structured *s, const struct api_params *p, enum reply_tools tools,
		 struct grammar **ret, struct api_error *e)
{
	struct grammar_builder *b = grammar_builder_new();
	struct grammar *g = NULL;
	uint32_t root = 0;
	char err[256] = "";
	int error;

	if (!b)
		return refused(p, -ENOMEM, "", e);
	if (p->format.form)
		root = form_rule(b, &p->format);
	else
		tool_grammar(b, p, tools, s->tokenizer, &root);
	error = grammar_build(b, root, &g, err, sizeof(err));
	grammar_builder_free(b);
	if (error)
		return refused(p, error, err, e);
	if (!try_out(s, p, g, e)) {
		grammar_unref(g);
		return false;
	}
	*ret = g;
	return true;
}

bool structured_compile(struct structured *s, const struct api_params *p, enum reply_tools tools,
			struct grammar **ret, struct api_error *e)
{
	struct text_buf key = {0};
	struct grammar *g = NULL;
	bool ok;

	*ret = NULL;
	if (!p->format.form && p->tool_choice < API_TOOLS_REQUIRED)
		return true;
	ok = make_key(p, tools, &key);
	if (ok)
		g = find_kept(s, &key);
	else
		refused(p, -ENOMEM, "", e);
	if (ok && !g) {
		ok = make(s, p, tools, &g, e);
		if (ok)
			keep(s, &key, g);
	}
	free(key.data);
	*ret = g;
	return ok;
}
