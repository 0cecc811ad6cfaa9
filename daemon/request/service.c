// SPDX-License-Identifier: MIT
#include "service.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define OUT_KEEP   ((size_t)1 << 20) /* larger buffers are not kept between answers */
#define MAX_GROUPS 256

void service_reply_out(struct service *s, struct http_conn *c, int status, const char *headers)
{
	struct json_out *o = &s->out;

	if (o->failed) {
		static const char text[] =
			"{\"error\":{\"message\":\"out of "
			"memory\",\"type\":\"server_error\",\"param\":null,\"code\":null}}";

		status = 500;
		http_reply(c, status, "application/json", NULL, text, sizeof(text) - 1);
	} else {
		http_reply(c, status, "application/json", headers, o->data, o->len);
	}
	if (o->cap > OUT_KEEP)
		json_out_free(o);
}

void service_reply_error(struct service *s, struct http_conn *c, const struct api_error *e,
			 const char *headers)
{
	char more[192], retry[48] = "";

	json_out_clear(&s->out);
	api_error_write(e, &s->out);
	if (e->retry_after)
		snprintf(retry, sizeof(retry), "Retry-After: %u\r\n", e->retry_after);
	/* OpenAI's clients repeat a request after any 409 or 5xx otherwise. */
	snprintf(more, sizeof(more), "%s%s%s", headers ? headers : "", retry,
		 e->final ? "X-Should-Retry: false\r\n" : "");
	service_reply_out(s, c, e->status, more);
}

static bool has_access(const struct access_list *list, const struct http_conn *c)
{
	const struct http_peer *peer = http_conn_peer(c);
	gid_t groups[MAX_GROUPS];
	int n;

	/* Over TCP nobody is treated as root: keys may have been sent unencrypted. */
	if (peer->key)
		return peer->key->admin || access_has(list, peer->uid, peer->gid, peer->key->groups,
						      peer->key->n_groups);
	if (!peer->uid || peer->uid == geteuid())
		return true;
	n = list->n_gids ? http_conn_groups(c, groups, MAX_GROUPS) : 0;
	return access_has(list, peer->uid, peer->gid, groups, n > 0 ? (unsigned)n : 0);
}

bool service_permits(const struct service *s, const struct http_conn *c)
{
	return access_is_empty(&s->config->access) || has_access(&s->config->access, c) ||
	       service_is_admin(s, c);
}

bool service_permits_model(const struct http_conn *c, const struct served_model *m)
{
	return access_is_empty(&m->config->access) || has_access(&m->config->access, c);
}

bool service_is_admin(const struct service *s, const struct http_conn *c)
{
	const struct http_peer *peer = http_conn_peer(c);

	/* A key gives administrator rights only if its line says so, whatever its account's are. */
	return peer->tcp ? peer->key && peer->key->admin : has_access(&s->config->admin, c);
}

bool service_sees_all(const struct service *s, const struct http_conn *c)
{
	return service_is_admin(s, c) ||
	       (!access_is_empty(&s->config->monitor) && has_access(&s->config->monitor, c));
}

struct user_text service_user(const struct http_conn *c)
{
	const struct http_peer *peer = http_conn_peer(c);
	struct user_text user;

	if (peer->key)
		snprintf(user.text, sizeof(user.text), "%s", peer->key->name);
	else
		snprintf(user.text, sizeof(user.text), "%lld", (long long)peer->uid);
	return user;
}

bool service_may_see(const struct service *s, const struct http_conn *c,
		     const struct served_model *m)
{
	return service_permits_model(c, m) || service_sees_all(s, c);
}

struct served_model *service_find_model(struct service *s, const struct http_conn *c,
					const char *name, struct api_error *e)
{
	char names[320] = "none";
	unsigned left_out = 0;
	size_t at = 0;

	for (unsigned i = 0; i < s->table->n; i++) {
		struct served_model *m = s->table->all[i];
		const struct config_model *config = m->config;

		if (m->retired || !(name ? service_may_see(s, c, m) : service_permits_model(c, m)))
			continue;
		for (unsigned k = 0; k < config->n_names; k++) {
			if (!name || !strcmp(config->names[k], name))
				return m;
			/* Whole names only, with room for how many are left out. */
			if (left_out || at + strlen(config->names[k]) > sizeof(names) - 24) {
				left_out++;
				continue;
			}
			at += (size_t)snprintf(names + at, sizeof(names) - at, "%s%s",
					       at ? ", " : "", config->names[k]);
		}
	}
	if (left_out)
		snprintf(names + at, sizeof(names) - at, "%s%u more", at ? " and " : "", left_out);
	api_error_set(e, 404, "model_not_found", "model",
		      "the model \"%.80s\" does not exist; served are: %s", name ? name : "",
		      names);
	return NULL;
}

void model_unavailable(const struct served_model *m, struct api_error *e)
{
	const char *name = m->config->names[0];

	/* A reload has replaced it by a model of the same name. */
	if (m->retired && models_find(m->table, name)) {
		api_error_set(e, 503, "model_loading", "model",
			      "the model \"%s\" is being replaced", name);
		e->retry_after = 2;
		return;
	}
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
	case MODEL_DRAINING:
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
