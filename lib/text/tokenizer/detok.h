/* SPDX-License-Identifier: MIT */
/*
 * Incremental detokenising: ids go in one by one as they are generated, and the text that is
 * certain comes out at once.
 *
 * What comes out is never taken back and never holds half a character: bytes that may still become
 * one wait for the next id. Bytes that cannot any more become U+FFFD. All that was given out, flush
 * included, is what txda_tokenizer_decode() says of the same ids, except that in models with byte
 * fallback a run of byte tokens that is not all text keeps its whole characters here, while there
 * each byte of it is U+FFFD.
 *
 * Threads: one detokeniser belongs to one thread at a time; the tokeniser behind it is shared and
 * must outlive it.
 */
#ifndef TXDA_TEXT_DETOK_H
#define TXDA_TEXT_DETOK_H

#include "tokenizer.h"

struct txda_detok;

/*
 * Makes a detokeniser. @skip_special leaves out tokens that are marked special. @prompt (of
 * @n_prompt ids, may be NULL) is what came before: its text is not given out, but what follows is
 * decoded as its continuation (a leading space stays; a character begun there is finished and given
 * out whole). Returns 0 or -ENOMEM.
 */
int txda_detok_new(const struct txda_tokenizer *tok, bool skip_special, const uint32_t *prompt,
		   size_t n_prompt, struct txda_detok **ret_detok);

/*
 * Makes another one that goes on as @detok would, which may be used by other threads at the same
 * time as long as none feeds it: one for each of several answers to a prompt. Returns 0 or -ENOMEM.
 */
int txda_detok_copy(const struct txda_detok *detok, struct txda_detok **ret_detok);

void txda_detok_free(struct txda_detok *detok);

/*
 * Takes one more id. *ret_text (*ret_len bytes, often 0; NUL-terminated) is the new text: owned by
 * the detokeniser and valid until the next call. Unknown ids give nothing. Returns 0 or -ENOMEM
 * (then only free it).
 */
int txda_detok_feed(struct txda_detok *detok, uint32_t id, const char **ret_text, size_t *ret_len);

/*
 * The end of generation: gives out U+FFFD for a character that was begun and not finished. Returns
 * 0 or -ENOMEM. After it the detokeniser goes on as if nothing was waiting.
 */
int txda_detok_flush(struct txda_detok *detok, const char **ret_text, size_t *ret_len);

#endif
