/* SPDX-License-Identifier: MIT */
/* Output to the terminal, without control characters from the model or the daemon. */
#ifndef TXDA_RUN_SHOW_H
#define TXDA_RUN_SHOW_H

#include <stdbool.h>
#include <stdio.h>

/*
 * A part of an answer, to stdout, unchanged if that is no terminal. Its reader may be slow:
 * interrupted() ends the wait. Returns 0, or -errno, which is said on stderr.
 */
int show_answer(const char *text);

/* Foreign text within a line. */
void show_text(FILE *file, const char *text);

/* Whether @file is a terminal that takes colours (NO_COLOR, TERM). */
bool show_colors(FILE *file);

/* One line on stderr that is written over; nothing where that is not a terminal. @part: 0 to 1. */
void show_progress(const char *name, const char *phase, double part);
/* Removes it. */
void show_progress_end(void);

#endif
