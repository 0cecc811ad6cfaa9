// SPDX-License-Identifier: MIT
#include "choose.h"

#include <errno.h>

#include "token_counts.h"

static bool is_stop(const struct engine_sampling *p, int32_t token)
{
	for (unsigned i = 0; !p->ignore_eos && i < p->n_stop_tokens; i++) {
		if (p->stop_tokens[i] == token)
			return true;
	}
	return false;
}

void request_prepare(struct engine_request *r)
{
	struct engine_mask mask;

	/* The constraint remembers it; an error comes again when the token is chosen. */
	if (r->constraint && r->constraint->ops->mask(r->constraint, &mask))
		return;
}

int request_choose(struct sampler *s, struct sampler_row *row, struct engine_request *r, unsigned n,
		   uint64_t position, int32_t *ret_token, enum engine_finish *ret_ending,
		   const char **ret_words)
{
	const struct engine_sampling *p = &r->sampling;
	struct engine_constraint *c = r->constraint;
	struct sampler_rules rules = {
		.mask_stops = !p->ignore_eos && n < p->min_tokens,
		.counts = r->counts,
	};
	struct engine_mask mask;
	int error = 0;

	if (c) {
		error = c->ops->mask(c, &mask);
		if (error) {
			*ret_words = c->ops->error(c);
			return -EPROTO;
		}
		rules.mask = &mask;
		/* A form that is complete ends, however few tokens that took. */
		rules.mask_stops = rules.mask_stops && (mask.n || !mask.end);
	}
	error = sampler_choose(s, row, p, position, &rules, ret_token);
	if (error == -ENOENT) {
		*ret_words = "no token of the vocabulary can go on with the text in its form";
		return -EPROTO;
	}
	if (error) {
		*ret_words =
			"the model's logits are not finite: its weights or the chip are broken";
		return -EIO;
	}
	if (r->counts)
		token_counts_add(r->counts, *ret_token, true);
	if (is_stop(p, *ret_token)) {
		*ret_ending = ENGINE_FINISH_STOP;
		return 0;
	}
	if (!c)
		return 0;
	error = c->ops->accept(c, *ret_token);
	if (error < 0) {
		*ret_words = c->ops->error(c);
		return -EPROTO;
	}
	if (error)
		*ret_ending = ENGINE_FINISH_COMPLETE;
	return 0;
}
