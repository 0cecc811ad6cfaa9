// SPDX-License-Identifier: MIT
#include "pace.h"

#include <limits.h>

static void follow(double *average, double value)
{
	*average = *average > 0 ? (*average + value) / 2 : value;
}

static void note_crowd(struct pace *p, const struct pace_step *step, double t)
{
	/* Long chunks say nothing of decodes, nor do steps that went without most of them. */
	if (!step->left_out && step->decodes && step->chunks <= 4 * step->decodes)
		follow(&p->seq_ns, t / (step->decodes + step->chunks));
	if (!step->spared)
		return;
	/* Short prompts wait for the longest, so one long prompt does not change much. */
	if (p->first_ns > 0 && t > p->first_ns)
		p->first_ns += (t - p->first_ns) / 8;
	else
		follow(&p->first_ns, t);
	p->company_ns = step->end_ns;
}

void pace_note(struct pace *p, const struct pace_step *step)
{
	double t = (double)step->ns;

	note_crowd(p, step, t);
	if (!step->chunks) {
		follow(&p->decode_ns, t);
		return;
	}
	/* No longer than with chunks: a slow step without any is not remembered while prompts
	 * queue. */
	if (step->decodes && t < p->decode_ns)
		p->decode_ns = t;
	/* Few tokens say little: weights are read for them as for many. */
	if (step->chunks < PACE_LEAST || (p->limited && !step->spared))
		return;
	/* A step took at least half of what it takes longer than decoding, however uneven times
	 * are. */
	if (step->decodes && t - p->decode_ns > t / 2)
		t -= p->decode_ns;
	else if (step->decodes)
		t /= 2;
	follow(&p->token_ns, t / step->chunks);
}

static unsigned at_least(double n, unsigned least)
{
	if (n < least)
		return least;
	return n < INT_MAX ? (unsigned)n : INT_MAX;
}

void pace_rest(struct pace *p)
{
	p->company_ns = 0;
	p->limited = false;
}

void pace_crowd(struct pace *p, uint64_t now, unsigned *ret_decodes, unsigned *ret_chunks)
{
	double step_ns = p->crowd_ratio * p->first_ns;

	*ret_decodes = *ret_chunks = 0;
	p->limited = p->crowd_ratio > 0 && p->company_ns && now - p->company_ns <= PACE_COMPANY_NS;
	if (!p->limited)
		return;
	*ret_decodes = PACE_LEAST_DECODES;
	*ret_chunks = PACE_LEAST;
	if (p->seq_ns > 0)
		*ret_decodes = at_least(step_ns / p->seq_ns + 0.5, PACE_LEAST_DECODES);
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
