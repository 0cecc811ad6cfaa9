// SPDX-License-Identifier: MIT
#include "residency.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "cache_private.h"
#include "cache.h"
#include "hostcopy.h"
#include "residency_internal.h"

const char *residency_state_name(enum residency_state state)
{
	static const char *const names[] = {"cold",	"planned", "loading", "resident",
					    "draining", "lost",	   "asleep"};

	return (unsigned)state < sizeof(names) / sizeof(names[0]) ? names[state] : "unknown";
}

/* ---- waiters --------------------------------------------------------------------------------- */

void waiters_init(struct waiter_list *list)
{
	list->first = NULL;
	list->last = &list->first;
}

void waiters_add(struct waiter_list *list, struct waiter *w)
{
	w->next = NULL;
	*list->last = w;
	list->last = &w->next;
}

bool waiters_have(const struct waiter_list *list, const struct residency_model *m)
{
	for (const struct waiter *w = list->first; w; w = w->next)
		if (w->model == m)
			return true;
	return false;
}

static struct waiter *waiters_take(struct waiter_list *list)
{
	struct waiter *w = list->first;

	if (w) {
		list->first = w->next;
		if (!w->next)
			list->last = &list->first;
	}
	return w;
}

void model_tell(struct residency_model *m, int error, const char *text)
{
	struct residency *r = m->residency;
	uint64_t one = 1;
	bool any = false;
	struct waiter *w;

	while ((w = waiters_take(&m->waiters))) {
		w->error = error;
		snprintf(w->text, sizeof(w->text), "%s", error ? text : "");
		m->holders += !error && !w->plans;
		waiters_add(&r->done, w);
		any = true;
	}
	/* A full counter is readable, too. */
	if (any && write(r->fd, &one, sizeof(one)) < 0)
		return;
}

/* Drops the waiters with @arg from a list, or all. Locked. */
static unsigned drop(struct residency *r, struct waiter_list *list, void *arg, bool all)
{
	struct waiter_list kept;
	unsigned n = 0;
	struct waiter *w;

	waiters_init(&kept);
	while ((w = waiters_take(list))) {
		if (!all && w->arg != arg) {
			waiters_add(&kept, w);
			continue;
		}
		if (list == &r->done && !w->error && !w->plans)
			w->model->holders--;
		free(w);
		n++;
	}
	while ((w = waiters_take(&kept)))
		waiters_add(list, w);
	return n;
}

/* ---- life ------------------------------------------------------------------------------------ */

static int set_up(struct residency *r, const struct residency_options *options, char *err,
		  size_t errlen)
{
	int error = cache_find(options->cache_dir, r->cache_dir, sizeof(r->cache_dir), err, errlen);

	if (!error && options->private_cache)
		error = cache_private_new(r->cache_dir, sizeof(r->cache_dir), &r->private_lock, err,
					  errlen);
	if (error)
		return error;
	/* A missing compiler is told by the load that needs it. */
	if (options->compiler)
		snprintf(r->compiler, sizeof(r->compiler), "%s", options->compiler);
	else if (child_find("txda-compile", r->compiler, sizeof(r->compiler)))
		snprintf(r->compiler, sizeof(r->compiler), "txda-compile");
	if (!r->options.compile_seconds)
		r->options.compile_seconds = 3600;
	r->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (r->fd < 0) {
		error = -errno;
		snprintf(err, errlen, "cannot make an eventfd: %s", strerror(-error));
	}
	return error;
}

int residency_new(const struct residency_options *options, struct residency **ret, char *err,
		  size_t errlen)
{
	struct residency *r = calloc(1, sizeof(*r));
	sigset_t all, old;
	int error;

	if (!r) {
		snprintf(err, errlen, "out of memory");
		return -ENOMEM;
	}
	r->context = txda_context_ref(options->context);
	r->options = *options;
	r->fd = r->private_lock = -1;
	r->last_model = &r->models;
	waiters_init(&r->done);
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->work, NULL);
	error = set_up(r, options, err, errlen);
	if (!error) {
		/* Signals are for the daemon's own threads. */
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &old);
		error = -pthread_create(&r->loader, NULL, loader_main, r);
		pthread_sigmask(SIG_SETMASK, &old, NULL);
		r->loader_runs = !error;
		if (error)
			snprintf(err, errlen, "cannot start the loader thread: %s",
				 strerror(-error));
	}
	if (error) {
		residency_free(r);
		return error;
	}
	*ret = r;
	return 0;
}

/* Whether a model, or a draft, of that directory is in the table. Locked. */
static bool is_served(void *arg, const char *source)
{
	const struct residency *r = arg;
	bool found = false;

	for (const struct residency_model *m = r->models; m; m = m->next)
		found |=
			!m->removed && (!strcmp(m->path, source) || !strcmp(m->draft_path, source));
	return found;
}

void residency_settle_kept(struct residency *r)
{
	if (!r->options.keeper)
		return;
	pthread_mutex_lock(&r->lock);
	keeper_retain(r->options.keeper, is_served, r);
	pthread_mutex_unlock(&r->lock);
}

void residency_free(struct residency *r)
{
	struct residency_model *m, *next;

	if (!r)
		return;
	if (r->loader_runs) {
		pthread_mutex_lock(&r->lock);
		r->ending = r->shutdown = true;
		if (r->loading && !r->freeing)
			atomic_store(&r->loading->cancel, true);
		pthread_cond_signal(&r->work);
		pthread_mutex_unlock(&r->lock);
		pthread_join(r->loader, NULL);
	}
	for (m = r->models; m; m = next) {
		next = m->next;
		drop(r, &m->waiters, NULL, true);
		engine_free(m->engine);
		txda_group_unref(m->group);
		hostcopy_free(m->copy);
	}
	drop(r, &r->done, NULL, true);
	for (m = r->models; m; m = next) {
		next = m->next;
		free(m);
	}
	if (r->private_lock >= 0)
		cache_private_remove(r->cache_dir, r->private_lock);
	if (r->fd >= 0)
		close(r->fd);
	pthread_mutex_destroy(&r->lock);
	pthread_cond_destroy(&r->work);
	txda_context_unref(r->context);
	free(r);
}

/* Of a model that has no engine and is not being loaded. Locked. */
static enum residency_state unloaded_state(const struct residency_model *m)
{
	if (m->copy)
		return RESIDENCY_ASLEEP;
	return m->planned ? RESIDENCY_PLANNED : RESIDENCY_COLD;
}

void residency_shutdown(struct residency *r)
{
	pthread_mutex_lock(&r->lock);
	r->shutdown = true;
	if (r->loading && !r->freeing)
		atomic_store(&r->loading->cancel, true);
	for (struct residency_model *m = r->models; m; m = m->next) {
		bool being_loaded = m == r->loading && !r->freeing && !m->load_turn;

		if (m->engine && m->state == RESIDENCY_RESIDENT) {
			engine_drain(m->engine);
			m->state = RESIDENCY_DRAINING;
		}
		if (m->load_turn) {
			m->load_turn = 0;
			m->state = unloaded_state(m);
		}
		if (!being_loaded)
			model_tell(m, -ESHUTDOWN, "the daemon is shutting down");
	}
	pthread_cond_signal(&r->work);
	pthread_mutex_unlock(&r->lock);
}

bool residency_idle(struct residency *r)
{
	bool idle;

	pthread_mutex_lock(&r->lock);
	idle = !r->loading;
	for (struct residency_model *m = r->models; m; m = m->next)
		idle = idle && !m->holders && !m->load_turn;
	pthread_mutex_unlock(&r->lock);
	return idle;
}

/* ---- the table ------------------------------------------------------------------------------- */

struct residency_model *model_find(struct residency *r, const char *name)
{
	struct residency_model *m = r->models;

	while (m && (m->removed || strcmp(m->name, name)))
		m = m->next;
	return m;
}

/* Plans a case dir; a checkpoint has to be compiled first. */
static int inspect(struct residency *r, struct residency_model *m, const char *path, char *err,
		   size_t errlen)
{
	struct source source;
	int error = source_find(path, &source, err, errlen);

	if (error)
		return error;
	snprintf(m->path, sizeof(m->path), "%s", source.path);
	m->needs_compiler = source.kind == SOURCE_CHECKPOINT;
	if (m->needs_compiler)
		return 0;
	m->plan = TXDA_INIT(struct txda_model_plan);
	error = txda_model_plan(r->context, source.case_dir, &m->plan);
	if (error) {
		snprintf(err, errlen, "%s", txda_context_error(r->context));
		return error;
	}
	error = source_fits(m, &source, &m->plan, err, errlen);
	if (error)
		return error;
	m->facts = source.facts;
	snprintf(m->case_dir, sizeof(m->case_dir), "%s", source.case_dir);
	snprintf(m->text_dir, sizeof(m->text_dir), "%s", source.text_dir);
	m->planned = true;
	m->state = RESIDENCY_PLANNED;
	return 0;
}

int residency_set_draft(struct residency *r, const char *name, const char *path, char *err,
			size_t errlen)
{
	bool mtp = !strcmp(path, "mtp");
	struct residency_model *m;
	struct source source;
	int error = mtp ? 0 : source_find(path, &source, err, errlen);

	if (error)
		return error;
	pthread_mutex_lock(&r->lock);
	m = model_find(r, name);
	if (m && mtp && !m->needs_compiler) {
		snprintf(err, errlen,
			 "the model '%.300s' is compiled: of its layer that predicts further "
			 "tokens the case dir has to be named, too",
			 name);
		error = -EINVAL;
	} else if (m) {
		snprintf(m->draft_path, sizeof(m->draft_path), "%s", mtp ? m->path : source.path);
		m->draft_mtp = mtp;
	} else {
		snprintf(err, errlen, "there is no model '%.300s'", name);
		error = -ENOENT;
	}
	pthread_mutex_unlock(&r->lock);
	return error;
}

int residency_set_limits(struct residency *r, const char *name, uint64_t kv_bytes,
			 const char *family, char *err, size_t errlen)
{
	struct residency_model *m;
	int error = 0;

	pthread_mutex_lock(&r->lock);
	m = model_find(r, name);
	if (m) {
		m->kv_limit = kv_bytes;
		snprintf(m->family, sizeof(m->family), "%s", family ? family : "");
	} else {
		snprintf(err, errlen, "there is no model '%.300s'", name);
		error = -ENOENT;
	}
	pthread_mutex_unlock(&r->lock);
	return error;
}

int residency_set_chips(struct residency *r, const char *name, const struct residency_chips *chips,
			char *err, size_t errlen)
{
	struct residency_model *m;

	pthread_mutex_lock(&r->lock);
	m = model_find(r, name);
	if (m)
		m->chips = *chips;
	else
		snprintf(err, errlen, "there is no model '%.300s'", name);
	pthread_mutex_unlock(&r->lock);
	return m ? 0 : -ENOENT;
}

int residency_set_options(struct residency *r, const char *name,
			  const struct residency_model_options *options, char *err, size_t errlen)
{
	const struct case_wishes wishes = {
		.kv_int8 = options->kv_int8,
		.whole_experts = options->whole_experts,
	};
	struct residency_model *m;
	int error = 0;

	pthread_mutex_lock(&r->lock);
	m = model_find(r, name);
	if (!m) {
		snprintf(err, errlen, "there is no model '%.300s'", name);
		error = -ENOENT;
	} else if (!m->needs_compiler) {
		error = case_facts_fit(&m->facts, m->case_dir, &wishes, err, errlen);
	}
	if (!error)
		m->options = *options;
	pthread_mutex_unlock(&r->lock);
	return error;
}

int residency_add(struct residency *r, const char *name, const char *path, unsigned tp,
		  const char *weights, char *err, size_t errlen)
{
	struct residency_model *m;
	int error = 0;

	if (!*name || strlen(name) >= MAX_NAME ||
	    (weights && strlen(weights) >= sizeof(m->weights)) || tp > TXDA_MAX_CHIPS_PER_GROUP) {
		snprintf(err, errlen,
			 "model '%.300s', tp %u, weights '%.40s': a name has 1 to %d bytes, tp is "
			 "at most %d",
			 name, tp, weights ? weights : "", MAX_NAME - 1, TXDA_MAX_CHIPS_PER_GROUP);
		return -EINVAL;
	}
	m = calloc(1, sizeof(*m));
	if (!m) {
		snprintf(err, errlen, "out of memory");
		return -ENOMEM;
	}
	m->residency = r;
	m->wanted_tp = tp;
	m->options = r->options.model;
	m->added_s = (uint64_t)time(NULL);
	waiters_init(&m->waiters);
	snprintf(m->name, sizeof(m->name), "%s", name);
	snprintf(m->weights, sizeof(m->weights), "%s", weights ? weights : "");
	error = inspect(r, m, path, err, errlen);
	if (error) {
		free(m);
		return error;
	}
	pthread_mutex_lock(&r->lock);
	if (model_find(r, name)) {
		snprintf(err, errlen, "there is a model '%s' already", name);
		error = -EEXIST;
	} else {
		*r->last_model = m;
		r->last_model = &m->next;
		r->n_models++;
	}
	pthread_mutex_unlock(&r->lock);
	if (error)
		free(m);
	return error;
}

void model_refresh(struct residency_model *m)
{
	struct engine_stats stats;

	if (m->state != RESIDENCY_RESIDENT)
		return;
	engine_stats(m->engine, &stats);
	if (stats.lost) {
		m->state = RESIDENCY_LOST;
		snprintf(m->error, sizeof(m->error), "%s", stats.error);
	}
}

/* ---- acquire and release --------------------------------------------------------------------- */

/* Whether a model is or can be made resident, or planned: 0, -EINPROGRESS, or an error. Queues its
 * load. Locked. */
static int want(struct residency *r, struct residency_model *m, bool plan_only, char *err,
		size_t errlen)
{
	if (r->shutdown) {
		snprintf(err, errlen, "the daemon is shutting down");
		return -ESHUTDOWN;
	}
	model_refresh(m);
	switch (m->state) {
	case RESIDENCY_RESIDENT: return 0;
	case RESIDENCY_LOADING:
		/* What was called off goes on as a load of its own. */
		if (!atomic_load(&m->cancel) || m->load_turn) {
			m->plan_only = m->plan_only && plan_only;
			return -EINPROGRESS;
		}
		break;
	case RESIDENCY_DRAINING:
		if (!m->holders)
			break; /* it is freed before it is loaded */
		snprintf(err, errlen, "model '%s' is being unloaded", m->name);
		return -EBUSY;
	case RESIDENCY_LOST:
		if (m->holders) {
			snprintf(err, errlen, "%s", m->error);
			return -EIO;
		}
		break;
	default: break;
	}
	m->state = RESIDENCY_LOADING;
	m->plan_only = plan_only;
	m->load_turn = ++r->turns;
	m->progress_done = m->progress_total = 0;
	snprintf(m->phase, sizeof(m->phase), "queued");
	pthread_cond_signal(&r->work);
	return -EINPROGRESS;
}

static struct residency_model *find_or_say(struct residency *r, const char *name, char *err,
					   size_t errlen)
{
	struct residency_model *m = model_find(r, name);

	if (!m)
		snprintf(err, errlen, "there is no model '%.200s'", name);
	return m;
}

static bool is_planned(const struct residency_model *m)
{
	return m->planned && (!*m->draft_path || m->draft_plan.tp);
}

/* Takes a reference, or only looks whether there is a plan, or queues a wait for it. */
static int acquire(struct residency *r, const char *name, bool plans, struct waiter *w,
		   struct residency_model **ret_model, char *err, size_t errlen)
{
	struct waiter *waiter = calloc(1, sizeof(*waiter));
	struct residency_model *m;
	int error = -ENOENT;

	if (!waiter) {
		snprintf(err, errlen, "out of memory");
		return -ENOMEM;
	}
	pthread_mutex_lock(&r->lock);
	m = find_or_say(r, name, err, errlen);
	if (m)
		error = plans && is_planned(m) ? 0 : want(r, m, plans, err, errlen);
	if (!error && !plans) {
		m->holders++;
		*ret_model = m;
	} else if (error == -EINPROGRESS) {
		*waiter = *w;
		waiter->plans = plans;
		waiter->model = m;
		waiters_add(&m->waiters, waiter);
		waiter = NULL;
	}
	pthread_mutex_unlock(&r->lock);
	free(waiter);
	return error;
}

int residency_acquire(struct residency *r, const char *name, residency_ready_fn *ready, void *arg,
		      struct residency_model **ret_model, char *err, size_t errlen)
{
	struct waiter w = {.ready = ready, .arg = arg};

	return acquire(r, name, false, &w, ret_model, err, errlen);
}

int residency_prepare(struct residency *r, const char *name, residency_ready_fn *ready, void *arg,
		      char *err, size_t errlen)
{
	struct waiter w = {.ready = ready, .arg = arg};

	return acquire(r, name, true, &w, NULL, err, errlen);
}

unsigned residency_call_off(struct residency *r, void *arg)
{
	unsigned n;

	pthread_mutex_lock(&r->lock);
	n = drop(r, &r->done, arg, false);
	for (struct residency_model *m = r->models; m; m = m->next)
		n += drop(r, &m->waiters, arg, false);
	pthread_cond_signal(&r->work);
	pthread_mutex_unlock(&r->lock);
	return n;
}

void residency_release(struct residency *r, struct residency_model *model)
{
	pthread_mutex_lock(&r->lock);
	if (!--model->holders)
		pthread_cond_signal(&r->work); /* it may be on its way out */
	pthread_mutex_unlock(&r->lock);
}

int residency_load(struct residency *r, const char *name, char *err, size_t errlen)
{
	struct residency_model *m;
	int error = -ENOENT;

	pthread_mutex_lock(&r->lock);
	m = find_or_say(r, name, err, errlen);
	if (m)
		error = want(r, m, false, err, errlen);
	pthread_mutex_unlock(&r->lock);
	return error == -EINPROGRESS ? 0 : error;
}

/* Locked. */
static void unload(struct residency *r, struct residency_model *m, bool sleep, bool drain)
{
	bool being_loaded = m == r->loading && !r->freeing && m->state == RESIDENCY_LOADING;

	if (m->state == RESIDENCY_LOADING) {
		if (being_loaded)
			atomic_store(&m->cancel, true);
		m->load_turn = 0;
		if (!being_loaded)
			m->state = m->engine ? RESIDENCY_DRAINING : unloaded_state(m);
		model_tell(m, -ECANCELED, "the load was called off");
	} else if (m->engine) {
		if (drain)
			engine_drain(m->engine);
		m->state = RESIDENCY_DRAINING;
		m->sleeps = sleep;
		m->forgets = true;
	}
	if (!sleep && !m->engine && !being_loaded) {
		hostcopy_free(m->copy);
		m->copy = NULL;
		m->state = unloaded_state(m);
	}
	pthread_cond_signal(&r->work);
}

int residency_unload(struct residency *r, const char *name, char *err, size_t errlen)
{
	struct residency_model *m;

	pthread_mutex_lock(&r->lock);
	m = find_or_say(r, name, err, errlen);
	if (m)
		unload(r, m, false, true);
	pthread_mutex_unlock(&r->lock);
	return m ? 0 : -ENOENT;
}

int residency_sleep(struct residency *r, const char *name, char *err, size_t errlen)
{
	struct residency_model *m;
	int error = 0;

	pthread_mutex_lock(&r->lock);
	m = find_or_say(r, name, err, errlen);
	if (!m) {
		error = -ENOENT;
	} else if (m->engine && m->state != RESIDENCY_LOADING) {
		unload(r, m, true, true);
	} else if (m->state != RESIDENCY_ASLEEP) {
		snprintf(err, errlen, "model '%.200s' is %s, not resident", m->name,
			 residency_state_name(m->state));
		error = -EINVAL;
	}
	pthread_mutex_unlock(&r->lock);
	return error;
}

int residency_remove(struct residency *r, const char *name, char *err, size_t errlen)
{
	struct residency_model *m;

	pthread_mutex_lock(&r->lock);
	m = find_or_say(r, name, err, errlen);
	if (m) {
		unload(r, m, false, false);
		m->removed = true;
		r->n_models--;
	}
	pthread_mutex_unlock(&r->lock);
	return m ? 0 : -ENOENT;
}

struct txda_context *residency_context(struct residency *r)
{
	return r->context;
}

int residency_fd(struct residency *r)
{
	return r->fd;
}

void residency_dispatch(struct residency *r)
{
	uint64_t count;
	struct waiter *w;

	if (read(r->fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		return;
	/* One by one: a callback may call off others. */
	for (;;) {
		pthread_mutex_lock(&r->lock);
		w = waiters_take(&r->done);
		pthread_mutex_unlock(&r->lock);
		if (!w)
			return;
		w->ready(w->arg, w->error, w->text, w->model);
		free(w);
	}
}

/* ---- what is there --------------------------------------------------------------------------- */

struct engine *residency_engine(struct residency_model *model)
{
	return model->engine;
}

const char *residency_name(struct residency_model *model)
{
	return model->name;
}

const char *residency_case_dir(struct residency_model *model)
{
	return model->case_dir;
}

const char *residency_text_dir(struct residency_model *model)
{
	return *model->text_dir ? model->text_dir : model->case_dir;
}

static unsigned chip_index(struct txda_device *device)
{
	struct txda_device_info info = TXDA_INIT(struct txda_device_info);

	return txda_device_info(device, &info) < 0 ? UINT_MAX : info.index;
}

/* Locked. */
static void describe(struct residency_model *m, struct residency_info *info)
{
	model_refresh(m);
	*info = (struct residency_info){
		.state = m->state,
		.weight_bytes = m->planned ? m->plan.weight_bytes : 0,
		.tp = m->planned ? m->plan.tp : m->wanted_tp,
		.holders = m->holders,
		.added_s = m->added_s,
		.load_ns = m->load_ns,
	};
	snprintf(info->name, sizeof(info->name), "%s", m->name);
	snprintf(info->path, sizeof(info->path), "%s", m->path);
	snprintf(info->case_dir, sizeof(info->case_dir), "%s", m->case_dir);
	snprintf(info->phase, sizeof(info->phase), "%s", m->phase);
	snprintf(info->error, sizeof(info->error), "%s", m->error);
	if (m->copy) {
		info->host_bytes = hostcopy_bytes(m->copy);
		info->host_locked = hostcopy_locked(m->copy);
	}
	if (m->group) {
		info->n_chips = txda_group_size(m->group);
		for (unsigned i = 0; i < info->n_chips; i++)
			info->chips[i] = chip_index(txda_group_device(m->group, i));
	}
	if (m->engine) {
		info->adopted = m->adopted;
		info->progress = 1;
		info->kv_bytes = m->limits.kv_blocks * m->limits.kv_block_bytes;
		info->max_context = m->limits.max_context;
	} else if (m->progress_total) {
		info->progress = (double)m->progress_done / (double)m->progress_total;
	}
}

unsigned residency_list(struct residency *r, struct residency_info *infos, unsigned max)
{
	unsigned n = 0;

	pthread_mutex_lock(&r->lock);
	for (struct residency_model *m = r->models; m; m = m->next) {
		if (m->removed)
			continue;
		if (n < max)
			describe(m, &infos[n]);
		n++;
	}
	pthread_mutex_unlock(&r->lock);
	return n;
}

int residency_find(struct residency *r, const char *name, struct residency_info *ret)
{
	struct residency_model *m;

	pthread_mutex_lock(&r->lock);
	m = model_find(r, name);
	if (m)
		describe(m, ret);
	pthread_mutex_unlock(&r->lock);
	return m ? 0 : -ENOENT;
}
