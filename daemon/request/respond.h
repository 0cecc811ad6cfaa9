/* SPDX-License-Identifier: MIT */
/*
 * Formats the answers of /v1/chat/completions and /v1/completions in OpenAI's formats from an
 * exchange.
 * Threads: text workers; any for respond_error() and respond_done().
 */
#ifndef TXDA_REQUEST_RESPOND_H
#define TXDA_REQUEST_RESPOND_H

#include "exchange.h"

extern const struct answer_shape shape_chat, shape_completion;

/* Writes a piece of the whole answer into x->out: sets more, or complete. */
void respond_whole(struct exchange *x);

/* Events of a stream, each with its "data: " and blank line. */
void respond_first(struct json_out *o, const struct exchange *x,
		   struct choice *c); /* the role; the echo of the prompt */
void respond_text(struct json_out *o, const struct exchange *x,
		  const struct choice *c); /* what choice_sent() will mark as sent */
void respond_finish(struct json_out *o, const struct exchange *x, const struct choice *c);
void respond_usage(struct json_out *o, const struct exchange *x);
void respond_error(struct json_out *o, const struct api_error *e);
void respond_done(struct json_out *o);

#endif
