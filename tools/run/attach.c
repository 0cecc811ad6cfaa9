// SPDX-License-Identifier: MIT
#include "attach.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client.h"
#include "interrupt.h"
#include "owned.h"
#include "show.h"

#define MAX_EVENT 16384 /* bytes of a line about a load's progress */

/* As owned_find(). */
static int find_files(const char *dir, char *err, size_t errlen)
{
	int r = owned_find(dir, "config.json", err, errlen);

	return r ? r : owned_find(dir, "model_info.json", err, errlen);
}

bool attach_is_directory(const char *word)
{
	bool path = *word == '/' || !strncmp(word, "./", 2) || !strncmp(word, "../", 3) ||
		    !strcmp(word, ".") || !strcmp(word, "..");
	char why[400];
	int found;

	/* A nonexistent path with spaces is a prompt that begins like a path. */
	if (path && (!strpbrk(word, " \t\n") || !access(word, F_OK)))
		return true;
	/* A directory whose files cannot be read is one; a prompt may also be a file's name, or long. */
	found = find_files(word, why, sizeof(why));
	return found && found != -ENOTDIR && found != -ENAMETOOLONG;
}

/* ---- a running daemon ------------------------------------------------------------------------ */

/*
 * Whether a path reported by the daemon is @wanted. A relative one refers to the daemon's
 * directory.
 */
static bool same_directory(const struct client *c, const char *root, const struct stat *wanted)
{
	struct ucred peer = {0};
	socklen_t len = sizeof(peer);
	char path[4096 + 32];
	struct stat st;

	if (*root == '/')
		snprintf(path, sizeof(path), "%s", root);
	else if (!getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) && peer.pid > 0)
		snprintf(path, sizeof(path), "/proc/%d/cwd/%s", (int)peer.pid, root);
	else
		return false;
	return !stat(path, &st) && st.st_dev == wanted->st_dev && st.st_ino == wanted->st_ino;
}

/*
 * Finds the daemon's name for a directory (@wanted NULL: its first model), and whether it is ready.
 * 0: found; -ENOENT: it serves other models; other errors: of the connection, or -EPROTO.
 */
static int find_model(const char *socket, enum client_limit limit, const struct stat *wanted,
		      char **ret_name, bool *ret_ready)
{
	struct client *c = malloc(sizeof(*c));
	const cJSON *model, *id, *root, *state;
	cJSON *json = NULL;
	int r = c ? client_open(c, socket, limit) : -ENOMEM;

	if (r) {
		/* -ENOENT is about the model; without a socket file nobody listens either. */
		free(c);
		return r == -ENOENT ? -ECONNREFUSED : r;
	}
	r = client_request(c, "/v1/models", NULL, 0);
	if (!r)
		json = client_read_json(c);
	if (!r && (!json || c->status != 200))
		r = interrupted() ? -EINTR : c->status == 403 ? -EACCES : -EPROTO;
	if (!r)
		r = -ENOENT;
	cJSON_ArrayForEach(model, cJSON_GetObjectItemCaseSensitive(json, "data")) {
		id = cJSON_GetObjectItemCaseSensitive(model, "id");
		root = cJSON_GetObjectItemCaseSensitive(model, "root");
		state = cJSON_GetObjectItemCaseSensitive(model, "state");
		if (r != -ENOENT || !cJSON_IsString(id) || !cJSON_IsString(root) ||
		    (wanted && !same_directory(c, root->valuestring, wanted)))
			continue;
		*ret_name = strdup(id->valuestring);
		*ret_ready = cJSON_IsString(state) && !strcmp(state->valuestring, "ready");
		r = *ret_name ? 0 : -ENOMEM;
	}
	cJSON_Delete(json);
	client_close(c);
	free(c);
	return r;
}

/* ---- the load -------------------------------------------------------------------------------- */

/* An event of the load: 1: in progress, 0: ready, -EIO: failed, which was reported. */
static int take_event(const char *line, const char *title)
{
	cJSON *event = cJSON_Parse(line);
	const cJSON *state = cJSON_GetObjectItemCaseSensitive(event, "state");
	const cJSON *phase = cJSON_GetObjectItemCaseSensitive(event, "phase");
	const cJSON *part = cJSON_GetObjectItemCaseSensitive(event, "progress");
	const cJSON *error = cJSON_GetObjectItemCaseSensitive(event, "error");
	int r = 1;

	if (cJSON_IsString(state) && !strcmp(state->valuestring, "ready")) {
		r = 0;
	} else if (cJSON_IsString(error)) {
		show_progress_end();
		fprintf(stderr, "txda-run: ");
		show_text(stderr, error->valuestring);
		fputc('\n', stderr);
		r = -EIO;
	} else {
		show_progress(title, cJSON_IsString(phase) ? phase->valuestring : "loading",
			      cJSON_IsNumber(part) ? part->valuedouble : 0);
	}
	cJSON_Delete(event);
	return r;
}

/* Reads events up to the last one. Returns as take_event(); -EPIPE: the stream was cut off. */
static int follow(struct client *c, const char *title)
{
	char line[MAX_EVENT];
	size_t n = 0;
	int r = 1;

	while (r > 0) {
		char ch;
		long got = client_read(c, &ch, 1);

		if (got <= 0)
			return got ? (int)got : -EPIPE;
		if (ch == '\n') {
			line[n] = 0;
			n = 0;
			r = take_event(line, title);
		} else if (n + 1 < sizeof(line)) {
			line[n++] = ch;
		} else {
			return -EPROTO;
		}
	}
	return r;
}

/* Requests the load and shows its progress. Without permission the first request loads it. */
static int load(const char *socket, const char *model, const char *title)
{
	struct client *c = malloc(sizeof(*c));
	cJSON *request = cJSON_CreateObject();
	char *body;
	int r;

	cJSON_AddStringToObject(request, "model", model);
	cJSON_AddTrueToObject(request, "stream");
	body = cJSON_PrintUnformatted(request);
	cJSON_Delete(request);
	r = c && body ? client_open(c, socket, CLIENT_NO_LIMIT) : -ENOMEM;
	if (!r) {
		r = client_request(c, "/v1/models/load", body, strlen(body));
		if (!r && c->status == 200) {
			r = follow(c, title);
		} else if (!r && c->status != 403) {
			cJSON *answer = client_read_json(c);

			ask_report_answer(answer, c->status);
			cJSON_Delete(answer);
			r = -EIO;
		}
		client_close(c);
	}
	show_progress_end();
	cJSON_free(body);
	free(c);
	return r;
}

/* ---- both ------------------------------------------------------------------------------------ */

/* Besides the results of attach(): the running daemon does not have the model. */
enum { ELSEWHERE = 2 };

static int attach_running(const struct attach_options *o, struct ask_options *ask,
			  const struct stat *dir, struct attachment *a)
{
	bool ready = false;
	int r = find_model(ask->socket, CLIENT_SHORT_MS, dir, &a->model, &ready);

	if (!r && !ready)
		r = load(ask->socket, a->model, a->title);
	if (!r) {
		ask->model = a->model;
		return 0;
	}
	if (r == -EINTR)
		return 130;
	if (a->model) {
		if (r != -EIO)
			ask_report_connect(ask->socket, r);
		return 1;
	}
	if (o->socket_given && r != -ENOENT) {
		ask_report_connect(ask->socket, r);
		return 1;
	}
	if (r == -ENOENT)
		fprintf(stderr,
			"The daemon on %s does not serve %s: this starts a private one for it.\n",
			ask->socket, o->dir);
	else if (r != -ECONNREFUSED)
		fprintf(stderr,
			"The daemon on %s is not to be used (%s): this starts a private one.\n",
			ask->socket, strerror(-r));
	return ELSEWHERE;
}

static int attach_private(const struct attach_options *o, struct ask_options *ask, const char *path,
			  struct attachment *a)
{
	bool ready;
	int r;

	show_progress(a->title, "starting", 0);
	if (private_start(&a->daemon, path, o->daemon_options))
		return 1;
	ask->private = true;
	ask->socket = a->daemon.socket;
	/* It answers when it has started. */
	r = find_model(ask->socket, CLIENT_NO_LIMIT, NULL, &a->model, &ready);
	if (!r)
		r = load(ask->socket, a->model, a->title);
	show_progress_end();
	if (!r || r == -EINTR)
		return r ? 130 : 0;
	if (r != -EIO && !private_failed(&a->daemon))
		fprintf(stderr, "txda-run: the private daemon does not answer: %s\n", strerror(-r));
	return 1;
}

int attach(const struct attach_options *o, struct ask_options *ask, struct attachment *ret)
{
	char *path = realpath(o->dir, NULL);
	int r = ELSEWHERE, found;
	char why[400];
	struct stat st;

	*ret = (struct attachment){.daemon = {.pid_fd = -1, .log_fd = -1, .socket_fd = -1}};
	if (!path || stat(path, &st)) {
		fprintf(stderr, "txda-run: %s: %s\n", o->dir, strerror(errno));
	} else if (!S_ISDIR(st.st_mode)) {
		fprintf(stderr, "txda-run: %s is not a directory\n", o->dir);
	} else if ((found = find_files(path, why, sizeof(why))) < 0) {
		fprintf(stderr, "txda-run: %s\n", why);
	} else if (!found) {
		fprintf(stderr,
			"txda-run: %s is not a model: it has neither a config.json (Hugging Face) "
			"nor a model_info.json (txda-compile)\n",
			o->dir);
	} else {
		ret->title = strdup(strrchr(path, '/') + 1);
		if (!ret->title)
			r = 1;
		if (r == ELSEWHERE && !o->private)
			r = attach_running(o, ask, &st, ret);
		if (r == ELSEWHERE)
			r = attach_private(o, ask, path, ret);
		free(path);
		return r;
	}
	free(path);
	return 1;
}

void detach(struct attachment *a)
{
	private_stop(&a->daemon);
	free(a->model);
	free(a->title);
}
