/* SPDX-License-Identifier: MIT */
/* Numbers of a request that the command line and /set have in common. */
#ifndef TXDA_RUN_SETTINGS_H
#define TXDA_RUN_SETTINGS_H

#include <stdbool.h>
#include <stdio.h>

#include "ask.h"

/* "temperature", "max-tokens" ...; underscores are dashes. */
bool settings_known(const char *name);
/*
 * Sets one to @value, "" for the daemon's default. Only the form is checked here, the range is the
 * daemon's. False: it is not a number, which is said on stderr.
 */
bool settings_set(struct ask_options *o, const char *name, const char *value);
/* All of them, a line each. */
void settings_show(const struct ask_options *o, FILE *file);

#endif
