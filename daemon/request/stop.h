/* SPDX-License-Identifier: MIT */
/*
 * Stop strings in text that arrives in pieces.
 *
 * Each string is followed by an automaton (Knuth, Morris, Pratt), so that a byte costs the same
 * whatever came before. Text that may still turn out to be the start of a stop string is held back;
 * what was given out is never part of one. Of several matches the one that is complete first wins,
 * the longest of those that are complete at the same byte: so the result does not depend on how the
 * text was cut into pieces.
 *
 * Whole characters in, whole characters out, as long as the stop strings are UTF-8.
 */
#ifndef TXDA_SERVER_STOP_H
#define TXDA_SERVER_STOP_H

#include <stdbool.h>
#include <stddef.h>

#define STOP_MAX_STRINGS 4
#define STOP_MAX_LEN	 1024 /* bytes of one */

struct stop_matcher;

/*
 * @strings (each of 1 to STOP_MAX_LEN bytes, up to STOP_MAX_STRINGS of them) are copied. With n = 0
 * all text passes at once. NULL: out of memory.
 */
struct stop_matcher *stop_new(const char *const *strings, unsigned n);
void stop_free(struct stop_matcher *m);

/*
 * Takes @len bytes. *ret_text (*ret_len bytes, valid until the next call) is what may be given out
 * now. Returns 1 when a stop string was completed: the text ends before it, and further calls give
 * nothing. 0 otherwise; -ENOMEM.
 */
int stop_feed(struct stop_matcher *m, const char *text, size_t len, const char **ret_text,
	      size_t *ret_len);
/* The end of the text: gives out what was held back. */
void stop_flush(struct stop_matcher *m, const char **ret_text, size_t *ret_len);
bool stop_matched(const struct stop_matcher *m);
/* The stop string that matched, valid as the text of stop_feed(); empty before a match. */
void stop_match_text(const struct stop_matcher *m, const char **ret_text, size_t *ret_len);

#endif
