// SPDX-License-Identifier: MIT
/*
 * Every family with shapes that no checkpoint has: odd numbers of heads, one KV head, dimensions
 * that are not a multiple of a tile, keys of the config that are not there. Weights are made up. One
 * chip in precise mode is what the others are compared with: several chips, whole experts, normal
 * mode, every SIMD path, prompts in pieces.
 */
#include <math.h>

#include "runner.h"
#include "unit.h"

#define TOKENS 37

struct odd {
	const char *name;
	unsigned tp[3]; /* beside 1; 0: none */
	const char *config;
	bool mtp; /* the program of the layer that predicts a token more */
};

#define MOE "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 40, "
#define MLA                                                                                        \
	"\"kv_lora_rank\": 40, \"qk_rope_head_dim\": 6, \"qk_nope_head_dim\": 20, "                \
	"\"v_head_dim\": 14, "

#define MODEL(type, hidden, inner, layers, heads, vocab, rest)                                     \
	"{\"model_type\": \"" type "\", \"hidden_size\": " #hidden                                 \
	", \"intermediate_size\": " #inner ", \"num_hidden_layers\": " #layers                     \
	", \"num_attention_heads\": " #heads ", \"vocab_size\": " #vocab ", " rest "}"

static const struct odd models[] = {
	{"llama, three heads, one KV head, no rest",
	 {2, 3},
	 MODEL("llama", 66, 101, 2, 3, 77, "\"num_key_value_heads\": 1")},
	{"llama, tied, heads wider than the stream, biases",
	 {5, 4},
	 MODEL("llama", 40, 90, 1, 5, 333,
	       "\"num_key_value_heads\": 5, \"head_dim\": 26, \"tie_word_embeddings\": true, "
	       "\"attention_bias\": true, \"mlp_bias\": true, \"rope_scaling\": {\"type\": "
	       "\"linear\", \"factor\": 2.0}")},
	{"mistral, window",
	 {2},
	 MODEL("mistral", 48, 70, 2, 6, 100, "\"num_key_value_heads\": 2, \"sliding_window\": 9")},
	{"qwen2, window in the second layer",
	 {2, 7},
	 MODEL("qwen2", 98, 34, 2, 14, 65,
	       "\"num_key_value_heads\": 7, \"head_dim\": 10, \"use_sliding_window\": true, "
	       "\"sliding_window\": 5, \"max_window_layers\": 1")},
	{"qwen3, head of two",
	 {2, 4},
	 MODEL("qwen3", 34, 66, 2, 4, 129, "\"num_key_value_heads\": 2, \"head_dim\": 2")},
	{"internlm3",
	 {2},
	 MODEL("internlm3", 36, 50, 2, 2, 64,
	       "\"head_dim\": 18, \"qkv_bias\": true, \"bias\": true, \"rope_scaling\": "
	       "{\"rope_type\": \"dynamic\", \"factor\": 4.0}, \"max_position_embeddings\": 16")},
	{"qwen2_moe, a dense layer between",
	 {2, 4},
	 MODEL("qwen2_moe", 52, 60, 3, 5, 90,
	       MOE "\"head_dim\": 14, \"num_key_value_heads\": 1, \"num_experts\": 5, "
		   "\"shared_expert_intermediate_size\": 36, \"mlp_only_layers\": [1]")},
	{"qwen3_moe, one expert of three",
	 {3, 2},
	 MODEL("qwen3_moe", 50, 60, 2, 3, 70,
	       "\"moe_intermediate_size\": 21, \"num_experts_per_tok\": 1, "
	       "\"num_key_value_heads\": 3, \"head_dim\": 12, \"num_local_experts\": 3, "
	       "\"norm_topk_prob\": true, \"decoder_sparse_step\": 2")},
	{"glm",
	 {2},
	 MODEL("glm", 44, 70, 2, 2, 80,
	       "\"num_key_value_heads\": 1, \"head_dim\": 20, \"attention_bias\": true")},
	{"glm4, a quarter rotates",
	 {2},
	 MODEL("glm4", 44, 70, 2, 2, 80,
	       "\"num_key_value_heads\": 2, \"head_dim\": 24, \"partial_rotary_factor\": 0.25")},
	{"glm4_moe",
	 {2},
	 MODEL("glm4_moe", 44, 70, 3, 4, 80,
	       MOE "\"num_key_value_heads\": 2, \"head_dim\": 12, \"n_routed_experts\": 6, "
		   "\"n_shared_experts\": 1, \"first_k_dense_replace\": 1, \"use_qk_norm\": true, "
		   "\"n_group\": 1, \"topk_group\": 1")},
	{"deepseek_v2, no q_lora, groups",
	 {3, 2},
	 MODEL("deepseek_v2", 50, 70, 2, 3, 80,
	       MOE MLA "\"n_routed_experts\": 6, \"n_shared_experts\": 2, "
		       "\"first_k_dense_replace\": 1, \"topk_method\": \"group_limited_greedy\", "
		       "\"n_group\": 3, \"topk_group\": 2, \"routed_scaling_factor\": 4.0, "
		       "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4.0, \"mscale\": 0.7, "
		       "\"mscale_all_dim\": 0.7, \"original_max_position_embeddings\": 16}")},
	{"deepseek_v3, biases",
	 {2},
	 MODEL("deepseek_v3", 50, 70, 2, 2, 80,
	       MOE MLA "\"q_lora_rank\": 18, \"attention_bias\": true, \"n_routed_experts\": 8, "
		       "\"first_k_dense_replace\": 0, \"n_group\": 4, \"topk_group\": 2, "
		       "\"tie_word_embeddings\": true")},
	{"kimi_k2, rope in halves",
	 {4},
	 MODEL("kimi_k2", 50, 70, 2, 4, 80,
	       MOE MLA "\"q_lora_rank\": 18, \"n_routed_experts\": 7, \"n_shared_experts\": 1, "
		       "\"first_k_dense_replace\": 1, \"rope_interleave\": false")},
	{"gemma2, three heads, one KV head",
	 {3, 2},
	 MODEL("gemma2", 50, 71, 3, 3, 77,
	       "\"num_key_value_heads\": 1, \"head_dim\": 10, \"sliding_window\": 7, "
	       "\"attn_logit_softcapping\": 1.5, \"final_logit_softcapping\": 2.5, "
	       "\"query_pre_attn_scalar\": 3")},
	{"gemma3, a head of its own, biases",
	 {2, 5},
	 MODEL("gemma3_text", 46, 33, 4, 5, 90,
	       "\"num_key_value_heads\": 5, \"head_dim\": 18, \"sliding_window\": 5, "
	       "\"sliding_window_pattern\": 3, \"tie_word_embeddings\": false, \"attention_bias\": "
	       "true, \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 3.0}")},
	{"deepseek_v32, five keys of a head of 10",
	 {3, 2},
	 MODEL("deepseek_v32", 50, 70, 2, 3, 80,
	       MOE MLA "\"q_lora_rank\": 18, \"n_routed_experts\": 8, \"first_k_dense_replace\": "
		       "1, \"index_topk\": 5, \"index_n_heads\": 3, \"index_head_dim\": 10")},
	{"qwen3_next, three key heads",
	 {3, 2},
	 MODEL("qwen3_next", 46, 33, 3, 6, 70,
	       "\"num_key_value_heads\": 3, \"head_dim\": 16, \"num_experts\": 5, "
	       "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 11, "
	       "\"linear_num_key_heads\": 3, \"linear_num_value_heads\": 6, "
	       "\"linear_key_head_dim\": 10, \"linear_value_head_dim\": 9, "
	       "\"linear_conv_kernel_dim\": 3, \"full_attention_interval\": 2, "
	       "\"partial_rotary_factor\": 0.5")},
	{"gpt_oss, three KV heads",
	 {3, 2},
	 MODEL("gpt_oss", 42, 33, 3, 6, 66,
	       "\"num_key_value_heads\": 3, \"head_dim\": 14, \"sliding_window\": 5, "
	       "\"num_local_experts\": 5, \"num_experts_per_tok\": 3, \"swiglu_limit\": 0.7")},
	{"deepseek_v3, one token more",
	 {2},
	 MODEL("deepseek_v3", 50, 70, 2, 2, 80,
	       MOE MLA
	       "\"n_routed_experts\": 8, \"n_shared_experts\": 1, \"num_nextn_predict_layers\": 1"),
	 true},
};

/* The logits of all tokens of one prompt. */
static float *logits_of(const struct odd *m, unsigned tp, bool ep, bool precise, unsigned chunk,
			unsigned *ret_vocab)
{
	struct runner_options o = {
		.config = m->config,
		.compile = COMPILE_OPTIONS_DEFAULT,
		.precise = precise,
		.slots = 2,
		.context = TOKENS + 3,
	};
	struct tool_error error = {{0}};
	struct runner_part part = {.slot = 1, .n = TOKENS, .n_rows = TOKENS};
	int32_t tokens[TOKENS];
	unsigned rows[TOKENS];
	struct runner *r;
	float *logits;

	o.compile.tp = tp;
	o.compile.expert_parallel = ep;
	o.compile.mtp = o.compile.hidden = m->mtp;
	o.compile.max_context = 64;
	o.compile.block_size = 16;
	o.compile.jobs = 1;
	if (runner_open(&o, &r, &error))
		fail_msg("%s, %u chips: %s", m->name, tp, error.text);
	for (unsigned i = 0; i < TOKENS; i++) {
		tokens[i] = (int32_t)(i * 31 % r->info.vocab);
		rows[i] = i;
	}
	logits = malloc((size_t)TOKENS * r->info.vocab * sizeof(*logits));
	part.tokens = tokens;
	part.rows = rows;
	part.logits = logits;
	if (runner_sequence(r, &part, chunk, &error))
		fail_msg("%s, %u chips: %s", m->name, tp, error.text);
	*ret_vocab = r->info.vocab;
	runner_close(r);
	return logits;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* The median error of the rows: a router that tips changes a row, not most of them. */
static double median_error(const float *a, const float *b, unsigned vocab)
{
	double error[TOKENS];

	for (unsigned t = 0; t < TOKENS; t++) {
		double e = 0, n = 0;

		for (unsigned i = t * vocab; i < (t + 1) * vocab; i++) {
			e += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
			n += (double)b[i] * b[i];
		}
		error[t] = n > 0 && e == e ? sqrt(e / n) : INFINITY;
	}
	qsort(error, TOKENS, sizeof(*error), by_size);
	return error[TOKENS / 2];
}

static void expect_near(const struct odd *m, const char *what, float *logits, const float *want,
			unsigned vocab, double limit)
{
	double e = median_error(logits, want, vocab);

	if (!(e <= limit))
		fail_msg("%s: %s: error %g, the limit is %g", m->name, what, e, limit);
	free(logits);
}

/* Whether the device model has the path here: it refuses to start with one that the CPU or the build
 * lacks. Clang 14 does not know F16C, which all with AVX2 have. */
static bool has_path(const char *path)
{
#if defined(CM_AVX512)
	if (!strcmp(path, "isa=avx512"))
		return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
		       __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
		       __builtin_cpu_supports("avx512vnni");
#endif
#if defined(__x86_64__)
	if (!strcmp(path, "isa=avx2"))
		return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
	return !strcmp(path, "isa=c") || !*path;
}

TEST(test_odd)
{
	static const char *const paths[] = {"isa=c", "isa=avx2", "isa=avx512", ""};

	for (size_t i = 0; i < ARRAY_SIZE(models); i++) {
		const struct odd *m = &models[i];
		unsigned vocab;
		float *want, *one, *other;

		unsetenv("TXDA_CMODEL");
		want = logits_of(m, 1, false, true, 0, &vocab);
		for (unsigned j = 0; j < 3 && m->tp[j]; j++) {
			expect_near(m, "several chips",
				    logits_of(m, m->tp[j], false, true, 0, &vocab), want, vocab,
				    1e-5);
			expect_near(m, "whole experts",
				    logits_of(m, m->tp[j], true, true, 0, &vocab), want, vocab,
				    1e-5);
		}
		expect_near(m, "pieces", logits_of(m, 1, false, true, 5, &vocab), want, vocab,
			    1e-6);
		for (unsigned j = 0; j < 4; j++) {
			if (!has_path(paths[j]))
				continue;
			setenv("TXDA_CMODEL", paths[j], 1);
			expect_near(m, paths[j], logits_of(m, 1, false, false, 0, &vocab), want,
				    vocab, 2e-2);
		}
		/* The same bits in pieces, in normal mode too. */
		one = logits_of(m, 1, false, false, 0, &vocab);
		other = logits_of(m, 1, false, false, 7, &vocab);
		assert_memory_equal(one, other, (size_t)TOKENS * vocab * sizeof(*one));
		free(one);
		free(other);
		free(want);
	}
	unsetenv("TXDA_CMODEL");
}

TEST_MAIN
