// SPDX-License-Identifier: MIT
/* config.json: both spellings, defaults, limits, and the rope schemes against values worked out by
 * other means. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "config.h"
#include "family.h"
#include "shard.h"

#define SIZES                                                                                      \
	"\"hidden_size\":96,\"intermediate_size\":256,\"num_hidden_layers\":2,\"num_attention_"    \
	"heads\":6,\"vocab_size\":512"

static struct tool_error error;

static int parse(const char *text, struct model_config *c)
{
	memset(&error, 0, sizeof(error));
	return config_parse(text, strlen(text), c, &error);
}

static void expect_ok(const char *text, struct model_config *c)
{
	if (parse(text, c))
		fail_msg("%s", error.text);
}

/* The error names @what. */
static void expect_error(const char *text, const char *what)
{
	struct model_config c;

	assert_true(parse(text, &c) < 0);
	if (!strstr(error.text, what))
		fail_msg("\"%s\" does not say \"%s\"", error.text, what);
}

static void test_defaults(void **state)
{
	struct model_config c;

	(void)state;
	expect_ok("{\"model_type\":\"llama\"," SIZES "}", &c);
	assert_string_equal(c.model_type, "llama");
	assert_int_equal(c.n_kv_heads, 6);
	assert_int_equal(c.head_dim, 16);
	assert_true(c.rms_norm_eps == 1e-6f);
	assert_false(c.tie_word_embeddings || c.qkv_bias || c.o_bias || c.mlp_bias || c.qk_norm);
	assert_int_equal(c.rope.type, ROPE_DEFAULT);
	assert_true(c.rope.theta == 10000);
	assert_int_equal(c.parallel_size, 0);
	assert_int_equal(config_default_context(&c), 2048);
}

/* What is not there means what it means to the reference implementation. */
static void test_family_defaults(void **state)
{
	struct model_config c;

	(void)state;
	expect_ok("{\"model_type\":\"qwen3\"," SIZES "}", &c);
	assert_int_equal(c.head_dim, 128);
	assert_int_equal(c.n_kv_heads, 6);
	assert_int_equal(config_default_context(&c), 32768);
	expect_ok("{\"model_type\":\"qwen3\"," SIZES ",\"head_dim\":null}", &c);
	assert_int_equal(c.head_dim, 16);
	expect_ok("{\"model_type\":\"qwen2\"," SIZES ",\"use_sliding_window\":true,"
		  "\"max_window_layers\":0}",
		  &c);
	assert_true(c.sliding_window == 4096 && c.layer_window[0]);
	expect_ok("{\"model_type\":\"qwen3_moe\"," SIZES ",\"use_sliding_window\":true,"
		  "\"num_experts\":16,\"moe_intermediate_size\":32,\"num_key_value_heads\":2}",
		  &c);
	assert_true(c.layer_window[0] && c.layer_window[1]);
	assert_int_equal(c.moe.top_k, 8);
	assert_false(c.moe.normalise);
	expect_ok("{\"model_type\":\"qwen2_moe\"," SIZES ",\"use_sliding_window\":true,"
		  "\"num_experts\":16,\"moe_intermediate_size\":32}",
		  &c);
	assert_true(c.layer_window[0] && !c.layer_window[1]);
	assert_int_equal(c.moe.top_k, 4);
	assert_int_equal(c.moe.shared_inner, 5632);
	expect_ok("{\"model_type\":\"deepseek_v3\"," SIZES ",\"kv_lora_rank\":32,"
		  "\"qk_rope_head_dim\":8,\"qk_nope_head_dim\":16,\"v_head_dim\":16,"
		  "\"n_routed_experts\":16,\"moe_intermediate_size\":32}",
		  &c);
	assert_int_equal(c.moe.top_k, 8);
	assert_int_equal(c.moe.n_groups, 8);
	assert_int_equal(c.moe.top_groups, 4);
	assert_int_equal(c.moe.shared_inner, 32);
	assert_true(c.moe.scale == 2.5 && c.moe.normalise && c.rope_interleaved);
	assert_true(!c.moe.layer[0] && !c.moe.layer[1]);
}

static void test_spellings(void **state)
{
	struct model_config a, b;

	(void)state;
	expect_ok("{\"model_type\":\"llama\"," SIZES
		  ",\"rope_theta\":500000.0,\"torch_dtype\":\"bfloat16\","
		  "\"rope_scaling\":{\"type\":\"linear\",\"factor\":4.0},\"head_dim\":null}",
		  &a);
	expect_ok("{\"model_type\":\"llama\"," SIZES
		  ",\"dtype\":\"bfloat16\",\"eos_token_id\":[1,2],"
		  "\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":4,\"rope_theta\":"
		  "500000}}",
		  &b);
	assert_memory_equal(&a, &b, sizeof(a));
	assert_int_equal(a.rope.type, ROPE_LINEAR);
	assert_true(a.rope.factor == 4 && a.rope.theta == 500000);
	expect_ok("{\"model_type\":\"llama\"," SIZES
		  ",\"rope_scaling\":null,\"rope_parameters\":null}",
		  &a);
	assert_int_equal(a.rope.type, ROPE_DEFAULT);
}

static void test_families(void **state)
{
	struct model_config c;

	(void)state;
	expect_ok("{\"model_type\":\"qwen2\"," SIZES "}", &c);
	assert_true(c.qkv_bias && !c.o_bias && !c.qk_norm);
	expect_ok("{\"model_type\":\"qwen3\"," SIZES ",\"attention_bias\":true}", &c);
	assert_true(c.qkv_bias && c.o_bias && c.qk_norm);
	expect_ok("{\"model_type\":\"internlm3\"," SIZES ",\"qkv_bias\":true}", &c);
	assert_true(c.qkv_bias && !c.o_bias && !c.mlp_bias);
	expect_ok("{\"model_type\":\"internlm3\"," SIZES ",\"bias\":true}", &c);
	assert_true(!c.qkv_bias && c.o_bias && c.mlp_bias);
	expect_ok("{\"model_type\":\"llama\"," SIZES ",\"attention_bias\":true,\"mlp_bias\":true}",
		  &c);
	assert_true(c.qkv_bias && c.o_bias && c.mlp_bias);
	expect_ok("{\"model_type\":\"glm4\"," SIZES ",\"head_dim\":16,\"attention_bias\":true}",
		  &c);
	assert_true(c.qkv_bias && !c.o_bias && c.rope_interleaved);
	assert_int_equal(c.rope_dim, 8);
	expect_ok("{\"model_type\":\"glm4\"," SIZES
		  ",\"head_dim\":16,\"rope_parameters\":{\"rope_theta\":1e4,"
		  "\"partial_rotary_factor\":1.0}}",
		  &c);
	assert_int_equal(c.rope_dim, 16);
	expect_ok("{\"model_type\":\"mistral\"," SIZES ",\"sliding_window\":77}", &c);
	assert_true(c.layer_window[0] && c.layer_window[1]);
	assert_int_equal(c.sliding_window, 77);
	expect_ok("{\"model_type\":\"mistral\"," SIZES ",\"sliding_window\":null}", &c);
	assert_true(!c.layer_window[0] && !c.sliding_window);
	expect_error("{\"model_type\":\"gpt_neox\"," SIZES "}",
		     "llama, mistral, qwen2, qwen3, internlm3, qwen2_moe, qwen3_moe");
}

#define MOE ",\"num_experts_per_tok\":2,\"moe_intermediate_size\":32"

static void test_experts(void **state)
{
	struct model_config c;

	(void)state;
	expect_ok("{\"model_type\":\"qwen3_moe\"," SIZES MOE ",\"num_local_experts\":8,"
		  "\"decoder_sparse_step\":2}",
		  &c);
	assert_int_equal(c.moe.n_experts, 8);
	assert_true(c.qk_norm && !c.moe.normalise && !c.moe.layer[0] && c.moe.layer[1]);
	expect_ok("{\"model_type\":\"qwen2_moe\"," SIZES MOE ",\"num_experts\":8,"
		  "\"mlp_only_layers\":[1],\"shared_expert_intermediate_size\":64,"
		  "\"norm_topk_prob\":true}",
		  &c);
	assert_true(c.qkv_bias && c.moe.normalise && c.moe.shared_gate && c.moe.layer[0] &&
		    !c.moe.layer[1]);
	assert_int_equal(c.moe.shared_inner, 64);
	expect_ok("{\"model_type\":\"qwen2_moe\"," SIZES ",\"num_experts\":0}", &c);
	assert_true(!c.moe.n_experts && !c.moe.layer[0]);
	expect_ok("{\"model_type\":\"glm4_moe\"," SIZES MOE ",\"n_routed_experts\":8,"
		  "\"n_shared_experts\":2,\"first_k_dense_replace\":1,\"use_qk_norm\":true,"
		  "\"routed_scaling_factor\":2.5}",
		  &c);
	assert_true(c.qk_norm && c.moe.sigmoid && c.moe.correction_bias && !c.moe.layer[0] &&
		    c.moe.layer[1] && c.moe.scale == 2.5 && !c.rope_interleaved);
	assert_int_equal(c.moe.shared_inner, 64);
}

/* Which layers have experts: by their number, or a list. */
static void test_sparse_layers(void **state)
{
	static const char start[] = "{\"model_type\":\"glm4_moe\"," SIZES
				    ",\"num_key_value_heads\":2,\"n_routed_experts\":8,"
				    "\"num_experts_per_tok\":2,\"moe_intermediate_size\":16,"
				    "\"first_k_dense_replace\":1";
	struct model_config c;
	char text[1024];

	(void)state;
	snprintf(text, sizeof(text), "%s}", start);
	expect_ok(text, &c);
	assert_true(!c.moe.layer[0] && c.moe.layer[1]);
	snprintf(text, sizeof(text), "%s,\"mlp_layer_types\":[\"sparse\",\"dense\"]}", start);
	expect_ok(text, &c);
	assert_true(c.moe.layer[0] && !c.moe.layer[1]);
	snprintf(text, sizeof(text), "%s,\"mlp_layer_types\":[\"dense\"]}", start);
	expect_error(text, "mlp_layer_types: not an array of num_hidden_layers 2");
	snprintf(text, sizeof(text), "%s,\"mlp_layer_types\":[\"dense\",\"linear\"]}", start);
	expect_error(text, "mlp_layer_types: \"linear\" is not supported");
}

static void test_window(void **state)
{
	struct model_config c;

	(void)state;
	expect_ok("{\"model_type\":\"qwen2\"," SIZES
		  ",\"sliding_window\":8,\"use_sliding_window\":false}",
		  &c);
	assert_true(!c.sliding_window && !c.layer_window[0] && !c.layer_window[1]);
	expect_ok("{\"model_type\":\"qwen2\"," SIZES
		  ",\"sliding_window\":8,\"use_sliding_window\":true,"
		  "\"max_window_layers\":1}",
		  &c);
	assert_true(c.sliding_window == 8 && !c.layer_window[0] && c.layer_window[1]);
	expect_ok("{\"model_type\":\"qwen3\"," SIZES
		  ",\"sliding_window\":8,\"use_sliding_window\":true,"
		  "\"layer_types\":[\"sliding_attention\",\"full_attention\"]}",
		  &c);
	assert_true(c.layer_window[0] && !c.layer_window[1]);
	expect_error("{\"model_type\":\"qwen3\"," SIZES ",\"layer_types\":[\"sliding_attention\","
		     "\"full_attention\"]}",
		     "layer_types");
	expect_error("{\"model_type\":\"qwen3\"," SIZES ",\"layer_types\":[\"full_attention\"]}",
		     "num_hidden_layers 2");
	expect_error("{\"model_type\":\"qwen3\"," SIZES
		     ",\"layer_types\":[\"linear_attention\",1]}",
		     "linear_attention");
}

static void test_gemma(void **state)
{
	struct model_config c;

	(void)state;
	expect_ok("{\"model_type\":\"gemma2\"," SIZES ",\"num_key_value_heads\":2}", &c);
	assert_true(c.head_dim == 256 && c.max_position == 8192 && c.sliding_window == 4096);
	assert_true(c.layer_window[0] && !c.layer_window[1] && !c.two_ropes && !c.qk_norm);
	assert_true(c.attention_cap == 50 && c.logit_cap == 30 && c.query_scalar == 256);
	assert_true(c.tie_word_embeddings && c.gelu && c.norm_plus_one && c.embed_by_root);
	expect_ok("{\"model_type\":\"gemma2\"," SIZES ",\"num_key_value_heads\":2,"
		  "\"attn_logit_softcapping\":null,\"final_logit_softcapping\":12.5,"
		  "\"hidden_act\":\"gelu\",\"layer_types\":[\"full_attention\","
		  "\"full_attention\"],\"sliding_window\":null}",
		  &c);
	assert_true(c.attention_cap == 0 && c.logit_cap == 12.5 && !c.sliding_window);
	/* The older spelling, then the newer one: a rotation for each kind of layer. */
	expect_ok("{\"model_type\":\"gemma3_text\"," SIZES ",\"num_key_value_heads\":2,"
		  "\"sliding_window_pattern\":2,\"rope_theta\":5e5,\"rope_local_base_freq\":2e4,"
		  "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8}}",
		  &c);
	assert_true(c.layer_window[0] && !c.layer_window[1] && c.qk_norm && c.two_ropes);
	assert_true(c.attention_cap == 0 && c.logit_cap == 0);
	assert_true(c.rope.theta == 5e5 && c.rope.type == ROPE_LINEAR && c.rope.factor == 8);
	assert_true(c.rope_window.theta == 2e4 && c.rope_window.type == ROPE_DEFAULT);
	expect_ok("{\"model_type\":\"gemma3_text\"," SIZES ",\"num_key_value_heads\":2,"
		  "\"dtype\":\"bfloat16\",\"rope_parameters\":{\"full_attention\":"
		  "{\"rope_type\":\"linear\",\"factor\":8,\"rope_theta\":3e6},"
		  "\"sliding_attention\":{\"rope_type\":\"default\",\"rope_theta\":3e4}}}",
		  &c);
	assert_true(c.layer_window[0] && c.layer_window[1]); /* all but each sixth */
	assert_true(c.rope.theta == 3e6 && c.rope.type == ROPE_LINEAR);
	assert_true(c.rope_window.theta == 3e4 && c.rope_window.type == ROPE_DEFAULT);
	expect_ok("{\"model_type\":\"gemma3_text\"," SIZES ",\"num_key_value_heads\":2}", &c);
	assert_true(c.rope.theta == 1e6 && c.rope_window.theta == 1e4);
}

static void test_gemma_errors(void **state)
{
	static const char *const cases[][2] = {
		{"\"attn_logit_softcapping\":0", "attn_logit_softcapping: 0 is not in"},
		{"\"attn_logit_softcapping\":-3", "attn_logit_softcapping: -3"},
		{"\"final_logit_softcapping\":1e999", "final_logit_softcapping: inf"},
		{"\"final_logit_softcapping\":NaN", "JSON"},
		{"\"final_logit_softcapping\":\"30\"", "final_logit_softcapping: not a number"},
		{"\"query_pre_attn_scalar\":0", "query_pre_attn_scalar: 0"},
		{"\"sliding_window\":0", "sliding_window: 0 is not in [1,"},
		{"\"sliding_window\":-1", "sliding_window: -1"},
		{"\"sliding_window\":null", "layer 0 is sliding_attention without sliding_window"},
		{"\"sliding_window_pattern\":0", "sliding_window_pattern: 0"},
		{"\"layer_types\":[\"sliding_attention\"]", "num_hidden_layers 2"},
		{"\"hidden_activation\":\"silu\"", "hidden_activation: \"silu\""},
		{"\"use_bidirectional_attention\":true", "use_bidirectional_attention"},
		{"\"rope_local_base_freq\":0", "rope_local_base_freq: 0"},
		{"\"rope_parameters\":{\"full_attention\":3}", "not an object"},
		{"\"rope_parameters\":{\"sliding_attention\":{\"rope_type\":\"longrope\"}}",
		 "longrope"},
		{"\"num_key_value_heads\":4", "num_key_value_heads: 4"},
		{"\"head_dim\":33", "head_dim: 33"},
	};
	unsigned i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const char *kv =
			strstr(cases[i][0], "key_value") ? "" : "\"num_key_value_heads\":2,";
		char text[512];

		snprintf(text, sizeof(text), "{\"model_type\":\"gemma3_text\"," SIZES ",%s%s}", kv,
			 cases[i][0]);
		expect_error(text, cases[i][1]);
	}
	expect_error("{\"model_type\":\"llama\"," SIZES ",\"rope_parameters\":"
		     "{\"full_attention\":{\"rope_theta\":7}}}",
		     "not supported for the model_type llama");
}

/* The text of vision models whose towers are not supported. */
static void test_text_only(void **state)
{
	struct model_config c;

	(void)state;
	/* As the model with 4 billion parameters says it: heads and vocabulary are defaults. */
	expect_ok("{\"model_type\":\"gemma3\",\"eos_token_id\":[1,106],\"vision_config\":{},"
		  "\"text_config\":{\"model_type\":\"gemma3_text\",\"hidden_size\":2560,"
		  "\"intermediate_size\":10240,\"num_hidden_layers\":34,\"sliding_window\":1024,"
		  "\"rope_scaling\":{\"factor\":8.0,\"rope_type\":\"linear\"}}}",
		  &c);
	assert_ptr_equal(c.family, &family_gemma3);
	assert_string_equal(c.model_type, "gemma3");
	assert_int_equal(c.n_heads, 8);
	assert_int_equal(c.n_kv_heads, 4);
	assert_int_equal(c.vocab_size, 262208);
	assert_true(c.tie_word_embeddings && c.rope.factor == 8 && c.rope_window.factor == 1);
	assert_null(c.vision.family);
	expect_ok("{\"model_type\":\"mistral3\",\"text_config\":{\"model_type\":\"mistral\"," SIZES
		  ",\"num_key_value_heads\":2,\"sliding_window\":null},"
		  "\"tie_word_embeddings\":true}",
		  &c);
	assert_ptr_equal(c.family, &family_mistral);
	assert_true(c.tie_word_embeddings);
	expect_error(
		"{\"model_type\":\"mistral3\",\"text_config\":{\"model_type\":\"ministral3\"," SIZES
		"}}",
		"text_config: model_type: \"ministral3\" is not supported for mistral3");
	expect_error("{\"model_type\":\"gemma4\"}", "gemma3, mistral3, qwen2_vl");
	expect_error("{\"model_type\":\"gemma2\",\"hidden_size\":96,\"intermediate_size\":256,"
		     "\"num_hidden_layers\":2}",
		     "num_attention_heads: missing");
}

/* The text of a vision model may have its own quantization_config. */
static void test_text_quantisation(void **state)
{
	struct model_config c;

	(void)state;
	expect_ok("{\"model_type\":\"mistral3\",\"text_config\":{\"model_type\":\"mistral\"," SIZES
		  ",\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":8}}}",
		  &c);
	assert_true(c.quant.method == QUANT_GPTQ && c.quant.bits == 8);
	expect_ok("{\"model_type\":\"mistral3\",\"text_config\":{\"model_type\":\"mistral\"," SIZES
		  ",\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":8}},"
		  "\"quantization_config\":{\"quant_method\":\"awq\"}}",
		  &c);
	assert_true(c.quant.method == QUANT_AWQ && c.quant.bits == 4);
}

static void test_gpt_oss(void **state)
{
	struct model_config c;

	(void)state;
	expect_ok("{\"model_type\":\"gpt_oss\"," SIZES ",\"num_key_value_heads\":2}", &c);
	assert_true(c.moe.n_experts == 128 && c.moe.top_k == 4 && c.moe.layer[0]);
	assert_true(c.moe.inner == c.intermediate_size && c.moe.normalise && c.moe.bias);
	assert_true(c.qkv_bias && c.o_bias && c.head_dim == 64 && c.swiglu_limit == 7);
	assert_true(c.layer_window[0] && !c.layer_window[1] && c.sliding_window == 128);
	assert_true(c.rope.type == ROPE_YARN && c.rope.factor == 32 && !c.rope.truncate);
	assert_true(c.rope.theta == 150000 && c.rope.original_max_position == 4096);
	/* The newer spelling. */
	expect_ok("{\"model_type\":\"gpt_oss\"," SIZES ",\"num_key_value_heads\":2,"
		  "\"dtype\":\"bfloat16\",\"rope_parameters\":{\"rope_type\":\"default\","
		  "\"rope_theta\":7e4},\"quantization_config\":{\"quant_method\":\"mxfp4\"}}",
		  &c);
	assert_true(c.rope.type == ROPE_DEFAULT && c.rope.theta == 7e4);
	assert_int_equal(c.quant.method, QUANT_MXFP4);
	expect_error("{\"model_type\":\"gpt_oss\"," SIZES ",\"num_key_value_heads\":2,"
		     "\"swiglu_limit\":0}",
		     "swiglu_limit: 0");
	expect_error("{\"model_type\":\"gpt_oss\"," SIZES ",\"num_key_value_heads\":2,"
		     "\"num_local_experts\":3}",
		     "num_experts_per_tok: 4 of 3 experts");
	expect_error("{\"model_type\":\"gpt_oss\"," SIZES ",\"num_key_value_heads\":2,"
		     "\"layer_types\":[\"chunked_attention\",\"full_attention\"]}",
		     "chunked_attention");
}

/* The layer that predicts a token more comes behind as many as there may be, and has experts. */
static void test_most_layers(void **state)
{
	struct model_config c;

	(void)state;
	expect_ok("{\"model_type\":\"deepseek_v3\",\"hidden_size\":96,\"intermediate_size\":256,"
		  "\"num_hidden_layers\":1024,\"num_attention_heads\":6,\"vocab_size\":512,"
		  "\"kv_lora_rank\":32,\"q_lora_rank\":24,\"qk_nope_head_dim\":16,"
		  "\"qk_rope_head_dim\":8,\"v_head_dim\":16,\"n_routed_experts\":16,"
		  "\"moe_intermediate_size\":32,\"num_nextn_predict_layers\":1}",
		  &c);
	assert_int_equal(c.n_layers + 1, sizeof(c.moe.layer));
	assert_int_equal(sizeof(c.delta.layer), sizeof(c.moe.layer));
	assert_int_equal(sizeof(c.layer_window), sizeof(c.moe.layer));
	assert_true(c.moe.layer[c.n_layers]);
}

#define DEEPSEEK(type, more)                                                                       \
	"{\"model_type\":\"" type "\"," SIZES ",\"kv_lora_rank\":32,"                              \
	"\"qk_rope_head_dim\":8,\"qk_nope_head_dim\":16,\"v_head_dim\":16,"                        \
	"\"n_routed_experts\":16,\"num_experts_per_tok\":2,\"moe_intermediate_size\":32" more "}"

#define COMPRESSED(weights, more)                                                                  \
	"{\"model_type\":\"llama\"," SIZES                                                         \
	",\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"config_groups\":"     \
	"{\"group_0\":{\"weights\":{\"num_bits\":4" weights "}}}" more "}}"
#define ROTATION(location)                                                                         \
	",\"transform_config\":{\"config_groups\":{\"R3\":{\"type\":\"hadamard\",\"apply\":["      \
	"{\"location\":\"weight_input\"},{\"location\":\"" location "\"}]}}}"

#define GROUP(name, bits, more)                                                                    \
	"\"" name "\":{\"weights\":{\"num_bits\":" bits ",\"symmetric\":false}" more "}"
#define SCHEMES(format, groups)                                                                    \
	"{\"model_type\":\"llama\"," SIZES                                                         \
	",\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"" format   \
	"\",\"config_groups\":{" groups "}}}"

/* Several groups: the first one is the rule, all must be known. */
static void test_mixed(void **state)
{
	struct model_config c;

	(void)state;
	expect_ok(SCHEMES("pack-quantized", GROUP("a", "8", "")), &c);
	assert_true(c.quant.bits == 8 && !c.quant.mixed && c.quant.zeros);
	expect_ok(SCHEMES("mixed-precision",
			  "\"kv\":{}," GROUP("a", "4", ",\"format\":\"pack-quantized\"") "," GROUP(
				  "b", "8", ",\"format\":\"float-quantized\"")),
		  &c);
	assert_true(c.quant.bits == 4 && c.quant.mixed && !c.quant.zeros);
	expect_error(SCHEMES("mixed-precision",
			     GROUP("a", "4", "") "," GROUP("b", "4", ",\"format\":\"nvfp4\"")),
		     "b: format: \"nvfp4\" is not supported");
	expect_error(SCHEMES("pack-quantized", GROUP("a", "4", "") "," GROUP("b", "2", "")),
		     "b: bits: 2 is not supported");
	expect_error(SCHEMES("pack-quantized", "\"a\":{}"), "no group with weights");
}

/* Whether matrices must have zero points; rotations that weights include. */
static void test_symmetry(void **state)
{
	struct model_config c;

	(void)state;
	expect_ok(COMPRESSED("", ",\"transform_config\":{}"), &c);
	assert_false(c.quant.zeros);
	expect_ok(COMPRESSED(",\"symmetric\":false", ROTATION("weight_output")), &c);
	assert_true(c.quant.zeros);
	expect_error(COMPRESSED("", ROTATION("q_attn")),
		     "transform_config: R3: location: \"q_attn\" is not supported");
	expect_ok("{\"model_type\":\"llama\"," SIZES
		  ",\"quantization_config\":{\"quant_method\":\"awq\"}}",
		  &c);
	assert_true(c.quant.zeros);
	expect_ok("{\"model_type\":\"llama\"," SIZES
		  ",\"quantization_config\":{\"quant_method\":\"awq\",\"zero_point\":false}}",
		  &c);
	assert_false(c.quant.zeros);
	expect_ok("{\"model_type\":\"llama\"," SIZES
		  ",\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4,\"sym\":false}}",
		  &c);
	assert_true(c.quant.zeros);
}

static const struct {
	const char *text, *what;
} errors[] = {
	{"", "JSON"},
	{"[1]", "not a JSON object"},
	{"{\"model_type\":3}", "model_type"},
	{"{\"model_type\":\"llama\"," SIZES ",\"vocab_size\":7}", "vocab_size: there twice"},
	{"{\"model_type\":\"llama\"}", "hidden_size: missing"},
	{"{\"model_type\":\"llama\"," SIZES ",\"hidden_act\":\"gelu\"}", "\"gelu\""},
	{"{\"model_type\":\"llama\"," SIZES ",\"num_key_value_heads\":4}",
	 "num_key_value_heads: 4"},
	{"{\"model_type\":\"llama\"," SIZES ",\"num_key_value_heads\":0}",
	 "num_key_value_heads: 0"},
	{"{\"model_type\":\"llama\"," SIZES ",\"head_dim\":15}", "head_dim: 15"},
	{"{\"model_type\":\"llama\"," SIZES ",\"head_dim\":1024}", "[2, 512]"},
	{"{\"model_type\":\"llama\"," SIZES ",\"rms_norm_eps\":-1}", "rms_norm_eps: -1"},
	{"{\"model_type\":\"llama\"," SIZES ",\"rms_norm_eps\":1e999}", "rms_norm_eps"},
	{"{\"model_type\":\"llama\"," SIZES ",\"tie_word_embeddings\":1}", "tie_word_embeddings"},
	{"{\"model_type\":\"llama\"," SIZES
	 ",\"quantization_config\":{\"quant_method\":\"bitsandbytes\"}}",
	 "quantization_config: quant_method \"bitsandbytes\" is not supported (gptq, awq"},
	{"{\"model_type\":\"llama\"," SIZES ",\"quantization_config\":{\"quant_method\":\"gptq\"}}",
	 "quantization_config: bits: missing"},
	{"{\"model_type\":\"llama\"," SIZES
	 ",\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":3}}",
	 "bits: 3 is not supported, only 4 and 8 are"},
	{"{\"model_type\":\"llama\"," SIZES
	 ",\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4,"
	 "\"group_size\":1e9}}",
	 "group_size: 1e+09"},
	{"{\"model_type\":\"llama\"," SIZES
	 ",\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4,"
	 "\"group_size\":32.5}}",
	 "group_size: 32.5 is not a whole number"},
	{"{\"model_type\":\"llama\"," SIZES
	 ",\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4,\"sym\":0}}",
	 "sym: not true or false"},
	{"{\"model_type\":\"llama\"," SIZES
	 ",\"quantization_config\":{\"quant_method\":\"awq\",\"bits\":8}}",
	 "bits: 8 is not supported, only 4 is"},
	{"{\"model_type\":\"llama\"," SIZES
	 ",\"quantization_config\":{\"quant_method\":\"awq\",\"version\":\"gemv\"}}",
	 "only gemm is"},
	{"{\"model_type\":\"llama\"," SIZES
	 ",\"quantization_config\":{\"quant_method\":\"fp8\",\"fmt\":\"e5m2\"}}",
	 "only e4m3 is"},
	{"{\"model_type\":\"llama\"," SIZES ",\"quantization_config\":{\"quant_method\":\"fp8\","
	 "\"weight_block_size\":[128]}}",
	 "weight_block_size: not two numbers"},
	{"{\"model_type\":\"llama\"," SIZES
	 ",\"quantization_config\":{\"quant_method\":\"compressed-tensors\"}}",
	 "config_groups"},
	{"{\"model_type\":\"llama\"," SIZES ",\"rope_scaling\":{\"rope_type\":\"longrope\"}}",
	 "longrope"},
	{"{\"model_type\":\"llama\"," SIZES ",\"rope_scaling\":{\"rope_type\":\"linear\"}}",
	 "factor: missing"},
	{"{\"model_type\":\"llama\"," SIZES
	 ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8}}",
	 "original_max_position_embeddings"},
	{"{\"model_type\":\"llama\"," SIZES ",\"rope_scaling\":3}", "rope_scaling: not an object"},
	{"{\"model_type\":\"llama\"," SIZES ",\"partial_rotary_factor\":0.1}",
	 "partial_rotary_factor: 0.1 of head_dim 16"},
	{"{\"model_type\":\"llama\"," SIZES ",\"partial_rotary_factor\":2}",
	 "partial_rotary_factor: 2 is not in [0, 1]"},
	{"{\"model_type\":\"qwen3_moe\"," SIZES ",\"num_experts\":8}",
	 "moe_intermediate_size: missing"},
	{"{\"model_type\":\"qwen3_moe\"," SIZES ",\"num_experts\":8,"
	 "\"num_experts_per_tok\":9,\"moe_intermediate_size\":32}",
	 "num_experts_per_tok: 9 of 8 experts"},
	{"{\"model_type\":\"qwen3_moe\"," SIZES ",\"num_experts\":8,"
	 "\"num_experts_per_tok\":2,\"moe_intermediate_size\":32,"
	 "\"mlp_only_layers\":[1.5]}",
	 "mlp_only_layers: an element is not a layer number"},
	{"{\"model_type\":\"glm4_moe\"," SIZES ",\"n_routed_experts\":8,"
	 "\"num_experts_per_tok\":2,\"moe_intermediate_size\":32,\"n_group\":3}",
	 "n_group: 3 does not divide n_routed_experts 8"},
	{DEEPSEEK("deepseek_v3", ",\"scoring_func\":\"softmax\""),
	 "scoring_func: \"softmax\" is not supported, only sigmoid is"},
	{DEEPSEEK("kimi_k2", ",\"topk_method\":\"greedy\""),
	 "topk_method: \"greedy\" is not supported, only noaux_tc is"},
	{DEEPSEEK("deepseek_v2", ",\"scoring_func\":\"sigmoid\""),
	 "scoring_func: \"sigmoid\" is not supported, only softmax is"},
	{"{\"model_type\":\"glm4_moe\"," SIZES ",\"n_routed_experts\":8,"
	 "\"num_experts_per_tok\":2,\"moe_intermediate_size\":32,\"scoring_func\":\"softmax\"}",
	 "scoring_func: \"softmax\""},
	{"{\"model_type\":\"qwen2\"," SIZES ",\"is_causal\":false}",
	 "is_causal: false is not supported"},
	{"{\"model_type\":\"llama\"," SIZES ",\"use_bidirectional_attention\":true}",
	 "use_bidirectional_attention: true is not supported"},
	{"{\"model_type\":\"qwen3\"," SIZES
	 ",\"architectures\":[\"Qwen3ForSequenceClassification\"]}",
	 "architectures: \"Qwen3ForSequenceClassification\" is not supported"},
	{"{\"model_type\":\"mistral3\",\"text_config\":{\"model_type\":\"mistral\"," SIZES
	 ",\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":3}}}",
	 "text_config: quantization_config: bits: 3"},
	{"{\"model_type\":\"llama\"," SIZES
	 ",\"tensor_parallel\":{\"use_tp\":true,\"parallel_size\":9}}",
	 "parallel_size: 9 is not in [1, 8]"},
	{"{\"model_type\":\"llama\",\"hidden_size\":97,\"intermediate_size\":1,\"num_"
	 "hidden_layers\":1,"
	 "\"num_attention_heads\":6,\"vocab_size\":5}",
	 "head_dim: missing"},
	{"{\"model_type\":\"llama\",\"hidden_size\":96,\"intermediate_size\":1.5}",
	 "intermediate_size: 1.5"},
	{"{\"model_type\":\"llama\",\"hidden_size\":1e9}",
	 "hidden_size: 1e+09 is not in [2, 131072]"},
};

static void test_errors(void **state)
{
	unsigned i;

	(void)state;
	for (i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		expect_error(errors[i].text, errors[i].what);
}

static void test_placement(void **state)
{
	struct model_config c;

	(void)state;
	expect_ok("{\"model_type\":\"llama\"," SIZES ",\"param_dir\":\"weights\","
		  "\"tensor_parallel\":{\"use_tp\":true,\"parallel_size\":3}}",
		  &c);
	assert_string_equal(c.param_dir, "weights");
	assert_int_equal(c.parallel_size, 3);
	expect_ok("{\"model_type\":\"llama\"," SIZES
		  ",\"tensor_parallel\":{\"use_tp\":false,\"parallel_size\":3}}",
		  &c);
	assert_int_equal(c.parallel_size, 0);
}

static void expect_close(float got, double want)
{
	if (!(fabs((double)got - want) <= 3e-7 * fabs(want)))
		fail_msg("%.9g, expected %.9g", (double)got, want);
}

static void test_rope_default_linear_dynamic(void **state)
{
	struct rope_config rope = {.theta = 500000, .factor = 4};
	struct txda_op_rope_table t;
	float f[32];
	unsigned i;

	(void)state;
	rope_compute(&rope, 32, 4096, f, &t);
	for (i = 0; i < 32; i++)
		expect_close(f[i], pow(500000, -(double)i / 32));
	assert_true(t.scale == 1 && !t.dynamic_from);
	rope.type = ROPE_LINEAR;
	rope_compute(&rope, 32, 4096, f, &t);
	for (i = 0; i < 32; i++)
		expect_close(f[i], pow(500000, -(double)i / 32) / 4);
	rope.type = ROPE_DYNAMIC;
	rope_compute(&rope, 32, 4096, f, &t);
	expect_close(f[31], pow(500000, -31.0 / 32));
	assert_true(t.dynamic_from == 4096 && t.base == 500000 && t.factor == 4);
}

/* Llama 3.1: kept, blended and stretched frequencies. */
static void test_rope_llama3(void **state)
{
	struct rope_config rope = {
		.type = ROPE_LLAMA3,
		.theta = 500000,
		.factor = 8,
		.low_freq_factor = 1,
		.high_freq_factor = 4,
		.original_max_position = 8192,
	};
	struct txda_op_rope_table t;
	unsigned i, kept = 0, stretched = 0;
	float f[64];

	(void)state;
	rope_compute(&rope, 64, 131072, f, &t);
	for (i = 0; i < 64; i++) {
		double plain = pow(500000, -(double)i / 64), turns = 8192 * plain / (2 * M_PI);
		double smooth = fmin(fmax((turns - 1) / 3, 0), 1);

		if (turns < 1 || turns > 4 ||
		    fabs(f[i] / (plain * (smooth + (1 - smooth) / 8)) - 1) > 1e-5)
			expect_close(f[i], turns > 4 ? plain : plain / 8);
		kept += turns > 4;
		stretched += turns < 1;
	}
	assert_true(kept > 10 && stretched > 10 && kept + stretched < 64);
}

static void test_rope_yarn(void **state)
{
	struct rope_config rope = {
		.type = ROPE_YARN,
		.theta = 1000000,
		.factor = 4,
		.beta_fast = 32,
		.beta_slow = 1,
		.truncate = true,
		.original_max_position = 32768,
	};
	struct txda_op_rope_table t;
	float f[64];

	(void)state;
	rope_compute(&rope, 64, 131072, f, &t);
	/* Fast dimensions stay, slow ones are divided, and the ramp runs from 23 to 40. */
	expect_close(f[0], 1);
	expect_close(f[23], pow(1e6, -23.0 / 64));
	expect_close(f[40], pow(1e6, -40.0 / 64) / 4);
	expect_close(f[63], pow(1e6, -63.0 / 64) / 4);
	expect_close(f[30], pow(1e6, -30.0 / 64) * (10.0 / 17 + 7.0 / 17 / 4));
	expect_close(t.scale, 0.1 * log(4) + 1);
	rope.attention_factor = 1.5;
	rope_compute(&rope, 64, 131072, f, &t);
	expect_close(t.scale, 1.5);
	rope.attention_factor = 0;
	rope.mscale = 1;
	rope.mscale_all_dim = 0.5;
	rope_compute(&rope, 64, 131072, f, &t);
	expect_close(t.scale, (0.1 * log(4) + 1) / (0.05 * log(4) + 1));
}

#define YARN "\"rope_type\":\"yarn\",\"factor\":4.0"

/* No scaling is ignored: neither one of two that differ nor one by kind of layer. */
static void test_rope_places(void **state)
{
	struct model_config c;

	(void)state;
	expect_error("{\"model_type\":\"llama\"," SIZES ",\"rope_scaling\":{" YARN "},"
		     "\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":1e4}}",
		     "rope_scaling: rope_type: yarn, but rope_parameters say default");
	expect_error("{\"model_type\":\"llama\"," SIZES ",\"rope_scaling\":{" YARN "},"
		     "\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":2.0}}",
		     "rope_scaling: factor: differs from rope_parameters");
	expect_ok("{\"model_type\":\"llama\"," SIZES ",\"rope_scaling\":{\"type\":\"yarn\","
		  "\"factor\":4},\"rope_parameters\":{" YARN ",\"rope_theta\":1e4}}",
		  &c);
	assert_true(c.rope.type == ROPE_YARN && c.rope.factor == 4);
	expect_error("{\"model_type\":\"llama\"," SIZES
		     ",\"rope_parameters\":{\"full_attention\":{" YARN "}}}",
		     "rope_parameters: full_attention");
	expect_error("{\"model_type\":\"llama\"," SIZES
		     ",\"rope_scaling\":{\"full_attention\":{" YARN "}}}",
		     "rope_scaling: full_attention");
	expect_error("{\"model_type\":\"gemma3_text\"," SIZES
		     ",\"rope_parameters\":{\"chunked_attention\":{" YARN "}}}",
		     "rope_parameters: chunked_attention");
	expect_ok("{\"model_type\":\"llama\"," SIZES ",\"rope_scaling\":{" YARN "},"
		  "\"original_max_position_embeddings\":64}",
		  &c);
	assert_int_equal(c.rope.original_max_position, 64);
	expect_ok("{\"model_type\":\"llama\"," SIZES ",\"rope_scaling\":{" YARN
		  ",\"original_max_position_embeddings\":32},"
		  "\"original_max_position_embeddings\":64}",
		  &c);
	assert_int_equal(c.rope.original_max_position, 32);
}

static void test_context(void **state)
{
	struct model_config c;

	(void)state;
	expect_ok("{\"model_type\":\"qwen2\"," SIZES
		  ",\"max_position_embeddings\":32768,\"rope_scaling\":"
		  "{\"type\":\"yarn\",\"factor\":4.0,\"original_max_position_embeddings\":32768}}",
		  &c);
	assert_int_equal(config_default_context(&c), 131072);
	expect_ok("{\"model_type\":\"qwen2\"," SIZES
		  ",\"max_position_embeddings\":131072,\"rope_scaling\":"
		  "{\"type\":\"yarn\",\"original_max_position_embeddings\":32768}}",
		  &c);
	assert_true(c.rope.factor == 4);
	assert_int_equal(config_default_context(&c), 131072);
	expect_ok("{\"model_type\":\"internlm3\"," SIZES
		  ",\"max_position_embeddings\":4096,\"rope_scaling\":"
		  "{\"rope_type\":\"dynamic\",\"factor\":6.0}}",
		  &c);
	assert_int_equal(config_default_context(&c), 24576);
}

/* Every head, inner row and token has its owner, once; KV heads go with their queries. */
static void check_shards(const struct model_config *c, uint32_t tp)
{
	uint32_t heads = 0, inner = 0, vocab = 0, rank, h;
	struct shard s;

	for (rank = 0; rank < tp; rank++) {
		assert_int_equal(shard_make(c, tp, rank, 32, false, &s, &error), 0);
		assert_int_equal(s.q_heads.first, heads);
		assert_int_equal(s.inner.first, inner);
		assert_int_equal(s.vocab.first, vocab);
		assert_true(s.inner.n && s.vocab.n && s.vocab.n <= s.vocab_width);
		heads += s.q_heads.n;
		inner += s.inner.n;
		vocab += s.vocab.n;
		/* The chip pairs query head h of its own with KV head h * Hkv / Hq of its own. */
		for (h = 0; h < s.q_heads.n; h++)
			assert_int_equal(s.kv_heads.first + h * s.kv_heads.n / s.q_heads.n,
					 (s.q_heads.first + h) * c->n_kv_heads / c->n_heads);
	}
	assert_int_equal(heads, c->n_heads);
	assert_int_equal(inner, c->intermediate_size);
	assert_int_equal(vocab, c->vocab_size);
	assert_true((tp - 1) * s.vocab_width < c->vocab_size &&
		    c->vocab_size <= tp * s.vocab_width);
}

static void test_shards(void **state)
{
	struct model_config c = {
		.n_heads = 24, .n_kv_heads = 8, .head_dim = 64, .hidden_size = 512};
	struct shard s;
	uint32_t tp;

	(void)state;
	for (c.vocab_size = 57; c.vocab_size < 2000; c.vocab_size += 61) {
		c.intermediate_size = 9 + c.vocab_size * 3 / 2;
		for (tp = 1; tp <= 8; tp *= 2)
			check_shards(&c, tp);
	}
	c.n_kv_heads = 2;
	for (tp = 1; tp <= 8; tp++)
		check_shards(&c, tp);
	/* Numbers that do not divide: every chip has heads, some more than others. */
	for (c.n_kv_heads = 1; c.n_kv_heads <= 9; c.n_kv_heads++) {
		c.n_heads = c.n_kv_heads * (c.n_kv_heads > 4 ? 1 : 8);
		for (tp = 1; tp <= 8 && tp <= c.n_heads; tp++)
			if (c.n_kv_heads >= tp || c.n_heads / c.n_kv_heads > 1)
				check_shards(&c, tp);
	}
	c.n_kv_heads = 2;
	c.n_heads = 4;
	assert_true(shard_make(&c, 5, 0, 32, false, &s, &error) < 0);
	assert_non_null(strstr(error.text, "1, 2, 3, 4 would do"));
	c.vocab_size = 5;
	assert_true(shard_make(&c, 4, 0, 32, false, &s, &error) < 0);
	assert_non_null(strstr(error.text, "vocab_size 5"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_family_defaults),
		cmocka_unit_test(test_spellings),
		cmocka_unit_test(test_families),
		cmocka_unit_test(test_experts),
		cmocka_unit_test(test_sparse_layers),
		cmocka_unit_test(test_window),
		cmocka_unit_test(test_gemma),
		cmocka_unit_test(test_gemma_errors),
		cmocka_unit_test(test_text_only),
		cmocka_unit_test(test_gpt_oss),
		cmocka_unit_test(test_most_layers),
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_symmetry),
		cmocka_unit_test(test_mixed),
		cmocka_unit_test(test_placement),
		cmocka_unit_test(test_rope_default_linear_dynamic),
		cmocka_unit_test(test_rope_llama3),
		cmocka_unit_test(test_rope_yarn),
		cmocka_unit_test(test_context),
		cmocka_unit_test(test_rope_places),
		cmocka_unit_test(test_text_quantisation),
		cmocka_unit_test(test_shards),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
