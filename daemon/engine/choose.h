/* SPDX-License-Identifier: MIT */
/*
 * A request's next token: by its sampling, its constraint and what it said so far.
 *
 * The engine thread's.
 */
#ifndef TXDA_ENGINE_CHOOSE_H
#define TXDA_ENGINE_CHOOSE_H

#include "sampler.h"

/*
 * Finds what may come next, if that takes work: while the chips compute the row, so that it is
 * known when the row is there.
 */
void request_prepare(struct engine_request *r);

/*
 * Chooses token number @n of those generated, at @position, and notes it in the constraint and the
 * counts. *ret_ending: ENGINE_FINISH_STOP or _COMPLETE when the request ends with it, else as it
 * was. Nonzero: -EIO (the row is broken) or -EPROTO (the constraint cannot go on), *ret_words says
 * it and lasts as long as the request.
 */
int request_choose(struct sampler *s, struct sampler_row *row, struct engine_request *r, unsigned n,
		   uint64_t position, int32_t *ret_token, enum engine_finish *ret_ending,
		   const char **ret_words);

#endif
