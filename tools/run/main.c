// SPDX-License-Identifier: MIT
/* txda-run: asks a model that txdad serves, once or in a chat. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ask.h"
#include "client.h"
#include "line.h"

#define MAX_PROMPT ((size_t)64 << 20)

static const char help[] =
	"Usage: txda-run [OPTION...] [PROMPT...]\n"
	"Asks a model that txdad serves and prints the answer as it is written. Without PROMPT it "
	"reads the prompt from standard input, or,\n"
	"on a terminal, begins a chat.\n"
	"\n"
	"  --socket PATH        default: $TXDA_SOCKET, $XDG_RUNTIME_DIR/txda.sock or "
	"/run/txda/txda.sock\n"
	"  --model NAME         default: the first one served\n"
	"  --list               print the names of the models that are served\n"
	"  -n, --max-tokens N   end after N tokens\n"
	"  --temperature X      0: always the likeliest token\n"
	"  --top-p X, --top-k N, --seed N\n"
	"  --system TEXT        instructions that come before the chat\n"
	"  --raw                continue the prompt as it is, without the model's chat template\n"
	"  --stats              print first-token latency (FTL) and tokens per second (TPS) on "
	"standard error\n"
	"  --help, --version\n"
	"\n"
	"In a chat: /clear forgets what was said, /exit or Ctrl-D ends, Ctrl-C stops an answer.\n";

enum option_id {
	OPT_SOCKET = 256,
	OPT_MODEL,
	OPT_LIST,
	OPT_TEMPERATURE,
	OPT_TOP_P,
	OPT_TOP_K,
	OPT_SEED,
	OPT_SYSTEM,
	OPT_RAW,
	OPT_STATS,
	OPT_HELP,
	OPT_VERSION,
};

static const struct option options[] = {
	{"socket", required_argument, NULL, OPT_SOCKET},
	{"model", required_argument, NULL, OPT_MODEL},
	{"list", no_argument, NULL, OPT_LIST},
	{"max-tokens", required_argument, NULL, 'n'},
	{"temperature", required_argument, NULL, OPT_TEMPERATURE},
	{"top-p", required_argument, NULL, OPT_TOP_P},
	{"top-k", required_argument, NULL, OPT_TOP_K},
	{"seed", required_argument, NULL, OPT_SEED},
	{"system", required_argument, NULL, OPT_SYSTEM},
	{"raw", no_argument, NULL, OPT_RAW},
	{"stats", no_argument, NULL, OPT_STATS},
	{"help", no_argument, NULL, OPT_HELP},
	{"version", no_argument, NULL, OPT_VERSION},
	{0},
};

static void on_interrupt(int number)
{
	(void)number;
	ask_stop = 1;
}

/* No SA_RESTART, so that reading ends. */
static void catch_interrupt(void)
{
	struct sigaction action = {.sa_handler = on_interrupt};

	sigaction(SIGINT, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
}

/* Numbers go into the request as they are: the daemon checks the range, here only the form. */
static const char *number(const char *name, const char *value)
{
	char *end;

	errno = 0;
	strtod(value, &end);
	if (end == value || *end || strspn(value, "0123456789+-.eE") != strlen(value) ||
	    *value == '+') {
		fprintf(stderr, "txda-run: --%s must be a number, not '%s'\n", name, value);
		return NULL;
	}
	return value;
}

static char *read_stdin(void)
{
	size_t len = 0, cap = 65536;
	char *text = malloc(cap);

	while (text) {
		size_t n = fread(text + len, 1, cap - len - 1, stdin);
		char *bigger;

		len += n;
		if (!n)
			break;
		if (cap - len > 1)
			continue;
		bigger = cap < MAX_PROMPT ? realloc(text, cap * 2) : NULL;
		if (!bigger) {
			fprintf(stderr, "txda-run: the prompt is longer than %zu bytes\n",
				MAX_PROMPT);
			free(text);
			return NULL;
		}
		text = bigger;
		cap *= 2;
	}
	if (text) {
		text[len] = 0;
		if (strlen(text) != len) {
			fprintf(stderr, "txda-run: the prompt holds a NUL byte\n");
			free(text);
			return NULL;
		}
	}
	return text;
}

static char *join_arguments(int n, char **words)
{
	size_t len = 1;
	char *text;

	for (int i = 0; i < n; i++)
		len += strlen(words[i]) + 1;
	text = calloc(1, len);
	for (int i = 0; text && i < n; i++) {
		if (i)
			strcat(text, " ");
		strcat(text, words[i]);
	}
	return text;
}

static void add_message(cJSON *messages, const char *role, const char *content)
{
	cJSON *message = cJSON_CreateObject();

	cJSON_AddStringToObject(message, "role", role);
	cJSON_AddStringToObject(message, "content", content);
	cJSON_AddItemToArray(messages, message);
}

static cJSON *new_messages(const struct ask_options *o)
{
	cJSON *messages = cJSON_CreateArray();

	if (o->system)
		add_message(messages, "system", o->system);
	return messages;
}

static int run_once(const struct ask_options *o, const char *prompt)
{
	cJSON *messages;
	int r;

	if (o->raw) {
		messages = cJSON_CreateString(prompt);
	} else {
		messages = new_messages(o);
		add_message(messages, "user", prompt);
	}
	r = ask(o, messages, NULL);
	cJSON_Delete(messages);
	return r;
}

/* One turn of the chat; what failed is forgotten, what was stopped is kept as far as it came. */
static void take_turn(const struct ask_options *o, cJSON *messages, const char *line)
{
	char *answer = NULL;

	add_message(messages, "user", line);
	if (ask(o, messages, &answer) == 1 || !answer)
		cJSON_DeleteItemFromArray(messages, cJSON_GetArraySize(messages) - 1);
	else
		add_message(messages, "assistant", answer);
	free(answer);
}

static int run_chat(const struct ask_options *o)
{
	cJSON *messages = new_messages(o);
	char *line;

	fprintf(stderr, "/clear forgets what was said, /exit ends, Ctrl-C stops an answer.\n");
	while ((line = line_read("> "))) {
		ask_stop = 0;
		if (!strcmp(line, "/exit") || !strcmp(line, "/quit") || !strcmp(line, "/bye")) {
			free(line);
			break;
		}
		if (!strcmp(line, "/clear")) {
			cJSON_Delete(messages);
			messages = new_messages(o);
			fprintf(stderr, "Forgotten.\n");
		} else if (*line == '/') {
			fprintf(stderr, "There is no %s: /clear and /exit are all there is.\n",
				line);
		} else if (*line) {
			if (o->raw) {
				cJSON *prompt = cJSON_CreateString(line);

				ask(o, prompt, NULL);
				cJSON_Delete(prompt);
			} else {
				take_turn(o, messages, line);
			}
		}
		free(line);
	}
	cJSON_Delete(messages);
	return 0;
}

/* -1: go on; else the exit status. */
static int parse(int argc, char **argv, struct ask_options *o, bool *ret_list)
{
	int id, index = 0;

	while ((id = getopt_long(argc, argv, "n:", options, &index)) != -1) {
		const char **where = NULL, *name = "max-tokens";

		switch (id) {
		case OPT_SOCKET: o->socket = optarg; break;
		case OPT_MODEL: o->model = optarg; break;
		case OPT_LIST: *ret_list = true; break;
		case OPT_SYSTEM: o->system = optarg; break;
		case OPT_RAW: o->raw = true; break;
		case OPT_STATS: o->stats = true; break;
		case 'n': where = &o->max_tokens; break;
		case OPT_TEMPERATURE:
			where = &o->temperature;
			name = "temperature";
			break;
		case OPT_TOP_P:
			where = &o->top_p;
			name = "top-p";
			break;
		case OPT_TOP_K:
			where = &o->top_k;
			name = "top-k";
			break;
		case OPT_SEED:
			where = &o->seed;
			name = "seed";
			break;
		case OPT_HELP: fputs(help, stdout); return 0;
		case OPT_VERSION: puts("txda-run " TXDA_VERSION); return 0;
		default: fputs("Try 'txda-run --help'.\n", stderr); return 2;
		}
		if (where && !(*where = number(name, optarg)))
			return 2;
	}
	return -1;
}

int main(int argc, char **argv)
{
	struct ask_options o = {.socket = client_default_socket()};
	bool list = false;
	char *prompt;
	int r = parse(argc, argv, &o, &list);

	if (r >= 0)
		return r;
	if (o.raw && o.system) {
		fprintf(stderr,
			"txda-run: --raw has no use for --system: put it into the prompt\n");
		return 2;
	}
	catch_interrupt();
	if (list)
		return ask_models(&o);
	if (optind == argc && isatty(STDIN_FILENO))
		return run_chat(&o);
	prompt = optind < argc ? join_arguments(argc - optind, argv + optind) : read_stdin();
	if (!prompt)
		return 1;
	if (!*prompt) {
		fprintf(stderr, "txda-run: the prompt is empty\n");
		free(prompt);
		return 2;
	}
	r = run_once(&o, prompt);
	free(prompt);
	return r;
}
