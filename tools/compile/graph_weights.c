// SPDX-License-Identifier: MIT
/* Weights of the graph: from names of the checkpoint to entries of param.bin and tensors of the
 * program. */
#include "graph_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES 256

void graph_fail(struct graph *g, int code)
{
	if (!g->failed)
		g->failed = code;
}

/* "model.layers.3.mlp.up_proj" + ".weight"; the family's names are constants with at most one %u.
 */
static const char *tensor_name(char *buf, const char *name, uint32_t layer, const char *suffix)
{
	const char *hole = strstr(name, "%u");

	if (hole)
		snprintf(buf, NAME_BYTES, "%.*s%u%s%s", (int)(hole - name), name, layer, hole + 2,
			 suffix);
	else
		snprintf(buf, NAME_BYTES, "%s%s", name, suffix);
	return buf;
}

/* Only the first failure writes the error. */
static int find(struct graph *g, const char *name, uint64_t rows, uint64_t cols,
		struct source_tensor *ret)
{
	int r = g->failed;

	if (!r)
		r = source_find(g->source, name, rows, cols, ret, g->error);
	if (r)
		graph_fail(g, r);
	return r;
}

/* The type in tiles of weights that are @source_types (bits by enum txda_dtype) in the checkpoint.
 */
static uint8_t weight_dtype(struct graph *g, enum weight_role role, unsigned source_types)
{
	switch (g->options->weights) {
	case WEIGHTS_BF16: return TXDA_BF16;
	case WEIGHTS_F16: return TXDA_F16;
	case WEIGHTS_W8: return TXDA_W8;
	case WEIGHTS_W4: return role == WEIGHT_VOCAB ? TXDA_W8 : TXDA_W4;
	default:
		if (source_types & 1u << TXDA_F32)
			g->narrowed = true;
		return source_types == 1u << TXDA_F16 ? TXDA_F16 : TXDA_BF16;
	}
}

uint32_t graph_weight(struct graph *g, const char *label, enum weight_role role, uint8_t layout,
		      uint32_t n, const struct weight_piece *pieces, unsigned n_pieces)
{
	struct param_tiles tiles = {.name = label, .layout = layout, .n = n, .k = pieces[0].col.n};
	unsigned types = 0, i;
	char name[NAME_BYTES];

	for (i = 0; i < n_pieces; i++) {
		const struct weight_piece *w = &pieces[i];
		struct source_tensor t;

		if (find(g, tensor_name(name, w->name, w->layer, ".weight"), w->rows, w->cols, &t))
			return 0;
		types |= 1u << t.dtype;
		tiles.part[tiles.n_parts++] = (struct param_part){
			.source = t, .row = w->row.first, .rows = w->row.n, .col = w->col.first};
	}
	tiles.dtype = weight_dtype(g, role, types);
	if (tiles.dtype == TXDA_W8 || tiles.dtype == TXDA_W4)
		tiles.group = (uint16_t)g->options->group;
	if (role == WEIGHT_LAYER)
		g->linear_dtype = tiles.dtype;
	return program_add_tensor(g->p, &(struct program_tensor){
						.name = label,
						.slot = g->slot_weights,
						.dtype = tiles.dtype,
						.layout = layout,
						.group = tiles.group,
						.offset = param_add_tiles(&g->params, &tiles),
						.ndim = 2,
						.dim = {PROGRAM_DIM(n), PROGRAM_DIM(tiles.k)},
					});
}

uint32_t graph_constant(struct graph *g, const char *label, const float *data, uint32_t n)
{
	return program_add_tensor(g->p,
				  &(struct program_tensor){
					  .name = label,
					  .slot = g->slot_weights,
					  .dtype = TXDA_F32,
					  .layout = TXDA_ROWS,
					  .offset = param_add_bytes(&g->params, label, data,
								    (uint64_t)n * sizeof(*data)),
					  .ndim = 1,
					  .dim = {PROGRAM_DIM(n)},
				  });
}

uint32_t graph_bias(struct graph *g, const char *label, const struct weight_piece *pieces,
		    unsigned n_pieces)
{
	char name[NAME_BYTES];
	uint32_t n = 0, at = 0, tensor;
	unsigned i;
	float *data;

	for (i = 0; i < n_pieces; i++)
		n += pieces[i].row.n;
	data = calloc(n, sizeof(*data));
	if (!data) {
		graph_fail(g, g->failed ? g->failed : tool_fail(g->error, -ENOMEM, "no memory"));
		return 0;
	}
	for (i = 0; i < n_pieces; i++) {
		const struct weight_piece *w = &pieces[i];
		struct source_tensor t;

		if (find(g, tensor_name(name, w->name, w->layer, ".bias"), 0, w->rows, &t))
			break;
		source_read(&t, 0, w->row.first, w->row.n, data + at);
		at += w->row.n;
	}
	tensor = graph_constant(g, label, data, n);
	free(data);
	return tensor;
}

uint32_t graph_norm(struct graph *g, const char *label, const char *name, uint32_t layer,
		    uint32_t n)
{
	char full[NAME_BYTES];
	struct source_tensor t;
	uint32_t tensor;
	float *data;

	if (find(g, tensor_name(full, name, layer, ".weight"), 0, n, &t))
		return 0;
	data = calloc(n, sizeof(*data));
	if (!data) {
		graph_fail(g, tool_fail(g->error, -ENOMEM, "no memory"));
		return 0;
	}
	source_read(&t, 0, 0, n, data);
	tensor = graph_constant(g, label, data, n);
	free(data);
	return tensor;
}
