// SPDX-License-Identifier: MIT
/* Kernels for the tests of the machine: simple enough that a test can say what they must do. */
#include "cm_fixture.h"
#include "ops/ops.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

/* Whether an op was left in the middle, with registers set up that are lost. */
static _Thread_local bool in_op;

static bool tiles;

void fix_use_tiles(bool use)
{
	tiles = use;
}

bool cm_ops_use_tiles(void)
{
	return tiles;
}

void cm_ops_rest(void)
{
	in_op = false;
}

int cm_ops_init(const char *isa, const char **ret_name)
{
	if (strcmp(isa, "auto") && strcmp(isa, "c"))
		return -EINVAL;
	*ret_name = "c";
	return 0;
}

void cm_ops_exit(void)
{
}

int cm_bad(const struct cm_launch *l, uint32_t code, const struct cm_tensor *t, uint64_t va,
	   uint64_t detail)
{
	l->fault->code = code;
	l->fault->tensor = t ? t->index : TXDA_NONE;
	l->fault->va = va;
	l->fault->detail = detail;
	return -EINVAL;
}

/* ---- Work without end ------------------------------------------------------------------------ */

static _Atomic unsigned endless, stuck;

void fake_endless(enum fake_endless where)
{
	endless = where;
	stuck = 0;
}

unsigned fake_stuck(void)
{
	return stuck;
}

static void go_on(enum fake_endless where)
{
	if (endless != where)
		return;
	in_op = true;
	stuck++;
	while (endless == where)
		;
	in_op = false;
}

/* ---- RMSNORM: x + weight --------------------------------------------------------------------- */

static int add_check(const struct cm_launch *l)
{
	const struct cm_tensor *x = l->in[0];

	if (x->dtype != TXDA_F32 || x->ndim != 2)
		return cm_bad(l, TXDA_FAULT_SHAPE, x, x->va, x->dtype);
	if (l->in[1]->dim[0] != x->dim[1])
		return cm_bad(l, TXDA_FAULT_SHAPE, l->in[1], l->in[1]->va, l->in[1]->dim[0]);
	if (l->out[0]->bytes < x->bytes)
		return cm_bad(l, TXDA_FAULT_SHAPE, l->out[0], l->out[0]->va, l->out[0]->bytes);
	return 0;
}

static void rows_plan(struct cm_launch *l)
{
	l->phases = 1;
	l->parts[0] = l->in[0]->dim[0];
}

static void add_run(const struct cm_launch *l, unsigned phase, unsigned part, unsigned core)
{
	const float *x = l->in[0]->ptr, *w = l->in[1]->ptr;
	uint64_t h = l->in[0]->dim[1];
	float *out = l->out[0]->ptr, *tmp = l->core[core];

	(void)phase;
	for (uint64_t i = 0; i < h; i++)
		tmp[i] = x[part * h + i] + w[i] + (l->precise ? 1000 : 0);
	memcpy(out + part * h, tmp, h * sizeof(*tmp));
}

static void add_need(const struct cm_launch *l, struct cm_op_need *need)
{
	need->core_bytes = l->in[0]->dim[1] * sizeof(float);
}

static void add_traffic(const struct cm_launch *l, uint64_t *read, uint64_t *written)
{
	*read = l->in[0]->bytes + l->in[1]->bytes;
	*written = l->out[0]->bytes;
}

static const struct cm_op_impl add_op = {
	.n_in = 2,
	.n_out = 1,
	.check = add_check,
	.need = add_need,
	.plan = rows_plan,
	.run = add_run,
	.traffic = add_traffic,
};

/* ---- GATHER_ROWS ----------------------------------------------------------------------------- */

static int gather_check(const struct cm_launch *l)
{
	const uint32_t *row = l->in[1]->ptr;

	for (uint64_t i = 0; i < l->in[1]->dim[0]; i++) {
		if (row[i] >= l->in[0]->dim[0])
			return cm_bad(l, TXDA_FAULT_INDEX, l->in[1], l->in[1]->va + i * 4, row[i]);
	}
	if (l->out[0]->dim[0] != l->in[1]->dim[0] || l->out[0]->dim[1] != l->in[0]->dim[1])
		return cm_bad(l, TXDA_FAULT_SHAPE, l->out[0], l->out[0]->va, 0);
	return 0;
}

static void one_plan(struct cm_launch *l)
{
	l->phases = 1;
	l->parts[0] = 1;
}

static void gather_run(const struct cm_launch *l, unsigned phase, unsigned part, unsigned core)
{
	const uint32_t *row = l->in[1]->ptr;
	const float *x = l->in[0]->ptr;
	float *out = l->out[0]->ptr;
	uint64_t h = l->in[0]->dim[1];

	(void)phase;
	(void)part;
	(void)core;
	for (uint64_t i = 0; i < l->in[1]->dim[0]; i++)
		memcpy(out + i * h, x + row[i] * h, h * sizeof(*out));
}

static const struct cm_op_impl gather_op = {
	.n_in = 2,
	.n_out = 1,
	.check = gather_check,
	.plan = one_plan,
	.run = gather_run,
};

/* ---- ALL_REDUCE ------------------------------------------------------------------------------ */

static int reduce_check(const struct cm_launch *l)
{
	for (unsigned r = 0; r < l->group_size; r++) {
		if (l->peer[r]->in[0]->bytes != l->in[0]->bytes)
			return cm_bad(l, TXDA_FAULT_SHAPE, l->in[0], l->in[0]->va, r);
	}
	return 0;
}

static void reduce_run(const struct cm_launch *l, unsigned phase, unsigned part, unsigned core)
{
	uint64_t h = l->in[0]->dim[1];
	float *sum = l->core[core];

	(void)phase;
	go_on(FAKE_RUN);
	memset(sum, 0, h * sizeof(*sum));
	for (unsigned r = 0; r < l->group_size; r++)
		for (uint64_t i = 0; i < h; i++)
			sum[i] += ((const float *)l->peer[r]->in[0]->ptr)[part * h + i];
	for (unsigned r = 0; r < l->group_size; r++)
		memcpy((float *)l->peer[r]->out[0]->ptr + part * h, sum, h * sizeof(*sum));
}

static const struct cm_op_impl reduce_op = {
	.n_in = 2,
	.n_out = 1,
	.check = reduce_check,
	.need = add_need,
	.plan = rows_plan,
	.run = reduce_run,
};

/* ---- LINEAR: counts its parts ---------------------------------------------------------------- */

#define MAX_PARTS 300

static struct {
	unsigned phases, spin;
	uint64_t parts[CM_MAX_PHASES];
	uint64_t random; /* 0: the shape stays */
	uint64_t launches;
	_Atomic uint64_t current; /* launch that runs */
	_Atomic unsigned hits[CM_MAX_PHASES][MAX_PARTS];
	_Atomic unsigned done[CM_MAX_PHASES];
	_Atomic unsigned errors;
} linear;

void fake_linear_shape(unsigned phases, const uint64_t *parts)
{
	linear.phases = phases;
	memcpy(linear.parts, parts, phases * sizeof(*parts));
	linear.random = 0;
	linear.launches = 0;
}

void fake_linear_random(uint64_t seed)
{
	linear.random = seed;
}

void fake_linear_spin(unsigned turns)
{
	linear.spin = turns;
}

unsigned fake_linear_errors(void)
{
	return linear.errors;
}

uint64_t fake_linear_launches(void)
{
	return linear.launches;
}

static unsigned below(unsigned n)
{
	linear.random ^= linear.random << 13;
	linear.random ^= linear.random >> 7;
	linear.random ^= linear.random << 17;
	return (unsigned)(linear.random % n);
}

static int count_check(const struct cm_launch *l)
{
	(void)l;
	go_on(FAKE_CHECK);
	return 0;
}

/* Each part of the last launch must have run once; then the next is set up. */
static void count_plan(struct cm_launch *l)
{
	go_on(FAKE_PLAN);
	if (linear.launches) {
		for (unsigned phase = 0; phase < linear.phases; phase++) {
			for (unsigned i = 0; i < linear.parts[phase]; i++)
				linear.errors += linear.hits[phase][i] != 1;
		}
	}
	memset(linear.hits, 0, sizeof(linear.hits));
	memset(linear.done, 0, sizeof(linear.done));
	if (linear.random) {
		linear.phases = 1 + below(CM_MAX_PHASES);
		for (unsigned phase = 0; phase < linear.phases; phase++)
			linear.parts[phase] = below(4) ? below(8) : below(MAX_PARTS);
		linear.spin = below(300);
	}
	l->phases = linear.phases;
	memcpy(l->parts, linear.parts, sizeof(l->parts));
	l->state.u[0] = ++linear.launches;
	linear.current = linear.launches;
}

static void count_run(const struct cm_launch *l, unsigned phase, unsigned part, unsigned core)
{
	go_on(FAKE_RUN);
	linear.errors += in_op;
	linear.errors += (cm_float_mode() & ~CM_FLOAT_FLAGS) != CM_FLOAT_FLUSH;
	if (core >= l->cores || part >= linear.parts[phase] || l->state.u[0] != linear.current) {
		linear.errors++;
		return;
	}
	for (unsigned i = 0; i < phase; i++)
		linear.errors += linear.done[i] != linear.parts[i];
	for (volatile unsigned i = 0; i < linear.spin; i++)
		;
	/* A core runs one part at a time, so its scratch needs no lock. */
	if (l->core_bytes)
		*(unsigned *)l->core[core] += 1;
	linear.hits[phase][part]++;
	linear.done[phase]++;
}

static void count_need(const struct cm_launch *l, struct cm_op_need *need)
{
	(void)l;
	need->core_bytes = 64;
}

static const struct cm_op_impl count_op = {
	.n_in = 5,
	.n_out = 1,
	.check = count_check,
	.need = count_need,
	.plan = count_plan,
	.run = count_run,
};

const struct cm_op_impl *cm_op_impl(unsigned opcode)
{
	switch (opcode) {
	case TXDA_OP_RMSNORM: return &add_op;
	case TXDA_OP_LINEAR: return &count_op;
	case TXDA_OP_GATHER_ROWS: return &gather_op;
	case TXDA_OP_ALL_REDUCE: return &reduce_op;
	default: return NULL;
	}
}
