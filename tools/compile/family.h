/* SPDX-License-Identifier: MIT */
/*
 * Model families. A family is one small file: it reads its own keys of config.json into struct
 * model_config and names its tensors; the graph is composed of shared blocks (graph.h) according to
 * the config. To add a family, write family_NAME.c and list it in family.c.
 */
#ifndef TXDA_COMPILE_FAMILY_H
#define TXDA_COMPILE_FAMILY_H

#include <cjson/cJSON.h>

#include "config.h"

/* Tensor names of a checkpoint; %u is the layer. A weight NAME has NAME.weight and, if the config
 * says so, NAME.bias. */
struct family_names {
	const char *embed, *final_norm, *head;
	const char *input_norm, *post_attention_norm;
	const char *q, *k, *v, *o;
	const char *q_norm, *k_norm;
	const char *sinks; /* per head: attention sinks, an additional logit of the softmax */
	const char *gate, *up, *down;
	const char *gate_up;		       /* in one matrix, gates first; NULL: separate */
	const char *post_attention, *post_mlp; /* norms of results before they are added; or NULL */
	const char *before_mlp; /* the norm there, if it is not post_attention_norm */
	const char *q_a, *q_a_norm, *q_b, *kv_a, *kv_a_norm, *kv_b; /* latent attention */
	const char *k_b, *v_b; /* kv_b by heads, the second %u: keys transposed, and values */
	/*
	 * Gated delta nets: queries, keys, values and gates of the result in one matrix, key head
	 * by key head, and the two gates of each head likewise; or in separate matrices.
	 */
	const char *delta_qkvz, *delta_ba;
	const char *delta_qkv, *delta_z, *delta_b, *delta_a;
	const char *delta_conv, *delta_a_log, *delta_dt, *delta_norm, *delta_out;
	/* Of an indexer; the norm has a bias. */
	const char *index_q, *index_k, *index_k_norm, *index_weights;
	/* The layer after the last one, which predicts a further token. */
	const char *mtp_embed_norm, *mtp_hidden_norm, *mtp_join, *mtp_norm;
	const char *mtp_embed, *mtp_head; /* if it has its own */
	/* Experts; a second %u is the expert. */
	const char *router, *router_bias;
	const char *expert_gate, *expert_up, *expert_down;
	/* The same with all experts in one tensor, if the checkpoint has that. */
	const char *experts_gate_up, *experts_down;
	bool experts_in_first;	  /* each is [in, out], if its shape is ambiguous */
	bool experts_interleaved; /* a gate, an up, … */
	const char *shared_gate, *shared_up, *shared_down, *shared_expert_gate;
};

/*
 * Defaults for keys that are absent from config.json, as in the configuration class of the
 * reference implementation. 0: as for all families.
 */
struct family_defaults {
	/*
	 * Only for the text_config of a vision model, where files may leave out what is usual. 0: it
	 * must be there.
	 */
	uint32_t hidden, inner, layers, heads, vocab;
	uint32_t kv_heads; /* 0, or not a divisor of the heads: as many as heads */
	uint32_t head_dim; /* 0: hidden_size / num_attention_heads */
	uint32_t max_position;
	uint32_t sliding_window; /* used if use_sliding_window is true */
	double rms_norm_eps;
	bool tied; /* tie_word_embeddings */
	bool gelu; /* the activation is GELU, in the key hidden_activation */
	/* Experts. */
	uint32_t top_k, dense_layers, shared_experts;
	uint32_t n_groups, top_groups; /* only if they divide the experts */
	double scale;
	bool normalise;
};

struct family {
	const char *model_type; /* config.json's */
	struct family_defaults defaults;
	const struct family_names *names;
	int (*parse)(const cJSON *json, struct model_config *c, struct tool_error *error);
};

extern const struct family family_llama, family_mistral, family_qwen2, family_qwen3,
	family_internlm3, family_qwen2_moe, family_qwen3_moe, family_glm, family_glm4,
	family_glm4_moe, family_deepseek_v2, family_deepseek_v3, family_kimi_k2, family_gemma2,
	family_gemma3, family_gpt_oss, family_deepseek_v32, family_qwen3_next, family_qwen3_5,
	family_qwen3_5_moe, family_qwen2_vl, family_qwen3_vl, family_qwen3_vl_moe,
	family_qwen3_5_vl, family_qwen3_5_vl_moe, family_glm4v, family_glm4v_moe;

/* Tensor names of most families, and additions of some. */
#define FAMILY_NAMES_LLAMA                                                                         \
	.embed = "model.embed_tokens", .final_norm = "model.norm", .head = "lm_head",              \
	.input_norm = "model.layers.%u.input_layernorm",                                           \
	.post_attention_norm = "model.layers.%u.post_attention_layernorm",                         \
	.q = "model.layers.%u.self_attn.q_proj", .k = "model.layers.%u.self_attn.k_proj",          \
	.v = "model.layers.%u.self_attn.v_proj", .o = "model.layers.%u.self_attn.o_proj",          \
	.q_norm = "model.layers.%u.self_attn.q_norm",                                              \
	.k_norm = "model.layers.%u.self_attn.k_norm", .gate = "model.layers.%u.mlp.gate_proj",     \
	.up = "model.layers.%u.mlp.up_proj", .down = "model.layers.%u.mlp.down_proj"
#define FAMILY_NAMES_MOE                                                                           \
	.router = "model.layers.%u.mlp.gate",                                                      \
	.expert_gate = "model.layers.%u.mlp.experts.%u.gate_proj",                                 \
	.expert_up = "model.layers.%u.mlp.experts.%u.up_proj",                                     \
	.expert_down = "model.layers.%u.mlp.experts.%u.down_proj",                                 \
	.experts_gate_up = "model.layers.%u.mlp.experts.gate_up_proj",                             \
	.experts_down = "model.layers.%u.mlp.experts.down_proj"
#define FAMILY_NAMES_SHARED(name)                                                                  \
	.shared_gate = "model.layers.%u.mlp." name ".gate_proj",                                   \
	.shared_up = "model.layers.%u.mlp." name ".up_proj",                                       \
	.shared_down = "model.layers.%u.mlp." name ".down_proj"
/* The layer after the last one, as in DeepSeek and GLM. */
#define FAMILY_NAMES_MTP                                                                           \
	.mtp_embed_norm = "model.layers.%u.enorm", .mtp_hidden_norm = "model.layers.%u.hnorm",     \
	.mtp_join = "model.layers.%u.eh_proj", .mtp_norm = "model.layers.%u.shared_head.norm",     \
	.mtp_head = "model.layers.%u.shared_head.head",                                            \
	.mtp_embed = "model.layers.%u.embed_tokens"
extern const struct family_names family_names_llama, family_names_glm4, family_names_glm4_moe;

const struct family *family_find(const char *model_type);
/*
 * The model_type of the text of a vision model of which only the text is supported, in an object
 * text_config; or NULL.
 */
const char *family_text_only(const char *model_type);
/* "llama, qwen2, …" in @buf. Returns buf. */
char *family_list(char *buf, size_t len);

/*
 * use_sliding_window, sliding_window, max_window_layers and layer_types of the Qwen families, whose
 * layers may differ.
 */
int family_parse_window(const cJSON *json, struct model_config *c, struct tool_error *error);
/*
 * sliding_window and layer_types of families whose layers alternate: without layer_types all but
 * each @every-th layer have the window.
 */
int family_parse_alternating(const cJSON *json, uint32_t every, struct model_config *c,
			     struct tool_error *error);

/*
 * The keys of experts that families share: how many (num_experts, num_local_experts or
 * n_routed_experts), num_experts_per_tok, moe_intermediate_size, norm_topk_prob.
 */
int family_parse_experts(const cJSON *json, struct model_config *c, struct tool_error *error);
/* Qwen: decoder_sparse_step and mlp_only_layers say which layers have experts. */
int family_parse_sparse(const cJSON *json, struct model_config *c, struct tool_error *error);
/* Routing as the family's graph has it: scoring_func and topk_method, if present; NULL: any. */
int family_expect_routing(const cJSON *json, const char *scoring, const char *method,
			  struct tool_error *error);
/*
 * DeepSeek and related families: first_k_dense_replace and moe_layer_freq or mlp_layer_types,
 * n_shared_experts, groups, scale.
 */
int family_parse_deepseek_experts(const cJSON *json, struct model_config *c,
				  struct tool_error *error);
/* num_nextn_predict_layers, which are of the kind of the last layers. */
int family_parse_mtp(const cJSON *json, struct model_config *c, struct tool_error *error);

#endif /* TXDA_COMPILE_FAMILY_H */
