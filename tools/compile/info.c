// SPDX-License-Identifier: MIT
#include "info.h"

#include <stdio.h>

#include "isa_names.h"
#include "program_view.h"

static void add_u64(cJSON *object, const char *key, uint64_t value)
{
	cJSON_AddNumberToObject(object, key, (double)value);
}

static void add_limits(cJSON *root, const struct compile_options *o)
{
	cJSON *limits = cJSON_AddObjectToObject(root, "limits");

	add_u64(limits, "tokens", o->max_tokens);
	add_u64(limits, "seqs", o->max_seqs);
	add_u64(limits, "rows", o->max_rows);
	add_u64(limits, "blocks", (o->max_context + o->block_size - 1) / o->block_size);
	add_u64(limits, "context", o->max_context);
}

static void add_chips(cJSON *root, const struct compile_options *o, const struct chip_info *chips)
{
	cJSON *array = cJSON_AddArrayToObject(root, "chips");
	char name[32];
	uint32_t i;

	for (i = 0; i < o->tp; i++) {
		cJSON *chip = cJSON_CreateObject();

		snprintf(name, sizeof(name), "chip%u/kcore.bin", i);
		cJSON_AddStringToObject(chip, "kcore", name);
		add_u64(chip, "kcore_bytes", chips[i].kcore_bytes);
		snprintf(name, sizeof(name), "chip%u/param.bin", i);
		cJSON_AddStringToObject(chip, "param", name);
		add_u64(chip, "param_bytes", chips[i].param_bytes);
		add_u64(chip, "param_crc32c", chips[i].param_crc32c);
		add_u64(chip, "scratch_bytes", chips[i].scratch_bytes);
		add_u64(chip, "io_bytes", chips[i].io_bytes);
		cJSON_AddItemToArray(array, chip);
	}
}

/* A number, "T" or "4T". */
static void add_dim(cJSON *shape, const struct txda_dim *dim)
{
	char text[24];

	if (!dim->sym)
		cJSON_AddItemToArray(shape, cJSON_CreateNumber(dim->mul));
	else if (dim->mul == 1)
		cJSON_AddItemToArray(shape, cJSON_CreateString(isa_symbol_name(dim->sym)));
	else if (snprintf(text, sizeof(text), "%u%s", dim->mul, isa_symbol_name(dim->sym)) > 0)
		cJSON_AddItemToArray(shape, cJSON_CreateString(text));
}

static void add_tensors(cJSON *root, const char *key, const struct program_view *v, uint32_t kind)
{
	cJSON *array = cJSON_AddArrayToObject(root, key);
	uint32_t i, j;

	for (i = 0; i < v->header->n_tensors; i++) {
		const struct txda_tensor *t = &v->tensors[i];
		cJSON *item, *shape;

		if (v->slots[t->slot].kind != kind)
			continue;
		item = cJSON_CreateObject();
		cJSON_AddStringToObject(item, "name", program_name(v, t->name));
		cJSON_AddStringToObject(item, "dtype", isa_dtype_name(t->dtype));
		shape = cJSON_AddArrayToObject(item, "shape");
		for (j = 0; j < t->ndim; j++)
			add_dim(shape, &t->dim[j]);
		cJSON_AddItemToArray(array, item);
	}
}

/* Properties of the tower needed to prepare images. */
static void add_tower(cJSON *object, const struct vision_config *v)
{
	cJSON *points;
	uint32_t i;

	cJSON_AddStringToObject(object, "kind",
				v->family->tiles    ? "tiles"
				: v->family->slices ? "slices"
						    : "merge");
	cJSON_AddStringToObject(object, "positions",
				v->family->taps == 1	? "nearest"
				: v->family->taps == 4	? "bilinear"
				: v->family->taps == 16 ? "bicubic"
				: v->family->taps	? "tile"
							: "none");
	add_u64(object, "patch", v->patch);
	add_u64(object, "frames", v->temporal);
	add_u64(object, "channels", v->channels);
	add_u64(object, "merge", v->merge);
	add_u64(object, "window", v->window);
	add_u64(object, "side", v->side);
	add_u64(object, "tile", v->tile);
	add_u64(object, "deepstack", v->n_deep);
	add_u64(object, "image_token", v->image_token);
	if (!v->n_pinpoints)
		return;
	points = cJSON_AddArrayToObject(object, "grid_pinpoints");
	for (i = 0; i < v->n_pinpoints; i++) {
		const int pair[2] = {(int)v->pinpoints[i][0], (int)v->pinpoints[i][1]};

		cJSON_AddItemToArray(points, cJSON_CreateIntArray(pair, 2));
	}
}

static void add_vision(cJSON *root, const struct model *m, const struct compile_options *o,
		       const struct chip_info *chips, const struct compiled_program *first)
{
	cJSON *vision = cJSON_AddObjectToObject(root, "vision"), *limits, *array;
	struct program_view view;
	uint32_t i;

	if (program_view(first->kcore, first->kcore_bytes, &view, NULL))
		return;
	limits = cJSON_AddObjectToObject(vision, "limits");
	add_u64(limits, "tokens", view.header->sym_max[TXDA_SYM_T]);
	add_u64(limits, "seqs", view.header->sym_max[TXDA_SYM_S]);
	add_u64(limits, "rows", view.header->sym_max[TXDA_SYM_R]);
	add_u64(limits, "blocks", view.header->sym_max[TXDA_SYM_B]);
	add_tower(cJSON_AddObjectToObject(vision, "tower"), &m->config.vision);
	array = cJSON_AddArrayToObject(vision, "chips");
	for (i = 0; i < o->tp; i++) {
		cJSON *chip = cJSON_CreateObject();
		char name[32];

		snprintf(name, sizeof(name), "chip%u/vision.bin", i);
		cJSON_AddStringToObject(chip, "kcore", name);
		add_u64(chip, "kcore_bytes", chips[i].vision.kcore_bytes);
		add_u64(chip, "scratch_bytes", chips[i].vision.scratch_bytes);
		add_u64(chip, "io_bytes", chips[i].vision.io_bytes);
		cJSON_AddItemToArray(array, chip);
	}
	add_tensors(vision, "inputs", &view, TXDA_SLOT_INPUT);
	add_tensors(vision, "outputs", &view, TXDA_SLOT_OUTPUT);
}

/* A kind of cache: bytes of all its layers per token, or of a state. */
static void add_kind(cJSON *kinds, const char *name, uint32_t layers, const char *unit,
		     uint64_t bytes)
{
	cJSON *kind;

	if (!layers || !bytes)
		return;
	kind = cJSON_CreateObject();
	cJSON_AddStringToObject(kind, "kind", name);
	add_u64(kind, "layers", layers);
	add_u64(kind, unit, layers * bytes);
	cJSON_AddItemToArray(kinds, kind);
}

static void add_kinds(cJSON *kv, const struct model *m, const struct compiled_cache *c)
{
	cJSON *kinds = cJSON_AddArrayToObject(kv, "kinds"), *window;

	add_kind(kinds, "keys", c->layers, "token_bytes", c->token_bytes - c->index_bytes);
	add_kind(kinds, "index", c->layers, "token_bytes", c->index_bytes);
	add_kind(kinds, "window", c->window_layers, "token_bytes", c->token_bytes);
	window = cJSON_GetArrayItem(kinds, cJSON_GetArraySize(kinds) - 1);
	if (c->window_layers)
		add_u64(window, "window", m->config.sliding_window);
	add_kind(kinds, "state", c->state_layers, "state_bytes", c->state_bytes);
	if (c->state_layers)
		add_u64(cJSON_GetArrayItem(kinds, cJSON_GetArraySize(kinds) - 1), "blocks",
			c->state_blocks);
}

char *info_make(const struct model *m, const struct compile_options *o, const char *weights,
		const struct chip_info *chips, const struct compiled_chip *first)
{
	cJSON *root = cJSON_CreateObject(), *kv, *programs;
	struct program_view view;
	char *text = NULL;

	if (!root || program_view(first->kcore, first->kcore_bytes, &view, NULL))
		goto out;
	add_u64(root, "format", 1);
	cJSON_AddStringToObject(root, "compiler", COMPILE_VERSION);
	cJSON_AddStringToObject(root, "name", o->name);
	cJSON_AddStringToObject(root, "family", m->config.model_type);
	cJSON_AddStringToObject(root, "source_hash", m->source_hash);
	cJSON_AddStringToObject(root, "weights", weights);
	add_u64(root, "tp", o->tp);
	add_limits(root, o);
	cJSON_AddBoolToObject(root, "whole_experts", o->expert_parallel);
	add_u64(root, "vocab", m->config.vocab_size);
	add_u64(root, "hidden_size", m->config.hidden_size);
	add_u64(root, "layers", o->mtp ? 1 : m->config.n_layers);
	add_u64(root, "topk", o->topk);
	if (m->embedding) {
		cJSON_AddStringToObject(root, "pooling", m->pooling);
		cJSON_AddBoolToObject(root, "normalize", m->normalize);
	}
	kv = cJSON_AddObjectToObject(root, "kv");
	add_u64(kv, "block_size", o->block_size);
	add_u64(kv, "block_bytes", chips[0].kv_block_bytes);
	add_u64(kv, "token_bytes", chips[0].kv_block_bytes * first->cache.groups / o->block_size);
	if (m->config.mla.latent) /* for comparison: the size of each head's keys and values */
		add_u64(kv, "token_bytes_expanded",
			(uint64_t)(o->mtp ? 1 : m->config.n_layers) * m->config.n_heads *
				(m->config.mla.nope + m->config.mla.rope + m->config.mla.v) * 2);
	cJSON_AddStringToObject(kv, "dtype", o->kv_int8 ? "int8" : "bf16");
	add_u64(kv, "groups", first->cache.groups);
	add_kinds(kv, m, &first->cache);
	add_chips(root, o, chips);
	programs = cJSON_AddArrayToObject(root, "programs");
	cJSON_AddItemToArray(programs,
			     cJSON_CreateString(o->mtp ? "mtp" : program_role_name(o->role)));
	if (first->vision.kcore) {
		cJSON_AddItemToArray(programs, cJSON_CreateString("vision"));
		add_vision(root, m, o, chips, &first->vision);
	}
	add_tensors(root, "inputs", &view, TXDA_SLOT_INPUT);
	add_tensors(root, "outputs", &view, TXDA_SLOT_OUTPUT);
	text = cJSON_Print(root);
out:
	cJSON_Delete(root);
	return text;
}
