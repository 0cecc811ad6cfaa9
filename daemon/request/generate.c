// SPDX-License-Identifier: MIT
/* Chats and completions: for each choice of an answer an engine sequence and a text. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "clock.h"
#include "exchange.h"
#include "grammar.h"
#include "pictures.h"
#include "respond.h"
#include "service.h"

#define TOKENS_PER_EVENT 32 /* maximum, so that log probabilities do not make a single one huge */
#define EVENT_BYTES	 ((size_t)64 << 10) /* approximate limit per job when streaming */
#define CHOICE_OVERHEAD	 8192		    /* bytes of a choice besides its tokens */
#define TOKEN_BYTES	 16		    /* per token: its id and its text */
#define LOGPROB_BYTES	 128		    /* approximate size of an entry in a whole answer */
#define ECHO_BYTES	 8		    /* per token of an echoed prompt, only its text */
#define ECHO_LOGPROB	 32		    /* with its name, log probability and offset */

/* x->own: the choices' sequences [n_choices]. */
static struct sequence *sequence_of(const struct exchange *x, unsigned i)
{
	return (struct sequence *)x->own + i;
}

/* ---- set-up, in a text worker ---------------------------------------------------------------- */

static uint64_t choose_seed(const struct exchange *x)
{
	uint64_t seed;

	if (x->params.seed_given)
		return (uint64_t)x->params.seed;
	if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
		seed = x->arrived_ns;
	return seed;
}

static int prepare(struct exchange *x, struct choice *c, struct sequence *s, uint64_t seed,
		   unsigned k)
{
	const struct api_params *p = &x->params;
	struct engine_bias biases[API_MAX_BIASES];
	struct engine_sampling sampling;
	int r;

	model_text_sampling(x->text, p, seed, k, biases, &sampling);
	r = choice_init(c, sampling.max_tokens);
	if (!r)
		r = engine_request_new(c->prompt->ids, c->prompt->n, &sampling,
				       p->echo && p->logprobs >= 0, &s->request);
	if (r)
		return r;
	s->request->images = engine_images_ref(c->prompt->images);
	c->input = (struct choice_input){
		.tokens = s->request->tokens,
		.logprobs = s->request->logprobs,
		.top = s->request->top,
		.n_top = sampling.logprobs > 0 ? (unsigned)sampling.logprobs : 0,
		.prompt_logprobs = s->request->prompt_lp,
		.prompt_top = s->request->prompt_top,
	};
	return model_text_constrain(x->text, &x->params, c->prompt, x->grammar, s->request);
}

static bool encode(struct exchange *x, struct api_error *e)
{
	unsigned best_of = x->params.best_of, n;
	uint64_t seed = choose_seed(x);
	int r = 0;

	if (!pictures_read(x, e) || !exchange_encode_prompts(x, e) ||
	    !model_text_grammar(x->text, &x->params, &x->caller, x->account, &x->grammar, e))
		return false;
	n = x->n_prompts * best_of;
	x->own = calloc(n, sizeof(struct sequence));
	x->choices = calloc(n, sizeof(*x->choices));
	if (!x->choices || !x->own)
		return api_error_set(e, 500, NULL, NULL, "out of memory");
	for (unsigned i = 0; i < n && !r; i++) {
		struct choice *c = &x->choices[x->n_choices++];

		c->index = i;
		c->prompt_index = i / best_of;
		c->prompt = &x->prompts[c->prompt_index];
		c->params = &x->params;
		c->text_side = x->text;
		r = prepare(x, c, sequence_of(x, i), seed, i % best_of);
	}
	return !r || exchange_engine_error(x, r, "", e);
}

static void release(struct exchange *x)
{
	for (unsigned i = 0; i < x->n_choices; i++)
		engine_request_unref(sequence_of(x, i)->request);
	free(x->own);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Log probabilities with each token. */
static uint64_t entries(const struct exchange *x)
{
	return x->params.logprobs < 0 ? 0 : 2 + (uint64_t)x->params.logprobs;
}

static uint64_t token_bytes(const struct exchange *x)
{
	return TOKEN_BYTES + entries(x) * sizeof(struct engine_logprob);
}

/*
 * For a token of the prompt: its copy and log probability, and its repetition in a whole answer.
 * The best tokens at its place also count when streaming, as one event has those of the prompt.
 */
static uint64_t prompt_token_bytes(const struct exchange *x)
{
	bool scored = x->params.echo && x->params.logprobs >= 0;
	uint64_t best = scored ? (uint64_t)x->params.logprobs : 0, bytes = 8;

	if (best)
		bytes += best * sizeof(struct engine_logprob) + (best + 1) * ECHO_LOGPROB;
	if (!x->params.echo || x->params.stream)
		return bytes;
	return bytes + ECHO_BYTES + (scored ? ECHO_LOGPROB : 0);
}

/*
 * Memory needed before the first token is generated; generated tokens are counted as they come.
 * What was explicitly requested must be affordable.
 */
static bool hold(struct exchange *x, struct api_error *e)
{
	/* Its grammar is charged by itself; with each choice it has a mask. */
	uint64_t mask = x->grammar ? x->text->vocab / 8 : 0, bytes = 0, most;

	for (unsigned i = 0; i < x->n_choices; i++)
		bytes += CHOICE_OVERHEAD + mask + prompt_token_bytes(x) * x->choices[i].prompt->n;
	most = bytes + (uint64_t)x->n_choices * x->params.max_tokens *
			       (token_bytes(x) + entries(x) * LOGPROB_BYTES);
	if (x->params.max_tokens_given && most > budget_most(x->account->budget))
		bytes = most;
	return exchange_hold(x, bytes, "max_tokens", e);
}

/* ---- the engine's events --------------------------------------------------------------------- */

static bool start(struct exchange *x, struct api_error *e)
{
	unsigned best_of = x->params.best_of;
	unsigned queue = x->service->config->max_queue;
	char err[256] = "";

	if (queue && best_of > queue)
		return api_error_set(e, 400, NULL, best_of > x->params.n ? "best_of" : "n",
				     "%u answers are requested; the limit of waiting requests is "
				     "%u (--max-queue)",
				     best_of, queue);
	if (!hold(x, e))
		return false;
	for (unsigned i = 0; i < x->n_prompts; i++) {
		int r = exchange_submit(x, sequence_of(x, i * best_of), best_of, err, sizeof(err));

		if (r)
			return exchange_engine_error(x, r, err, e);
	}
	return true;
}

/* Returns the number of new tokens. */
static unsigned observe_tokens(struct sequence *s)
{
	struct metrics_model *m = &s->exchange->model->metrics;
	unsigned n = atomic_load_explicit(&s->request->n_tokens, memory_order_acquire),
		 before = s->counted, first = !before;
	uint64_t now = clock_ns();

	if (n == before)
		return 0;
	s->counted = n;
	if (first)
		metrics_observe(m, METRICS_TIME_TO_FIRST_TOKEN,
				(double)(now - s->exchange->arrived_ns) / 1e9, 1);
	if (n > before + first)
		metrics_observe(m, METRICS_INTER_TOKEN_LATENCY,
				(double)(now - s->counted_ns) / 1e9 / (n - before - first),
				n - before - first);
	s->counted_ns = now;
	return n - before;
}

/* Whether the text may end an answer before the engine does. */
static bool is_watched(const struct exchange *x)
{
	return x->params.n_stop || (x->params.tools && !x->params.parallel_tools);
}

static bool event(struct sequence *s, enum engine_finish how, struct api_error *e)
{
	struct exchange *x = s->exchange;
	unsigned n = observe_tokens(s);

	x->generated += n;
	if (!x->conn)
		return true;
	if (n)
		exchange_grow(x, n * token_bytes(x));
	/* Its deadline passed before any output: an error, not an answer. */
	if (how == ENGINE_FINISH_TIMEOUT && !x->generated)
		return exchange_has_result(x, s->request, how, e);
	if (!x->live && !x->params.stream)
		exchange_grow(x, x->generated * entries(x) * LOGPROB_BYTES);
	if (!x->live || x->params.stream || is_watched(x) || how == ENGINE_FINISH_ERROR ||
	    how == ENGINE_FINISH_CANCELLED)
		exchange_output(x);
	return true;
}

/* ---- output, in a text worker ---------------------------------------------------------------- */

static void read_input(struct choice *c, const struct sequence *s)
{
	struct choice_input *in = &c->input;

	/* Read in this order: once it has ended, all tokens are visible. */
	in->how =
		(enum engine_finish)atomic_load_explicit(&s->request->finish, memory_order_acquire);
	in->n = atomic_load_explicit(&s->request->n_tokens, memory_order_acquire);
	if (in->n || in->how != ENGINE_RUNNING)
		in->cached_tokens = s->request->cached_tokens;
}

static bool all_finished(const struct exchange *x)
{
	for (unsigned i = 0; i < x->n_choices; i++) {
		if (!x->choices[i].finish_reason)
			return false;
	}
	return true;
}

static bool stream_choice(struct exchange *x, struct choice *c)
{
	struct json_out *o = &x->out;
	bool over = c->finish_reason;

	while (!over) {
		int n;

		if (o->len >= EVENT_BYTES) {
			x->more = true;
			return true;
		}
		n = choice_advance(c, TOKENS_PER_EVENT);
		if (n < 0)
			return false;
		over = c->finish_reason;
		if (!c->begun && (n || over))
			respond_first(o, x, c);
		if (choice_has_output(c))
			respond_text(o, x, c);
		if (n || over)
			choice_sent(c);
		if (over)
			respond_finish(o, x, c);
		if (!n)
			break;
	}
	return true;
}

static bool output_stream(struct exchange *x)
{
	for (unsigned k = 0; k < x->n_choices && !x->more; k++) {
		unsigned i = (x->cursor + k) % x->n_choices;

		read_input(&x->choices[i], sequence_of(x, i));
		if (!stream_choice(x, &x->choices[i]))
			return false;
		/* The next job starts where this one ends, so that every choice gets a turn. */
		if (x->more)
			x->cursor = i;
	}
	if (!all_finished(x))
		return true;
	if (x->params.include_usage)
		respond_usage(&x->out, x);
	respond_done(&x->out);
	x->complete = true;
	return true;
}

static int by_score(const void *a, const void *b)
{
	const struct choice *x = *(struct choice *const *)a, *y = *(struct choice *const *)b;

	if (x->score != y->score)
		return x->score > y->score ? -1 : 1;
	return x->index < y->index ? -1 : 1;
}

/* The n best answers of each prompt get the indices of the answer. */
static void give_places(struct exchange *x)
{
	unsigned n = x->params.n, best_of = x->params.best_of;
	struct choice *order[API_MAX_N];

	if (best_of <= n)
		return;
	for (unsigned i = 0; i < x->n_prompts; i++) {
		for (unsigned k = 0; k < best_of; k++) {
			order[k] = &x->choices[i * best_of + k];
			choice_rate(order[k]);
		}
		qsort(order, best_of, sizeof(order[0]), by_score);
		for (unsigned k = 0; k < best_of; k++)
			order[k]->index = k < n ? i * n + k : CHOICE_NOT_GIVEN;
	}
}

static bool output_whole(struct exchange *x)
{
	for (unsigned i = 0; i < x->n_choices && !x->cursor; i++) {
		struct choice *c = &x->choices[i];
		int n;

		read_input(c, sequence_of(x, i));
		do
			n = choice_advance(c, UINT32_MAX >> 1);
		while (n > 0 && !c->finish_reason);
		if (n < 0)
			return false;
	}
	if (!all_finished(x))
		return true;
	if (!x->cursor)
		give_places(x);
	respond_whole(x);
	return true;
}

static bool output(struct exchange *x)
{
	return x->params.stream ? output_stream(x) : output_whole(x);
}

/* ---- after the answer ------------------------------------------------------------------------ */

static unsigned long long ms(uint64_t from, uint64_t to)
{
	return from && to > from ? (to - from) / 1000000 : 0;
}

/* For the log: token counts and latencies. */
static void note_times(struct exchange *x)
{
	const struct engine_request *r = sequence_of(x, 0)->request;
	unsigned prompt = 0, tokens = 0;

	for (unsigned i = 0; i < x->n_prompts; i++)
		prompt += x->prompts[i].n;
	for (unsigned i = 0; i < x->n_choices; i++)
		tokens += x->choices[i].completion_tokens;
	if (r->first_token_ns)
		http_conn_set_note(x->conn, "%s %u+%u tokens, queued %llu ms, first token %llu ms",
				   x->id, prompt, tokens, ms(r->queued_ns, r->started_ns),
				   ms(x->arrived_ns, r->first_token_ns));
	else
		http_conn_set_note(x->conn, "%s %u+%u tokens", x->id, prompt, tokens);
}

static bool written(struct exchange *x, struct api_error *e)
{
	bool rest = x->more || x->wake;

	for (unsigned i = 0; i < x->n_choices; i++) {
		const struct sequence *s = sequence_of(x, i);
		bool runs = s->link;

		/* A stop string ends the choice before the engine is told. */
		if (x->choices[i].finish_reason && runs)
			model_cancel(s->request);
		/* The output generated before the error has been written. */
		if (!x->choices[i].finish_reason && !runs && !rest &&
		    !exchange_has_result(x, s->request, x->choices[i].input.how, e))
			return false;
	}
	if (x->complete)
		note_times(x);
	return true;
}

static void over(struct exchange *x)
{
	for (unsigned i = 0; i < x->n_choices; i++) {
		const struct engine_request *r = sequence_of(x, i)->request;
		const char *reason = x->choices[i].finish_reason;
		enum engine_finish how =
			r ? (enum engine_finish)atomic_load(&r->finish) : ENGINE_RUNNING;

		/* Ended by a stop string or a call, whatever the engine's own result. */
		if (reason && strcmp(reason, "length"))
			how = ENGINE_FINISH_STOP;
		if (how != ENGINE_RUNNING)
			exchange_observe(x, r, how);
	}
}

#define GENERATION                                                                                 \
	.start = start, .event = event, .written = written, .over = over, .encode = encode,        \
	.output = output, .release = release

const struct request_kind kind_chat = {
	.name = "chat",
	.id = "chatcmpl",
	.prompt = "messages",
	.shape = &shape_chat,
	.arrive = pictures_arrive,
	GENERATION,
};

const struct request_kind kind_completion = {
	.name = "completion",
	.id = "cmpl",
	.prompt = "prompt",
	.shape = &shape_completion,
	GENERATION,
};
