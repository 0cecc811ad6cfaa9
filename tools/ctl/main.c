// SPDX-License-Identifier: MIT
/* txdactl: loads, unloads and lists the models of txdad. */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "show.h"
#include "terminal.h"
#include "tool_line.h"
#include "tool_run.h"

#define MAX_ANSWER ((size_t)64 << 20)

static const char help[] =
	"Usage: txdactl [OPTION...] COMMAND\n"
	"Loads, unloads and lists the models of txdad. All commands except models, health, "
	"requests and cancel\n"
	"need an administrator of the daemon.\n"
	"\n"
	"  txdactl models              list models, their state, memory and chips\n"
	"  txdactl health              whether all models are ready, as text and exit status\n"
	"  txdactl load MODEL          load it, showing progress; idle models are evicted to make "
	"room\n"
	"  txdactl wake MODEL          load it again after sleep\n"
	"  txdactl unload MODEL        take it off the chips when its requests have finished\n"
	"  txdactl sleep MODEL         the same, but keep its weights in host memory\n"
	"  txdactl pin MODEL           never evict it or unload it when idle\n"
	"  txdactl unpin MODEL         undo pin\n"
	"  txdactl plan MODEL          what a load would need and whether it fits; compiles a "
	"checkpoint\n"
	"  txdactl devices             list chips, their memory and models\n"
	"  txdactl requests            list requests in progress\n"
	"  txdactl cancel ID           cancel a request\n"
	"\n"
	"  --socket PATH      default: $TXDA_SOCKET, $XDG_RUNTIME_DIR/txda.sock or "
	"/run/txda/txda.sock\n"
	"  --keep-alive TIME  load, wake: idle time until the model is unloaded: 90, 5m, 2h, or -1 "
	"for never\n"
	"  --no-wait          load, wake: return at once\n"
	"  --force            unload, sleep: abort running requests\n"
	"  --json             print the daemon's JSON answers unchanged\n"
	"  -h, --help\n"
	"  -V, --version\n";

enum option_id { OPT_SOCKET = 256, OPT_KEEP_ALIVE, OPT_NO_WAIT, OPT_FORCE, OPT_JSON };

static const struct option options[] = {
	{"socket", required_argument, NULL, OPT_SOCKET},
	{"keep-alive", required_argument, NULL, OPT_KEEP_ALIVE},
	{"no-wait", no_argument, NULL, OPT_NO_WAIT},
	{"force", no_argument, NULL, OPT_FORCE},
	{"json", no_argument, NULL, OPT_JSON},
	TOOL_OPTIONS_END,
};

static struct tool_line line = TOOL_LINE("txdactl", help, options, "");

struct settings {
	const char *socket, *keep_alive;
	bool no_wait, force, json;
};

enum argument { NO_ARGUMENT, MODEL, REQUEST };

static const struct command {
	const char *name, *path;
	enum argument argument;
	void (*show)(const cJSON *answer);
} commands[] = {
	{"models", "/v1/models", NO_ARGUMENT, show_models},
	{"health", "/health", NO_ARGUMENT, show_health},
	{"load", "/v1/models/load", MODEL, NULL},
	{"wake", "/v1/models/wake", MODEL, NULL},
	{"unload", "/v1/models/unload", MODEL, show_state},
	{"sleep", "/v1/models/sleep", MODEL, show_state},
	{"pin", "/v1/models/pin", MODEL, show_state},
	{"unpin", "/v1/models/pin", MODEL, show_state},
	{"plan", "/v1/models/plan", MODEL, show_plan},
	{"devices", "/v1/devices", NO_ARGUMENT, show_devices},
	{"requests", "/v1/requests", NO_ARGUMENT, show_requests},
	{"cancel", "/v1/requests/cancel", REQUEST, show_state},
};

/* ---- answers --------------------------------------------------------------------------------- */

static int complain_connect(const char *path, int error)
{
	client_report("txdactl", path, error);
	return 1;
}

static int complain_error(const cJSON *error, int status)
{
	const char *message = show_text(error, "message");

	fprintf(stderr, "txdactl: %s\n", *message ? message : "the daemon refused");
	return status == 403 ? 77 : 1;
}

/* The rest of the answer as a string to be freed; NULL after an error, which was reported. */
static char *read_all(struct client *c)
{
	struct text_buf text = {0};
	int r = client_read_all(c, MAX_ANSWER, &text);

	if (!r)
		return text.data;
	fprintf(stderr, "txdactl: the answer %s\n",
		r == -EFBIG	  ? "is too long"
		: r == -ETIMEDOUT ? "does not come to its end"
		: r == -ENOMEM	  ? "does not fit into memory"
				  : "was cut off");
	free(text.data);
	return NULL;
}

static int show_answer(struct client *c, const struct settings *s, const struct command *command)
{
	char *text = read_all(c);
	cJSON *answer = text ? cJSON_Parse(text) : NULL;
	const cJSON *error = cJSON_GetObjectItemCaseSensitive(answer, "error");
	int status = 0;

	if (text && !answer) {
		fprintf(stderr, "txdactl: the daemon's answer is not JSON\n");
		status = 1;
	} else if (!text || error || (c->status >= 400 && command->show != show_health)) {
		status = text ? complain_error(error, c->status) : 1;
	} else {
		/* Unhealthy models still report their state. */
		status = c->status >= 400;
		if (s->json)
			puts(text);
		else
			command->show(answer);
	}
	cJSON_Delete(answer);
	free(text);
	return status;
}

/* ---- progress of a load ---------------------------------------------------------------------- */

/* One line of the stream; true: the last state was ready. */
static bool show_progress(const char *text, const struct settings *s, bool tty)
{
	cJSON *event = cJSON_Parse(text);
	const char *state = show_text(event, "state");
	bool ready = !strcmp(state, "ready");

	if (s->json) {
		puts(text);
	} else if (*show_text(event, "phase")) {
		fprintf(stderr, "%s%s %.0f%%%s", tty ? "\r\033[K" : "", show_text(event, "phase"),
			show_number(event, "progress") * 100, tty ? "" : "\n");
	} else if (ready) {
		/* The line of progress is on standard error, whatever standard output is. */
		fputs(tty ? "\r\033[K" : "", stderr);
		printf("%s: ready after %.1f s\n", show_text(event, "model"),
		       show_number(event, "load_seconds"));
	} else if (strcmp(state, "unloading")) {
		fprintf(stderr, "%stxdactl: %s: %s\n", tty ? "\r\033[K" : "", state,
			show_text(event, "error"));
	}
	fflush(stdout);
	cJSON_Delete(event);
	return ready;
}

static int follow_load(struct client *c, const struct settings *s)
{
	bool tty = terminal_is(stderr), ready = false;
	char text[4096];
	size_t len = 0;
	long n;

	while ((n = client_read(c, text + len, sizeof(text) - 1 - len)) > 0) {
		char *end;

		len += (size_t)n;
		text[len] = '\0';
		while ((end = strchr(text, '\n'))) {
			*end = '\0';
			ready = show_progress(text, s, tty);
			len -= (size_t)(end + 1 - text);
			memmove(text, end + 1, len + 1);
		}
		if (len == sizeof(text) - 1) {
			fprintf(stderr, "txdactl: a line of the answer is longer than %zu bytes\n",
				sizeof(text) - 1);
			return 1;
		}
	}
	if (n < 0) {
		fprintf(stderr, "txdactl: the answer was cut off\n");
		return 1;
	}
	return ready ? 0 : 1;
}

/* ---- commands -------------------------------------------------------------------------------- */

static cJSON *make_body(const struct settings *s, const struct command *command,
			const char *argument)
{
	cJSON *body = cJSON_CreateObject();
	bool load = !command->show;

	cJSON_AddStringToObject(body, command->argument == MODEL ? "model" : "id", argument);
	if (load && s->no_wait)
		cJSON_AddFalseToObject(body, "wait");
	else if (load)
		cJSON_AddTrueToObject(body, "stream");
	if (load && s->keep_alive)
		cJSON_AddStringToObject(body, "keep_alive", s->keep_alive);
	if (s->force)
		cJSON_AddTrueToObject(body, "force");
	if (!strcmp(command->name, "plan"))
		cJSON_AddTrueToObject(body, "compile");
	if (!strcmp(command->name, "unpin"))
		cJSON_AddFalseToObject(body, "pinned");
	return body;
}

static int run(const struct settings *s, const struct command *command, const char *argument)
{
	static const struct command after_load = {.show = show_state};
	cJSON *body = argument ? make_body(s, command, argument) : NULL;
	char *text = body ? cJSON_PrintUnformatted(body) : NULL;
	/* A load, and a plan that compiles, take their time; the rest is answered at once. */
	bool waits = !command->show || command->show == show_plan;
	enum client_limit limit = waits ? CLIENT_NO_LIMIT : CLIENT_SHORT_MS;
	struct client c;
	int r = body && !text ? -ENOMEM : client_open(&c, s->socket, limit);

	cJSON_Delete(body);
	if (!r) {
		r = client_request(&c, command->path, text, text ? strlen(text) : 0);
		if (r)
			client_close(&c);
	}
	free(text);
	if (r)
		return complain_connect(s->socket, r);
	if (!command->show && c.status == 200 && !s->no_wait)
		r = follow_load(&c, s);
	else
		r = show_answer(&c, s, command->show ? command : &after_load);
	client_close(&c);
	return r;
}

/* An option that the command would ignore, or NULL. */
static const char *misplaced(const struct settings *s, const struct command *command)
{
	bool load = !command->show;
	bool unload = !strcmp(command->name, "unload") || !strcmp(command->name, "sleep");

	return s->keep_alive && !load ? "--keep-alive"
	       : s->no_wait && !load  ? "--no-wait"
	       : s->force && !unload  ? "--force"
				      : NULL;
}

static int run_tool(int argc, char **argv)
{
	struct settings s = {.socket = client_default_socket()};
	const struct command *command = NULL;
	int id;

	signal(SIGPIPE, SIG_IGN);
	while ((id = tool_option(&line, argc, argv)) > 0) {
		switch (id) {
		case OPT_SOCKET: s.socket = line.value; break;
		case OPT_KEEP_ALIVE: s.keep_alive = line.value; break;
		case OPT_NO_WAIT: s.no_wait = true; break;
		case OPT_FORCE: s.force = true; break;
		default: s.json = true; break;
		}
	}
	if (id < 0)
		return line.status;
	if (!line.n_words)
		return tool_refuse(&line, "no command is given");
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		if (!strcmp(line.words[0], commands[i].name))
			command = &commands[i];
	if (!command)
		return tool_refuse(&line, "unknown command '%s'", line.words[0]);
	if (line.n_words - 1 != (command->argument != NO_ARGUMENT))
		return tool_refuse(&line,
				   command->argument == NO_ARGUMENT ? "too many arguments for '%s'"
				   : command->argument == MODEL ? "there must be one MODEL for '%s'"
								: "there must be one ID for '%s'",
				   command->name);
	if (misplaced(&s, command))
		return tool_refuse(&line, "%s has no option '%s'", command->name,
				   misplaced(&s, command));
	return run(&s, command, command->argument != NO_ARGUMENT ? line.words[1] : NULL);
}

int main(int argc, char **argv)
{
	return tool_run("txdactl", run_tool, argc, argv, EXIT_FAILURE);
}
