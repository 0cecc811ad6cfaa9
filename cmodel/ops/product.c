// SPDX-License-Identifier: MIT
#include "product.h"

#include <math.h>
#include <string.h>

#include "simd.h"
#include "vec.h"

#define STRETCH_BYTES 16384 /* of a panel, when several blocks of rows use it */
#define STRETCH_TWO   8192  /* the same for int8 with two blocks: prefetched data needs room, too */
#define TILE_STRETCH  32768 /* the same with tiles, whose rows bypass the first-level cache */
/* Elements of K: a multiple of any group and of TXDA_I8_GROUP; so many are unpacked at once. */
#define STRETCH_STEP 256
#define PIECE_K	     1024 /* likewise, and of a step of tiles */
#define F16_ROWS     15	  /* float16 is unpacked once if there are more rows */
#define UNPACKED     (STRETCH_STEP / TXDA_QUANT_BLOCK * CM_UNPACKED_BYTES)
#define F16_STRETCH  128 /* of K: as float32, 16 KB */
/*
 * Distance of prefetches with one block of rows: hardware prefetchers do not cross pages, and with
 * types that take many instructions to unpack few loads fit into the CPU's window.
 */
#define AHEAD_BYTES 6144

/* The units of K of the panel kernel. */
static void set_units(struct cm_product *p)
{
	bool floats = p->grouped ? cm_simd->group_floats : cm_simd->bf16_floats;
	unsigned words = floats || p->wide ? 2 : 1;

	p->mr = cm_simd->mr;
	if (p->i8) {
		p->per = TXDA_QUANT_BLOCK;
		p->unit_bytes = p->w->dtype == TXDA_W8 && cm_simd->w8_words ? 72 : 40;
		p->mr = cm_simd->mr_i8;
	} else if (p->i16) {
		p->per = TXDA_QUANT_BLOCK;
		p->unit_bytes = 76;
		p->mr = cm_simd->mr_i16;
	} else if (p->grouped) {
		p->per = TXDA_QUANT_BLOCK;
		p->unit_bytes = (16 * words + !cm_simd->groups_i16) * 4;
		p->mr = cm_simd->mr_group;
	} else if (!p->precise && p->w->dtype == TXDA_BF16) {
		p->per = 2;
		p->unit_bytes = 4 * words;
	} else {
		p->per = 1;
		p->unit_bytes = 4;
		p->mr = CM_MR;
	}
	p->units = p->packed = cm_div_up(p->k, p->per);
	if (cm_simd->tiles && p->per == 2)
		p->packed = cm_div_up(p->k, 32) * 16;
	else if (cm_simd->tiles && p->i8 && p->w->group >= TXDA_I8_GROUP)
		p->packed = cm_div_up(p->k, TXDA_I8_GROUP) * (TXDA_I8_GROUP / p->per);
}

/* Whether weights of that type have int16 activations, unless they have int8 ones. */
static bool takes_i16(unsigned dtype)
{
	return txda_is_two_level(dtype) ||
	       (cm_simd->groups_i16 && dtype != TXDA_F8 && dtype != TXDA_MX4);
}

void cm_product_init(struct cm_product *p, const struct cm_launch *l, const struct cm_tensor *x,
		     const struct cm_tensor *w, const struct cm_tensor *norm,
		     const uint32_t *columns, float eps, uint32_t flags)
{
	bool quant = txda_is_grouped(w->dtype) && !l->precise,
	     i8 = quant && (w->dtype == TXDA_W8 || w->dtype == TXDA_W4) &&
		  !(flags & TXDA_LINEAR_FLOAT_INPUT),
	     i16 = quant && !i8 && takes_i16(w->dtype);

	*p = (struct cm_product){
		.x = x,
		.w = w,
		.norm = norm,
		.columns = columns,
		.width = x->dim[x->ndim - 1],
		.n = w->dim[w->ndim - 2],
		.k = w->dim[w->ndim - 1],
		.eps = eps,
		.precise = l->precise,
		.wide = flags & TXDA_LINEAR_F32_INPUT,
		.i8 = i8,
		.i16 = i16,
		.grouped = quant && !i8 && !i16,
		.panel_bytes = txda_tile_panel_bytes(w->dtype, w->dim[w->ndim - 1], w->group),
		.group_bytes = txda_tile_group_bytes(w->dtype, w->group),
	};
	set_units(p);
}

uint64_t cm_product_packed(const struct cm_product *p, uint64_t rows)
{
	uint64_t bytes;

	/* With columns K may be arbitrarily large: then ask for more memory than any machine
	 * has. */
	if (__builtin_mul_overflow(p->packed * p->unit_bytes, rows, &bytes) || bytes >> 56)
		return 1ull << 56;
	return bytes;
}

static uint64_t row_floats(uint64_t k)
{
	return cm_div_up(k, TXDA_QUANT_BLOCK) * TXDA_QUANT_BLOCK;
}

/* Whether rows are packed one by one and then interleaved: bf16 blocks exceed the first-level
 * cache. Tiles need no interleaving. */
static bool packs_apart(const struct cm_product *p)
{
	return p->per == 2 && !cm_simd->tiles;
}

/* Bytes of a row packed by itself. */
static uint64_t row_bytes(const struct cm_product *p)
{
	return packs_apart(p) ? cm_div_up(cm_product_packed(p, 1), 64) * 64 : 0;
}

/* Whether the weights are unpacked once for all of @rows rows: groups to bf16, float16 to float32. */
static bool unpacks(const struct cm_product *p, uint64_t rows)
{
	if (p->grouped)
		return cm_simd->unpack_group && rows > cm_simd->unpack_rows;
	return !p->precise && p->w->dtype == TXDA_F16 && cm_simd->from_f16 && rows > F16_ROWS;
}

/* A row as float32, normalised and reordered, then rows packed one by one; later, in the same
 * place, unpacked weights. */
uint64_t cm_product_scratch(const struct cm_product *p)
{
	uint64_t pack = (2 * row_floats(p->width) + row_floats(p->k)) * 4 + p->mr * row_bytes(p);

	return unpacks(p, UINT64_MAX) && pack < UNPACKED ? UNPACKED : pack;
}

uint64_t cm_product_bytes(const struct cm_product *p)
{
	return txda_tile_panels(p->w->layout, p->n) * p->panel_bytes;
}

/* Row @r as float32, normalised; the tensor itself if that is what it contains, else at @tmp. */
static const float *input_row(const struct cm_product *p, uint64_t r, float *tmp)
{
	float *tmp2 = tmp + row_floats(p->width);
	const float *row;

	if (p->x->dtype == TXDA_BF16) {
		cm_simd->from_bf16(tmp, (const uint16_t *)p->x->ptr + r * p->width, p->width);
		row = tmp;
	} else {
		row = (const float *)p->x->ptr + r * p->width;
	}
	if (!p->norm)
		return row;
	if (p->precise)
		cm_precise_norm(tmp2, row, p->norm->ptr, p->width, p->eps);
	else
		cm_simd->rmsnorm(tmp2, row, p->norm->ptr, p->width, p->eps);
	return tmp2;
}

/* The row in the order of the weights; for groups padded with zeros to a whole block. */
static const float *order_row(const struct cm_product *p, const float *row, float *to)
{
	if (p->columns) {
		for (uint64_t k = 0; k < p->k; k++) {
			/* read once: the memory may change after the check */
			uint32_t c = __atomic_load_n(&p->columns[k], __ATOMIC_RELAXED);

			to[k] = c < p->width ? row[c] : 0;
		}
	} else if (p->grouped && p->k % TXDA_QUANT_BLOCK) {
		memcpy(to, row, p->k * 4);
	} else {
		return row;
	}
	memset(to + p->k, 0, (row_floats(p->k) - p->k) * 4);
	return to;
}

/* Packs row @r of x as row @m of a block of @mr. */
static void pack_row(const struct cm_product *p, uint64_t r, unsigned m, unsigned mr, void *to,
		     float *scratch)
{
	const float *in =
		order_row(p, input_row(p, r, scratch), scratch + 2 * row_floats(p->width));

	if (p->grouped)
		cm_simd->pack_group(to, mr, m, in, row_floats(p->k), txda_is_nibbles(p->w->dtype),
				    p->wide);
	else if (p->per == 2)
		cm_simd->pack_bf16(to, mr, m, in, p->k, p->wide);
	else if (p->i16)
		cm_simd->pack_i16(to, mr, m, in, p->k);
	else if (p->i8)
		cm_simd->pack_i8(to, mr, m, in, p->k, p->w->dtype == TXDA_W4 ? 8 : 128,
				 p->w->group);
	else
		cm_simd->pack_f32(to, mr, m, in, p->k);
}

/* The same for a row that is already bf16, for tiles. */
static void copy_row(const struct cm_product *p, uint64_t r, unsigned m, unsigned mr, void *to)
{
	const uint16_t *row = (const uint16_t *)p->x->ptr + r * p->k;
	uint16_t *step = (uint16_t *)to + 32 * m;
	uint64_t k = 0;

	for (; k + 32 <= p->k; k += 32, step += 32 * mr)
		memcpy(step, row + k, 64);
	if (k == p->k)
		return;
	memset(step, 0, 64);
	memcpy(step, row + k, (p->k - k) * 2);
}

void cm_product_pack(const struct cm_product *p, const uint64_t *rows, unsigned first, unsigned end,
		     unsigned mr, void *to, float *scratch)
{
	const bool as_is = p->per == 2 && p->unit_bytes == 4 && p->x->dtype == TXDA_BF16 &&
			   !p->norm && !p->columns && p->k % 2 == 0;
	uint8_t *apart = (uint8_t *)(scratch + 2 * row_floats(p->width) + row_floats(p->k));
	const uint32_t *row[CM_MR_MAX];

	for (unsigned m = first; m < end; m++) {
		uint8_t *own = apart + (m - first) * row_bytes(p);

		row[m - first] = (const uint32_t *)own;
		if (as_is && !packs_apart(p))
			copy_row(p, rows[m], m, mr, to);
		else if (!packs_apart(p))
			pack_row(p, rows[m], m, mr, to, scratch);
		else if (as_is)
			row[m - first] = (const uint32_t *)p->x->ptr + rows[m] * p->k / 2;
		else
			pack_row(p, rows[m], 0, 1, own, scratch);
	}
	if (packs_apart(p))
		cm_simd->interleave((uint32_t *)to + first, mr, row, end - first,
				    cm_product_packed(p, 1) / 4);
}

/* Precise mode: float32 rows, interleaved within a block, exact values of the weights, sums in
 * double. */
static void precise_panel(const struct cm_product *p, float *acc, const uint8_t *tiles,
			  const float *a, unsigned mr, uint64_t panel)
{
	bool gated = p->w->layout == TXDA_TILE32_GATED;
	struct cm_tensor w = *p->w;

	w.ptr = (void *)tiles;
	w.dim[0] = p->n;
	w.dim[1] = p->k;
	for (unsigned c = 0; c < 32; c++) {
		uint64_t n = panel * 32 + c, half = p->n / 2, j = panel * 16 + c % 16;
		double s[CM_MR] = {0};

		if (gated)
			n = j < half ? j + (c < 16 ? 0 : half) : UINT64_MAX;
		for (uint64_t k = 0; n < p->n && k < p->k; k++) {
			double v = cm_tile_get(&w, n, k);

			for (unsigned m = 0; m < mr; m++)
				s[m] += v * a[k * mr + m];
		}
		for (unsigned m = 0; m < mr; m++)
			acc[m * 32 + c] = (float)s[m];
	}
}

bool cm_product_in_tiles(const struct cm_product *p)
{
	return cm_simd->tiles && !p->precise && (p->per == 2 || p->i8);
}

uint64_t cm_product_stretch(const struct cm_product *p, uint64_t rows)
{
	uint64_t bytes = cm_product_in_tiles(p) && !p->i8 ? TILE_STRETCH : STRETCH_BYTES, k;

	if (p->i8 && rows <= 2 * (uint64_t)p->mr && !cm_product_in_tiles(p))
		bytes = STRETCH_TWO;
	if (unpacks(p, rows))
		return p->grouped ? STRETCH_STEP / p->per : F16_STRETCH;
	if (p->precise || rows <= p->mr || p->panel_bytes <= bytes)
		return p->units;
	k = bytes * p->k / p->panel_bytes;
	return cm_div_up(k, STRETCH_STEP) * STRETCH_STEP / p->per;
}

uint64_t cm_product_piece(const struct cm_product *p)
{
	return p->precise || txda_tile_panels(p->w->layout, p->n) > 1 ? p->units : PIECE_K / p->per;
}

const uint8_t *cm_product_at(const struct cm_product *p, const uint8_t *tiles, uint64_t panel,
			     uint64_t unit)
{
	tiles += panel * p->panel_bytes;
	if (p->group_bytes)
		return tiles + unit * TXDA_QUANT_BLOCK / p->w->group * p->group_bytes;
	return tiles + unit * (p->w->dtype == TXDA_F16 ? 64 : 128);
}

static void multiply_block(const struct cm_product *p, const struct cm_panel *block)
{
	if (p->grouped)
		cm_simd->panel_group(block);
	else if (p->i16)
		cm_simd->panel_i16(block);
	else if (p->w->dtype == TXDA_W8)
		cm_simd->panel_w8(block);
	else if (p->w->dtype == TXDA_W4)
		cm_simd->panel_w4(block);
	else if (p->w->dtype == TXDA_BF16)
		cm_simd->panel_bf16(block);
	else if (p->w->dtype == TXDA_F16 && !block->unpacked)
		cm_simd->panel_f16(block);
	else
		cm_simd->panel_f32(block);
}

/* Replaces the weights of a tile by unpacked ones, for all blocks of rows. */
static void unpack(const struct cm_product *p, struct cm_panel *block, void *scratch)
{
	if (p->grouped)
		cm_simd->unpack_group(scratch, block);
	else
		cm_simd->from_f16(scratch, (const uint16_t *)block->w, block->n * 32);
	block->unpacked = scratch;
	if (p->grouped)
		return;
	block->w = scratch;
	block->pace = (block->pace + 1) / 2; /* there is twice as much of it */
}

void cm_product_begin(struct cm_product_blocks *b, const struct cm_product *p,
		      const struct cm_product_tile *t)
{
	const uint8_t *w = cm_product_at(p, t->tiles, t->panel, t->unit);
	uint64_t blocks = cm_div_up(t->rows, t->mr), bytes;

	/* Each block of rows prefetches its share of the next weights, so that memory is never
	 * idle. */
	bytes = (uint64_t)(cm_product_at(p, t->tiles, t->panel, t->unit + t->n) - w);
	*b = (struct cm_product_blocks){
		.p = p,
		.tiles = t->tiles,
		.panel = t->panel,
		.rows = t->rows,
		.mr = t->mr,
		.share = bytes / blocks,
		.block =
			{
				.w = w,
				.n = t->n,
				.first = t->unit == t->start,
				.wide = p->wide,
				.dtype = p->w->dtype,
				.group = p->w->group,
				.pace = (unsigned)cm_div_up(64, blocks),
				.ahead = blocks == 1 ? w + AHEAD_BYTES : t->next,
			},
		.row = t->packed,
		.row_bytes = p->packed * p->unit_bytes,
		.skipped = t->unit * p->unit_bytes,
	};
	if (unpacks(p, t->rows))
		unpack(p, &b->block, t->scratch);
}

void cm_product_block(struct cm_product_blocks *b, float *acc)
{
	struct cm_panel *block = &b->block;

	block->mr = b->rows < b->mr ? (unsigned)b->rows : b->mr;
	block->acc = acc;
	block->a = (const uint32_t *)(b->row + b->skipped * block->mr);
	if (b->p->precise)
		precise_panel(b->p, acc, b->tiles, (const float *)block->a, block->mr, b->panel);
	else
		multiply_block(b->p, block);
	b->rows -= block->mr;
	b->row += b->row_bytes * block->mr;
	block->ahead += b->share;
}

void cm_product_multiply(const struct cm_product *p, const struct cm_product_tile *t, float *acc)
{
	struct cm_product_blocks b;

	for (cm_product_begin(&b, p, t); b.rows; acc += t->mr * 32)
		cm_product_block(&b, acc);
}

static double precise_gate(uint32_t act, double x)
{
	if (act == TXDA_ACT_GELU_GATED)
		return x / (1.0 + exp(-2 * sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
	return x / (1.0 + exp(-x));
}

static float precise_swiglu(float gate, float up, float limit)
{
	double g = fmin(gate, limit), u = fmin(fmax(up, -(double)limit), limit);

	return (float)((u + 1) * g / (1.0 + exp(-1.702 * g)));
}

/* act(acc) of one panel and row. */
static void put_one(float *out, const float *acc, uint32_t act, float limit)
{
	cm_simd->put(&(struct cm_put){.out = out, .f32 = true, .act = act, .limit = limit}, acc, 1);
}

void cm_gate(bool precise, uint32_t act, float limit, float *out, const float *acc)
{
	if (precise && act == TXDA_ACT_SWIGLU_CLAMPED)
		for (unsigned c = 0; c < 16; c++)
			out[c] = precise_swiglu(acc[c], acc[16 + c], limit);
	else if (precise)
		for (unsigned c = 0; c < 16; c++)
			out[c] = (float)precise_gate(act, acc[c]) * acc[16 + c];
	else
		put_one(out, acc, act ? act : TXDA_ACT_SILU_GATED, limit);
}

void cm_product_bias(const struct cm_product *p, float *acc, const float *bias, uint64_t panel)
{
	uint64_t half = p->n / 2, n = panel * 16;
	unsigned cols = half - n < 16 ? (unsigned)(half - n) : 16;

	if (p->w->layout != TXDA_TILE32_GATED) {
		n = panel * 32;
		cm_simd->add(acc, acc, bias + n, p->n - n < 32 ? p->n - n : 32);
		return;
	}
	for (unsigned c = 0; c < cols; c++) {
		acc[c] += bias[n + c];
		acc[16 + c] += bias[half + n + c];
	}
}

void cm_softcap(bool precise, float cap, float *acc)
{
	if (!precise)
		put_one(acc, acc, TXDA_ACT_SOFTCAP, cap);
	for (unsigned c = 0; precise && c < 32; c++)
		acc[c] = (float)(cap * tanh((double)acc[c] / cap));
}

static double precise_activation(uint32_t act, double x)
{
	switch (act) {
	case TXDA_ACT_GELU: return 0.5 * x * erfc(-x / M_SQRT2);
	case TXDA_ACT_GELU_QUICK: return x / (1.0 + exp(-1.702 * x));
	default:
		return precise_gate(
			act == TXDA_ACT_GELU_TANH ? TXDA_ACT_GELU_GATED : TXDA_ACT_SILU_GATED, x);
	}
}

void cm_activate(bool precise, uint32_t act, float *acc)
{
	if (!precise)
		put_one(acc, acc, act, 0);
	for (unsigned c = 0; precise && c < 32; c++)
		acc[c] = (float)precise_activation(act, acc[c]);
}
