// SPDX-License-Identifier: MIT
#include "models.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <event2/event.h>

#include "log.h"
#include "residency/residency.h"
#include "server_internal.h"

#define RETRY_SECONDS 5

static void acquire(struct served_model *m);

const char *model_state_name(enum model_state state)
{
	static const char *const names[] = {"loading", "ready", "failed", "lost"};

	return names[state];
}

static void retry_later(struct served_model *m)
{
	struct timeval tv = {.tv_sec = RETRY_SECONDS};

	event_add(m->retry_event, &tv);
}

/* A model that never worked is given up; one that lost its chips may get others. */
static void load_failed(struct served_model *m, const char *why)
{
	snprintf(m->error, sizeof(m->error), "%s", why);
	/* At the end of the daemon, loads under way are called off. */
	if (!m->server->draining)
		log_error("model %s: %s", m->config->names[0], why);
	if (m->state == MODEL_LOST)
		retry_later(m);
	else
		m->state = MODEL_FAILED;
}

static void let_go(struct served_model *m)
{
	if (m->ready_event)
		event_free(m->ready_event);
	m->ready_event = NULL;
	m->engine = NULL;
	if (m->held)
		residency_release(m->server->residency, m->held);
	m->held = NULL;
}

static void on_engine_ready(evutil_socket_t fd, short what, void *arg)
{
	struct served_model *m = arg;
	struct engine_request *r, *next;

	(void)fd;
	(void)what;
	for (r = engine_take_ready(m->engine); r; r = next) {
		next = r->ready_next;
		if (r->client)
			((struct client *)r->client)->news(r->client);
		engine_request_unref(r);
	}
	model_check(m);
}

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

static void become_ready(struct served_model *m)
{
	m->state = MODEL_READY;
	m->error[0] = 0;
	log_info("model %s is ready", m->config->names[0]);
}

static void load_text(struct textpool_job *job)
{
	struct served_model *m =
		(struct served_model *)((char *)job - offsetof(struct served_model, load.job));
	const struct model_text_options options = {
		.tool_parser = m->config->tool_parser,
		.reasoning_parser = m->config->reasoning_parser,
	};

	m->load.result = model_text_load(m->load.dir, &m->load.limits, &options, &m->load.text,
					 m->load.err, sizeof(m->load.err));
}

static void text_loaded(struct textpool_job *job)
{
	struct served_model *m =
		(struct served_model *)((char *)job - offsetof(struct served_model, load.job));

	if (m->load.result) {
		let_go(m);
		load_failed(m, m->load.err);
		return;
	}
	atomic_store_explicit(&m->text, m->load.text, memory_order_release);
	if (m->held)
		become_ready(m);
}

static void on_acquired(void *arg, int error, const char *text, struct residency_model *model)
{
	struct served_model *m = arg;

	if (error) {
		load_failed(m, text && *text ? text : strerror(-error));
		return;
	}
	m->held = model;
	m->engine = residency_engine(model);
	m->ready_event = event_new(m->server->base, engine_ready_fd(m->engine),
				   EV_READ | EV_PERSIST, on_engine_ready, m);
	if (!m->ready_event || event_add(m->ready_event, NULL)) {
		let_go(m);
		load_failed(m, "out of memory");
		return;
	}
	make_fingerprint(m, residency_case_dir(model));
	if (atomic_load(&m->text)) {
		become_ready(m);
		return;
	}
	snprintf(m->load.dir, sizeof(m->load.dir), "%s", residency_case_dir(model));
	engine_limits(m->engine, &m->load.limits);
	m->load.job.run = load_text;
	m->load.job.done = text_loaded;
	m->load.result = -ECANCELED;
	if (textpool_add(m->server->pool, &m->load.job)) {
		let_go(m);
		load_failed(m, "the text pool is full");
	}
}

static void acquire(struct served_model *m)
{
	struct residency_model *model = NULL;
	char err[512] = "";
	int r = residency_acquire(m->server->residency, m->config->names[0], on_acquired, m, &model,
				  err, sizeof(err));

	if (!r)
		on_acquired(m, 0, NULL, model);
	else if (r != -EINPROGRESS)
		load_failed(m, *err ? err : strerror(-r));
}

static void on_retry(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	acquire(arg);
}

void model_start(struct served_model *m, struct server *s, const struct config_model *config)
{
	m->server = s;
	m->config = config;
	m->created = time(NULL);
	make_fingerprint(m, "");
	m->retry_event = evtimer_new(s->base, on_retry, m);
	if (!m->retry_event) {
		load_failed(m, "out of memory");
		return;
	}
	acquire(m);
}

void model_stop(struct served_model *m)
{
	if (m->server->residency)
		residency_call_off(m->server->residency, m);
	let_go(m);
	if (m->retry_event)
		event_free(m->retry_event);
	m->retry_event = NULL;
	model_text_free(atomic_load(&m->text));
}

void model_check(struct served_model *m)
{
	struct engine_stats stats = {0};

	if (!m->engine)
		return;
	if (m->state == MODEL_READY) {
		engine_stats(m->engine, &stats);
		if (stats.lost) {
			m->state = MODEL_LOST;
			snprintf(m->error, sizeof(m->error), "%s",
				 stats.error[0] ? stats.error : "its chips failed");
			log_error("model %s is lost: %s", m->config->names[0], m->error);
		}
	}
	if (m->state == MODEL_LOST && !m->in_flight) {
		let_go(m);
		retry_later(m);
	}
}

void model_request_ended(struct served_model *m)
{
	m->in_flight--;
}

struct served_model *models_find(struct server *s, const char *name)
{
	if (!name)
		return s->n_models ? &s->models[0] : NULL;
	for (unsigned i = 0; i < s->n_models; i++)
		for (unsigned k = 0; k < s->models[i].config->n_names; k++)
			if (!strcmp(s->models[i].config->names[k], name))
				return &s->models[i];
	return NULL;
}

void models_names(struct server *s, char *buf, size_t len)
{
	size_t at = 0;

	buf[0] = 0;
	for (unsigned i = 0; i < s->n_models; i++) {
		const struct config_model *config = s->models[i].config;

		for (unsigned k = 0; k < config->n_names && at < len; k++) {
			int n = snprintf(buf + at, len - at, "%s%s", at ? ", " : "",
					 config->names[k]);

			at += n > 0 ? (size_t)n : 0;
		}
	}
}

void model_unavailable(const struct served_model *m, struct api_error *e)
{
	const char *name = m->config->names[0];

	switch (m->state) {
	case MODEL_FAILED:
		api_error_set(e, 503, "model_failed", "model",
			      "the model \"%s\" could not be loaded: %s", name, m->error);
		break;
	case MODEL_LOST:
		api_error_set(e, 503, "model_lost", "model", "the model \"%s\" lost its chips: %s",
			      name, m->error);
		break;
	default:
		api_error_set(e, 503, "model_loading", "model", "the model \"%s\" is loading",
			      name);
		e->retry_after = 2;
		break;
	}
}
