/* SPDX-License-Identifier: MIT */
/*
 * The regular expressions of tokenizer.json. They are written for Oniguruma (Ruby's syntax) and run
 * on PCRE2 here, so constructs that the two interpret differently are rewritten or refused when the
 * model is loaded: \s and \w (PCRE2's \s takes U+180E), \h, \v, names of scripts, quantifiers such
 * as {1,3}+, set operations inside brackets, ^ and $. Internal to the tokeniser.
 *
 * Threads: an expression is shared; each thread has its own pretok_match.
 */
#ifndef TXDA_TEXT_PRETOK_REGEX_H
#define TXDA_TEXT_PRETOK_REGEX_H

#include <stdbool.h>
#include <stddef.h>

struct pretok_regex;

/* Scratch memory for one thread. Zero-initialised is ready. */
struct pretok_match {
	void *data;
	void *context;
	void *stack;
};

/* Compiles @pattern. Returns 0, -EINVAL (with the cause in @err) or -ENOMEM. */
int pretok_regex_new(const char *pattern, struct pretok_regex **ret_regex, char *err,
		     size_t errlen);
void pretok_regex_free(struct pretok_regex *regex);

/*
 * Finds the first match at or after @from in the @len bytes (valid UTF-8) at @text. Returns 1 and
 * its ends, 0 for no match, -ENOMEM, or -EOVERFLOW when the search takes too many steps.
 */
int pretok_regex_find(const struct pretok_regex *regex, struct pretok_match *match,
		      const char *text, size_t len, size_t from, size_t *ret_start,
		      size_t *ret_end);
void pretok_match_free(struct pretok_match *match);

#endif
