// SPDX-License-Identifier: MIT
/* The table of models: models, waiters, requests, and periodic work. */
#include "models.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <event2/event.h>

#include "balance.h"
#include "cache_room.h"
#include "clock.h"
#include "hash.h"
#include "keeper.h"
#include "loader.h"
#include "log.h"
#include "models_internal.h"

const char *model_state_name(enum model_state state)
{
	static const char *const names[MODEL_N_STATES] = {
		[MODEL_UNLOADED] = "unloaded",	[MODEL_COMPILING] = "loading",
		[MODEL_LOADING] = "loading",	[MODEL_READY] = "ready",
		[MODEL_DRAINING] = "unloading", [MODEL_ASLEEP] = "asleep",
		[MODEL_LOST] = "lost",		[MODEL_FAILED] = "failed",
	};

	return names[state];
}

/* ---- waiters --------------------------------------------------------------------------------- */

int model_park(struct served_model *m, struct model_waiter *w)
{
	unsigned max = m->table->options.config->max_queue;

	if (m->n_parked >= (max ? max : 1024))
		return -EAGAIN;
	w->since_ns = clock_ns();
	w->next = NULL;
	w->waits = true;
	*m->last_parked = w;
	m->last_parked = &w->next;
	m->n_parked++;
	return 0;
}

void model_unpark(struct served_model *m, struct model_waiter *w)
{
	struct model_waiter **link = &m->parked;

	if (!w->waits)
		return;
	while (*link != w)
		link = &(*link)->next;
	*link = w->next;
	if (!*link)
		m->last_parked = link;
	w->waits = false;
	m->n_parked--;
}

static void wake(struct served_model *m, struct model_waiter *w, enum model_wake why)
{
	model_unpark(m, w);
	w->wake(w, why);
}

void model_fail_parked(struct served_model *m)
{
	while (m->parked)
		wake(m, m->parked, MODEL_WAKE_REFUSED);
}

/* Ends waits that timed out, or whose model will not come. */
static void check_parked(struct served_model *m, uint64_t now)
{
	uint64_t limit = (uint64_t)m->table->options.config->load_timeout * NS_PER_S;
	struct model_waiter *next;

	for (struct model_waiter *w = m->parked; w; w = next) {
		next = w->next;
		if (w->deadline_ns && now >= w->deadline_ns)
			wake(m, w, MODEL_WAKE_DEADLINE);
	}
	while (m->parked && now - m->parked->since_ns >= limit)
		wake(m, m->parked, MODEL_WAKE_TIMEOUT);
}

void model_use(struct served_model *m)
{
	m->users++;
}

/* Replaced text sides have processes, which end when no request uses them any more. */
static void drop_old_texts(struct served_model *m)
{
	while (m->n_old)
		m->table->options.text->free(m->old_texts[--m->n_old]);
}

void model_unuse(struct served_model *m)
{
	if (!--m->users)
		drop_old_texts(m);
}

/* ---- counters -------------------------------------------------------------------------------- */

void model_add_counters(struct engine_stats *sum, const struct engine_stats *one)
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
	sum->images += one->images;
	sum->cached_images += one->cached_images;
	sum->encode_launches += one->encode_launches;
	sum->encode_ns += one->encode_ns;
	sum->step_ns += one->step_ns;
	sum->host_ns += one->host_ns;
	sum->bytes_written += one->bytes_written;
	sum->bytes_read += one->bytes_read;
	for (unsigned i = 0; i < ENGINE_N_FINISHES; i++)
		sum->finished[i] += one->finished[i];
	for (unsigned i = 0; i < ENGINE_MAX_DRAFT; i++)
		sum->accepted_at[i] += one->accepted_at[i];
}

bool model_stats(const struct served_model *m, struct engine_stats *ret)
{
	struct engine_stats one;
	unsigned n = 0;

	*ret = m->past;
	for (unsigned i = 0; i < m->n_replicas; i++) {
		if (!m->replicas[i].on_chip.engine)
			continue;
		engine_stats(m->replicas[i].on_chip.engine, &one);
		model_add_counters(ret, &one);
		ret->running += one.running;
		ret->waiting += one.waiting;
		ret->kv_usage += one.kv_usage;
		ret->kv_keys_bytes += one.kv_keys_bytes;
		ret->kv_window_bytes += one.kv_window_bytes;
		ret->kv_state_bytes += one.kv_state_bytes;
		n++;
	}
	/* Values of a chip are the mean of the replicas. */
	if (n) {
		ret->kv_usage /= n;
		ret->kv_keys_bytes /= n;
		ret->kv_window_bytes /= n;
		ret->kv_state_bytes /= n;
	}
	return n || ret->steps;
}

unsigned model_in_flight(const struct served_model *m)
{
	unsigned n = 0;

	for (unsigned i = 0; i < m->n_replicas; i++)
		n += m->replicas[i].in_flight;
	return n;
}

uint64_t model_kv_bytes(const struct served_model *m)
{
	uint64_t bytes = 0;
	unsigned n = 0;

	for (unsigned i = 0; i < m->n_replicas; i++) {
		const struct engine_limits *l = &m->replicas[i].on_chip.limits;

		if (!m->replicas[i].on_chip.engine)
			continue;
		bytes += l->kv_blocks * l->kv_block_bytes;
		n++;
	}
	return n ? bytes / n : 0;
}

const char *model_phase(const struct served_model *m, double *ret_progress)
{
	*ret_progress = 0;
	for (unsigned i = 0; i < MODELS_LOADERS; i++) {
		struct loader *l = m->table->loaders[i];
		const struct load_job *job = loader_current(l);

		if (job && (job->kind == LOAD_PLAN || job->kind == LOAD_ENGINE) &&
		    job->replica->model == m)
			return loader_phase(l, ret_progress);
	}
	return m->state == MODEL_COMPILING ? "queued" : "waiting for memory";
}

/* ---- the text side --------------------------------------------------------------------------- */

/*
 * FNV-1a of the case dir's name, which contains the hash of its inputs: the same weights and
 * compiler give the same fingerprint.
 */
static void make_fingerprint(const char *case_dir, char *ret, size_t len)
{
	const char *base = strrchr(case_dir, '/');
	uint64_t hash;

	base = base ? base + 1 : case_dir;
	hash = hash_fnv1a(HASH_FNV1A, base, strlen(base));
	snprintf(ret, len, "fp_txda_%s_%08x", TXDA_VERSION, (unsigned)(hash ^ hash >> 32));
}

bool model_wants_text(const struct served_model *m)
{
	char fingerprint[sizeof(m->fingerprint)];

	make_fingerprint(m->found.case_dir, fingerprint, sizeof(fingerprint));
	return !atomic_load(&((struct served_model *)m)->text) ||
	       strcmp(m->text_of, m->found.text_dir) != 0 ||
	       strcmp(m->fingerprint, fingerprint) != 0;
}

/* Requests may still use the previous text side. */
int model_replace_text(struct served_model *m, struct model_text *text,
		       const struct model_found *found)
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
	memcpy(m->text_of, found->text_dir, sizeof(m->text_of));
	make_fingerprint(found->case_dir, m->fingerprint, sizeof(m->fingerprint));
	if (!m->users)
		drop_old_texts(m);
	return 0;
}

void model_set_context(struct served_model *m)
{
	struct model_text *text = atomic_load(&m->text);

	for (unsigned i = 0; i < m->n_replicas; i++) {
		const struct replica *r = &m->replicas[i];

		if (r->state == MODEL_READY &&
		    r->on_chip.limits.max_context < m->limits.max_context)
			m->limits.max_context = r->on_chip.limits.max_context;
	}
	if (text)
		m->table->options.text->set_context(text, m->limits.max_context);
}

/* ---- state of a model ------------------------------------------------------------------------ */

/*
 * An option that exceeds what the model was compiled for, or what memory allows, is not an error:
 * the same command line may be used for many models.
 */
static void note_cap(const struct served_model *m, const char *option, unsigned wanted, unsigned is)
{
	if (is && wanted > is)
		log_warning("model %s: --%s is %u, more than its maximum of %u", model_name(m),
			    option, wanted, is);
}

static const struct replica *find_ready(const struct served_model *m)
{
	const struct replica *r = m->replicas;

	while (r->state != MODEL_READY)
		r++;
	return r;
}

static void become_ready(struct served_model *m)
{
	const struct config_engine *e = &m->config->engine;
	const struct replica *r = find_ready(m);

	m->error[0] = '\0';
	m->demanded = m->starting = false;
	m->used_ns = m->ready_ns = clock_ns();
	m->metrics.loads++;
	m->metrics.load_seconds += (double)r->load_ns / 1e9;
	m->metrics.adoptions += r->on_chip.adopted;
	log_info("model %s is ready: loaded in %.2f s%s", model_name(m), (double)r->load_ns / 1e9,
		 r->on_chip.adopted ? ", its weights were on the chips" : "");
	note_cap(m, "max-model-len", e->max_model_len, m->limits.max_context);
	note_cap(m, "max-num-seqs", e->max_num_seqs, m->limits.max_num_seqs);
	note_cap(m, "max-num-batched-tokens", e->max_num_batched_tokens,
		 m->limits.max_num_batched_tokens);
	while (m->parked && m->state == MODEL_READY)
		wake(m, m->parked, MODEL_WAKE_READY);
}

void model_release_cache(struct served_model *m)
{
	m->table->cache_releases += m->use || m->draft_use;
	cache_release(m->use);
	cache_release(m->draft_use);
	m->use = m->draft_use = NULL;
}

/* No replica is loaded or being loaded. */
static void become_off(struct served_model *m, enum model_state before)
{
	bool was_on = before == MODEL_READY || before == MODEL_DRAINING;

	if (m->state != MODEL_ASLEEP)
		model_release_cache(m);
	m->starting = false;
	if (was_on)
		log_info("model %s is %s", model_name(m), model_state_name(m->state));
	/* It was requested while it was being unloaded. */
	if (was_on && !m->retired && !m->table->shutdown && (m->parked || m->demanded)) {
		m->demanded = true;
		model_begin_load(m);
		return;
	}
	m->demanded = false;
	model_fail_parked(m);
}

/*
 * The effect of a replica's state on its model: one that is being reloaded after losing its chips
 * stays lost.
 */
static enum model_state seen_state(const struct replica *r)
{
	bool loads = r->state == MODEL_COMPILING || r->state == MODEL_LOADING;

	return loads && r->fallback == MODEL_LOST ? MODEL_LOST : r->state;
}

void model_settle(struct served_model *m)
{
	static const enum model_state order[] = {
		MODEL_READY,	 MODEL_DRAINING, MODEL_LOST,   MODEL_LOADING,
		MODEL_COMPILING, MODEL_ASLEEP,	 MODEL_FAILED, MODEL_UNLOADED,
	};
	bool has[MODEL_N_STATES] = {false};
	enum model_state before = m->state;
	unsigned i = 0;

	for (unsigned k = 0; k < m->n_replicas; k++)
		has[seen_state(&m->replicas[k])] = true;
	while (!has[order[i]])
		i++;
	m->state = order[i];
	if (m->state == before)
		return;
	switch (m->state) {
	case MODEL_READY: become_ready(m); break;
	case MODEL_LOST: model_fail_parked(m); break;
	case MODEL_UNLOADED:
	case MODEL_ASLEEP:
	case MODEL_FAILED: become_off(m, before); break;
	default: break;
	}
}

/* ---- loads and unloads ----------------------------------------------------------------------- */

static void queue_load(struct replica *r, enum model_state fallback)
{
	r->state = MODEL_COMPILING;
	r->fallback = fallback;
	r->turn = ++r->model->table->turns;
	r->tries = 0;
	r->retry_ns = 0;
	r->again = false;
}

void model_begin_load(struct served_model *m)
{
	m->error[0] = '\0';
	m->demand_ns = clock_ns();
	for (unsigned i = 0; i < m->n_replicas; i++) {
		struct replica *r = &m->replicas[i];

		if (r->state == MODEL_UNLOADED || r->state == MODEL_FAILED)
			queue_load(r, MODEL_FAILED);
		else if (r->state == MODEL_ASLEEP)
			queue_load(r, MODEL_ASLEEP);
	}
	model_settle(m);
}

static void try_lost_again(struct served_model *m, uint64_t now)
{
	for (unsigned i = 0; i < m->n_replicas; i++) {
		struct replica *r = &m->replicas[i];

		if (r->state == MODEL_LOST && !r->on_chip.engine && now >= r->retry_ns)
			queue_load(r, MODEL_LOST);
	}
}

void model_demand(struct served_model *m)
{
	switch (m->state) {
	case MODEL_READY: m->used_ns = clock_ns(); return;
	case MODEL_COMPILING:
	case MODEL_LOADING:
	case MODEL_DRAINING: m->demanded = true; return;
	case MODEL_LOST: try_lost_again(m, UINT64_MAX); break;
	default:
		m->demanded = true;
		model_begin_load(m);
		break;
	}
	models_pump(m->table);
}

static void unload_replica(struct replica *r, bool sleep)
{
	switch (r->state) {
	case MODEL_COMPILING:
	case MODEL_LOADING: replica_call_off(r, sleep); break;
	case MODEL_READY:
	case MODEL_LOST:
		if (r->in_flight) {
			r->fallback =
				sleep && r->state == MODEL_READY ? MODEL_ASLEEP : MODEL_UNLOADED;
			r->state = MODEL_DRAINING;
		} else {
			replica_take_out(r, sleep && r->state == MODEL_READY);
		}
		break;
	case MODEL_DRAINING:
		if (!sleep)
			r->fallback = MODEL_UNLOADED;
		break;
	case MODEL_ASLEEP:
	case MODEL_FAILED:
		if (!sleep)
			replica_call_off(r, false);
		break;
	default: break;
	}
}

void model_unload(struct served_model *m, bool sleep, enum model_reason reason)
{
	m->demanded = m->starting = false;
	/* Not when it is off: a load requested until then may have brought its own. */
	m->keep_alive = m->config->keep_alive;
	if (m->state == MODEL_READY)
		m->metrics.unloads[reason]++;
	/* Waiters for the load are told that it was cancelled. */
	if (m->state == MODEL_COMPILING || m->state == MODEL_LOADING) {
		m->state = MODEL_DRAINING;
		model_fail_parked(m);
	}
	for (unsigned i = 0; i < m->n_replicas; i++)
		unload_replica(&m->replicas[i], sleep);
	model_settle(m);
	models_pump(m->table);
}

void model_want_plan(struct served_model *m)
{
	m->plan_wanted = true;
	m->plan_error[0] = '\0';
	models_pump(m->table);
}

/* ---- lifetime -------------------------------------------------------------------------------- */

void models_spec(const struct config_model *c, struct model_spec *ret)
{
	*ret = (struct model_spec){
		.tp = c->engine.tp_size,
		.kv_int8 = c->engine.kv_int8,
		.whole_experts = c->engine.expert_parallel,
		.ignore_unused = c->engine.unused_tensors,
	};
	snprintf(ret->path, sizeof(ret->path), "%s", c->path);
	snprintf(ret->draft, sizeof(ret->draft), "%s", c->draft ? c->draft : "");
	snprintf(ret->weights, sizeof(ret->weights), "%s",
		 c->engine.weights ? config_weights[c->engine.weights] : "");
	snprintf(ret->tool_parser, sizeof(ret->tool_parser), "%s",
		 c->tool_parser ? c->tool_parser : "");
	snprintf(ret->reasoning_parser, sizeof(ret->reasoning_parser), "%s",
		 c->reasoning_parser ? c->reasoning_parser : "");
}

bool models_validate(struct txda_context *context, const struct config *c, struct model_found *ret,
		     char *err, size_t errlen)
{
	struct model_spec spec;
	char why[512] = "";

	for (unsigned i = 0; i < c->n_models; i++) {
		const struct config_model *m = &c->models[i];

		models_spec(m, &spec);
		if (!source_look_within(context, &spec, MODELS_LOOK_MS, &ret[i], why, sizeof(why)))
			continue;
		snprintf(err, errlen, "%smodel %.200s: %s", m->where, m->names[0], why);
		return false;
	}
	return true;
}

static void free_model(struct served_model *m)
{
	const struct model_text_ops *text = m->table->options.text;

	for (unsigned i = 0; i < m->n_replicas; i++)
		replica_free(&m->replicas[i]);
	model_release_cache(m);
	text->free(atomic_load(&m->text));
	drop_old_texts(m);
	free(m->old_texts);
	balance_free(m->balance);
	config_model_free(m->config);
	free(m);
}

int model_add(struct models *t, struct config_model *config, const struct model_found *found,
	      const char *why)
{
	struct served_model *m = calloc(1, sizeof(*m));

	if (!m) {
		config_model_free(config);
		return -ENOMEM;
	}
	m->table = t;
	m->config = config;
	m->n_replicas = config->data_parallel ? config->data_parallel : 1;
	m->created = time(NULL);
	m->keep_alive = config->keep_alive;
	m->pinned = config->pin;
	m->last_parked = &m->parked;
	m->used_ns = clock_ns();
	models_spec(config, &m->spec);
	make_fingerprint("", m->fingerprint, sizeof(m->fingerprint));
	if (m->n_replicas > 1 && balance_new(m->n_replicas, &m->balance)) {
		free_model(m);
		return -ENOMEM;
	}
	for (unsigned i = 0; i < m->n_replicas; i++) {
		m->replicas[i].model = m;
		m->replicas[i].state = found ? MODEL_UNLOADED : MODEL_FAILED;
	}
	t->all[t->n++] = m;
	if (!found) {
		m->state = MODEL_FAILED;
		snprintf(m->error, sizeof(m->error), "%s", why);
		m->metrics.load_failures++;
		return 0;
	}
	m->found = *found;
	if (!config->on_demand) {
		m->starting = true;
		model_begin_load(m);
	}
	return 0;
}

void model_retire(struct served_model *m)
{
	m->retired = true;
	/* It is not loaded again when it is drained. */
	model_fail_parked(m);
	model_unload(m, false, MODEL_BY_ADMIN);
}

static bool is_before(const struct served_model *a, const struct served_model *b)
{
	if (a->retired || b->retired)
		return a->retired && !b->retired;
	return a->config->place < b->config->place;
}

void models_sort(struct models *t)
{
	/* Stable: those that were retired earlier stay before the others. */
	for (unsigned i = 1; i < t->n; i++)
		for (unsigned k = i; k && is_before(t->all[k], t->all[k - 1]); k--) {
			struct served_model *m = t->all[k];

			t->all[k] = t->all[k - 1];
			t->all[k - 1] = m;
		}
}

static void on_loader(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	models_take_jobs(arg);
	models_pump(arg);
}

static int start_loader(struct models *t, unsigned i, char *err, size_t errlen)
{
	int error = loader_new(&t->options, i ? t->loaders[0] : NULL, &t->loaders[i], err, errlen);

	if (error)
		return error;
	t->loader_events[i] = event_new(t->options.base, loader_fd(t->loaders[i]),
					EV_READ | EV_PERSIST, on_loader, t);
	if (t->loader_events[i] && !event_add(t->loader_events[i], NULL))
		return 0;
	snprintf(err, errlen, "out of memory");
	return -ENOMEM;
}

int models_new(const struct models_options *options, struct models **ret, char *err, size_t errlen)
{
	struct models *t = calloc(1, sizeof(*t));
	int error = 0;

	if (!t) {
		snprintf(err, errlen, "out of memory");
		return -ENOMEM;
	}
	t->options = *options;
	t->last_departure = &t->departures;
	txda_context_ref(options->context);
	for (unsigned i = 0; i < MODELS_LOADERS && !error; i++)
		error = start_loader(t, i, err, errlen);
	if (error) {
		models_free(t);
		return error;
	}
	*ret = t;
	return 0;
}

void models_free(struct models *t)
{
	if (!t)
		return;
	t->shutdown = true;
	for (unsigned i = 0; i < MODELS_LOADERS; i++)
		if (t->loaders[i])
			loader_stop(t->loaders[i]);
	models_take_jobs(t);
	models_free_departures(t);
	for (unsigned i = 0; i < t->n; i++)
		free_model(t->all[i]);
	for (unsigned i = 0; i < MODELS_LOADERS; i++)
		if (t->loader_events[i])
			event_free(t->loader_events[i]);
	models_end_loaders(t);
	txda_context_unref(t->options.context);
	free(t);
}

void models_end_loaders(struct models *t)
{
	for (unsigned i = MODELS_LOADERS; t && i--;) {
		loader_free(t->loaders[i]);
		t->loaders[i] = NULL;
	}
}

void models_shutdown(struct models *t)
{
	t->shutdown = true;
	for (unsigned i = 0; i < t->n; i++) {
		struct served_model *m = t->all[i];

		while (m->parked)
			wake(m, m->parked, MODEL_WAKE_SHUTDOWN);
		for (unsigned k = 0; k < m->n_replicas; k++) {
			struct replica *r = &m->replicas[k];

			if (r->state == MODEL_COMPILING || r->state == MODEL_LOADING)
				replica_call_off(r, true);
		}
		model_settle(m);
	}
}

/* Whether a model or a draft with that directory or case dir is in the table. */
static bool is_served(void *arg, const char *source, const char *case_dir)
{
	const struct models *t = arg;

	for (unsigned i = 0; i < t->n; i++) {
		const struct model_found *f = &t->all[i]->found;

		if (!t->all[i]->retired &&
		    (!strcmp(f->path, source) || !strcmp(f->draft_path, source) ||
		     !strcmp(f->case_dir, case_dir) || !strcmp(f->draft_case_dir, case_dir)))
			return true;
	}
	return false;
}

void models_settle_kept(struct models *t)
{
	if (t->options.keeper)
		t->drops_kept = keeper_retain(t->options.keeper, is_served, t);
}

/* ---- requests -------------------------------------------------------------------------------- */

bool model_is_ready(const struct served_model *m)
{
	return m->state == MODEL_READY && !m->retired;
}

bool model_may_be_awaited(const struct served_model *m)
{
	bool loads = m->state == MODEL_COMPILING || m->state == MODEL_LOADING;

	return !m->retired && m->state != MODEL_FAILED && m->state != MODEL_LOST &&
	       (!loads || m->demanded);
}

bool model_is_idle(const struct served_model *m)
{
	return m->state == MODEL_READY && !m->expected && !model_in_flight(m);
}

/* The replica for a prompt, or NULL. */
static struct replica *choose_replica(struct served_model *m, const struct engine_request *r)
{
	uint32_t loads[CONFIG_MAX_REPLICAS];
	/* Requests already started continue on their replica while the model is being unloaded. */
	enum model_state state =
		r->continues && m->state == MODEL_DRAINING ? MODEL_DRAINING : MODEL_READY;
	int i;

	if (!m->balance)
		return m->replicas[0].on_chip.engine ? &m->replicas[0] : NULL;
	for (unsigned k = 0; k < m->n_replicas; k++)
		loads[k] = m->replicas[k].state == state ? m->replicas[k].in_flight : BALANCE_BUSY;
	i = balance_choose(m->balance, r->prompt, r->n_prompt, m->limits.block_size,
			   engine_owner(r->uid, r->salt), loads);
	return i < 0 ? NULL : &m->replicas[i];
}

int model_submit(struct served_model *m, struct engine_request *r, struct client *client, char *err,
		 size_t errlen)
{
	struct engine_request *f;
	struct replica *replica;
	unsigned n = 1;
	int error;

	r->id = ++m->table->next_id;
	replica = choose_replica(m, r);
	if (!replica) {
		snprintf(err, errlen, "no chips have the model now");
		return -EIO;
	}
	client->replica = replica;
	r->client = client;
	for (f = r->forks; f; f = f->fork_next) {
		f->id = ++m->table->next_id;
		((struct client *)f->client)->replica = replica;
		n++;
	}
	error = engine_submit(replica->on_chip.engine, r, err, errlen);
	if (error) {
		r->client = NULL;
		return error;
	}
	replica->in_flight += n;
	m->used_ns = clock_ns();
	if (m->balance)
		balance_note(m->balance, r->prompt, r->n_prompt, m->limits.block_size,
			     engine_owner(r->uid, r->salt), (unsigned)(replica - m->replicas));
	return 0;
}

void model_cancel(struct engine_request *r)
{
	const struct client *client = r->client;

	if (client && client->replica->on_chip.engine)
		engine_cancel(client->replica->on_chip.engine, r);
}

void replica_request_ended(struct replica *r)
{
	struct served_model *m = r->model;

	r->in_flight--;
	m->used_ns = clock_ns();
	if (r->in_flight || r->state != MODEL_DRAINING)
		return;
	replica_take_out(r, r->fallback == MODEL_ASLEEP);
	model_settle(m);
	models_pump(m->table);
}

void model_check(struct served_model *m)
{
	for (unsigned i = 0; i < m->n_replicas; i++)
		replica_check(&m->replicas[i]);
	model_settle(m);
}

/* ---- names ----------------------------------------------------------------------------------- */

struct served_model *models_find(struct models *t, const char *name)
{
	for (unsigned i = 0; i < t->n; i++) {
		struct served_model *m = t->all[i];

		for (unsigned k = 0; k < m->config->n_names && !m->retired; k++)
			if (!name || !strcmp(m->config->names[k], name))
				return m;
	}
	return NULL;
}

/* ---- periodic work --------------------------------------------------------------------------- */

static void check_idle(struct served_model *m, uint64_t now)
{
	if (!model_is_idle(m) || m->pinned || m->keep_alive < 0 || m->n_parked ||
	    now - m->used_ns < (uint64_t)m->keep_alive * NS_PER_S)
		return;
	log_info("model %s has been idle for %lld s", model_name(m), (long long)m->keep_alive);
	model_unload(m, m->config->sleep_when_idle, MODEL_BY_IDLING);
}

static bool is_over(const struct served_model *m)
{
	return m->retired && !m->users && m->state == MODEL_UNLOADED && !model_is_with_loader(m);
}

void models_check(struct models *t)
{
	uint64_t now = clock_ns();
	unsigned kept = 0;

	for (unsigned i = 0; i < t->n; i++) {
		struct served_model *m = t->all[i];

		model_check(m);
		check_parked(m, now);
		if (!t->shutdown)
			try_lost_again(m, now);
		check_idle(m, now);
	}
	models_pump(t);
	for (unsigned i = 0; i < t->n; i++) {
		if (!is_over(t->all[i])) {
			t->all[kept++] = t->all[i];
			continue;
		}
		log_info("model %s is no longer served", model_name(t->all[i]));
		free_model(t->all[i]);
	}
	t->n = kept;
}
