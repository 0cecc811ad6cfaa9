// SPDX-License-Identifier: MIT
/*
 * gpt-oss: windows on every other layer, a sink in each head's softmax, biases everywhere, and
 * experts with a clamped activation, with one tensor for all experts, in MXFP4 or plain.
 */
#include "family.h"

#include <errno.h>

static const struct family_names names = {
	FAMILY_NAMES_LLAMA,
	.sinks = "model.layers.%u.self_attn.sinks",
	.router = "model.layers.%u.mlp.router",
	/* One by one, as in GGUF files. */
	.expert_gate = "model.layers.%u.mlp.experts.%u.gate_proj",
	.expert_up = "model.layers.%u.mlp.experts.%u.up_proj",
	.expert_down = "model.layers.%u.mlp.experts.%u.down_proj",
	.experts_gate_up = "model.layers.%u.mlp.experts.gate_up_proj",
	.experts_down = "model.layers.%u.mlp.experts.down_proj",
	.experts_in_first = true,
	.experts_interleaved = true,
};

static int parse_experts(const cJSON *json, struct model_config *c, struct tool_error *error)
{
	struct moe_config *m = &c->moe;
	const char *key = config_key(json, "num_experts_per_tok", "experts_per_token");
	uint32_t i;
	int r;

	r = config_u32(json, config_key(json, "num_local_experts", "num_experts"), 1,
		       TXDA_ROUTE_MAX_EXPERTS, 128, &m->n_experts, error);
	if (!r)
		r = config_u32(json, key, 1, TXDA_ROUTE_MAX_K, 4, &m->top_k, error);
	if (!r && m->top_k > m->n_experts)
		r = tool_fail(error, -ERANGE, "%s: %u of %u experts", key, m->top_k, m->n_experts);
	m->scale = 1;
	m->n_groups = m->top_groups = 1;
	m->inner = c->intermediate_size;
	/*
	 * The softmax over the chosen experts is the softmax over all, divided by the sum of the
	 * chosen.
	 */
	m->normalise = true;
	m->router_bias = m->bias = true;
	for (i = 0; i < c->n_layers; i++)
		m->layer[i] = true;
	return r;
}

static int parse(const cJSON *json, struct model_config *c, struct tool_error *error)
{
	const struct rope_keys keys = {.theta = "rope_theta", .base = 150000};
	const double limit = 7;
	int r;

	r = config_bool(json, "attention_bias", true, &c->qkv_bias, error);
	c->o_bias = c->qkv_bias;
	if (!r)
		r = rope_parse(json, &keys, c->max_position, &c->rope, error);
	if (!config_has(json, "rope_scaling") && !config_has(json, "rope_parameters"))
		c->rope = (struct rope_config){.type = ROPE_YARN,
					       .theta = c->rope.theta,
					       .factor = 32,
					       .beta_fast = 32,
					       .beta_slow = 1,
					       .original_max_position = 4096};
	if (!r)
		r = config_double(json, "swiglu_limit", 1e-3, 1e6, &limit, &c->swiglu_limit, error);
	if (!r)
		r = parse_experts(json, c, error);
	return r ? r : family_parse_alternating(json, 2, c, error);
}

const struct family family_gpt_oss = {
	.model_type = "gpt_oss",
	.defaults = {.kv_heads = 8,
		     .head_dim = 64,
		     .max_position = 131072,
		     .sliding_window = 128,
		     .rms_norm_eps = 1e-5},
	.names = &names,
	.parse = parse,
};
