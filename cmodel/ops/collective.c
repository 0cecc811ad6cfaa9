// SPDX-License-Identifier: MIT
/*
 * ALL_REDUCE and ALL_GATHER within a program. The member that arrives last does the work for all
 * ranks, whose launches are in l->peer[]. A part is a range of rows.
 */
#include "check.h"

#include <errno.h>
#include <string.h>

#include "simd.h"

#define ROWS_PER_PART 4

static int same_shape(const struct cm_launch *l)
{
	for (unsigned r = 0; r < l->group_size; r++) {
		const struct cm_tensor *x = l->peer[r]->in[0];

		if (!x || x->dim[0] != l->in[0]->dim[0] || x->dim[1] != l->in[0]->dim[1])
			return cm_bad(l, TXDA_FAULT_COLLECTIVE, l->in[0], l->in[0]->va, r);
	}
	return 0;
}

static void collective_need(const struct cm_launch *l, struct cm_op_need *need)
{
	need->shared_bytes = 0;
	need->core_bytes = l->in[0]->dim[1] * 4 + 64;
}

static void collective_plan(struct cm_launch *l)
{
	l->phases = 0;
	if (l->in[0]->dim[0])
		l->parts[l->phases++] = cm_div_up(l->in[0]->dim[0], ROWS_PER_PART);
}

static void collective_traffic(const struct cm_launch *l, uint64_t *read, uint64_t *written)
{
	*read = *written = l->in[0]->dim[0] * l->in[0]->dim[1] * 4;
}

/* Each rank's tensors are checked when it arrives, before the peers are known: then group_size is
 * 0. */
static int all_reduce_check(const struct cm_launch *l)
{
	const struct cm_tensor *x = l->in[0];

	if (cm_want(l, x, DT(TXDA_F32), CM_ANY, CM_ANY) ||
	    cm_may(l, l->in[1], DT(TXDA_F32), x->dim[0], x->dim[1]) ||
	    cm_want(l, l->out[0], DT(TXDA_F32), x->dim[0], x->dim[1]))
		return -EINVAL;
	return same_shape(l);
}

static void all_reduce_run(const struct cm_launch *l, unsigned phase, unsigned part, unsigned core)
{
	uint64_t width = l->in[0]->dim[1];
	float *sum = l->core[core];

	(void)phase;
	for (uint64_t row = (uint64_t)part * ROWS_PER_PART;
	     row < cm_part_end(part, ROWS_PER_PART, l->in[0]->dim[0]); row++) {
		memcpy(sum, (const float *)l->peer[0]->in[0]->ptr + row * width, width * 4);
		for (unsigned r = 1; r < l->group_size; r++)
			cm_simd->add(sum, sum, (const float *)l->peer[r]->in[0]->ptr + row * width,
				     width);
		for (unsigned r = 0; r < l->group_size; r++) {
			const struct cm_launch *p = l->peer[r];
			float *out = (float *)p->out[0]->ptr + row * width;

			if (p->in[1])
				cm_simd->add(out, (const float *)p->in[1]->ptr + row * width, sum,
					     width);
			else
				memcpy(out, sum, width * 4);
		}
	}
}

const struct cm_op_impl cm_op_all_reduce = {
	.n_in = 2,
	.n_out = 1,
	.check = all_reduce_check,
	.need = collective_need,
	.plan = collective_plan,
	.run = all_reduce_run,
	.traffic = collective_traffic,
};

static int all_gather_check(const struct cm_launch *l)
{
	const struct cm_tensor *x = l->in[0], *out = l->out[0];

	if (cm_want(l, x, DT(TXDA_F32), CM_ANY, CM_ANY))
		return -EINVAL;
	if (l->rank == 0) {
		if (cm_want(l, out, DT(TXDA_F32), x->dim[0], CM_ANY))
			return -EINVAL;
		if (out->dim[1] > x->dim[1] * l->group_size ||
		    out->dim[1] <= x->dim[1] * (l->group_size - 1))
			return cm_bad(l, TXDA_FAULT_SHAPE, out, out->va, l->group_size);
	} else if (out) {
		return cm_bad(l, TXDA_FAULT_SHAPE, out, out->va, l->rank);
	}
	return same_shape(l);
}

static void all_gather_run(const struct cm_launch *l, unsigned phase, unsigned part, unsigned core)
{
	const struct cm_tensor *out = l->peer[0]->out[0];
	uint64_t width = l->in[0]->dim[1], full = out->dim[1];

	(void)phase;
	(void)core;
	for (uint64_t row = (uint64_t)part * ROWS_PER_PART;
	     row < cm_part_end(part, ROWS_PER_PART, l->in[0]->dim[0]); row++)
		for (unsigned r = 0; r < l->group_size; r++) {
			uint64_t n = full - r * width < width ? full - r * width : width;

			memmove((float *)out->ptr + row * full + r * width,
				(const float *)l->peer[r]->in[0]->ptr + row * width, n * 4);
		}
}

const struct cm_op_impl cm_op_all_gather = {
	.n_in = 1,
	.n_out = 1,
	.check = all_gather_check,
	.need = collective_need,
	.plan = collective_plan,
	.run = all_gather_run,
	.traffic = collective_traffic,
};
