/* SPDX-License-Identifier: MIT */
/* Asks the daemon for an answer and writes it to the terminal as it comes. */
#ifndef TXDA_RUN_ASK_H
#define TXDA_RUN_ASK_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <cjson/cJSON.h>

struct ask_options {
	const char *socket; /* path */
	const char *model;  /* NULL: the first one that is served */
	const char *system; /* NULL: none */
	const char *max_tokens, *temperature, *top_p, *top_k,
		*seed; /* JSON numbers; NULL: the daemon's default */
	bool raw, stats;
};

/* Set by a signal: ends the answer under way. */
extern volatile sig_atomic_t ask_stop;

/*
 * One question. @messages: an array of messages, or for a raw completion a string. The answer goes
 * to stdout and, if @ret_text is not NULL, into *ret_text (to be freed). Returns 0; 130 when
 * ask_stop ended it; 1 after an error, which was said on stderr.
 */
int ask(const struct ask_options *o, const cJSON *messages, char **ret_text);

/* The names that are served, a line each, on stdout. */
int ask_models(const struct ask_options *o);

#endif
