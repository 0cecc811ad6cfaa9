// SPDX-License-Identifier: MIT
/*
 * Beam search for an exchange: each round asks the engine for the next token's candidates behind
 * every beam, as requests of one token whose beginnings are in the prefix cache. The searches of
 * several prompts go on side by side.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "beam.h"
#include "clock.h"
#include "exchange.h"
#include "respond.h"
#include "server_internal.h"

#define BEAM_OVERHEAD 8192 /* bytes of a beam apart from its tokens, about */

struct search;

/* A beam of the round at hand. */
struct beam {
	struct sequence sequence; /* first */
	struct search *search;
};

/* One prompt's. */
struct search {
	struct beams *beams;
	struct prompt_tokens *prompt;
	struct beam_search *search;
	struct beam beams_of_round[API_MAX_BEAMS];
	unsigned n_beams, waiting;
	int32_t *tokens; /* the prompt and room for a beam's */
	bool over;
	void **results; /* [n_results] of the text worker: what the choices' inputs point into */
	unsigned n_results;
};

/* x->own */
struct beams {
	struct exchange *exchange;
	struct engine_sampling sampling; /* of a round's requests */
	struct search *searches;	 /* [n_searches] */
	unsigned n_searches;
};

static void drop_round(struct search *s)
{
	for (unsigned i = 0; i < s->n_beams; i++)
		engine_request_unref(s->beams_of_round[i].sequence.request);
	s->n_beams = 0;
}

static void release(struct exchange *x)
{
	struct beams *b = x->own;

	for (unsigned i = 0; b && i < b->n_searches; i++) {
		struct search *s = &b->searches[i];

		drop_round(s);
		for (unsigned k = 0; k < s->n_results; k++)
			free(s->results[k]);
		free(s->results);
		beam_search_free(s->search);
		free(s->tokens);
	}
	if (b)
		free(b->searches);
	free(b);
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static bool submit_beam(struct search *s, unsigned i, struct api_error *e)
{
	struct exchange *x = s->beams->exchange;
	struct beam *beam = &s->beams_of_round[s->n_beams++];
	struct engine_request **request = &beam->sequence.request;
	unsigned n = s->prompt->n;
	char err[256] = "";
	int r;

	*beam = (struct beam){.search = s};
	beam_search_tokens(s->search, i, s->tokens + n);
	r = engine_request_new(s->tokens, n + beam_search_length(s->search), &s->beams->sampling,
			       false, request);
	if (!r)
		r = exchange_submit(x, &beam->sequence, err, sizeof(err));
	s->waiting += !r;
	return !r || exchange_engine_error(x, r, err, e);
}

static bool start_round(struct search *s, struct api_error *e)
{
	unsigned n = beam_search_live(s->search);

	drop_round(s);
	for (unsigned i = 0; i < n; i++) {
		if (!submit_beam(s, i, e))
			return false;
	}
	return true;
}

/* The round's candidates are there. */
static int take_round(struct search *s)
{
	const struct engine_logprob *candidates[API_MAX_BEAMS];

	for (unsigned i = 0; i < s->n_beams; i++)
		candidates[i] = s->beams_of_round[i].sequence.request->top;
	return beam_search_step(s->search, candidates, (unsigned)s->beams->sampling.logprobs);
}

/* ---- the end, in a text worker --------------------------------------------------------------- */

/* Makes choice @c of hypothesis @k. */
static int make_choice(struct search *s, unsigned k, struct choice *c)
{
	unsigned n_top = c->params->logprobs > 0 ? (unsigned)c->params->logprobs : 0;
	struct engine_logprob *logprobs;
	struct beam_result result;
	size_t entries;
	int r;

	beam_search_result(s->search, k, &result);
	entries = (size_t)result.n * (1 + n_top);
	logprobs = malloc(entries * sizeof(*logprobs) + (result.n + 1) * sizeof(*s->tokens));
	if (!logprobs)
		return -ENOMEM;
	s->results[s->n_results++] = logprobs;
	c->input = (struct choice_input){
		.tokens = (int32_t *)(logprobs + entries),
		.logprobs = logprobs,
		.top = logprobs + result.n,
		.n_top = n_top,
		.n = result.n,
		/* A stop token is not among the tokens. */
		.how = result.stopped ? ENGINE_FINISH_COMPLETE : ENGINE_FINISH_LENGTH,
	};
	beam_search_copy(s->search, k, (int32_t *)(logprobs + entries), logprobs,
			 logprobs + result.n);
	r = choice_init(c, result.n + 1);
	if (!r)
		r = choice_advance(c, UINT32_MAX >> 1);
	return r < 0 ? r : 0;
}

static int make_choices(struct exchange *x)
{
	struct beams *b = x->own;
	unsigned n = x->params.n;
	int r = 0;

	x->choices = calloc((size_t)b->n_searches * n, sizeof(*x->choices));
	if (!x->choices)
		return -ENOMEM;
	for (unsigned i = 0; i < b->n_searches * n && !r; i++) {
		struct search *s = &b->searches[i / n];
		struct choice *c;

		if (!s->results)
			s->results = calloc(n, sizeof(*s->results));
		if (!s->results)
			return -ENOMEM;
		if (i % n >= beam_search_results(s->search))
			continue;
		c = &x->choices[x->n_choices++];
		c->index = i;
		c->prompt_index = i / n;
		c->prompt = s->prompt;
		c->params = &x->params;
		c->text_side = x->text;
		r = make_choice(s, i % n, c);
	}
	return r;
}

static bool output(struct exchange *x)
{
	if (!x->choices && make_choices(x))
		return false;
	respond_whole(x);
	return true;
}

static bool written(struct exchange *x, struct api_error *e)
{
	struct metrics_model *m = &x->model->metrics;
	unsigned prompt = 0, generated = 0;

	(void)e;
	if (!x->complete)
		return true;
	for (unsigned i = 0; i < x->n_prompts; i++)
		prompt += x->prompts[i].n;
	for (unsigned i = 0; i < x->n_choices; i++) {
		generated += x->choices[i].completion_tokens;
		metrics_observe(m, METRICS_GENERATION_TOKENS, x->choices[i].completion_tokens, 1);
	}
	m->finished[METRICS_STOP]++;
	metrics_observe(m, METRICS_E2E_LATENCY, (double)(clock_ns() - x->arrived_ns) / 1e9, 1);
	http_conn_set_note(x->conn, "%s %u+%u tokens", x->id, prompt, generated);
	return true;
}

/* ---- the engine's events --------------------------------------------------------------------- */

static bool all_over(const struct beams *b)
{
	for (unsigned i = 0; i < b->n_searches; i++) {
		if (!b->searches[i].over)
			return false;
	}
	return true;
}

static bool event(struct sequence *sequence, enum engine_finish how, struct api_error *e)
{
	struct search *s = ((struct beam *)sequence)->search;
	struct exchange *x = sequence->exchange;

	if (how == ENGINE_RUNNING)
		return true;
	s->waiting--;
	if (!exchange_has_result(x, sequence->request, how, e))
		return false;
	/* It goes on when the whole round is there. */
	if (s->waiting || s->over || !x->conn)
		return true;
	if (take_round(s))
		return api_error_set(e, 500, NULL, NULL, "out of memory");
	s->over = !beam_search_live(s->search);
	if (!s->over)
		return start_round(s, e);
	if (all_over(s->beams))
		exchange_output(x);
	return true;
}

/* ---- the beginning --------------------------------------------------------------------------- */

static void set_up(struct beams *b, const struct api_params *p, const struct model_text *t,
		   struct beam_options *ret)
{
	static const enum beam_stopping stoppings[] = {
		[API_STOP_BY_SCORE] = BEAM_STOP_BY_SCORE,
		[API_STOP_AT_WIDTH] = BEAM_STOP_AT_WIDTH,
		[API_STOP_NEVER] = BEAM_STOP_NEVER,
	};
	struct engine_sampling normal;
	unsigned candidates = 2 * p->beam_width;

	model_text_sampling(t, p, 0, 0, NULL, &normal);
	*ret = (struct beam_options){
		.width = p->beam_width,
		.n_top = p->logprobs > 0 ? (unsigned)p->logprobs : 0,
		.n_stops = normal.ignore_eos ? 0 : normal.n_stop_tokens,
		.length_penalty = p->length_penalty,
		.stopping = stoppings[p->early_stopping],
	};
	memcpy(ret->stops, normal.stop_tokens, sizeof(ret->stops));
	if (candidates < ret->n_top)
		candidates = ret->n_top;
	b->sampling = (struct engine_sampling){
		.top_p = 1,
		.logprobs = (int)(candidates < t->vocab ? candidates : t->vocab),
		.max_tokens = 1,
	};
}

static bool start_search(struct beams *b, struct search *s, struct beam_options options,
			 struct api_error *e)
{
	struct exchange *x = b->exchange;
	unsigned context = x->text->max_context, room;

	/* It may have been loaded anew, with less memory, since the prompt was read. */
	if (context <= s->prompt->n)
		return api_error_set(e, 400, "context_length_exceeded", "prompt",
				     "the prompt has %u tokens; the model's context is %u now",
				     s->prompt->n, context);
	room = context - s->prompt->n;
	options.max_tokens = x->params.max_tokens < room ? x->params.max_tokens : room;
	s->beams = b;
	s->tokens = malloc(((size_t)s->prompt->n + options.max_tokens + 1) * sizeof(*s->tokens));
	if (!s->tokens || beam_search_new(&options, &s->search))
		return api_error_set(e, 500, NULL, NULL, "out of memory");
	memcpy(s->tokens, s->prompt->ids, s->prompt->n * sizeof(*s->tokens));
	return start_round(s, e);
}

static bool start(struct exchange *x, struct api_error *e)
{
	struct beams *b = calloc(1, sizeof(*b));
	struct beam_options options;
	uint64_t bytes = 0;

	for (unsigned i = 0; i < x->n_prompts; i++)
		bytes +=
			2 * (uint64_t)x->params.beam_width *
			(BEAM_OVERHEAD + 8 * (uint64_t)x->prompts[i].n +
			 (uint64_t)x->params.max_tokens *
				 (2 + (x->params.logprobs > 0 ? (uint64_t)x->params.logprobs : 0)) *
				 sizeof(struct engine_logprob));
	x->own = b;
	if (b)
		b->searches = calloc(x->n_prompts, sizeof(*b->searches));
	if (!b || !b->searches)
		return api_error_set(e, 500, NULL, NULL, "out of memory");
	if (!exchange_hold(x, bytes, "max_tokens", e))
		return false;
	b->exchange = x;
	set_up(b, &x->params, x->text, &options);
	for (unsigned i = 0; i < x->n_prompts; i++) {
		struct search *s = &b->searches[b->n_searches++];

		s->prompt = &x->prompts[i];
		if (!start_search(b, s, options, e))
			return false;
	}
	return true;
}

const struct request_kind kind_beam = {
	.start = start,
	.event = event,
	.written = written,
	.encode = exchange_encode_prompts,
	.output = output,
	.release = release,
};
