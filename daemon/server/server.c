// SPDX-License-Identifier: MIT
#include "server.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <event2/event.h>

#include "admin.h"
#include "api_keys.h"
#include "client_memory.h"
#include "descriptors.h"
#include "log.h"
#include "model_text.h"
#include "server_internal.h"

#define TEXT_THREADS	 4 /* textpool.h: one thread for brief jobs, at most two for one user */
#define TEXT_MAX_THREADS 16
#define TEXT_JOBS	 1024
_Static_assert(TEXT_LANES >= TEXT_MAX_THREADS - 1, "each thread that takes long jobs needs a lane");
#define MAX_HEAD	((size_t)32 << 10)
#define MAX_HEADERS	100
#define CONGESTED_BYTES ((size_t)256 << 10)
#define MAX_DESCRIPTORS 4096 /* passed by clients, and held at a time */
#define USER_LINES	200  /* per user and second, in the log */
#define TRIM_BYTES	((uint64_t)1 << 20)
#define LOOK_LEAST_MS	1000 /* at start, for a model after others whose file system is gone */

static void on_request(void *arg, struct http_conn *c, const struct http_request *r)
{
	server_route(arg, c, r);
}

static void on_answered(void *arg, const struct http_conn *c, const struct http_request *r,
			const struct http_answer *a)
{
	struct server *s = arg;
	const struct http_peer *peer = http_conn_peer(c);
	struct account *account = http_conn_account(c);
	char who[IDENTITY_NAME + HTTP_ADDRESS + 48];

	if (a->status != 499) {
		s->metrics.responses[a->status / 100 % 6]++;
		account->responses[a->status / 100 % 6]++;
	}
	/* Unauthenticated requests are summarised once per second: server_log_refused(). */
	if (peer->tcp && !peer->key)
		server_count_refused(s, c, a);
	if (!s->service.config->access_log || (peer->tcp && !peer->key))
		return;
	if (account->lines == USER_LINES) {
		account->unlogged++;
		account->unlogged_total++;
		return;
	}
	account->lines++;
	if (peer->key)
		snprintf(who, sizeof(who), "user %s uid %lld from %s", peer->key->name,
			 (long long)peer->uid, peer->address);
	else
		snprintf(who, sizeof(who), "uid %lld pid %d", (long long)peer->uid, (int)peer->pid);
	log_info("%s \"%s %.200s\" %d %llu bytes %llu ms%s%s", who, r ? r->method : "-",
		 r ? r->path : "-", a->status, (unsigned long long)a->bytes,
		 (unsigned long long)a->ms, a->note[0] ? " " : "", a->note);
}

static char *error_body(void *arg, int status, const char *message)
{
	struct json_out o;
	struct api_error e;

	(void)arg;
	json_out_init(&o);
	api_error_set(&e, status,
		      status == 429 || status == 503 ? "overloaded"
		      : status == 401		     ? "invalid_api_key"
		      : status == 403		     ? "not_permitted"
						     : NULL,
		      NULL, "%s", message);
	api_error_write(&e, &o);
	json_raw(&o, "", 1);
	if (o.failed)
		json_out_free(&o);
	return o.data;
}

static void on_gone(void *arg, void *user)
{
	struct conn_user *u = user;

	(void)arg;
	u->gone(u);
}

static void on_drained(void *arg, void *user)
{
	struct conn_user *u = user;

	(void)arg;
	u->drained(u);
}

static bool is_admin(void *arg, const struct http_conn *c)
{
	return service_is_admin(&((struct server *)arg)->service, c);
}

static void on_pool(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	textpool_dispatch(((struct server *)arg)->service.pool);
}

static void on_kick(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	textpool_kick(((struct server *)arg)->service.pool);
}

/* Logs what a model did since the last line; nothing if it was idle. */
static void log_status(struct served_model *m, unsigned seconds)
{
	struct engine_stats stats;
	uint64_t prompt, generated, queries, hits;

	if (!model_stats(m, &stats))
		return;
	prompt = stats.prompt_tokens - m->told.prompt_tokens;
	generated = stats.generation_tokens - m->told.generation_tokens;
	queries = stats.prefix_queries - m->told.prefix_queries;
	hits = stats.prefix_hits - m->told.prefix_hits;
	m->told = stats;
	if (prompt || generated || stats.running || stats.waiting)
		log_info("model %s: Avg prompt throughput: %.1f tokens/s, Avg generation "
			 "throughput: "
			 "%.1f tokens/s, Running: %u reqs, Waiting: %u reqs, KV cache usage: "
			 "%.1f%%, "
			 "Prefix cache hit rate: %.1f%%",
			 m->config->names[0], (double)prompt / seconds, (double)generated / seconds,
			 stats.running, stats.waiting, stats.kv_usage * 100,
			 queries ? (double)hits * 100 / (double)queries : 0.0);
}

/*
 * Returns free pages between allocated blocks to the system after a burst: when the daemon holds
 * half as much for clients as before, or less, apart from what is kept for later requests. So it is
 * rare under load, and never done while answering. Large blocks and free ends of arenas are returned
 * automatically (bound_heap() in main.c).
 */
static void give_memory_back(struct server *s)
{
	struct budget *b = s->budget;
	uint64_t used = b->used, kept = kept_unused(&b->kept, NULL, NULL), freed;

	if (used >= b->peak)
		return;
	freed = b->peak - used;
	/* It takes longer the more blocks stay. */
	if (freed < TRIM_BYTES || freed < kept / 8 || (used > kept && used - kept > freed))
		return;
	b->peak = used;
	malloc_trim(0);
}

/* Limits log volume: beyond USER_LINES per second one line summarises a user's other requests. */
static void log_unlogged(struct server *s)
{
	struct account *a;

	TAILQ_FOREACH(a, &s->budget->accounts, link) {
		if (a->unlogged)
			log_info("uid %lld%s%s: %u more requests, without lines of their own",
				 (long long)a->uid, a->name[0] ? " user " : "", a->name,
				 a->unlogged);
		a->lines = a->unlogged = 0;
	}
}

/* Once per second: checks the chips, and whether memory can be returned. */
static void on_check(evutil_socket_t fd, short what, void *arg)
{
	struct server *s = arg;

	(void)fd;
	(void)what;
	models_check(s->service.table);
	if (s->service.config->status_seconds &&
	    ++s->seconds % s->service.config->status_seconds == 0)
		for (unsigned i = 0; i < s->service.table->n; i++)
			log_status(s->service.table->all[i], s->service.config->status_seconds);
	give_memory_back(s);
	server_log_refused(s);
	log_unlogged(s);
}

/* ---- text processing of models --------------------------------------------------------------- */

static int load_text(const char *dir, const struct engine_limits *limits,
		     const struct model_spec *spec, bool must_fit, const struct config *config,
		     const atomic_bool *stop, struct model_text **ret, char *err, size_t errlen)
{
	const struct model_text_options options = {
		.tool_parser = *spec->tool_parser ? spec->tool_parser : NULL,
		.reasoning_parser = *spec->reasoning_parser ? spec->reasoning_parser : NULL,
		.must_fit = must_fit,
		.process = {.seconds = config->text_timeout,
			    .memory = config->text_memory,
			    .stop = stop},
	};

	return model_text_load(dir, limits, &options, ret, err, errlen);
}

static void set_context(struct model_text *text, unsigned max_context)
{
	text->max_context = max_context;
}

const struct model_text_ops server_text_ops = {
	.load = load_text,
	.free = model_text_free,
	.set_context = set_context,
};

/* ---- life ------------------------------------------------------------------------------------ */

static int start_http(struct server *s)
{
	const struct config *config = s->service.config;
	struct http_options options = {
		.limits = {.max_head = MAX_HEAD,
			   .max_headers = MAX_HEADERS,
			   .max_body = config->max_body},
		.max_connections = config->max_connections,
		.head_seconds = 10,
		.body_seconds = 60,
		.idle_seconds = 120,
		.stall_seconds = config->stall_seconds,
		.congested_bytes = CONGESTED_BYTES,
		.budget = s->budget,
		.descriptors = s->service.descriptors,
	};
	struct http_callbacks callbacks = {
		.on_head = server_authorise,
		.on_request = on_request,
		.error_body = error_body,
		.on_answered = on_answered,
		.on_gone = on_gone,
		.is_admin = is_admin,
		.on_drained = on_drained,
		.arg = s,
	};

	return http_server_new(s->base, &options, &callbacks, &s->http);
}

static int start_events(struct server *s)
{
	struct timeval second = {.tv_sec = 1};

	s->pool_event =
		event_new(s->base, textpool_fd(s->service.pool), EV_READ | EV_PERSIST, on_pool, s);
	s->service.kick_event = event_new(s->base, -1, 0, on_kick, s);
	s->check_event = event_new(s->base, -1, EV_PERSIST, on_check, s);
	if (!s->pool_event || !s->service.kick_event || !s->check_event)
		return -ENOMEM;
	event_add(s->pool_event, NULL);
	event_add(s->check_event, &second);
	return 0;
}

/*
 * Adds the models configured at start: a model that cannot be served is reported, the others are
 * served.
 */
static int add_models(struct server *s, const struct config *config)
{
	struct model_found found;
	struct model_spec spec;
	unsigned broken = 0, ms = MODELS_LOOK_MS;
	char err[512];

	for (unsigned i = 0; i < config->n_models; i++) {
		const struct config_model *m = &config->models[i];
		struct config_model *copy = config_model_copy(m);
		int r;

		models_spec(m, &spec);
		err[0] = '\0';
		r = source_look_within(s->service.table->options.context, &spec, ms, &found, err,
				       sizeof(err));
		/* A slow file system is waited for each time, one that does not answer once. */
		if (r == -ETIMEDOUT)
			ms = LOOK_LEAST_MS;
		if (r)
			log_error("%smodel %s: %s", m->where, m->names[0],
				  *err ? err : strerror(-r));
		broken += r != 0;
		if (!copy || model_add(s->service.table, copy, r ? NULL : &found, err))
			return -ENOMEM;
	}
	return broken && (config->strict || broken == config->n_models) ? -EINVAL : 0;
}

/* A sixteenth of the process's limit of open files, to leave room for connections and models. */
static unsigned descriptor_limit(void)
{
	long open_max = sysconf(_SC_OPEN_MAX);

	if (open_max < 0 || open_max / 16 > MAX_DESCRIPTORS)
		return MAX_DESCRIPTORS;
	return open_max / 16 < DESCRIPTORS_MAX ? DESCRIPTORS_MAX : (unsigned)(open_max / 16);
}

int server_new(struct event_base *base, struct config *config, struct budget *budget,
	       struct models *table, struct server **ret)
{
	struct server *s = calloc(1, sizeof(*s));
	struct timespec now;
	int r;

	if (!s)
		return -ENOMEM;
	clock_gettime(CLOCK_REALTIME, &now);
	s->base = base;
	s->service.config = config;
	s->service.table = table;
	s->budget = budget;
	client_memory_start();
	s->metrics.start_time = (double)now.tv_sec + (double)now.tv_nsec / 1e9;
	r = textpool_new(TEXT_THREADS, TEXT_MAX_THREADS, TEXT_JOBS, &s->service.pool);
	if (!r)
		r = descriptors_new(descriptor_limit(), &s->service.descriptors);
	if (!r)
		r = start_http(s);
	if (!r)
		r = start_events(s);
	if (!r)
		r = add_models(s, config);
	if (r) {
		server_free(s);
		return r;
	}
	*ret = s;
	return 0;
}

/* Applies settings that can change while a model is loaded; takes over @fresh. */
static void update_model(struct served_model *m, struct config_model *fresh)
{
	if (m->keep_alive == m->config->keep_alive)
		m->keep_alive = fresh->keep_alive;
	if (m->config->pin != fresh->pin)
		m->pinned = fresh->pin;
	config_model_free(m->config);
	m->config = fresh;
}

/* The model among @fresh that corresponds to @m; NULL: there is none. */
static struct config_model **find_same(const struct served_model *m, struct config_model **fresh,
				       unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (fresh[i] && m->state != MODEL_FAILED && config_model_same(fresh[i], m->config))
			return &fresh[i];
	return NULL;
}

/* The commit: only running out of memory can fail here, which is logged. */
static void follow(struct server *s, struct config_model **fresh, const struct model_found *found,
		   unsigned n)
{
	struct served_model *gone[MODELS_MAX];
	unsigned n_gone = 0;

	for (unsigned i = 0; i < s->service.table->n; i++) {
		struct served_model *m = s->service.table->all[i];

		if (m->retired || find_same(m, fresh, n))
			continue;
		log_info(
			"model %s: its settings have changed or are gone; the old ones are retired",
			m->config->names[0]);
		m->retired = true;
		gone[n_gone++] = m;
	}
	for (unsigned i = 0; i < s->service.table->n; i++) {
		struct served_model *m = s->service.table->all[i];
		struct config_model **same = m->retired ? NULL : find_same(m, fresh, n);

		if (!same)
			continue;
		update_model(m, *same);
		*same = NULL;
	}
	for (unsigned i = 0; i < n; i++)
		if (fresh[i] && model_add(s->service.table, fresh[i], &found[i], NULL))
			log_error("a model could not be added: out of memory");
	/* The first one is for requests that name none. */
	models_sort(s->service.table);
	/* Clients waiting for a retired model are told whether another model has its name now. */
	for (unsigned i = 0; i < n_gone; i++)
		model_retire(gone[i]);
	models_settle_kept(s->service.table);
	models_pump(s->service.table);
}

bool server_reconfigure(struct server *s, const struct config *fresh,
			const struct model_found *found, char *err, size_t errlen)
{
	struct config_model *copies[CONFIG_MAX_MODELS] = {NULL};
	unsigned n = 0, there = s->service.table->n, added;
	bool ok = true;

	for (; n < fresh->n_models && ok; n += ok) {
		copies[n] = config_model_copy(&fresh->models[n]);
		ok = copies[n];
	}
	if (!ok)
		snprintf(err, errlen, "out of memory");
	added = n;
	for (unsigned i = 0; i < there && ok; i++)
		added -= !s->service.table->all[i]->retired &&
			 find_same(s->service.table->all[i], copies, n);
	if (ok && there + added > MODELS_MAX) {
		snprintf(err, errlen,
			 "%u models are new, and %u are there or on their way out; the limit is %d",
			 added, there, MODELS_MAX);
		ok = false;
	}
	if (ok)
		follow(s, copies, found, n);
	for (unsigned i = 0; i < n && !ok; i++)
		config_model_free(copies[i]);
	return ok;
}

void server_free(struct server *s)
{
	if (!s)
		return;
	s->service.draining = true;
	log_unlogged(s);
	http_server_free(s->http);
	for (struct exchange *x = s->service.exchanges; x; x = x->next) {
		x->conn = NULL;
		atomic_store(&x->caller.gone, true);
	}
	/* Its jobs refer to memory that is freed with the rest. */
	textpool_free(s->service.pool);
	exchange_free_all(&s->service);
	admin_free_all(s);
	descriptors_unref(s->service.descriptors);
	if (s->pool_event)
		event_free(s->pool_event);
	if (s->service.kick_event)
		event_free(s->service.kick_event);
	if (s->check_event)
		event_free(s->check_event);
	json_out_free(&s->service.out);
	api_keys_free(s->keys);
	json_out_free(&s->chips.text);
	free(s);
}

static bool has_key(const void *keys, user_id uid)
{
	return api_keys_has_user(keys, uid);
}

void server_set_keys(struct server *s, struct api_keys *keys)
{
	api_keys_free(s->keys);
	s->keys = keys;
	/* Requests of users whose key is gone are cancelled. */
	if (keys)
		http_server_drop(s->http, has_key, keys);
}

const struct api_keys *server_keys(const struct server *s)
{
	return s->keys;
}

int server_listen(struct server *s, int fd)
{
	return http_server_listen(s->http, fd);
}

void server_drain(struct server *s)
{
	s->service.draining = true;
	http_server_drain(s->http);
}

bool server_idle(const struct server *s)
{
	return !s->service.n_exchanges && !http_server_connections(s->http);
}

void server_abort(struct server *s)
{
	exchange_abort(&s->service, NULL, "the daemon is shutting down");
}

bool server_is_starting(const struct server *s)
{
	for (unsigned i = 0; i < s->service.table->n; i++)
		if (s->service.table->all[i]->starting)
			return true;
	return false;
}

bool server_is_served(const struct served_model *m)
{
	bool loads = m->state == MODEL_LOADING || m->state == MODEL_COMPILING;

	return m->retired || m->state == MODEL_READY || m->state == MODEL_UNLOADED ||
	       m->state == MODEL_ASLEEP || m->state == MODEL_DRAINING || (loads && m->demanded);
}

void server_status(struct server *s, unsigned *ret_ready, unsigned *ret_failed, char *text,
		   size_t len)
{
	unsigned ready = 0, failed = 0;
	size_t at = 0;

	for (unsigned i = 0; i < s->service.table->n; i++) {
		const struct served_model *m = s->service.table->all[i];

		ready += server_is_served(m);
		failed += m->state == MODEL_FAILED && !m->config->on_demand;
		if (text && at < len) {
			int n = snprintf(text + at, len - at, "%s%s %s", i ? ", " : "",
					 m->config->names[0], model_state_name(m->state));

			at += n > 0 ? (size_t)n : 0;
		}
	}
	*ret_ready = ready;
	*ret_failed = failed;
}
