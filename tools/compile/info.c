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
			cJSON_AddItemToArray(
				shape, t->dim[j].sym
					       ? cJSON_CreateString(isa_symbol_name(t->dim[j].sym))
					       : cJSON_CreateNumber(t->dim[j].mul));
		cJSON_AddItemToArray(array, item);
	}
}

char *info_make(const struct model *m, const struct compile_options *o, const char *weights,
		const struct chip_info *chips, const void *kcore, size_t kcore_bytes)
{
	cJSON *root = cJSON_CreateObject(), *kv, *programs;
	struct program_view view;
	char *text = NULL;

	if (!root || program_view(kcore, kcore_bytes, &view, NULL))
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
	add_u64(kv, "token_bytes", chips[0].kv_block_bytes / o->block_size);
	if (m->config.mla.latent) /* what each head's keys and values would take */
		add_u64(kv, "token_bytes_expanded",
			(uint64_t)(o->mtp ? 1 : m->config.n_layers) * m->config.n_heads *
				(m->config.mla.nope + m->config.mla.rope + m->config.mla.v) * 2);
	cJSON_AddStringToObject(kv, "dtype", o->kv_int8 ? "int8" : "bf16");
	add_chips(root, o, chips);
	programs = cJSON_AddArrayToObject(root, "programs");
	cJSON_AddItemToArray(programs,
			     cJSON_CreateString(o->mtp ? "mtp" : program_role_name(o->role)));
	add_tensors(root, "inputs", &view, TXDA_SLOT_INPUT);
	add_tensors(root, "outputs", &view, TXDA_SLOT_OUTPUT);
	text = cJSON_Print(root);
out:
	cJSON_Delete(root);
	return text;
}
