/* SPDX-License-Identifier: MIT */
/*
 * Stop strings in text that arrives in pieces.
 *
 * Each string is matched by an automaton (Knuth-Morris-Pratt), so that the cost per byte is
 * constant. Text that may be the start of a stop string is held back; released text is never part
 * of one. Of several matches the first to be completed wins, and the longest of those completed at
 * the same byte: so the result does not depend on how the text was split into pieces.
 *
 * If the stop strings are UTF-8, whole characters in give whole characters out.
 */
#ifndef TXDA_TEXT_STOP_H
#define TXDA_TEXT_STOP_H

#include <stdbool.h>
#include <stddef.h>

#define STOP_MAX_STRINGS 4
#define STOP_MAX_LEN	 1024 /* bytes per string */

struct stop_matcher;

/*
 * @strings (each of 1 to STOP_MAX_LEN bytes, up to STOP_MAX_STRINGS of them) are copied. With n = 0
 * all text is released at once. NULL: out of memory.
 */
struct stop_matcher *stop_new(const char *const *strings, unsigned n);
void stop_free(struct stop_matcher *m);

/*
 * Takes @len bytes. *ret_text (*ret_len bytes, valid until the next call) is the text released now.
 * Returns 1 when a stop string was completed: the text ends before it, and further calls release
 * nothing. 0 otherwise; -ENOMEM.
 */
int stop_feed(struct stop_matcher *m, const char *text, size_t len, const char **ret_text,
	      size_t *ret_len);
/* The end of the text: releases what was held back. */
void stop_flush(struct stop_matcher *m, const char **ret_text, size_t *ret_len);
bool stop_matched(const struct stop_matcher *m);
/* The stop string that matched, valid as long as the text of stop_feed(); empty before a match. */
void stop_match_text(const struct stop_matcher *m, const char **ret_text, size_t *ret_len);

#endif
