// SPDX-License-Identifier: MIT
/* Which models stay on the chips: eviction for others, idling, the wait for room. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "clock.h"
#include "exchange.h"
#include "log.h"
#include "models_internal.h"
#include "residency.h"
#include "server_internal.h"

#define NS_PER_S 1000000000ull
/* A load may find no room where the plan saw it: another process took it. */
#define MAX_TRIES 3

static bool is_idle(const struct served_model *m)
{
	return m->state == MODEL_READY && !m->expected && !model_in_flight(m);
}

static int by_use(const void *a, const void *b)
{
	const struct served_model *x = *(struct served_model *const *)a,
				  *y = *(struct served_model *const *)b;

	if (x->used_ns != y->used_ns)
		return x->used_ns < y->used_ns ? -1 : 1;
	return 0;
}

/* Those that may go for @m, longest idle first; with @busy also those that run requests. */
static unsigned list_evictable(const struct served_model *m, bool busy,
			       struct served_model **models)
{
	struct server *s = m->server;
	unsigned n = 0;

	for (unsigned i = 0; i < s->n_models; i++) {
		struct served_model *other = s->models[i];

		if (other != m && !other->pinned &&
		    (is_idle(other) || (busy && other->state != MODEL_UNLOADED)))
			models[n++] = other;
	}
	qsort(models, n, sizeof(struct served_model *), by_use);
	return n;
}

/* The plan for a replica if those may go. @victims: what the plan's victims refer to. */
static int plan_with(const struct replica *r, bool busy, struct residency_plan *plan,
		     struct served_model **victims, char *err, size_t errlen)
{
	struct served_model *models[SERVER_MAX_MODELS];
	const char *names[SERVER_MAX_MODELS * CONFIG_MAX_REPLICAS];
	unsigned n = list_evictable(r->model, busy, models), n_names = 0;

	for (unsigned i = 0; i < n; i++) {
		for (unsigned k = 0; k < models[i]->n_replicas; k++) {
			victims[n_names] = models[i];
			names[n_names++] = models[i]->replicas[k].name;
		}
	}
	return residency_make_room(r->model->server->residency, r->name, names, n_names, plan, err,
				   errlen);
}

int model_plan(struct served_model *m, struct residency_plan *ret, const char **ret_names,
	       char *err, size_t errlen)
{
	struct served_model *victims[SERVER_MAX_MODELS * CONFIG_MAX_REPLICAS];
	const struct replica *r = &m->replicas[0];
	int error;

	/* Of replicas, one that has no place yet. */
	for (unsigned i = 0; i < m->n_replicas; i++)
		if (!m->replicas[i].engine) {
			r = &m->replicas[i];
			break;
		}
	error = plan_with(r, false, ret, victims, err, errlen);
	if (error && error != -ENOSPC && error != -EIO)
		return error;
	for (unsigned i = 0; i < ret->n_victims; i++)
		ret_names[i] = victims[ret->victims[i]]->config->names[0];
	return error;
}

/*
 * How long a model that always has requests keeps others waiting, and how long it stays at least
 * once it is there. Then its new requests wait, and those that run end.
 */
static uint64_t turn_ns(const struct server *s)
{
	return (uint64_t)s->config->load_timeout * NS_PER_S / 2;
}

/* Whether the load has waited for long enough, and its victims were there for as long. */
static bool is_its_turn(const struct served_model *m, const struct residency_plan *plan,
			struct served_model **victims)
{
	uint64_t now = clock_ns(), turn = turn_ns(m->server);

	if (!plan->n_victims || now - m->demand_ns < turn)
		return false;
	for (unsigned i = 0; i < plan->n_victims; i++)
		if (now - victims[plan->victims[i]]->ready_ns < turn)
			return false;
	return true;
}

/* Lets the plan's victims go, each model once. */
static void evict(const struct replica *r, const struct residency_plan *plan,
		  struct served_model **victims)
{
	for (unsigned i = 0; i < plan->n_victims; i++) {
		struct served_model *victim = victims[plan->victims[i]];

		if (victim->state != MODEL_READY)
			continue;
		log_info("model %s makes room for %s", victim->config->names[0], r->name);
		model_unload(victim, false, MODEL_BY_EVICTION);
	}
}

/* Nobody idle makes room: is it worth waiting for busy ones? */
static void wait_or_give_up(struct replica *r, const char *why)
{
	struct served_model *victims[SERVER_MAX_MODELS * CONFIG_MAX_REPLICAS], *m = r->model;
	uint64_t limit = (uint64_t)m->server->config->load_timeout * NS_PER_S;
	struct residency_plan plan;
	char err[512] = "";
	int error = plan_with(r, true, &plan, victims, err, sizeof(err));

	if (!error && m->demanded && clock_ns() - m->demand_ns < limit) {
		r->state = REPLICA_NO_ROOM;
		snprintf(m->error, sizeof(m->error), "%s", why);
		if (is_its_turn(m, &plan, victims))
			evict(r, &plan, victims);
		return;
	}
	/* At the start, what does not fit even alone never will. Else it may be asked for again. */
	replica_give_up(r, error && !m->demanded ? MODEL_FAILED : MODEL_UNLOADED, why);
}

static bool is_any_leaving(const struct server *s)
{
	for (unsigned i = 0; i < s->n_models; i++)
		if (s->models[i]->state == MODEL_UNLOADING)
			return true;
	return false;
}

void room_seek(struct replica *r, const char *why)
{
	struct served_model *victims[SERVER_MAX_MODELS * CONFIG_MAX_REPLICAS], *m = r->model;
	struct residency_plan plan;
	char err[512] = "";
	int error;

	r->state = REPLICA_NO_ROOM;
	if (!m->demanded) {
		/* It lets nobody go, but it waits for those that go anyway, as the one before it. */
		if (!is_any_leaving(m->server))
			wait_or_give_up(r, why);
		return;
	}
	error = plan_with(r, false, &plan, victims, err, sizeof(err));
	if (!error && plan.n_victims) {
		evict(r, &plan, victims); /* room_changed() follows */
	} else if (!error && plan.fits && r->tries < MAX_TRIES) {
		r->tries++;
		replica_acquire(r);
	} else if (!plan.leaving || (error && error != -ENOSPC)) {
		wait_or_give_up(r, error ? err : why);
	}
}

void room_changed(struct server *s)
{
	for (unsigned i = 0; i < s->n_models; i++) {
		struct served_model *m = s->models[i];

		/* The loader gives the memory back before it begins the next load. */
		for (unsigned k = 0; k < m->n_replicas; k++)
			if (m->replicas[k].state == REPLICA_NO_ROOM)
				replica_acquire(&m->replicas[k]);
	}
}

/* ---- once a second --------------------------------------------------------------------------- */

static void check_idle(struct served_model *m, uint64_t now)
{
	if (!is_idle(m) || m->pinned || m->keep_alive < 0 || m->n_parked ||
	    now - m->used_ns < (uint64_t)m->keep_alive * NS_PER_S)
		return;
	log_info("model %s was not used for %lld s", m->config->names[0], (long long)m->keep_alive);
	model_unload(m, m->config->sleep_when_idle, MODEL_BY_IDLING);
}

/* Requests do not wait for ever, nor for what will not come any more. */
static void check_parked(struct served_model *m, uint64_t now)
{
	struct exchange *next;
	uint64_t limit = (uint64_t)m->server->config->load_timeout * NS_PER_S;
	bool ends = m->server->draining;
	struct api_error e;

	for (struct exchange *x = m->parked; x; x = next) {
		next = x->park_next;
		if (!x->deadline_ns || now < x->deadline_ns)
			continue;
		model_unpark(m, x);
		exchange_end_late(x);
	}
	while (m->parked && (ends || now - m->parked->parked_ns >= limit)) {
		struct exchange *x = m->parked;

		model_unpark(m, x);
		if (ends)
			api_error_set(&e, 503, "shutting_down", NULL,
				      "the daemon is shutting down");
		else
			api_error_set(&e, 503, "model_loading", "model",
				      "the model \"%s\" was not loaded within %u s",
				      m->config->names[0], m->server->config->load_timeout);
		e.retry_after = 10;
		exchange_fail(x, &e);
		exchange_free_if_over(x);
	}
}

static bool is_over(const struct served_model *m)
{
	return m->retired && !m->users && !m->load.in_pool && m->state == MODEL_UNLOADED;
}

void models_check(struct server *s)
{
	uint64_t now = clock_ns();

	for (unsigned i = 0; i < s->n_models; i++) {
		struct served_model *m = s->models[i];

		model_check(m);
		check_parked(m, now);
		for (unsigned k = 0; k < m->n_replicas && !s->draining; k++)
			if (m->replicas[k].state == REPLICA_NO_ROOM)
				room_seek(&m->replicas[k], "other models are in the way");
		check_idle(m, now);
	}
	for (unsigned i = 0; i < s->n_models;) {
		if (!is_over(s->models[i])) {
			i++;
			continue;
		}
		log_info("model %s is no longer served", s->models[i]->config->names[0]);
		model_free(s->models[i]);
		s->n_models--;
		for (unsigned k = i; k < s->n_models; k++)
			s->models[k] = s->models[k + 1];
	}
}
