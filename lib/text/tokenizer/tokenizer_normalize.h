/* SPDX-License-Identifier: MIT */
/*
 * The normalizer of tokenizer.json: a list of rewriting steps for a piece of text. Internal to the
 * tokeniser.
 *
 * Unicode forms are computed region by region: only characters that may change, and the one before
 * them, are decomposed. Sorting of combining marks is linear, so that a megabyte of them costs no
 * more than prose.
 *
 * Threads: a loaded struct normalizer is shared; each thread has its own normalize_run.
 */
#ifndef TXDA_TEXT_TOKENIZER_NORMALIZE_H
#define TXDA_TEXT_TOKENIZER_NORMALIZE_H

#include "pretok_regex.h"
#include "text_buf.h"
#include "tokenizer_json.h"

#define NORMALIZE_MAX_STEPS 16

enum normalize_kind {
	NORMALIZE_UNICODE, /* compose, compat */
	NORMALIZE_PREPEND, /* text, unless the piece is empty */
	NORMALIZE_REPLACE, /* pattern (or regex) by text */
	NORMALIZE_LOWERCASE,
	NORMALIZE_STRIP, /* left, right */
};

struct normalize_step {
	enum normalize_kind kind;
	bool compose, compat;
	bool left, right;
	struct pretok_regex *regex;
	char *pattern;
	char *text;
};

struct normalizer {
	struct normalize_step steps[NORMALIZE_MAX_STEPS];
	unsigned n_steps;
};

/* Scratch memory for one thread; zero-initialised is ready. */
struct normalize_run {
	struct text_buf bufs[2];
	struct pretok_match match;
	int32_t *cps, *sorted;
	size_t n_cps, n_sorted;
};

/* Reads the value of "normalizer" (NULL: none). 0, -EINVAL with a message, -ENOMEM. */
int normalizer_load(struct normalizer *normalizer, const cJSON *json, struct json_errors *errors);
void normalizer_free(struct normalizer *normalizer);

/*
 * Normalises @len bytes of valid UTF-8. *ret_text is @text itself if nothing changes, else memory
 * of @run that the next call reuses. Returns 0, -ENOMEM or -EOVERFLOW.
 */
int normalize(const struct normalizer *normalizer, struct normalize_run *run, const char *text,
	      size_t len, const char **ret_text, size_t *ret_len);
void normalize_run_free(struct normalize_run *run);

/*
 * Whether @cp is unchanged by NFC, whatever precedes it: a cheap test that covers the common
 * scripts and returns false for others.
 */
bool normalize_nfc_inert(uint32_t cp);

#endif
