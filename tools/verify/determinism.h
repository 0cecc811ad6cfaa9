/* SPDX-License-Identifier: MIT */
/* Checks that a request gives the same bits alone, among others and in pieces. */
#ifndef TXDA_VERIFY_DETERMINISM_H
#define TXDA_VERIFY_DETERMINISM_H

#include "runner.h"

#define DETERMINISM_OTHERS 16
#define DETERMINISM_TOKENS 150 /* of the request */

/*
 * Runs a request of generated tokens alone, then in a batch with DETERMINISM_OTHERS others, then
 * with its prompt in pieces of 1, 7 and 64 tokens, then decoding beside the others, and compares
 * the logits of every token. Prints a line for each. 0: the same bits, 1: not, or -errno. The
 * runner needs DETERMINISM_OTHERS + 1 slots of 2 * DETERMINISM_TOKENS positions.
 */
int determinism_run(struct runner *r, struct tool_error *error);

#endif /* TXDA_VERIFY_DETERMINISM_H */
