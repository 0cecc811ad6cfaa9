// SPDX-License-Identifier: MIT
#include "vision.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "config_keys.h"

#define QWEN_BLOCK(name) "visual.blocks.%u." name
#define QWEN_NAMES                                                                                 \
	.patch = "visual.patch_embed.proj", .norm1 = QWEN_BLOCK("norm1"),                          \
	.norm2 = QWEN_BLOCK("norm2"), .qkv = QWEN_BLOCK("attn.qkv"),                               \
	.proj = QWEN_BLOCK("attn.proj")
#define GATED_NAMES                                                                                \
	.gate = QWEN_BLOCK("mlp.gate_proj"), .up = QWEN_BLOCK("mlp.up_proj"),                      \
	.down = QWEN_BLOCK("mlp.down_proj")
#define CLIP(name)	 "vision_tower.vision_model." name
#define CLIP_LAYER(name) CLIP("encoder.layers.%u." name)

static const struct vision_names names_qwen2 = {
	QWEN_NAMES,
	.fc1 = QWEN_BLOCK("mlp.fc1"),
	.fc2 = QWEN_BLOCK("mlp.fc2"),
	.merge_norm = "visual.merger.ln_q",
	.merge_fc1 = "visual.merger.mlp.0",
	.merge_fc2 = "visual.merger.mlp.2",
};

static const struct vision_names names_qwen25 = {
	QWEN_NAMES,
	GATED_NAMES,
	.merge_norm = "visual.merger.ln_q",
	.merge_fc1 = "visual.merger.mlp.0",
	.merge_fc2 = "visual.merger.mlp.2",
};

static const struct vision_names names_qwen3 = {
	QWEN_NAMES,
	.fc1 = QWEN_BLOCK("mlp.linear_fc1"),
	.fc2 = QWEN_BLOCK("mlp.linear_fc2"),
	.positions = "visual.pos_embed",
	.merge_norm = "visual.merger.norm",
	.merge_fc1 = "visual.merger.linear_fc1",
	.merge_fc2 = "visual.merger.linear_fc2",
	.deep_norm = "visual.deepstack_merger_list.%u.norm",
	.deep_fc1 = "visual.deepstack_merger_list.%u.linear_fc1",
	.deep_fc2 = "visual.deepstack_merger_list.%u.linear_fc2",
};

static const struct vision_names names_glm = {
	QWEN_NAMES,
	GATED_NAMES,
	.positions = "visual.embeddings.position_embedding",
	.before = "visual.post_conv_layernorm",
	.after = "visual.post_layernorm",
	.downsample = "visual.downsample",
	.merge_proj = "visual.merger.proj",
	.merge_norm = "visual.merger.post_projection_norm",
	.merge_gate = "visual.merger.gate_proj",
	.merge_up = "visual.merger.up_proj",
	.merge_down = "visual.merger.down_proj",
};

static const struct vision_names names_clip = {
	.patch = CLIP("embeddings.patch_embedding"),
	.norm1 = CLIP_LAYER("layer_norm1"),
	.norm2 = CLIP_LAYER("layer_norm2"),
	.q = CLIP_LAYER("self_attn.q_proj"),
	.k = CLIP_LAYER("self_attn.k_proj"),
	.v = CLIP_LAYER("self_attn.v_proj"),
	.proj = CLIP_LAYER("self_attn.out_proj"),
	.fc1 = CLIP_LAYER("mlp.fc1"),
	.fc2 = CLIP_LAYER("mlp.fc2"),
	.positions = CLIP("embeddings.position_embedding"),
	.class_token = CLIP("embeddings.class_embedding"),
	.before = CLIP("pre_layrnorm"),
	.merge_fc1 = "multi_modal_projector.linear_1",
	.merge_fc2 = "multi_modal_projector.linear_2",
	.newline = "image_newline",
};

#define MINICPM(name)	     "vision_tower." name
#define MINICPM_LAYER(name)  MINICPM("encoder.layers.%u." name)
#define MINICPM_SHRINK(name) MINICPM("vit_merger." name)

static const struct vision_names names_minicpm = {
	.patch = MINICPM("embeddings.patch_embedding"),
	.norm1 = MINICPM_LAYER("layer_norm1"),
	.norm2 = MINICPM_LAYER("layer_norm2"),
	.q = MINICPM_LAYER("self_attn.q_proj"),
	.k = MINICPM_LAYER("self_attn.k_proj"),
	.v = MINICPM_LAYER("self_attn.v_proj"),
	.proj = MINICPM_LAYER("self_attn.out_proj"),
	.fc1 = MINICPM_LAYER("mlp.fc1"),
	.fc2 = MINICPM_LAYER("mlp.fc2"),
	.positions = MINICPM("embeddings.position_embedding"),
	.window_norm = MINICPM_SHRINK("layer_norm1"),
	.window_q = MINICPM_SHRINK("self_attn.q_proj"),
	.window_k = MINICPM_SHRINK("self_attn.k_proj"),
	.window_v = MINICPM_SHRINK("self_attn.v_proj"),
	.window_proj = MINICPM_SHRINK("self_attn.out_proj"),
	.shrink_norm = MINICPM_SHRINK("pre_norm"),
	.shrink_fc1 = MINICPM_SHRINK("linear_1"),
	.shrink_fc2 = MINICPM_SHRINK("linear_2"),
	.after = MINICPM("post_layernorm"),
	.merge_norm = "merger.mlp.0.pre_norm",
	.merge_fc1 = "merger.mlp.0.linear_1",
	.merge_fc2 = "merger.mlp.0.linear_2",
};

#define QWEN_KEYS                                                                                  \
	.depth_key = "depth", .heads_key = "num_heads", .heads = 16, .qkv_bias = true,             \
	.proj_bias = true, .mlp_bias = true, .eps = 1e-6, .out = 3584
#define QWEN3(type, text_type, with_taps)                                                          \
	{                                                                                          \
		QWEN_KEYS, .model_type = type, .text = text_type, .names = &names_qwen3,           \
			   .patch_bias = true, .deep = with_taps, .taps = 4,                       \
			   .hidden_key = "hidden_size", .act = "gelu_pytorch_tanh", .depth = 27,   \
			   .hidden = 1152, .inner = 4304, .patch = 16                              \
	}
#define GLM(type, text_type)                                                                       \
	{                                                                                          \
		.model_type = type, .text = text_type, .names = &names_glm, .rms = true,           \
		.patch_bias = true, .taps = 16, .depth_key = "depth", .heads_key = "num_heads",    \
		.hidden_key = "hidden_size", .act = "silu", .depth = 24, .hidden = 1536,           \
		.heads = 12, .inner = 13696, .patch = 14, .out = 4096, .eps = 1e-5                 \
	}

static const struct vision_family families[] = {
	{
		QWEN_KEYS,
		.model_type = "qwen2_vl",
		.text = "qwen2_vl",
		.names = &names_qwen2,
		.hidden_key = "embed_dim",
		.act = "quick_gelu",
		.depth = 32,
		.hidden = 1280,
		.patch = 14,
	},
	{
		QWEN_KEYS,
		.model_type = "qwen2_5_vl",
		.text = "qwen2_vl",
		.names = &names_qwen25,
		.rms = true,
		.windows = true,
		.hidden_key = "hidden_size",
		.act = "silu",
		.depth = 32,
		.hidden = 3584,
		.inner = 3420,
		.patch = 14,
	},
	QWEN3("qwen3_vl", "qwen3_vl", true),
	QWEN3("qwen3_vl_moe", "qwen3_vl_moe", true),
	QWEN3("qwen3_5", "qwen3_5", false),
	QWEN3("qwen3_5_moe", "qwen3_5_moe", false),
	GLM("glm4v", "glm4v"),
	GLM("glm4v_moe", "glm4v_moe"),
	{
		.model_type = "llava_next",
		.tower = "clip_vision_model",
		.names = &names_clip,
		.tiles = true,
		.qkv_bias = true,
		.proj_bias = true,
		.mlp_bias = true,
		.taps = 2,
		.depth_key = "num_hidden_layers",
		.heads_key = "num_attention_heads",
		.hidden_key = "hidden_size",
		.act = "quick_gelu",
		.depth = 12,
		.hidden = 768,
		.heads = 12,
		.inner = 3072,
		.patch = 32,
		.eps = 1e-5,
	},
	{
		.model_type = "minicpmv4_6",
		.names = &names_minicpm,
		.slices = true,
		.patch_bias = true,
		.qkv_bias = true,
		.proj_bias = true,
		.mlp_bias = true,
		.taps = 1,
		.depth_key = "num_hidden_layers",
		.heads_key = "num_attention_heads",
		.hidden_key = "hidden_size",
		.act = "gelu_pytorch_tanh",
		.depth = 12,
		.hidden = 768,
		.heads = 12,
		.inner = 3072,
		.patch = 16,
		.eps = 1e-6,
	},
};

#define N_FAMILIES (sizeof(families) / sizeof(families[0]))

const struct vision_family *vision_family_find(const char *model_type)
{
	size_t i;

	for (i = 0; i < N_FAMILIES; i++) {
		if (!strcmp(families[i].model_type, model_type))
			return &families[i];
	}
	return NULL;
}

void vision_family_list(char *buf, size_t len)
{
	size_t i, at = strlen(buf);

	for (i = 0; i < N_FAMILIES && at < len; i++)
		at += (size_t)snprintf(buf + at, len - at, ", %s", families[i].model_type);
}

static int parse_act(const cJSON *json, const char *key, const char *fallback,
		     enum txda_activation *ret, struct tool_error *error)
{
	static const struct {
		const char *name;
		enum txda_activation act;
	} known[] = {
		{"gelu", TXDA_ACT_GELU},	  {"gelu_pytorch_tanh", TXDA_ACT_GELU_TANH},
		{"gelu_new", TXDA_ACT_GELU_TANH}, {"quick_gelu", TXDA_ACT_GELU_QUICK},
		{"silu", TXDA_ACT_SILU},	  {"swish", TXDA_ACT_SILU},
	};
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);
	const char *name = config_has(json, key) ? cJSON_GetStringValue(item) : fallback;
	size_t i;

	for (i = 0; name && i < sizeof(known) / sizeof(known[0]); i++) {
		if (!strcmp(known[i].name, name)) {
			*ret = known[i].act;
			return 0;
		}
	}
	return tool_fail(error, -ENOTSUP,
			 "%s: \"%.64s\" is not supported (gelu, gelu_pytorch_tanh, gelu_new, "
			 "quick_gelu and silu are)",
			 key, name ? name : "?");
}

/* A list of layers at @key, in any order; @fallback if it is absent. */
static int parse_list(const cJSON *json, const char *key, const uint32_t *fallback, uint32_t n,
		      uint32_t limit, uint32_t max, uint32_t *ret, uint32_t *ret_n,
		      struct tool_error *error)
{
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(json, key), *item;
	uint32_t at = 0;

	if (!config_has(json, key)) {
		/* For a tower with fewer layers the default is cut off. */
		for (; at < n && fallback[at] < limit; at++)
			ret[at] = fallback[at];
		*ret_n = at;
		return 0;
	}
	if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) > (int)max)
		return tool_fail(error, -EINVAL, "%s: not an array of at most %u layers", key, max);
	cJSON_ArrayForEach(item, list) {
		double d = cJSON_IsNumber(item) ? item->valuedouble : -1;

		if (!(d >= 0 && d < limit) || d != floor(d))
			return tool_fail(error, -EINVAL, "%s: entry %u is not a layer below %u",
					 key, at, limit);
		ret[at++] = (uint32_t)d;
	}
	*ret_n = at;
	return 0;
}

/* The layers whose states are tapped, each once. */
static int parse_deep(const cJSON *json, struct vision_config *v, struct tool_error *error)
{
	static const uint32_t usual[] = {8, 16, 24};
	const char *key = "deepstack_visual_indexes";
	int r = parse_list(json, key, usual, 3, v->depth, VISION_MAX_DEEP, v->deep, &v->n_deep,
			   error);

	for (uint32_t i = 0; i < v->n_deep && !r; i++)
		for (uint32_t k = 0; k < i && !r; k++)
			if (v->deep[k] == v->deep[i])
				r = tool_fail(error, -EINVAL, "%s: layer %u is there twice", key,
					      v->deep[i]);
	return r;
}

/* Sizes of all towers. */
static int parse_sizes(const cJSON *json, const struct vision_family *f, struct vision_config *v,
		       struct tool_error *error)
{
	const bool rotates = !f->tiles && !f->slices;
	const uint32_t multiple = rotates ? 4 : 1;
	const double ratio = 4;
	double mlp_ratio = 0;
	int r;

	r = config_u32(json, f->depth_key, 1, VISION_MAX_LAYERS, f->depth, &v->depth, error);
	if (!r)
		r = config_u32(json, f->hidden_key, 2, 1u << 16, f->hidden, &v->hidden, error);
	if (!r)
		r = config_u32(json, f->heads_key, 1, 1024, f->heads, &v->heads, error);
	if (!r && f->inner)
		r = config_u32(json, "intermediate_size", 1, 1u << 20, f->inner, &v->inner, error);
	if (!r && !f->inner) {
		r = config_double(json, "mlp_ratio", 1e-3, 1e3, &ratio, &mlp_ratio, error);
		v->inner = (uint32_t)(v->hidden * mlp_ratio);
	}
	if (!r)
		r = config_u32(json, "patch_size", 1, 512, f->patch, &v->patch, error);
	if (!r)
		r = config_u32(json, rotates ? "in_channels" : "num_channels", 3, 3, 3,
			       &v->channels, error);
	if (r)
		return r;
	if (!v->inner || v->hidden % v->heads)
		return tool_fail(error, -EINVAL,
				 "%s: %u is not a multiple of %s %u, or mlp_ratio %g is too small",
				 f->hidden_key, v->hidden, f->heads_key, v->heads, mlp_ratio);
	if (v->hidden / v->heads > 512 || v->hidden / v->heads % multiple)
		return tool_fail(error, -ENOTSUP,
				 "%s: %u / %s %u is not a multiple of %u up to 512", f->hidden_key,
				 v->hidden, f->heads_key, v->heads, multiple);
	return 0;
}

/* rope_parameters of a tower, whose rows and columns rotate. */
static int parse_rope(const cJSON *json, struct vision_config *v, struct tool_error *error)
{
	const cJSON *rope = cJSON_GetObjectItemCaseSensitive(json, "rope_parameters");
	const cJSON *type = cJSON_GetObjectItemCaseSensitive(rope, "rope_type");
	const char *name = cJSON_GetStringValue(type);
	const double theta = 10000;
	int r = config_double(rope, "rope_theta", 1e-3, 1e12, &theta, &v->rope_theta, error);

	if (!r && config_has(rope, "rope_type") &&
	    (!name || (strcmp(name, "axial") && strcmp(name, "default"))))
		r = tool_fail(error, -ENOTSUP, "rope_type: \"%.64s\" is not supported (axial is)",
			      name ? name : "?");
	return r ? tool_fail_within(error, r, "rope_parameters") : 0;
}

/* Towers that merge patches: Qwen and GLM. */
static int parse_merge(const cJSON *json, const struct vision_family *f, struct vision_config *v,
		       struct tool_error *error)
{
	static const uint32_t whole[] = {7, 15, 23, 31};
	uint32_t n = 0, i, window = 0, layers[VISION_MAX_LAYERS], positions, size;
	int r;

	r = config_u32(json, "temporal_patch_size", 1, 16, 2, &v->temporal, error);
	if (!r)
		r = config_u32(json, "spatial_merge_size", 1, 8, 2, &v->merge, error);
	if (!r)
		/* The first tower calls the output width hidden_size. */
		r = config_u32(json,
			       strcmp(f->hidden_key, "embed_dim") ? "out_hidden_size"
								  : "hidden_size",
			       2, 1u << 17, f->out, &v->out, error);
	if (!r && f->windows)
		r = config_u32(json, "window_size", 1, 1u << 16, 112, &window, error);
	if (!r && f->windows)
		r = parse_list(json, "fullatt_block_indexes", whole, 4, v->depth, VISION_MAX_LAYERS,
			       layers, &n, error);
	if (!r && f->deep)
		r = parse_deep(json, v, error);
	if (!r && f->taps == 4) {
		r = config_u32(json, "num_position_embeddings", 1, 1u << 20, 2304, &positions,
			       error);
		v->side = r ? 0 : (uint32_t)sqrt(positions);
		if (!r && v->side * v->side != positions)
			r = tool_fail(error, -EINVAL,
				      "num_position_embeddings: %u is not a square number",
				      positions);
	}
	if (!r && f->taps == 16) {
		r = config_u32(json, "image_size", 1, 1u << 16, 336, &size, error);
		v->side = r ? 0 : size / v->patch;
	}
	if (!r && f->taps == 16)
		r = config_bool(json, "attention_bias", false, &v->qkv_bias, error);
	if (r)
		return r;
	v->rows = v->merge * v->merge;
	v->window = window / v->merge / v->patch;
	if (f->windows && !v->window)
		return tool_fail(error, -EINVAL,
				 "window_size: %u is below patch_size %u times "
				 "spatial_merge_size %u",
				 window, v->patch, v->merge);
	if (f->taps && (!v->side || v->side > 1024))
		return tool_fail(error, -EINVAL, "image_size: %u patches are not in [1, 1024]",
				 v->side);
	for (i = 0; i < n; i++)
		v->whole[layers[i]] = true;
	/* GLM's MLPs have the output width, its merger that of intermediate_size. */
	v->merge_inner = v->inner;
	if (f->names->downsample)
		v->inner = v->out;
	return 0;
}

static int parse_pinpoints(const cJSON *json, uint32_t size, struct vision_config *ret,
			   struct tool_error *error)
{
	static const uint32_t fallback[][2] = {
		{336, 672}, {672, 336}, {672, 672}, {1008, 336}, {336, 1008}};
	const char *key = "image_grid_pinpoints";
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(json, key), *item;
	uint32_t n = 0;

	if (!config_has(json, key)) {
		memcpy(ret->pinpoints, fallback, sizeof(fallback));
		ret->n_pinpoints = 5;
	} else if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) < 1 ||
		   cJSON_GetArraySize(list) > VISION_MAX_PINPOINTS) {
		return tool_fail(error, -EINVAL, "%s: not an array of 1 to %d pairs", key,
				 VISION_MAX_PINPOINTS);
	}
	cJSON_ArrayForEach(item, list) {
		for (int i = 0; i < 2; i++) {
			const cJSON *number = cJSON_GetArrayItem(item, i);
			double d = cJSON_IsNumber(number) ? number->valuedouble : 0;

			if (!(d >= 1 && d <= 1 << 16) || d != floor(d))
				return tool_fail(error, -EINVAL,
						 "%s: entry %u is not a height and a width", key,
						 n);
			ret->pinpoints[n][i] = (uint32_t)d;
		}
		ret->n_pinpoints = ++n;
	}
	for (n = 0; n < ret->n_pinpoints; n++) {
		if (ret->pinpoints[n][0] % size || ret->pinpoints[n][1] % size)
			return tool_fail(error, -EINVAL,
					 "%s: %u x %u is not made of tiles of image_size %u", key,
					 ret->pinpoints[n][0], ret->pinpoints[n][1], size);
	}
	return 0;
}

/* The layer of @depth whose state the projector uses: after @ret layers. */
static int parse_feature_layer(const cJSON *json, uint32_t depth, uint32_t *ret,
			       struct tool_error *error)
{
	const char *key = "vision_feature_layer";
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);
	double layer = -2;

	if (config_has(json, key)) {
		if (!cJSON_IsNumber(item))
			return tool_fail(error, -ENOTSUP,
					 "%s: only one number is supported, no list", key);
		layer = item->valuedouble;
	}
	if (layer < 0)
		layer += depth + 1.0;
	if (!(layer >= 0 && layer <= depth) || layer != floor(layer))
		return tool_fail(error, -EINVAL, "%s: layer %g of %u does not exist", key, layer,
				 depth);
	*ret = (uint32_t)layer;
	return 0;
}

static int parse_tiles(const cJSON *root, const cJSON *json, struct vision_config *v,
		       struct tool_error *error)
{
	const cJSON *strategy =
		cJSON_GetObjectItemCaseSensitive(root, "vision_feature_select_strategy");
	uint32_t size;
	int r;

	if (config_has(root, "vision_feature_select_strategy") &&
	    (!cJSON_IsString(strategy) || strcmp(strategy->valuestring, "default")))
		return tool_fail(error, -ENOTSUP,
				 "vision_feature_select_strategy: only \"default\" is supported");
	r = config_u32(json, "image_size", 1, 1u << 14, 224, &size, error);
	if (!r)
		r = parse_feature_layer(root, v->depth, &v->depth, error);
	if (!r)
		r = parse_pinpoints(root, size, v, error);
	if (!r)
		r = parse_act(root, "projector_hidden_act", "gelu", &v->merge_act, error);
	if (!r)
		r = config_bool(root, "multimodal_projector_bias", true, &v->merge_bias, error);
	if (r)
		return r;
	v->temporal = v->merge = 1;
	v->tile = size;
	v->side = size / v->patch;
	v->rows = v->side * v->side + 1;
	if (!v->side || v->side > 256)
		return tool_fail(error, -EINVAL,
				 "image_size: %u is not 1 to 256 patches of patch_size %u", size,
				 v->patch);
	return 0;
}

/* Only squares of 2 x 2 are merged. */
static int check_square(const cJSON *json, const char *key, struct tool_error *error)
{
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(json, key);

	for (int i = 0; config_has(json, key) && i < 2; i++) {
		const cJSON *side = cJSON_GetArrayItem(list, i);

		if (cJSON_GetArraySize(list) != 2 || !cJSON_IsNumber(side) ||
		    side->valuedouble != 2)
			return tool_fail(error, -ENOTSUP, "%s: only [2, 2] is supported", key);
	}
	return 0;
}

/* MiniCPM-V; top-level keys of its configuration apply to the tower. */
static int parse_slices(const cJSON *root, const cJSON *json, struct vision_config *v,
			struct tool_error *error)
{
	const cJSON *mode = cJSON_GetObjectItemCaseSensitive(root, "downsample_mode");
	const char *name = config_has(root, "downsample_mode") ? cJSON_GetStringValue(mode) : "16x";
	uint32_t size, times;
	bool drop, twice;
	int r;

	if (!name || (strcmp(name, "16x") && strcmp(name, "4x")))
		return tool_fail(error, -ENOTSUP,
				 "downsample_mode: \"%.64s\" is not supported (16x and 4x are)",
				 name ? name : "?");
	twice = !strcmp(name, "16x");
	r = check_square(root, "merge_kernel_size", error);
	if (!r)
		r = config_u32(root, "merger_times", 1, 1, 1, &times, error);
	if (!r)
		r = config_bool(root, "drop_vision_last_layer", false, &drop, error);
	if (!r && drop)
		r = tool_fail(error, -ENOTSUP, "drop_vision_last_layer: true is not supported");
	if (!r && twice)
		r = config_u32(root, "insert_layer_id", 0, v->depth - 1, 6, &v->shrink, error);
	if (!r && v->shrink >= v->depth)
		r = tool_fail(error, -EINVAL, "insert_layer_id: missing, and 6 is not below %u",
			      v->depth);
	if (r)
		return r;
	r = check_square(json, "window_kernel_size", error);
	if (!r)
		r = config_u32(json, "image_size", 1, 1u << 16, 224, &size, error);
	if (r)
		return tool_fail_within(error, r, "vision_config");
	v->temporal = 1;
	v->window = twice ? 2 : 0;
	v->merge = twice ? 4 : 2;
	v->rows = v->merge * v->merge;
	v->side = size / v->patch;
	memset(v->whole, true, sizeof(v->whole));
	if (!v->side || v->side > 1024)
		return tool_fail(error, -EINVAL,
				 "vision_config: image_size: %u is not 1 to 1024 patches of "
				 "patch_size %u",
				 size, v->patch);
	return 0;
}

/* The id that stands for an embedding; older configurations have another name for it. */
static int parse_token(const cJSON *json, uint32_t vocab, struct vision_config *v,
		       struct tool_error *error)
{
	return config_u32(json, config_key(json, "image_token_id", "image_token_index"), 0,
			  vocab - 1, CONFIG_REQUIRED, &v->image_token, error);
}

static int check_tower(const cJSON *tower, const struct vision_family *f, struct tool_error *error)
{
	const char *type =
		cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(tower, "model_type"));

	if (!cJSON_IsObject(tower))
		return tool_fail(error, -EINVAL, "not an object, or missing");
	if (f->tower && type && strcmp(type, f->tower))
		return tool_fail(error, -ENOTSUP, "model_type: \"%.64s\" is not supported (%s is)",
				 type, f->tower);
	return 0;
}

int vision_parse(const cJSON *json, const struct vision_family *f, uint32_t text_hidden,
		 uint32_t vocab, struct vision_config *ret, struct tool_error *error)
{
	const cJSON *tower = cJSON_GetObjectItemCaseSensitive(json, "vision_config");
	struct vision_config v = {.family = f,
				  .qkv_bias = f->qkv_bias,
				  .merge_bias = true,
				  .merge_act = TXDA_ACT_GELU,
				  .out = text_hidden};
	double eps = f->eps;
	int r;

	r = check_tower(tower, f, error);
	if (!r)
		r = parse_sizes(tower, f, &v, error);
	if (!r)
		r = parse_act(tower, "hidden_act", f->act, &v.act, error);
	if (!r && f->names->gate && v.act != TXDA_ACT_SILU)
		r = tool_fail(error, -ENOTSUP, "hidden_act: only silu is supported for %s",
			      f->model_type);
	if (!r && (f->tiles || f->slices))
		r = config_double(tower, "layer_norm_eps", 0, 1, &f->eps, &eps, error);
	else if (!r && f->names->downsample)
		r = config_double(tower, "rms_norm_eps", 0, 1, &f->eps, &eps, error);
	if (!r && !f->tiles && !f->slices)
		r = parse_rope(tower, &v, error);
	if (!r && !f->tiles && !f->slices)
		r = parse_merge(tower, f, &v, error);
	if (r)
		return tool_fail_within(error, r, "vision_config");
	v.eps = (float)eps;
	/* The norms of mergers have an epsilon of their own, which no configuration changes. */
	v.merge_eps = f->names->downsample ? 1e-5f : 1e-6f;
	if (f->tiles)
		r = parse_tiles(json, tower, &v, error);
	else if (f->slices)
		r = parse_slices(json, tower, &v, error);
	if (!r)
		r = parse_token(json, vocab, &v, error);
	if (!r && v.out != text_hidden)
		r = tool_fail(error, -EINVAL,
			      "vision_config: embeddings of %u elements for a hidden_size of %u",
			      v.out, text_hidden);
	if (!r)
		*ret = v;
	return r;
}

int mrope_parse(const cJSON *text, const uint32_t *usual, struct mrope_config *ret,
		struct tool_error *error)
{
	const char *key = config_key(text, "rope_parameters", "rope_scaling");
	const cJSON *rope = cJSON_GetObjectItemCaseSensitive(text, key);
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(rope, "mrope_section");
	struct mrope_config m = {{0}, false};
	int r;

	if (usual)
		memcpy(m.section, usual, sizeof(m.section));
	if (usual && !config_has(rope, "mrope_section"))
		list = NULL;
	else if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) != 3)
		return tool_fail(error, -EINVAL, "%s: mrope_section: not an array of 3 numbers",
				 key);
	for (int i = 0; list && i < 3; i++) {
		const cJSON *number = cJSON_GetArrayItem(list, i);
		double d = cJSON_IsNumber(number) ? number->valuedouble : -1;

		if (!(d >= 0 && d <= 256) || d != floor(d))
			return tool_fail(error, -EINVAL,
					 "%s: mrope_section: entry %d is not a whole number in "
					 "[0, 256]",
					 key, i);
		m.section[i] = (uint32_t)d;
	}
	r = config_bool(rope, "mrope_interleaved", usual != NULL, &m.interleaved, error);
	if (r)
		return tool_fail_within(error, r, "%s", key);
	*ret = m;
	return 0;
}

int mrope_axes(const struct mrope_config *m, uint32_t pairs, uint32_t *axes,
	       struct tool_error *error)
{
	uint32_t i, sum = m->section[0] + m->section[1] + m->section[2];

	if (sum != pairs)
		return tool_fail(error, -EINVAL,
				 "mrope_section: %u + %u + %u are not the %u pairs that rotate",
				 m->section[0], m->section[1], m->section[2], pairs);
	for (i = 0; i < pairs; i++) {
		if (m->interleaved)
			axes[i] = i % 3 && i < 3 * m->section[i % 3] ? i % 3 : 0;
		else
			axes[i] = i < m->section[0] ? 0 : i < m->section[0] + m->section[1] ? 1 : 2;
	}
	return 0;
}
