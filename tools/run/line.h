/* SPDX-License-Identifier: MIT */
/* Reads a line from the terminal, which does the editing (stty(1)); for a history of lines there is
 * rlwrap(1). */
#ifndef TXDA_RUN_LINE_H
#define TXDA_RUN_LINE_H

/*
 * A line without its end, to be freed; NULL at the end of the input. A line that ends in a
 * backslash goes on in the next one. Ctrl-C drops what was typed and gives an empty line.
 */
char *line_read(const char *prompt);

#endif
