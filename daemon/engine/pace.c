// SPDX-License-Identifier: MIT
#include "pace.h"

#include <limits.h>

static void follow(double *average, double value)
{
	*average = *average > 0 ? (*average + value) / 2 : value;
}

void pace_note(struct pace *p, unsigned decodes, unsigned chunks, uint64_t ns)
{
	double t = (double)ns;

	if (!chunks) {
		follow(&p->decode_ns, t);
		if (decodes)
			follow(&p->seq_ns, t / decodes);
		return;
	}
	/* No longer than with chunks: a slow step without any is not remembered while prompts
	 * queue. */
	if (decodes && t < p->decode_ns)
		p->decode_ns = t;
	/* Few tokens say little: weights are read for them as for many. */
	if (chunks < PACE_LEAST)
		return;
	/* A step took at least half of what it takes longer than decoding, however uneven times
	 * are. */
	if (decodes && t - p->decode_ns > t / 2)
		t -= p->decode_ns;
	else if (decodes)
		t /= 2;
	follow(&p->token_ns, t / chunks);
}

void pace_note_first(struct pace *p, uint64_t ns, uint64_t now)
{
	double t = (double)ns;

	/* Short prompts wait for the longest, so one long prompt does not change much. */
	if (p->first_ns > 0 && t > p->first_ns)
		p->first_ns += (t - p->first_ns) / 8;
	else
		p->first_ns = t;
	p->company_ns = now;
}

static unsigned at_least(double n, unsigned least)
{
	if (n < least)
		return least;
	return n < INT_MAX ? (unsigned)n : INT_MAX;
}

void pace_crowd(const struct pace *p, uint64_t now, unsigned *ret_decodes, unsigned *ret_chunks)
{
	double step_ns = p->crowd_ratio * p->first_ns;

	*ret_decodes = *ret_chunks = 0;
	if (p->crowd_ratio <= 0 || !p->company_ns || now - p->company_ns > PACE_COMPANY_NS)
		return;
	*ret_decodes = PACE_LEAST_DECODES;
	*ret_chunks = PACE_LEAST;
	if (p->seq_ns > 0)
		*ret_decodes = at_least(step_ns / p->seq_ns, PACE_LEAST_DECODES);
	if (p->token_ns > 0)
		*ret_chunks = at_least(step_ns / p->token_ns, PACE_LEAST);
}

unsigned pace_limit(const struct pace *p)
{
	double left = (double)p->target_ns - p->decode_ns;

	if (!p->target_ns)
		return 0;
	if (left < p->decode_ns)
		left = p->decode_ns;
	if (p->token_ns <= 0)
		return PACE_LEAST;
	return at_least(left / p->token_ns, PACE_LEAST);
}
