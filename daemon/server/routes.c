// SPDX-License-Identifier: MIT
/* The routes: simple ones are answered here, inference requests become an exchange. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "admin.h"
#include "config_internal.h"
#include "clock.h"
#include "descriptors.h"
#include "hostcopy.h"
#include "log.h"
#include "model_text.h"
#include "server_internal.h"

/* Lists its replicas and what runs on them. */
static void put_replicas(struct json_out *o, const struct served_model *m)
{
	json_key(o, "replicas");
	json_begin(o, '[');
	for (unsigned i = 0; i < m->n_replicas; i++) {
		const struct replica *r = &m->replicas[i];
		unsigned n = r->on_chip.group ? txda_group_size(r->on_chip.group) : 0;

		json_begin(o, '{');
		json_key(o, "state");
		json_string(o, model_state_name(r->state));
		json_key(o, "requests");
		json_uint(o, r->in_flight);
		json_key(o, "chips");
		json_begin(o, '[');
		for (unsigned k = 0; k < n; k++)
			json_uint(o, replica_chip(r, k));
		json_end(o, ']');
		json_end(o, '}');
	}
	json_end(o, ']');
}

static void put_option(struct json_out *o, const struct option_row *row, const void *base)
{
	struct option_shown shown = option_show(row, base);
	char name[OPTIONS_NAME_MAX];

	if (shown.as == OPTION_SHOWS_NOTHING)
		return;
	snprintf(name, sizeof(name), "%s", row->name);
	for (char *dash = name; (dash = strchr(dash, '-'));)
		*dash = '_';
	json_key(o, name);
	if (shown.as == OPTION_SHOWS_FLAG)
		json_bool(o, shown.number);
	else if (shown.as == OPTION_SHOWS_NUMBER)
		json_int(o, shown.number);
	else
		json_string_len(o, shown.text, shown.len);
}

/* Its configured limits; 0: the model's or the engine's default. */
static void put_options(struct json_out *o, const struct config_model *m)
{
	json_key(o, "options");
	json_begin(o, '{');
	for (unsigned i = 0; i < config_table.n; i++) {
		const struct option_row *row = &config_table.rows[i];

		if (row->scope == OPTION_EACH_MODEL || row->scope == OPTION_ONE_MODEL)
			put_option(o, row, m);
	}
	if (m->devices.n) {
		json_key(o, "device");
		json_begin(o, '[');
		for (unsigned i = 0; i < m->devices.n; i++)
			json_uint(o, m->devices.chips[i]);
		json_end(o, ']');
	}
	json_end(o, '}');
}

static void put_model(struct json_out *o, const struct served_model *m, const char *name)
{
	const struct replica *first = &m->replicas[0];
	double progress;
	const struct model_text *text = atomic_load(&((struct served_model *)m)->text);
	uint64_t idle = (clock_ns() - m->used_ns) / 1000000000u;

	json_begin(o, '{');
	json_key(o, "id");
	json_string(o, name);
	json_key(o, "object");
	json_string(o, "model");
	json_key(o, "created");
	json_int(o, m->created);
	json_key(o, "owned_by");
	json_string(o, "txda");
	json_key(o, "root");
	json_string(o, m->config->path);
	put_options(o, m->config);
	json_key(o, "max_model_len");
	if (text)
		json_uint(o, text->max_context);
	else
		json_null(o);
	json_key(o, "state");
	json_string(o, model_state_name(m->state));
	if (m->error[0]) {
		json_key(o, "error");
		json_string(o, m->error);
	}
	if (m->limits.vocab) {
		json_key(o, "vocab_size");
		json_uint(o, m->limits.vocab);
		json_key(o, "hidden_size");
		json_uint(o, m->limits.hidden);
	}
	json_key(o, "pinned");
	json_bool(o, m->pinned);
	json_key(o, "keep_alive");
	json_int(o, m->keep_alive);
	json_key(o, "idle_seconds");
	json_uint(o, model_in_flight(m) ? 0 : idle);
	put_replicas(o, m);
	json_key(o, "tp");
	json_uint(o, m->found.plan.tp ? m->found.plan.tp : m->spec.tp);
	json_key(o, "weight_bytes");
	json_uint(o, m->found.plan.weight_bytes);
	json_key(o, "kv_bytes");
	json_uint(o, model_kv_bytes(m));
	if (m->state == MODEL_READY) {
		json_key(o, "adopted");
		json_bool(o, first->on_chip.adopted);
	}
	if (m->state == MODEL_ASLEEP) {
		json_key(o, "host_bytes");
		json_uint(o, first->copy ? hostcopy_bytes(first->copy) : 0);
		json_key(o, "host_locked");
		json_bool(o, first->copy && hostcopy_locked(first->copy));
	}
	if (m->state == MODEL_LOADING || m->state == MODEL_COMPILING) {
		json_key(o, "phase");
		json_string(o, model_phase(m, &progress));
		json_key(o, "progress");
		json_number(o, progress);
	}
	json_end(o, '}');
}

static void get_models(struct server *s, struct http_conn *c)
{
	struct json_out *o = &s->service.out;

	json_out_clear(o);
	json_begin(o, '{');
	json_key(o, "object");
	json_string(o, "list");
	json_key(o, "data");
	json_begin(o, '[');
	for (unsigned i = 0; i < s->service.table->n; i++) {
		const struct served_model *m = s->service.table->all[i];
		bool shown = !m->retired && service_may_see(&s->service, c, m);

		for (unsigned k = 0; k < m->config->n_names && shown; k++)
			put_model(o, m, m->config->names[k]);
	}
	json_end(o, ']');
	json_end(o, '}');
	service_reply_out(&s->service, c, 200, NULL);
}

static void get_model(struct server *s, struct http_conn *c, const char *name)
{
	struct api_error e;
	struct served_model *m = service_find_model(&s->service, c, name, &e);

	if (!m) {
		service_reply_error(&s->service, c, &e, NULL);
		return;
	}
	json_out_clear(&s->service.out);
	put_model(&s->service.out, m, name);
	service_reply_out(&s->service, c, 200, NULL);
}

/* Retired models keep their name in the metrics until a model added later takes it. */
static bool has_its_name(const struct models *t, unsigned i)
{
	for (unsigned k = i + 1; k < t->n; k++)
		if (!strcmp(t->all[k]->config->names[0], t->all[i]->config->names[0]))
			return false;
	return true;
}

static void get_health(struct server *s, struct http_conn *c)
{
	struct json_out *o = &s->service.out;
	bool healthy = !s->service.draining;

	for (unsigned i = 0; i < s->service.table->n; i++)
		if (service_may_see(&s->service, c, s->service.table->all[i]))
			healthy = healthy && server_is_served(s->service.table->all[i]);
	json_out_clear(o);
	json_begin(o, '{');
	json_key(o, "status");
	json_string(o, s->service.draining ? "draining" : healthy ? "ok" : "unavailable");
	json_key(o, "models");
	json_begin(o, '{');
	for (unsigned i = 0; i < s->service.table->n; i++) {
		const struct served_model *m = s->service.table->all[i];

		if (!has_its_name(s->service.table, i) || !service_may_see(&s->service, c, m))
			continue;
		json_key(o, m->config->names[0]);
		json_begin(o, '{');
		json_key(o, "state");
		json_string(o, model_state_name(m->state));
		if (m->error[0]) {
			json_key(o, "error");
			json_string(o, m->error);
		}
		json_end(o, '}');
	}
	json_end(o, '}');
	json_end(o, '}');
	service_reply_out(&s->service, c, healthy ? 200 : 503,
			  healthy ? NULL : "Retry-After: 1\r\n");
}

/* For all users, or (not NULL) one. */
static void put_users(struct server *s, const struct account *only, struct json_out *o)
{
	const struct account *a;
	struct metrics_user *users;
	unsigned n = 0;

	TAILQ_FOREACH(a, &s->budget->accounts, link)
		n++;
	users = calloc(n, sizeof(*users));
	n = 0;
	TAILQ_FOREACH(a, &s->budget->accounts, link) {
		struct metrics_user *u = &users[n];

		if (!users || (only && a != only))
			continue;
		if (a->name[0])
			snprintf(u->user, sizeof(u->user), "%s", a->name);
		else
			snprintf(u->user, sizeof(u->user), "%lld", (long long)a->uid);
		u->connections = a->connections;
		u->requests = a->requests;
		u->held_bytes = a->held;
		u->images = a->images;
		u->pixels = a->pixels;
		u->prompt_tokens = a->prompt_tokens;
		u->generation_tokens = a->generation_tokens;
		u->images_read = a->images_read;
		u->loads = a->loads;
		u->waits = a->waits;
		u->surplus = a->surplus;
		u->unlogged = a->unlogged_total;
		memcpy(u->responses, a->responses, sizeof(u->responses));
		n++;
	}
	metrics_write_users(o, users, n);
	free(users);
}

/* Metrics over all users together. */
static void put_all_metrics(struct server *s, struct json_out *o)
{
	struct metrics_source sources[MODELS_MAX];
	struct engine_stats stats[MODELS_MAX];
	unsigned n = 0;

	memset(sources, 0, sizeof(sources));
	for (unsigned i = 0; i < s->service.table->n; i++) {
		const struct served_model *m = s->service.table->all[i];
		struct metrics_source *source = &sources[n];

		if (!has_its_name(s->service.table, i))
			continue;
		source->name = m->config->names[0];
		source->model = &m->metrics;
		source->ready = m->state == MODEL_READY;
		source->state = model_state_name(m->state);
		source->pinned = m->pinned;
		source->parked = m->n_parked;
		if (model_stats(m, &stats[n]))
			source->stats = &stats[n];
		for (unsigned k = 0; k < m->n_replicas; k++)
			source->replicas += m->replicas[k].state == MODEL_READY;
		source->weight_bytes = m->found.plan.weight_bytes;
		source->kv_bytes = model_kv_bytes(m);
		n++;
	}
	s->metrics.connections = http_server_connections(s->http);
	s->metrics.unknown = http_server_unknown(s->http);
	s->metrics.evicted = http_server_evicted(s->http);
	s->metrics.held_bytes = s->budget->used;
	s->metrics.kept_bytes = kept_unused(&s->budget->kept, NULL, NULL);
	s->metrics.loop_json_bytes = json_out_written();
	s->metrics.descriptors = descriptors_held(s->service.descriptors);
	metrics_write(o, sources, n, &s->metrics);
	chips_write_metrics(&s->chips, s->service.table->options.context, clock_ns(), o);
}

/* A user's own metrics; everything for administrators and monitoring users. */
static void get_metrics(struct server *s, struct http_conn *c)
{
	bool all = service_sees_all(&s->service, c);
	struct json_out *o = &s->service.out;

	json_out_clear(o);
	if (all)
		put_all_metrics(s, o);
	put_users(s, all ? NULL : http_conn_account(c), o);
	http_reply(c, 200, "text/plain; version=0.0.4; charset=utf-8", NULL, o->data,
		   o->failed ? 0 : o->len);
}

static void get_version(struct server *s, struct http_conn *c)
{
	json_out_clear(&s->service.out);
	json_begin(&s->service.out, '{');
	json_key(&s->service.out, "version");
	json_string(&s->service.out, TXDA_VERSION);
	json_end(&s->service.out, '}');
	service_reply_out(&s->service, c, 200, NULL);
}

/*
 * The body is JSON, whatever Content-Type says: requests of web pages are refused by other headers
 * (auth.c). Compression is not supported.
 */
static bool check_encoding(const struct http_request *r, struct api_error *e)
{
	const char *encoding = http_request_header(r, "Content-Encoding");

	if (!encoding || !*encoding || !strcasecmp(encoding, "identity"))
		return true;
	return api_error_set(e, 415, NULL, NULL,
			     "Content-Encoding is %.40s; only identity is supported", encoding);
}

static void post_inference(struct server *s, struct http_conn *c, const struct http_request *r,
			   enum api_kind kind)
{
	struct api_error e;

	if (s->service.draining) {
		api_error_set(&e, 503, "shutting_down", NULL, "the daemon is shutting down");
		service_reply_error(&s->service, c, &e, NULL);
	} else if (!check_encoding(r, &e)) {
		service_reply_error(&s->service, c, &e, NULL);
	} else {
		exchange_start(&s->service, c, kind);
	}
}

/* ---- the table ------------------------------------------------------------------------------- */

enum route_method { GET, POST };

struct route {
	const char *path;
	enum route_method method;
	/* A route of the table. */
	void (*get)(struct server *s, struct http_conn *c);
	void (*admin)(struct server *s, struct http_conn *c, const struct http_request *r);
	enum api_kind kind;
};

static const struct route routes[] = {
	{"/v1/chat/completions", POST, .kind = API_CHAT},
	{"/v1/completions", POST, .kind = API_COMPLETION},
	{"/v1/embeddings", POST, .kind = API_EMBEDDING},
	{"/v1/forward", POST, .kind = API_FORWARD},
	{"/tokenize", POST, .kind = API_TOKENIZE},
	{"/detokenize", POST, .kind = API_DETOKENIZE},
	{"/v1/models", GET, .get = get_models},
	{"/v1/models/", GET, .get = get_models},
	{"/health", GET, .get = get_health},
	{"/metrics", GET, .get = get_metrics},
	{"/version", GET, .get = get_version},
	{"/v1/models/load", POST, .admin = admin_load},
	{"/v1/models/wake", POST, .admin = admin_load},
	{"/v1/models/unload", POST, .admin = admin_unload},
	{"/v1/models/sleep", POST, .admin = admin_sleep},
	{"/v1/models/pin", POST, .admin = admin_pin},
	{"/v1/models/plan", POST, .admin = admin_plan},
	{"/v1/devices", GET, .admin = admin_devices},
	{"/v1/requests", GET, .admin = admin_requests},
	{"/v1/requests/cancel", POST, .admin = admin_cancel},
};

/* The route for a path and method, else some route for the path. */
static const struct route *find_route(const char *path, bool post)
{
	const struct route *found = NULL;

	for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++) {
		if (strcmp(path, routes[i].path))
			continue;
		found = &routes[i];
		if (post == (found->method == POST))
			break;
	}
	return found;
}

/* The method takes no body: the last part of the path is a model's name, which may be anything. */
static bool is_model_path(const char *path, bool get)
{
	return get && !strncmp(path, "/v1/models/", 11) && path[11];
}

static void refuse_method(struct server *s, struct http_conn *c, const struct http_request *r,
			  bool takes_post)
{
	struct api_error e;

	api_error_set(&e, 405, "method_not_allowed", NULL, "%.200s takes %s, not %s", r->path,
		      takes_post ? "POST" : "GET", r->method);
	service_reply_error(&s->service, c, &e,
			    takes_post ? "Allow: POST\r\n" : "Allow: GET, HEAD\r\n");
}

void server_route(struct server *s, struct http_conn *c, const struct http_request *r)
{
	bool post = !strcmp(r->method, "POST"),
	     get = !strcmp(r->method, "GET") || !strcmp(r->method, "HEAD");
	const struct route *route = find_route(r->path, post);
	bool model_path = !strncmp(r->path, "/v1/models/", 11);
	struct api_error e;

	log_debug("%s %s from user %s, pid %d", r->method, r->path, service_user(c).text,
		  (int)http_conn_peer(c)->pid);
	if (!service_permits(&s->service, c)) {
		api_error_set(&e, 403, "not_permitted", NULL, "user %s may not use this daemon",
			      service_user(c).text);
		service_reply_error(&s->service, c, &e, NULL);
	} else if (is_model_path(r->path, get) && (!route || route->method == POST)) {
		get_model(s, c, r->path + 11);
	} else if (!route && !model_path) {
		api_error_set(&e, 404, "not_found", NULL, "there is nothing at %.200s", r->path);
		service_reply_error(&s->service, c, &e, NULL);
	} else if (!route || (route->method == POST ? !post : !get)) {
		refuse_method(s, c, r, route && route->method == POST);
	} else if (route->get) {
		route->get(s, c);
	} else if (route->admin) {
		route->admin(s, c, r);
	} else {
		post_inference(s, c, r, route->kind);
	}
}
