// SPDX-License-Identifier: MIT
#include "chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conversation.h"
#include "drop.h"
#include "interrupt.h"
#include "line.h"
#include "nearest.h"
#include "settings.h"
#include "show.h"

#define MAX_COMMAND 16 /* letters */

struct chat {
	struct ask_options options;
	const char *title;
	cJSON *messages;
	struct private_daemon *daemon;
	bool ended, failed;
};

/* ---- commands -------------------------------------------------------------------------------- */

static void help_command(struct chat *c, const char *rest);

static void exit_command(struct chat *c, const char *rest)
{
	(void)rest;
	c->ended = true;
}

static void reset_command(struct chat *c, const char *rest)
{
	const char *system = conversation_system(c->messages);
	cJSON *fresh = conversation_new(system);

	(void)rest;
	cJSON_Delete(c->messages);
	c->messages = fresh;
	fputs(system ? "Conversation cleared; the instructions of /system stay.\n" : "Forgotten.\n",
	      stderr);
}

static void system_command(struct chat *c, const char *rest)
{
	if (c->options.raw) {
		fputs("--raw takes no instructions: put them into the prompt.\n", stderr);
		return;
	}
	conversation_set_system(c->messages, *rest ? rest : NULL);
	fputs(*rest ? "These instructions apply from the next answer on.\n"
		    : "The instructions are removed.\n",
	      stderr);
}

static void set_command(struct chat *c, const char *rest)
{
	char name[MAX_COMMAND + 1];
	const char *value;
	size_t n;

	/* As in Ollama. */
	if (!strncmp(rest, "parameter ", 10))
		rest += 10 + strspn(rest + 10, " ");
	n = strcspn(rest, " \t\n");
	value = rest + n + strspn(rest + n, " \t\n");
	snprintf(name, sizeof(name), "%.*s", (int)(n < sizeof(name) ? n : 0), rest);
	if (!n) {
		settings_show(&c->options, stderr);
	} else if (!strcmp(name, "system")) {
		system_command(c, value);
	} else if (!strcmp(name, "stats") && (!strcmp(value, "on") || !strcmp(value, "off"))) {
		c->options.stats = !strcmp(value, "on");
	} else if (!strcmp(name, "stats")) {
		fputs("/set stats on, or /set stats off.\n", stderr);
	} else if (settings_known(name)) {
		settings_set(&c->options, name, value);
	} else {
		fputs("Unknown setting; the settings are:\n", stderr);
		settings_show(&c->options, stderr);
	}
}

static void show_command(struct chat *c, const char *rest)
{
	const char *system = conversation_system(c->messages);

	(void)rest;
	fputs("  model         ", stderr);
	show_text(stderr, c->title ? c->title : "(the first one served)");
	fprintf(stderr, "\n  %-14s", "daemon");
	show_text(stderr, c->options.private ? "a private one" : c->options.socket);
	fputc('\n', stderr);
	settings_show(&c->options, stderr);
	fprintf(stderr, "  %-14s%d\n  %-14s", "messages",
		cJSON_GetArraySize(c->messages) - (system ? 1 : 0), "system");
	show_text(stderr, system ? system : "(none)");
	fputc('\n', stderr);
}

static void save_command(struct chat *c, const char *rest)
{
	if (!*rest)
		fputs("/save FILE\n", stderr);
	else if (conversation_save(c->messages, rest))
		fprintf(stderr, "Saved %d messages.\n", cJSON_GetArraySize(c->messages));
}

static void load_command(struct chat *c, const char *rest)
{
	cJSON *loaded = *rest ? conversation_load(rest) : NULL;

	if (!*rest)
		fputs("/load FILE\n", stderr);
	if (!loaded)
		return;
	cJSON_Delete(c->messages);
	c->messages = loaded;
	fprintf(stderr, "Loaded %d messages.\n", cJSON_GetArraySize(loaded));
}

static const struct command {
	const char *name, *arguments, *what; /* what is NULL: an alias of the command above */
	void (*run)(struct chat *c, const char *rest);
} commands[] = {
	{"/help", "", "this list", help_command},
	{"/?", "", NULL, help_command},
	{"/set", "NAME VALUE", "max-tokens, temperature, top-p, top-k, seed; stats on or off",
	 set_command},
	{"/set", "NAME", "reset to the model's default; without NAME: show all", set_command},
	{"/system", "TEXT", "instructions for the model; without TEXT: none", system_command},
	{"/reset", "", "forget what was said (also /clear)", reset_command},
	{"/clear", "", NULL, reset_command},
	{"/show", "", "model, daemon, settings, number of messages", show_command},
	{"/save", "FILE", "write the conversation, as JSON", save_command},
	{"/load", "FILE", "continue a saved conversation", load_command},
	{"/exit", "", "end (also /quit, /bye, Ctrl-D)", exit_command},
	{"/quit", "", NULL, exit_command},
	{"/bye", "", NULL, exit_command},
};

#define N_COMMANDS (sizeof(commands) / sizeof(*commands))

static void help_command(struct chat *c, const char *rest)
{
	(void)c;
	(void)rest;
	for (size_t i = 0; i < N_COMMANDS; i++)
		if (commands[i].what)
			fprintf(stderr, "  %-8s%-11s %s\n", commands[i].name, commands[i].arguments,
				commands[i].what);
	fputs("A backslash at the end of a line continues it; \"\"\" begins and ends a message of "
	      "many lines.\n"
	      "The path of a picture before a message, as a terminal pastes it, shows the "
	      "picture.\n"
	      "Ctrl-C stops an answer and keeps what has been written; at the prompt it clears the "
	      "line.\n"
	      "Tab completes commands, Ctrl-R searches what was typed before.\n",
	      stderr);
}

static void run_command(struct chat *c, const char *line)
{
	size_t n = strcspn(line, " \t\n");
	char name[MAX_COMMAND + 1];
	const char *meant = NULL;
	struct nearest near;

	snprintf(name, sizeof(name), "%.*s", (int)n, line);
	near = nearest_to(name);
	for (size_t i = 0; i < N_COMMANDS && n < sizeof(name); i++) {
		if (!strcmp(name, commands[i].name)) {
			commands[i].run(c, line + n + strspn(line + n, " \t\n"));
			return;
		}
		if (nearest_take(&near, commands[i].name))
			meant = commands[i].name;
	}
	fputs("Unknown command ", stderr);
	show_text(stderr, name);
	if (meant)
		fprintf(stderr, "; did you mean %s?\n", meant);
	else
		fputs("; /help lists them.\n", stderr);
}

/* ---- turns ----------------------------------------------------------------------------------- */

/*
 * One turn, with pictures or NULL, which it takes over. A failed turn is removed; of an interrupted
 * one the text so far is kept.
 */
static void take_turn(struct chat *c, const char *line, cJSON *pictures)
{
	char *answer = NULL;
	int r;

	if (c->options.raw) {
		cJSON *prompt = cJSON_CreateString(line);

		r = ask(&c->options, prompt, NULL);
		cJSON_Delete(prompt);
	} else {
		conversation_add(c->messages, "user", line);
		if (pictures)
			conversation_show(c->messages, pictures);
		r = ask(&c->options, c->messages, &answer);
		if ((r && r != 130) || !answer)
			conversation_drop_last(c->messages);
		else
			conversation_add(c->messages, "assistant", answer);
		free(answer);
	}
	c->failed = r == ASK_LOST && private_failed(c->daemon);
	c->ended = c->failed;
}

static void take_line(struct chat *c, const char *line)
{
	cJSON *pictures = NULL;

	/* A path begins like a command. */
	if (!c->options.raw && !drop_take(line, &pictures, &line))
		return;
	if (!pictures && *line == '/')
		run_command(c, line);
	else if (pictures || line[strspn(line, " \t\n")])
		take_turn(c, line, pictures);
}

int chat(const struct ask_options *o, const char *system, const char *title,
	 struct private_daemon *daemon)
{
	static const char *words[N_COMMANDS + 1];
	struct chat c = {.options = *o,
			 .title = title ? title : o->model,
			 .messages = conversation_new(system),
			 .daemon = daemon};
	char *line;

	for (size_t i = 0; i < N_COMMANDS; i++)
		words[i] = commands[i].name;
	line_open(words);
	if (title) {
		show_text(stderr, title);
		fputs(" is ready. ", stderr);
	}
	fputs("/help lists the commands, Ctrl-D ends.\n", stderr);
	while (!c.ended && (line = line_read())) {
		interrupt_stop = 0;
		take_line(&c, line);
		free(line);
		interrupt_stop = 0;
	}
	line_close();
	cJSON_Delete(c.messages);
	return c.failed;
}
