// SPDX-License-Identifier: MIT
/* Loads and unloads of replicas: jobs for the loader, and their results. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <event2/event.h>

#include "balance.h"
#include "cache_room.h"
#include "clock.h"
#include "hostcopy.h"
#include "keeper.h"
#include "loader.h"
#include "log.h"
#include "models_internal.h"

#define RETRY_SECONDS	5
#define RESIDENCY_LOADS 4
/* A load may fail for lack of room that seemed to be there: another process took it. */
#define MAX_TRIES 3

/* Resources of a replica until the loader frees them. */
struct departure {
	struct departure *next;
	struct replica *replica;
	struct holding on_chip;
	struct hostcopy *copy;
	char case_dir[SOURCE_PATH];
	uint64_t weight_bytes;
	bool sleeps, forgets;
};

const char *replica_name(const struct replica *r, char buf[264])
{
	unsigned i = (unsigned)(r - r->model->replicas);

	snprintf(buf, 264, i ? "%.250s#%u" : "%.250s", model_name(r->model), i + 1);
	return buf;
}

unsigned replica_chip(const struct replica *r, unsigned rank)
{
	struct txda_device_info info = TXDA_INIT(struct txda_device_info);

	if (txda_device_info(txda_group_device(r->on_chip.group, rank), &info) < 0)
		return UINT_MAX;
	return info.index;
}

/* ---- unloads --------------------------------------------------------------------------------- */

/* Makes the loader free the contents of @holding, and the copy. */
static void depart(struct replica *r, const struct holding *holding, struct hostcopy *copy,
		   bool sleeps)
{
	struct models *t = r->model->table;
	struct departure *d;

	if (!holding->group && !copy)
		return;
	d = calloc(1, sizeof(*d));
	if (!d) {
		log_error("model %s: out of memory; its chip memory stays allocated",
			  model_name(r->model));
		return;
	}
	d->replica = r;
	d->on_chip = *holding;
	d->copy = copy;
	d->sleeps = sleeps;
	/* Weights that leave the chips because the daemon exits are kept for the next one. */
	d->forgets = !t->shutdown;
	memcpy(d->case_dir, r->model->found.case_dir, sizeof(d->case_dir));
	d->weight_bytes = r->model->found.plan.weight_bytes;
	*t->last_departure = d;
	t->last_departure = &d->next;
}

/* The replica holds nothing on its chips any more. */
static void leave_chips(struct replica *r, bool sleeps)
{
	struct engine_stats stats = {0};

	if (r->ready_event)
		event_free(r->ready_event);
	r->ready_event = NULL;
	if (r->on_chip.engine) {
		engine_stats(r->on_chip.engine, &stats);
		model_add_counters(&r->model->past, &stats);
	}
	depart(r, &r->on_chip, NULL, sleeps);
	r->on_chip = (struct holding){0};
}

void replica_take_out(struct replica *r, bool sleeps)
{
	sleeps = sleeps && r->on_chip.engine;
	leave_chips(r, sleeps);
	r->state = sleeps ? MODEL_ASLEEP : MODEL_UNLOADED;
}

/* Cancels the loaders' jobs for it. */
static void cancel_jobs(struct replica *r)
{
	for (unsigned i = 0; i < MODELS_LOADERS; i++) {
		struct load_job *job = loader_current(r->model->table->loaders[i]);

		if (job && job->kind != LOAD_FREE && job->replica == r)
			atomic_store(&job->cancel, true);
	}
}

void replica_call_off(struct replica *r, bool sleep)
{
	const struct holding none = {0};

	cancel_jobs(r);
	r->turn = 0;
	if (sleep && r->fallback == MODEL_ASLEEP) {
		r->state = MODEL_ASLEEP;
		return;
	}
	r->state = MODEL_UNLOADED;
	depart(r, &none, r->copy, false);
	r->copy = NULL;
}

void replica_free(struct replica *r)
{
	if (r->ready_event)
		event_free(r->ready_event);
	engine_free(r->on_chip.engine);
	txda_group_unref(r->on_chip.group);
	hostcopy_free(r->copy);
}

void models_free_departures(struct models *t)
{
	struct departure *d;

	while ((d = t->departures)) {
		t->departures = d->next;
		engine_free(d->on_chip.engine);
		txda_group_unref(d->on_chip.group);
		hostcopy_free(d->copy);
		free(d);
	}
	t->last_departure = &t->departures;
}

bool model_is_with_loader(const struct served_model *m)
{
	const struct models *t = m->table;

	for (const struct departure *d = t->departures; d; d = d->next)
		if (d->replica && d->replica->model == m)
			return true;
	for (unsigned i = 0; i < MODELS_LOADERS; i++) {
		const struct load_job *job = loader_current(t->loaders[i]);

		if (job && job->replica && job->replica->model == m)
			return true;
	}
	return false;
}

/* ---- failed loads ---------------------------------------------------------------------------- */

static void fail_load(struct replica *r, enum model_state state, const char *why)
{
	struct served_model *m = r->model;
	char name[264];

	if (state != MODEL_LOST) {
		snprintf(m->error, sizeof(m->error), "%s", why);
		m->metrics.load_failures++;
	}
	/* When the daemon exits, loads in progress are cancelled. */
	if (!m->table->shutdown)
		log_error("model %s: %s", replica_name(r, name), why);
	r->turn = 0;
	r->state = state;
	if (state == MODEL_LOST)
		r->retry_ns = clock_ns() + RETRY_SECONDS * NS_PER_S;
	model_settle(m);
}

static bool is_any_leaving(const struct models *t)
{
	for (unsigned i = 0; i < t->n; i++)
		if (t->all[i]->state == MODEL_DRAINING)
			return true;
	return t->departures;
}

/* A model that never worked is marked failed; one that lost its chips may get others. */
static void load_failed(struct replica *r, int error, const char *why)
{
	bool no_room = (error == -ENOSPC || error == -ENOMEM) && r->fallback != MODEL_LOST;

	if (!*why)
		why = strerror(-error);
	/*
	 * It stays in the queue: models_fit() is asked again, since it had counted on room that was
	 * not there.
	 */
	if (no_room && (is_any_leaving(r->model->table) || ++r->tries <= MAX_TRIES)) {
		r->retry_ns = clock_ns() + NS_PER_S;
		return;
	}
	fail_load(r, no_room && r->fallback == MODEL_FAILED ? MODEL_UNLOADED : r->fallback, why);
}

/* ---- room ------------------------------------------------------------------------------------ */

/*
 * Whether a model that is never idle may be evicted: others have waited long enough, and it has
 * been loaded for long enough. Then its new requests wait, and running ones are finished.
 */
static bool is_its_turn(const struct replica *r, const struct model_fit *fit)
{
	uint64_t now = clock_ns(),
		 turn = (uint64_t)r->model->table->options.config->load_timeout * NS_PER_S / 2;

	if (!fit->n_victims || now - r->seek_ns < turn)
		return false;
	for (unsigned i = 0; i < fit->n_victims; i++)
		if (now - fit->victims[i]->ready_ns < turn)
			return false;
	return true;
}

/*
 * Whether a model was loaded for long enough: RESIDENCY_LOADS times the duration of its load, so
 * that alternating requests for models cannot keep the chips busy with loading.
 */
static bool has_stayed(const struct served_model *m)
{
	uint64_t most = (uint64_t)m->table->options.config->load_timeout * NS_PER_S / 2,
		 stay = RESIDENCY_LOADS * m->replicas[0].load_ns;

	return clock_ns() - m->ready_ns >= (stay < most ? stay : most);
}

static bool may_go(const struct model_fit *fit)
{
	for (unsigned i = 0; i < fit->n_victims; i++)
		if (!has_stayed(fit->victims[i]))
			return false;
	return true;
}

static void evict(const struct replica *r, const struct model_fit *fit)
{
	char name[264];

	for (unsigned i = 0; i < fit->n_victims; i++) {
		if (fit->victims[i]->state != MODEL_READY)
			continue;
		log_info("model %s makes room for %s", model_name(fit->victims[i]),
			 replica_name(r, name));
		model_unload(fit->victims[i], false, MODEL_BY_EVICTION);
	}
}

/* No idle model makes room: decides whether to wait for models being unloaded, or for busy ones. */
static void wait_or_give_up(struct replica *r, const char *why)
{
	struct served_model *m = r->model;
	uint64_t limit = (uint64_t)m->table->options.config->load_timeout * NS_PER_S;
	bool leaving = is_any_leaving(m->table), in_time;
	struct model_fit fit;
	char err[512] = "";
	int error = models_fit(m, r, FIT_BUSY, &fit, err, sizeof(err));

	in_time = clock_ns() - r->seek_ns < limit;
	if (m->demanded ? (leaving || !error) && in_time : leaving) {
		snprintf(m->error, sizeof(m->error), "%s", why);
		if (!leaving && is_its_turn(r, &fit))
			evict(r, &fit);
		return;
	}
	/*
	 * At start, a model that does not fit even alone never will; one that lost its chips waits
	 * for them. Otherwise it may be requested again.
	 */
	fail_load(r,
		  r->copy		  ? MODEL_ASLEEP
		  : error && !m->demanded ? r->fallback
					  : MODEL_UNLOADED,
		  why);
}

/* ---- jobs for the loader --------------------------------------------------------------------- */

static void fill_engine_options(const struct replica *r, const struct model_fit *fit,
				struct engine_options *options)
{
	const struct config_engine *e = &r->model->config->engine;

	*options = (struct engine_options){
		.max_context = e->max_model_len,
		.max_num_seqs = e->max_num_seqs,
		.max_num_batched_tokens = e->max_num_batched_tokens,
		.max_stall_ms = e->max_stall_ms,
		.max_decode_ms = e->max_decode_ms,
		.fair_time = e->fair_time,
		.step_seconds = e->step_timeout,
		.max_queue = r->model->table->options.config->max_queue,
		.prefix_caching = e->prefix_caching,
		.speculation = e->speculate_ngram ? ENGINE_SPECULATE_NGRAM : ENGINE_SPECULATE_NOT,
		.speculative_tokens = e->speculative_tokens,
		.speculative_max_seqs = e->speculative_max_seqs,
	};
	fit_kv(r, fit, options);
}

/* Loads it on the group found. */
static void start_load(struct replica *r, const struct model_fit *fit)
{
	struct served_model *m = r->model;
	const struct fit_group *g = &fit->groups[fit->best];
	struct load_job *job = loader_job(m->table->loaders[0]);
	int error = fit_group_new(m, fit->tp ? fit->tp : 1, fit->best, &job->on_chip.group,
				  job->err, sizeof(job->err));

	if (error) {
		load_failed(r, error, job->err);
		return;
	}
	job->kind = LOAD_ENGINE;
	job->replica = r;
	job->spec = m->spec;
	job->found = m->found;
	fill_engine_options(r, fit, &job->engine);
	/* Kept weights of others stay if there is room for both. */
	job->spare_need = g->spare_bytes && g->need_bytes > g->bare_bytes ? g->need_bytes : 0;
	job->wants_text = model_wants_text(m);
	job->copy = r->copy;
	r->copy = NULL;
	loader_start(m->table->loaders[0]);
}

/* Loads a planned replica, makes room for it, lets it wait, or fails it. */
static void seek_room(struct replica *r)
{
	struct served_model *m = r->model;
	struct model_fit fit;
	char err[512] = "";
	int error = models_fit(m, r, m->demanded ? FIT_IDLE : FIT_NOBODY, &fit, err, sizeof(err));

	if (fit.fits)
		start_load(r, &fit);
	else if (!error && !may_go(&fit))
		; /* models_check() asks again */
	else if (!error)
		evict(r, &fit);
	else if (error == -ENOSPC)
		wait_or_give_up(r, err);
	else
		load_failed(r, error, err);
}

/*
 * Replicas compute with the same weights, also if the checkpoint has changed since the first of
 * them was loaded: its plan is that of the others.
 */
static bool is_planned(const struct replica *r)
{
	const struct served_model *m = r->model;

	if (!m->found.planned || r->again)
		return false;
	for (unsigned i = 0; i < m->n_replicas; i++)
		if (m->replicas[i].on_chip.engine)
			return true;
	return false;
}

/* Its plan took @ns. */
static void begin_loading(struct replica *r, uint64_t ns)
{
	r->state = MODEL_LOADING;
	r->seek_ns = clock_ns();
	r->load_ns = ns;
	model_settle(r->model);
}

static void start_plan(struct loader *l, struct replica *r)
{
	struct load_job *job = loader_job(l);

	job->kind = LOAD_PLAN;
	job->replica = r;
	job->spec = r->model->spec;
	job->again = r->again;
	job->cache_releases = r->model->table->cache_releases;
	loader_start(l);
}

static void start_departure(struct models *t)
{
	struct load_job *job = loader_job(t->loaders[0]);
	struct departure *d = t->departures;

	t->departures = d->next;
	if (!t->departures)
		t->last_departure = &t->departures;
	job->kind = LOAD_FREE;
	job->replica = d->replica;
	job->on_chip = d->on_chip;
	job->copy = d->copy;
	job->sleeps = d->sleeps;
	job->forgets = d->forgets;
	memcpy(job->found.case_dir, d->case_dir, sizeof(d->case_dir));
	job->found.plan.weight_bytes = d->weight_bytes;
	free(d);
	loader_start(t->loaders[0]);
}

/* Gives the first loader what comes before loads: what must be freed, then kept weights. */
static void start_chore(struct models *t)
{
	if (loader_current(t->loaders[0]))
		return;
	if (t->departures) {
		start_departure(t);
		return;
	}
	if ((!t->drops_kept && !t->looks_kept) || t->shutdown)
		return;
	loader_job(t->loaders[0])->kind = t->drops_kept ? LOAD_KEPT : LOAD_LOOK;
	if (t->drops_kept)
		t->drops_kept = false;
	else
		t->looks_kept = false;
	loader_start(t->loaders[0]);
}

/* Directories that were not found yet have an owner of their own. */
static uid_t owner_of(const struct served_model *m)
{
	return *m->found.path ? m->found.owner : (uid_t)-1;
}

/* Whether a model of the same owner is being planned or loaded. */
static bool is_owner_busy(const struct served_model *m)
{
	for (unsigned i = 0; i < MODELS_LOADERS; i++) {
		const struct load_job *job = loader_current(m->table->loaders[i]);

		if (job && (job->kind == LOAD_PLAN || job->kind == LOAD_ENGINE) &&
		    owner_of(job->replica->model) == owner_of(m))
			return true;
	}
	return false;
}

static struct loader *idle_planner(const struct models *t)
{
	for (unsigned i = 1; i < MODELS_LOADERS; i++)
		if (!loader_current(t->loaders[i]))
			return t->loaders[i];
	return NULL;
}

/* The next replica in the queue after @turn that can proceed now, or NULL. */
static struct replica *next_queued(const struct models *t, uint64_t turn)
{
	uint64_t now = clock_ns();
	struct replica *next = NULL;

	for (unsigned i = 0; i < t->n; i++)
		for (unsigned k = 0; k < t->all[i]->n_replicas; k++) {
			struct replica *r = &t->all[i]->replicas[k];

			if (r->turn > turn && now >= r->retry_ns && (!next || r->turn < next->turn))
				next = r;
		}
	return next;
}

void models_pump(struct models *t)
{
	struct replica *r;
	uint64_t turn = 0;

	for (;;) {
		struct loader *planner = idle_planner(t);

		start_chore(t);
		r = t->shutdown ? NULL : next_queued(t, turn);
		if (!r)
			break;
		turn = r->turn;
		if (is_owner_busy(r->model))
			continue;
		if (r->state == MODEL_COMPILING && is_planned(r))
			begin_loading(r, 0);
		if (r->state != MODEL_COMPILING && !loader_current(t->loaders[0]))
			seek_room(r);
		else if (r->state == MODEL_COMPILING && planner)
			start_plan(planner, r);
	}
	for (unsigned i = 0; i < t->n && !t->shutdown; i++) {
		struct loader *planner = idle_planner(t);

		if (planner && t->all[i]->plan_wanted && !is_owner_busy(t->all[i]))
			start_plan(planner, t->all[i]->replicas);
	}
}

/* ---- results --------------------------------------------------------------------------------- */

static void on_engine_ready(evutil_socket_t fd, short what, void *arg)
{
	struct replica *replica = arg;
	struct engine_request *r, *next;

	(void)fd;
	(void)what;
	/* The last callback may unload the replica, so the list is detached first. */
	for (r = engine_take_ready(replica->on_chip.engine); r; r = next) {
		next = r->ready_next;
		if (r->client)
			((struct client *)r->client)->news(r->client);
		engine_request_unref(r);
	}
	model_check(replica->model);
}

static void take_over(struct replica *r, struct load_job *job)
{
	struct served_model *m = r->model;

	r->on_chip = job->on_chip;
	r->ready_event = event_new(m->table->options.base, engine_ready_fd(r->on_chip.engine),
				   EV_READ | EV_PERSIST, on_engine_ready, r);
	if (!r->ready_event || event_add(r->ready_event, NULL) ||
	    (job->text && model_replace_text(m, job->text, &job->found))) {
		leave_chips(r, false);
		m->table->options.text->free(job->text);
		load_failed(r, -EIO, "out of memory");
		return;
	}
	r->state = MODEL_READY;
	r->turn = 0;
	r->tries = 0;
	r->load_ns += job->ns;
	m->limits = r->on_chip.limits;
	if (m->balance)
		balance_forget(m->balance, (unsigned)(r - m->replicas));
	model_set_context(m);
	model_settle(m);
}

/* Weights in host memory are needed only by a replica that sleeps, or whose load may fail. */
static void take_copy(struct replica *r, struct hostcopy *copy)
{
	const struct holding none = {0};
	bool loads = r->state == MODEL_COMPILING || r->state == MODEL_LOADING;

	if (copy && !r->copy &&
	    (r->state == MODEL_ASLEEP || (loads && r->fallback == MODEL_ASLEEP)))
		r->copy = copy;
	else
		depart(r, &none, copy, false);
}

/* Weights from the cache that do not have their checksum are compiled again, once. */
static bool compile_again(struct replica *r, const struct load_job *job)
{
	char name[264];

	if (job->error != -EBADMSG || r->again ||
	    !(job->found.compiles || job->found.draft_compiles))
		return false;
	log_warning("model %s: %s; it is compiled again", replica_name(r, name), job->err);
	model_release_cache(r->model);
	r->again = true;
	r->state = MODEL_COMPILING;
	model_settle(r->model);
	return true;
}

static void on_loaded(struct models *t, struct load_job *job)
{
	struct replica *r = job->replica;
	bool wanted = r->state == MODEL_LOADING && !atomic_load(&job->cancel) && !t->shutdown;

	take_copy(r, job->copy);
	if (!wanted) {
		depart(r, &job->on_chip, NULL, false);
		t->options.text->free(job->text);
	} else if (job->error && compile_again(r, job)) {
		; /* models_pump() plans it */
	} else if (job->error) {
		/*
		 * If chips failed during a load they may return, or others appear: it is tried
		 * again.
		 */
		if (job->error == -ENODEV && r->fallback == MODEL_FAILED) {
			snprintf(r->model->error, sizeof(r->model->error), "%s", job->err);
			r->fallback = MODEL_LOST;
		}
		load_failed(r, job->error, job->err);
	} else {
		take_over(r, job);
	}
}

static bool is_any_planned(const struct models *t)
{
	bool any = false;

	for (unsigned i = 1; i < MODELS_LOADERS; i++)
		any = any || loader_current(t->loaders[i]);
	return any;
}

/*
 * The cache has no room for @r's compiled form: releases the least recently used idle model that
 * holds an entry, once that has stayed long enough. Returns whether planning is worth another
 * attempt.
 */
static bool make_cache_room(struct replica *r, const struct load_job *job)
{
	const struct served_model *m = r->model;
	struct models *t = m->table;
	uint64_t limit = (uint64_t)t->options.config->load_timeout * NS_PER_S;
	struct served_model *oldest = NULL;
	bool leaving = is_any_leaving(t), wait;
	char name[264];

	if (!m->demanded)
		return leaving;
	/* Who leaves, or what was released since this one looked for room, may be enough. */
	if (leaving || t->cache_releases != job->cache_releases)
		return clock_ns() - m->demand_ns < limit;
	/* A plan holds entries that its model gets, or releases, when it is done. */
	wait = is_any_planned(t);
	for (unsigned i = 0; i < t->n; i++) {
		struct served_model *other = t->all[i];
		bool idle = other->state == MODEL_ASLEEP || model_is_idle(other);

		if (other == m || !(other->use || other->draft_use) || other->pinned)
			continue;
		if (!idle)
			wait = true;
		else if (!oldest || other->used_ns < oldest->used_ns)
			oldest = other;
	}
	/* As with room on the chips: nobody goes in place of one that has not stayed long enough. */
	if (!oldest || !has_stayed(oldest))
		return (oldest || wait) && clock_ns() - m->demand_ns < limit;
	log_info("model %s makes room in the cache for %s", model_name(oldest),
		 replica_name(r, name));
	model_unload(oldest, false, MODEL_BY_EVICTION);
	return true;
}

static void plan_failed(struct replica *r, const struct load_job *job, const char *why)
{
	bool no_room = job->error == -ENOSPC;

	if (no_room && make_cache_room(r, job)) {
		snprintf(r->model->error, sizeof(r->model->error), "%s", why);
		r->retry_ns = clock_ns() + NS_PER_S;
		return;
	}
	fail_load(r, no_room && r->fallback == MODEL_FAILED ? MODEL_UNLOADED : r->fallback, why);
}

/* The entries found by the plan are held instead of the previous ones. */
static void take_cache_uses(struct served_model *m, struct load_job *job)
{
	model_release_cache(m);
	m->use = job->use;
	m->draft_use = job->draft_use;
	job->use = job->draft_use = NULL;
}

static void on_planned(struct load_job *job)
{
	struct replica *r = job->replica;
	struct served_model *m = r->model;
	const char *why = *job->err ? job->err : strerror(-job->error);

	if (atomic_load(&job->cancel))
		return; /* loads that are still wanted are started again */
	if (!job->error) {
		m->table->looks_kept = m->table->options.keeper;
		m->found = job->found;
		if (m->state != MODEL_UNLOADED && m->state != MODEL_FAILED)
			take_cache_uses(m, job);
	}
	if (m->plan_wanted && r == m->replicas)
		snprintf(m->plan_error, sizeof(m->plan_error), "%s", job->error ? why : "");
	m->plan_wanted = m->plan_wanted && r != m->replicas;
	if (r->state != MODEL_COMPILING)
		return;
	if (job->error) {
		plan_failed(r, job, why);
		return;
	}
	begin_loading(r, job->ns);
}

static void take_job(struct models *t, struct loader *l)
{
	struct load_job *job = loader_take(l), done;

	if (!job)
		return;
	done = *job;
	switch (done.kind) {
	case LOAD_PLAN:
		on_planned(&done);
		cache_release(done.use);
		cache_release(done.draft_use);
		t->cache_releases++;
		break;
	case LOAD_ENGINE: on_loaded(t, &done); break;
	case LOAD_FREE: take_copy(done.replica, done.copy); break;
	case LOAD_KEPT:
	case LOAD_LOOK: break;
	}
}

void models_take_jobs(struct models *t)
{
	for (unsigned i = 0; i < MODELS_LOADERS; i++)
		if (t->loaders[i])
			take_job(t, t->loaders[i]);
}

/* ---- failing chips --------------------------------------------------------------------------- */

void replica_check(struct replica *r)
{
	struct engine_stats stats = {0};
	char name[264];

	if (r->state == MODEL_READY) {
		engine_stats(r->on_chip.engine, &stats);
		if (stats.lost) {
			r->state = MODEL_LOST;
			snprintf(r->model->error, sizeof(r->model->error), "%s",
				 stats.error[0] ? stats.error : "its chips failed");
			log_error("model %s is lost: %s", replica_name(r, name), r->model->error);
		}
	}
	if (r->state == MODEL_LOST && r->on_chip.engine && !r->in_flight) {
		leave_chips(r, false);
		r->retry_ns = clock_ns() + RETRY_SECONDS * NS_PER_S;
	}
}
