/* SPDX-License-Identifier: MIT */
/*
 * Incremental detokenising: takes ids one by one as they are generated, and returns text as soon as
 * it is certain.
 *
 * Returned text is never revised and never contains half a character: bytes that may still become
 * one wait for the next id. Bytes that cannot become one are replaced by U+FFFD. The complete text,
 * including that of flush, equals the result of txda_tokenizer_decode() for the same ids, except
 * that in models with byte fallback a run of byte tokens that is not entirely valid keeps its valid
 * characters here, while there each of its bytes becomes U+FFFD.
 *
 * Threads: one detokeniser is used by one thread at a time; the tokeniser is shared and must
 * outlive it.
 */
#ifndef TXDA_TEXT_DETOK_H
#define TXDA_TEXT_DETOK_H

#include "tokenizer.h"

struct txda_detok;

/*
 * Creates a detokeniser. @skip_special leaves out tokens that are marked special. @prompt (of
 * @n_prompt ids, may be NULL) precedes the ids: its text is not returned, but what follows is
 * decoded as its continuation (a leading space is kept; a character begun there is completed and
 * returned as a whole). Returns 0 or -ENOMEM.
 */
int txda_detok_new(const struct txda_tokenizer *tok, bool skip_special, const uint32_t *prompt,
		   size_t n_prompt, struct txda_detok **ret_detok);

/*
 * Creates a copy that continues as @detok would, for each of several answers to a prompt. Other
 * threads may copy @detok at the same time, as long as none feeds it. Returns 0 or -ENOMEM.
 */
int txda_detok_copy(const struct txda_detok *detok, struct txda_detok **ret_detok);

void txda_detok_free(struct txda_detok *detok);

/*
 * Takes one more id. *ret_text (*ret_len bytes, often 0; NUL-terminated) is the new text: owned by
 * the detokeniser and valid until the next call. Unknown ids yield nothing. Returns 0 or -ENOMEM;
 * then the detokeniser can only be freed.
 */
int txda_detok_feed(struct txda_detok *detok, uint32_t id, const char **ret_text, size_t *ret_len);

/*
 * The end of generation: returns U+FFFD for an incomplete character. Returns 0 or -ENOMEM.
 * Afterwards the detokeniser continues as if no character had been begun.
 */
int txda_detok_flush(struct txda_detok *detok, const char **ret_text, size_t *ret_len);

#endif
