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
		return;
	}
	/* No longer than with chunks: a slow step without any is not remembered while prompts queue. */
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

unsigned pace_limit(const struct pace *p)
{
	double left = (double)p->target_ns - p->decode_ns, n;

	if (!p->target_ns)
		return 0;
	if (left < p->decode_ns)
		left = p->decode_ns;
	if (p->token_ns <= 0)
		return PACE_LEAST;
	n = left / p->token_ns;
	if (n < PACE_LEAST)
		return PACE_LEAST;
	return n < INT_MAX ? (unsigned)n : INT_MAX;
}
