/* SPDX-License-Identifier: MIT */
/*
 * /v1/forward for an exchange: tokens from a client's memory to rows of logits and hidden states in
 * a client's memory.
 *
 *	forward_call_check()   in the loop: shapes against the model
 *	forward_call_prepare() in the text pool: maps the tensors, copies the tokens, checks them
 *	forward_call_start()   in the loop: one engine request, whose sink writes the rows
 *
 * The engine thread writes each row where the client wants it; nothing of it is in the answer. The
 * descriptors and mappings belong to the exchange until the engine's request has a sink, then to
 * that, and go with the last reference to the request.
 */
#ifndef TXDA_SERVER_FORWARD_CALL_H
#define TXDA_SERVER_FORWARD_CALL_H

#include <stdbool.h>
#include <stdint.h>

struct api_error;
struct exchange;
struct forward_call;

/* Takes the descriptors that came with the request, while the exchange begins. */
bool forward_call_take(struct exchange *x, struct api_error *e);
/* Begins x->forward, for its model, which is ready. */
bool forward_call_check(struct exchange *x, struct api_error *e);
/* Bytes that it makes the daemon hold at most, the client's memory among them. */
uint64_t forward_call_bytes(const struct exchange *x);
/* Any thread. On success x->prompts[0] has the tokens. */
bool forward_call_prepare(struct exchange *x, struct api_error *e);
bool forward_call_start(struct exchange *x, struct api_error *e);
void forward_call_cancel(struct forward_call *f);
/* The request may not run any more. NULL is accepted. */
void forward_call_free(struct forward_call *f);

#endif
