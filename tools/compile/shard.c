// SPDX-License-Identifier: MIT
#include "shard.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>

static bool heads_divide(const struct model_config *c, uint32_t tp)
{
	return c->n_heads % tp == 0 && (c->n_kv_heads % tp == 0 || tp % c->n_kv_heads == 0);
}

/* The width of the ranges of @total over @tp chips: a multiple of @unit if that leaves none empty.
 * 0: impossible. */
static uint32_t range_width(uint32_t total, uint32_t tp, uint32_t unit)
{
	uint32_t width = (total + tp - 1) / tp, rounded = (width + unit - 1) / unit * unit;

	if ((uint64_t)(tp - 1) * rounded < total)
		return rounded;
	return (uint64_t)(tp - 1) * width < total ? width : 0;
}

static struct range range_of(uint32_t total, uint32_t width, uint32_t rank)
{
	uint32_t first = rank * width, left = total - first;

	return (struct range){first, left < width ? left : width};
}

/* How the experts are divided: each chip has some, or a part of each. */
static int shard_experts(const struct moe_config *m, uint32_t group, bool whole, struct shard *s,
			 struct tool_error *error)
{
	uint32_t width;

	s->experts = (struct range){0, m->n_experts};
	s->expert_inner = (struct range){0, m->inner};
	if (!m->n_experts || s->tp == 1) {
		s->shared_inner = (struct range){0, m->shared_inner};
		return 0;
	}
	if (whole) {
		width = range_width(m->n_experts, s->tp, 1);
		if (!width)
			return tool_fail(error, -EINVAL, "--ep: %u experts for %u chips",
					 m->n_experts, s->tp);
		s->experts = range_of(m->n_experts, width, s->rank);
	} else {
		width = range_width(m->inner, s->tp, group);
		if (!width)
			return tool_fail(error, -EINVAL,
					 "%u chips: moe_intermediate_size %u is too small", s->tp,
					 m->inner);
		s->expert_inner = range_of(m->inner, width, s->rank);
	}
	if (!m->shared_inner)
		return 0;
	width = range_width(m->shared_inner, s->tp, group);
	if (!width)
		return tool_fail(error, -EINVAL, "%u chips: the shared expert's %u is too small",
				 s->tp, m->shared_inner);
	s->shared_inner = range_of(m->shared_inner, width, s->rank);
	return 0;
}

int shard_make(const struct model_config *c, uint32_t tp, uint32_t rank, uint32_t group,
	       bool expert_parallel, struct shard *ret, struct tool_error *error)
{
	struct shard s = {.tp = tp, .rank = rank};
	uint32_t inner_width;
	int r;
	char good[64] = "";
	size_t at = 0;
	uint32_t i;

	for (i = 1; i <= TXDA_MAX_GROUP; i++) {
		if (heads_divide(c, i))
			at += (size_t)snprintf(good + at, sizeof(good) - at, "%s%u", at ? ", " : "",
					       i);
	}
	if (!tp || tp > TXDA_MAX_GROUP || !heads_divide(c, tp))
		return tool_fail(
			error, -EINVAL,
			"%u chips: %u query and %u KV heads do not divide among them (%s would do)",
			tp, c->n_heads, c->n_kv_heads, good);
	inner_width = range_width(c->intermediate_size, tp, group);
	s.vocab_width = tp == 1 ? c->vocab_size : range_width(c->vocab_size, tp, TXDA_TILE_N);
	if (!inner_width || !s.vocab_width)
		return tool_fail(error, -EINVAL,
				 "%u chips: intermediate_size %u or vocab_size %u is too small", tp,
				 c->intermediate_size, c->vocab_size);
	s.q_heads = range_of(c->n_heads, c->n_heads / tp, rank);
	if (c->n_kv_heads >= tp)
		s.kv_heads = range_of(c->n_kv_heads, c->n_kv_heads / tp, rank);
	else
		s.kv_heads = (struct range){rank * c->n_kv_heads / tp, 1};
	s.inner = range_of(c->intermediate_size, inner_width, rank);
	s.vocab = range_of(c->vocab_size, s.vocab_width, rank);
	r = shard_experts(&c->moe, group, expert_parallel, &s, error);
	if (!r)
		*ret = s;
	return r;
}
