// SPDX-License-Identifier: MIT
#include "exchange.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include <event2/buffer.h>
#include <event2/event.h>

#include "api_value.h"
#include "clock.h"
#include "descriptors.h"
#include "grammar.h"
#include "log.h"
#include "respond.h"
#include "service.h"
#include "sha256.h"

#define KEEP_BYTES ((size_t)16 << 10) /* memory kept for the list of events between two events */

#define VALUE_BYTES  112 /* of a JSON value: its node, a name, a token */
#define ENCODE_BYTES 12	 /* per byte of text: tokens twice, and the text */

#define TO(phase) (1u << PHASE_##phase)

static const unsigned next_phases[N_PHASES] = {
	[PHASE_RECEIVED] = TO(PARSING) | TO(FINISHING),
	[PHASE_PARSING] = TO(PARKED) | TO(ENCODING) | TO(FINISHING),
	[PHASE_PARKED] = TO(ENCODING) | TO(QUEUED) | TO(FINISHING),
	[PHASE_ENCODING] = TO(PARKED) | TO(QUEUED) | TO(RUNNING) | TO(FINISHING),
	[PHASE_QUEUED] = TO(RUNNING) | TO(FINISHING),
	[PHASE_RUNNING] = TO(FINISHING),
	[PHASE_FINISHING] = TO(DONE),
};

static const struct request_kind *const kinds[] = {
	[API_CHAT] = &kind_chat,	   [API_COMPLETION] = &kind_completion,
	[API_EMBEDDING] = &kind_embedding, [API_TOKENIZE] = &kind_tokenize,
	[API_FORWARD] = &kind_forward,	   [API_DETOKENIZE] = &kind_detokenize,
};

static void enter(struct exchange *x, enum exchange_phase phase)
{
	if (!(next_phases[x->phase] >> phase & 1))
		log_error("request %s goes from phase %d to %d", x->id, x->phase, phase);
	/* The model counts requests that use it. */
	if (x->model && x->phase < PHASE_QUEUED && phase >= PHASE_QUEUED)
		x->model->expected--;
	x->phase = phase;
}

/* ---- text workers ---------------------------------------------------------------------------- */

static struct exchange *of_job(struct textpool_job *job)
{
	return (struct exchange *)((char *)job - offsetof(struct exchange, job));
}

static void set_job(struct exchange *x, void (*run)(struct textpool_job *job),
		    void (*done)(struct textpool_job *job))
{
	x->job.run = run;
	x->job.done = done;
	x->job.brief = false;
	x->job.deadline_ns = 0;
}

/*
 * Queues the request's input for a text worker. All requests that wait for a model arrive at once
 * when it is ready, possibly more than are admitted at a time; they are not refused again.
 */
static bool add_input(struct exchange *x, enum exchange_phase phase,
		      void (*run)(struct textpool_job *job), void (*done)(struct textpool_job *job),
		      struct api_error *e)
{
	set_job(x, run, done);
	x->job.deadline_ns = x->deadline_ns;
	if (x->phase == PHASE_PARKED)
		textpool_again(x->service->pool, &x->job);
	else if (textpool_add(x->service->pool, &x->job))
		return api_error_set(e, 429, "overloaded", NULL,
				     "the queue of requests to be read is full");
	x->at_worker = true;
	enter(x, phase);
	return true;
}

const char *exchange_state(const struct exchange *x)
{
	static const char *const states[N_PHASES] = {
		[PHASE_RECEIVED] = "reading",
		[PHASE_PARSING] = "reading",
		[PHASE_PARKED] = "waiting for the model",
		[PHASE_ENCODING] = "reading",
		[PHASE_QUEUED] = "queued",
		[PHASE_RUNNING] = "running",
		[PHASE_FINISHING] = "ending",
		[PHASE_DONE] = "ending",
	};

	return x->phase == PHASE_RUNNING && !x->live ? "writing" : states[x->phase];
}

const char *exchange_name(const struct exchange *x)
{
	return kinds[x->route]->name;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* In a text worker: freeing a body of a million values takes long. */
static void run_release(struct textpool_job *job)
{
	struct exchange *x = of_job(job);

	if (x->kind->release)
		x->kind->release(x);
	for (unsigned i = 0; i < x->n_choices; i++)
		choice_clear(&x->choices[i]);
	for (unsigned i = 0; i < x->n_prompts; i++)
		prompt_tokens_free(&x->prompts[i]);
	pictures_free(&x->pictures, x->account);
	descriptors_discard(x->set);
	grammar_unref(x->grammar);
	/* It has grown with what it remembers. */
	if (x->grammar)
		kept_shrink(&x->account->budget->kept);
	if (x->parsed)
		api_params_free(&x->params);
	json_out_free(&x->out);
	if (x->answer)
		evbuffer_free(x->answer);
	free(x->prompts);
	free(x->choices);
	free(x->body);
}

static void released(struct textpool_job *job)
{
	struct exchange *x = of_job(job);
	struct service *s = x->service;

	if (!job->ran)
		run_release(job);
	if (x->prev)
		x->prev->next = x->next;
	else
		s->exchanges = x->next;
	if (x->next)
		x->next->prev = x->prev;
	s->n_exchanges--;
	if (x->model)
		model_unuse(x->model);
	budget_release(x->account, x->held + x->worker_held);
	x->account->requests--;
	x->account->images_read += x->pictures.n;
	account_unref(x->account);
	free(x);
}

void exchange_free_if_over(struct exchange *x)
{
	if (x->phase != PHASE_FINISHING || x->at_worker || x->live)
		return;
	enter(x, PHASE_DONE);
	if (x->kind->over)
		x->kind->over(x);
	set_job(x, run_release, released);
	textpool_again(x->service->pool, &x->job);
}

void exchange_free_all(struct service *s)
{
	while (s->exchanges) {
		s->exchanges->job.ran = false;
		released(&s->exchanges->job);
	}
}

/* Nothing more will be sent: everything that works for it is cancelled. */
static void finish(struct exchange *x)
{
	x->conn = NULL;
	if (x->phase == PHASE_PARKED)
		model_unpark(x->model, &x->waiter);
	enter(x, PHASE_FINISHING);
	if (x->at_worker && textpool_drop(x->service->pool, &x->job))
		x->at_worker = false;
	atomic_store(&x->caller.gone, true);
	for (struct sequence *s = x->live; s; s = s->next)
		model_cancel(s->request);
}

/* The headers of an answer: its id, and the ignored members of the request. */
static void put_headers(const struct exchange *x, char *buf, size_t len)
{
	const char *ignored = x->params.ignored;

	snprintf(buf, len, "X-Request-Id: %s\r\n%s%s%s", x->id, *ignored ? "Txda-Ignored: " : "",
		 ignored, *ignored ? "\r\n" : "");
}

static void stream_write(struct exchange *x, struct json_out *o)
{
	if (!x->streaming) {
		char header[API_IGNORED_MAX + 128] = "Cache-Control: no-cache\r\n";
		size_t n = strlen(header);

		put_headers(x, header + n, sizeof(header) - n);
		http_stream_begin(x->conn, 200, "text/event-stream; charset=utf-8", header);
		x->streaming = true;
	}
	http_stream_write(x->conn, o->data, o->len);
	json_out_clear(o);
	if (o->cap > KEEP_BYTES)
		json_out_free(o);
}

void exchange_fail(struct exchange *x, const struct api_error *e)
{
	if (!x->conn)
		return;
	if (x->streaming) {
		struct json_out *o = &x->service->out;

		json_out_clear(o);
		respond_error(o, e);
		respond_done(o);
		stream_write(x, o);
		http_stream_end(x->conn);
	} else {
		char header[64];

		snprintf(header, sizeof(header), "X-Request-Id: %s\r\n", x->id);
		service_reply_error(x->service, x->conn, e, header);
	}
	finish(x);
}

/* The worker has written everything. */
static void complete(struct exchange *x)
{
	char header[API_IGNORED_MAX + 96];

	if (x->params.stream) {
		http_stream_end(x->conn);
	} else {
		put_headers(x, header, sizeof(header));
		http_reply_buffer(x->conn, 200, "application/json", header, x->answer);
	}
	finish(x);
}

static void set_late(const struct exchange *x, struct api_error *e)
{
	api_error_set(e, 504, "timeout", x->params.timeout > 0 ? "timeout" : NULL,
		      "the request was not answered within %.3g s",
		      (double)(x->deadline_ns - x->arrived_ns) / 1e9);
	/* The client has said how long it wants to wait. */
	e->final = x->params.timeout > 0;
}

static bool is_late(const struct exchange *x)
{
	return x->deadline_ns && clock_ns() >= x->deadline_ns;
}

bool exchange_end_late(struct exchange *x)
{
	struct api_error e;

	if (!is_late(x))
		return false;
	set_late(x, &e);
	exchange_fail(x, &e);
	exchange_free_if_over(x);
	return true;
}

static void on_gone(struct conn_user *u)
{
	struct exchange *x = (struct exchange *)u;

	finish(x);
	exchange_free_if_over(x);
}

void exchange_abort(struct service *s, const struct served_model *m, const char *why)
{
	struct exchange *x, *next;
	struct api_error e;

	api_error_set(&e, 503, m ? "model_unloading" : "shutting_down", NULL, "%s", why);
	for (x = s->exchanges; x; x = next) {
		next = x->next;
		if (m && x->model != m)
			continue;
		exchange_fail(x, &e);
		exchange_free_if_over(x);
	}
}

bool exchange_cancel(struct service *s, const char *id, user_id uid, bool any)
{
	struct exchange *x = s->exchanges;
	struct api_error e;

	while (x && (!exchange_is_open(x) || strcmp(x->id, id) || (!any && x->uid != uid)))
		x = x->next;
	if (!x)
		return false;
	api_error_set(&e, 409, "cancelled", NULL, "the request was cancelled");
	e.final = true;
	exchange_fail(x, &e);
	exchange_free_if_over(x);
	return true;
}

/* ---- the beginning --------------------------------------------------------------------------- */

bool exchange_encode_prompts(struct exchange *x, struct api_error *e)
{
	unsigned n = x->params.messages ? 1 : x->params.n_prompts;
	uint64_t most = x->body_len * ENCODE_BYTES, tokens = 0;

	/* A text has no more tokens than bytes; the unused part is returned later. */
	if (!exchange_take(x, most, kinds[x->route]->prompt, e))
		return false;
	x->prompts = calloc(n, sizeof(*x->prompts));
	if (!x->prompts)
		return api_error_set(e, 500, NULL, NULL, "out of memory");
	x->n_prompts = n;
	if (!model_text_encode(x->text, &x->params, &x->pictures, &x->caller, x->prompts, e))
		return false;
	for (unsigned i = 0; i < n; i++)
		tokens += x->prompts[i].n;
	if (tokens * sizeof(int32_t) < most)
		exchange_return(x, most - tokens * sizeof(int32_t));
	return true;
}

bool exchange_take_fds(struct exchange *x, struct api_error *e)
{
	switch (http_conn_take_fds(x->conn, &x->set)) {
	case 0: return true;
	case -E2BIG:
		return api_error_set(e, 400, NULL, NULL,
				     "more than %d descriptors came with the request",
				     DESCRIPTORS_MAX);
	case -EMFILE:
		return api_error_set(e, 429, "overloaded", NULL,
				     "too many descriptors are held for all clients: %u",
				     descriptors_held(x->service->descriptors));
	default: return api_error_set(e, 500, NULL, NULL, "out of memory");
	}
}

static void run_parse(struct textpool_job *job)
{
	struct exchange *x = of_job(job);
	uint64_t values = api_count_values(x->body, x->body_len, API_MAX_VALUES);

	/* Names and strings of the JSON tree, its values, and the parameters made from them. */
	x->parsed = exchange_take(x, x->body_len + VALUE_BYTES * values, NULL, &x->error) &&
		    api_params_parse(x->route, x->body, x->body_len, &x->params, &x->error);
	free(x->body);
	x->body = NULL;
	if (x->parsed && x->params.beam_width)
		x->kind = &kind_beam;
}

static void run_encode(struct textpool_job *job)
{
	struct exchange *x = of_job(job);

	x->caller.low_ns = job->low_ns;
	x->encoded = x->kind->encode(x, &x->error);
}

/* A worker has finished the input. False: the exchange is finished, too. */
static bool finish_work(struct exchange *x)
{
	x->at_worker = false;
	/* Whatever was stopped at the request's limit tells of its own. */
	if (x->conn && (!x->job.ran || (x->error.status == 504 && is_late(x))))
		set_late(x, &x->error);
	if (x->error.status)
		exchange_fail(x, &x->error);
	if (x->conn)
		return true;
	exchange_free_if_over(x);
	return false;
}

static void fail(struct exchange *x, const struct api_error *e)
{
	exchange_fail(x, e);
	exchange_free_if_over(x);
}

static void encoded(struct textpool_job *job)
{
	if (finish_work(of_job(job)))
		exchange_resume(of_job(job));
}

/* The model is ready, or will not come. */
static void on_woken(struct model_waiter *w, enum model_wake why)
{
	struct exchange *x = (struct exchange *)((char *)w - offsetof(struct exchange, waiter));
	struct api_error e;

	switch (why) {
	case MODEL_WAKE_READY: exchange_resume(x); return;
	case MODEL_WAKE_DEADLINE: exchange_end_late(x); return;
	case MODEL_WAKE_REFUSED: model_unavailable(x->model, &e); break;
	case MODEL_WAKE_SHUTDOWN:
		api_error_set(&e, 503, "shutting_down", NULL, "the daemon is shutting down");
		break;
	default:
		api_error_set(&e, 503, "model_loading", "model",
			      "the model \"%s\" was not loaded within %u s",
			      x->model->config->names[0], x->service->config->load_timeout);
		e.retry_after = 10;
		break;
	}
	fail(x, &e);
}

/* Whether the request may start a load; always for administrators. */
static bool may_load(struct exchange *x, struct api_error *e)
{
	const struct served_model *m = x->model;
	unsigned wait;

	if ((m->state != MODEL_UNLOADED && m->state != MODEL_ASLEEP) ||
	    service_is_admin(x->service, x->conn) ||
	    account_take_load(x->account, clock_ns(), &wait))
		return true;
	api_error_set(e, 429, "overloaded", "model",
		      "requests of user %s have loaded %d models, and one every %d s may be loaded "
		      "for a user; the model \"%.80s\" may in %u s",
		      service_user(x->conn).text, ACCOUNT_LOADS, ACCOUNT_LOAD_SECONDS,
		      m->config->names[0], wait);
	e->retry_after = wait;
	return false;
}

/* Waits for a model that is loaded on demand; refuses if it will not come. */
static void await_model(struct exchange *x)
{
	struct served_model *m = x->model;
	struct api_error e;

	x->waiter.wake = on_woken;
	x->waiter.deadline_ns = x->deadline_ns;
	/* A load at the start may take long, so the client is told to retry. */
	if (!model_may_be_awaited(m)) {
		model_unavailable(m, &e);
	} else if (!may_load(x, &e)) {
		; /* it has not waited yet */
	} else if (model_park(m, &x->waiter)) {
		api_error_set(&e, 429, "overloaded", NULL,
			      "%u requests are waiting for the model \"%s\" already", m->n_parked,
			      m->config->names[0]);
	} else {
		enter(x, PHASE_PARKED);
		model_demand(m);
		return;
	}
	fail(x, &e);
}

/* What the tokens are needed for. */
static void start(struct exchange *x)
{
	struct api_error e;

	if (!x->kind->start) {
		enter(x, PHASE_RUNNING);
		exchange_output(x);
		return;
	}
	enter(x, PHASE_QUEUED);
	if (!x->kind->start(x, &e)) {
		if (e.status == 503)
			model_check(x->model);
		fail(x, &e);
	}
}

void exchange_resume(struct exchange *x)
{
	struct served_model *m = x->model;
	struct api_error e;

	if (exchange_end_late(x))
		return;
	if (x->service->draining) {
		api_error_set(&e, 503, "shutting_down", NULL, "the daemon is shutting down");
	} else if (x->kind->start ? !model_is_ready(m) : !atomic_load(&m->text)) {
		await_model(x);
		return;
	} else if (x->encoded) {
		start(x);
		return;
	} else if (!x->kind->check || x->kind->check(x, &e)) {
		x->text = atomic_load_explicit(&m->text, memory_order_acquire);
		x->params.default_max_tokens = m->config->max_tokens;
		memcpy(x->fingerprint, m->fingerprint, sizeof(x->fingerprint));
		x->caller.deadline_ns = x->deadline_ns;
		if (add_input(x, PHASE_ENCODING, run_encode, encoded, &e))
			return;
	}
	fail(x, &e);
}

/* The request's own limit or the daemon's, from its arrival. */
static void set_deadline(struct exchange *x)
{
	double limit = x->service->config->request_timeout;

	if (x->params.timeout > 0 && (limit <= 0 || x->params.timeout < limit))
		limit = x->params.timeout;
	x->deadline_ns = limit > 0 ? x->arrived_ns + (uint64_t)(limit * 1e9) : 0;
}

/* The model of the request, if its user may use it. */
static bool find_model(struct exchange *x, struct api_error *e)
{
	struct served_model *m = service_find_model(x->service, x->conn, x->params.model, e);

	if (!m)
		return false;
	if (!service_permits_model(x->conn, m))
		return api_error_set(e, 403, "model_not_permitted", "model",
				     "user %s may not use the model \"%.80s\"",
				     service_user(x->conn).text, m->config->names[0]);
	if (x->params.priority < 0 && !service_is_admin(x->service, x->conn))
		return api_error_set(e, 403, "priority_not_permitted", "priority",
				     "priority is %d; user %s is not an administrator; only "
				     "administrators may use less than 0",
				     (int)x->params.priority, service_user(x->conn).text);
	x->model = m;
	model_use(m);
	m->expected++;
	set_deadline(x);
	snprintf(x->own_name, sizeof(x->own_name), "%s", m->config->names[0]);
	x->model_name = x->params.model ? x->params.model : x->own_name;
	/* Only administrators may decide how long others' memory stays occupied. */
	if (x->params.keep_alive_given && service_is_admin(x->service, x->conn))
		m->keep_alive = x->params.keep_alive;
	else if (x->params.keep_alive_given)
		api_fields_ignore(x->params.ignored, "", "keep_alive");
	return true;
}

static void parsed(struct textpool_job *job)
{
	struct exchange *x = of_job(job);
	struct api_error e;

	if (!finish_work(x))
		return;
	if (find_model(x, &e))
		exchange_resume(x);
	else
		fail(x, &e);
}

static void on_drained(struct conn_user *u)
{
	exchange_output((struct exchange *)u);
}

/* Random: a counter would reveal how many requests others send. */
static void make_id(struct exchange *x)
{
	uint64_t id[2];

	while (getrandom(id, sizeof(id), 0) != sizeof(id))
		;
	snprintf(x->id, sizeof(x->id), "%s-%016llx%08llx", x->kind->id, (unsigned long long)id[0],
		 (unsigned long long)(id[1] & UINT32_MAX));
}

void exchange_start(struct service *s, struct http_conn *c, enum api_kind route)
{
	struct exchange *x = calloc(1, sizeof(*x));
	struct api_error e;

	if (!x) {
		api_error_set(&e, 500, NULL, NULL, "out of memory");
		service_reply_error(s, c, &e, NULL);
		return;
	}
	x->user = (struct conn_user){.gone = on_gone, .drained = on_drained};
	x->service = s;
	x->route = route;
	x->kind = kinds[route];
	x->shape = x->kind->shape;
	x->conn = c;
	x->account = account_ref(http_conn_account(c));
	x->account->requests++;
	x->uid = x->job.user = x->caller.user = http_conn_peer(c)->uid;
	x->pid = http_conn_peer(c)->pid;
	if (http_conn_peer(c)->key)
		strcpy(x->user_name, http_conn_peer(c)->key->name);
	x->created = time(NULL);
	x->arrived_ns = clock_ns();
	set_deadline(x);
	make_id(x);
	x->next = s->exchanges;
	if (x->next)
		x->next->prev = x;
	s->exchanges = x;
	s->n_exchanges++;
	x->body = http_conn_take_body(c, &x->body_len);
	x->held = x->body_len;
	budget_add(x->account, x->held);
	http_conn_set_user(c, &x->user);
	if (!x->body)
		api_error_set(&e, 400, NULL, NULL, "the body is empty; a JSON object is expected");
	else if ((!x->kind->arrive || x->kind->arrive(x, &e)) &&
		 add_input(x, PHASE_PARSING, run_parse, parsed, &e))
		return;
	fail(x, &e);
}

/* ---- answering ------------------------------------------------------------------------------- */

static void spill(struct json_out *o, void *answer)
{
	if (evbuffer_add(answer, o->data, o->len))
		o->failed = true;
	o->len = 0;
}

static void run_output(struct textpool_job *job)
{
	struct exchange *x = of_job(job);
	struct json_out *o = &x->out;

	x->more = false;
	/* A whole answer may be long: sent in pieces, the loop can free it gradually. */
	if (!x->params.stream && !x->answer) {
		x->answer = evbuffer_new();
		json_out_set_spill(o, spill, x->answer);
	}
	x->failed = (!x->params.stream && !x->answer) || !x->kind->output(x);
	if (x->complete && x->answer)
		spill(o, x->answer);
	x->failed = x->failed || o->failed;
}

/* Sends what a worker has written to the client. */
static void deliver(struct exchange *x)
{
	struct api_error e;

	if (x->failed) {
		api_error_set(&e, 500, NULL, NULL, "out of memory");
		exchange_fail(x, &e);
		return;
	}
	if (x->params.stream && x->out.len)
		stream_write(x, &x->out);
	if (x->kind->written && !x->kind->written(x, &e))
		exchange_fail(x, &e);
	else if (x->complete)
		complete(x);
	else if (x->wake || x->more)
		exchange_output(x);
}

static void output_done(struct textpool_job *job)
{
	struct exchange *x = of_job(job);

	x->at_worker = false;
	if (x->conn && job->ran)
		deliver(x);
	exchange_free_if_over(x);
}

void exchange_output(struct exchange *x)
{
	if (!x->conn)
		return;
	if (x->at_worker) {
		x->wake = true;
		return;
	}
	/* Waits for the client to read: on_drained() comes then. */
	if (x->params.stream && http_conn_congested(x->conn))
		return;
	x->wake = false;
	x->at_worker = true;
	set_job(x, run_output, output_done);
	x->job.brief = x->params.stream;
	textpool_again(x->service->pool, &x->job);
	/* Other requests may have output in this iteration of the loop, too. */
	if (x->job.brief)
		event_active(x->service->kick_event, EV_TIMEOUT, 1);
}

/* ---- the engine ------------------------------------------------------------------------------ */

bool exchange_engine_error(const struct exchange *x, int error, const char *text,
			   struct api_error *e)
{
	switch (error) {
	case -EAGAIN:
		return api_error_set(e, 429, "overloaded", NULL, "the queue is full: %s", text);
	case -E2BIG:
		return api_error_set(e, 400, "context_length_exceeded", kinds[x->route]->prompt,
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
				     "the answer cannot continue in the requested format: %s",
				     text);
	case -EFAULT: return api_error_set(e, 400, "invalid_memory", NULL, "%s", text);
	case -ETIMEDOUT: set_late(x, e); return false;
	case -ENOMEM: return api_error_set(e, 500, NULL, NULL, "out of memory");
	default:
		return api_error_set(e, 500, NULL, NULL,
				     "the request could not be started: %s (%s)", text,
				     strerror(-error));
	}
}

bool exchange_has_result(const struct exchange *x, const struct engine_request *r,
			 enum engine_finish how, struct api_error *e)
{
	switch (how) {
	case ENGINE_FINISH_TIMEOUT: set_late(x, e); return false;
	case ENGINE_FINISH_CANCELLED:
		return api_error_set(e, 503, "shutting_down", NULL,
				     "the request was ended because the model is being unloaded");
	case ENGINE_FINISH_ERROR:
		return exchange_engine_error(x, r->error ? r->error : -EIO, r->error_text, e);
	default: return true;
	}
}

/* The time from @from to @to in seconds; 0 if one of them is not set. */
static double seconds(uint64_t from, uint64_t to)
{
	return from && to > from ? (double)(to - from) / 1e9 : 0;
}

void exchange_observe(const struct exchange *x, const struct engine_request *r,
		      enum engine_finish how)
{
	static const enum metrics_reason reasons[ENGINE_N_FINISHES] = {
		[ENGINE_FINISH_STOP] = METRICS_STOP,
		[ENGINE_FINISH_LENGTH] = METRICS_LENGTH,
		[ENGINE_FINISH_CANCELLED] = METRICS_ABORT,
		[ENGINE_FINISH_ERROR] = METRICS_ERROR,
		[ENGINE_FINISH_COMPLETE] = METRICS_STOP,
		[ENGINE_FINISH_TIMEOUT] = METRICS_TIMEOUT,
	};
	uint64_t first = r->first_token_ns ? r->first_token_ns : r->last_token_ns;
	unsigned n = atomic_load(&r->n_tokens);
	struct metrics_model *m = &x->model->metrics;

	m->finished[reasons[how]]++;
	x->account->prompt_tokens += r->n_prompt;
	x->account->generation_tokens += n;
	if (reasons[how] != METRICS_STOP && reasons[how] != METRICS_LENGTH)
		return;
	metrics_observe(m, METRICS_E2E_LATENCY, seconds(x->arrived_ns, r->last_token_ns), 1);
	metrics_observe(m, METRICS_QUEUE_TIME, seconds(r->queued_ns, r->started_ns), 1);
	metrics_observe(m, METRICS_PREFILL_TIME, seconds(r->started_ns, first), 1);
	metrics_observe(m, METRICS_PROMPT_TOKENS, r->n_prompt, 1);
	if (!n)
		return;
	metrics_observe(m, METRICS_DECODE_TIME, seconds(first, r->last_token_ns), 1);
	metrics_observe(m, METRICS_GENERATION_TOKENS, n, 1);
}

/*
 * The engine has released it; it may appear once more in the list of events, and is ignored then.
 */
static void end_sequence(struct sequence *s)
{
	s->request->client = NULL;
	*s->link = s->next;
	if (s->next)
		s->next->link = s->link;
	s->link = NULL;
	s->exchange->n_live--;
}

static void on_event(struct client *client)
{
	struct sequence *s = (struct sequence *)client;
	struct exchange *x = s->exchange;
	struct replica *replica = client->replica;
	enum engine_finish how =
		(enum engine_finish)atomic_load_explicit(&s->request->finish, memory_order_acquire);
	struct api_error e;

	if (x->phase == PHASE_QUEUED)
		enter(x, PHASE_RUNNING);
	if (how != ENGINE_RUNNING)
		end_sequence(s);
	if (!x->kind->event(s, how, &e))
		exchange_fail(x, &e);
	if (how == ENGINE_RUNNING)
		return;
	exchange_free_if_over(x);
	replica_request_ended(replica);
}

/* For the engine; 0: none. */
static uint64_t salt_of(const struct exchange *x)
{
	uint8_t digest[32];
	struct sha256 h;
	uint64_t salt;

	if (!x->params.cache_salt)
		return 0;
	sha256_init(&h);
	sha256_u64(&h, x->uid);
	sha256_string(&h, x->params.cache_salt);
	sha256_final(&h, digest);
	memcpy(&salt, digest, sizeof(salt));
	return salt | 1;
}

int exchange_submit(struct exchange *x, struct sequence *s, unsigned n, char *err, size_t errlen)
{
	const uint64_t salt = salt_of(x);
	int error;

	for (unsigned i = n; i-- > 0;) {
		struct engine_request *r = s[i].request;

		r->uid = x->uid;
		r->salt = salt;
		r->priority = -(int)x->params.priority;
		r->deadline_ns = x->deadline_ns;
		r->client = &s[i].client;
		s[i].exchange = x;
		s[i].client.news = on_event;
		if (i) {
			r->fork_next = s->request->forks;
			s->request->forks = r;
		}
	}
	error = model_submit(x->model, s->request, &s->client, err, errlen);
	for (unsigned i = 0; i < n; i++) {
		if (error) {
			s[i].request->client = NULL;
			s[i].request->forks = NULL;
			continue;
		}
		s[i].next = x->live;
		s[i].link = &x->live;
		if (s[i].next)
			s[i].next->link = &s[i].next;
		x->live = &s[i];
		x->n_live++;
	}
	return error;
}
