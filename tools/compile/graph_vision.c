// SPDX-License-Identifier: MIT
/*
 * The program `vision`: patches to embeddings, for one or several images. Each chip of a group runs
 * all of it: towers are small compared to text models, and so each chip has the embeddings without
 * a collective.
 */
#include "graph_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_POSITION  65536	 /* rows or columns of patches of an image */
#define MAX_TILES     (1u << 20) /* the limit of image_tower_parse() */
#define MAX_TILE_ROWS (1u << 24)

struct tower {
	struct graph g;
	const struct vision_config *v;
	const struct vision_names *names;
	struct txda_dim rows; /* all rows of a launch */
	uint32_t pixels, positions, taps, tap_weights, windows, out_rows;
	uint32_t merged_spans, mean_rows, mean_weights; /* windows that become rows */
	uint32_t embeds, deep_out;			/* outputs */
	uint32_t spans;
	uint32_t x, rope; /* the stream, and the angles or TXDA_NONE */
	uint32_t deep;	  /* results of the taps' mergers, side by side */
	float eps;
};

static struct range all_of(uint32_t n)
{
	return (struct range){0, n};
}

static struct weight_piece whole(const char *name, uint32_t layer, uint32_t rows, uint32_t cols)
{
	return (struct weight_piece){.name = name,
				     .layer = layer,
				     .rows = rows,
				     .cols = cols,
				     .row = all_of(rows),
				     .col = all_of(cols)};
}

static uint32_t vector_of(struct tower *t, const char *name, const char *suffix, uint32_t layer,
			  uint32_t n)
{
	char full[128];

	snprintf(full, sizeof(full), "%s%s", name, suffix);
	return graph_vector(&t->g, program_label(t->g.p, "%s", full), full, layer, n);
}

/* norm(x), then act, into a new tensor. */
static uint32_t add_norm(struct tower *t, const char *label, const char *name, uint32_t layer,
			 uint32_t x, struct txda_dim rows, uint32_t n, bool rms, uint8_t dtype,
			 enum txda_activation act)
{
	uint32_t out = graph_scratch(&t->g, program_label(t->g.p, "%s.out", label), dtype, rows, n);
	uint32_t weight = vector_of(t, name, ".weight", layer, n), bias;
	struct txda_op *op;

	bias = rms ? TXDA_NONE : vector_of(t, name, ".bias", layer, n);
	op = program_add_op(t->g.p, rms ? TXDA_OP_RMSNORM : TXDA_OP_LAYERNORM, label);
	op->in[0] = x;
	op->in[1] = weight;
	op->out[0] = out;
	if (rms) {
		op->rmsnorm.eps = t->eps;
		return out;
	}
	op->in[2] = bias;
	op->layernorm = (struct txda_op_layernorm){t->eps, act};
	return out;
}

/* act(x W^T + bias) + residual; returns the output, a new tensor unless l->out is set. */
static uint32_t add_linear(struct tower *t, const struct linear *how, uint8_t dtype,
			   struct txda_dim rows, uint32_t n)
{
	struct linear l = *how;

	l.role = WEIGHT_EXACT;
	l.weight = TXDA_NONE;
	l.norm = TXDA_NONE;
	l.rows = rows;
	if (l.out == TXDA_NONE)
		l.out = graph_scratch(&t->g, program_label(t->g.p, "%s.out", l.label), dtype, rows,
				      n);
	graph_linear(&t->g, &l);
	return l.out;
}

/* A product of one matrix [n, k]. */
static uint32_t add_product(struct tower *t, const char *label, const char *name, uint32_t layer,
			    uint32_t x, struct txda_dim rows, uint32_t n, uint32_t k, bool bias,
			    enum txda_activation act, uint8_t dtype, uint32_t flags)
{
	const struct weight_piece piece = whole(name, layer, n, k);

	return add_linear(t,
			  &(struct linear){.label = label,
					   .pieces = &piece,
					   .n_pieces = 1,
					   .bias = bias,
					   .x = x,
					   .residual = TXDA_NONE,
					   .out = TXDA_NONE,
					   .flags = flags,
					   .act = act},
			  dtype, rows, n);
}

/* stream += x W^T + bias */
static void add_to_stream(struct tower *t, const char *label, const char *name, uint32_t layer,
			  uint32_t x, uint32_t k, bool bias)
{
	const struct weight_piece piece = whole(name, layer, t->v->hidden, k);

	add_linear(t,
		   &(struct linear){.label = label,
				    .pieces = &piece,
				    .n_pieces = 1,
				    .bias = bias,
				    .x = x,
				    .residual = t->x,
				    .out = t->x},
		   TXDA_F32, t->rows, t->v->hidden);
}

/* silu(x G^T + b) * (x U^T + b) */
static uint32_t add_gated(struct tower *t, const char *label, const char *gate, const char *up,
			  uint32_t layer, uint32_t x, struct txda_dim rows, uint32_t n, uint32_t k,
			  bool bias)
{
	const struct weight_piece pieces[2] = {whole(gate, layer, n, k), whole(up, layer, n, k)};

	return add_linear(t,
			  &(struct linear){.label = label,
					   .pieces = pieces,
					   .n_pieces = 2,
					   .gated = true,
					   .bias = bias,
					   .x = x,
					   .residual = TXDA_NONE,
					   .out = TXDA_NONE},
			  TXDA_BF16, rows, n);
}

/* ---- before the layers ---- */

/*
 * Towers whose windows become rows: the images' spans of these rows, and which rows are averaged.
 */
static void add_merge_inputs(struct tower *t)
{
	struct program *p = t->g.p;
	const struct txda_dim rows = {TXDA_SYM_T, t->v->rows / 4};

	t->merged_spans = program_add_io(p, "merged_spans", TXDA_SLOT_INPUT, TXDA_I32, 2,
					 PROGRAM_SYM(S), PROGRAM_DIM(2));
	t->mean_rows =
		program_add_io(p, "mean_rows", TXDA_SLOT_INPUT, TXDA_I32, 2, rows, PROGRAM_DIM(4));
	t->mean_weights = program_add_io(p, "mean_weights", TXDA_SLOT_INPUT, TXDA_F32, 2, rows,
					 PROGRAM_DIM(4));
}

static void add_inputs(struct tower *t)
{
	const struct vision_config *v = t->v;
	const uint32_t k = v->channels * v->temporal * v->patch * v->patch;
	const struct txda_dim none = {0};
	struct program *p = t->g.p;

	t->g.slot_weights = program_add_slot(p, "weights", TXDA_SLOT_WEIGHTS, 0);
	t->g.slot_scratch = program_add_slot(p, "scratch", TXDA_SLOT_SCRATCH, 0);
	t->pixels =
		program_add_io(p, "pixels", TXDA_SLOT_INPUT, TXDA_F32, 2, t->rows, PROGRAM_DIM(k));
	if (!v->family->tiles && !v->family->slices)
		t->positions = program_add_io(p, "patch_positions", TXDA_SLOT_INPUT, TXDA_I32, 2,
					      t->rows, PROGRAM_DIM(2));
	if (v->family->taps) {
		t->taps = program_add_io(p, "taps", TXDA_SLOT_INPUT, TXDA_I32, 2, t->rows,
					 PROGRAM_DIM(v->family->taps));
		t->tap_weights = program_add_io(p, "tap_weights", TXDA_SLOT_INPUT, TXDA_F32, 2,
						t->rows, PROGRAM_DIM(v->family->taps));
	}
	t->spans = program_add_io(p, "image_spans", TXDA_SLOT_INPUT, TXDA_I32, 2, PROGRAM_SYM(S),
				  PROGRAM_DIM(2));
	if (v->window)
		t->windows = program_add_io(p, "window_spans", TXDA_SLOT_INPUT, TXDA_I32, 2,
					    PROGRAM_SYM(B), PROGRAM_DIM(2));
	if (v->window && v->family->slices)
		add_merge_inputs(t);
	t->out_rows =
		program_add_io(p, "embed_rows", TXDA_SLOT_INPUT, TXDA_I32, 1, PROGRAM_SYM(R), none);
	t->embeds = program_add_io(p, "image_embeds", TXDA_SLOT_OUTPUT, TXDA_F32, 2, PROGRAM_SYM(R),
				   PROGRAM_DIM(v->out));
	if (v->n_deep)
		t->deep_out = program_add_io(p, "image_deepstack", TXDA_SLOT_OUTPUT, TXDA_F32, 2,
					     PROGRAM_SYM(R), PROGRAM_DIM(v->n_deep * v->out));
}

/* Angles of rows and columns: each coordinate has a quarter of a head's elements in pairs. */
static void add_angles(struct tower *t)
{
	const uint32_t pairs = t->v->hidden / t->v->heads / 2, half = pairs / 2;
	float inv_freq[256];
	uint32_t axes[256], i, freq;
	struct txda_op *op;

	for (i = 0; i < pairs; i++) {
		inv_freq[i] = 1.0f /
			      powf((float)t->v->rope_theta, (float)(2 * (i % half)) / (float)pairs);
		axes[i] = i / half;
	}
	freq = graph_constant(&t->g, "rope.inv_freq", inv_freq, 0, pairs);
	i = graph_indices(&t->g, "rope.axes", axes, 0, pairs);
	t->rope = graph_scratch(&t->g, "rope.table", TXDA_F32, t->rows, 2 * pairs);
	op = program_add_op(t->g.p, TXDA_OP_ROPE_TABLE, "rope");
	op->in[0] = t->positions;
	op->in[1] = freq;
	op->in[2] = i;
	op->out[0] = t->rope;
	op->rope_table = (struct txda_op_rope_table){.scale = 1, .max_position = MAX_POSITION};
}

/* The learned positions as rows, and after them the class token's own row. */
static uint32_t position_table(struct tower *t)
{
	const struct vision_config *v = t->v;
	const uint32_t n = v->side * v->side + (v->family->tiles ? 1 : 0),
		       rows = n + (v->family->tiles ? 1 : 0);
	const struct weight_piece piece = whole(t->names->positions, 0, n, v->hidden);
	struct source_tensor source;
	uint32_t tensor, i;
	float *data;

	if (graph_find(&t->g, &piece, &source))
		return 0;
	data = calloc((size_t)rows * v->hidden, sizeof(*data));
	if (!data) {
		graph_fail(&t->g, tool_fail(t->g.error, -ENOMEM, "no memory"));
		return 0;
	}
	for (i = 0; i < n; i++)
		source_read(&source, i, 0, v->hidden, data + (size_t)i * v->hidden);
	if (v->family->tiles)
		graph_read(&t->g, t->names->class_token, 0, v->hidden, all_of(v->hidden),
			   data + (size_t)n * v->hidden);
	tensor = graph_constant(&t->g, "positions", data, rows, v->hidden);
	free(data);
	return tensor;
}

static void add_positions(struct tower *t)
{
	uint32_t table = position_table(t);
	struct txda_op *op = program_add_op(t->g.p, TXDA_OP_INTERPOLATE, "positions.add");

	op->in[0] = t->x;
	op->in[1] = table;
	op->in[2] = t->taps;
	op->in[3] = t->tap_weights;
	op->out[0] = t->x;
}

static void add_patches(struct tower *t)
{
	const struct vision_config *v = t->v;
	const struct vision_family *f = v->family;
	const uint32_t k = v->channels * v->temporal * v->patch * v->patch;

	t->x = add_product(t, "patch", t->names->patch, 0, t->pixels, t->rows, v->hidden, k,
			   f->patch_bias, TXDA_ACT_NONE, TXDA_F32, TXDA_LINEAR_F32_INPUT);
	/* GLM normalises the patches, CLIP their sum with the positions. */
	if (t->names->before && !f->tiles)
		t->x = add_norm(t, "before", t->names->before, 0, t->x, t->rows, v->hidden, f->rms,
				TXDA_F32, TXDA_ACT_NONE);
	if (f->taps)
		add_positions(t);
	if (t->names->before && f->tiles)
		t->x = add_norm(t, "before", t->names->before, 0, t->x, t->rows, v->hidden, f->rms,
				TXDA_F32, TXDA_ACT_NONE);
}

/* ---- the layers ---- */

/* Parameters of one attention: names, and which rows attend to each other. */
struct attention {
	const char *label, *norm, *qkv, *q, *k, *v, *proj;
	uint32_t layer, spans;
};

static void add_attention(struct tower *t, const struct attention *a)
{
	const struct vision_config *v = t->v;
	const uint32_t e = v->hidden, layer = a->layer;
	const struct weight_piece fused = whole(a->qkv, layer, 3 * e, e),
				  apart[3] = {whole(a->q, layer, e, e), whole(a->k, layer, e, e),
					      whole(a->v, layer, e, e)};
	struct txda_op *op;
	uint32_t x, qkv, heads;
	char label[64];

	snprintf(label, sizeof(label), "%s.norm1", a->label);
	x = add_norm(t, label, a->norm, layer, t->x, t->rows, e, v->family->rms, TXDA_F32,
		     TXDA_ACT_NONE);
	snprintf(label, sizeof(label), "%s.qkv", a->label);
	qkv = add_linear(t,
			 &(struct linear){.label = label,
					  .pieces = a->qkv ? &fused : apart,
					  .n_pieces = a->qkv ? 1 : 3,
					  .bias = v->qkv_bias,
					  .x = x,
					  .residual = TXDA_NONE,
					  .out = TXDA_NONE,
					  .flags = TXDA_LINEAR_F32_INPUT},
			 TXDA_F32, t->rows, 3 * e);
	heads = graph_scratch(&t->g, program_label(t->g.p, "%s.heads", a->label), TXDA_BF16,
			      t->rows, e);
	op = program_add_op(t->g.p, TXDA_OP_SPAN_ATTENTION,
			    program_label(t->g.p, "%s.attn", a->label));
	op->in[0] = qkv;
	op->in[1] = a->spans;
	op->in[2] = t->rope;
	op->out[0] = heads;
	op->span_attention = (struct txda_op_span_attention){
		.n_heads = v->heads,
		.head_dim = e / v->heads,
		.scale = 1.0f / sqrtf((float)(e / v->heads)),
	};
	snprintf(label, sizeof(label), "%s.proj", a->label);
	add_to_stream(t, label, a->proj, layer, heads, e, v->family->proj_bias);
}

static void add_layer_attention(struct tower *t, uint32_t layer)
{
	const struct vision_names *n = t->names;
	char label[32];

	snprintf(label, sizeof(label), "layers.%u", layer);
	add_attention(t,
		      &(struct attention){
			      .label = label,
			      .norm = n->norm1,
			      .qkv = n->qkv,
			      .q = n->q,
			      .k = n->k,
			      .v = n->v,
			      .proj = n->proj,
			      .layer = layer,
			      .spans = t->v->window && !t->v->whole[layer] ? t->windows : t->spans,
		      });
}

static void add_mlp(struct tower *t, uint32_t layer)
{
	const struct vision_config *v = t->v;
	const struct vision_names *n = t->names;
	const bool bias = v->family->mlp_bias;
	char label[64];
	uint32_t x;

	snprintf(label, sizeof(label), "layers.%u.norm2", layer);
	x = add_norm(t, label, n->norm2, layer, t->x, t->rows, v->hidden, v->family->rms, TXDA_BF16,
		     TXDA_ACT_NONE);
	snprintf(label, sizeof(label), "layers.%u.mlp.up", layer);
	x = n->gate ? add_gated(t, label, n->gate, n->up, layer, x, t->rows, v->inner, v->hidden,
				bias)
		    : add_product(t, label, n->fc1, layer, x, t->rows, v->inner, v->hidden, bias,
				  v->act, TXDA_BF16, 0);
	snprintf(label, sizeof(label), "layers.%u.mlp.down", layer);
	add_to_stream(t, label, n->gate ? n->down : n->fc2, layer, x, v->inner, bias);
}

/*
 * Windows of 4 rows become one row: attention within each window, then the rows' mean plus the
 * result of an MLP on the concatenated rows.
 */
static void add_shrink(struct tower *t)
{
	const struct vision_config *v = t->v;
	const struct vision_names *n = t->names;
	const uint32_t width = 4 * v->hidden, inner = 4 * v->inner;
	struct txda_op *op;
	uint32_t x;

	add_attention(t, &(struct attention){
				 .label = "shrink",
				 .norm = n->window_norm,
				 .q = n->window_q,
				 .k = n->window_k,
				 .v = n->window_v,
				 .proj = n->window_proj,
				 .spans = t->windows,
			 });
	t->rows.mul /= 4;
	t->spans = t->merged_spans;
	x = program_add_alias(t->g.p, t->x, "shrink.x", t->rows, width);
	x = add_norm(t, "shrink.norm", n->shrink_norm, 0, x, t->rows, width, false, TXDA_F32,
		     TXDA_ACT_NONE);
	x = add_product(t, "shrink.fc1", n->shrink_fc1, 0, x, t->rows, inner, width, true,
			TXDA_ACT_GELU_TANH, TXDA_F32, TXDA_LINEAR_F32_INPUT);
	x = add_product(t, "shrink.fc2", n->shrink_fc2, 0, x, t->rows, v->hidden, inner, true,
			TXDA_ACT_NONE, TXDA_F32, TXDA_LINEAR_F32_INPUT);
	op = program_add_op(t->g.p, TXDA_OP_INTERPOLATE, "shrink.mean");
	op->in[0] = x;
	op->in[1] = t->x;
	op->in[2] = t->mean_rows;
	op->in[3] = t->mean_weights;
	op->out[0] = x;
	t->x = x;
}

/* ---- after them ---- */

/*
 * The merger of a tap: a norm over a unit's concatenated rows, then two products. @slot: its place
 * among the results, which are in the order of the layers, not of the mergers.
 */
static void add_tap(struct tower *t, uint32_t tap, uint32_t slot)
{
	const struct vision_config *v = t->v;
	const uint32_t width = v->rows * v->hidden;
	const struct weight_piece out = whole(t->names->deep_fc2, tap, v->out, width);
	uint32_t x = program_add_alias(t->g.p, t->x, program_label(t->g.p, "taps.%u.x", tap),
				       PROGRAM_SYM(T), width);
	char label[64];

	snprintf(label, sizeof(label), "taps.%u.norm", tap);
	x = add_norm(t, label, t->names->deep_norm, tap, x, PROGRAM_SYM(T), width, false, TXDA_F32,
		     TXDA_ACT_NONE);
	snprintf(label, sizeof(label), "taps.%u.fc1", tap);
	x = add_product(t, label, t->names->deep_fc1, tap, x, PROGRAM_SYM(T), width, width, true,
			TXDA_ACT_GELU, TXDA_F32, TXDA_LINEAR_F32_INPUT);
	snprintf(label, sizeof(label), "taps.%u.fc2", tap);
	add_linear(t,
		   &(struct linear){.label = label,
				    .pieces = &out,
				    .n_pieces = 1,
				    .bias = true,
				    .x = x,
				    .residual = TXDA_NONE,
				    .out = t->deep,
				    .out_col = slot * v->out,
				    .flags = TXDA_LINEAR_F32_INPUT},
		   TXDA_F32, PROGRAM_SYM(T), v->out);
}

/* A GELU between two products: F32 [T, out]. */
static uint32_t add_merge_products(struct tower *t, uint32_t x, uint32_t width)
{
	const struct vision_config *v = t->v;

	x = add_product(t, "merge.fc1", t->names->merge_fc1, 0, x, PROGRAM_SYM(T), width, width,
			true, v->merge_act, TXDA_F32, TXDA_LINEAR_F32_INPUT);
	return add_product(t, "merge.fc2", t->names->merge_fc2, 0, x, PROGRAM_SYM(T), v->out, width,
			   true, TXDA_ACT_NONE, TXDA_F32, TXDA_LINEAR_F32_INPUT);
}

/* Qwen: F32 [T, out]. */
static uint32_t add_merger(struct tower *t)
{
	const struct vision_config *v = t->v;
	const uint32_t width = v->rows * v->hidden;
	uint32_t x = add_norm(t, "merge.norm", t->names->merge_norm, 0, t->x, t->rows, v->hidden,
			      v->family->rms, TXDA_F32, TXDA_ACT_NONE);

	x = program_add_alias(t->g.p, x, "merge.x", PROGRAM_SYM(T), width);
	return add_merge_products(t, x, width);
}

/* MiniCPM-V: the same with a norm over the concatenated rows, after one over each row. */
static uint32_t add_minicpm_merger(struct tower *t)
{
	const struct vision_config *v = t->v;
	const uint32_t width = t->rows.mul * v->hidden;
	uint32_t x = add_norm(t, "after", t->names->after, 0, t->x, t->rows, v->hidden, false,
			      TXDA_F32, TXDA_ACT_NONE);

	t->eps = v->merge_eps;
	x = program_add_alias(t->g.p, x, "merge.x", PROGRAM_SYM(T), width);
	x = add_norm(t, "merge.norm", t->names->merge_norm, 0, x, PROGRAM_SYM(T), width, false,
		     TXDA_F32, TXDA_ACT_NONE);
	return add_merge_products(t, x, width);
}
/* GLM: a convolution over a unit's rows, then a gated MLP: F32 [T, out]. */
static uint32_t add_glm_merger(struct tower *t)
{
	const struct vision_config *v = t->v;
	const uint32_t width = v->rows * v->hidden;
	const struct weight_piece conv = whole(t->names->downsample, 0, v->out, width);
	uint32_t *columns = malloc(width * sizeof(*columns)), x, i;

	if (!columns) {
		graph_fail(&t->g, tool_fail(t->g.error, -ENOMEM, "no memory"));
		return 0;
	}
	/* The kernel's order is channel, row, column; a unit has its rows one after another. */
	for (i = 0; i < width; i++)
		columns[i] = i % v->rows * v->hidden + i / v->rows;
	x = add_norm(t, "after", t->names->after, 0, t->x, t->rows, v->hidden, true, TXDA_F32,
		     TXDA_ACT_NONE);
	x = program_add_alias(t->g.p, x, "downsample.x", PROGRAM_SYM(T), width);
	x = add_linear(t,
		       &(struct linear){.label = "downsample",
					.pieces = &conv,
					.n_pieces = 1,
					.bias = true,
					.x = x,
					.residual = TXDA_NONE,
					.out = TXDA_NONE,
					.columns = columns,
					.flags = TXDA_LINEAR_F32_INPUT},
		       TXDA_F32, PROGRAM_SYM(T), v->out);
	free(columns);
	x = add_product(t, "merge.proj", t->names->merge_proj, 0, x, PROGRAM_SYM(T), v->out, v->out,
			false, TXDA_ACT_NONE, TXDA_F32, TXDA_LINEAR_F32_INPUT);
	t->eps = v->merge_eps;
	x = add_norm(t, "merge.norm", t->names->merge_norm, 0, x, PROGRAM_SYM(T), v->out, false,
		     TXDA_BF16, TXDA_ACT_GELU);
	x = add_gated(t, "merge.up", t->names->merge_gate, t->names->merge_up, 0, x, PROGRAM_SYM(T),
		      v->merge_inner, v->out, false);
	return add_product(t, "merge.down", t->names->merge_down, 0, x, PROGRAM_SYM(T), v->out,
			   v->merge_inner, false, TXDA_ACT_NONE, TXDA_F32, 0);
}

/* CLIP: F32 [rows, out], a row for each patch and one for the class. */
static uint32_t add_projector(struct tower *t)
{
	const struct vision_config *v = t->v;
	uint32_t x = add_product(t, "merge.fc1", t->names->merge_fc1, 0, t->x, t->rows, v->out,
				 v->hidden, v->merge_bias, v->merge_act, TXDA_F32,
				 TXDA_LINEAR_F32_INPUT);

	return add_product(t, "merge.fc2", t->names->merge_fc2, 0, x, t->rows, v->out, v->out,
			   v->merge_bias, TXDA_ACT_NONE, TXDA_F32, TXDA_LINEAR_F32_INPUT);
}

/*
 * The embeddings in the order of the tokens, including the row between lines that some towers have.
 */
static void add_output(struct tower *t, const char *label, uint32_t from, uint32_t newline,
		       uint32_t out)
{
	bool merge = newline != TXDA_NONE;
	struct txda_op *op =
		program_add_op(t->g.p, merge ? TXDA_OP_MERGE_ROWS : TXDA_OP_GATHER_ROWS, label);

	op->in[0] = merge ? newline : from;
	op->in[1] = merge ? from : t->out_rows;
	op->in[2] = merge ? t->out_rows : TXDA_NONE;
	op->out[0] = out;
}

static void build(struct tower *t)
{
	const struct vision_config *v = t->v;
	uint32_t layer, i, embeds, slot = 0, newline = TXDA_NONE;

	add_inputs(t);
	t->rope = TXDA_NONE;
	if (!v->family->tiles && !v->family->slices)
		add_angles(t);
	add_patches(t);
	if (v->n_deep)
		t->deep =
			graph_scratch(&t->g, "taps", TXDA_F32, PROGRAM_SYM(T), v->n_deep * v->out);
	for (layer = 0; layer < v->depth; layer++) {
		add_layer_attention(t, layer);
		add_mlp(t, layer);
		if (v->family->slices && v->window && layer == v->shrink)
			add_shrink(t);
		for (i = 0; i < v->n_deep; i++) {
			if (v->deep[i] == layer)
				add_tap(t, i, slot++);
		}
	}
	embeds = v->family->tiles	? add_projector(t)
		 : v->family->slices	? add_minicpm_merger(t)
		 : t->names->downsample ? add_glm_merger(t)
					: add_merger(t);
	if (t->names->newline)
		newline = vector_of(t, t->names->newline, "", 0, v->out);
	add_output(t, "embeds", embeds, newline, t->embeds);
	if (v->n_deep)
		add_output(t, "deepstack", t->deep, TXDA_NONE, t->deep_out);
}

/* The maximum numbers of units, spans and rows of a launch. */
static int set_limits(const struct vision_config *v, const struct compile_options *o,
		      uint32_t sym_max[TXDA_SYM_COUNT], struct tool_error *error)
{
	uint64_t units = o->max_image_tokens, rows;
	uint32_t i;

	sym_max[TXDA_SYM_T] = sym_max[TXDA_SYM_S] = sym_max[TXDA_SYM_B] = (uint32_t)units;
	sym_max[TXDA_SYM_R] = (uint32_t)units;
	sym_max[TXDA_SYM_N] = 1;
	if (v->family->slices) /* 4 windows of 4 patches each */
		sym_max[TXDA_SYM_B] = 4 * (uint32_t)units;
	if (!v->family->tiles)
		return 0;
	/*
	 * The maximum number of tiles of an image, and a row between lines for each line of
	 * patches.
	 */
	units = (units + v->rows - 2) / (v->rows - 1);
	for (i = 0; i < v->n_pinpoints; i++) {
		uint64_t h = v->pinpoints[i][0] / v->tile, w = v->pinpoints[i][1] / v->tile;

		if (h && w && h * w + 1 > units)
			units = h * w + 1;
	}
	rows = units * (v->rows - 1 + v->side);
	if (units > MAX_TILES || rows > MAX_TILE_ROWS)
		return tool_fail(
			error, -EINVAL,
			"image_grid_pinpoints: an image of %llu tiles has %llu tokens; the "
			"limits are %u and %u",
			(unsigned long long)units, (unsigned long long)rows, MAX_TILES,
			MAX_TILE_ROWS);
	sym_max[TXDA_SYM_T] = sym_max[TXDA_SYM_S] = (uint32_t)units;
	sym_max[TXDA_SYM_B] = 1;
	sym_max[TXDA_SYM_R] = (uint32_t)rows;
	return 0;
}

int graph_build_vision(const struct model_config *config, const struct source *source,
		       const struct compile_options *options, struct param_list *params,
		       struct compiled_program *ret, struct tool_error *error)
{
	struct tower t = {
		.g = {.config = config, .source = source, .options = options, .error = error},
		.v = &config->vision,
		.names = config->vision.family->names,
		.rows = {TXDA_SYM_T, config->vision.rows},
		.eps = config->vision.eps,
	};
	uint32_t sym_max[TXDA_SYM_COUNT] = {0};
	char name[128];
	int r;

	r = set_limits(t.v, options, sym_max, error);
	if (r)
		return r;
	snprintf(name, sizeof(name), "model.%s.weight", t.names->patch);
	t.g.tower = source->checkpoint && source_has(source, name) ? "model." : "";
	/* Each chip has the whole tower: nothing crosses the links. */
	t.g.p = program_new("vision", 1, 0, sym_max);
	if (!t.g.p)
		return tool_fail(error, -ENOMEM, "no memory");
	t.g.params = *params;
	build(&t);
	program_set_slot_bytes(t.g.p, t.g.slot_weights, param_finish(&t.g.params));
	*params = t.g.params;
	r = t.g.failed;
	if (!r)
		r = program_finish(t.g.p, &ret->kcore, &ret->kcore_bytes, error);
	if (!r) {
		ret->scratch_bytes = program_slot_bytes(t.g.p, t.g.slot_scratch);
		ret->io_bytes = program_io_bytes(t.g.p);
	}
	program_free(t.g.p);
	return r;
}
