/* SPDX-License-Identifier: MIT */
/* Asks the daemon for an answer and writes it to the terminal as it comes. */
#ifndef TXDA_RUN_ASK_H
#define TXDA_RUN_ASK_H

#include <stdbool.h>
#include <stddef.h>
#include <cjson/cJSON.h>

#define ASK_NUMBER_LEN 32

struct ask_options {
	const char *socket; /* path */
	const char *model;  /* NULL: the first one that is served */
	/* JSON numbers; "": the daemon's default */
	char max_tokens[ASK_NUMBER_LEN], temperature[ASK_NUMBER_LEN], top_p[ASK_NUMBER_LEN],
		top_k[ASK_NUMBER_LEN], seed[ASK_NUMBER_LEN];
	bool private; /* the daemon is this program's own */
	bool raw, stats;
};

/*
 * One question. @messages: an array of messages, or for a raw completion a string. The answer goes
 * to stdout and, if @ret_text is not NULL, into *ret_text (to be freed). Returns 0; 130 when
 * interrupted() ended it; after an error, reported on stderr, 1, or ASK_LOST where the daemon
 * did not answer, or not to the end.
 */
#define ASK_LOST 2
int ask(const struct ask_options *o, const cJSON *messages, char **ret_text);

/* Prints the names of the served models on stdout, one per line. */
int ask_models(const struct ask_options *o);

/* Reports on stderr why client_open() of @path failed. */
void ask_report_connect(const char *path, int error);
/* Reports an unsuccessful answer on stderr. */
void ask_report_answer(const cJSON *answer, int status);

#endif
