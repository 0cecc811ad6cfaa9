/* SPDX-License-Identifier: MIT */
/*
 * How much of prompts a step may compute so that the sequences that decode in it do not wait too
 * long.
 *
 * It learns two times from the steps that were: that of a step of decodes alone, and that of a
 * token of a chunk, which is what a step with chunks takes longer, by token. Both follow the
 * machine as it is (exponential averages), so nobody has to know the model's speed. Where decoding
 * alone takes more than half of the target, chunks get as long as decoding, so that prompts never
 * have less than half of the chips' time; and PACE_LEAST tokens in any case.
 *
 * Results do not depend on it: a sequence's numbers are the same however its prompt is cut.
 *
 * Pure; one thread at a time.
 */
#ifndef TXDA_ENGINE_PACE_H
#define TXDA_ENGINE_PACE_H

#include <stdint.h>

#define PACE_LEAST 16

struct pace {
	uint64_t target_ns; /* of a step with decodes; 0: no limit */
	double decode_ns;   /* a step without chunks; 0: not seen yet */
	double token_ns;    /* a chunk's token beside decodes; 0: not seen yet */
};

/* A step of @decodes sequences with a token each and @chunks tokens of chunks took @ns. */
void pace_note(struct pace *p, unsigned decodes, unsigned chunks, uint64_t ns);
/* Most tokens of chunks in a step that decodes; 0: no limit. */
unsigned pace_limit(const struct pace *p);

#endif
