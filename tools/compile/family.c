// SPDX-License-Identifier: MIT
#include "family.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct family *const families[] = {
	&family_llama,
	&family_qwen2,
	&family_qwen3,
	&family_internlm3,
};

const struct family_names family_names_llama = {
	.embed = "model.embed_tokens",
	.final_norm = "model.norm",
	.head = "lm_head",
	.input_norm = "model.layers.%u.input_layernorm",
	.post_attention_norm = "model.layers.%u.post_attention_layernorm",
	.q = "model.layers.%u.self_attn.q_proj",
	.k = "model.layers.%u.self_attn.k_proj",
	.v = "model.layers.%u.self_attn.v_proj",
	.o = "model.layers.%u.self_attn.o_proj",
	.q_norm = "model.layers.%u.self_attn.q_norm",
	.k_norm = "model.layers.%u.self_attn.k_norm",
	.gate = "model.layers.%u.mlp.gate_proj",
	.up = "model.layers.%u.mlp.up_proj",
	.down = "model.layers.%u.mlp.down_proj",
};

const struct family *family_find(const char *model_type)
{
	size_t i;

	for (i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
		if (!strcmp(families[i]->model_type, model_type))
			return families[i];
	}
	return NULL;
}

char *family_list(char *buf, size_t len)
{
	size_t i, at = 0;

	for (i = 0; i < sizeof(families) / sizeof(families[0]) && at < len; i++)
		at += (size_t)snprintf(buf + at, len - at, "%s%s", i ? ", " : "",
				       families[i]->model_type);
	return buf;
}

static int parse_layer_types(const cJSON *types, struct model_config *c, struct tool_error *error)
{
	const cJSON *item;
	uint32_t i = 0;

	if (!cJSON_IsArray(types) || cJSON_GetArraySize(types) != (int)c->n_layers)
		return tool_fail(error, -EINVAL,
				 "layer_types: not an array of num_hidden_layers %u", c->n_layers);
	cJSON_ArrayForEach(item, types)
	{
		const char *type = cJSON_GetStringValue(item);

		if (type && !strcmp(type, "sliding_attention"))
			c->layer_window[i] = true;
		else if (!type || strcmp(type, "full_attention"))
			return tool_fail(error, -ENOTSUP,
					 "layer_types: \"%.64s\" is not supported (full_attention "
					 "and sliding_attention are)",
					 type ? type : "?");
		i++;
	}
	return 0;
}

int family_parse_window(const cJSON *json, struct model_config *c, struct tool_error *error)
{
	const cJSON *types = cJSON_GetObjectItemCaseSensitive(json, "layer_types");
	uint32_t first, i;
	bool use;
	int r;

	r = config_bool(json, "use_sliding_window", false, &use, error);
	if (!r && use)
		r = config_u32(json, "sliding_window", 1, 1u << 28, 0, &c->sliding_window, error);
	if (r)
		return r;
	if (types && !cJSON_IsNull(types)) {
		r = parse_layer_types(types, c, error);
	} else {
		r = config_u32(json, "max_window_layers", 0, 1u << 20, 28, &first, error);
		for (i = 0; !r && c->sliding_window && i < c->n_layers; i++)
			c->layer_window[i] = i >= first;
	}
	for (i = 0; !r && !c->sliding_window && i < c->n_layers; i++) {
		if (c->layer_window[i])
			return tool_fail(error, -EINVAL,
					 "layer_types: layer %u is sliding_attention without "
					 "use_sliding_window and sliding_window",
					 i);
	}
	return r;
}
