// SPDX-License-Identifier: MIT
#include "models.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <event2/event.h>

#include "clock.h"
#include "exchange.h"
#include "log.h"
#include "models_internal.h"
#include "residency.h"
#include "server_internal.h"

#define RETRY_SECONDS 5

static void settle(struct served_model *m);
static bool enter(struct served_model *m);
static void set_context(struct served_model *m);

const char *model_state_name(enum model_state state)
{
	static const char *const names[MODEL_N_STATES] = {
		[MODEL_UNLOADED] = "unloaded", [MODEL_LOADING] = "loading",
		[MODEL_READY] = "ready",       [MODEL_UNLOADING] = "unloading",
		[MODEL_ASLEEP] = "asleep",     [MODEL_FAILED] = "failed",
		[MODEL_LOST] = "lost",
	};

	return names[state];
}

static const char *model_name(const struct served_model *m)
{
	return m->config->names[0];
}

/* ---- those who wait -------------------------------------------------------------------------- */

int model_park(struct served_model *m, struct exchange *x)
{
	unsigned max = m->server->config->max_queue ? m->server->config->max_queue : 1024;

	if (m->n_parked >= max)
		return -EAGAIN;
	x->parked_ns = clock_ns();
	x->park_next = NULL;
	*m->last_parked = x;
	m->last_parked = &x->park_next;
	m->n_parked++;
	return 0;
}

void model_unpark(struct served_model *m, struct exchange *x)
{
	struct exchange **link = &m->parked;

	while (*link && *link != x)
		link = &(*link)->park_next;
	if (!*link)
		return;
	*link = x->park_next;
	if (!*link)
		m->last_parked = link;
	m->n_parked--;
}

static void fail_parked(struct served_model *m)
{
	struct api_error e;

	while (m->parked) {
		struct exchange *x = m->parked;

		model_unpark(m, x);
		model_unavailable(m, &e);
		exchange_fail(x, &e);
		exchange_free_if_over(x);
	}
}

static void wake_parked(struct served_model *m)
{
	while (m->parked && m->state == MODEL_READY) {
		struct exchange *x = m->parked;

		model_unpark(m, x);
		exchange_go_on(x);
	}
}

void model_use(struct served_model *m)
{
	m->users++;
}

void model_unuse(struct served_model *m)
{
	m->users--;
}

/* ---- a replica ------------------------------------------------------------------------------- */

static void add_counters(struct engine_stats *sum, const struct engine_stats *one)
{
	sum->prompt_tokens += one->prompt_tokens;
	sum->generation_tokens += one->generation_tokens;
	sum->preemptions += one->preemptions;
	sum->steps += one->steps;
	sum->limited_steps += one->limited_steps;
	sum->prefix_queries += one->prefix_queries;
	sum->prefix_hits += one->prefix_hits;
	sum->drafts += one->drafts;
	sum->draft_tokens += one->draft_tokens;
	sum->accepted_tokens += one->accepted_tokens;
	sum->step_ns += one->step_ns;
	sum->host_ns += one->host_ns;
	sum->bytes_written += one->bytes_written;
	sum->bytes_read += one->bytes_read;
	for (unsigned i = 0; i < ENGINE_N_FINISHES; i++)
		sum->finished[i] += one->finished[i];
	for (unsigned i = 0; i < ENGINE_MAX_DRAFT; i++)
		sum->accepted_at[i] += one->accepted_at[i];
}

/* Gives the engine back. */
static void let_go(struct replica *r)
{
	struct engine_stats stats = {0};

	if (r->ready_event)
		event_free(r->ready_event);
	r->ready_event = NULL;
	if (r->engine) {
		engine_stats(r->engine, &stats);
		add_counters(&r->model->past, &stats);
	}
	r->engine = NULL;
	if (r->held)
		residency_release(r->model->server->residency, r->held);
	r->held = NULL;
}

/* Off the chips; nothing runs on it. */
static void take_out(struct replica *r)
{
	struct served_model *m = r->model;
	struct residency *residency = m->server->residency;
	char err[256];

	evtimer_del(r->retry_event);
	residency_call_off(residency, r);
	/* What was taken out of the table goes by itself. */
	if (!m->retired && (!m->sleeps || residency_sleep(residency, r->name, err, sizeof(err))))
		residency_unload(residency, r->name, err, sizeof(err));
	let_go(r);
	r->state = REPLICA_OUT;
	r->tries = 0;
}

static void retry_later(struct replica *r)
{
	struct timeval tv = {.tv_sec = RETRY_SECONDS};

	r->state = REPLICA_LOST;
	event_add(r->retry_event, &tv);
}

void replica_give_up(struct replica *r, enum model_state verdict, const char *why)
{
	struct served_model *m = r->model;

	snprintf(m->error, sizeof(m->error), "%s", why);
	m->metrics.load_failures++;
	/* At the end of the daemon, loads under way are called off. */
	if (!m->server->draining)
		log_error("model %s: %s", r->name, why);
	r->state = REPLICA_OUT;
	m->verdict = verdict;
	settle(m);
}

/* A model that never worked is given up; one that lost its chips may get others. */
static void load_failed(struct replica *r, int error, const char *why)
{
	struct served_model *m = r->model;

	if (m->state == MODEL_LOST || r->lost) {
		if (!m->server->draining)
			log_error("model %s: %s", r->name, why);
		retry_later(r);
		settle(m);
	} else if ((error == -ENOSPC || error == -ENOMEM) && !m->server->draining) {
		room_seek(r, why);
	} else {
		replica_give_up(r, MODEL_FAILED, why);
	}
}

static void on_engine_ready(evutil_socket_t fd, short what, void *arg)
{
	struct replica *replica = arg;
	struct engine_request *r, *next;

	(void)fd;
	(void)what;
	/* The last news may take the replica off its chips: the list stays ours. */
	for (r = engine_take_ready(replica->engine); r; r = next) {
		next = r->ready_next;
		if (r->client)
			((struct client *)r->client)->news(r->client);
		engine_request_unref(r);
	}
	model_check(replica->model);
}

static void on_acquired(void *arg, int error, const char *text, struct residency_model *model)
{
	struct replica *r = arg;
	struct served_model *m = r->model;

	if (error) {
		load_failed(r, error, text && *text ? text : strerror(-error));
		return;
	}
	r->held = model;
	r->engine = residency_engine(model);
	r->ready_event = event_new(m->server->base, engine_ready_fd(r->engine),
				   EV_READ | EV_PERSIST, on_engine_ready, r);
	if (!r->ready_event || event_add(r->ready_event, NULL)) {
		let_go(r);
		load_failed(r, -EIO, "out of memory for an event");
		return;
	}
	r->state = REPLICA_READY;
	r->lost = false;
	r->tries = 0;
	engine_limits(r->engine, &m->limits);
	if (m->balance)
		balance_forget(m->balance, (unsigned)(r - m->replicas));
	set_context(m);
	settle(m);
}

void replica_acquire(struct replica *r)
{
	struct residency_model *model = NULL;
	char err[512] = "";
	int error;

	r->state = REPLICA_LOADING;
	error = residency_acquire(r->model->server->residency, r->name, on_acquired, r, &model, err,
				  sizeof(err));
	if (!error)
		on_acquired(r, 0, NULL, model);
	else if (error != -EINPROGRESS)
		load_failed(r, error, *err ? err : strerror(-error));
}

static void on_retry(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	replica_acquire(arg);
}

void replica_request_ended(struct replica *r)
{
	struct served_model *m = r->model;

	r->in_flight--;
	m->used_ns = clock_ns();
	if (!r->in_flight && m->state == MODEL_UNLOADING) {
		take_out(r);
		settle(m);
	}
}

/* ---- the text side --------------------------------------------------------------------------- */

/* FNV-1a of the case dir's name, which holds the hash of what was compiled: the same weights and
 * compiler, the same fingerprint. */
static void make_fingerprint(struct served_model *m, const char *case_dir)
{
	const char *base = strrchr(case_dir, '/');
	uint64_t hash = 0xCBF29CE484222325ull;

	for (base = base ? base + 1 : case_dir; *base; base++)
		hash = (hash ^ (unsigned char)*base) * 0x100000001B3ull;
	snprintf(m->fingerprint, sizeof(m->fingerprint), "fp_txda_%s_%08x", TXDA_VERSION,
		 (unsigned)(hash ^ hash >> 32));
}

static struct served_model *of_job(struct textpool_job *job)
{
	return (struct served_model *)((char *)job - offsetof(struct served_model, load.job));
}

static void read_text(struct textpool_job *job)
{
	struct served_model *m = of_job(job);
	const struct model_text_options options = {
		.tool_parser = *m->load.tool_parser ? m->load.tool_parser : NULL,
		.reasoning_parser = *m->load.reasoning_parser ? m->load.reasoning_parser : NULL,
		.must_fit = m->load.must_fit,
	};

	m->load.result = model_text_load(m->load.dir, &m->load.limits, &options, &m->load.text,
					 m->load.err, sizeof(m->load.err));
}

/* Exchanges may still refer to the text before. */
static int replace_text(struct served_model *m, struct model_text *text)
{
	struct model_text *old = atomic_load(&m->text), **more;

	if (old) {
		more = realloc(m->old_texts, (m->n_old + 1) * sizeof(struct model_text *));
		if (!more)
			return -ENOMEM;
		m->old_texts = more;
		m->old_texts[m->n_old++] = old;
	}
	atomic_store_explicit(&m->text, text, memory_order_release);
	set_context(m);
	return 0;
}

static void fail_load(struct served_model *m, const char *why)
{
	m->load.dir[0] = '\0';
	for (unsigned i = 0; i < m->n_replicas; i++)
		if (!m->replicas[i].in_flight)
			take_out(&m->replicas[i]);
	m->verdict = MODEL_FAILED;
	snprintf(m->error, sizeof(m->error), "%s", why);
	m->metrics.load_failures++;
	log_error("model %s: %s", model_name(m), why);
	settle(m);
}

static void text_read(struct textpool_job *job)
{
	struct served_model *m = of_job(job);

	m->load.in_pool = false;
	if (!m->load.result && replace_text(m, m->load.text)) {
		model_text_free(m->load.text);
		m->load.result = -ENOMEM;
		snprintf(m->load.err, sizeof(m->load.err), "out of memory");
	}
	if (m->load.result && m->state != MODEL_UNLOADING)
		fail_load(m, m->load.err);
	else
		settle(m);
}

/* Reads the text side of a model, unless that is what is there. False: not there yet. */
static bool have_text(struct served_model *m, struct residency_model *held)
{
	const char *dir = residency_text_dir(held), *case_dir = residency_case_dir(held);
	char before[sizeof(m->fingerprint)];

	if (m->load.in_pool || m->server->draining)
		return false;
	memcpy(before, m->fingerprint, sizeof(before));
	make_fingerprint(m, case_dir);
	if (atomic_load(&m->text) && !strcmp(m->load.dir, dir) && !strcmp(before, m->fingerprint))
		return true;
	m->load.must_fit = strcmp(dir, case_dir);
	snprintf(m->load.dir, sizeof(m->load.dir), "%s", dir);
	snprintf(m->load.tool_parser, sizeof(m->load.tool_parser), "%s",
		 m->config->tool_parser ? m->config->tool_parser : "");
	snprintf(m->load.reasoning_parser, sizeof(m->load.reasoning_parser), "%s",
		 m->config->reasoning_parser ? m->config->reasoning_parser : "");
	m->load.limits = m->limits;
	m->load.job.user = TEXTPOOL_DAEMON;
	m->load.job.run = read_text;
	m->load.job.done = text_read;
	m->load.result = -ECANCELED;
	if (textpool_add(m->server->pool, &m->load.job))
		fail_load(m, "the text pool is full");
	else
		m->load.in_pool = true;
	return false;
}

/* ---- the state of the whole ------------------------------------------------------------------ */

/* How long a request may be depends on the memory that was left for the KV cache. */
static void set_context(struct served_model *m)
{
	unsigned context = m->limits.max_context;
	struct engine_limits limits;

	for (unsigned i = 0; i < m->n_replicas; i++) {
		if (m->replicas[i].state != REPLICA_READY)
			continue;
		engine_limits(m->replicas[i].engine, &limits);
		if (limits.max_context < context)
			context = limits.max_context;
	}
	m->limits.max_context = context;
	if (atomic_load(&m->text))
		atomic_load(&m->text)->max_context = context;
}

/* An option that promises more than the model was compiled for, or the memory holds, is no error:
 * one line may be for many models. */
static void note_cap(const struct served_model *m, const char *option, unsigned wanted, unsigned is)
{
	if (is && wanted > is)
		log_warning("model %s: --%s is %u, which is more than it can have: %u",
			    model_name(m), option, wanted, is);
}

static void become_ready(struct served_model *m)
{
	const struct config_engine *e = &m->config->engine;
	struct residency_info info = {0};

	m->state = MODEL_READY;
	m->error[0] = '\0';
	m->demanded = m->starting = false;
	set_context(m);
	m->used_ns = m->ready_ns = clock_ns();
	m->metrics.loads++;
	residency_find(m->server->residency, model_name(m), &info);
	m->metrics.load_seconds += (double)info.load_ns / 1e9;
	m->metrics.adoptions += info.adopted;
	log_info("model %s is ready: loaded in %.2f s%s", model_name(m), (double)info.load_ns / 1e9,
		 info.adopted ? ", its weights were on the chips" : "");
	note_cap(m, "max-model-len", e->max_model_len, m->limits.max_context);
	note_cap(m, "max-num-seqs", e->max_num_seqs, m->limits.max_num_seqs);
	note_cap(m, "max-num-batched-tokens", e->max_num_batched_tokens,
		 m->limits.max_num_batched_tokens);
	wake_parked(m);
}

static void become_unloaded(struct served_model *m)
{
	m->state = m->sleeps ? MODEL_ASLEEP : MODEL_UNLOADED;
	m->keep_alive = m->config->keep_alive;
	log_info("model %s is %s", model_name(m), model_state_name(m->state));
	room_changed(m->server);
	if (m->retired)
		fail_parked(m);
	if ((m->parked || m->demanded) && m->state != MODEL_LOADING && !m->retired)
		model_demand(m);
}

/* Whatever happened to the replicas, this is what it means for the model. */
static void settle(struct served_model *m)
{
	unsigned n[REPLICA_LOST + 1] = {0};
	struct replica *ready = NULL;

	for (unsigned i = 0; i < m->n_replicas; i++) {
		n[m->replicas[i].state]++;
		if (m->replicas[i].state == REPLICA_READY)
			ready = &m->replicas[i];
	}
	if (m->state == MODEL_UNLOADING) {
		if (n[REPLICA_OUT] == m->n_replicas)
			become_unloaded(m);
	} else if (ready) {
		if (m->state != MODEL_READY && have_text(m, ready->held))
			become_ready(m);
	} else if (n[REPLICA_LOST]) {
		m->state = MODEL_LOST;
		fail_parked(m);
	} else if (!n[REPLICA_LOADING] && !n[REPLICA_NO_ROOM] &&
		   (m->state == MODEL_LOADING || m->state == MODEL_LOST ||
		    m->state == MODEL_READY)) {
		m->state = m->verdict;
		m->demanded = m->starting = false;
		fail_parked(m);
	}
}

static void begin_load(struct served_model *m)
{
	/* What was wrong with it may be right by now. */
	if (!enter(m)) {
		fail_parked(m);
		return;
	}
	m->state = MODEL_LOADING;
	m->error[0] = '\0';
	m->verdict = MODEL_FAILED;
	m->sleeps = false;
	m->demand_ns = clock_ns();
	for (unsigned i = 0; i < m->n_replicas; i++)
		if (m->replicas[i].state == REPLICA_OUT)
			replica_acquire(&m->replicas[i]);
}

void model_demand(struct served_model *m)
{
	switch (m->state) {
	case MODEL_READY: m->used_ns = clock_ns(); break;
	case MODEL_LOADING:
	case MODEL_UNLOADING: m->demanded = true; break;
	case MODEL_LOST:
		for (unsigned i = 0; i < m->n_replicas; i++)
			if (m->replicas[i].state == REPLICA_LOST && !m->replicas[i].engine)
				event_active(m->replicas[i].retry_event, EV_TIMEOUT, 0);
		break;
	default:
		m->demanded = true;
		begin_load(m);
		break;
	}
}

void model_unload(struct served_model *m, bool sleep, enum model_reason reason)
{
	bool was_ready = m->state == MODEL_READY;
	char err[256];

	m->demanded = m->starting = false;
	switch (m->state) {
	case MODEL_UNLOADED:
	case MODEL_FAILED:
		if (!sleep)
			m->state = MODEL_UNLOADED;
		return;
	case MODEL_ASLEEP:
		for (unsigned i = 0; i < m->n_replicas && !sleep; i++)
			residency_unload(m->server->residency, m->replicas[i].name, err,
					 sizeof(err));
		m->state = sleep ? MODEL_ASLEEP : MODEL_UNLOADED;
		return;
	case MODEL_UNLOADING: m->sleeps = m->sleeps && sleep; return;
	default: break;
	}
	m->state = MODEL_UNLOADING;
	m->sleeps = sleep && was_ready;
	if (was_ready)
		m->metrics.unloads[reason]++;
	fail_parked(m);
	for (unsigned i = 0; i < m->n_replicas; i++)
		if (m->replicas[i].state != REPLICA_OUT && !m->replicas[i].in_flight)
			take_out(&m->replicas[i]);
	settle(m);
}

void model_abort(struct served_model *m, const char *why)
{
	exchange_abort(m->server, m, why);
}

/* ---- life ------------------------------------------------------------------------------------ */

/* How it is compiled and run. */
static int set_options(const struct served_model *m, const char *name, char *err, size_t errlen)
{
	const struct config_engine *e = &m->config->engine;
	const struct residency_model_options options = {
		.kv_int8 = e->kv_int8,
		.whole_experts = e->expert_parallel,
		.engine =
			{
				.max_context = e->max_model_len,
				.max_num_seqs = e->max_num_seqs,
				.max_num_batched_tokens = e->max_num_batched_tokens,
				.max_stall_ms = e->max_stall_ms,
				.step_seconds = e->step_timeout,
				.max_queue = m->server->config->max_queue,
				.prefix_caching = e->prefix_caching,
				.speculation = e->speculate_ngram ? ENGINE_SPECULATE_NGRAM
								  : ENGINE_SPECULATE_NOT,
				.speculative_tokens = e->speculative_tokens,
				.speculative_max_seqs = e->speculative_max_seqs,
			},
	};

	return residency_set_options(m->server->residency, name, &options, err, errlen);
}

/* Which chips it may use. */
static int set_chips(const struct served_model *m, const char *name, char *err, size_t errlen)
{
	const struct config_devices *devices = &m->config->devices;
	struct residency_chips chips = {.n_devices = devices->n};

	memcpy(chips.devices, devices->chips, devices->n * sizeof(*devices->chips));
	snprintf(chips.map, sizeof(chips.map), "%s", m->config->map.text);
	return residency_set_chips(m->server->residency, name, &chips, err, errlen);
}

/* Puts the replicas into the table of residency. */
static int add_replicas(struct served_model *m, char *err, size_t errlen)
{
	const struct config_model *c = m->config;
	struct residency *residency = m->server->residency;
	int r = 0;

	for (unsigned i = 0; i < c->data_parallel && !r; i++) {
		struct replica *replica = &m->replicas[i];

		replica->model = m;
		if (i)
			snprintf(replica->name, sizeof(replica->name), "%s#%u", c->names[0], i + 1);
		else
			snprintf(replica->name, sizeof(replica->name), "%s", c->names[0]);
		if (!replica->retry_event)
			replica->retry_event = evtimer_new(m->server->base, on_retry, replica);
		if (!replica->retry_event)
			return -ENOMEM;
		r = residency_add(residency, replica->name, c->path, c->engine.tp_size,
				  c->engine.weights ? config_weights[c->engine.weights] : NULL, err,
				  errlen);
		if (r)
			return r;
		m->n_replicas++;
		r = set_options(m, replica->name, err, errlen);
		if (!r)
			r = residency_set_limits(residency, replica->name, c->kv_memory,
						 c->data_parallel > 1 ? c->names[0] : NULL, err,
						 errlen);
		if (!r)
			r = set_chips(m, replica->name, err, errlen);
		if (!r && c->draft)
			r = residency_set_draft(residency, replica->name, c->draft, err, errlen);
	}
	return r;
}

static void remove_replicas(struct served_model *m)
{
	char err[256];

	for (unsigned i = 0; i < m->n_replicas; i++)
		residency_remove(m->server->residency, m->replicas[i].name, err, sizeof(err));
}

/* Puts the replicas into the table, or says what is wrong with the model. */
static bool enter(struct served_model *m)
{
	char err[512] = "";
	int r = m->n_replicas ? 0 : add_replicas(m, err, sizeof(err));

	if (!r)
		return true;
	remove_replicas(m);
	m->n_replicas = 0;
	m->state = MODEL_FAILED;
	m->demanded = m->starting = false;
	snprintf(m->error, sizeof(m->error), "%s", *err ? err : strerror(-r));
	m->metrics.load_failures++;
	log_error("%smodel %s: %s", m->config->where, model_name(m), m->error);
	return false;
}

int model_add(struct server *s, struct config_model *config)
{
	struct served_model *m = calloc(1, sizeof(*m));

	if (!m) {
		config_model_free(config);
		return -ENOMEM;
	}
	m->server = s;
	m->config = config;
	m->created = time(NULL);
	m->keep_alive = config->keep_alive;
	m->pinned = config->pin;
	m->last_parked = &m->parked;
	m->used_ns = clock_ns();
	make_fingerprint(m, "");
	if (config->data_parallel > 1 && balance_new(config->data_parallel, &m->balance)) {
		model_free(m);
		return -ENOMEM;
	}
	s->models[s->n_models++] = m;
	if (enter(m) && !config->on_demand) {
		m->starting = true;
		begin_load(m);
	}
	return 0;
}

bool models_validate(struct txda_context *context, const struct config *c, char *err, size_t errlen)
{
	char why[512] = "";

	for (unsigned i = 0; i < c->n_models; i++) {
		const struct config_model *m = &c->models[i];
		const struct residency_wish wish = {
			.path = m->path,
			.draft = m->draft,
			.tp = m->engine.tp_size,
			.weights = m->engine.weights ? config_weights[m->engine.weights] : NULL,
			.kv_int8 = m->engine.kv_int8,
			.whole_experts = m->engine.expert_parallel,
		};

		if (!residency_check(context, &wish, why, sizeof(why)))
			continue;
		snprintf(err, errlen, "%smodel %.200s: %s", m->where, m->names[0], why);
		return false;
	}
	return true;
}

void model_retire(struct served_model *m)
{
	remove_replicas(m);
	m->retired = true;
	model_unload(m, false, MODEL_BY_ADMIN);
}

void model_free(struct served_model *m)
{
	for (unsigned i = 0; i < CONFIG_MAX_REPLICAS; i++) {
		struct replica *r = &m->replicas[i];

		if (m->server->residency && r->model)
			residency_call_off(m->server->residency, r);
		if (r->model)
			let_go(r);
		if (r->retry_event)
			event_free(r->retry_event);
	}
	model_text_free(atomic_load(&m->text));
	for (unsigned i = 0; i < m->n_old; i++)
		model_text_free(m->old_texts[i]);
	free(m->old_texts);
	balance_free(m->balance);
	config_model_free(m->config);
	free(m);
}

/* ---- requests -------------------------------------------------------------------------------- */

bool model_is_ready(const struct served_model *m)
{
	return m->state == MODEL_READY && !m->retired;
}

/* The replica for a prompt, or NULL. */
static struct replica *choose_replica(struct served_model *m, const struct engine_request *r)
{
	uint32_t loads[CONFIG_MAX_REPLICAS];
	int i;

	if (!m->balance)
		return m->replicas[0].engine ? &m->replicas[0] : NULL;
	for (unsigned k = 0; k < m->n_replicas; k++)
		loads[k] = m->replicas[k].state == REPLICA_READY ? m->replicas[k].in_flight
								 : BALANCE_BUSY;
	i = balance_choose(m->balance, r->prompt, r->n_prompt, m->limits.block_size, r->uid, loads);
	return i < 0 ? NULL : &m->replicas[i];
}

int model_submit(struct served_model *m, struct engine_request *r, struct client *client, char *err,
		 size_t errlen)
{
	struct engine_request *f;
	struct replica *replica;
	unsigned n = 1;
	int error;

	r->id = ++m->server->next_id;
	replica = choose_replica(m, r);
	if (!replica) {
		snprintf(err, errlen, "no chips have the model now");
		return -EIO;
	}
	client->replica = replica;
	r->client = client;
	for (f = r->forks; f; f = f->fork_next) {
		f->id = ++m->server->next_id;
		((struct client *)f->client)->replica = replica;
		n++;
	}
	error = engine_submit(replica->engine, r, err, errlen);
	if (error) {
		r->client = NULL;
		return error;
	}
	replica->in_flight += n;
	m->used_ns = clock_ns();
	if (m->balance)
		balance_note(m->balance, r->prompt, r->n_prompt, m->limits.block_size, r->uid,
			     (unsigned)(replica - m->replicas));
	return 0;
}

void model_cancel(struct engine_request *r)
{
	const struct client *client = r->client;

	if (client && client->replica->engine)
		engine_cancel(client->replica->engine, r);
}

unsigned model_in_flight(const struct served_model *m)
{
	unsigned n = 0;

	for (unsigned i = 0; i < m->n_replicas; i++)
		n += m->replicas[i].in_flight;
	return n;
}

/* ---- what is there --------------------------------------------------------------------------- */

static void check_replica(struct replica *r)
{
	struct engine_stats stats = {0};

	if (r->engine && r->state == REPLICA_READY) {
		engine_stats(r->engine, &stats);
		if (stats.lost) {
			r->state = REPLICA_LOST;
			r->lost = true;
			snprintf(r->model->error, sizeof(r->model->error), "%s",
				 stats.error[0] ? stats.error : "its chips failed");
			log_error("model %s is lost: %s", r->name, r->model->error);
		}
	}
	if (r->state == REPLICA_LOST && r->engine && !r->in_flight) {
		let_go(r);
		retry_later(r);
	}
}

void model_check(struct served_model *m)
{
	if (m->state == MODEL_UNLOADING)
		return;
	for (unsigned i = 0; i < m->n_replicas; i++)
		check_replica(&m->replicas[i]);
	settle(m);
}

bool model_stats(const struct served_model *m, struct engine_stats *ret)
{
	struct engine_stats one;
	unsigned n = 0;

	*ret = m->past;
	for (unsigned i = 0; i < m->n_replicas; i++) {
		if (!m->replicas[i].engine)
			continue;
		engine_stats(m->replicas[i].engine, &one);
		add_counters(ret, &one);
		ret->running += one.running;
		ret->waiting += one.waiting;
		ret->kv_usage += one.kv_usage;
		n++;
	}
	if (n)
		ret->kv_usage /= n;
	return n || ret->steps;
}

struct served_model *models_find(struct server *s, const char *name)
{
	for (unsigned i = 0; i < s->n_models; i++) {
		struct served_model *m = s->models[i];

		for (unsigned k = 0; k < m->config->n_names && !m->retired; k++)
			if (!name || !strcmp(m->config->names[k], name))
				return m;
	}
	return NULL;
}

void models_names(struct server *s, char *buf, size_t len)
{
	size_t at = 0;

	buf[0] = 0;
	for (unsigned i = 0; i < s->n_models; i++) {
		const struct config_model *config = s->models[i]->config;

		for (unsigned k = 0; k < config->n_names && at < len && !s->models[i]->retired;
		     k++) {
			int n = snprintf(buf + at, len - at, "%s%s", at ? ", " : "",
					 config->names[k]);

			at += n > 0 ? (size_t)n : 0;
		}
	}
}

void model_unavailable(const struct served_model *m, struct api_error *e)
{
	const char *name = model_name(m);

	if (m->retired) {
		api_error_set(e, 404, "model_not_found", "model",
			      "the model \"%s\" is no longer served", name);
		return;
	}
	switch (m->state) {
	case MODEL_FAILED:
		api_error_set(e, 503, "model_failed", "model",
			      "the model \"%s\" could not be loaded: %s", name, m->error);
		break;
	case MODEL_LOST:
		api_error_set(e, 503, "model_lost", "model", "the model \"%s\" lost its chips: %s",
			      name, m->error);
		break;
	case MODEL_UNLOADED:
	case MODEL_ASLEEP:
		api_error_set(e, 503, "insufficient_memory", "model",
			      "the model \"%s\" is not loaded: %s", name,
			      m->error[0] ? m->error : "the load ended");
		e->retry_after = 10;
		break;
	case MODEL_UNLOADING:
		api_error_set(e, 503, "model_unloading", "model",
			      "the model \"%s\" is being unloaded", name);
		e->retry_after = 2;
		break;
	default:
		api_error_set(e, 503, "model_loading", "model", "the model \"%s\" is loading",
			      name);
		e->retry_after = 2;
		break;
	}
}
