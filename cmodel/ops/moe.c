// SPDX-License-Identifier: MIT
/*
 * MOE_LINEAR: rows that choose their matrix; MOE_COMBINE: their weighted sum.
 *
 * The leader sorts the rows by matrix, so that each selected matrix is read once, and
 * cuts the work into items of (rows of one matrix) x (some of its panels). Phase "pack" packs
 * blocks of rows, phase "multiply" hands out items. It works on a copy of the choices: the client's
 * memory may change meanwhile.
 */
#include "product.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "simd.h"

#define ITEM_BLOCKS    16 /* row blocks of an item */
#define ITEMS_PER_CORE 12

/* Rows of one matrix: sorted[first .. first + rows) and so in packed order. */
struct item {
	uint32_t matrix;
	uint32_t panel0, panel1;
	uint32_t first, rows;
};

/* A packed block. */
struct block {
	uint32_t matrix;
	uint32_t first, rows;
};

/* state.u[]: offsets of the lists in the shared scratch, and a count for traffic() */
enum { U_NEXT, U_CHOICE, U_SORTED, U_BLOCKS, U_ITEMS, U_PACKED, U_USED };

static bool chooses(const struct cm_launch *l)
{
	return l->in[2] != NULL;
}

/* Output rows: one for each choice of a row of x, or without choices one for each matrix. */
static uint64_t out_rows(const struct cm_launch *l)
{
	return chooses(l) ? l->in[2]->dim[0] * l->in[2]->dim[1]
			  : l->in[0]->dim[0] * l->in[1]->dim[0];
}

static void product_of(const struct cm_launch *l, uint64_t matrix, struct cm_product *p)
{
	const struct cm_tensor *columns = l->in[4];
	const uint32_t *first = columns ? columns->ptr : NULL;

	/* need() is called before tensors have addresses. */
	cm_product_init(p, l, l->in[0], l->in[1], l->in[3],
			first ? first + matrix * columns->dim[1] : NULL, l->op->moe_linear.eps,
			l->op->moe_linear.flags);
	if (!chooses(l))
		p->width = p->k;
}

static int moe_check(const struct cm_launch *l)
{
	const struct cm_tensor *x = l->in[0], *w = l->in[1], *ids = l->in[2], *out = l->out[0];
	const struct txda_op_moe_linear *p = &l->op->moe_linear;
	bool gated = txda_is_gated(p->act);
	uint64_t e, width, rows;

	if ((p->act != TXDA_ACT_NONE && !gated) ||
	    p->flags & ~(TXDA_LINEAR_F32_INPUT | TXDA_LINEAR_FLOAT_INPUT))
		return cm_bad(l, TXDA_FAULT_PROGRAM, NULL, 0, p->act | (uint64_t)p->flags << 32);
	if (cm_want_limit(l, p->act, p->limit) || cm_want(l, x, DT_ACT, CM_ANY, CM_ANY) ||
	    cm_want_stack(l, w, CM_ANY, CM_ANY, gated) || cm_want(l, out, DT_ACT, CM_ANY, CM_ANY))
		return -EINVAL;
	e = w->dim[0];
	width = gated ? w->dim[1] / 2 : w->dim[1];
	if (!ids) {
		if (p->n_experts || p->first || p->out_col || l->in[3] || l->in[4] || l->in[5])
			return cm_bad(l, TXDA_FAULT_PROGRAM, NULL, 0, p->n_experts);
		if (x->dim[1] != e * w->dim[2])
			return cm_bad(l, TXDA_FAULT_SHAPE, x, x->va, e);
		return cm_want(l, out, DT_ACT, x->dim[0], e * width);
	}
	if (cm_want(l, ids, DT(TXDA_I32), CM_ANY, CM_ANY))
		return -EINVAL;
	rows = out_rows(l);
	if (p->first >= p->n_experts || e > p->n_experts - p->first || rows > UINT32_MAX ||
	    p->n_experts > TXDA_ROUTE_MAX_EXPERTS)
		return cm_bad(l, TXDA_FAULT_PROGRAM, w, 0, p->first);
	if (x->dim[0] != ids->dim[0] && x->dim[0] != rows)
		return cm_bad(l, TXDA_FAULT_SHAPE, x, x->va, rows);
	if (!l->in[4] && x->dim[1] != w->dim[2])
		return cm_bad(l, TXDA_FAULT_SHAPE, w, w->va, w->dim[2]);
	if (out->dim[0] != rows || out->dim[1] < width || p->out_col > out->dim[1] - width)
		return cm_bad(l, TXDA_FAULT_SHAPE, out, out->va, p->out_col);
	if (cm_may(l, l->in[3], DT(TXDA_F32), x->dim[1], CM_VECTOR) ||
	    cm_may(l, l->in[4], DT(TXDA_I32), e, w->dim[2]) ||
	    cm_may(l, l->in[5], DT(TXDA_F32), e, w->dim[1]) ||
	    cm_want_index(l, ids, rows, p->n_experts, 0))
		return -EINVAL;
	return l->in[4] ? cm_want_index(l, l->in[4], e * w->dim[2], x->dim[1], TXDA_NONE) : 0;
}

static uint64_t align64(uint64_t n)
{
	return (n + 63) & ~63ull;
}

static uint64_t acc_bytes(void)
{
	return (uint64_t)ITEM_BLOCKS * CM_MR_MAX * 128;
}

static uint64_t most_items(const struct cm_launch *l)
{
	return ITEMS_PER_CORE * (uint64_t)l->cores;
}

/* Lays out the shared scratch; returns its size. */
static uint64_t layout(const struct cm_launch *l, const struct cm_product *p, uint64_t *u)
{
	uint64_t rows = out_rows(l), e = l->in[1]->dim[0], used = rows < e ? rows : e,
		 blocks = rows / p->mr + used, groups = blocks / ITEM_BLOCKS + used;

	u[U_NEXT] = align64(e * 4 + 4);
	u[U_CHOICE] = u[U_NEXT] + align64(e * 4);
	u[U_SORTED] = u[U_CHOICE] + align64(rows * 4);
	u[U_BLOCKS] = u[U_SORTED] + align64(rows * 4);
	u[U_ITEMS] = u[U_BLOCKS] + align64(blocks * sizeof(struct block));
	u[U_PACKED] = u[U_ITEMS] + align64((groups + most_items(l)) * sizeof(struct item));
	return u[U_PACKED] + cm_product_packed(p, rows) + 64;
}

static void moe_need(const struct cm_launch *l, struct cm_op_need *need)
{
	struct cm_product p;
	uint64_t u[U_USED];

	if (l->in[1]->ndim != 3)
		return; /* check() will refuse it */
	product_of(l, 0, &p);
	/*
	 * A launch has at most 2^32 rows; larger shapes ask for more scratch than any machine has.
	 */
	if (l->in[0]->dim[0] >> 40 || (chooses(l) && l->in[2]->dim[1] >> 16) ||
	    l->in[1]->dim[0] >> 16) {
		need->shared_bytes = 1ull << 56;
		return;
	}
	need->shared_bytes = layout(l, &p, u);
	need->core_bytes = cm_product_scratch(&p) + 2 * acc_bytes() + 64;
}

/* The matrix of output row @r, or -1. Reads the choice once. */
static int64_t matrix_of(const struct cm_launch *l, uint64_t r)
{
	const struct txda_op_moe_linear *p = &l->op->moe_linear;
	uint64_t e = l->in[1]->dim[0];
	uint32_t id;

	if (!chooses(l))
		return (int64_t)(r % e);
	id = cm_index_at(l->in[2], r);
	return id >= p->first && id - p->first < e ? (int64_t)(id - p->first) : -1;
}

/* Sorts rows by matrix: sorted[start[m] .. start[m + 1]) are those of matrix m. */
static void sort_rows(struct cm_launch *l, uint32_t *start, uint32_t *sorted)
{
	uint64_t rows = out_rows(l), e = l->in[1]->dim[0];
	uint8_t *base = l->shared;
	uint32_t *next = (uint32_t *)(base + l->state.u[U_NEXT]);
	uint32_t *choice = (uint32_t *)(base + l->state.u[U_CHOICE]);

	memset(start, 0, (e + 1) * 4);
	for (uint64_t r = 0; r < rows; r++) {
		int64_t m = matrix_of(l, r);

		choice[r] = m < 0 ? UINT32_MAX : (uint32_t)m;
		if (m >= 0)
			start[m + 1]++;
	}
	for (uint64_t m = 0; m < e; m++) {
		next[m] = start[m];
		start[m + 1] += start[m];
	}
	for (uint64_t r = 0; r < rows; r++)
		if (choice[r] != UINT32_MAX)
			sorted[next[choice[r]]++] = (uint32_t)r;
}

/* The items of @n rows of one matrix from @first on, its panels cut in @chunks. */
static uint64_t add_items(struct item *item, uint64_t at, uint64_t matrix, uint64_t first,
			  uint64_t n, uint64_t panels, uint64_t chunks)
{
	for (uint64_t c = 0; c < chunks; c++)
		item[at++] = (struct item){
			.matrix = (uint32_t)matrix,
			.panel0 = (uint32_t)(panels * c / chunks),
			.panel1 = (uint32_t)(panels * (c + 1) / chunks),
			.first = (uint32_t)first,
			.rows = (uint32_t)n,
		};
	return at;
}

static void moe_plan(struct cm_launch *l)
{
	uint64_t e = l->in[1]->dim[0], n_blocks = 0, n_items = 0, used = 0, groups = 0, chunks,
		 most;
	uint64_t panels = txda_tile_panels(l->in[1]->layout, l->in[1]->dim[1]);
	uint8_t *base = l->shared;
	uint32_t *start = l->shared, *sorted;
	struct block *block;
	struct cm_product p;

	l->phases = 0;
	l->state.u[U_USED] = 0;
	if (!out_rows(l) || !panels)
		return;
	product_of(l, 0, &p);
	layout(l, &p, l->state.u);
	most = (uint64_t)ITEM_BLOCKS * p.mr;
	sorted = (uint32_t *)(base + l->state.u[U_SORTED]);
	block = (struct block *)(base + l->state.u[U_BLOCKS]);
	sort_rows(l, start, sorted);
	for (uint64_t m = 0; m < e; m++) {
		used += start[m + 1] != start[m];
		groups += cm_div_up(start[m + 1] - start[m], most);
	}
	l->state.u[U_USED] = used;
	if (!used)
		return;
	chunks = most_items(l) / groups;
	chunks = chunks < 1 ? 1 : chunks < panels ? chunks : panels;
	for (uint64_t m = 0; m < e; m++)
		for (uint64_t r = start[m]; r < start[m + 1]; r += most) {
			uint64_t n = start[m + 1] - r < most ? start[m + 1] - r : most;

			for (uint64_t i = 0; i < n; i += p.mr)
				block[n_blocks++] = (struct block){
					.matrix = (uint32_t)m,
					.first = (uint32_t)(r + i),
					.rows = (uint32_t)(n - i < p.mr ? n - i : p.mr),
				};
			n_items = add_items((struct item *)(base + l->state.u[U_ITEMS]), n_items, m,
					    r, n, panels, chunks);
		}
	l->parts[l->phases++] = n_blocks;
	l->parts[l->phases++] = n_items;
}

static void run_pack(const struct cm_launch *l, const struct block *b, unsigned core)
{
	const uint8_t *base = l->shared;
	const uint32_t *sorted = (const uint32_t *)(base + l->state.u[U_SORTED]) + b->first;
	bool per_token = chooses(l) && l->in[0]->dim[0] == l->in[2]->dim[0];
	uint64_t rows[CM_MR_MAX];
	struct cm_product p;

	product_of(l, b->matrix, &p);
	for (unsigned m = 0; m < b->rows; m++)
		rows[m] = per_token ? sorted[m] / l->in[2]->dim[1] : sorted[m];
	cm_product_pack(&p, rows, 0, b->rows, b->rows,
			(uint8_t *)l->shared + l->state.u[U_PACKED] +
				cm_product_packed(&p, b->first),
			l->core[core]);
}

static void put_row(const struct cm_launch *l, const struct cm_product *p, uint64_t matrix,
		    float *acc, uint64_t row, uint64_t panel)
{
	const struct cm_tensor *out = l->out[0];
	bool gated = p->w->layout == TXDA_TILE32_GATED;
	uint64_t width = gated ? p->n / 2 : p->n, lanes = gated ? 16 : 32, n = panel * lanes;
	unsigned cols = width - n < lanes ? (unsigned)(width - n) : (unsigned)lanes;
	uint64_t at = chooses(l) ? row * out->dim[1] + l->op->moe_linear.out_col : row * width;
	float y[16];

	if (l->in[5])
		cm_product_bias(p, acc, (const float *)l->in[5]->ptr + matrix * p->n, panel);
	if (gated) {
		cm_gate(p->precise, l->op->moe_linear.act, l->op->moe_linear.limit, y, acc);
		acc = y;
	}
	if (out->dtype == TXDA_F32)
		memcpy((float *)out->ptr + at + n, acc, cols * 4);
	else
		cm_simd->to_bf16((uint16_t *)out->ptr + at + n, acc, cols);
}

/* One panel times all rows of an item, whose sums are acc[row][32]; @piece is scratch for as many. */
static void run_panel(const struct cm_launch *l, const struct cm_product *p, const struct item *it,
		      uint64_t panel, unsigned core, float *acc, float *piece)
{
	uint64_t stretch = cm_product_stretch(p, it->rows), end;
	struct cm_product_tile tile = {
		.tiles = (const uint8_t *)p->w->ptr + it->matrix * cm_product_bytes(p),
		.panel = panel,
		.packed = (const uint8_t *)l->shared + l->state.u[U_PACKED] +
			  cm_product_packed(p, it->first),
		.rows = it->rows,
		.mr = p->mr,
		.scratch = l->core[core],
	};

	for (; tile.start < p->units; tile.start = end) {
		end = tile.start + cm_product_piece(p);
		end = end < p->units ? end : p->units;
		for (uint64_t u = tile.start; u < end; u += stretch) {
			tile.unit = u;
			tile.n = end - u < stretch ? end - u : stretch;
			tile.next = u + stretch < p->units
					    ? cm_product_at(p, tile.tiles, panel, u + stretch)
					    : cm_product_at(p, tile.tiles, panel + 1, 0);
			cm_product_multiply(p, &tile, tile.start ? piece : acc);
		}
		if (tile.start)
			cm_simd->add(acc, acc, piece, it->rows * 32);
	}
}

static void run_item(const struct cm_launch *l, const struct item *it, unsigned core)
{
	const uint8_t *base = l->shared;
	const uint32_t *sorted = (const uint32_t *)(base + l->state.u[U_SORTED]) + it->first;
	struct cm_product p;
	float *acc;

	product_of(l, it->matrix, &p);
	acc = (float *)((uint8_t *)l->core[core] + cm_product_scratch(&p));
	for (uint64_t panel = it->panel0; panel < it->panel1; panel++) {
		run_panel(l, &p, it, panel, core, acc, acc + acc_bytes() / sizeof(*acc));
		for (uint32_t r = 0; r < it->rows; r++)
			put_row(l, &p, it->matrix, acc + r * 32, sorted[r], panel);
	}
}

static void moe_run(const struct cm_launch *l, unsigned phase, unsigned part, unsigned core)
{
	const uint8_t *base = l->shared;

	if (phase == 0)
		run_pack(l, (const struct block *)(base + l->state.u[U_BLOCKS]) + part, core);
	else
		run_item(l, (const struct item *)(base + l->state.u[U_ITEMS]) + part, core);
}

/* Only selected matrices are read. */
static void moe_traffic(const struct cm_launch *l, uint64_t *read, uint64_t *written)
{
	uint64_t es = l->in[0]->dtype == TXDA_F32 ? 4 : 2,
		 os = l->out[0]->dtype == TXDA_F32 ? 4 : 2;
	struct cm_product p;

	product_of(l, 0, &p);
	*read = l->state.u[U_USED] * cm_product_bytes(&p) +
		l->in[0]->dim[0] * l->in[0]->dim[1] * es;
	*written = out_rows(l) * (p.w->layout == TXDA_TILE32_GATED ? p.n / 2 : p.n) * os;
}

const struct cm_op_impl cm_op_moe_linear = {
	.n_in = 6,
	.n_out = 1,
	.check = moe_check,
	.need = moe_need,
	.plan = moe_plan,
	.run = moe_run,
	.traffic = moe_traffic,
};

/* ---- MOE_COMBINE ---- */

#define TOKENS_PER_PART 4

static int combine_check(const struct cm_launch *l)
{
	const struct cm_tensor *ids = l->in[1], *out = l->out[0];
	uint64_t tokens, k;

	if (cm_want(l, ids, DT(TXDA_I32), CM_ANY, CM_ANY))
		return -EINVAL;
	tokens = ids->dim[0];
	k = ids->dim[1];
	if (cm_want(l, out, DT(TXDA_F32), tokens, CM_ANY) ||
	    cm_want(l, l->in[0], DT(TXDA_F32), tokens * k, out->dim[1]) ||
	    cm_want(l, l->in[2], DT(TXDA_F32), tokens, k) ||
	    cm_may(l, l->in[3], DT(TXDA_F32), tokens, out->dim[1]) ||
	    cm_may(l, l->in[4], DT(TXDA_F32), tokens, out->dim[1]) ||
	    cm_may(l, l->in[5], DT(TXDA_F32), tokens, 1))
		return -EINVAL;
	if (l->in[5] && !l->in[4])
		return cm_bad(l, TXDA_FAULT_SHAPE, l->in[5], l->in[5]->va, 0);
	return 0;
}

static void combine_need(const struct cm_launch *l, struct cm_op_need *need)
{
	need->shared_bytes = 0;
	need->core_bytes = l->out[0]->dim[1] * 4 + 64;
}

static void combine_plan(struct cm_launch *l)
{
	l->phases = 0;
	if (l->out[0]->dim[0])
		l->parts[l->phases++] = cm_div_up(l->out[0]->dim[0], TOKENS_PER_PART);
}

static void combine_token(const struct cm_launch *l, uint64_t t, float *sum)
{
	const struct txda_op_moe_combine *p = &l->op->moe_combine;
	uint64_t k = l->in[1]->dim[1], width = l->out[0]->dim[1];
	const float *weights = (const float *)l->in[2]->ptr + t * k;
	float *out = (float *)l->out[0]->ptr + t * width;

	memset(sum, 0, width * 4);
	for (uint64_t j = 0; j < k; j++) {
		uint32_t id = cm_index_at(l->in[1], t * k + j);

		if (id >= p->first && id - p->first < p->count)
			cm_simd->blend(sum, 1.0f, sum, weights[j],
				       (const float *)l->in[0]->ptr + (t * k + j) * width, width);
	}
	if (l->in[4]) {
		float gate = 1;

		if (l->in[5])
			gate = (float)(1.0 /
				       (1.0 + exp(-(double)((const float *)l->in[5]->ptr)[t])));
		cm_simd->blend(sum, 1.0f, sum, gate, (const float *)l->in[4]->ptr + t * width,
			       width);
	}
	if (l->in[3])
		cm_simd->add(out, (const float *)l->in[3]->ptr + t * width, sum, width);
	else
		memcpy(out, sum, width * 4);
}

static void combine_run(const struct cm_launch *l, unsigned phase, unsigned part, unsigned core)
{
	uint64_t t = (uint64_t)part * TOKENS_PER_PART, end = t + TOKENS_PER_PART;

	(void)phase;
	end = end < l->out[0]->dim[0] ? end : l->out[0]->dim[0];
	for (; t < end; t++)
		combine_token(l, t, l->core[core]);
}

static void combine_traffic(const struct cm_launch *l, uint64_t *read, uint64_t *written)
{
	*read = l->in[0]->dim[0] * l->in[0]->dim[1] * 4;
	*written = l->out[0]->dim[0] * l->out[0]->dim[1] * 4;
}

const struct cm_op_impl cm_op_moe_combine = {
	.n_in = 6,
	.n_out = 1,
	.check = combine_check,
	.need = combine_need,
	.plan = combine_plan,
	.run = combine_run,
	.traffic = combine_traffic,
};
