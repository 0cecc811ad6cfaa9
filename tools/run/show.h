/* SPDX-License-Identifier: MIT */
/* Output to the terminal, without control characters from the model or the daemon. */
#ifndef TXDA_RUN_SHOW_H
#define TXDA_RUN_SHOW_H

#include <stdbool.h>
#include <stdio.h>

/*
 * Writes part of an answer to stdout, unchanged if that is not a terminal. A slow reader delays it;
 * interrupted() ends the wait. Returns 0, or -errno, which is reported on stderr.
 */
int show_answer(const char *text);

/* Untrusted text within a line. */
void show_text(FILE *file, const char *text);

/*
 * A status line on stderr, which the next one overwrites; nothing if stderr is not a terminal.
 * @part: 0 to 1.
 */
void show_progress(const char *name, const char *phase, double part);
/* Removes it. */
void show_progress_end(void);

#endif
