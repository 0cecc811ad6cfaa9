// SPDX-License-Identifier: MIT
/* txda-run: prompts a model, once or in a chat, through a running or a private daemon. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ask.h"
#include "attach.h"
#include "chat.h"
#include "client.h"
#include "conversation.h"
#include "interrupt.h"
#include "settings.h"
#include "tool_line.h"
#include "tool_run.h"
#include "utf8.h"

#define MAX_PROMPT ((size_t)64 << 20)

static const char help[] =
	"Usage: txda-run [OPTION...] [DIR] [PROMPT...]\n"
	"Sends a prompt to a model and prints the answer as it is generated. Without PROMPT it "
	"reads the prompt from\n"
	"standard input or, on a terminal, starts a chat.\n"
	"\n"
	"DIR is a model's directory: a Hugging Face checkpoint, or the output of txda-compile. If "
	"a daemon serves it,\n"
	"that daemon is used; otherwise a private daemon is started, which ends with this program. "
	"Without DIR the\n"
	"running daemon is used.\n"
	"\n"
	"  -p, --prompt TEXT    the prompt, also where its first word could be a directory\n"
	"  --socket PATH        the daemon's socket; default: $TXDA_SOCKET, "
	"$XDG_RUNTIME_DIR/txda.sock or\n"
	"                       /run/txda/txda.sock\n"
	"  --model NAME         a model that the daemon serves; default: the first one\n"
	"  --list               list the models that the daemon serves\n"
	"  -n, --max-tokens N   maximum tokens of an answer\n"
	"  --temperature X      0: always the likeliest token\n"
	"  --top-p X, --top-k N, --seed N\n"
	"  --system TEXT        system prompt\n"
	"  --image FILE         send a picture with the prompt; may be repeated\n"
	"  --raw                continue the prompt as it is, without the model's chat template\n"
	"  --stats              print first-token latency (FTL) and tokens per second (TPS) on "
	"standard error\n"
	"  -h, --help\n"
	"  -V, --version\n"
	"\n"
	"With DIR:\n"
	"  --private            always start a private daemon; implied by the options below\n"
	"  --tp-size N          chips that share the model\n"
	"  --weights FORM       keep, bf16, w8 or w4\n"
	"  --unused-tensors ACTION  refuse (default) or ignore tensors that may change results "
	"but\n"
	"                       are not supported\n"
	"  --max-model-len N    maximum tokens of a conversation\n"
	"  --cache-dir DIR      directory for compiled models\n"
	"\n"
	"In a chat: /help lists the commands, /exit or Ctrl-D ends it, Ctrl-C stops an answer.\n";

enum option_id {
	OPT_SOCKET = 256,
	OPT_MODEL,
	OPT_LIST,
	OPT_TEMPERATURE,
	OPT_TOP_P,
	OPT_TOP_K,
	OPT_SEED,
	OPT_SYSTEM,
	OPT_IMAGE,
	OPT_RAW,
	OPT_STATS,
	OPT_PRIVATE,
	OPT_DAEMON, /* passed to the private daemon */
};

static const struct option options[] = {
	{"prompt", TOOL_TEXT, NULL, 'p'},
	{"socket", required_argument, NULL, OPT_SOCKET},
	{"model", required_argument, NULL, OPT_MODEL},
	{"list", no_argument, NULL, OPT_LIST},
	{"max-tokens", required_argument, NULL, 'n'},
	{"temperature", required_argument, NULL, OPT_TEMPERATURE},
	{"top-p", required_argument, NULL, OPT_TOP_P},
	{"top-k", required_argument, NULL, OPT_TOP_K},
	{"seed", required_argument, NULL, OPT_SEED},
	{"system", TOOL_TEXT, NULL, OPT_SYSTEM},
	{"image", required_argument, NULL, OPT_IMAGE},
	{"raw", no_argument, NULL, OPT_RAW},
	{"stats", no_argument, NULL, OPT_STATS},
	{"private", no_argument, NULL, OPT_PRIVATE},
	{"tp-size", required_argument, NULL, OPT_DAEMON},
	{"weights", required_argument, NULL, OPT_DAEMON},
	{"unused-tensors", required_argument, NULL, OPT_DAEMON},
	{"max-model-len", required_argument, NULL, OPT_DAEMON},
	{"cache-dir", required_argument, NULL, OPT_DAEMON},
	TOOL_OPTIONS_END,
};

static struct tool_line line = TOOL_LINE("txda-run", help, options, "np");

struct arguments {
	struct ask_options ask;
	struct attach_options attach;
	const char *system, *prompt;
	cJSON *pictures; /* of --image, parts of a message; NULL: none */
	bool list;
};

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
	if (text && ferror(stdin)) {
		fprintf(stderr, "txda-run: cannot read standard input: %s\n", strerror(errno));
		free(text);
		return NULL;
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

static int run_once(const struct arguments *a, const char *prompt)
{
	cJSON *messages;
	int r;

	if (a->ask.raw) {
		messages = cJSON_CreateString(prompt);
	} else {
		messages = conversation_new(a->system);
		conversation_add(messages, "user", prompt);
		if (a->pictures)
			conversation_show(messages, cJSON_Duplicate(a->pictures, true));
	}
	r = ask(&a->ask, messages, NULL);
	cJSON_Delete(messages);
	return r;
}

/* An option for the private daemon, as "--name=value". */
static bool hand_on(struct attach_options *o, const char *name, const char *value)
{
	unsigned n = 0;

	while (o->daemon_options[n])
		n++;
	if (n == PRIVATE_MAX_OPTIONS) {
		fprintf(stderr, "txda-run: more than %d options for the daemon\n", n);
		return false;
	}
	o->private = true;
	return asprintf(&o->daemon_options[n], "--%s=%s", name, value) >= 0;
}

static bool add_picture(struct arguments *a, const char *path)
{
	cJSON *picture = conversation_picture(path);

	if (!a->pictures)
		a->pictures = cJSON_CreateArray();
	return picture && cJSON_AddItemToArray(a->pictures, picture);
}

/* -1: go on; else the exit status. */
static int parse(int argc, char **argv, struct arguments *a)
{
	int id;

	while ((id = tool_option(&line, argc, argv)) > 0) {
		switch (id) {
		case OPT_SOCKET:
			a->ask.socket = line.value;
			a->attach.socket_given = true;
			break;
		case OPT_MODEL: a->ask.model = line.value; break;
		case OPT_LIST: a->list = true; break;
		case OPT_SYSTEM: a->system = line.value; break;
		case OPT_IMAGE:
			if (!add_picture(a, line.value))
				return 1;
			break;
		case OPT_RAW: a->ask.raw = true; break;
		case OPT_STATS: a->ask.stats = true; break;
		case OPT_PRIVATE: a->attach.private = true; break;
		case OPT_DAEMON:
			if (!hand_on(&a->attach, line.name, line.value))
				return 2;
			break;
		case 'p': a->prompt = line.value; break;
		default:
			if (!settings_set(&a->ask, line.name, line.value))
				return TOOL_USAGE;
			break;
		}
	}
	if (id < 0)
		return line.status;
	return -1;
}

/* Checks for options that exclude each other; returns as parse(). */
static int check(const struct arguments *a)
{
	if (a->ask.raw && a->system)
		return tool_refuse(
			&line, "--raw cannot be combined with --system: put it into the prompt");
	if (a->ask.raw && a->pictures)
		return tool_refuse(&line,
				   "--raw cannot be combined with --image: only the chat template "
				   "places images");
	if (a->attach.dir && a->ask.model)
		return tool_refuse(
			&line, "--model names one that a daemon serves; the directory says which "
			       "model it is");
	if (a->attach.private && !a->attach.dir)
		return tool_refuse(&line, "a private daemon needs a model's directory");
	if (a->attach.private && a->attach.socket_given)
		return tool_refuse(&line,
				   "--socket names a running daemon; it cannot be combined with a "
				   "private one");
	if (a->list && a->attach.dir)
		return tool_refuse(&line, "--list needs a running daemon");
	return -1;
}

/* Asks once, or chats. */
static int run(struct arguments *a, const char *prompt)
{
	struct attachment attachment = {0};
	int r = 0;

	interrupt_init();
	if (a->attach.dir)
		r = attach(&a->attach, &a->ask, &attachment);
	if (r)
		;
	else if (a->list)
		r = ask_models(&a->ask);
	else if (prompt)
		r = run_once(a, prompt);
	else
		r = chat(&a->ask, a->system, attachment.title, &attachment.daemon);
	if (r == ASK_LOST) {
		private_failed(&attachment.daemon);
		r = 1;
	}
	detach(&attachment);
	/* When a terminal is closed, the end of the input may be seen before the signal. */
	interrupt_poll(-1, 0, 0);
	if (interrupt_end) {
		interrupt_restore();
		raise(interrupt_end);
	}
	return r;
}

/* JSON takes UTF-8 alone. Returns as find_prompt(). */
static int check_text(const char *what, const char *text)
{
	size_t len = strlen(text), good = utf8_valid_prefix((const uint8_t *)text, len);

	if (good == len)
		return 0;
	fprintf(stderr, "txda-run: %s is not UTF-8 (byte 0x%02x at offset %zu)\n", what,
		(unsigned char)text[good], good);
	return 2;
}

/*
 * Finds the prompt, freed by the caller. 0, or the exit status after an error, which was reported.
 */
static int find_prompt(const struct arguments *a, char **ret)
{
	const char *word = line.words[0];

	if (a->prompt && word)
		return tool_refuse(&line, "--prompt cannot be combined with a prompt argument");
	if (a->prompt)
		*ret = strdup(a->prompt);
	else
		*ret = word ? join_arguments(line.n_words, line.words) : read_stdin();
	if (!*ret)
		return 1;
	if (word && !line.words[1] && strchr(word, '/') && !strpbrk(word, " \t\n") &&
	    !a->attach.dir)
		fprintf(stderr,
			"txda-run: note: there is no model in %s; it is sent as the prompt\n",
			word);
	return **ret ? check_text("the prompt", *ret) : tool_refuse(&line, "the prompt is empty");
}

static int start(int argc, char **argv, struct arguments *a)
{
	char *prompt = NULL;
	int r = parse(argc, argv, a);

	if (r >= 0)
		return r;
	if (line.n_words && attach_is_directory(line.words[0])) {
		a->attach.dir = *line.words++;
		line.n_words--;
	}
	r = check(a);
	if (r >= 0)
		return r;
	r = a->system ? check_text("the system prompt", a->system) : 0;
	if (!r && !a->list && (a->prompt || line.n_words || !isatty(STDIN_FILENO)))
		r = find_prompt(a, &prompt);
	if (!r && a->pictures && !prompt)
		r = tool_refuse(&line, "--image needs a prompt");
	if (!r)
		r = run(a, prompt);
	free(prompt);
	return r;
}

static int run_tool(int argc, char **argv)
{
	struct arguments a = {.ask.socket = client_default_socket()};
	int r = start(argc, argv, &a);

	for (unsigned i = 0; a.attach.daemon_options[i]; i++)
		free(a.attach.daemon_options[i]);
	cJSON_Delete(a.pictures);
	return r;
}

int main(int argc, char **argv)
{
	return tool_run("txda-run", run_tool, argc, argv, EXIT_FAILURE);
}
