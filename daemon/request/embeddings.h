/* SPDX-License-Identifier: MIT */
/*
 * /v1/embeddings for an exchange: an engine request for each input, a few of them at a time, and
 * one answer when all vectors are there.
 *
 * Threads: the event loop's.
 */
#ifndef TXDA_SERVER_EMBEDDINGS_H
#define TXDA_SERVER_EMBEDDINGS_H

#include <stdbool.h>
#include <stdint.h>

struct api_error;
struct embeddings;
struct exchange;

/* Bytes that the answer will take at most. */
uint64_t embeddings_bytes(const struct exchange *x);
/* Begins x->embeddings; when all are done, the exchange is answered. */
bool embeddings_start(struct exchange *x, struct api_error *e);
/* Ends what runs; the engine's last news are still to come. */
void embeddings_cancel(struct embeddings *m);
/* No request may run any more. NULL is accepted. */
void embeddings_free(struct embeddings *m);

#endif
