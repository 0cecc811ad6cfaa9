/* SPDX-License-Identifier: MIT */
/* A chat at a terminal: messages, and commands that begin with a slash. */
#ifndef TXDA_RUN_CHAT_H
#define TXDA_RUN_CHAT_H

#include "ask.h"
#include "private.h"

/*
 * Goes on until the end of the input, /exit, or a signal. @o: the settings to begin with. @title:
 * what to call the model; NULL: as @o does. @daemon: a private one, whose end ends the chat. 0, or 1
 * when that ended by itself.
 */
int chat(const struct ask_options *o, const char *system, const char *title,
	 struct private_daemon *daemon);

#endif
