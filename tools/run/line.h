/* SPDX-License-Identifier: MIT */
/*
 * What somebody types at a terminal: editing and history by libedit, as ~/.editrc says; a plain
 * prompt where the terminal cannot do that (TERM is unset or dumb). One at a time.
 */
#ifndef TXDA_RUN_LINE_H
#define TXDA_RUN_LINE_H

#include <stdbool.h>

/* @words: what Tab completes at the beginning of a line, sorted, up to a NULL; they stay. */
void line_open(const char *const *words);

/*
 * A message without its end, to be freed; NULL at the end of the input, or when a signal ends the
 * program. A line that ends in a backslash goes on in the next one; from """ to """ a message has
 * any number of lines, and so has what is pasted. Ctrl-C drops what was typed and gives an empty
 * message.
 */
char *line_read(void);

void line_close(void);

#endif
