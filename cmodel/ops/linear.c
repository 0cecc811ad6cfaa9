// SPDX-License-Identifier: MIT
/*
 * LINEAR: y = act(norm(x) W^T + bias) + residual.
 *
 * Phase "pack" turns rows of x into blocks of packed rows (simd.h); with few rows, of one block, each
 * core packs them for itself instead, which is cheaper than a barrier. Phase "multiply" hands out
 * parts of (some panels of W) x (some blocks of rows). Within a part K is divided into stretches: a
 * stretch of a panel stays in the caches nearest to the core while all rows are multiplied with it.
 * Partial sums are kept in float32, so the order of additions is that of one pass.
 *
 * A single panel would be one part for few rows. Its K is cut into pieces, cm_product_piece(), for any
 * number of rows, so that a row has its bits in any company: each part has the sums of one piece, and a
 * phase "merge" adds those of a row from left to right.
 */
#include "product.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "simd.h"

#define SMALL_ROWS  4	/* up to so many each core packs for itself */
#define PART_ROWS   192 /* rows of a part: 384 KiB with K = 1024 */
#define PART_PANELS 4
#define TILE_PANELS 8 /* the same with tiles: a part's sums take half of the second-level cache */
#define TILE_BLOCKS 16
#define TILE_STEP   80	       /* cycles of a step of K */
#define FAR_SPEED   6	       /* bytes per cycle from beyond the second-level cache */
#define NEAR_ROWS   (1u << 20) /* bytes of packed rows that stay in it from panel to panel */
#define MOST_ROWS   (2u << 20) /* bytes of packed rows of a part, half if wide */
#define MORE_CUTS   8
#define MOST_IDLE   15 /* percent of idle time at the end above which parts are made smaller */
#define PACK_ROWS   4  /* fewest rows of a part of packing that is less than a block */
#define STREAM_ROWS 64 /* up to so many rows the weights are read once */
#define NEAR_BYTES  (4u << 20) /* packed rows that the caches hold while panels are read */
#define PACKED_MARK 64	       /* bytes before a core's own packed rows: their launch's number */

/* state.u[] */
enum {
	U_MR,
	U_PACK,
	U_BLOCKS,
	U_MBLOCKS,
	U_GROUP,
	U_GROUPS,
	U_STREAM,
	U_PANELS,
	U_SEQ,
	U_GO,
	U_FAR,
	U_PIECE
};

static void product_of(const struct cm_launch *l, struct cm_product *p)
{
	cm_product_init(p, l, l->in[0], l->in[1], l->in[3], l->in[5] ? l->in[5]->ptr : NULL,
			l->op->linear.eps, l->op->linear.flags);
}

/* The sums of row @row over piece @piece, behind the packed rows. */
static float *piece_sums(const struct cm_launch *l, const struct cm_product *p, uint64_t piece,
			 uint64_t row)
{
	uint64_t rows = l->in[0]->dim[0], packed = cm_div_up(cm_product_packed(p, rows), 64) * 64;

	return (float *)((uint8_t *)l->shared + packed) + (piece * rows + row) * 32;
}

static int linear_check(const struct cm_launch *l)
{
	const struct cm_tensor *x = l->in[0], *w = l->in[1], *out = l->out[0];
	const struct txda_op_linear *p = &l->op->linear;
	bool gated = txda_is_gated(p->act);
	uint64_t m, n, k, width;

	if (p->act >= TXDA_ACT_COUNT ||
	    p->flags & ~(TXDA_LINEAR_F32_INPUT | TXDA_LINEAR_FLOAT_INPUT))
		return cm_bad(l, TXDA_FAULT_PROGRAM, NULL, 0, p->act | (uint64_t)p->flags << 32);
	if (cm_want_limit(l, p->act, p->limit) || cm_want(l, x, DT_ACT, CM_ANY, CM_ANY) ||
	    cm_want_tiles(l, w, CM_ANY, CM_ANY, gated))
		return -EINVAL;
	m = x->dim[0];
	k = w->dim[1];
	n = w->dim[0];
	width = gated ? n / 2 : n;
	if (cm_want(l, out, DT_ACT, m, CM_ANY) || cm_may(l, l->in[2], DT(TXDA_F32), n, CM_VECTOR) ||
	    cm_may(l, l->in[3], DT(TXDA_F32), x->dim[1], CM_VECTOR) ||
	    cm_may(l, l->in[4], DT(TXDA_F32), m, n) ||
	    cm_may(l, l->in[5], DT(TXDA_I32), k, CM_VECTOR))
		return -EINVAL;
	if (!l->in[5] && x->dim[1] != k)
		return cm_bad(l, TXDA_FAULT_SHAPE, w, w->va, k);
	if (out->dim[1] < width || p->out_col > out->dim[1] - width)
		return cm_bad(l, TXDA_FAULT_SHAPE, out, out->va, p->out_col);
	/* a residual is added to float32 only; gated and partial outputs have none */
	if (l->in[4] && (gated || out->dtype != TXDA_F32 || out->dim[1] != n))
		return cm_bad(l, TXDA_FAULT_SHAPE, l->in[4], l->in[4]->va, 0);
	return l->in[5] ? cm_want_index(l, l->in[5], k, x->dim[1], TXDA_NONE) : 0;
}

static uint64_t acc_bytes(void)
{
	if (cm_simd->tiles)
		return (uint64_t)TILE_PANELS * TILE_BLOCKS * CM_MR_MAX * 128;
	return (uint64_t)PART_PANELS * (PART_ROWS + CM_MR_MAX) * 128;
}

static void linear_need(const struct cm_launch *l, struct cm_op_need *need)
{
	struct cm_product p;

	if (l->in[1]->ndim != 2)
		return; /* check() will refuse it */
	product_of(l, &p);
	need->shared_bytes = cm_product_packed(&p, l->in[0]->dim[0]) + 64;
	if (cm_product_piece(&p) < p.units)
		need->shared_bytes += cm_div_up(p.units, cm_product_piece(&p)) * l->in[0]->dim[0] *
				      32 * sizeof(float);
	need->core_bytes = cm_product_scratch(&p) + acc_bytes() + PACKED_MARK +
			   cm_product_packed(&p, SMALL_ROWS) + 64;
}

/*
 * The number of the next launch, by which a core knows the launch of the packed rows that it holds.
 * Steps by a large odd number, so that numbers do not repeat. The start is random: a client that
 * wrote the next number into a core's scratch, with another op, would get an earlier client's rows.
 */
static uint64_t launches = 0x2545f4914f6cdd1d;

void cm_linear_seed(void)
{
	uint64_t seed;

	if (getrandom(&seed, sizeof(seed), 0) == (ssize_t)sizeof(seed))
		__atomic_store_n(&launches, seed, __ATOMIC_RELAXED);
}

/*
 * With few rows the weights are read once, at the speed of memory. Large parts come first, since
 * each start costs time, and smaller ones later, so that all cores end together: each round gives
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

/*
 * With tiles computing takes so little time that reading the rows and panels of a part matters,
 * too: chooses the shape with the least estimated time. At the end cores wait for the last part,
 * half of it on average.
 */
static void size_tile_parts(struct cm_launch *l, const struct cm_product *p, uint64_t blocks,
			    uint64_t mr)
{
	uint64_t panels = l->state.u[U_PANELS], row = cm_product_packed(p, mr);
	uint64_t panel = p->panel_bytes, least = 0;
	uint64_t terms = p->wide ? 2 : 1, steps = cm_div_up(p->k, 32) * terms;
	uint64_t fewest = cm_div_up(blocks, TILE_BLOCKS);
	uint64_t near = cm_div_up(blocks * row * terms, MOST_ROWS);

	fewest = near > fewest ? near : fewest;
	fewest = fewest < blocks ? fewest : blocks;
	for (uint64_t c = fewest; c <= blocks && c < fewest + MORE_CUTS; c++)
		for (uint64_t group = 1; group <= TILE_PANELS && group < 2 * panels; group *= 2) {
			uint64_t rows = cm_div_up(blocks, c), far = rows * row;
			uint64_t parts = cm_div_up(blocks, rows) * cm_div_up(panels, group), cost;

			far = (far < NEAR_ROWS ? far / 4 : far) + group * panel;
			cost = rows * group * steps * TILE_STEP + far / FAR_SPEED;
			cost *= 2 * cm_div_up(parts, l->cores) + 1;
			if (least && cost >= least)
				continue;
			least = cost;
			l->state.u[U_GROUP] = group;
			l->state.u[U_BLOCKS] = rows;
			l->state.u[U_MBLOCKS] = cm_div_up(blocks, rows);
			l->state.u[U_GROUPS] = cm_div_up(panels, group);
		}
	l->state.u[U_FAR] = true;
}

/* Whether that many parts of one size leave cores without work for long. */
static bool ends_unevenly(uint64_t parts, unsigned cores)
{
	uint64_t all = cm_div_up(parts, cores) * cores;

	return (all - parts) * 100 > all * MOST_IDLE;
}

/*
 * Rows of a part of packing. With tiles a row is written in pieces that are far apart, next to
 * those of other rows of the block: a core that packs a whole block writes contiguous memory.
 */
static uint64_t rows_to_pack(const struct cm_launch *l, uint64_t blocks, uint64_t mr)
{
	uint64_t rows = mr;

	while (cm_simd->tiles && rows > PACK_ROWS &&
	       ends_unevenly(blocks * cm_div_up(mr, rows), l->cores))
		rows = cm_div_up(rows, 2);
	return rows;
}

/*
 * Many rows: panels that a part takes, and into how many the blocks are cut. As large as the caches
 * allow, since each part reads its rows and its panels anew, and no larger than the cores need to
 * end together.
 *
 * Parts of the same panels follow each other, unless the rows are too many for the caches: then
 * parts of the same rows do, since weights are prefetched and rows are not.
 */
static void size_parts(struct cm_launch *l, const struct cm_product *p, uint64_t blocks,
		       uint64_t mr)
{
	uint64_t panels = l->state.u[U_PANELS], group = PART_PANELS;
	uint64_t cuts = cm_div_up(blocks * mr, PART_ROWS);

	while (group > 1 && ends_unevenly(cm_div_up(panels, group) * cuts, l->cores))
		group /= 2;
	while (cuts < blocks && ends_unevenly(cm_div_up(panels, group) * cuts, l->cores))
		cuts++;
	l->state.u[U_GROUP] = group;
	l->state.u[U_BLOCKS] = cm_div_up(blocks, cuts);
	l->state.u[U_MBLOCKS] = cm_div_up(blocks, l->state.u[U_BLOCKS]);
	l->state.u[U_GROUPS] = cm_div_up(panels, group);
	l->state.u[U_FAR] = cm_product_packed(p, l->in[0]->dim[0]) > NEAR_BYTES;
}

static void linear_plan(struct cm_launch *l)
{
	uint64_t m = l->in[0]->dim[0];
	uint64_t panels = txda_tile_panels(l->in[1]->layout, l->in[1]->dim[0]);
	uint64_t blocks, mr, first, end, pieces;
	struct cm_product p;
	bool stream;

	l->phases = 0;
	if (!m || !l->in[1]->dim[0])
		return;
	product_of(l, &p);
	blocks = cm_div_up(m, p.mr);
	mr = cm_div_up(m, blocks);
	stream = m <= STREAM_ROWS;
	l->state.u[U_MR] = mr;
	l->state.u[U_PACK] = rows_to_pack(l, blocks, mr);
	l->state.u[U_STREAM] = stream;
	l->state.u[U_PANELS] = panels;
	if (stream) {
		l->state.u[U_GROUP] = 1;
		l->state.u[U_BLOCKS] = blocks;
		l->state.u[U_MBLOCKS] = 1;
		l->state.u[U_FAR] = 0;
	} else if (cm_product_in_tiles(&p)) {
		size_tile_parts(l, &p, blocks, mr);
	} else {
		size_parts(l, &p, blocks, mr);
	}
	l->state.u[U_SEQ] = __atomic_add_fetch(&launches, 0x9e3779b97f4a7c15, __ATOMIC_RELAXED);
	l->state.u[U_GO] = m <= SMALL_ROWS && blocks == 1;
	if (!l->state.u[U_GO])
		l->parts[l->phases++] = blocks * cm_div_up(mr, l->state.u[U_PACK]);
	l->state.u[U_PIECE] = cm_product_piece(&p);
	pieces = cm_div_up(p.units, l->state.u[U_PIECE]);
	l->parts[l->phases++] =
		pieces * (stream ? stream_part(panels, l->cores, UINT64_MAX, &first, &end)
				 : l->state.u[U_GROUPS] * l->state.u[U_MBLOCKS]);
	if (pieces > 1)
		l->parts[l->phases++] = blocks;
}

/* Packs rows [first, end) of the block at @to, which has rows [row, row + mr). */
static void pack_rows(const struct cm_product *p, uint64_t row, unsigned first, unsigned end,
		      unsigned mr, void *to, float *tmp)
{
	uint64_t rows[CM_MR_MAX];

	for (unsigned m = first; m < end; m++)
		rows[m] = row + m;
	cm_product_pack(p, rows, first, end, mr, to, tmp);
}

static void put(const struct cm_tensor *out, uint64_t at, const float *y, unsigned cols)
{
	if (out->dtype == TXDA_F32)
		memcpy((float *)out->ptr + at, y, cols * 4);
	else
		cm_simd->to_bf16((uint16_t *)out->ptr + at, y, cols);
}

static void finish_gated(const struct cm_launch *l, const struct cm_product *p, float *acc,
			 uint64_t row, uint64_t panel)
{
	const struct cm_tensor *out = l->out[0];
	uint64_t half = p->n / 2, n = panel * 16;
	unsigned cols = half - n < 16 ? (unsigned)(half - n) : 16;
	float y[16];

	if (l->in[2])
		cm_product_bias(p, acc, l->in[2]->ptr, panel);
	cm_gate(p->precise, l->op->linear.act, l->op->linear.limit, y, acc);
	put(out, row * out->dim[1] + l->op->linear.out_col + n, y, cols);
}

static void finish_plain(const struct cm_launch *l, const struct cm_product *p, float *acc,
			 uint64_t row, uint64_t panel)
{
	const struct cm_tensor *out = l->out[0];
	uint64_t n = panel * 32, at = row * out->dim[1] + l->op->linear.out_col + n;
	unsigned cols = p->n - n < 32 ? (unsigned)(p->n - n) : 32;

	if (l->in[2])
		cm_product_bias(p, acc, l->in[2]->ptr, panel);
	if (l->op->linear.act == TXDA_ACT_SOFTCAP)
		cm_softcap(p->precise, l->op->linear.limit, acc);
	else if (txda_is_plain_act(l->op->linear.act))
		cm_activate(p->precise, l->op->linear.act, acc);
	if (l->in[4])
		cm_simd->add((float *)out->ptr + at, acc, (const float *)l->in[4]->ptr + at, cols);
	else
		put(out, at, acc, cols);
}

/* The packed rows: the shared ones, or this core's own, packed at its first part of the launch. */
static const uint8_t *packed_rows(const struct cm_launch *l, const struct cm_product *p,
				  unsigned core)
{
	float *tmp = l->core[core];
	uint64_t *mark;

	if (!l->state.u[U_GO])
		return l->shared;
	mark = (uint64_t *)((uint8_t *)tmp + cm_product_scratch(p) + acc_bytes());
	if (*mark != l->state.u[U_SEQ]) {
		unsigned rows = (unsigned)l->in[0]->dim[0];

		pack_rows(p, 0, 0, rows, rows, (uint8_t *)mark + PACKED_MARK, tmp);
		*mark = l->state.u[U_SEQ];
	}
	return (uint8_t *)mark + PACKED_MARK;
}

/* What a part covers: rows [row0, row1) in blocks of mr, panels [panel0, panel1), units of K. */
struct part {
	const struct cm_product *p;
	uint64_t row0, row1, mr;
	uint64_t panel0, panel1;
	uint64_t unit0, unit1;
	const uint8_t *a; /* packed rows */
	void *scratch;	  /* of this core */
};

/* Finishes rows [r, end) of a panel at once, unless it is a partial one. */
static bool finish_at_once(const struct cm_launch *l, const struct cm_product *p, const float *acc,
			   uint64_t panel, uint64_t r, uint64_t end)
{
	const struct cm_tensor *out = l->out[0];
	const bool gated = l->in[1]->layout == TXDA_TILE32_GATED, f32 = out->dtype == TXDA_F32;
	const uint64_t width = gated ? 16 : 32, n = panel * width,
		       at = r * out->dim[1] + l->op->linear.out_col + n;
	const float *bias = l->in[2] ? (const float *)l->in[2]->ptr + n : NULL;

	if (p->precise || n + width > (gated ? p->n / 2 : p->n))
		return false;
	cm_simd->put(
		&(struct cm_put){
			.out = (uint8_t *)out->ptr + at * (f32 ? 4 : 2),
			.stride = out->dim[1],
			.f32 = f32,
			.act = l->op->linear.act,
			.limit = l->op->linear.limit,
			.bias = bias,
			.bias_up = bias && gated ? bias + p->n / 2 : NULL,
			.add = l->in[4] ? (const float *)l->in[4]->ptr + at : NULL,
		},
		acc, (unsigned)(end - r));
	return true;
}

/* Finishes block @block of the part's rows, or keeps the sums of a piece of K for merge(). */
static void finish_block(const struct cm_launch *l, const struct part *t, float *acc,
			 uint64_t panel, uint64_t block)
{
	uint64_t r = t->row0 + block * t->mr, end = r + t->mr < t->row1 ? r + t->mr : t->row1;

	if (t->unit1 - t->unit0 < t->p->units) {
		memcpy(piece_sums(l, t->p, t->unit0 / l->state.u[U_PIECE], r), acc,
		       (end - r) * 32 * sizeof(*acc));
		return;
	}
	if (finish_at_once(l, t->p, acc, panel, r, end))
		return;
	for (; r < end; r++, acc += 32)
		if (l->in[1]->layout == TXDA_TILE32_GATED)
			finish_gated(l, t->p, acc, r, panel);
		else
			finish_plain(l, t->p, acc, r, panel);
}

/*
 * All rows of the part times panels [first, end), a stretch of K at a time; acc[panel][row][32] are
 * their sums. Those of a block are finished as soon as they are complete, while they are cached.
 */
static void multiply_panels(const struct cm_launch *l, const struct part *t, float *acc,
			    uint64_t acc_floats, uint64_t first, uint64_t end)
{
	const struct cm_product *p = t->p;
	uint64_t stretch = cm_product_stretch(p, t->row1 - t->row0);
	struct cm_product_tile tile = {
		.tiles = p->w->ptr,
		.packed = t->a + t->row0 * p->packed * p->unit_bytes,
		.rows = t->row1 - t->row0,
		.mr = (unsigned)t->mr,
		.scratch = t->scratch,
		.start = t->unit0,
	};
	struct cm_product_blocks blocks;

	for (uint64_t u = t->unit0; u < t->unit1; u += stretch) {
		tile.unit = u;
		tile.n = t->unit1 - u < stretch ? t->unit1 - u : stretch;
		for (uint64_t n = first; n < end; n++) {
			tile.panel = n;
			if (n + 1 < end)
				tile.next = cm_product_at(p, tile.tiles, n + 1, u);
			else if (u + stretch < p->units)
				tile.next = cm_product_at(p, tile.tiles, first, u + stretch);
			else
				tile.next = cm_product_at(p, tile.tiles, end, 0);
			cm_product_begin(&blocks, p, &tile);
			for (uint64_t b = 0; blocks.rows; b++) {
				float *sums = acc + (n - first) * acc_floats + b * t->mr * 32;

				cm_product_block(&blocks, sums);
				if (u + stretch >= t->unit1)
					finish_block(l, t, sums, n, b);
			}
		}
	}
}

static void multiply(const struct cm_launch *l, const struct cm_product *p, unsigned part,
		     unsigned core)
{
	uint64_t rows = l->in[0]->dim[0], acc_rows = l->state.u[U_BLOCKS] * l->state.u[U_MR];
	uint64_t group = l->state.u[U_GROUP], piece = l->state.u[U_PIECE],
		 pieces = cm_div_up(p->units, piece), unit = part % pieces * piece;
	uint64_t per = l->state.u[U_FAR] ? l->state.u[U_GROUPS] : l->state.u[U_MBLOCKS];
	uint64_t at = part / pieces, block = l->state.u[U_FAR] ? at / per : at % per,
		 panels = l->state.u[U_FAR] ? at % per : at / per;
	float *acc = (float *)((uint8_t *)l->core[core] + cm_product_scratch(p));
	struct part t = {
		.p = p,
		.mr = l->state.u[U_MR],
		.row0 = block * acc_rows,
		.panel0 = panels * group,
		.panel1 = (panels + 1) * group,
		.unit0 = unit,
		.unit1 = p->units - unit < piece ? p->units : unit + piece,
		.a = packed_rows(l, p, core),
		.scratch = l->core[core],
	};

	if (l->state.u[U_STREAM])
		stream_part(l->state.u[U_PANELS], l->cores, at, &t.panel0, &t.panel1);
	if (t.panel1 > l->state.u[U_PANELS])
		t.panel1 = l->state.u[U_PANELS];
	t.row1 = t.row0 + acc_rows < rows ? t.row0 + acc_rows : rows;
	/* A stretch of K of some panels at a time. */
	for (uint64_t first = t.panel0; first < t.panel1; first += group) {
		uint64_t end = first + group < t.panel1 ? first + group : t.panel1;

		multiply_panels(l, &t, acc, acc_rows * 32, first, end);
	}
}

/* Adds the pieces of K of a block of rows. */
static void merge(const struct cm_launch *l, const struct cm_product *p, uint64_t block,
		  unsigned core)
{
	const struct part t = {
		.p = p,
		.mr = l->state.u[U_MR],
		.row1 = l->in[0]->dim[0],
		.unit1 = p->units,
	};
	uint64_t row = block * t.mr, n = t.row1 - row < t.mr ? t.row1 - row : t.mr;
	float *acc = (float *)((uint8_t *)l->core[core] + cm_product_scratch(p));

	if (row >= t.row1)
		return;
	memcpy(acc, piece_sums(l, p, 0, row), n * 32 * sizeof(*acc));
	for (uint64_t i = 1; i < cm_div_up(p->units, l->state.u[U_PIECE]); i++)
		cm_simd->add(acc, acc, piece_sums(l, p, i, row), n * 32);
	finish_block(l, &t, acc, 0, block);
}

static void linear_run(const struct cm_launch *l, unsigned phase, unsigned part, unsigned core)
{
	uint64_t mr = l->state.u[U_MR], step = l->state.u[U_PACK], steps = cm_div_up(mr, step);
	uint64_t row = part / steps * mr, rows = l->in[0]->dim[0];
	unsigned first = (unsigned)(part % steps * step), n;
	struct cm_product p;

	product_of(l, &p);
	if (phase + l->state.u[U_GO] == 1) {
		multiply(l, &p, part, core);
		return;
	}
	if (phase + l->state.u[U_GO] == 2) {
		merge(l, &p, part, core);
		return;
	}
	if (row >= rows)
		return;
	n = (unsigned)(row + mr < rows ? mr : rows - row);
	pack_rows(&p, row, first, first + step < n ? (unsigned)(first + step) : n, n,
		  (uint8_t *)l->shared + row * p.packed * p.unit_bytes, l->core[core]);
}

static void linear_traffic(const struct cm_launch *l, uint64_t *read, uint64_t *written)
{
	const struct cm_tensor *w = l->in[1];

	*read = txda_tile_panels(w->layout, w->dim[0]) *
			txda_tile_panel_bytes(w->dtype, w->dim[1], w->group) +
		l->in[0]->dim[0] * l->in[0]->dim[1] * (l->in[0]->dtype == TXDA_F32 ? 4 : 2);
	*written = l->out[0]->dim[0] *
		   (w->layout == TXDA_TILE32_GATED ? w->dim[0] / 2 : w->dim[0]) *
		   (l->out[0]->dtype == TXDA_F32 ? 4 : 2);
}

const struct cm_op_impl cm_op_linear = {
	.n_in = 6,
	.n_out = 1,
	.check = linear_check,
	.need = linear_need,
	.plan = linear_plan,
	.run = linear_run,
	.traffic = linear_traffic,
};
