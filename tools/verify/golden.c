// SPDX-License-Identifier: MIT
#include "golden.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "safetensors.h"
#include "vision.h"

#define MAX_CASES    1000
#define MAX_TOKENS   (1u << 20)
#define PIXELS_LIMIT 1e-6

struct golden_case {
	int32_t *ids, *at, *greedy;
	float *last, *rows, *margin;		/* [V], [n_at, V], [n_greedy] */
	float *mtp_rows;			/* [n_at, V]; read for golden_run_mtp() only */
	const struct safetensors_tensor *index; /* I32 [layers, T, keys] or NULL */
	unsigned n_ids, n_at, n_greedy;
};

/* What the comparison of one case found. */
struct golden_result {
	double sum, worst; /* relative errors */
	double *errors;	   /* of the rows: room for those of all cases */
	unsigned rows, worst_row;
	double rows_limit;
	unsigned beyond;		 /* rows with more than that */
	double most_off;		 /* largest absolute error of a logit */
	unsigned agreed;		 /* greedy steps */
	unsigned first_off;		 /* the first that differs, or n_greedy */
	unsigned choices, other_choices; /* of an indexer: a layer's for a token */
	double images;	     /* worst relative error of an image's embedding; < 0: none */
	double pixels;	     /* the largest error of a value that lib/image made; < 0: none */
	double wrong_margin; /* the largest margin of one that differs; 0: none */
};

/* A copy, since data in files may be unaligned. @dim1 0: a vector. */
static int copy_tensor(const struct safetensors *st, unsigned index, const char *what,
		       enum safetensors_dtype dtype, uint64_t dim1, void **ret, unsigned *ret_n,
		       struct tool_error *error)
{
	const struct safetensors_tensor *t;
	char name[64];

	snprintf(name, sizeof(name), "case%u.%s", index, what);
	t = safetensors_find(st, name);
	if (!t)
		return tool_fail(error, -ENOENT, "%s is missing", name);
	if (t->dtype != dtype || t->ndim != (dim1 ? 2 : 1) || t->dim[0] > MAX_TOKENS * 16 ||
	    (dim1 && t->dim[1] != dim1))
		return tool_fail(error, -EINVAL, "%s has another type or shape than expected",
				 name);
	*ret = malloc(t->bytes + 1);
	if (!*ret)
		return tool_fail(error, -ENOMEM, "no memory");
	memcpy(*ret, t->data, t->bytes);
	*ret_n = (unsigned)t->dim[0];
	return 0;
}

static void free_case(struct golden_case *c)
{
	free(c->ids);
	free(c->at);
	free(c->greedy);
	free(c->last);
	free(c->rows);
	free(c->margin);
	free(c->mtp_rows);
	memset(c, 0, sizeof(*c));
}

static int check_case(const struct golden_case *c, unsigned rows, unsigned margins,
		      struct tool_error *error)
{
	unsigned i;

	if (!c->n_ids || c->n_ids > MAX_TOKENS || rows != c->n_at || margins != c->n_greedy)
		return tool_fail(error, -EINVAL,
				 "%u ids, %u positions, %u rows, %u greedy, %u margins", c->n_ids,
				 c->n_at, rows, c->n_greedy, margins);
	for (i = 0; i < c->n_at; i++) {
		if (c->at[i] < 0 || (unsigned)c->at[i] >= c->n_ids ||
		    (i && c->at[i] <= c->at[i - 1]))
			return tool_fail(error, -EINVAL,
					 "position %d is not in the prompt, or they do not rise",
					 c->at[i]);
	}
	return 0;
}

/* case{i}.index, which only models with an indexer have. */
static int find_index(const struct safetensors *st, unsigned index, unsigned n_ids,
		      const struct safetensors_tensor **ret, struct tool_error *error)
{
	const struct safetensors_tensor *t;
	char name[64];

	snprintf(name, sizeof(name), "case%u.index", index);
	t = safetensors_find(st, name);
	if (t && (t->dtype != SAFETENSORS_I32 || t->ndim != 3 || t->dim[1] != n_ids ||
		  t->dim[0] > 1024 || t->dim[2] > TXDA_INDEX_MAX_KEYS))
		return tool_fail(error, -EINVAL, "%s has another type or shape than expected",
				 name);
	*ret = t;
	return 0;
}

static int read_case(const struct safetensors *st, unsigned index, uint64_t vocab,
		     struct golden_case *ret, struct tool_error *error)
{
	struct golden_case c = {0};
	unsigned v, rows, margins;
	int r;

	r = copy_tensor(st, index, "ids", SAFETENSORS_I32, 0, (void **)&c.ids, &c.n_ids, error);
	if (!r)
		r = copy_tensor(st, index, "at", SAFETENSORS_I32, 0, (void **)&c.at, &c.n_at,
				error);
	if (!r)
		r = copy_tensor(st, index, "greedy", SAFETENSORS_I32, 0, (void **)&c.greedy,
				&c.n_greedy, error);
	if (!r)
		r = copy_tensor(st, index, "last", SAFETENSORS_F32, 0, (void **)&c.last, &v, error);
	if (!r && v != vocab)
		r = tool_fail(error, -EINVAL, "case%u.last has %u logits, the model %llu", index, v,
			      (unsigned long long)vocab);
	if (!r)
		r = copy_tensor(st, index, "rows", SAFETENSORS_F32, vocab, (void **)&c.rows, &rows,
				error);
	if (!r)
		r = copy_tensor(st, index, "margin", SAFETENSORS_F32, 0, (void **)&c.margin,
				&margins, error);
	if (!r)
		r = check_case(&c, rows, margins, error);
	if (!r)
		r = find_index(st, index, c.n_ids, &c.index, error);
	if (r)
		free_case(&c);
	else
		*ret = c;
	return r;
}

static int count_cases(const struct safetensors *st, unsigned *ret, struct tool_error *error)
{
	const char *text = safetensors_metadata(st, "cases");
	unsigned long n = text ? strtoul(text, NULL, 10) : 0;

	if (!n || n > MAX_CASES)
		return tool_fail(error, -EINVAL, "metadata \"cases\" is %s; it must be 1 to %d",
				 text ? text : "missing", MAX_CASES);
	*ret = (unsigned)n;
	return 0;
}

int golden_context(const char *path, unsigned *ret, struct tool_error *error)
{
	unsigned cases = 0, i, most = 0;
	struct safetensors *st;
	int r;

	r = safetensors_open_file(path, &st, error);
	if (r)
		return r;
	r = count_cases(st, &cases, error);
	for (i = 0; i < cases && !r; i++) {
		const struct safetensors_tensor *ids, *greedy;
		char name[32];

		snprintf(name, sizeof(name), "case%u.ids", i);
		ids = safetensors_find(st, name);
		snprintf(name, sizeof(name), "case%u.greedy", i);
		greedy = safetensors_find(st, name);
		if (!ids || !greedy || ids->ndim != 1 || greedy->ndim != 1 ||
		    ids->dim[0] > MAX_TOKENS || greedy->dim[0] > MAX_TOKENS)
			r = tool_fail(error, -EINVAL, "%s: case %u has no ids or greedy tokens",
				      path, i);
		else if (ids->dim[0] + greedy->dim[0] > most)
			most = (unsigned)(ids->dim[0] + greedy->dim[0]);
	}
	safetensors_close(st);
	if (!r)
		*ret = most;
	return r;
}

int golden_keys(const char *path, unsigned *ret, struct tool_error *error)
{
	const struct safetensors_tensor *t;
	struct safetensors *st;
	int r = safetensors_open_file(path, &st, error);

	if (r)
		return r;
	t = safetensors_find(st, "case0.index");
	if (t)
		r = find_index(st, 0, t->ndim == 3 ? (unsigned)t->dim[1] : 0, &t, error);
	if (!r)
		*ret = t ? (unsigned)(t->dim[0] * t->dim[2]) : 0;
	safetensors_close(st);
	return r;
}

/* Compares the keys that each layer chose for each token, @got [n_ids, layers keys]. */
static void compare_keys(struct golden_result *g, const struct golden_case *c, const int32_t *got)
{
	const size_t layers = c->index->dim[0], keys = c->index->dim[2];
	size_t layer, t;

	for (layer = 0; layer < layers; layer++) {
		for (t = 0; t < c->n_ids; t++) {
			const uint8_t *want =
				c->index->data + (layer * c->n_ids + t) * keys * sizeof(*got);

			g->choices++;
			g->other_choices += memcmp(got + (t * layers + layer) * keys, want,
						   keys * sizeof(*got)) != 0;
		}
	}
}

static void compare_row(struct golden_result *g, const float *got, const float *want,
			unsigned vocab, unsigned row)
{
	double difference = 0, norm = 0, error;
	unsigned i;

	for (i = 0; i < vocab; i++) {
		double d = (double)got[i] - (double)want[i];

		difference += d * d;
		norm += (double)want[i] * (double)want[i];
		if (!(fabs(d) <= g->most_off))
			g->most_off = fabs(d);
	}
	error = sqrt(difference / (norm > 0 ? norm : 1));
	/* NaN counts as the largest error. */
	if (!(error <= g->worst) || !g->rows) {
		g->worst = error == error ? error : INFINITY;
		g->worst_row = row;
	}
	g->beyond += !(error <= g->rows_limit);
	g->sum += error;
	g->errors[g->rows++] = error == error ? error : INFINITY;
}

static int run_prompt(struct runner *r, const struct golden_case *c, unsigned chunk,
		      struct golden_result *g, float *logits, struct tool_error *error)
{
	const unsigned v = r->info.vocab;
	unsigned *rows = calloc(c->n_at + 1, sizeof(*rows)), n = 0, i;
	float *all = malloc((size_t)(c->n_at + 1) * v * sizeof(*all));
	int32_t *keys = malloc((size_t)c->n_ids * r->keys * sizeof(*keys) + 1);
	struct runner_part part = {
		.tokens = c->ids, .n = c->n_ids, .rows = rows, .logits = all, .keys = keys};
	int ret = -ENOMEM;

	if (rows && all && keys) {
		for (i = 0; i < c->n_at; i++)
			rows[n++] = (unsigned)c->at[i];
		if (!n || rows[n - 1] != c->n_ids - 1)
			rows[n++] = c->n_ids - 1;
		part.n_rows = n;
		ret = runner_sequence(r, &part, chunk, error);
	} else {
		tool_fail(error, ret, "no memory");
	}
	if (!ret) {
		for (i = 0; i < c->n_at; i++)
			compare_row(g, all + (size_t)i * v, c->rows + (size_t)i * v, v, rows[i]);
		compare_row(g, all + (size_t)(n - 1) * v, c->last, v, c->n_ids - 1);
		memcpy(logits, all + (size_t)(n - 1) * v, v * sizeof(*logits));
	}
	if (!ret && r->keys && c->index && c->index->dim[0] * c->index->dim[2] == r->keys)
		compare_keys(g, c, keys);
	free(keys);
	free(rows);
	free(all);
	return ret;
}

/* The reference's tokens are fed whatever was chosen, so that each step is a test of its own. */
static int run_greedy(struct runner *r, const struct golden_case *c, struct golden_result *g,
		      float *logits, struct tool_error *error)
{
	const unsigned first = 0;
	unsigned i;
	int ret = 0;

	g->first_off = c->n_greedy;
	for (i = 0; i < c->n_greedy && !ret; i++) {
		const struct runner_part part = {
			.tokens = &c->greedy[i],
			.n = 1,
			.position = c->n_ids + i,
			.rows = &first,
			.n_rows = 1,
			.logits = logits,
		};

		if (runner_argmax(logits, r->info.vocab) == (unsigned)c->greedy[i]) {
			g->agreed++;
		} else {
			if (g->first_off == c->n_greedy)
				g->first_off = i;
			g->wrong_margin = fmax(g->wrong_margin, (double)c->margin[i]);
		}
		if (i + 1 < c->n_greedy)
			ret = runner_step(r, &part, 1, error);
	}
	return ret;
}

static void add_result(struct golden_result *total, const struct golden_result *g,
		       unsigned n_greedy)
{
	total->sum += g->sum;
	total->rows += g->rows;
	total->beyond += g->beyond;
	total->agreed += g->agreed;
	total->first_off += n_greedy;
	total->worst = fmax(total->worst, g->worst);
}

/* Prints and judges. */
static bool judge(const struct golden_options *o, unsigned index, const struct golden_case *c,
		  const struct golden_result *g)
{
	/* An error of e on each of two logits can turn a margin of 2 e round. */
	double bridge = o->margin_limit < 0 ? 2 * g->most_off : o->margin_limit;
	bool close = o->routed ? isfinite(g->worst) : g->worst <= o->worst_limit;
	bool chosen = o->routed || !g->other_choices;
	bool same = !o->check_greedy || o->routed || g->wrong_margin <= bridge;

	close &= g->images <= o->images_limit && g->pixels <= PIXELS_LIMIT;

	printf("case %u: %4u tokens, %u rows: mean %.2e, worst %.2e (row %u), most %.2e; greedy "
	       "%u/%u",
	       index, c->n_ids, g->rows, g->sum / g->rows, g->worst, g->worst_row, g->most_off,
	       g->agreed, c->n_greedy);
	if (g->first_off < c->n_greedy)
		printf(", first other token at %u, margins up to %.2e (%.2e can be bridged)",
		       g->first_off, g->wrong_margin, bridge);
	if (g->images >= 0)
		printf(", images %.2e", g->images);
	if (g->pixels >= 0)
		printf(", pixels %.2e", g->pixels);
	if (g->choices)
		printf(", %u of %u choices of keys are others", g->other_choices, g->choices);
	printf("  %s\n", !close ? "FAIL" : !chosen ? "KEYS" : same ? "ok" : "GREEDY");
	return close && same && chosen;
}

/*
 * The layer's token at p is the one at p + 1, with the state at p before it: the pair stands at
 * position p.
 */
static int run_mtp_prompt(struct runner *r, struct runner *mtp, const struct golden_case *c,
			  unsigned chunk, struct golden_result *g, struct tool_error *error)
{
	const size_t v = r->info.vocab;
	int32_t *tokens = malloc(c->n_ids * sizeof(*tokens));
	float *states = malloc((size_t)c->n_ids * r->states * sizeof(*states)),
	      *logits = malloc((c->n_at + 1) * v * sizeof(*logits));
	struct runner_part part = {.tokens = c->ids, .n = c->n_ids, .states = states},
			   next = {.tokens = tokens,
				   .n = c->n_ids,
				   .rows = (const unsigned *)c->at,
				   .n_rows = c->n_at,
				   .logits = logits,
				   .before = states};
	int ret = -ENOMEM;
	unsigned i;

	if (tokens && states && logits) {
		memcpy(tokens, c->ids + 1, (c->n_ids - 1) * sizeof(*tokens));
		tokens[c->n_ids - 1] = c->greedy[0];
		ret = runner_sequence(r, &part, chunk, error);
		if (!ret)
			ret = runner_sequence(mtp, &next, chunk, error);
	} else {
		tool_fail(error, ret, "no memory");
	}
	for (i = 0; i < c->n_at && !ret; i++)
		compare_row(g, logits + i * v, c->mtp_rows + i * v, (unsigned)v,
			    (unsigned)c->at[i]);
	free(tokens);
	free(states);
	free(logits);
	return ret;
}

static int run_mtp_case(struct runner *r, struct runner *mtp, const struct safetensors *st,
			unsigned index, const struct golden_options *o, struct golden_result *total,
			struct tool_error *error)
{
	struct golden_result g = {.rows_limit = o->rows_limit,
				  .errors = total->errors + total->rows};
	struct golden_case c;
	unsigned rows;
	int ret;

	ret = read_case(st, index, r->info.vocab, &c, error);
	if (ret)
		return ret;
	ret = copy_tensor(st, index, "mtp_rows", SAFETENSORS_F32, r->info.vocab,
			  (void **)&c.mtp_rows, &rows, error);
	if (!ret && (rows != c.n_at || !c.n_greedy || !rows))
		ret = tool_fail(error, -EINVAL, "case%u.mtp_rows has %u rows for %u positions",
				index, rows, c.n_at);
	if (!ret)
		ret = run_mtp_prompt(r, mtp, &c, o->chunk, &g, error);
	if (!ret) {
		c.n_greedy = 0;
		ret = judge(o, index, &c, &g) ? 0 : 1;
		add_result(total, &g, 0);
	}
	free_case(&c);
	return ret;
}

static int run_case(struct runner *r, const struct safetensors *st, unsigned index,
		    const struct golden_options *o, struct golden_result *total,
		    struct tool_error *error)
{
	struct golden_result g = {.rows_limit = o->rows_limit,
				  .images = -1,
				  .pixels = -1,
				  .errors = total->errors + total->rows};
	struct vision_case seen = {0};
	struct golden_case c;
	float *logits;
	int ret;

	ret = read_case(st, index, r->info.vocab, &c, error);
	if (ret)
		return ret;
	if (r->vision) {
		ret = vision_case(r, st, o->path, index, c.ids, c.n_ids, &seen, error);
		r->images = &seen.images;
		if (seen.n_embeds)
			g.images = fmax(seen.embeds_error, seen.deepstack_error);
		g.pixels = seen.n_pictures ? seen.pixels_error : -1;
	}
	if (ret) {
		free_case(&c);
		return ret;
	}
	logits = malloc(r->info.vocab * sizeof(*logits));
	ret = logits ? run_prompt(r, &c, o->chunk, &g, logits, error)
		     : tool_fail(error, -ENOMEM, "no memory");
	if (!ret)
		ret = run_greedy(r, &c, &g, logits, error);
	if (!ret) {
		ret = judge(o, index, &c, &g) ? 0 : 1;
		add_result(total, &g, c.n_greedy);
	}
	free(logits);
	free_case(&c);
	r->images = NULL;
	vision_case_free(&seen);
	return ret;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(struct golden_result *g)
{
	qsort(g->errors, g->rows, sizeof(*g->errors), by_size);
	return g->errors[g->rows / 2];
}

/* How many rows there are to compare, at most. */
static unsigned count_rows(const struct safetensors *st, unsigned cases)
{
	unsigned n = 0, i;

	for (i = 0; i < cases; i++) {
		const struct safetensors_tensor *at;
		char name[32];

		snprintf(name, sizeof(name), "case%u.at", i);
		at = safetensors_find(st, name);
		n += 1 +
		     (at && at->ndim == 1 && at->dim[0] <= MAX_TOKENS ? (unsigned)at->dim[0] : 0);
	}
	return n;
}

/* The model as a whole: whether few enough rows and tokens are others than the reference's. */
static bool judge_all(const struct golden_options *o, struct golden_result *total)
{
	if (o->routed && o->median)
		return median(total) <= o->rows_limit;
	return total->sum / total->rows <= o->mean_limit && total->beyond * 20 <= total->rows &&
	       (!o->routed || !o->check_greedy ||
		(total->first_off - total->agreed) * o->one_off_in <= total->first_off);
}

/* @mtp NULL: the model itself. */
static int run_all(struct runner *r, struct runner *mtp, const struct golden_options *o,
		   struct tool_error *error)
{
	struct golden_result total = {0};
	bool ok;
	unsigned cases = 0, i, failed = 0;
	struct safetensors *st;
	int ret;

	ret = safetensors_open_file(o->path, &st, error);
	if (ret)
		return ret;
	ret = count_cases(st, &cases, error);
	total.errors = calloc(count_rows(st, cases), sizeof(*total.errors));
	if (!ret && !total.errors)
		ret = tool_fail(error, -ENOMEM, "no memory");
	for (i = 0; i < cases && ret >= 0; i++) {
		ret = mtp ? run_mtp_case(r, mtp, st, i, o, &total, error)
			  : run_case(r, st, i, o, &total, error);
		failed += ret > 0;
	}
	safetensors_close(st);
	if (ret < 0) {
		free(total.errors);
		return ret;
	}
	ok = judge_all(o, &total) && !failed;
	printf("%s: %u of %u cases ok, %u rows: mean %.2e, median %.2e, worst %.2e, %u beyond "
	       "%.1e; greedy %u/%u\n",
	       ok ? "ok" : "FAIL", cases - failed, cases, total.rows, total.sum / total.rows,
	       median(&total), total.worst, total.beyond, o->rows_limit, total.agreed,
	       total.first_off);
	free(total.errors);
	return ok ? 0 : 1;
}

int golden_run(struct runner *r, const struct golden_options *o, struct tool_error *error)
{
	return run_all(r, NULL, o, error);
}

int golden_run_mtp(struct runner *r, struct runner *mtp, const struct golden_options *o,
		   struct tool_error *error)
{
	return run_all(r, mtp, o, error);
}
