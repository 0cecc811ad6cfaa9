/* SPDX-License-Identifier: MIT */
/* Numeric parameters of a request, for the command line and for /set. */
#ifndef TXDA_RUN_SETTINGS_H
#define TXDA_RUN_SETTINGS_H

#include <stdbool.h>
#include <stdio.h>

#include "ask.h"

/* "temperature", "max-tokens" ...; underscores are dashes. */
bool settings_known(const char *name);
/*
 * Sets one to @value, "" for the daemon's default. Only the syntax is checked here, the range by
 * the daemon. False: it is not a number, which is reported on stderr.
 */
bool settings_set(struct ask_options *o, const char *name, const char *value);
/* Lists all of them, one per line. */
void settings_show(const struct ask_options *o, FILE *file);

#endif
