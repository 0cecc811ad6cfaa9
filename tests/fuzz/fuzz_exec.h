/* SPDX-License-Identifier: MIT */
/* What fuzz_exec.c and the maker of its seed agree on: the seed's slots, by number. */
#ifndef FUZZ_EXEC_H
#define FUZZ_EXEC_H

enum fuzz_slot {
	FUZZ_WEIGHTS,
	FUZZ_KV,
	FUZZ_SCRATCH,
	FUZZ_INDICES, /* INPUT: zeros, good as tokens, positions, rows, blocks and cache slots */
	FUZZ_SPANS,   /* INPUT: [s][2] = s, 1: one token a sequence */
	FUZZ_CONTEXT, /* INPUT: all 2 */
	FUZZ_OUTPUT,
	FUZZ_SLOTS
};

#define FUZZ_SLOT_BYTES 131072u /* of each binding */

#endif /* FUZZ_EXEC_H */
