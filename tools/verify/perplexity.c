// SPDX-License-Identifier: MIT
#include "perplexity.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"
#include "tokenizer.h"

#define MAX_TEXT_BYTES (256u << 20)

struct window {
	struct runner *r;
	float *logits, *lse; /* [n, V], [n] */
};

/* KL(p || q) of two rows of logits. */
static double divergence(const float *p, double p_lse, const float *q, double q_lse, unsigned vocab)
{
	double sum = 0;
	unsigned i;

	for (i = 0; i < vocab; i++) {
		double log_p = (double)p[i] - p_lse, log_q = (double)q[i] - q_lse;

		sum += exp(log_p) * (log_p - log_q);
	}
	return sum;
}

static int run_window(struct window *w, const int32_t *tokens, const unsigned *rows, unsigned n,
		      struct tool_error *error)
{
	const struct runner_part part = {
		.tokens = tokens,
		.n = n,
		.rows = rows,
		.n_rows = n,
		.logits = w->logits,
		.lse = w->lse,
	};

	return w->r ? runner_sequence(w->r, &part, 0, error) : 0;
}

static void count_window(const struct window *a, const struct window *b, const int32_t *tokens,
			 unsigned n, struct perplexity_result *sum)
{
	const unsigned v = a->r->info.vocab;
	unsigned i;

	/* Row i predicts token i + 1. */
	for (i = 0; i + 1 < n; i++) {
		const float *row = a->logits + (size_t)i * v, *other;
		unsigned next = (unsigned)tokens[i + 1], best = runner_argmax(row, v);

		sum->tokens++;
		sum->nll += (double)a->lse[i] - (double)row[next];
		sum->top1 += best == next;
		if (!b->r)
			continue;
		other = b->logits + (size_t)i * v;
		sum->other_nll += (double)b->lse[i] - (double)other[next];
		sum->divergence += divergence(other, (double)b->lse[i], row, (double)a->lse[i], v);
		sum->agreement += runner_argmax(other, v) == best;
	}
}

static int alloc_window(struct window *w, struct runner *r, unsigned n)
{
	w->r = r;
	if (!r)
		return 0;
	w->logits = malloc((size_t)n * r->info.vocab * sizeof(*w->logits));
	w->lse = malloc(n * sizeof(*w->lse));
	return w->logits && w->lse ? 0 : -ENOMEM;
}

static void free_window(struct window *w)
{
	free(w->logits);
	free(w->lse);
}

int perplexity_run(struct runner *r, struct runner *other, const int32_t *tokens, size_t n,
		   unsigned window, struct perplexity_result *ret, struct tool_error *error)
{
	struct perplexity_result sum = {0};
	struct window a = {0}, b = {0};
	unsigned *rows = calloc(window, sizeof(*rows)), i;
	size_t at;
	int e = 0;

	if (!rows || alloc_window(&a, r, window) || alloc_window(&b, other, window))
		e = tool_fail(error, -ENOMEM, "no memory for logits");
	for (i = 0; i < window && rows; i++)
		rows[i] = i;
	for (at = 0; at + 1 < n && !e; at += window) {
		unsigned len = n - at < window ? (unsigned)(n - at) : window;

		e = run_window(&a, tokens + at, rows, len, error);
		if (!e)
			e = run_window(&b, tokens + at, rows, len, error);
		if (!e)
			count_window(&a, &b, tokens + at, len, &sum);
	}
	free_window(&a);
	free_window(&b);
	free(rows);
	if (!e && !sum.tokens)
		e = tool_fail(error, -EINVAL, "%zu tokens are too few", n);
	if (e)
		return e;
	sum.nll /= (double)sum.tokens;
	sum.top1 /= (double)sum.tokens;
	sum.other_nll /= (double)sum.tokens;
	sum.divergence /= (double)sum.tokens;
	sum.agreement /= (double)sum.tokens;
	*ret = sum;
	return 0;
}

static int read_ids(const char *text, unsigned vocab, int32_t **ret, size_t *ret_n,
		    struct tool_error *error)
{
	size_t room = strlen(text) / 2 + 1, n = 0;
	int32_t *ids = malloc(room * sizeof(*ids));
	char *end;

	if (!ids)
		return tool_fail(error, -ENOMEM, "no memory for tokens");
	for (;;) {
		long id = strtol(text, &end, 10);

		if (end == text)
			break;
		if (id < 0 || id >= (long)vocab) {
			free(ids);
			return tool_fail(error, -ERANGE, "token %ld is not below %u", id, vocab);
		}
		ids[n++] = (int32_t)id;
		text = end;
	}
	if (text[strspn(text, " \t\r\n")]) {
		free(ids);
		return tool_fail(error, -EINVAL, "\"%.20s\" is not a token id", text);
	}
	*ret = ids;
	*ret_n = n;
	return 0;
}

static int tokenise(const char *model_dir, const char *text, size_t bytes, unsigned vocab,
		    int32_t **ret, size_t *ret_n, struct tool_error *error)
{
	struct txda_tokenizer *tokenizer;
	char reason[256] = "";
	uint32_t *ids;
	size_t n, i;
	int r;

	r = txda_tokenizer_load(model_dir, &tokenizer, reason, sizeof(reason));
	if (r)
		return tool_fail(error, r, "%s: %s", model_dir, reason);
	r = txda_tokenizer_encode(tokenizer, text, bytes, 0, &ids, &n);
	txda_tokenizer_free(tokenizer);
	if (r)
		return tool_fail(error, r, "tokenising: %s", strerror(-r));
	for (i = 0; i < n; i++) {
		if (ids[i] >= vocab) {
			free(ids);
			return tool_fail(error, -ERANGE,
					 "the tokeniser gives token %u, the model has %u", ids[i],
					 vocab);
		}
	}
	*ret = (int32_t *)ids;
	*ret_n = n;
	return 0;
}

int perplexity_read(const char *path, bool ids, const char *model_dir, unsigned vocab,
		    int32_t **ret, size_t *ret_n, struct tool_error *error)
{
	size_t bytes;
	char *text;
	int r;

	r = tool_read_file(AT_FDCWD, path, MAX_TEXT_BYTES, &text, &bytes, error);
	if (r)
		return r;
	r = ids ? read_ids(text, vocab, ret, ret_n, error)
		: tokenise(model_dir, text, bytes, vocab, ret, ret_n, error);
	free(text);
	return r ? tool_fail_within(error, r, "%s", path) : 0;
}
