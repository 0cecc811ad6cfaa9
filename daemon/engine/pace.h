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
 * And how long a step of users with many sequences may be while others come and go, who would wait
 * for its end: crowd_ratio times what a step takes that computes the others' prompts and goes
 * without the many. A little more than 1 would let them have all places where weights take most
 * of a step's time, and a first token wait that little longer. That holds for PACE_COMPANY_NS after
 * each such step, as long as there is work at all; who has the chips for itself uses them in full.
 *
 * Results do not depend on it: a sequence's numbers are the same however its prompt is cut, and
 * whoever is in the step with it.
 *
 * Pure; one thread at a time.
 */
#ifndef TXDA_ENGINE_PACE_H
#define TXDA_ENGINE_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define PACE_LEAST	   16
#define PACE_LEAST_DECODES 4
#define PACE_COMPANY_NS	   (10ull * 1000000000)

struct pace {
	uint64_t target_ns;  /* of a step with decodes; 0: no limit */
	double decode_ns;    /* a step without chunks; 0: not seen yet */
	double token_ns;     /* a chunk's token beside decodes; 0: not seen yet */
	double crowd_ratio;  /* 0: no limit for users with many sequences */
	double seq_ns;	     /* a step with nobody left out, by its tokens; 0: not seen yet */
	double first_ns;     /* a step for a first token that goes without the many */
	uint64_t company_ns; /* when the last one of these ended; 0: there was none */
	bool limited;	     /* what pace_crowd() last said is a limit */
};

struct pace_step {
	unsigned decodes; /* sequences with a token each */
	unsigned chunks;  /* tokens of chunks */
	bool left_out;	  /* scheduler_left_out() */
	bool spared;	  /* scheduler_spared() */
	uint64_t ns, end_ns;
};

/* A step that was. */
void pace_note(struct pace *p, const struct pace_step *step);
/* What scheduler_limit_crowd() is to be given from now on. */
void pace_crowd(struct pace *p, uint64_t now, unsigned *ret_decodes, unsigned *ret_chunks);
/* Nothing is left to do: what was learned of company is old when there is. */
void pace_rest(struct pace *p);
/* Most tokens of chunks in a step that decodes; 0: no limit. */
unsigned pace_limit(const struct pace *p);

#endif
