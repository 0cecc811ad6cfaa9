/* SPDX-License-Identifier: MIT */
/*
 * Reads what is typed at a terminal: editing and history by libedit, as configured by ~/.editrc; a
 * plain prompt if the terminal does not support that (TERM is unset or dumb). One at a time.
 */
#ifndef TXDA_RUN_LINE_H
#define TXDA_RUN_LINE_H

#include <stdbool.h>

/* @words: completed by Tab at the beginning of a line; sorted, NULL-terminated, borrowed. */
void line_open(const char *const *words);

/*
 * A message without its end, freed by the caller; NULL at the end of the input, or if a signal ends
 * the program. A line that ends in a backslash continues in the next one; between """ and """ a
 * message has any number of lines, as pasted text has. Ctrl-C discards the input and returns an
 * empty message.
 */
char *line_read(void);

void line_close(void);

#endif
