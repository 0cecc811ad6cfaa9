// SPDX-License-Identifier: MIT
#include "beams.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "beam.h"
#include "clock.h"
#include "exchange.h"
#include "server_internal.h"

struct search;

/* A beam of the round at hand. */
struct beam {
	struct client client; /* first: the engine's news are for it */
	struct search *search;
	struct engine_request *request;
	bool done;
};

/* One prompt's. */
struct search {
	struct beams *beams;
	const struct prompt_tokens *prompt;
	struct beam_search *search;
	struct beam beams_of_round[API_MAX_BEAMS];
	unsigned n_beams, waiting;
	int32_t *tokens; /* the prompt and room for a beam's */
	bool over;
};

struct beams {
	struct exchange *exchange;
	struct engine_sampling sampling; /* of a round's requests */
	struct search *searches;	 /* [n_searches] */
	unsigned n_searches;
};

static void on_news(struct client *client);

static void drop_round(struct search *s)
{
	for (unsigned i = 0; i < s->n_beams; i++) {
		if (s->beams_of_round[i].request)
			engine_request_unref(s->beams_of_round[i].request);
	}
	s->n_beams = 0;
}

void beams_free(struct beams *b)
{
	if (!b)
		return;
	for (unsigned i = 0; i < b->n_searches; i++) {
		drop_round(&b->searches[i]);
		beam_search_free(b->searches[i].search);
		free(b->searches[i].tokens);
	}
	free(b->searches);
	free(b);
}

void beams_cancel(struct beams *b)
{
	for (unsigned i = 0; i < b->n_searches; i++) {
		struct search *s = &b->searches[i];

		for (unsigned k = 0; k < s->n_beams; k++) {
			struct beam *beam = &s->beams_of_round[k];

			if (beam->request && !beam->done)
				model_cancel(beam->request);
		}
	}
}

/* ---- rounds ---------------------------------------------------------------------------------- */

static bool submit_beam(struct search *s, unsigned i, struct api_error *e)
{
	struct exchange *x = s->beams->exchange;
	struct beam *beam = &s->beams_of_round[s->n_beams++];
	unsigned n = s->prompt->n;
	char err[256] = "";
	int r;

	*beam = (struct beam){.client.news = on_news, .search = s};
	beam_search_tokens(s->search, i, s->tokens + n);
	r = engine_request_new(s->tokens, n + beam_search_length(s->search), &s->beams->sampling,
			       false, &beam->request);
	if (r)
		return exchange_submit_error(x, r, err, e);
	beam->request->goes_on = beam_search_length(s->search) != 0;
	r = exchange_submit(x, beam->request, &beam->client, err, sizeof(err));
	if (r)
		return exchange_submit_error(x, r, err, e);
	s->waiting++;
	return true;
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
		candidates[i] = s->beams_of_round[i].request->top;
	return beam_search_step(s->search, candidates, (unsigned)s->beams->sampling.logprobs);
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Makes choice @c of hypothesis @k. */
static int make_choice(struct search *s, unsigned k, struct choice *c)
{
	unsigned n_top = c->params->logprobs > 0 ? (unsigned)c->params->logprobs : 0;
	struct engine_logprob *logprobs, *top;
	struct beam_result result;
	int32_t *tokens;
	int r = -ENOMEM;

	beam_search_result(s->search, k, &result);
	tokens = malloc((result.n + 1) * sizeof(*tokens));
	logprobs = malloc((result.n + 1) * sizeof(*logprobs));
	top = malloc(((size_t)result.n * n_top + 1) * sizeof(*top));
	if (tokens && logprobs && top) {
		beam_search_copy(s->search, k, tokens, logprobs, top);
		r = choice_init_tokens(c, tokens, result.n, logprobs, top, n_top);
	}
	free(tokens);
	free(logprobs);
	free(top);
	if (!r)
		r = choice_take_all(c, result.stopped ? ENGINE_FINISH_STOP : ENGINE_FINISH_LENGTH);
	return r;
}

static int make_choices(struct exchange *x)
{
	struct beams *b = x->beams;
	unsigned n = x->params.n;
	int r = 0;

	x->choices = calloc((size_t)b->n_searches * n, sizeof(*x->choices));
	if (!x->choices)
		return -ENOMEM;
	for (unsigned i = 0; i < b->n_searches * n && !r; i++) {
		struct search *s = &b->searches[i / n];
		struct choice *c;

		if (i % n >= beam_search_results(s->search))
			continue;
		c = &x->choices[x->n_choices++];
		c->exchange = x;
		c->index = i;
		c->prompt_index = i / n;
		c->prompt = s->prompt;
		c->params = &x->params;
		c->text_side = x->text;
		r = make_choice(s, i % n, c);
		metrics_observe(&x->model->metrics, METRICS_GENERATION_TOKENS, c->completion_tokens,
				1);
	}
	return r;
}

static void finish(struct exchange *x)
{
	struct beams *b = x->beams;
	struct api_error e;

	for (unsigned i = 0; i < b->n_searches; i++) {
		if (!b->searches[i].over)
			return;
	}
	if (make_choices(x)) {
		api_error_set(&e, 500, NULL, NULL, "out of memory");
		exchange_fail(x, &e);
		return;
	}
	x->model->metrics.finished[METRICS_STOP]++;
	metrics_observe(&x->model->metrics, METRICS_E2E_LATENCY,
			(double)(clock_ns() - x->arrived_ns) / 1e9, 1);
	exchange_complete(x);
}

/* Goes on when the whole round is there. */
static void go_on(struct search *s)
{
	struct exchange *x = s->beams->exchange;
	struct api_error e;

	if (s->waiting || s->over || x->answered || !x->conn)
		return;
	if (take_round(s)) {
		api_error_set(&e, 500, NULL, NULL, "out of memory");
		exchange_fail(x, &e);
		return;
	}
	s->over = !beam_search_live(s->search);
	if (s->over)
		finish(x);
	else if (!start_round(s, &e))
		exchange_fail(x, &e);
}

static void on_news(struct client *client)
{
	struct beam *beam = (struct beam *)client;
	struct search *s = beam->search;
	struct exchange *x = s->beams->exchange;
	struct replica *replica = client->replica;
	struct engine_request *r = beam->request;
	enum engine_finish how =
		(enum engine_finish)atomic_load_explicit(&r->finish, memory_order_acquire);
	struct api_error e;

	if (how == ENGINE_RUNNING || beam->done)
		return;
	beam->done = true;
	s->waiting--;
	exchange_end_request(x, r);
	if (how == ENGINE_FINISH_ERROR || how == ENGINE_FINISH_CANCELLED ||
	    how == ENGINE_FINISH_TIMEOUT) {
		exchange_submit_error(x, how == ENGINE_FINISH_CANCELLED ? -ESHUTDOWN : r->error,
				      r->error_text, &e);
		exchange_fail(x, &e);
	} else {
		go_on(s);
	}
	exchange_free_if_over(x);
	replica_request_ended(replica);
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

bool beams_start(struct exchange *x, struct api_error *e)
{
	struct beams *b = calloc(1, sizeof(*b));
	struct beam_options options;

	x->beams = b;
	if (b)
		b->searches = calloc(x->n_prompts, sizeof(*b->searches));
	if (!b || !b->searches)
		return api_error_set(e, 500, NULL, NULL, "out of memory");
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
