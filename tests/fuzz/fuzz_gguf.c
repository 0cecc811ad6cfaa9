// SPDX-License-Identifier: MIT
/* Any bytes as a GGUF file: of what opens, every tensor lies within the file and can be read, and the
 * metadata becomes a config and a tokeniser or an error in words; its weights become tiles. Two files
 * are parts of a model. */
#include "fuzz.h"
#include "../memory_file.h"
#include "config.h"
#include "ggml.h"
#include "gguf_model.h"
#include "k_order.h"
#include "pack.h"
#include "param.h"

/* A tensor whose data is a copy of exactly its bytes, so that sanitizers see every read beyond. */
static struct gguf_tensor copy_tensor(const struct gguf *g, const struct gguf_tensor *t,
				      size_t size)
{
	struct gguf_tensor copy = *t;
	uint8_t *data;
	size_t header;

	gguf_header(g, &header);
	if (header > size || t->offset > size - header || t->bytes > size - header - t->offset)
		abort();
	data = malloc(t->bytes + !t->bytes);
	if (!data)
		abort();
	memcpy(data, t->data, t->bytes);
	copy.data = data;
	return copy;
}

/* Some columns of a tensor as tiles, from anywhere in a block on. */
static void make_tiles(const struct gguf_tensor *t, uint32_t first)
{
	static float block[PACK_K][TXDA_TILE_N];
	static uint8_t out[1 << 20];
	const struct ggml_format *f = ggml_format(t->type);
	struct range col = {first % t->dim[0], t->dim[0] < 700 ? (uint32_t)t->dim[0] : 700};
	struct param_part part = {.rows = t->dim[1] < 32 ? t->dim[1] : 32, .col = col.first};
	struct tool_error error = {{0}};
	struct param_tiles tiles = {.name = "w", .dtype = f->tiles, .keep = f->bits, .n_parts = 1};
	struct k_order order = {0};

	if (t->dim[0] > UINT32_MAX)
		return;
	if (col.n > t->dim[0] - col.first)
		col.n = (uint32_t)t->dim[0] - col.first;
	part.source = ggml_tensor(t->type, t->dim[1], t->dim[0], t->data);
	if (f->bits && k_order_make(&part.source, col, f->tiles, 0, &order))
		abort();
	tiles.layout = TXDA_TILE32;
	tiles.n = (uint32_t)part.rows;
	tiles.k = f->bits ? order.n : col.n;
	tiles.group = order.group;
	tiles.columns = order.columns;
	tiles.part = &part;
	if (txda_tile_panel_bytes(tiles.dtype, tiles.k, tiles.group) > sizeof(out))
		abort();
	if (param_make_panel(&tiles, 0, block, out, &error) && !error.text[0])
		abort();
	free(order.columns);
}

static void read_model(const struct gguf_model *m)
{
	static struct model_config config;
	struct gguf_file files[GGUF_FILES] = {{0}};
	struct tool_error error = {{0}};
	struct source_tensor t;
	char *text;
	float first;

	if (gguf_config(m, &text, &error)) {
		if (!error.text[0])
			abort();
	} else {
		if (!config_parse(text, strlen(text), &config, &error))
			gguf_adapt(m, &config);
		free(text);
	}
	error.text[0] = '\0';
	if (gguf_tokenizer(gguf_model_file(m, 0), files, &error) && !error.text[0])
		abort();
	for (unsigned i = 0; i < GGUF_FILES; i++)
		free(files[i].text);
	if (!gguf_model_find(m, "model.layers.0.mlp.experts.1.up_proj.weight", 4, 32, &t, &error))
		source_read(&t, 3, 31, 1, &first);
	if (!gguf_model_find(m, "model.embed_tokens.weight", 8, 32, &t, &error))
		source_read(&t, 7, 31, 1, &first);
}

/* A file whose tensors have been read. */
static struct gguf *open_file(const uint8_t *data, size_t size)
{
	struct tool_error error = {{0}};
	struct gguf *g;

	if (gguf_open_fd(memory_file(data, size), "input", &g, &error)) {
		if (!error.text[0])
			abort();
		return NULL;
	}
	for (size_t i = 0; gguf_at(g, i); i++) {
		struct gguf_tensor t = copy_tensor(g, gguf_at(g, i), size);

		make_tiles(&t, (uint32_t)size * 5);
		free((void *)t.data);
	}
	return g;
}

/* One file, or two parts if another one begins within. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *second = size > 4 ? memmem(data + 4, size - 4, "GGUF", 4) : NULL;
	size_t first_size = second ? (size_t)(second - data) : size;
	struct tool_error error = {{0}};
	struct gguf *files[2];
	struct gguf_model *m;

	files[0] = open_file(data, first_size);
	files[1] = second ? open_file(second, size - first_size) : NULL;
	if (!files[0] || (second && !files[1])) {
		gguf_close(files[0]);
		gguf_close(files[1]);
		return 0;
	}
	if (gguf_model_new(files, second ? 2 : 1, &m, &error)) {
		if (!error.text[0])
			abort();
		return 0;
	}
	read_model(m);
	gguf_model_free(m);
	return 0;
}
