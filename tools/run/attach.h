/* SPDX-License-Identifier: MIT */
/* From a model's directory to a daemon that has it loaded: a running one, or a private one. */
#ifndef TXDA_RUN_ATTACH_H
#define TXDA_RUN_ATTACH_H

#include "ask.h"
#include "private.h"

struct attach_options {
	const char *dir;
	bool socket_given; /* use only the daemon at ask_options.socket */
	bool private;	   /* do not use a running daemon */
	char *daemon_options[PRIVATE_MAX_OPTIONS + 1]; /* for a private one; NULL-terminated */
};

struct attachment {
	struct private_daemon daemon;
	char *model; /* its name at the daemon */
	char *title; /* its directory's name */
};

/*
 * Whether the first word of the command line is a model's directory rather than a prompt: it names
 * a directory with a config.json or model_info.json, or is written as a path, beginning with "/",
 * "./" or "../".
 */
bool attach_is_directory(const char *word);

/*
 * Finds or starts the daemon, makes it load the model, and sets socket and model of @ask. Returns
 * 0; 130 if interrupted() ended it; 1 after an error, reported on stderr. detach() must be called
 * in any case.
 */
int attach(const struct attach_options *o, struct ask_options *ask, struct attachment *ret);
void detach(struct attachment *a);

#endif
