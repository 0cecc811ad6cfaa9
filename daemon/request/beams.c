// SPDX-License-Identifier: MIT
/*
 * Beam search for an exchange: one engine request per prompt, whose best hypotheses become the
 * choices.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "beam.h"
#include "clock.h"
#include "exchange.h"
#include "pictures.h"
#include "respond.h"
#include "service.h"

#define BEAM_OVERHEAD 8192 /* approximate bytes of a beam besides its tokens */

/* State of one prompt. */
struct search {
	struct sequence sequence; /* first */
	struct prompt_tokens *prompt;
	const struct beam_search *search; /* owned by the request, valid once that is complete */
	void **results; /* [n_results] the text worker's; referenced by the choices' inputs */
	unsigned n_results;
};

/* x->own */
struct beams {
	struct search *searches; /* [n_searches] */
	unsigned n_searches;
};

static void release(struct exchange *x)
{
	struct beams *b = x->own;

	for (unsigned i = 0; b && i < b->n_searches; i++) {
		struct search *s = &b->searches[i];

		for (unsigned k = 0; k < s->n_results; k++)
			free(s->results[k]);
		free(s->results);
		engine_request_unref(s->sequence.request);
	}
	if (b)
		free(b->searches);
	free(b);
}

/* ---- the end, in a text worker --------------------------------------------------------------- */

/* Fills in choice @c from hypothesis @k. */
static int make_choice(struct search *s, unsigned k, struct choice *c)
{
	unsigned n_top = c->params->logprobs > 0 ? (unsigned)c->params->logprobs : 0;
	struct engine_logprob *logprobs;
	struct beam_result result;
	size_t entries;
	int r;

	beam_search_result(s->search, k, &result);
	entries = (size_t)result.n * (1 + n_top);
	logprobs = malloc(entries * sizeof(*logprobs) + (result.n + 1) * sizeof(int32_t));
	if (!logprobs)
		return -ENOMEM;
	s->results[s->n_results++] = logprobs;
	c->input = (struct choice_input){
		.tokens = (int32_t *)(logprobs + entries),
		.logprobs = logprobs,
		.top = logprobs + result.n,
		.n_top = n_top,
		.n = result.n,
		/* A stop token is not part of the tokens. */
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

static bool event(struct sequence *sequence, enum engine_finish how, struct api_error *e)
{
	struct exchange *x = sequence->exchange;
	const struct beams *b = x->own;

	if (how == ENGINE_RUNNING)
		return true;
	if (!exchange_has_result(x, sequence->request, how, e))
		return false;
	((struct search *)sequence)->search = sequence->request->search;
	for (unsigned i = 0; i < b->n_searches; i++) {
		if (!b->searches[i].search)
			return true;
	}
	if (x->conn)
		exchange_output(x);
	return true;
}

/* ---- the beginning --------------------------------------------------------------------------- */

static struct beam_options options_of(const struct exchange *x)
{
	static const enum beam_stopping stoppings[] = {
		[API_STOP_BY_SCORE] = BEAM_STOP_BY_SCORE,
		[API_STOP_AT_WIDTH] = BEAM_STOP_AT_WIDTH,
		[API_STOP_NEVER] = BEAM_STOP_NEVER,
	};
	const struct api_params *p = &x->params;
	struct engine_sampling normal;
	struct beam_options options;

	model_text_sampling(x->text, p, 0, 0, NULL, &normal);
	options = (struct beam_options){
		.width = p->beam_width,
		.n_top = p->logprobs > 0 ? (unsigned)p->logprobs : 0,
		.n_stops = normal.ignore_eos ? 0 : normal.n_stop_tokens,
		.length_penalty = p->length_penalty,
		.stopping = stoppings[p->early_stopping],
	};
	memcpy(options.stops, normal.stop_tokens, sizeof(options.stops));
	return options;
}

static bool start_search(struct exchange *x, struct search *s, struct beam_options options,
			 struct api_error *e)
{
	unsigned context = x->text->max_context, room;
	char err[256] = "";
	int r;

	/* The model may have been reloaded with less memory since the prompt was tokenised. */
	if (context <= s->prompt->n)
		return api_error_set(e, 400, "context_length_exceeded", "prompt",
				     "the prompt has %u tokens; the model's context is %u now",
				     s->prompt->n, context);
	room = context - s->prompt->n;
	options.max_tokens = x->params.max_tokens < room ? x->params.max_tokens : room;
	r = engine_beam_new(s->prompt->ids, s->prompt->n, &options, &s->sequence.request);
	if (!r) {
		s->sequence.request->images = engine_images_ref(s->prompt->images);
		r = exchange_submit(x, &s->sequence, 1, err, sizeof(err));
	}
	return !r || exchange_engine_error(x, r, err, e);
}

static bool start(struct exchange *x, struct api_error *e)
{
	struct beams *b = calloc(1, sizeof(*b));
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
	for (unsigned i = 0; i < x->n_prompts; i++) {
		struct search *s = &b->searches[b->n_searches++];

		s->prompt = &x->prompts[i];
		if (!start_search(x, s, options_of(x), e))
			return false;
	}
	return true;
}

static bool encode(struct exchange *x, struct api_error *e)
{
	return pictures_read(x, e) && exchange_encode_prompts(x, e);
}

const struct request_kind kind_beam = {
	.start = start,
	.event = event,
	.written = written,
	.encode = encode,
	.output = output,
	.release = release,
};
