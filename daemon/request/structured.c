// SPDX-License-Identifier: MIT
#include "structured.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "budget.h"
#include "share.h"
#include "structured_key.h"
#include "text_buf.h"
#include "tokenizer.h"

#define MAX_GRAMMAR ((size_t)32 << 20) /* maximum message size of a grammar */

struct structured {
	struct grammar_vocab *vocab;
	_Atomic(struct budget *) budget; /* where grammars are kept; NULL: none was made yet */
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
	*ret = s;
	return 0;
}

void structured_free(struct structured *s)
{
	if (!s)
		return;
	if (s->budget)
		kept_forget(&s->budget->kept, s);
	grammar_vocab_unref(s->vocab);
	free(s);
}

struct grammar_vocab *structured_vocab(const struct structured *s)
{
	return s->vocab;
}

/* ---- kept grammars --------------------------------------------------------------------------- */

static void *ref_thing(void *g)
{
	return grammar_ref(g);
}

static void drop_thing(void *g)
{
	grammar_unref(g);
}

static size_t thing_bytes(void *g)
{
	return grammar_memory(g);
}

static bool is_used(void *g)
{
	return grammar_is_shared(g);
}

static const struct kept_kind kept_grammar = {
	.ref = ref_thing,
	.drop = drop_thing,
	.bytes = thing_bytes,
	.is_used = is_used,
};

/*
 * Of a user's account. A grammar belongs to the user for whom it was made as long as it exists,
 * kept or not. When it is freed the account may vanish with it.
 */
static bool count(void *account, int64_t bytes)
{
	if (bytes < 0) {
		budget_release(account, (uint64_t)-bytes);
		return true;
	}
	budget_add(account, (uint64_t)bytes);
	return !budget_is_beyond(account);
}

/* ---- building -------------------------------------------------------------------------------- */

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

/* Charges the user for the grammar from now on. False: it does not fit. */
static bool charge(struct account *a, struct grammar *g)
{
	const struct grammar_meter meter = {count, a};

	/*
	 * The first call makes room, which the meter cannot; the meter sees what other threads have
	 * taken since.
	 */
	return budget_fits(a, grammar_memory(g)) && grammar_set_meter(g, &meter);
}

/* Takes over the grammar that the text process built. */
static bool take(struct structured *s, const struct api_params *p, const struct text_done *done,
		 struct account *a, struct grammar **ret, struct api_error *e)
{
	int error = done->error;
	struct grammar *g;
	size_t bytes;

	if (!error)
		error = grammar_import((const char *)done + done->part.offset, done->part.length,
				       &g);
	if (error)
		return refused(p, error, done->error == -EPROTO ? done->message : strerror(-error),
			       e);
	bytes = grammar_memory(g);
	if (!charge(a, g)) {
		/* First, so that the error tells what is held without it. */
		grammar_unref(g);
		return share_refused(a, bytes, p->format.form ? p->format.param : "tools", e);
	}
	if (try_out(s, p, g, e)) {
		*ret = g;
		return true;
	}
	grammar_unref(g);
	return false;
}

static bool make(struct structured *s, const struct model_text *t, const struct api_params *p,
		 struct text_bytes tree, const struct text_caller *caller, struct account *a,
		 struct grammar **ret, struct api_error *e)
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
	struct text_bytes parts[TEXT_JOB_PARTS] = {tree};
	struct text_done *done;
	bool ok;

	/* Including the NUL terminator. */
	if (f->whitespace)
		parts[1] = (struct text_bytes){f->whitespace, strlen(f->whitespace) + 1};
	if (p->tool_choice == API_TOOLS_NAMED)
		parts[2] = (struct text_bytes){p->tool_name, strlen(p->tool_name) + 1};
	if (!model_text_call(t, &job, parts, MAX_GRAMMAR, caller, f->form ? f->param : "tools",
			     &done, e))
		return false;
	ok = take(s, p, done, a, ret, e);
	free(done);
	return ok;
}

/* Names what the grammar does not enforce, below the member that asks for it. */
static void tell_skipped(struct api_params *p, const struct grammar *g)
{
	char path[80];

	snprintf(path, sizeof(path), "%s.", p->format.form ? p->format.param : "tools");
	api_fields_ignore(p->ignored, path, grammar_skipped(g));
}

bool structured_compile(struct structured *s, const struct model_text *t, struct api_params *p,
			const struct text_caller *caller, struct account *a, struct grammar **ret,
			struct api_error *e)
{
	struct text_buf key = {0};
	struct text_bytes tree;

	*ret = NULL;
	if (!p->format.form && p->tool_choice < API_TOOLS_REQUIRED)
		return true;
	if (!structured_key(p, model_text_tools(t, p), &key, &tree)) {
		free(key.data);
		return refused(p, -ENOMEM, "", e);
	}
	*ret = kept_find(a, s, key.data, key.len);
	if (!*ret && make(s, t, p, tree, caller, a, ret, e)) {
		s->budget = a->budget;
		kept_add(a, s, key.data, key.len, &kept_grammar, *ret);
	} else {
		free(key.data);
	}
	if (*ret)
		tell_skipped(p, *ret);
	return *ret;
}
