// SPDX-License-Identifier: MIT
#include "structured.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text_buf.h"
#include "text_tree.h"
#include "tokenizer.h"

#define MAX_KEPT       32
#define MAX_KEPT_BYTES ((size_t)256 << 20)
#define MAX_GRAMMAR    ((size_t)32 << 20) /* maximum message size of a grammar */

struct kept {
	uid_t user;
	struct grammar *grammar;
	char *key;
	size_t key_len;
	uint64_t used; /* incremented with each use */
};

struct structured {
	struct grammar_vocab *vocab;
	pthread_mutex_t lock;
	struct kept kept[MAX_KEPT]; /* under lock, as are the following members */
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

/*
 * ---- cache
 * -------------------------------------------------------------------------------------------
 */

/* Everything that the grammar depends on, as a byte string; false: out of memory. */
static bool make_key(const struct api_params *p, enum reply_tools tools, struct text_buf *key)
{
	const struct api_format *f = &p->format;
	const cJSON *value = f->form ? f->value : p->tools;
	char *text = value ? cJSON_PrintUnformatted(value) : NULL;
	char head[160];
	bool ok;

	snprintf(head, sizeof(head), "%d %d %d %d %d %d %d %.80s|", (int)p->kind, (int)f->form,
		 f->strict, f->compact, (int)p->tool_choice, p->parallel_tools, (int)tools,
		 p->tool_choice == API_TOOLS_NAMED ? p->tool_name : "");
	ok = (!value || text) && text_buf_add_string(key, head) &&
	     (!f->whitespace || text_buf_add_string(key, f->whitespace)) &&
	     text_buf_add(key, "", 1) && (!text || text_buf_add_string(key, text));
	free(text);
	return ok;
}

/* The lock is held. */
static struct kept *find(struct structured *s, uid_t user, const struct text_buf *key)
{
	for (unsigned i = 0; i < s->n_kept; i++) {
		if (s->kept[i].user == user && s->kept[i].key_len == key->len &&
		    !memcmp(s->kept[i].key, key->data, key->len))
			return &s->kept[i];
	}
	return NULL;
}

/* The lock is held. */
static void drop(struct structured *s, unsigned i)
{
	grammar_unref(s->kept[i].grammar);
	free(s->kept[i].key);
	s->kept[i] = s->kept[--s->n_kept];
}

static unsigned count_kept(const struct structured *s, uid_t user)
{
	unsigned n = 0;

	for (unsigned i = 0; i < s->n_kept; i++)
		n += s->kept[i].user == user;
	return n;
}

/* Evicts the least recently used entry of the user who has most entries. */
static unsigned find_victim(const struct structured *s)
{
	unsigned found = 0, most = 0;

	for (unsigned i = 0; i < s->n_kept; i++) {
		unsigned n = count_kept(s, s->kept[i].user);

		if (n > most || (n == most && s->kept[i].used < s->kept[found].used)) {
			most = n;
			found = i;
		}
	}
	return found;
}

/* Stores a grammar under its key; takes over the key. */
static void keep(struct structured *s, uid_t user, struct text_buf *key, struct grammar *g)
{
	size_t bytes = grammar_memory(g) + key->len;

	pthread_mutex_lock(&s->lock);
	for (unsigned i = 0; i < s->n_kept; i++)
		bytes += grammar_memory(s->kept[i].grammar) + s->kept[i].key_len;
	while (s->n_kept && (s->n_kept == MAX_KEPT || bytes > MAX_KEPT_BYTES)) {
		unsigned i = find_victim(s);

		bytes -= grammar_memory(s->kept[i].grammar) + s->kept[i].key_len;
		drop(s, i);
	}
	if (!find(s, user, key) && bytes <= MAX_KEPT_BYTES) {
		s->kept[s->n_kept++] = (struct kept){
			.user = user,
			.grammar = grammar_ref(g),
			.key = key->data,
			.key_len = key->len,
			.used = ++s->uses,
		};
		*key = (struct text_buf){0};
	}
	pthread_mutex_unlock(&s->lock);
}

static struct grammar *find_kept(struct structured *s, uid_t user, const struct text_buf *key)
{
	struct grammar *g = NULL;
	struct kept *kept;

	pthread_mutex_lock(&s->lock);
	kept = find(s, user, key);
	if (kept) {
		kept->used = ++s->uses;
		g = grammar_ref(kept->grammar);
	}
	pthread_mutex_unlock(&s->lock);
	return g;
}

/*
 * ---- building
 * ----------------------------------------------------------------------------------------
 */

static bool refused(const struct api_params *p, int error, const char *words, struct api_error *e)
{
	const char *param = p->format.form ? p->format.param : "tools";

	if (error == -ENOMEM)
		return api_error_set(e, 500, NULL, NULL, "out of memory");
	return api_error_set(e, 400, "invalid_grammar", param, "%s cannot be used: %s", param,
			     words);
}

/*
 * Computes the first mask, so that grammars that are too ambiguous or complex are refused before
 * queueing.
 */
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

/* Takes over the grammar that the text process built. */
static bool take(struct structured *s, const struct api_params *p, const struct text_done *done,
		 struct grammar **ret, struct api_error *e)
{
	int error = done->error;

	if (!error)
		error = grammar_import((const char *)done + done->part.offset, done->part.length,
				       ret);
	if (error)
		return refused(p, error, done->error == -EPROTO ? done->message : strerror(-error),
			       e);
	if (try_out(s, p, *ret, e))
		return true;
	grammar_unref(*ret);
	return false;
}

static bool make(struct structured *s, const struct model_text *t, const struct api_params *p,
		 const struct text_caller *caller, struct grammar **ret, struct api_error *e)
{
	const struct api_format *f = &p->format;
	struct text_job job = {
		.kind = TEXT_JOB_GRAMMAR,
		.form = f->form,
		.tool_choice = p->tool_choice,
		.tools = model_text_tools(t, p),
		.reasoning = p->kind == API_CHAT ? t->reasoning : REPLY_NO_REASONING,
		.flags = (f->strict ? TEXT_STRICT : 0) | (f->compact ? TEXT_COMPACT : 0) |
			 (f->whitespace ? TEXT_HAS_WHITESPACE : 0) |
			 (p->parallel_tools ? TEXT_PARALLEL_TOOLS : 0),
	};
	struct text_buf tree = {0};
	struct text_bytes parts[TEXT_JOB_PARTS] = {{0}};
	struct text_done *done;
	bool ok;

	if (!text_tree_write(f->form ? f->value : p->tools, &tree)) {
		free(tree.data);
		return refused(p, -ENOMEM, "", e);
	}
	parts[0] = (struct text_bytes){tree.data, tree.len};
	/* Including the NUL terminator. */
	if (f->whitespace)
		parts[1] = (struct text_bytes){f->whitespace, strlen(f->whitespace) + 1};
	if (p->tool_choice == API_TOOLS_NAMED)
		parts[2] = (struct text_bytes){p->tool_name, strlen(p->tool_name) + 1};
	ok = model_text_call(t, &job, parts, MAX_GRAMMAR, caller, f->form ? f->param : "tools",
			     &done, e);
	free(tree.data);
	if (!ok)
		return false;
	ok = take(s, p, done, ret, e);
	free(done);
	return ok;
}

bool structured_compile(struct structured *s, const struct model_text *t,
			const struct api_params *p, const struct text_caller *caller,
			struct grammar **ret, struct api_error *e)
{
	struct text_buf key = {0};
	struct grammar *g = NULL;
	bool ok;

	*ret = NULL;
	if (!p->format.form && p->tool_choice < API_TOOLS_REQUIRED)
		return true;
	ok = make_key(p, model_text_tools(t, p), &key);
	if (ok)
		g = find_kept(s, caller->user, &key);
	else
		refused(p, -ENOMEM, "", e);
	if (ok && !g) {
		ok = make(s, t, p, caller, &g, e);
		if (ok)
			keep(s, caller->user, &key, g);
	}
	free(key.data);
	*ret = g;
	return ok;
}
