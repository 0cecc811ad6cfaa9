// SPDX-License-Identifier: MIT
#include "admin.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <event2/event.h>

#include "api_fields.h"
#include "api_params.h"
#include "api_value.h"
#include "exchange.h"
#include "json_strict.h"
#include "log.h"
#include "server_internal.h"

#define MAX_BODY ((size_t)64 << 10)
#define TICK_MS	 100

bool admin_check(struct server *s, struct http_conn *c)
{
	struct api_error e;

	if (service_is_admin(&s->service, c))
		return true;
	api_error_set(&e, 403, "not_permitted", NULL,
		      "user %s is not an administrator of this daemon", service_user(c).text);
	service_reply_error(&s->service, c, &e, NULL);
	return false;
}

/* Parses the body as an object with only these members; NULL: an error was answered. */
static cJSON *read_body(struct server *s, struct http_conn *c, const char *const *members)
{
	size_t len = 0;
	char *body = http_conn_take_body(c, &len), err[256];
	struct api_error e = {0};
	cJSON *root = NULL;

	if (len > MAX_BODY)
		api_error_set(&e, 413, NULL, NULL, "the body has %zu bytes; the limit is %zu", len,
			      MAX_BODY);
	else if (!(root = txda_json_parse(body ? body : "", len, err, sizeof(err))))
		api_error_set(&e, 400, NULL, NULL, "the body is not valid JSON: %s", err);
	else if (!cJSON_IsObject(root))
		api_error_set(&e, 400, NULL, NULL, "the body must be a JSON object");
	else if (api_check_duplicates(root, &e))
		api_fields_only(root, members, &e);
	free(body);
	if (!e.status)
		return root;
	cJSON_Delete(root);
	service_reply_error(&s->service, c, &e, NULL);
	return NULL;
}

/*
 * The body of an administrator's request and the model that it names; NULL: an error was answered.
 */
static struct served_model *read_request(struct server *s, struct http_conn *c,
					 const char *const *members, cJSON **ret_root)
{
	struct served_model *m = NULL;
	const char *name = NULL;
	struct api_error e = {0};
	cJSON *root;

	if (!admin_check(s, c))
		return NULL;
	root = read_body(s, c, members);
	if (!root)
		return NULL;
	if (!api_string(root, "model", &name, &e))
		;
	else if (!name)
		api_error_set(&e, 400, NULL, "model", "there must be a string \"model\"");
	else
		m = service_find_model(&s->service, c, name, &e);
	if (m) {
		*ret_root = root;
		return m;
	}
	service_reply_error(&s->service, c, &e, NULL);
	cJSON_Delete(root);
	return NULL;
}

/* Writes {"model", "state", ... without the closing brace. */
static void put_state(struct json_out *o, const struct served_model *m)
{
	json_begin(o, '{');
	json_key(o, "model");
	json_string(o, m->config->names[0]);
	json_key(o, "state");
	json_string(o, model_state_name(m->state));
}

static void reply_state(struct server *s, struct http_conn *c, const struct served_model *m)
{
	json_out_clear(&s->service.out);
	put_state(&s->service.out, m);
	json_key(&s->service.out, "pinned");
	json_bool(&s->service.out, m->pinned);
	json_key(&s->service.out, "keep_alive");
	json_int(&s->service.out, m->keep_alive);
	json_end(&s->service.out, '}');
	service_reply_out(&s->service, c, 200, NULL);
}

/*
 * ---- clients that wait for a load or a plan
 * ----------------------------------------------------------------
 */

struct admin_wait {
	struct conn_user user; /* first */
	struct admin_wait *next;
	struct server *server;
	struct http_conn *conn; /* NULL: disconnected, or answered */
	struct served_model *model;
	bool stream;
	bool planning;	/* waits for the compiler, not for the load */
	char told[512]; /* the last event sent */
};

static void on_gone(struct conn_user *u)
{
	((struct admin_wait *)u)->conn = NULL;
}

static void on_drained(struct conn_user *u)
{
	(void)u;
}

static void set_shutting_down(struct api_error *e)
{
	api_error_set(e, 503, "shutting_down", NULL, "the daemon is shutting down");
}

static void put_load_event(struct json_out *o, const struct served_model *m)
{
	double progress;

	put_state(o, m);
	if (m->state == MODEL_LOADING || m->state == MODEL_COMPILING) {
		json_key(o, "phase");
		json_string(o, model_phase(m, &progress));
		json_key(o, "progress");
		json_number(o, progress);
	}
	if (m->state == MODEL_READY) {
		json_key(o, "load_seconds");
		json_number(o, (double)m->replicas[0].load_ns / 1e9);
		json_key(o, "weight_bytes");
		json_uint(o, m->found.plan.weight_bytes);
		json_key(o, "kv_bytes");
		json_uint(o, model_kv_bytes(m));
	}
	if (m->error[0]) {
		json_key(o, "error");
		json_string(o, m->error);
	}
	json_end(o, '}');
}

/* Reports the progress of a load to a client; the conn is NULL after the last event. */
static void report_load(struct admin_wait *l)
{
	struct server *s = l->server;
	struct served_model *m = l->model;
	struct json_out *o = &s->service.out;
	bool goes_on = m->state == MODEL_LOADING || m->state == MODEL_COMPILING ||
		       (m->state == MODEL_DRAINING && m->demanded);
	struct api_error e;

	if (!goes_on && m->state != MODEL_READY && !l->stream) {
		if (s->service.draining)
			set_shutting_down(&e);
		else
			model_unavailable(m, &e);
		service_reply_error(&s->service, l->conn, &e, NULL);
		l->conn = NULL;
		return;
	}
	json_out_clear(o);
	put_load_event(o, m);
	if (l->stream) {
		json_raw(o, "\n", 1);
		if (!o->failed &&
		    (o->len >= sizeof(l->told) || strncmp(l->told, o->data, o->len))) {
			snprintf(l->told, sizeof(l->told), "%.*s", (int)o->len, o->data);
			if (!http_conn_congested(l->conn) || !goes_on)
				http_stream_write(l->conn, o->data, o->len);
		}
		if (!goes_on)
			http_stream_end(l->conn);
	} else if (!goes_on) {
		service_reply_out(&s->service, l->conn, 200, NULL);
	}
	if (!goes_on)
		l->conn = NULL;
}

static void free_wait(struct admin_wait *l)
{
	if (!l->planning)
		l->model->expected--;
	model_unuse(l->model);
	free(l);
}

static void report_plan(struct admin_wait *w);

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
	struct server *s = arg;
	struct admin_wait **link = &s->loads, *l;
	struct timeval tick = {.tv_usec = TICK_MS * 1000};

	(void)fd;
	(void)what;
	while ((l = *link)) {
		if (l->conn && l->planning)
			report_plan(l);
		else if (l->conn)
			report_load(l);
		if (l->conn) {
			link = &l->next;
			continue;
		}
		*link = l->next;
		free_wait(l);
	}
	if (s->loads)
		event_add(s->loads_event, &tick);
}

void admin_free_all(struct server *s)
{
	struct admin_wait *l;

	while ((l = s->loads)) {
		s->loads = l->next;
		free_wait(l);
	}
	if (s->loads_event)
		event_free(s->loads_event);
	s->loads_event = NULL;
}

/* A new waiter for @m; it is in the list, and checked by the tick. */
static struct admin_wait *new_wait(struct server *s, struct http_conn *c, struct served_model *m)
{
	struct admin_wait *l = calloc(1, sizeof(*l));

	if (!s->loads_event)
		s->loads_event = evtimer_new(s->base, on_tick, s);
	if (!l || !s->loads_event) {
		free(l);
		return NULL;
	}
	l->user = (struct conn_user){.gone = on_gone, .drained = on_drained};
	l->server = s;
	l->conn = c;
	l->model = m;
	l->next = s->loads;
	s->loads = l;
	model_use(m);
	event_active(s->loads_event, EV_TIMEOUT, 0);
	return l;
}

static bool await_load(struct server *s, struct http_conn *c, struct served_model *m, bool stream)
{
	struct admin_wait *l = new_wait(s, c, m);

	if (!l)
		return false;
	l->stream = stream;
	/* With a short keep_alive it would be unloaded before its client learns that it was loaded. */
	m->expected++;
	http_conn_set_user(c, &l->user);
	if (stream)
		http_stream_begin(c, 200, "application/x-ndjson", "Cache-Control: no-cache\r\n");
	return true;
}

void admin_load(struct server *s, struct http_conn *c, const struct http_request *r)
{
	static const char *const members[] = {"model", "wait", "stream", "keep_alive", NULL};
	bool wait = true, stream = false, given = false;
	struct api_error e = {0};
	struct served_model *m;
	int64_t keep_alive;
	cJSON *root;

	(void)r;
	m = read_request(s, c, members, &root);
	if (!m)
		return;
	if (api_bool(root, "wait", &wait, &e) && api_bool(root, "stream", &stream, &e))
		api_parse_keep_alive(root, &given, &keep_alive, &e);
	if (!e.status && stream && !wait)
		api_error_set(&e, 400, NULL, "wait",
			      "wait is false, but stream is true: a stream waits for the load");
	cJSON_Delete(root);
	if (!e.status && s->service.draining)
		set_shutting_down(&e);
	if (!e.status) {
		if (given)
			m->keep_alive = keep_alive;
		model_demand(m);
		if (!wait && !stream) {
			reply_state(s, c, m);
			return;
		}
		if (await_load(s, c, m, stream))
			return;
		api_error_set(&e, 500, NULL, NULL, "out of memory");
	}
	service_reply_error(&s->service, c, &e, NULL);
}

/* ---- unloading ------------------------------------------------------------------------------- */

static void leave(struct server *s, struct http_conn *c, bool sleep)
{
	static const char *const members[] = {"model", "force", NULL};
	struct api_error e = {0};
	struct served_model *m;
	bool force = false;
	cJSON *root;

	m = read_request(s, c, members, &root);
	if (!m)
		return;
	api_bool(root, "force", &force, &e);
	cJSON_Delete(root);
	if (!e.status && sleep && m->state != MODEL_READY && m->state != MODEL_ASLEEP &&
	    m->state != MODEL_DRAINING)
		api_error_set(&e, 409, "model_not_ready", "model",
			      "the model \"%.80s\" is %s; only one that is ready can sleep",
			      m->config->names[0], model_state_name(m->state));
	if (e.status) {
		service_reply_error(&s->service, c, &e, NULL);
		return;
	}
	model_unload(m, sleep, MODEL_BY_ADMIN);
	if (force)
		exchange_abort(&s->service, m,
			       "the request was ended because its model is being unloaded");
	reply_state(s, c, m);
}

void admin_unload(struct server *s, struct http_conn *c, const struct http_request *r)
{
	(void)r;
	leave(s, c, false);
}

void admin_sleep(struct server *s, struct http_conn *c, const struct http_request *r)
{
	(void)r;
	leave(s, c, true);
}

void admin_pin(struct server *s, struct http_conn *c, const struct http_request *r)
{
	static const char *const members[] = {"model", "pinned", NULL};
	struct api_error e = {0};
	struct served_model *m;
	bool pinned = true;
	cJSON *root;

	(void)r;
	m = read_request(s, c, members, &root);
	if (!m)
		return;
	if (api_bool(root, "pinned", &pinned, &e)) {
		m->pinned = pinned;
		reply_state(s, c, m);
	} else {
		service_reply_error(&s->service, c, &e, NULL);
	}
	cJSON_Delete(root);
}

/* ---- plans ----------------------------------------------------------------------------------- */

static void put_number(struct json_out *o, const char *key, uint64_t value)
{
	json_key(o, key);
	json_uint(o, value);
}

static void put_groups(struct json_out *o, const struct model_fit *plan)
{
	json_key(o, "groups");
	json_begin(o, '[');
	for (unsigned i = 0; i < plan->n_groups; i++) {
		const struct fit_group *g = &plan->groups[i];

		json_begin(o, '{');
		json_key(o, "chips");
		json_begin(o, '[');
		for (unsigned k = 0; k < g->n_chips; k++)
			json_uint(o, g->chips[k]);
		json_end(o, ']');
		put_number(o, "free_bytes", g->free_bytes);
		put_number(o, "total_bytes", g->total_bytes);
		put_number(o, "need_bytes", g->need_bytes);
		json_key(o, "lost");
		json_bool(o, g->lost);
		json_key(o, "has_replica");
		json_bool(o, g->taken);
		json_end(o, '}');
	}
	json_end(o, ']');
}

static void put_plan(struct json_out *o, const struct model_fit *plan, const char *why_not)
{
	json_key(o, "exact");
	json_bool(o, plan->exact);
	json_key(o, "resident");
	json_bool(o, plan->resident);
	json_key(o, "fits");
	json_bool(o, plan->fits);
	json_key(o, "fits_after_eviction");
	json_bool(o, plan->fits || plan->n_victims);
	json_key(o, "evict");
	json_begin(o, '[');
	for (unsigned i = 0; i < plan->n_victims; i++)
		json_string(o, plan->victims[i]->config->names[0]);
	json_end(o, ']');
	if (*why_not) {
		json_key(o, "reason");
		json_string(o, why_not);
	}
	put_number(o, "tp", plan->tp);
	json_key(o, "per_chip");
	json_begin(o, '{');
	put_number(o, "weight_bytes", plan->weight_bytes);
	put_number(o, "scratch_bytes", plan->scratch_bytes);
	put_number(o, "io_bytes", plan->io_bytes);
	put_number(o, "overhead_bytes", plan->overhead_bytes);
	put_number(o, "kv_block_bytes", plan->kv_block_bytes);
	put_number(o, "kv_blocks_min", plan->kv_blocks_min);
	put_number(o, "kv_blocks_max", plan->kv_blocks_max);
	put_number(o, "need_bytes", plan->need_bytes);
	json_end(o, '}');
	put_groups(o, plan);
}

static void reply_plan(struct server *s, struct http_conn *c, struct served_model *m)
{
	struct model_fit fit;
	char err[512] = "";

	models_fit(m, NULL, FIT_IDLE, &fit, err, sizeof(err));
	json_out_clear(&s->service.out);
	put_state(&s->service.out, m);
	put_plan(&s->service.out, &fit, err);
	json_end(&s->service.out, '}');
	service_reply_out(&s->service, c, 200, NULL);
}

/* Answers when the model was compiled for its plan, or failed to compile; the conn is NULL then. */
static void report_plan(struct admin_wait *w)
{
	struct served_model *m = w->model;
	struct api_error e;

	if (m->plan_wanted && !w->server->service.draining)
		return;
	if (m->plan_wanted)
		set_shutting_down(&e);
	else
		api_error_set(&e, 503, "model_failed", "model",
			      "the model \"%s\" could not be planned: %s", m->config->names[0],
			      m->plan_error);
	if (m->plan_wanted || m->plan_error[0])
		service_reply_error(&w->server->service, w->conn, &e, NULL);
	else
		reply_plan(w->server, w->conn, m);
	w->conn = NULL;
}

/* Waits for the compiler. False: there is nothing to wait for, or an error in @e. */
static bool await_plan(struct server *s, struct http_conn *c, struct served_model *m,
		       struct api_error *e)
{
	struct admin_wait *w;

	if (m->found.planned)
		return false;
	w = new_wait(s, c, m);
	if (!w)
		return api_error_set(e, 500, NULL, NULL, "out of memory");
	w->planning = true;
	http_conn_set_user(c, &w->user);
	model_want_plan(m);
	return true;
}

void admin_plan(struct server *s, struct http_conn *c, const struct http_request *r)
{
	static const char *const members[] = {"model", "compile", NULL};
	struct api_error e = {0};
	struct served_model *m;
	bool compile = false;
	cJSON *root;

	(void)r;
	m = read_request(s, c, members, &root);
	if (!m)
		return;
	api_bool(root, "compile", &compile, &e);
	cJSON_Delete(root);
	if (!e.status && compile && await_plan(s, c, m, &e))
		return;
	if (e.status)
		service_reply_error(&s->service, c, &e, NULL);
	else
		reply_plan(s, c, m);
}

/* ---- requests -------------------------------------------------------------------------------- */

void admin_cancel(struct server *s, struct http_conn *c, const struct http_request *r)
{
	static const char *const members[] = {"id", NULL};
	struct api_error e = {0};
	const char *id = NULL;
	cJSON *root = read_body(s, c, members);

	(void)r;
	if (!root)
		return;
	if (!api_string(root, "id", &id, &e))
		;
	else if (!id)
		api_error_set(&e, 400, NULL, "id", "there must be a string \"id\"");
	else if (!exchange_cancel(&s->service, id, http_conn_peer(c)->uid,
				  service_is_admin(&s->service, c)))
		api_error_set(&e, 404, "request_not_found", "id",
			      "there is no request \"%.60s\" of yours", id);
	if (e.status) {
		service_reply_error(&s->service, c, &e, NULL);
	} else {
		json_out_clear(&s->service.out);
		json_begin(&s->service.out, '{');
		json_key(&s->service.out, "id");
		json_string(&s->service.out, id);
		json_key(&s->service.out, "cancelled");
		json_bool(&s->service.out, true);
		json_end(&s->service.out, '}');
		service_reply_out(&s->service, c, 200, NULL);
	}
	cJSON_Delete(root);
}
