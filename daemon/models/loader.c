// SPDX-License-Identifier: MIT
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache.h"
#include "clock.h"
#include "hostcopy.h"
#include "residency_internal.h"

/* ---- one load, not locked -------------------------------------------------------------------- */

static void set_phase(struct residency_model *m, const char *phase)
{
	pthread_mutex_lock(&m->residency->lock);
	snprintf(m->phase, sizeof(m->phase), "%s", phase);
	m->progress_done = m->progress_total = 0;
	pthread_mutex_unlock(&m->residency->lock);
}

static void on_progress(void *arg, uint64_t done, uint64_t total)
{
	struct residency_model *m = arg;

	pthread_mutex_lock(&m->residency->lock);
	m->progress_done = done;
	m->progress_total = total;
	pthread_mutex_unlock(&m->residency->lock);
}

/* Compiles a checkpoint, unless the cache has it. */
static int compile(struct residency_model *m, const char *path, unsigned tp, const char *weights,
		   const char *output, bool again, char *case_dir, size_t len, char *err,
		   size_t errlen)
{
	struct residency *r = m->residency;
	const struct cache_source source = {
		.compiler = r->compiler,
		.path = path,
		.tp = tp,
		.weights = weights,
		.output = output,
		/* A draft's cache is small as it is. */
		.kv_int8 = m->options.kv_int8 && !strcmp(path, m->path) &&
			   (!output || strcmp(output, "--mtp")),
		.whole_experts = m->options.whole_experts,
	};
	const struct child_options child = {
		.seconds = r->options.compile_seconds,
		.memory = r->options.compile_memory,
		.stop = &m->cancel,
		.progress = on_progress,
		.progress_arg = m,
	};

	set_phase(m, "compiling");
	return cache_get(r->cache_dir, &source, again, &child, case_dir, len, err, errlen);
}

/*
 * Finds the case dir and plans its memory. What is spoilt in the cache is compiled again. @ret has
 * the case dir, too, if it was compiled.
 */
static int plan_one(struct residency_model *m, const char *path, unsigned tp, const char *weights,
		    const char *output, struct source *ret, struct txda_model_plan *ret_plan,
		    char *err, size_t errlen)
{
	struct txda_context *context = m->residency->context;
	int error = source_find(path, ret, err, errlen);
	bool compiles = !error && ret->kind == SOURCE_CHECKPOINT;

	if (error)
		return error;
	*ret_plan = TXDA_INIT(struct txda_model_plan);
	for (unsigned attempt = 0; attempt < 2; attempt++) {
		if (compiles)
			error = compile(m, path, tp, weights, output, attempt > 0, ret->case_dir,
					sizeof(ret->case_dir), err, errlen);
		if (error)
			return error;
		error = txda_model_plan(context, ret->case_dir, ret_plan);
		if (!error || !compiles)
			break;
	}
	if (error)
		snprintf(err, errlen, "%s", txda_context_error(context));
	return error;
}

/* The plan of the model itself. */
static int plan_model(struct residency_model *m, struct source *ret,
		      struct txda_model_plan *ret_plan, char *err, size_t errlen)
{
	int error = plan_one(m, m->path, m->wanted_tp, *m->weights ? m->weights : NULL,
			     m->draft_mtp ? "--states" : NULL, ret, ret_plan, err, errlen);

	if (error || ret->kind == SOURCE_CHECKPOINT)
		return error;
	return source_fits(m, ret, ret_plan, err, errlen);
}

/* Makes the exact plan of a model's memory, its draft included. */
static int plan(struct residency_model *m, char *err, size_t errlen)
{
	struct residency *r = m->residency;
	struct source source, draft_source = {0};
	struct txda_model_plan p, draft = {0};
	int error = plan_model(m, &source, &p, err, errlen);

	if (!error && *m->draft_path)
		error = plan_one(m, m->draft_path, p.tp,
				 m->draft_mtp && *m->weights ? m->weights : NULL,
				 m->draft_mtp ? "--mtp" : NULL, &draft_source, &draft, err, errlen);
	if (!error && *m->draft_path && draft.tp != p.tp) {
		snprintf(err, errlen, "the draft model %.400s is for %u chips, the model for %u",
			 m->draft_path, draft.tp, p.tp);
		error = -EINVAL;
	}
	if (error)
		return error;
	pthread_mutex_lock(&r->lock);
	m->plan = p;
	m->planned = true;
	m->draft_plan = draft;
	m->facts = source.facts;
	snprintf(m->case_dir, sizeof(m->case_dir), "%s", source.case_dir);
	snprintf(m->text_dir, sizeof(m->text_dir), "%s", source.text_dir);
	snprintf(m->draft_case_dir, sizeof(m->draft_case_dir), "%s", draft_source.case_dir);
	pthread_mutex_unlock(&r->lock);
	return 0;
}

/* ---- weights that outlive the daemon --------------------------------------------------------- */

/* Has the weights of one rank kept; @ret_imported: they were there before. */
static void keep_one(struct residency_model *m, struct engine *engine, struct txda_group *group,
		     bool draft, unsigned rank, bool *ret_imported)
{
	struct txda_weights_info info = TXDA_INIT(struct txda_weights_info);
	struct keeper_weights w = {
		.source = draft ? m->draft_path : m->path,
		.case_dir = draft ? m->draft_case_dir : m->case_dir,
		.rank = rank,
		.tp = txda_group_size(group),
		.device = txda_group_device(group, rank),
	};

	if (engine_weights(engine, draft, rank, &w.weights))
		return;
	if (txda_weights_info(w.weights, &info) < 0 || !info.imported)
		*ret_imported = false;
	if (m->n_kept < MAX_KEPT &&
	    !keeper_keep(m->residency->options.keeper, &w, &m->kept[m->n_kept]))
		m->n_kept++;
	txda_weights_unref(w.weights);
}

/* Of a model that was loaded, before anybody gets it. */
static void keep_weights(struct residency_model *m, struct engine *engine, struct txda_group *group)
{
	bool imported = true;

	m->adopted = false;
	if (!m->residency->options.keeper)
		return;
	for (unsigned r = 0; r < txda_group_size(group); r++) {
		keep_one(m, engine, group, false, r, &imported);
		if (*m->draft_path)
			keep_one(m, engine, group, true, r, &imported);
	}
	m->adopted = imported && m->n_kept;
}

/* They leave the chips for good. */
static void forget_weights(struct residency_model *m)
{
	while (m->n_kept)
		keeper_drop(m->residency->options.keeper, m->kept[--m->n_kept]);
}

/* ---- the load -------------------------------------------------------------------------------- */

static bool is_for_plan(struct residency_model *m)
{
	bool only;

	pthread_mutex_lock(&m->residency->lock);
	only = m->plan_only;
	pthread_mutex_unlock(&m->residency->lock);
	return only;
}

/* No engine, and no error: only the plan was wanted. */
static int load(struct residency_model *m, struct txda_group **ret_group,
		struct engine **ret_engine, char *err, size_t errlen)
{
	struct residency *r = m->residency;
	struct engine_options options = m->options.engine;
	struct txda_group *group;
	int error = plan(m, err, errlen);

	if (!error && is_for_plan(m))
		return 0;
	if (!error)
		error = place_model(m, &group, &options, err, errlen);
	if (error)
		return error;
	set_phase(m, "loading");
	options.case_dir = m->case_dir;
	if (*m->draft_path) {
		options.speculation = ENGINE_SPECULATE_MODEL;
		options.draft_case_dir = m->draft_case_dir;
	}
	options.context = r->context;
	options.keep_weights = r->options.keeper;
	options.load_progress = on_progress;
	options.load_progress_arg = m;
	error = engine_new(group, &options, ret_engine, err, errlen);
	if (error) {
		txda_group_unref(group);
		return error;
	}
	keep_weights(m, *ret_engine, group);
	*ret_group = group;
	return 0;
}

/* ---- the thread, locked between jobs --------------------------------------------------------- */

struct residency_model *model_leaving(struct residency *r)
{
	for (struct residency_model *m = r->models; m; m = m->next)
		if (m->engine && !m->holders && (m->state == RESIDENCY_DRAINING || m->load_turn))
			return m;
	return NULL;
}

static void free_engine(struct residency_model *m)
{
	struct residency *r = m->residency;
	struct engine *engine = m->engine;
	struct txda_group *group = m->group;
	struct hostcopy *copy = NULL;
	bool sleeps = m->sleeps && m->state == RESIDENCY_DRAINING && !m->removed;
	/* What the daemon's own end takes off the chips is for the next one. */
	bool forgets = m->forgets || !r->shutdown, awaits = !r->shutdown && r->options.keeper;

	m->engine = NULL;
	m->group = NULL;
	m->sleeps = m->forgets = false;
	r->loading = m;
	r->freeing = true;
	pthread_mutex_unlock(&r->lock);
	if (sleeps)
		hostcopy_new(m->case_dir, m->plan.tp, &copy);
	if (forgets)
		forget_weights(m);
	engine_free(engine);
	txda_group_unref(group);
	/* Somebody may be waiting for the room. */
	if (awaits)
		keeper_await(r->options.keeper);
	pthread_mutex_lock(&r->lock);
	r->loading = NULL;
	r->freeing = false;
	/* It may have been unloaded, or asked for, meanwhile. */
	if (m->state != RESIDENCY_DRAINING || m->removed) {
		hostcopy_free(copy);
		return;
	}
	m->copy = copy;
	m->state = copy ? RESIDENCY_ASLEEP : RESIDENCY_PLANNED;
}

/* The load that was asked for first. */
static struct residency_model *find_queued(struct residency *r)
{
	struct residency_model *first = NULL;

	for (struct residency_model *m = r->models; m; m = m->next)
		if (m->load_turn && !m->engine && (!first || m->load_turn < first->load_turn))
			first = m;
	return first;
}

/* Takes the engine over, or ends the waits with an error. */
static void finish_load(struct residency_model *m, int error, const char *err,
			struct engine *engine, struct txda_group *group)
{
	m->phase[0] = '\0';
	if (error || !engine) {
		snprintf(m->error, sizeof(m->error), "%s", err);
		m->state = m->copy	? RESIDENCY_ASLEEP
			   : m->planned ? RESIDENCY_PLANNED
					: RESIDENCY_COLD;
	} else {
		m->error[0] = '\0';
		m->engine = engine;
		m->group = group;
		engine_limits(engine, &m->limits);
		m->state = RESIDENCY_RESIDENT;
		hostcopy_free(m->copy);
		m->copy = NULL;
	}
	if (!error && m->residency->shutdown) {
		if (engine) {
			engine_drain(engine);
			m->state = RESIDENCY_DRAINING;
		}
		error = -ESHUTDOWN;
		err = "the daemon is shutting down";
	}
	model_tell(m, error, err);
}

static void load_model(struct residency_model *m)
{
	struct residency *r = m->residency;
	struct engine *engine = NULL;
	struct txda_group *group = NULL;
	char err[MAX_TEXT] = "";
	uint64_t start = clock_ns();
	int error;

	m->load_turn = 0;
	r->loading = m;
	pthread_mutex_unlock(&r->lock);
	error = load(m, &group, &engine, err, sizeof(err));
	pthread_mutex_lock(&r->lock);
	if (atomic_load(&m->cancel) && !error && !r->shutdown) {
		pthread_mutex_unlock(&r->lock);
		forget_weights(m);
		engine_free(engine);
		txda_group_unref(group);
		pthread_mutex_lock(&r->lock);
		error = -ECANCELED;
		snprintf(err, sizeof(err), "the load was called off");
	}
	r->loading = NULL;
	m->load_ns = clock_ns() - start;
	atomic_store(&m->cancel, false);
	/* Called off and asked for again: its turn comes. */
	if (m->load_turn)
		return;
	/* Asked for while the plan was made. */
	if (!error && !engine && !m->plan_only && !r->shutdown) {
		m->load_turn = ++r->turns;
		return;
	}
	finish_load(m, error, err, engine, group);
}

/* Models that were taken out of the table and are not used any more. */
static void free_removed(struct residency *r)
{
	struct residency_model **link = &r->models, *m;

	while ((m = *link)) {
		if (!m->removed || m->engine || m->holders || m->load_turn || m->waiters.first ||
		    waiters_have(&r->done, m)) {
			link = &m->next;
			continue;
		}
		*link = m->next;
		if (r->last_model == &m->next)
			r->last_model = link;
		hostcopy_free(m->copy);
		free(m);
	}
}

void *loader_main(void *arg)
{
	struct residency *r = arg;

	pthread_setname_np(pthread_self(), "txda-loader");
	pthread_mutex_lock(&r->lock);
	while (!r->ending) {
		struct residency_model *m = model_leaving(r);

		if (m) {
			free_engine(m);
			continue;
		}
		free_removed(r);
		m = find_queued(r);
		if (m)
			load_model(m);
		else
			pthread_cond_wait(&r->work, &r->lock);
	}
	pthread_mutex_unlock(&r->lock);
	return NULL;
}
