/* SPDX-License-Identifier: MIT */
/* A chat at a terminal: messages, and commands that begin with a slash. */
#ifndef TXDA_RUN_CHAT_H
#define TXDA_RUN_CHAT_H

#include "ask.h"
#include "private.h"

/*
 * Runs until the end of the input, /exit, or a signal. @o: the initial settings. @title: the
 * displayed name of the model; NULL: that of @o. @daemon: a private one, whose end ends the chat.
 * 0, or 1 if it ended by itself.
 */
int chat(const struct ask_options *o, const char *system, const char *title,
	 struct private_daemon *daemon);

#endif
