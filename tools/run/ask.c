// SPDX-License-Identifier: MIT
#include "ask.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "clock.h"
#include "interrupt.h"
#include "show.h"
#include "terminal.h"

#define MAX_LINE     ((size_t)16 << 20) /* of an event, or an error */
#define LOAD_SECONDS 600

struct answer {
	const struct ask_options *options;
	struct text_buf text;	      /* all that was written */
	struct text_buf line;	      /* of the event stream, under construction */
	double asked, first, last;    /* seconds */
	double tokens, prompt_tokens; /* of the usage; -1: not known */
	bool done, failed;
};

static void complain_error(const cJSON *error)
{
	const cJSON *message = cJSON_GetObjectItemCaseSensitive(error, "message");

	fputs("txda-run: ", stderr);
	show_text(stderr, cJSON_IsString(message)
				  ? message->valuestring
				  : "the daemon reports an error without a message");
	fputc('\n', stderr);
}

void ask_report_connect(const char *path, int error)
{
	client_report("txda-run", path, error);
	if (error == -ENOENT || error == -ECONNREFUSED)
		fprintf(stderr,
			"Start one with:  txdad --model NAME=PATH --socket %s\n"
			"or, installed:   systemctl start txdad\n"
			"or chat with a model's directory, without a daemon:  txda-run DIR\n",
			path);
}

void ask_report_answer(const cJSON *answer, int status)
{
	const cJSON *error = cJSON_GetObjectItemCaseSensitive(answer, "error");

	if (error)
		complain_error(error);
	else
		fprintf(stderr, "txda-run: the daemon answered with status %d\n", status);
}

/* ---- the request ----------------------------------------------------------------------------- */

static void add_raw(cJSON *body, const char *name, const char *value)
{
	if (*value)
		cJSON_AddRawToObject(body, name, value);
}

static char *make_body(const struct ask_options *o, const cJSON *messages)
{
	cJSON *body = cJSON_CreateObject(), *stream_options;
	char *text;

	if (o->model)
		cJSON_AddStringToObject(body, "model", o->model);
	cJSON_AddItemToObject(body, o->raw ? "prompt" : "messages",
			      cJSON_Duplicate(messages, true));
	cJSON_AddTrueToObject(body, "stream");
	stream_options = cJSON_AddObjectToObject(body, "stream_options");
	cJSON_AddTrueToObject(stream_options, "include_usage");
	add_raw(body, "max_tokens", o->max_tokens);
	add_raw(body, "temperature", o->temperature);
	add_raw(body, "top_p", o->top_p);
	add_raw(body, "top_k", o->top_k);
	add_raw(body, "seed", o->seed);
	text = cJSON_PrintUnformatted(body);
	cJSON_Delete(body);
	return text;
}

/* ---- the answer ------------------------------------------------------------------------------ */

static void take_usage(struct answer *a, const cJSON *usage)
{
	const cJSON *tokens = cJSON_GetObjectItemCaseSensitive(usage, "completion_tokens");
	const cJSON *prompt = cJSON_GetObjectItemCaseSensitive(usage, "prompt_tokens");

	if (cJSON_IsNumber(tokens))
		a->tokens = tokens->valuedouble;
	if (cJSON_IsNumber(prompt))
		a->prompt_tokens = prompt->valuedouble;
}

static void take_event(struct answer *a, const char *data)
{
	cJSON *event;
	const cJSON *choice, *text, *error;

	if (!strcmp(data, "[DONE]")) {
		a->done = true;
		return;
	}
	event = cJSON_Parse(data);
	error = cJSON_GetObjectItemCaseSensitive(event, "error");
	if (!event || error) {
		if (error)
			complain_error(error);
		else
			fprintf(stderr, "txda-run: the daemon sent an event that is not JSON\n");
		a->failed = true;
		cJSON_Delete(event);
		return;
	}
	take_usage(a, cJSON_GetObjectItemCaseSensitive(event, "usage"));
	choice = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(event, "choices"), 0);
	text = a->options->raw
		       ? cJSON_GetObjectItemCaseSensitive(choice, "text")
		       : cJSON_GetObjectItemCaseSensitive(
				 cJSON_GetObjectItemCaseSensitive(choice, "delta"), "content");
	if (cJSON_IsString(text) && *text->valuestring) {
		a->last = clock_s();
		if (a->first <= 0)
			a->first = a->last;
		if (a->text.len > MAX_LINE || !text_buf_add_string(&a->text, text->valuestring) ||
		    !text_buf_end(&a->text) || show_answer(text->valuestring))
			a->failed = true;
	}
	cJSON_Delete(event);
}

/* Cuts the stream into lines; those that begin with "data:" are events here. */
static bool take_bytes(struct answer *a, const char *data, size_t len)
{
	while (len && !a->failed && !a->done) {
		const char *end = memchr(data, '\n', len);
		size_t n = end ? (size_t)(end - data) : len;

		if (a->line.len + n > MAX_LINE || !text_buf_add(&a->line, data, n)) {
			fprintf(stderr, "txda-run: an event is longer than %zu bytes\n", MAX_LINE);
			return false;
		}
		if (!end)
			return true;
		if (a->line.len && a->line.data[a->line.len - 1] == '\r')
			a->line.len--;
		if (!text_buf_end(&a->line))
			return false;
		if (!strncmp(a->line.data, "data:", 5))
			take_event(a, a->line.data + 5 + strspn(a->line.data + 5, " "));
		a->line.len = 0;
		data += n + 1;
		len -= n + 1;
	}
	return !a->failed;
}

static int read_stream(struct client *c, struct answer *a)
{
	char buf[16384];
	long n;

	while (!a->done && (n = client_read(c, buf, sizeof(buf))) != 0) {
		if (n == -EINTR)
			return 130;
		if (n < 0) {
			fprintf(stderr, "\ntxda-run: the daemon aborted the answer: %s\n",
				strerror((int)-n));
			return ASK_LOST;
		}
		if (!take_bytes(a, buf, (size_t)n))
			return interrupted() ? 130 : 1;
	}
	return 0;
}

/* Handles an error answer; true if the model is loading, so that a retry makes sense. */
static bool take_error(struct client *c)
{
	cJSON *json = client_read_json(c);
	const cJSON *error = cJSON_GetObjectItemCaseSensitive(json, "error");
	const cJSON *code = cJSON_GetObjectItemCaseSensitive(error, "code");
	bool loading = cJSON_IsString(code) && !strcmp(code->valuestring, "model_loading");

	if (!loading && !interrupted())
		ask_report_answer(json, c->status);
	cJSON_Delete(json);
	return loading;
}

static int complain_begin(const struct ask_options *o, bool connected, int error)
{
	if (error == -EINTR)
		return 130;
	if (o->private)
		fprintf(stderr, "txda-run: the daemon no longer responds: %s\n", strerror(-error));
	else if (!connected || error == -ETIMEDOUT)
		ask_report_connect(o->socket, error);
	else
		fprintf(stderr, "txda-run: %s does not answer as txdad does: %s\n", o->socket,
			strerror(-error));
	return ASK_LOST;
}

/*
 * Connects and sends the request (NULL: a listing, which is short), retrying while the model loads.
 * 0: the stream begins.
 */
static int begin(const struct ask_options *o, struct client *c, const char *path, const char *body)
{
	double deadline = clock_s() + LOAD_SECONDS;
	bool said = false, loading;

	for (;;) {
		int r = client_open(c, o->socket, body ? CLIENT_NO_LIMIT : CLIENT_SHORT_MS);

		if (r)
			return complain_begin(o, false, r);
		r = client_request(c, path, body, body ? strlen(body) : 0);
		if (!r && c->status == 200)
			return 0;
		loading = !r && take_error(c);
		client_close(c);
		if (r)
			return complain_begin(o, true, r);
		if (interrupted())
			return 130;
		if (!loading || clock_s() > deadline)
			return 1;
		if (!said)
			fprintf(stderr, "txda-run: waiting for the model to load\n");
		said = true;
		interrupt_poll(-1, 0, 1000);
	}
}

static void print_stats(const struct answer *a)
{
	double spent = a->last - a->first;
	bool dim = terminal_has_colors(stderr);

	if (a->first <= 0) {
		fprintf(stderr, "no token after %.1f ms\n", (clock_s() - a->asked) * 1e3);
		return;
	}
	fprintf(stderr, "%sFTL %.1f ms", dim ? "\033[2m" : "", (a->first - a->asked) * 1e3);
	if (a->tokens > 1 && spent > 0)
		fprintf(stderr, ", TPS %.1f tokens/s", (a->tokens - 1) / spent);
	if (a->tokens >= 0)
		fprintf(stderr, " (%.0f prompt tokens, %.0f generated in %.2f s)", a->prompt_tokens,
			a->tokens, a->last - a->asked);
	fputs(dim ? "\033[m\n" : "\n", stderr);
}

int ask(const struct ask_options *o, const cJSON *messages, char **ret_text)
{
	struct answer a = {.options = o, .tokens = -1, .prompt_tokens = -1};
	struct client *c = malloc(sizeof(*c));
	char *body = make_body(o, messages);
	int r = 1;

	if (!c || !body) {
		fprintf(stderr, "txda-run: out of memory\n");
	} else {
		a.asked = clock_s();
		r = begin(o, c, o->raw ? "/v1/completions" : "/v1/chat/completions", body);
		if (!r) {
			r = read_stream(c, &a);
			client_close(c);
		}
		/* The terminal has shown ^C; show_answer() does nothing more. */
		if (interrupted() && isatty(STDOUT_FILENO))
			fputc('\n', stderr);
		else if (a.text.len && a.text.data[a.text.len - 1] != '\n')
			show_answer("\n");
		if (o->stats && a.asked > 0 && (!r || r == 130))
			print_stats(&a);
	}
	cJSON_free(body);
	free(c);
	free(a.line.data);
	if (ret_text)
		*ret_text = a.text.data;
	else
		free(a.text.data);
	return r;
}

int ask_models(const struct ask_options *o)
{
	struct client *c = malloc(sizeof(*c));
	const cJSON *model, *id;
	cJSON *json;
	int r = c ? begin(o, c, "/v1/models", NULL) : 1;

	if (!r) {
		json = client_read_json(c);
		client_close(c);
		cJSON_ArrayForEach(model, cJSON_GetObjectItemCaseSensitive(json, "data")) {
			id = cJSON_GetObjectItemCaseSensitive(model, "id");
			if (cJSON_IsString(id))
				puts(id->valuestring);
		}
		r = !json;
		if (r && !interrupted())
			fprintf(stderr, "txda-run: the daemon's list of models was cut off\n");
		cJSON_Delete(json);
	}
	free(c);
	return r;
}
