// SPDX-License-Identifier: MIT
#include "shard.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>

/* Chips that share a KV head when there are fewer of those than chips. */
static uint32_t most_sharing(uint32_t kv, uint32_t tp)
{
	return (tp + kv - 1) / kv;
}

/* Every chip must have a query head, and a value head of a gated delta net. */
static bool heads_divide(const struct model_config *c, uint32_t tp)
{
	const struct delta_config *d = &c->delta;

	return (c->n_kv_heads >= tp ||
		c->n_heads / c->n_kv_heads >= most_sharing(c->n_kv_heads, tp)) &&
	       (d->n_k_heads >= tp || !d->n_k_heads ||
		d->n_v_heads / d->n_k_heads >= most_sharing(d->n_k_heads, tp));
}

/*
 * With enough KV heads each chip has some, distributed as evenly as possible, with all of their
 * queries. Otherwise the chips are divided among the KV heads, and the chips of one head share its
 * queries.
 */
static void shard_heads(uint32_t heads, uint32_t kv, const struct shard *s, struct range *ret_kv,
			struct range *ret_q)
{
	uint32_t tp = s->tp, group = heads / kv, rank = s->rank, head, from, n;

	if (kv >= tp) {
		ret_kv->first = rank * kv / tp;
		ret_kv->n = (rank + 1) * kv / tp - ret_kv->first;
		ret_q->first = ret_kv->first * group;
		ret_q->n = ret_kv->n * group;
		return;
	}
	head = rank * kv / tp;
	from = (head * tp + kv - 1) / kv;
	n = ((head + 1) * tp + kv - 1) / kv - from;
	*ret_kv = (struct range){head, 1};
	ret_q->first = head * group + (rank - from) * group / n;
	ret_q->n = head * group + (rank - from + 1) * group / n - ret_q->first;
}

/* The maximum number of heads of either kind on one chip. */
static void count_most(uint32_t heads, uint32_t kv, uint32_t tp, uint32_t *ret_kv, uint32_t *ret_q)
{
	struct shard s = {.tp = tp};

	*ret_kv = *ret_q = 0;
	for (s.rank = 0; s.rank < tp; s.rank++) {
		struct range k, q;

		shard_heads(heads, kv, &s, &k, &q);
		*ret_kv = k.n > *ret_kv ? k.n : *ret_kv;
		*ret_q = q.n > *ret_q ? q.n : *ret_q;
	}
}

/*
 * The width of the ranges when @total is divided among @tp chips: a multiple of @unit if no range
 * is empty then. 0: impossible.
 */
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

/*
 * This chip's part of @total: cut at multiples of @unit if every chip gets some then, else as
 * evenly as possible. False: there are too few.
 */
static bool part_of(uint32_t total, const struct shard *s, uint32_t unit, struct range *ret)
{
	uint32_t width = range_width(total, s->tp, unit);

	if (total < s->tp)
		return false;
	if (width && width % unit == 0) {
		*ret = range_of(total, width, s->rank);
		return true;
	}
	ret->first = (uint32_t)((uint64_t)s->rank * total / s->tp);
	ret->n = (uint32_t)(((uint64_t)s->rank + 1) * total / s->tp) - ret->first;
	return true;
}

/* How the experts are divided: each chip has some, or a part of each. */
static int shard_experts(const struct moe_config *m, uint32_t group, bool whole, struct shard *s,
			 struct tool_error *error)
{
	s->experts = (struct range){0, m->n_experts};
	s->expert_inner = (struct range){0, m->inner};
	s->shared_inner = (struct range){0, m->shared_inner};
	if (!m->n_experts || s->tp == 1)
		return 0;
	if (whole && (m->n_experts < s->tp || !part_of(m->n_experts, s, m->n_experts, &s->experts)))
		return tool_fail(error, -EINVAL, "--ep: %u experts for %u chips", m->n_experts,
				 s->tp);
	if (!whole && !part_of(m->inner, s, group, &s->expert_inner))
		return tool_fail(error, -EINVAL, "%u chips: moe_intermediate_size %u is too small",
				 s->tp, m->inner);
	if (m->shared_inner && !part_of(m->shared_inner, s, group, &s->shared_inner))
		return tool_fail(error, -EINVAL, "%u chips: the shared expert's %u is too small",
				 s->tp, m->shared_inner);
	return 0;
}

int shard_make(const struct model_config *c, uint32_t tp, uint32_t rank, uint32_t group,
	       bool expert_parallel, struct shard *ret, struct tool_error *error)
{
	struct shard s = {.tp = tp, .rank = rank};
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
	s.vocab_width = tp == 1 ? c->vocab_size : range_width(c->vocab_size, tp, TXDA_TILE_N);
	if (!part_of(c->intermediate_size, &s, group, &s.inner) || !s.vocab_width)
		return tool_fail(error, -EINVAL,
				 "%u chips: intermediate_size %u or vocab_size %u is too small", tp,
				 c->intermediate_size, c->vocab_size);
	shard_heads(c->n_heads, c->n_kv_heads, &s, &s.kv_heads, &s.q_heads);
	count_most(c->n_heads, c->n_kv_heads, tp, &s.kv_heads_most, &i);
	if (c->delta.n_k_heads) {
		shard_heads(c->delta.n_v_heads, c->delta.n_k_heads, &s, &s.k_heads, &s.v_heads);
		count_most(c->delta.n_v_heads, c->delta.n_k_heads, tp, &s.k_heads_most,
			   &s.v_heads_most);
	}
	s.vocab = range_of(c->vocab_size, s.vocab_width, rank);
	r = shard_experts(&c->moe, group, expert_parallel, &s, error);
	if (!r)
		*ret = s;
	return r;
}
