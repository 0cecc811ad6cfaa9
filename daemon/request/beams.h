/* SPDX-License-Identifier: MIT */
/*
 * Beam search for an exchange: each round asks the engine for the next token's candidates behind
 * every beam, as requests of one token whose beginnings are in the prefix cache. The searches of
 * several prompts go on side by side.
 *
 * Threads: the event loop's.
 */
#ifndef TXDA_SERVER_BEAMS_H
#define TXDA_SERVER_BEAMS_H

#include <stdbool.h>

struct api_error;
struct beams;
struct exchange;

/* Begins x->beams. When all are done, the exchange's choices are made and it is completed. */
bool beams_start(struct exchange *x, struct api_error *e);
/* Ends what runs; the engine's last news are still to come. */
void beams_cancel(struct beams *b);
/* No request may run any more. NULL is accepted. */
void beams_free(struct beams *b);

#endif
