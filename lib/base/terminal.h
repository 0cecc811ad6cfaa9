/* SPDX-License-Identifier: MIT */
/* What a terminal can show. Threads: any, unless the environment changes. */
#ifndef TXDA_BASE_TERMINAL_H
#define TXDA_BASE_TERMINAL_H

#include <stdbool.h>
#include <stdio.h>

/* Whether @file is a terminal that knows escape sequences: TERM is set, and not "dumb". */
bool terminal_is(FILE *file);
/* The same, and its user has not asked for no colours: NO_COLOR is not set, or empty. */
bool terminal_has_colors(FILE *file);

#endif
