/* SPDX-License-Identifier: MIT */
/*
 * A Hugging Face config.json, read into one struct whatever its age: rope_theta and rope_scaling or
 * rope_parameters, torch_dtype or dtype, absent head_dim and num_key_value_heads, one end-of-text
 * id or a list. Every value is checked against a limit; errors name the key, the value and the
 * limit.
 */
#ifndef TXDA_COMPILE_CONFIG_H
#define TXDA_COMPILE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cjson/cJSON.h>

#include "config_keys.h"
#include "error.h"
#include "quant_config.h"
#include "rope.h"
#include "vision.h"

#define CONFIG_MAX_LAYERS 1024
/* Including the layer after them that predicts a further token. */
#define CONFIG_ALL_LAYERS (CONFIG_MAX_LAYERS + 1)
#define CONFIG_MAX_BYTES  (16u << 20)

/* Mixture of experts: layers with several MLPs, of which each token uses a few. */
struct moe_config {
	uint32_t n_experts; /* 0: none */
	uint32_t top_k;
	uint32_t inner;	       /* of an expert */
	uint32_t shared_inner; /* of the expert that all tokens use; 0: none */
	bool router_bias;      /* bias of the router's product */
	bool bias;	       /* biases of an expert's products */
	bool shared_gate;      /* its result is multiplied by a sigmoid */
	bool sigmoid, normalise, correction_bias, top2; /* ROUTE in txda_isa.h */
	uint32_t n_groups, top_groups;
	double scale;
	bool layer[CONFIG_ALL_LAYERS]; /* layers that have experts */
};

/* Multi-head latent attention. */
struct mla_config {
	uint32_t latent; /* 0: none */
	uint32_t q_lora; /* 0: queries are computed from the stream directly */
	uint32_t nope, rope,
		v;     /* per head: elements of a key without and with rotation, of a value */
	double mscale; /* scores are multiplied by its square */
	/* The indexer: a query attends to index_keys keys at most; 0: none. */
	uint32_t index_keys, index_heads, index_dim;
};

/* Layers with a state instead of keys: gated delta nets. */
struct delta_config {
	uint32_t n_k_heads, n_v_heads; /* 0: none */
	uint32_t k_dim, v_dim;	       /* of a head */
	uint32_t kernel;	       /* of the convolution before it */
	bool layer[CONFIG_ALL_LAYERS];
};

struct family;

struct model_config {
	char model_type[64];
	const struct family *family; /* of the text */
	uint32_t hidden_size;	     /* H */
	uint32_t intermediate_size;  /* I */
	uint32_t n_layers;
	uint32_t n_heads;    /* Hq */
	uint32_t n_kv_heads; /* Hkv */
	uint32_t head_dim;   /* D */
	uint32_t vocab_size; /* V */
	uint32_t max_position;
	float rms_norm_eps;
	bool tie_word_embeddings;
	struct rope_config rope;
	struct rope_config rope_window; /* of the layers with a window, if @two_ropes */
	struct quant_config quant;
	uint32_t sliding_window;	      /* 0: none */
	bool layer_window[CONFIG_ALL_LAYERS]; /* layers that use it */

	/* Properties of the family's graph (family.h). */
	bool qkv_bias, o_bias, mlp_bias;
	bool qk_norm;	     /* RMSNORM over each head of q and k */
	bool attention_gate; /* queries include a gate for the result */
	bool rope_interleaved;
	bool two_ropes;
	bool gelu;			 /* gates by GELU rather than SiLU */
	double swiglu_limit;		 /* gates by SWIGLU_CLAMPED, with this limit; 0: not */
	bool norm_plus_one;		 /* norms multiply by 1 + weight */
	bool embed_by_root;		 /* embeddings are multiplied by the root of hidden_size */
	double query_scalar;		 /* scores are divided by its root; 0: head_dim */
	double attention_cap, logit_cap; /* soft caps; 0: none */
	uint32_t rope_dim;		 /* elements of a head that rotate; set last */
	double rope_partial;		 /* their default share; 0: all */
	struct moe_config moe;
	struct mla_config mla;
	struct delta_config delta;
	struct vision_config vision;
	struct mrope_config mrope;
	uint32_t n_mtp; /* layers after the last one that predict further tokens */

	char param_dir[1024];	/* of the safetensors, relative to the model; "": its own */
	uint32_t parallel_size; /* tensor_parallel of the config; 0: not given */
};

/*
 * Reads the keys that all families share, then lets the family of "model_type" (family.h) read its
 * own. @text need not be NUL-terminated.
 */
int config_parse(const char *text, size_t bytes, struct model_config *ret,
		 struct tool_error *error);

/* The default context length: the limit of the rope scaling. */
uint32_t config_default_context(const struct model_config *c);

#endif /* TXDA_COMPILE_CONFIG_H */
