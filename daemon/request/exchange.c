// SPDX-License-Identifier: MIT
#include "exchange.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "beams.h"
#include "clock.h"
#include "descriptors.h"
#include "embeddings.h"
#include "forward_call.h"
#include "grammar.h"
#include "log.h"
#include "respond.h"
#include "server_internal.h"

#define TOKENS_PER_EVENT                                                                           \
	32 /* most that one event carries, so that log probabilities do not make it huge */
#define CHOICE_OVERHEAD	 8192 /* bytes that a choice takes apart from its tokens, about */
#define GRAMMAR_OVERHEAD ((uint64_t)1 << 20) /* what a grammar remembers, commonly */
#define LOGPROB_BYTES	 128		     /* of an entry in the answer, about */

static struct exchange *of_job(struct textpool_job *job)
{
	return (struct exchange *)((char *)job - offsetof(struct exchange, job));
}

/* Its model works for it from now on, or need not any more: a client that reads slowly is no reason to keep it. */
static void end_expected(struct exchange *x)
{
	if (x->expected)
		x->model->expected--;
	x->expected = false;
}

static void exchange_free(struct exchange *x)
{
	struct server *s = x->server;

	if (x->prev)
		x->prev->next = x->next;
	else
		s->exchanges = x->next;
	if (x->next)
		x->next->prev = x->prev;
	s->n_exchanges--;
	if (x->parked)
		model_unpark(x->model, x);
	end_expected(x);
	if (x->model)
		model_unuse(x->model);
	for (unsigned i = 0; i < x->n_choices; i++)
		choice_clear(&x->choices[i]);
	for (unsigned i = 0; i < x->n_prompts; i++)
		free(x->prompts[i].ids);
	beams_free(x->beams);
	embeddings_free(x->embeddings);
	forward_call_free(x->forward);
	descriptors_discard(x->set);
	grammar_unref(x->grammar);
	if (x->parsed)
		api_params_free(&x->params);
	budget_give(&s->budget, x->held);
	free(x->prompts);
	free(x->choices);
	free(x->body);
	free(x);
}

void exchange_free_if_over(struct exchange *x)
{
	if (!x->in_pool && !x->live && (x->answered || !x->conn))
		exchange_free(x);
}

static void cancel_choices(struct exchange *x)
{
	if (x->beams)
		beams_cancel(x->beams);
	if (x->embeddings)
		embeddings_cancel(x->embeddings);
	if (x->forward)
		forward_call_cancel(x->forward);
	for (unsigned i = 0; i < x->n_choices; i++)
		if (x->choices[i].request && !x->choices[i].engine_done)
			model_cancel(x->choices[i].request);
}

char *exchange_headers(const struct exchange *x, char *buf, size_t len)
{
	const char *ignored = x->params.ignored;

	snprintf(buf, len, "X-Request-Id: %s\r\n%s%s%s", x->id, *ignored ? "Txda-Ignored: " : "",
		 ignored, *ignored ? "\r\n" : "");
	return buf;
}

void exchange_fail(struct exchange *x, const struct api_error *e)
{
	struct json_out *o = &x->server->out;

	cancel_choices(x);
	if (x->answered || !x->conn)
		return;
	x->answered = true;
	if (x->streaming) {
		json_out_clear(o);
		respond_error(o, e);
		respond_done(o);
		http_stream_write(x->conn, o->data, o->len);
		http_stream_end(x->conn);
	} else {
		char header[64];

		snprintf(header, sizeof(header), "X-Request-Id: %s\r\n", x->id);
		server_reply_error(x->server, x->conn, e, header);
	}
	x->conn = NULL;
}

/* The request's own limit or the daemon's, from when it came. */
static void set_deadline(struct exchange *x)
{
	double limit = x->server->config->request_timeout;

	if (x->params.timeout > 0 && (limit <= 0 || x->params.timeout < limit))
		limit = x->params.timeout;
	x->deadline_ns = limit > 0 ? x->arrived_ns + (uint64_t)(limit * 1e9) : 0;
}

static void set_late(const struct exchange *x, struct api_error *e)
{
	api_error_set(e, 504, "timeout", x->params.timeout > 0 ? "timeout" : NULL,
		      "the request was not answered within %.3g s",
		      (double)(x->deadline_ns - x->arrived_ns) / 1e9);
}

bool exchange_end_late(struct exchange *x)
{
	struct api_error e;

	if (!x->deadline_ns || clock_ns() < x->deadline_ns)
		return false;
	set_late(x, &e);
	exchange_fail(x, &e);
	exchange_free_if_over(x);
	return true;
}

static void fail_memory(struct exchange *x)
{
	struct api_error e;

	api_error_set(&e, 500, NULL, NULL, "out of memory");
	exchange_fail(x, &e);
}

/* ---- the text pool's part -------------------------------------------------------------------- */

static void run_parse(struct textpool_job *job)
{
	struct exchange *x = of_job(job);

	x->parsed = api_params_parse(x->kind, x->body, x->body_len, &x->params, &x->error);
}

static void run_encode(struct textpool_job *job)
{
	struct exchange *x = of_job(job);

	x->n_prompts = x->params.messages || x->kind == API_FORWARD ? 1 : x->params.n_prompts;
	x->prompts = calloc(x->n_prompts, sizeof(*x->prompts));
	if (!x->prompts) {
		x->n_prompts = 0;
		api_error_set(&x->error, 500, NULL, NULL, "out of memory");
		return;
	}
	if (x->kind == API_FORWARD) {
		x->encoded = forward_call_prepare(x, &x->error);
		return;
	}
	x->encoded = model_text_encode(x->text, &x->params, x->prompts, &x->error) &&
		     model_text_grammar(x->text, &x->params, &x->grammar, &x->error);
}

/* ---- submission ------------------------------------------------------------------------------ */

/* What the answer will take at most; the body is given back. */
static bool take_budget(struct exchange *x, struct api_error *e)
{
	struct budget *budget = &x->server->budget;
	uint64_t per_token = 16, bytes = 0;
	uint64_t answers =
		x->params.beam_width ? 2 * (uint64_t)x->params.beam_width : x->params.best_of;

	if (x->params.logprobs >= 0 || x->params.beam_width)
		per_token += (2 + (uint64_t)(x->params.logprobs > 0 ? x->params.logprobs : 0)) *
			     (sizeof(struct engine_logprob) + LOGPROB_BYTES);
	for (unsigned i = 0; i < x->n_prompts; i++)
		bytes += answers * (CHOICE_OVERHEAD + 8 * (uint64_t)x->prompts[i].n +
				    x->params.max_tokens * per_token);
	if (x->kind == API_EMBEDDING)
		bytes = embeddings_bytes(x);
	if (x->kind == API_FORWARD)
		bytes = forward_call_bytes(x);
	if (x->grammar)
		bytes += GRAMMAR_OVERHEAD;
	if (bytes > budget->limit)
		return api_error_set(e, 400, NULL,
				     x->kind == API_EMBEDDING ? "input"
				     : x->kind == API_FORWARD ? "rows"
							      : "max_tokens",
				     "the answer may take %llu bytes of memory; the limit is %llu",
				     (unsigned long long)bytes, (unsigned long long)budget->limit);
	budget_give(budget, x->held);
	x->held = 0;
	if (!budget_take(budget, bytes))
		return api_error_set(e, 429, "overloaded", NULL,
				     "too much is queued: %llu bytes are held for all clients, the "
				     "answer may take %llu; the limit is %llu",
				     (unsigned long long)budget->used, (unsigned long long)bytes,
				     (unsigned long long)budget->limit);
	x->held = bytes;
	return true;
}

static uint64_t choose_seed(const struct exchange *x)
{
	uint64_t seed;

	if (x->params.seed_given)
		return (uint64_t)x->params.seed;
	if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
		seed = x->arrived_ns;
	return seed;
}

bool exchange_submit_error(const struct exchange *x, int error, const char *text,
			   struct api_error *e)
{
	switch (error) {
	case -EAGAIN:
		return api_error_set(e, 429, "overloaded", NULL, "the queue is full: %s", text);
	case -E2BIG:
		return api_error_set(e, 400, "context_length_exceeded",
				     x->kind == API_CHAT	? "messages"
				     : x->kind == API_EMBEDDING ? "input"
				     : x->kind == API_FORWARD	? "input_ids"
								: "prompt",
				     "%s", text);
	case -EOPNOTSUPP: return api_error_set(e, 400, "unsupported_value", "model", "%s", text);
	case -ESHUTDOWN:
		return api_error_set(e, 503, "shutting_down", NULL, "the daemon is shutting down");
	case -EIO:
		return api_error_set(e, 503, "model_lost", NULL,
				     "the chips of the model failed: %s", text);
	case -EPROTO:
		return api_error_set(e, 400, "invalid_grammar",
				     x->params.format.form ? x->params.format.param : "tools",
				     "the answer cannot go on in the form that was asked for: %s",
				     text);
	case -ETIMEDOUT: set_late(x, e); return false;
	case -ENOMEM: return api_error_set(e, 500, NULL, NULL, "out of memory");
	default:
		return api_error_set(e, 500, NULL, NULL,
				     "the request could not be started: %s (%s)", text,
				     strerror(-error));
	}
}

int exchange_submit(struct exchange *x, struct engine_request *r, struct client *client, char *err,
		    size_t errlen)
{
	int error;

	r->uid = x->uid;
	r->priority = -(int)x->params.priority;
	r->deadline_ns = x->deadline_ns;
	error = model_submit(x->model, r, client, err, errlen);
	x->live += !error;
	if (!error)
		end_expected(x);
	return error;
}

static void on_news(struct client *client);
static void on_gone(struct conn_user *u);
static void on_drained(struct conn_user *u);

static bool submit_choice(struct exchange *x, struct choice *c, uint64_t seed, unsigned k,
			  struct api_error *e)
{
	struct engine_bias biases[API_MAX_BIASES];
	struct engine_sampling sampling;
	char err[256] = "";
	int r;

	model_text_sampling(x->text, &x->params, seed, k, biases, &sampling);
	r = choice_init(c, &sampling, x->grammar);
	if (r)
		return exchange_submit_error(x, r, err, e);
	r = exchange_submit(x, c->request, &c->client, err, sizeof(err));
	return !r || exchange_submit_error(x, r, err, e);
}

static bool submit(struct exchange *x, struct api_error *e)
{
	uint64_t seed = choose_seed(x);
	unsigned best_of = x->params.best_of;

	if (x->kind == API_EMBEDDING)
		return embeddings_start(x, e);
	if (x->kind == API_FORWARD)
		return forward_call_start(x, e);
	if (x->params.beam_width)
		return beams_start(x, e);
	x->choices = calloc((size_t)x->n_prompts * best_of, sizeof(*x->choices));
	if (!x->choices)
		return api_error_set(e, 500, NULL, NULL, "out of memory");
	for (unsigned i = 0; i < x->n_prompts * best_of; i++) {
		struct choice *c = &x->choices[x->n_choices++];

		c->client.news = on_news;
		c->exchange = x;
		c->index = i;
		c->prompt_index = i / best_of;
		c->prompt = &x->prompts[c->prompt_index];
		c->params = &x->params;
		c->text_side = x->text;
		if (!submit_choice(x, c, seed, i % best_of, e))
			return false;
	}
	return true;
}

/* Tokens need no engine. */
static void answer_tokens(struct exchange *x)
{
	char header[EXCHANGE_HEADERS_MAX];
	struct json_out *o = &x->server->out;

	json_out_clear(o);
	respond_tokens(o, x);
	server_reply_out(x->server, x->conn, 200, exchange_headers(x, header, sizeof(header)));
	x->answered = true;
	x->conn = NULL;
}

/* While a job worked on it. */
static bool was_cancelled(struct exchange *x)
{
	if (x->cancelled)
		api_error_set(&x->error, 409, "cancelled", NULL, "the request was cancelled");
	return x->cancelled;
}

/* What the tokens are for. */
static void finish_encoded(struct exchange *x)
{
	struct api_error *e = &x->error;

	if (x->kind == API_TOKENIZE || x->kind == API_DETOKENIZE) {
		answer_tokens(x);
	} else if (!take_budget(x, e) || !submit(x, e)) {
		if (e->status == 503)
			model_check(x->model);
		exchange_fail(x, e);
	}
	exchange_free_if_over(x);
}

/* Waits for a model that comes when it is asked for; refuses when it does not. */
static void await_model(struct exchange *x)
{
	struct served_model *m = x->model;
	struct api_error *e = &x->error;

	/* What loads by itself may take long, and tells so. */
	if (m->retired || m->state == MODEL_FAILED || m->state == MODEL_LOST ||
	    (m->state == MODEL_LOADING && !m->demanded)) {
		model_unavailable(m, e);
	} else if (model_park(m, x)) {
		api_error_set(e, 429, "overloaded", NULL,
			      "%u requests wait for the model \"%s\" already", m->n_parked,
			      m->config->names[0]);
	} else {
		model_demand(m);
		return;
	}
	exchange_fail(x, e);
	exchange_free_if_over(x);
}

static void encoded(struct textpool_job *job)
{
	struct exchange *x = of_job(job);

	x->in_pool = false;
	if (!x->conn) {
		exchange_free(x);
	} else if (x->error.status || was_cancelled(x)) {
		exchange_fail(x, &x->error);
		exchange_free(x);
	} else {
		exchange_go_on(x);
	}
}

void exchange_go_on(struct exchange *x)
{
	bool tokens_only = x->kind == API_TOKENIZE || x->kind == API_DETOKENIZE;
	struct api_error *e = &x->error;

	if (exchange_end_late(x))
		return;
	if (x->server->draining) {
		api_error_set(e, 503, "shutting_down", NULL, "the daemon is shutting down");
	} else if (!model_is_ready(x->model) && (!tokens_only || !atomic_load(&x->model->text))) {
		await_model(x);
		return;
	} else if (x->encoded) {
		finish_encoded(x);
		return;
	} else if (x->kind != API_FORWARD || (forward_call_check(x, e) && take_budget(x, e))) {
		x->text = atomic_load_explicit(&x->model->text, memory_order_acquire);
		x->params.default_max_tokens = x->model->config->max_tokens;
		x->job.run = run_encode;
		x->job.done = encoded;
		x->in_pool = !textpool_add(x->server->pool, &x->job);
		if (x->in_pool)
			return;
		api_error_set(e, 429, "overloaded", NULL,
			      "the queue of requests to be read is full");
	}
	exchange_fail(x, e);
	exchange_free_if_over(x);
}

/* The model of the request, if its user may have it. */
static bool find_model(struct exchange *x)
{
	struct served_model *m = models_find(x->server, x->params.model);
	char names[256];

	if (!m) {
		models_names(x->server, names, sizeof(names));
		return api_error_set(&x->error, 404, "model_not_found", "model",
				     "the model \"%.80s\" does not exist; served are: %s",
				     x->params.model ? x->params.model : "", names);
	}
	if (!server_permits_model(x->conn, m))
		return server_refuse_model(x->conn, m, &x->error);
	if (x->params.priority < 0 && !server_is_admin(x->server, x->conn))
		return api_error_set(&x->error, 403, "priority_not_permitted", "priority",
				     "priority is %d; user %s is no administrator, for whom alone "
				     "it may be less than 0",
				     (int)x->params.priority, server_user(x->conn).text);
	x->model = m;
	model_use(m);
	m->expected++;
	x->expected = true;
	set_deadline(x);
	snprintf(x->own_name, sizeof(x->own_name), "%s", m->config->names[0]);
	x->model_name = x->params.model ? x->params.model : x->own_name;
	/* How long others' memory is kept is the administrators' to say. */
	if (x->params.keep_alive_given && server_is_admin(x->server, x->conn))
		m->keep_alive = x->params.keep_alive;
	return true;
}

static void parsed(struct textpool_job *job)
{
	struct exchange *x = of_job(job);

	x->in_pool = false;
	free(x->body);
	x->body = NULL;
	if (!x->conn) {
		exchange_free(x);
	} else if (x->error.status || was_cancelled(x) || !find_model(x)) {
		exchange_fail(x, &x->error);
		exchange_free(x);
	} else {
		exchange_go_on(x);
	}
}

void exchange_start(struct server *s, struct http_conn *c, enum api_kind kind)
{
	struct exchange *x = calloc(1, sizeof(*x));
	struct api_error e;

	if (!x) {
		api_error_set(&e, 500, NULL, NULL, "out of memory");
		server_reply_error(s, c, &e, NULL);
		return;
	}
	x->user = (struct conn_user){.gone = on_gone, .drained = on_drained};
	x->server = s;
	x->kind = kind;
	x->conn = c;
	x->uid = http_conn_peer(c)->uid;
	x->pid = http_conn_peer(c)->pid;
	if (http_conn_peer(c)->key)
		strcpy(x->user_name, http_conn_peer(c)->key->name);
	x->created = time(NULL);
	x->arrived_ns = clock_ns();
	snprintf(x->id, sizeof(x->id), "%s-%016llx%08llx",
		 kind == API_CHAT	  ? "chatcmpl"
		 : kind == API_COMPLETION ? "cmpl"
		 : kind == API_EMBEDDING  ? "embd"
		 : kind == API_FORWARD	  ? "fwd"
					  : "tok",
		 (unsigned long long)(s->metrics.start_time * 1e6),
		 (unsigned long long)++s->next_id);
	x->next = s->exchanges;
	if (x->next)
		x->next->prev = x;
	s->exchanges = x;
	s->n_exchanges++;
	x->body = http_conn_take_body(c, &x->body_len);
	x->held = x->body_len;
	budget_replace(&s->budget, 0, x->held);
	x->job.user = x->uid;
	x->job.run = run_parse;
	x->job.done = parsed;
	if (!x->body) {
		api_error_set(&e, 400, NULL, NULL, "the body is empty; a JSON object is expected");
	} else if (kind == API_FORWARD && !forward_call_take(x, &e)) {
		/* It says why. */
	} else if (textpool_add(s->pool, &x->job)) {
		api_error_set(&e, 429, "overloaded", NULL,
			      "the queue of requests to be read is full");
	} else {
		x->in_pool = true;
		http_conn_set_user(c, &x->user);
		return;
	}
	exchange_fail(x, &e);
	exchange_free(x);
}

/* ---- answering ------------------------------------------------------------------------------- */

static void stream_write(struct exchange *x, struct json_out *o)
{
	if (!x->streaming) {
		char header[EXCHANGE_HEADERS_MAX + 32] = "Cache-Control: no-cache\r\n";
		size_t n = strlen(header);

		exchange_headers(x, header + n, sizeof(header) - n);
		http_stream_begin(x->conn, 200, "text/event-stream; charset=utf-8", header);
		server_count_response(x->server, 200);
		x->streaming = true;
	}
	http_stream_write(x->conn, o->data, o->len);
}

/* Streams what the choice has; *ret_more when the client must first read. */
static bool stream_choice(struct exchange *x, struct choice *c, bool *ret_more)
{
	struct json_out *o = &x->server->out;
	bool was_over = c->finish_reason;

	*ret_more = false;
	while (!was_over) {
		int n;

		if (http_conn_congested(x->conn)) {
			*ret_more = true;
			return true;
		}
		n = choice_advance(c, TOKENS_PER_EVENT);
		if (n < 0)
			return false;
		was_over = c->finish_reason;
		json_out_clear(o);
		if (!c->begun && (n || was_over))
			respond_first(o, x, c);
		if (choice_has_news(c))
			respond_text(o, x, c);
		if (n || was_over)
			choice_sent(c);
		if (was_over)
			respond_finish(o, x, c);
		if (o->failed)
			return false;
		if (o->len)
			stream_write(x, o);
		if (!n)
			break;
	}
	return true;
}

static bool collect_choice(struct choice *c)
{
	int n;

	do
		n = choice_advance(c, UINT32_MAX >> 1);
	while (n > 0 && !c->finish_reason);
	return n >= 0;
}

static bool all_finished(const struct exchange *x)
{
	for (unsigned i = 0; i < x->n_choices; i++)
		if (!x->choices[i].finish_reason)
			return false;
	return true;
}

static int by_score(const void *a, const void *b)
{
	const struct choice *x = *(struct choice *const *)a, *y = *(struct choice *const *)b;

	if (x->score != y->score)
		return x->score > y->score ? -1 : 1;
	return x->index < y->index ? -1 : 1;
}

/* Of each prompt's answers the n best get the places in the answer. */
static void give_places(struct exchange *x)
{
	unsigned n = x->params.n, best_of = x->params.best_of;
	struct choice *order[API_MAX_N];

	if (best_of <= n || x->beams)
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

static unsigned long long ms(uint64_t from, uint64_t to)
{
	return from && to > from ? (to - from) / 1000000 : 0;
}

/* For the log: what it took, and where the time went. */
static void note_times(struct exchange *x, unsigned prompt, unsigned generated)
{
	const struct engine_request *r = x->n_choices ? x->choices[0].request : NULL;

	if (r && r->first_token_ns)
		http_conn_set_note(x->conn, "%s %u+%u tokens, queued %llu ms, first token %llu ms",
				   x->id, prompt, generated, ms(r->queued_ns, r->started_ns),
				   ms(x->arrived_ns, r->first_token_ns));
	else
		http_conn_set_note(x->conn, "%s %u+%u tokens", x->id, prompt, generated);
}

void exchange_complete(struct exchange *x)
{
	struct json_out *o = &x->server->out;
	char header[EXCHANGE_HEADERS_MAX];
	unsigned prompt = 0, generated = 0;

	for (unsigned i = 0; i < x->n_prompts; i++)
		prompt += x->prompts[i].n;
	for (unsigned i = 0; i < x->n_choices; i++)
		generated += x->choices[i].completion_tokens;
	note_times(x, prompt, generated);
	json_out_clear(o);
	if (x->streaming) {
		if (x->params.include_usage)
			respond_usage(o, x);
		respond_done(o);
		stream_write(x, o);
		http_stream_end(x->conn);
	} else {
		give_places(x);
		respond_whole(o, x);
		server_reply_out(x->server, x->conn, 200,
				 exchange_headers(x, header, sizeof(header)));
	}
	x->answered = true;
	x->conn = NULL;
}

/* Gives the client what the choice has. */
static void pump(struct exchange *x, struct choice *c)
{
	bool waits = false;

	if (x->answered || !x->conn)
		return;
	if (!(x->params.stream ? stream_choice(x, c, &waits) : collect_choice(c))) {
		fail_memory(x);
		return;
	}
	/* A stop string ends the choice before the engine knows. */
	if (c->finish_reason && !c->engine_done)
		model_cancel(c->request);
	if (all_finished(x))
		exchange_complete(x);
}

/* ---- the engine's news ----------------------------------------------------------------------- */

static void observe_tokens(struct choice *c)
{
	struct metrics_model *m = &c->exchange->model->metrics;
	unsigned n = atomic_load_explicit(&c->request->n_tokens, memory_order_acquire),
		 before = c->counted;
	uint64_t now = clock_ns();

	if (n == before)
		return;
	c->counted = n;
	if (!before) {
		metrics_observe(m, METRICS_TIME_TO_FIRST_TOKEN,
				(double)(now - c->exchange->arrived_ns) / 1e9, 1);
		before = 1;
	}
	if (n > before)
		metrics_observe(m, METRICS_INTER_TOKEN_LATENCY,
				(double)(now - c->last_news_ns) / 1e9 / (n - before), n - before);
	c->last_news_ns = now;
}

/* The time from @from to @to in seconds; 0 when one of them never was. */
static double seconds(uint64_t from, uint64_t to)
{
	return from && to > from ? (double)(to - from) / 1e9 : 0;
}

static void observe_end(const struct choice *c, enum engine_finish how)
{
	const struct engine_request *r = c->request;
	struct exchange *x = c->exchange;
	struct metrics_model *m = &x->model->metrics;
	enum metrics_reason reason = METRICS_ERROR;

	if (how == ENGINE_FINISH_STOP || how == ENGINE_FINISH_COMPLETE ||
	    (c->finish_reason && strcmp(c->finish_reason, "length") &&
	     strcmp(c->finish_reason, "timeout")))
		reason = METRICS_STOP;
	else if (how == ENGINE_FINISH_LENGTH)
		reason = METRICS_LENGTH;
	else if (how == ENGINE_FINISH_CANCELLED)
		reason = METRICS_ABORT;
	else if (how == ENGINE_FINISH_TIMEOUT)
		reason = METRICS_TIMEOUT;
	m->finished[reason]++;
	if (reason != METRICS_STOP && reason != METRICS_LENGTH)
		return;
	metrics_observe(m, METRICS_E2E_LATENCY, seconds(x->arrived_ns, r->last_token_ns), 1);
	metrics_observe(m, METRICS_QUEUE_TIME, seconds(r->queued_ns, r->started_ns), 1);
	metrics_observe(m, METRICS_PREFILL_TIME, seconds(r->started_ns, r->first_token_ns), 1);
	metrics_observe(m, METRICS_DECODE_TIME, seconds(r->first_token_ns, r->last_token_ns), 1);
	metrics_observe(m, METRICS_PROMPT_TOKENS, r->n_prompt, 1);
	metrics_observe(m, METRICS_GENERATION_TOKENS, atomic_load(&r->n_tokens), 1);
}

static void fail_by_engine(struct exchange *x, const struct engine_request *r,
			   enum engine_finish how)
{
	struct api_error e;

	if (how == ENGINE_FINISH_TIMEOUT)
		set_late(x, &e);
	else if (how == ENGINE_FINISH_CANCELLED)
		api_error_set(&e, 503, "shutting_down", NULL,
			      "the request was ended because the model is being unloaded");
	else
		exchange_submit_error(x, r->error ? r->error : -EIO, r->error_text, &e);
	exchange_fail(x, &e);
}

void exchange_end_request(struct exchange *x, struct engine_request *r)
{
	/* It may come once more in the list of news; then it is nobody's. */
	r->client = NULL;
	x->live--;
}

/* Its time was over before it had said anything: that is an error, not an answer. */
static bool was_in_vain(const struct exchange *x)
{
	for (unsigned i = 0; i < x->n_choices; i++)
		if (x->choices[i].request && atomic_load(&x->choices[i].request->n_tokens))
			return false;
	return true;
}

void exchange_observe(const struct exchange *x, const struct engine_request *r)
{
	struct metrics_model *m = &x->model->metrics;

	m->finished[METRICS_STOP]++;
	metrics_observe(m, METRICS_PROMPT_TOKENS, r->n_prompt, 1);
	metrics_observe(m, METRICS_QUEUE_TIME, (double)(r->started_ns - r->queued_ns) / 1e9, 1);
	metrics_observe(m, METRICS_PREFILL_TIME, (double)(r->last_token_ns - r->started_ns) / 1e9,
			1);
	metrics_observe(m, METRICS_E2E_LATENCY, (double)(r->last_token_ns - x->arrived_ns) / 1e9,
			1);
}

static void on_news(struct client *client)
{
	struct choice *c = (struct choice *)client;
	struct exchange *x = c->exchange;
	struct engine_request *r = c->request;
	struct replica *replica = client->replica;
	enum engine_finish how =
		(enum engine_finish)atomic_load_explicit(&r->finish, memory_order_acquire);
	bool ended = how != ENGINE_RUNNING && !c->engine_done;

	observe_tokens(c);
	if (ended)
		c->engine_done = true;
	if (ended && how == ENGINE_FINISH_TIMEOUT && was_in_vain(x))
		fail_by_engine(x, r, how);
	pump(x, c);
	if (!ended)
		return;
	observe_end(c, how);
	exchange_end_request(x, r);
	if (!c->finish_reason && (how == ENGINE_FINISH_ERROR || how == ENGINE_FINISH_CANCELLED))
		fail_by_engine(x, r, how);
	exchange_free_if_over(x);
	replica_request_ended(replica);
}

static void on_gone(struct conn_user *u)
{
	struct exchange *x = (struct exchange *)u;

	x->conn = NULL;
	if (!x->in_pool)
		cancel_choices(x);
	exchange_free_if_over(x);
}

static void on_drained(struct conn_user *u)
{
	struct exchange *x = (struct exchange *)u;

	for (unsigned i = 0; i < x->n_choices && x->conn; i++)
		pump(x, &x->choices[i]);
	exchange_free_if_over(x);
}

void exchange_abort(struct server *s, const struct served_model *m, const char *why)
{
	struct exchange *x, *next;
	struct api_error e;

	api_error_set(&e, 503, m ? "model_unloading" : "shutting_down", NULL, "%s", why);
	for (x = s->exchanges; x; x = next) {
		next = x->next;
		if (x->in_pool || (m && x->model != m))
			continue;
		exchange_fail(x, &e);
		exchange_free_if_over(x);
	}
}

bool exchange_cancel(struct server *s, const char *id, uid_t uid, bool any)
{
	struct exchange *x = s->exchanges;
	struct api_error e;

	while (x && (!exchange_is_open(x) || strcmp(x->id, id) || (!any && x->uid != uid)))
		x = x->next;
	if (!x)
		return false;
	api_error_set(&e, 409, "cancelled", NULL, "the request was cancelled");
	if (x->in_pool) {
		/* The job ends first. */
		x->cancelled = true;
		return true;
	}
	exchange_fail(x, &e);
	exchange_free_if_over(x);
	return true;
}

void exchange_free_all(struct server *s)
{
	while (s->exchanges)
		exchange_free(s->exchanges);
}
