// SPDX-License-Identifier: MIT
/*
 * LINEAR: y = act(norm(x) W^T + bias) + residual.
 *
 * Phase "pack" turns rows of x into blocks of up to CM_MR packed rows (simd.h); with few rows each
 * core packs them for itself instead, which is cheaper than a barrier. Phase "multiply" hands out
 * parts of (some panels of W) x (some blocks of rows). Within a part K is taken in stretches so
 * that a stretch of a panel stays in the first cache levels while all rows pass over it; the
 * partial sums wait in float32, which keeps the order of additions that of one pass.
 */
#include "check.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "simd.h"
#include "vec.h"

#define SMALL_ROWS    4	 /* up to here each core packs for itself */
#define PART_BLOCKS   16 /* row blocks of a part: 192 rows of K = 1024 take 384 KiB */
#define PART_PANELS   4
#define STREAM_BLOCKS 2	   /* up to here the weights stream past once */
#define STRETCH	      1024 /* K in one go */
#define PACKED_MARK   64   /* bytes before a core's own packed rows: which launch they are of */

/* state.u[] */
enum { U_MR, U_BLOCKS, U_MBLOCKS, U_STREAM, U_PANELS, U_SEQ, U_GO };

static bool is_quant(const struct cm_tensor *w)
{
	return w->dtype == TXDA_W8 || w->dtype == TXDA_W4;
}

/* The activations are not to be rounded to bf16. */
static bool wide(const struct cm_launch *l)
{
	return l->op->linear.flags & TXDA_LINEAR_F32_INPUT;
}

/* How K is counted by the panel kernel: elements a unit, and bytes of packed activations a unit and
 * row. */
static void units(const struct cm_launch *l, unsigned *k_per_unit, unsigned *bytes)
{
	const struct cm_tensor *w = l->in[1];

	if (!l->precise && is_quant(w)) {
		*k_per_unit = TXDA_QUANT_BLOCK;
		*bytes = 40;
	} else if (!l->precise && w->dtype == TXDA_BF16) {
		*k_per_unit = 2;
		*bytes = cm_simd->bf16_floats || wide(l) ? 8 : 4;
	} else {
		*k_per_unit = 1;
		*bytes = 4;
	}
}

static int linear_check(const struct cm_launch *l)
{
	const struct cm_tensor *x = l->in[0], *w = l->in[1], *out = l->out[0];
	const struct txda_op_linear *p = &l->op->linear;
	bool gated = p->act == TXDA_ACT_SILU_GATED;
	uint64_t m, n, k;

	if (p->act >= TXDA_ACT_COUNT || p->flags & ~TXDA_LINEAR_F32_INPUT)
		return cm_bad(l, TXDA_FAULT_PROGRAM, NULL, 0, p->act | (uint64_t)p->flags << 32);
	if (cm_want(l, x, DT_ACT, CM_ANY, CM_ANY) || cm_want_tiles(l, w, CM_ANY, x->dim[1], gated))
		return -EINVAL;
	m = x->dim[0];
	k = x->dim[1];
	n = w->dim[0];
	if (cm_want(l, out, DT_ACT, m, gated ? n / 2 : n) ||
	    cm_may(l, l->in[2], DT(TXDA_F32), n, CM_VECTOR) ||
	    cm_may(l, l->in[3], DT(TXDA_F32), k, CM_VECTOR) ||
	    cm_may(l, l->in[4], DT(TXDA_F32), m, n))
		return -EINVAL;
	/* a residual is added to float32 only; gated outputs have none */
	if (l->in[4] && (gated || out->dtype != TXDA_F32))
		return cm_bad(l, TXDA_FAULT_SHAPE, l->in[4], l->in[4]->va, 0);
	return 0;
}

static uint64_t packed_bytes(const struct cm_launch *l, uint64_t rows)
{
	unsigned per, bytes;

	units(l, &per, &bytes);
	return cm_div_up(l->in[0]->dim[1], per) * bytes * rows;
}

static uint64_t row_bytes(const struct cm_launch *l)
{
	return cm_div_up(l->in[0]->dim[1] * 4, 64) * 64;
}

static void linear_need(const struct cm_launch *l, struct cm_op_need *need)
{
	uint64_t m = l->in[0]->dim[0];

	need->shared_bytes = packed_bytes(l, m) + 64;
	need->core_bytes = 2 * row_bytes(l) + (uint64_t)PART_PANELS * PART_BLOCKS * CM_MR * 128 +
			   PACKED_MARK + packed_bytes(l, SMALL_ROWS) + 64;
}

/*
 * Names each launch, so that a core can tell whose packed rows it holds. Steps by a large odd
 * number: no two launches share a name. Starts where nobody can guess: a client whose other ops
 * leave the next name in the scratch of a core would be given the rows of whoever was there before.
 */
static uint64_t launches = 0x2545f4914f6cdd1d;

void cm_linear_seed(void)
{
	uint64_t seed;

	if (getrandom(&seed, sizeof(seed), 0) == (ssize_t)sizeof(seed))
		__atomic_store_n(&launches, seed, __ATOMIC_RELAXED);
}

/*
 * With few rows the weights stream past once, at the speed of memory. Large parts come first, since
 * each start costs, and ever smaller ones later, so that all cores end together: each round gives
 * every core a part of half of its share of what is left. Finds the panels of part @part; returns
 * how many parts there are up to it, all of them for UINT64_MAX.
 */
static uint64_t stream_part(uint64_t panels, unsigned cores, uint64_t part, uint64_t *first,
			    uint64_t *end)
{
	uint64_t at = 0, n = 0;

	while (at < panels) {
		uint64_t left = panels - at, size = left / (2 * cores) ? left / (2 * cores) : 1;
		uint64_t round = left < cores ? left : cores;

		if (part - n < round) {
			*first = at + (part - n) * size;
			*end = *first + size;
			return part;
		}
		n += round;
		at += round * size;
	}
	return n;
}

static void linear_plan(struct cm_launch *l)
{
	uint64_t m = l->in[0]->dim[0];
	uint64_t panels = txda_tile_panels(l->in[1]->layout, l->in[1]->dim[0]);
	uint64_t blocks, mr, mblocks, first, end;
	bool stream;

	l->phases = 0;
	if (!m || !l->in[1]->dim[0])
		return;
	blocks = cm_div_up(m, !l->precise && is_quant(l->in[1]) ? CM_MR_I8 : CM_MR);
	mr = cm_div_up(m, blocks);
	mblocks = cm_div_up(blocks, PART_BLOCKS);
	stream = blocks <= STREAM_BLOCKS;
	l->state.u[U_MR] = mr;
	l->state.u[U_BLOCKS] = cm_div_up(blocks, mblocks);
	l->state.u[U_MBLOCKS] = mblocks;
	l->state.u[U_STREAM] = stream;
	l->state.u[U_PANELS] = panels;
	l->state.u[U_SEQ] = __atomic_add_fetch(&launches, 0x9e3779b97f4a7c15, __ATOMIC_RELAXED);
	l->state.u[U_GO] = m <= SMALL_ROWS;
	if (m > SMALL_ROWS)
		l->parts[l->phases++] = (unsigned)blocks;
	l->parts[l->phases++] =
		(unsigned)(stream ? stream_part(panels, l->cores, UINT64_MAX, &first, &end)
				  : cm_div_up(panels, PART_PANELS) * mblocks);
}

/* Row @r of the input as float32, normalised; in place of the tensor itself where that will do. */
static const float *input_row(const struct cm_launch *l, uint64_t r, float *tmp, float *tmp2)
{
	const struct cm_tensor *x = l->in[0];
	uint64_t k = x->dim[1];
	const float *row;

	if (x->dtype == TXDA_BF16) {
		cm_simd->from_bf16(tmp, (const uint16_t *)x->ptr + r * k, k);
		row = tmp;
	} else {
		row = (const float *)x->ptr + r * k;
	}
	if (!l->in[3])
		return row;
	if (l->precise)
		cm_precise_norm(tmp2, row, l->in[3]->ptr, k, l->op->linear.eps);
	else
		cm_simd->rmsnorm(tmp2, row, l->in[3]->ptr, k, l->op->linear.eps);
	return tmp2;
}

/* Packs rows [row, row + mr) as one block at @to. */
static void pack_block(const struct cm_launch *l, uint64_t row, unsigned mr, void *to, float *tmp)
{
	const struct cm_tensor *x = l->in[0];
	uint64_t k = x->dim[1];
	float *tmp2 = tmp + row_bytes(l) / 4;
	unsigned per, bytes;

	units(l, &per, &bytes);
	for (unsigned m = 0; m < mr; m++) {
		const float *in;

		if (bytes == 4 && per == 2 && x->dtype == TXDA_BF16 && !l->in[3] && k % 2 == 0) {
			const uint16_t *h = (const uint16_t *)x->ptr + (row + m) * k;
			uint32_t *block = to;

			for (uint64_t i = 0; i < k / 2; i++)
				memcpy(&block[i * mr + m], h + 2 * i, 4);
			continue;
		}
		in = input_row(l, row + m, tmp, tmp2);
		if (per == 2)
			cm_simd->pack_bf16(to, mr, m, in, k, wide(l));
		else if (per == TXDA_QUANT_BLOCK)
			cm_simd->pack_i8(to, mr, m, in, k);
		else
			cm_simd->pack_f32(to, mr, m, in, k);
	}
}

/* Precise mode: float32 rows packed one by one (block rows side by side), weights as they mean,
 * sums in double. */
static void precise_panel(const struct cm_launch *l, float *acc, const float *a, unsigned mr,
			  uint64_t panel)
{
	const struct cm_tensor *w = l->in[1];
	bool gated = w->layout == TXDA_TILE32_GATED;

	for (unsigned c = 0; c < 32; c++) {
		uint64_t n = panel * 32 + c, half = w->dim[0] / 2, j = panel * 16 + c % 16;

		if (gated)
			n = j < half ? j + (c < 16 ? 0 : half) : UINT64_MAX;
		for (unsigned m = 0; m < mr; m++) {
			double s = 0;

			for (uint64_t k = 0; n < w->dim[0] && k < w->dim[1]; k++)
				s += (double)cm_tile_get(w, n, k) * a[k * mr + m];
			acc[m * 32 + c] = (float)s;
		}
	}
}

static void panel_stretch(const struct cm_launch *l, float *acc, const uint8_t *panel,
			  const uint8_t *a, uint64_t unit, uint64_t n, unsigned mr)
{
	const struct cm_tensor *w = l->in[1];
	bool first = unit == 0;

	switch (w->dtype) {
	case TXDA_BF16:
		cm_simd->panel_bf16(acc, panel + unit * 128, a, n, mr, first, wide(l));
		break;
	case TXDA_F16: cm_simd->panel_f16(acc, panel + unit * 64, a, n, mr, first); break;
	case TXDA_F32: cm_simd->panel_f32(acc, panel + unit * 128, a, n, mr, first); break;
	case TXDA_W8:
		cm_simd->panel_w8(acc,
				  panel + unit * 32 / w->group * (64 + (uint64_t)w->group * 32), a,
				  n, mr, first, w->group);
		break;
	case TXDA_W4:
		cm_simd->panel_w4(acc,
				  panel + unit * 32 / w->group * (64 + (uint64_t)w->group * 16), a,
				  n, mr, first, w->group);
		break;
	}
}

static void finish_gated(const struct cm_launch *l, float *acc, uint64_t row, uint64_t panel)
{
	const struct cm_tensor *out = l->out[0];
	const float *bias = l->in[2] ? l->in[2]->ptr : NULL;
	uint64_t half = out->dim[1], n = panel * 16;
	unsigned cols = half - n < 16 ? (unsigned)(half - n) : 16;
	float y[16];

	for (unsigned c = 0; bias && c < cols; c++) {
		acc[c] += bias[n + c];
		acc[16 + c] += bias[half + n + c];
	}
	if (l->precise)
		for (unsigned c = 0; c < cols; c++)
			y[c] = (float)(acc[c] / (1.0 + exp(-(double)acc[c]))) * acc[16 + c];
	else
		cm_simd->silu_gate(y, acc);
	if (out->dtype == TXDA_F32)
		memcpy((float *)out->ptr + row * half + n, y, cols * 4);
	else
		cm_simd->to_bf16((uint16_t *)out->ptr + row * half + n, y, cols);
}

static void finish_plain(const struct cm_launch *l, float *acc, uint64_t row, uint64_t panel)
{
	const struct cm_tensor *out = l->out[0];
	uint64_t width = out->dim[1], n = panel * 32, at = row * width + n;
	unsigned cols = width - n < 32 ? (unsigned)(width - n) : 32;

	if (l->in[2])
		cm_simd->add(acc, acc, (const float *)l->in[2]->ptr + n, cols);
	if (l->in[4])
		cm_simd->add((float *)out->ptr + at, acc, (const float *)l->in[4]->ptr + at, cols);
	else if (out->dtype == TXDA_F32)
		memcpy((float *)out->ptr + at, acc, cols * 4);
	else
		cm_simd->to_bf16((uint16_t *)out->ptr + at, acc, cols);
}

/* Where the packed rows are: the shared ones, or this core's own, made at its first part of the
 * launch. */
static const uint8_t *packed_rows(const struct cm_launch *l, unsigned core, float *tmp)
{
	uint64_t *mark;

	if (!l->state.u[U_GO])
		return l->shared;
	mark = (uint64_t *)((uint8_t *)l->core[core] + 2 * row_bytes(l) +
			    (uint64_t)PART_PANELS * PART_BLOCKS * CM_MR * 128);
	if (*mark != l->state.u[U_SEQ]) {
		pack_block(l, 0, (unsigned)l->in[0]->dim[0], (uint8_t *)mark + PACKED_MARK, tmp);
		*mark = l->state.u[U_SEQ];
	}
	return (uint8_t *)mark + PACKED_MARK;
}

/* What a part covers: rows [row0, row1) in blocks of mr, panels [panel0, panel1). */
struct part {
	uint64_t row0, row1, mr;
	uint64_t panel0, panel1;
	uint64_t units, stretch; /* of K in all, in one go */
	unsigned unit_bytes;	 /* of packed activations, per row */
	const uint8_t *a;	 /* packed rows */
};

/* All rows of the part times units [unit, unit + stretch) of one panel, whose sums are
 * acc[row][32]. */
static void multiply_stretch(const struct cm_launch *l, const struct part *t, float *acc,
			     uint64_t panel, uint64_t unit)
{
	const struct cm_tensor *w = l->in[1];
	uint64_t n = t->units - unit < t->stretch ? t->units - unit : t->stretch;
	const uint8_t *tiles = (const uint8_t *)w->ptr +
			       panel * txda_tile_panel_bytes(w->dtype, w->dim[1], w->group);

	for (uint64_t r = t->row0; r < t->row1; r += t->mr, acc += t->mr * 32) {
		unsigned rows = (unsigned)(r + t->mr < t->row1 ? t->mr : t->row1 - r);
		const uint8_t *a = t->a + (r * t->units + unit * rows) * t->unit_bytes;

		if (l->precise)
			precise_panel(l, acc, (const float *)a, rows, panel);
		else
			panel_stretch(l, acc, tiles, a, unit, n, rows);
	}
}

static void finish_panel(const struct cm_launch *l, const struct part *t, float *acc,
			 uint64_t panel)
{
	for (uint64_t r = t->row0; r < t->row1; r++, acc += 32)
		if (l->in[1]->layout == TXDA_TILE32_GATED)
			finish_gated(l, acc, r, panel);
		else
			finish_plain(l, acc, r, panel);
}

static void multiply(const struct cm_launch *l, unsigned part, unsigned core)
{
	uint64_t mblocks = l->state.u[U_MBLOCKS], blocks = l->state.u[U_BLOCKS];
	uint64_t rows = l->in[0]->dim[0], acc_rows = blocks * l->state.u[U_MR];
	uint64_t group = l->state.u[U_STREAM] ? 1 : PART_PANELS;
	float *tmp = l->core[core], *acc = (float *)((uint8_t *)tmp + 2 * row_bytes(l));
	struct part t = {
		.mr = l->state.u[U_MR],
		.row0 = part % mblocks * acc_rows,
		.panel0 = part / mblocks * PART_PANELS,
		.panel1 = (part / mblocks + 1) * PART_PANELS,
		.a = packed_rows(l, core, tmp),
	};
	unsigned per;

	if (l->state.u[U_STREAM])
		stream_part(l->state.u[U_PANELS], l->cores, part, &t.panel0, &t.panel1);
	if (t.panel1 > l->state.u[U_PANELS])
		t.panel1 = l->state.u[U_PANELS];
	t.row1 = t.row0 + acc_rows < rows ? t.row0 + acc_rows : rows;
	units(l, &per, &t.unit_bytes);
	t.units = cm_div_up(l->in[1]->dim[1], per);
	/* Many rows: a stretch of K of some panels at a time; few: each panel from end to end. */
	t.stretch = blocks > 1 && !l->precise ? STRETCH / per : t.units;
	for (uint64_t first = t.panel0; first < t.panel1; first += group) {
		uint64_t end = first + group < t.panel1 ? first + group : t.panel1;

		for (uint64_t u = 0; u < t.units; u += t.stretch)
			for (uint64_t p = first; p < end; p++)
				multiply_stretch(l, &t, acc + (p - first) * acc_rows * 32, p, u);
		for (uint64_t p = first; p < end; p++)
			finish_panel(l, &t, acc + (p - first) * acc_rows * 32, p);
	}
}

static void linear_run(const struct cm_launch *l, unsigned phase, unsigned part, unsigned core)
{
	uint64_t mr = l->state.u[U_MR], row = part * mr, rows = l->in[0]->dim[0];
	unsigned per, bytes;

	if (phase + 1 == l->phases) {
		multiply(l, part, core);
		return;
	}
	if (row >= rows)
		return;
	units(l, &per, &bytes);
	pack_block(l, row, (unsigned)(row + mr < rows ? mr : rows - row),
		   (uint8_t *)l->shared + row * cm_div_up(l->in[0]->dim[1], per) * bytes,
		   l->core[core]);
}

static void linear_traffic(const struct cm_launch *l, uint64_t *read, uint64_t *written)
{
	const struct cm_tensor *w = l->in[1];

	*read = txda_tile_panels(w->layout, w->dim[0]) *
			txda_tile_panel_bytes(w->dtype, w->dim[1], w->group) +
		l->in[0]->dim[0] * l->in[0]->dim[1] * (l->in[0]->dtype == TXDA_F32 ? 4 : 2);
	*written = l->out[0]->dim[0] * l->out[0]->dim[1] * (l->out[0]->dtype == TXDA_F32 ? 4 : 2);
}

const struct cm_op_impl cm_op_linear = {
	.name = "LINEAR",
	.n_in = 5,
	.n_out = 1,
	.check = linear_check,
	.need = linear_need,
	.plan = linear_plan,
	.run = linear_run,
	.traffic = linear_traffic,
};
