// SPDX-License-Identifier: MIT
/* Weights of the graph: adds tensors of the checkpoint to param.bin and to the program. */
#include "graph_internal.h"
#include "quant.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES 256

const struct spelling *graph_spelling(const struct source *source)
{
	static const struct spelling known[] = {
		{"model.", ""},
		{"", ""},
		{"model.language_model.", ""},
		{"language_model.model.", "language_model."},
	};
	char name[64];
	unsigned i;

	for (i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		snprintf(name, sizeof(name), "%sembed_tokens.weight", known[i].model);
		if (source_has(source, name))
			return &known[i];
	}
	return &known[0];
}

void graph_fail(struct graph *g, int code)
{
	if (!g->failed)
		g->failed = code;
}

/* "model.layers.3.mlp.experts.5.up_proj" + ".weight"; the family's names are constants with at most
 * two %u. */
static const char *tensor_name(const struct graph *g, char *buf, const char *name, uint32_t layer,
			       uint32_t expert, const char *suffix)
{
	const uint32_t number[2] = {layer, expert};
	const char *before = g->tower;
	size_t at;
	unsigned i;

	if (!before) {
		bool model = !strncmp(name, "model.", 6);

		before = model ? g->spelling->model : g->spelling->head;
		name += model ? 6 : 0;
	}
	at = (size_t)snprintf(buf, NAME_BYTES, "%s", before);
	for (i = 0; i < 2; i++) {
		const char *hole = strstr(name, "%u");

		if (!hole)
			break;
		at += (size_t)snprintf(buf + at, NAME_BYTES - at, "%.*s%u", (int)(hole - name),
				       name, number[i]);
		name = hole + 2;
	}
	snprintf(buf + at, NAME_BYTES - at, "%s%s", name, suffix);
	return buf;
}

bool graph_has(const struct graph *g, const char *name, uint32_t layer, const char *suffix)
{
	char full[NAME_BYTES];

	return name && !source_made_up(g->source) &&
	       source_has(g->source, tensor_name(g, full, name, layer, 0, suffix));
}

bool graph_has_matrix(const struct graph *g, const char *name, uint32_t layer)
{
	char full[NAME_BYTES];

	return name && !source_made_up(g->source) &&
	       quant_has(g->source, tensor_name(g, full, name, layer, 0, ""));
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

int graph_find(struct graph *g, const struct weight_piece *w, struct source_tensor *ret)
{
	char name[NAME_BYTES];
	int r = g->failed;

	tensor_name(g, name, w->name, w->layer, w->expert, "");
	if (!r && w->stack)
		r = quant_find_stacked(g->source, name, w->stack, w->expert, w->rows, w->cols,
				       g->names->experts_in_first, ret, g->error);
	else if (!r)
		r = quant_find(g->source, &g->config->quant, name, w->rows, w->cols, ret, g->error);
	if (r)
		graph_fail(g, r);
	return r;
}

uint32_t graph_scratch(struct graph *g, const char *label, uint8_t dtype, struct txda_dim rows,
		       uint32_t columns)
{
	return program_add_scratch(g->p, g->slot_scratch, label, dtype, rows, columns);
}

/* Constant words, [rows, n] or [n]. */
static uint32_t own_words(struct graph *g, const char *label, uint8_t dtype, const void *data,
			  uint32_t rows, uint32_t n)
{
	uint64_t bytes = (uint64_t)(rows ? rows : 1) * n * 4;

	return program_add_tensor(
		g->p, &(struct program_tensor){
			      .name = label,
			      .slot = g->slot_weights,
			      .dtype = dtype,
			      .layout = TXDA_ROWS,
			      .offset = param_add_bytes(&g->params, label, data, bytes),
			      .ndim = rows ? 2 : 1,
			      .dim = {PROGRAM_DIM(rows ? rows : n), PROGRAM_DIM(rows ? n : 0)},
		      });
}

uint32_t graph_indices(struct graph *g, const char *label, const uint32_t *data, uint32_t rows,
		       uint32_t n)
{
	return own_words(g, label, TXDA_I32, data, rows, n);
}

uint32_t graph_constant(struct graph *g, const char *label, const float *data, uint32_t rows,
			uint32_t n)
{
	return own_words(g, label, TXDA_F32, data, rows, n);
}

void graph_read(struct graph *g, const char *name, uint32_t layer, uint32_t n, struct range part,
		float *to)
{
	char full[NAME_BYTES];
	struct source_tensor t;

	if (!find(g, tensor_name(g, full, name, layer, 0, ""), 0, n, &t))
		source_read(&t, 0, part.first, part.n, to);
}

void graph_read_channel(struct graph *g, const char *name, uint32_t layer, uint32_t rows,
			uint32_t row, uint32_t cols, float *to)
{
	char full[NAME_BYTES];
	struct source_tensor t;
	int r = g->failed;

	tensor_name(g, full, name, layer, 0, "");
	if (!r)
		r = source_find_stacked(g->source, full, rows, row, 1, cols, false, &t, g->error);
	if (r)
		graph_fail(g, r);
	else
		source_read(&t, 0, 0, cols, to);
}

/* Reads the biases of @w's rows; false: there are none, which is recorded as an error. */
static bool read_bias(struct graph *g, const struct weight_piece *w, uint32_t expert, float *to)
{
	const uint32_t by = w->row_by ? w->row_by : 1;
	char name[NAME_BYTES];
	struct source_tensor t;
	uint32_t i;

	tensor_name(g, name, w->name, w->layer, expert, w->stack ? "_bias" : ".bias");
	if (find(g, name, w->stack, w->rows, &t))
		return false;
	for (i = 0; i < w->row.n; i++)
		source_read(&t, w->stack ? expert : 0, w->row.first + (uint64_t)i * by, 1, to + i);
	return true;
}

uint32_t graph_bias(struct graph *g, const char *label, const struct weight_piece *pieces,
		    unsigned n_pieces, uint32_t matrices)
{
	uint32_t n = 0, at = 0, tensor, m;
	unsigned i;
	float *data;

	for (i = 0; i < n_pieces; i++)
		n += pieces[i].row.n;
	data = calloc((size_t)n * (matrices ? matrices : 1), sizeof(*data));
	if (!data) {
		graph_fail(g, g->failed ? g->failed : tool_fail(g->error, -ENOMEM, "no memory"));
		return 0;
	}
	for (m = 0; m < (matrices ? matrices : 1); m++) {
		for (i = 0; i < n_pieces; i++) {
			if (!read_bias(g, &pieces[i], pieces[i].expert + m, data + at))
				break;
			at += pieces[i].row.n;
		}
	}
	tensor = graph_constant(g, label, data, matrices, n);
	free(data);
	return tensor;
}

/* Elements @part of the vector NAME + @suffix, which has @n. */
static uint32_t vector(struct graph *g, const char *label, const char *name, uint32_t layer,
		       const char *suffix, uint32_t n, struct range part, float plus)
{
	char full[NAME_BYTES];
	struct source_tensor t;
	uint32_t tensor, i;
	float *data;

	if (find(g, tensor_name(g, full, name, layer, 0, suffix), 0, n, &t))
		return 0;
	data = calloc(part.n, sizeof(*data));
	if (!data) {
		graph_fail(g, tool_fail(g->error, -ENOMEM, "no memory"));
		return 0;
	}
	source_read(&t, 0, part.first, part.n, data);
	for (i = 0; i < part.n; i++)
		data[i] += plus;
	tensor = graph_constant(g, label, data, 0, part.n);
	free(data);
	return tensor;
}

uint32_t graph_vector(struct graph *g, const char *label, const char *name, uint32_t layer,
		      uint32_t n)
{
	return vector(g, label, name, layer, "", n, (struct range){0, n}, 0);
}

uint32_t graph_norm_bias(struct graph *g, const char *label, const char *name, uint32_t layer,
			 uint32_t n)
{
	return vector(g, label, name, layer, ".bias", n, (struct range){0, n}, 0);
}

uint32_t graph_part(struct graph *g, const char *label, const char *name, uint32_t layer,
		    uint32_t n, struct range part)
{
	return vector(g, label, name, layer, "", n, part, 0);
}

uint32_t graph_norm(struct graph *g, const char *label, const char *name, uint32_t layer,
		    uint32_t n)
{
	return vector(g, label, name, layer, ".weight", n, (struct range){0, n},
		      g->config->norm_plus_one ? 1 : 0);
}
