// SPDX-License-Identifier: MIT
/* What the metadata of a GGUF file comes to: a configuration, a tokeniser; and what is refused. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "compile.h"
#include "config.h"
#include "ggml.h"
#include "gguf_model.h"
#include "gguf_test.h"
#include "model.h"
#include "sentencepiece.h"

/* ---- models ---- */

/* A llama of one layer that has all it needs. */
static void llama(struct file *f)
{
	static const struct {
		const char *name;
		uint64_t cols, rows;
	} tensors[] = {
		{"token_embd.weight", 8, 4},	    {"output_norm.weight", 8, 0},
		{"blk.0.attn_norm.weight", 8, 0},   {"blk.0.attn_q.weight", 8, 8},
		{"blk.0.attn_k.weight", 8, 4},	    {"blk.0.attn_v.weight", 8, 4},
		{"blk.0.attn_output.weight", 8, 8}, {"blk.0.ffn_norm.weight", 8, 0},
		{"blk.0.ffn_gate.weight", 8, 8},    {"blk.0.ffn_up.weight", 8, 8},
		{"blk.0.ffn_down.weight", 8, 8},
	};

	key_text(f, "general.architecture", "llama");
	key_u32(f, "llama.context_length", 64);
	key_u32(f, "llama.embedding_length", 8);
	key_u32(f, "llama.feed_forward_length", 8);
	key_u32(f, "llama.attention.head_count", 2);
	key_u32(f, "llama.attention.head_count_kv", 1);
	key_f32(f, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
	for (size_t i = 0; i < sizeof(tensors) / sizeof(tensors[0]); i++)
		matrix(f, tensors[i].name, tensors[i].cols, tensors[i].rows);
}

/* Of the models whose scores are divided by another root. */
static void gemma(struct file *f)
{
	key_text(f, "general.architecture", "gemma3");
	key_u32(f, "gemma3.block_count", 62);
	key_u32(f, "gemma3.context_length", 64);
	key_u32(f, "gemma3.embedding_length", 12);
	key_u32(f, "gemma3.feed_forward_length", 8);
	key_u32(f, "gemma3.attention.head_count", 2);
	key_u32(f, "gemma3.attention.key_length", 4);
	key_f32(f, "gemma3.attention.layer_norm_rms_epsilon", 1e-6f);
	matrix(f, "token_embd.weight", 12, 4);
	matrix(f, "blk.0.ffn_norm.weight", 12, 0);
	matrix(f, "blk.0.post_attention_norm.weight", 12, 0);
}

static int open_model(struct file *f, struct gguf_model **ret)
{
	struct gguf *g;

	assert_int_equal(open_file(f, &g), 0);
	return gguf_model_new(&g, 1, ret, &error);
}

static void expect_config(struct file *f, const char *what)
{
	struct gguf_model *m;
	char *text;
	int r = open_model(f, &m);

	if (!r) {
		r = gguf_config(m, &text, &error);
		gguf_model_free(m);
	}
	assert_true(r < 0);
	expect_words(what);
}

static void test_config(void **state)
{
	static struct model_config c;
	struct source_tensor t;
	struct file f = {0};
	struct gguf_model *m;
	char *text;

	(void)state;
	llama(&f);
	key_u32(&f, "llama.block_count", 1);
	key_text(&f, "llama.rope.scaling.type", "linear");
	key_f32(&f, "llama.rope.scaling.factor", 4);
	assert_int_equal(open_model(&f, &m), 0);
	assert_int_equal(gguf_config(m, &text, &error), 0);
	assert_int_equal(config_parse(text, strlen(text), &c, &error), 0);
	assert_int_equal(c.n_layers, 1);
	assert_int_equal(c.vocab_size, 4);
	assert_int_equal(c.head_dim, 4);
	assert_int_equal(c.n_kv_heads, 1);
	assert_true(c.tie_word_embeddings && c.rms_norm_eps == 1e-5f);
	assert_true(c.rope.type == ROPE_LINEAR && c.rope.factor == 4);
	gguf_adapt(m, &c);
	assert_true(c.rope_interleaved);
	assert_int_equal(
		gguf_model_find(m, "model.layers.0.self_attn.k_proj.weight", 4, 8, &t, &error), 0);
	assert_int_equal(
		gguf_model_find(m, "model.layers.0.self_attn.k_proj.weight", 8, 4, &t, &error),
		-EINVAL);
	expect_words("expected the shape [8, 4], found [1, 1, 4, 8]");
	assert_int_equal(gguf_model_find(m, "lm_head.weight", 8, 4, &t, &error), -ENOENT);
	free(text);
	gguf_model_free(m);
}

static void test_gemma(void **state)
{
	static struct model_config c;
	struct file f = {0};
	struct gguf_model *m;
	char *text;

	(void)state;
	gemma(&f);
	key_u32(&f, "gemma3.attention.sliding_window", 16);
	key_f32(&f, "gemma3.rope.freq_base_swa", 500);
	assert_int_equal(open_model(&f, &m), 0);
	assert_int_equal(gguf_config(m, &text, &error), 0);
	assert_int_equal(config_parse(text, strlen(text), &c, &error), 0);
	gguf_adapt(m, &c);
	assert_true(c.query_scalar == 6 && c.rope_window.theta == 500 && c.rope.theta == 1e6);
	assert_true(c.sliding_window == 16 && c.layer_window[4] && !c.layer_window[5]);
	assert_false(c.norm_plus_one);
	assert_true(gguf_model_has(m, "model.layers.0.pre_feedforward_layernorm.weight"));
	assert_true(gguf_model_has(m, "model.layers.0.post_attention_layernorm.weight"));
	free(text);
	gguf_model_free(m);
}

/* DeepSeek's keys, as old files have them: a softmax, no groups, nothing normalised. */
static void deepseek(struct file *f)
{
	key_text(f, "general.architecture", "deepseek2");
	key_u32(f, "deepseek2.block_count", 2);
	key_u32(f, "deepseek2.context_length", 64);
	key_u32(f, "deepseek2.embedding_length", 12);
	key_u32(f, "deepseek2.feed_forward_length", 8);
	key_u32(f, "deepseek2.attention.head_count", 2);
	key_u32(f, "deepseek2.attention.head_count_kv", 2);
	key_u32(f, "deepseek2.attention.key_length", 10);
	key_u32(f, "deepseek2.attention.value_length", 6);
	key_u32(f, "deepseek2.attention.kv_lora_rank", 8);
	key_u32(f, "deepseek2.rope.dimension_count", 4);
	key_f32(f, "deepseek2.attention.layer_norm_rms_epsilon", 1e-6f);
	key_u32(f, "deepseek2.expert_count", 4);
	key_u32(f, "deepseek2.expert_used_count", 2);
	key_u32(f, "deepseek2.expert_feed_forward_length", 8);
	matrix(f, "token_embd.weight", 12, 4);
	matrix(f, "blk.0.exp_probs_b.bias", 4, 0);
}

static void read_config(struct file *f, struct model_config *c)
{
	struct gguf_model *m;
	char *text;

	assert_int_equal(open_model(f, &m), 0);
	if (gguf_config(m, &text, &error) || config_parse(text, strlen(text), c, &error))
		fail_msg("%s", error.text);
	free(text);
	gguf_model_free(m);
}

static void test_deepseek(void **state)
{
	static struct model_config c;
	struct source_tensor t;
	struct file f = {0};
	struct gguf_model *m;

	(void)state;
	deepseek(&f);
	read_config(&f, &c);
	assert_string_equal(c.model_type, "deepseek_v2");
	assert_true(c.mla.nope == 6 && c.mla.rope == 4 && c.mla.v == 6 && c.mla.latent == 8);
	assert_true(c.mla.q_lora == 0 && c.moe.n_groups == 1 && c.moe.scale == 1);
	assert_true(!c.moe.normalise && !c.moe.shared_inner && c.moe.layer[0]);
	f = (struct file){0};
	deepseek(&f);
	key_u32(&f, "deepseek2.attention.key_length_mla", 9);
	key_u32(&f, "deepseek2.attention.value_length_mla", 7);
	key_u32(&f, "deepseek2.expert_gating_func", 2);
	key_f32(&f, "deepseek2.expert_weights_scale", 2.5f);
	key_u32(&f, "deepseek2.leading_dense_block_count", 1);
	key_u32(&f, "deepseek2.expert_shared_count", 2);
	key_u32(&f, "deepseek2.expert_group_count", 2);
	key_u32(&f, "deepseek2.expert_group_used_count", 1);
	key_text(&f, "deepseek2.rope.scaling.type", "yarn");
	key_f32(&f, "deepseek2.rope.scaling.factor", 40);
	key_u32(&f, "deepseek2.rope.scaling.original_context_length", 16);
	key_f32(&f, "deepseek2.rope.scaling.yarn_log_multiplier", 0.1f);
	read_config(&f, &c);
	assert_string_equal(c.model_type, "deepseek_v3");
	assert_true(c.mla.nope == 5 && c.mla.v == 7 && c.moe.n_groups == 2);
	assert_true(c.moe.scale == 2.5 && c.moe.shared_inner == 16 && !c.moe.layer[0]);
	assert_true(fabs(c.mla.mscale - (0.1 * log(40) + 1)) < 1e-6);
	assert_int_equal(open_model(&f, &m), 0);
	assert_int_equal(gguf_model_find(m, "model.layers.0.mlp.gate.e_score_correction_bias", 0, 4,
					 &t, &error),
			 0);
	gguf_model_free(m);
	f = (struct file){0};
	deepseek(&f);
	key_u32(&f, "deepseek2.expert_gating_func", 3);
	expect_config(&f, "deepseek2.expert_gating_func: 3 is not supported");
	f = (struct file){0};
	deepseek(&f);
	key_u32(&f, "deepseek2.nextn_predict_layers", 2);
	expect_config(&f, "deepseek2.nextn_predict_layers: 2 of block_count 2");
}

/* Vectors of experts are rows; the number behind heads or experts must be one of them. */
static void test_stacked(void **state)
{
	struct source_tensor t;
	struct file f = {0};
	struct gguf_model *m;

	(void)state;
	key_text(&f, "general.architecture", "gpt-oss");
	matrix(&f, "blk.0.ffn_up_exps.bias", 12, 3);
	matrix(&f, "blk.0.attn_sinks.weight", 4, 0);
	assert_int_equal(open_model(&f, &m), 0);
	assert_int_equal(
		gguf_model_find(m, "model.layers.0.mlp.experts.2.up_proj.bias", 0, 12, &t, &error),
		0);
	assert_int_equal(t.cols, 12);
	assert_int_equal(
		gguf_model_find(m, "model.layers.0.mlp.experts.3.up_proj.bias", 0, 12, &t, &error),
		-EINVAL);
	assert_int_equal(
		gguf_model_find(m, "model.layers.0.mlp.experts.0.up_proj.bias", 0, 3, &t, &error),
		-EINVAL);
	assert_int_equal(
		gguf_model_find(m, "model.layers.0.mlp.experts.x.up_proj.bias", 0, 12, &t, &error),
		-ENOENT);
	assert_true(gguf_model_has(m, "model.layers.0.self_attn.sinks"));
	gguf_model_free(m);
}

/* Which layers have the window may be a list; all known ends of answers are in the config. */
static void test_lists(void **state)
{
	static const char *const tokens[] = {"a", "<|im_end|>", "b", "<|endoftext|>", "<end>"};
	static struct model_config c;
	uint8_t windows[62] = {0};
	struct file f = {0};
	struct gguf_model *m;
	char *text;

	(void)state;
	gemma(&f);
	key_u32(&f, "gemma3.attention.sliding_window", 16);
	windows[1] = windows[5] = 1;
	key_array(&f, "gemma3.attention.sliding_window_pattern", GGUF_BOOL, sizeof(windows));
	put(&f.keys, windows, sizeof(windows));
	key_texts(&f, "tokenizer.ggml.tokens", tokens, 5);
	key_u32(&f, "tokenizer.ggml.eos_token_id", 1);
	key_u32(&f, "tokenizer.ggml.eot_token_id", 4);
	read_config(&f, &c);
	assert_true(!c.layer_window[0] && c.layer_window[1] && c.layer_window[5]);
	assert_int_equal(open_model(&f, &m), 0);
	assert_int_equal(gguf_config(m, &text, &error), 0);
	if (!strstr(text, "\"eos_token_id\":\t[1, 4, 3]"))
		fail_msg("%s", text);
	free(text);
	gguf_model_free(m);
	f = (struct file){0};
	gemma(&f);
	key_u32(&f, "gemma3.attention.sliding_window", 16);
	key_array(&f, "gemma3.attention.sliding_window_pattern", GGUF_BOOL, 2);
	put(&f.keys, "\0\1", 2);
	assert_int_equal(open_model(&f, &m), 0);
	assert_int_equal(gguf_config(m, &text, &error), 0);
	assert_int_equal(config_parse(text, strlen(text), &c, &error), -EINVAL);
	expect_words("layer_types: not an array of num_hidden_layers 62");
	free(text);
	gguf_model_free(m);
}

/* A llama of one layer with a number more, as its configuration. */
static void llama_with(const char *name, float value, struct model_config *c)
{
	struct file f = {0};

	llama(&f);
	key_u32(&f, "llama.block_count", 1);
	key_f32(&f, name, value);
	read_config(&f, c);
}

/* A factor alone is a linear one, whichever of its two names it has. */
static void test_factor(void **state)
{
	static struct model_config c;
	struct file f = {0};

	(void)state;
	llama_with("llama.rope.scaling.factor", 4, &c);
	assert_true(c.rope.type == ROPE_LINEAR && c.rope.factor == 4);
	llama_with("llama.rope.scale_linear", 8, &c);
	assert_true(c.rope.type == ROPE_LINEAR && c.rope.factor == 8);
	llama_with("llama.rope.scaling.factor", 0, &c);
	assert_int_equal(c.rope.type, ROPE_DEFAULT);
	llama_with("llama.rope.scaling.factor", 1, &c);
	assert_int_equal(c.rope.type, ROPE_DEFAULT);
	llama(&f);
	key_u32(&f, "llama.block_count", 1);
	key_text(&f, "llama.rope.scaling.type", "none");
	key_f32(&f, "llama.rope.scaling.factor", 4);
	read_config(&f, &c);
	assert_int_equal(c.rope.type, ROPE_DEFAULT);
}

static void qwen2moe(struct file *f)
{
	key_text(f, "general.architecture", "qwen2moe");
	key_u32(f, "qwen2moe.block_count", 1);
	key_u32(f, "qwen2moe.context_length", 64);
	key_u32(f, "qwen2moe.embedding_length", 12);
	key_u32(f, "qwen2moe.attention.head_count", 2);
	key_f32(f, "qwen2moe.attention.layer_norm_rms_epsilon", 1e-6f);
	key_u32(f, "qwen2moe.expert_count", 4);
	key_u32(f, "qwen2moe.expert_used_count", 2);
	key_u32(f, "qwen2moe.expert_feed_forward_length", 8);
	key_u32(f, "qwen2moe.expert_shared_feed_forward_length", 8);
	matrix(f, "token_embd.weight", 12, 4);
	matrix(f, "blk.0.attn_q.bias", 12, 0);
}

/* Routing is the architecture's unless a key says otherwise. */
static void test_routing(void **state)
{
	static struct model_config c;
	struct file f = {0};

	(void)state;
	qwen2moe(&f);
	key_u32(&f, "qwen2moe.expert_gating_func", 1);
	read_config(&f, &c);
	assert_false(c.moe.normalise);
	f = (struct file){0};
	qwen2moe(&f);
	key_u32(&f, "qwen2moe.expert_weights_norm", 1);
	read_config(&f, &c);
	assert_true(c.moe.normalise);
	f = (struct file){0};
	qwen2moe(&f);
	key_u32(&f, "qwen2moe.expert_gating_func", 2);
	expect_config(&f, "qwen2moe.expert_gating_func: 2 is not supported");
}

/* Keys that change the results are not ignored, whatever architecture has them. */
static void test_other_keys(void **state)
{
	static const struct {
		const char *name, *words;
		float value;
	} keys[] = {
		{"llama.attention.scale", "0.5 is not supported", 0.5f},
		{"llama.attention.clamp_kqv", "8 is not supported", 8},
		{"llama.attention.max_alibi_bias", "8 is not supported", 8},
		{"llama.embedding_scale", "12 is not supported, only 1 is", 12},
		{"llama.residual_scale", "0.5 is not supported", 0.5f},
		{"llama.logit_scale", "0.5 is not supported", 0.5f},
		{"llama.use_parallel_residual", "1 is not supported", 1},
		{"llama.rope.scaling.attn_factor", "2 is not supported", 2},
		{"llama.attn_logit_softcapping", "50 is not supported", 50},
		{"llama.final_logit_softcapping", "30 is not supported", 30},
		{"llama.rope.freq_base", "nan is not a finite number", NAN},
		{"llama.rope.freq_base", "inf is not a finite number", INFINITY},
		{"llama.attention.key_length", "inf is not a finite number", INFINITY},
	};
	static struct model_config c;

	(void)state;
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		struct file f = {0};

		llama(&f);
		key_u32(&f, "llama.block_count", 1);
		key_f32(&f, keys[i].name, keys[i].value);
		expect_config(&f, keys[i].name);
		expect_words(keys[i].words);
	}
	llama_with("llama.embedding_scale", 1, &c);
}

static void test_hostile_config(void **state)
{
	struct gguf_model *m;
	struct file f = {0};

	(void)state;
	llama(&f);
	expect_config(&f, "llama.block_count: missing");
	f = (struct file){0};
	llama(&f);
	key_text(&f, "llama.block_count", "1");
	expect_config(&f, "llama.block_count: not a number");
	f = (struct file){0};
	llama(&f);
	key_array(&f, "llama.block_count", GGUF_U8, 2);
	put(&f.keys, "\1\2", 2);
	expect_config(&f, "2 of layer 1, but 1");
	f = (struct file){0};
	llama(&f);
	key_array(&f, "llama.block_count", GGUF_U8, 0);
	expect_config(&f, "not a number");
	f = (struct file){0};
	llama(&f);
	key_u32(&f, "llama.block_count", 1);
	key_u32(&f, "llama.expert_count", 8);
	expect_config(&f, "llama.expert_count: 8 is not supported");
	f = (struct file){0};
	llama(&f);
	key_u32(&f, "llama.block_count", 1);
	key_u32(&f, "llama.rope.dimension_count", 2);
	expect_config(&f, "llama.rope.dimension_count: 2");
	f = (struct file){0};
	llama(&f);
	key_u32(&f, "llama.block_count", 1);
	key_text(&f, "llama.rope.scaling.type", "longrope");
	expect_config(&f, "\"longrope\" is not supported");
	f = (struct file){0};
	llama(&f);
	key_u32(&f, "llama.block_count", 1);
	key_array(&f, "llama.rope.dimension_sections", GGUF_U32, 0);
	expect_config(&f, "llama.rope.dimension_sections");
	f = (struct file){0};
	llama(&f);
	key_u32(&f, "llama.block_count", 1);
	key_u32(&f, "llama.nextn_predict_layers", 1);
	expect_config(&f, "llama.nextn_predict_layers: 1");
	f = (struct file){0};
	gemma(&f);
	expect_config(&f, "gemma3.attention.sliding_window: missing");
	f = (struct file){0};
	gemma(&f);
	key_u32(&f, "gemma3.attention.sliding_window", 16);
	key_u32(&f, "gemma3.attention.sliding_window_pattern", 4);
	expect_config(&f, "gemma3.attention.sliding_window_pattern: 4");
	f = (struct file){0};
	key_text(&f, "general.architecture", "mamba");
	expect_config(&f, "\"mamba\" is not supported (llama");
	f = (struct file){0};
	expect_config(&f, "general.architecture");
	f = (struct file){0};
	key_text(&f, "general.architecture", "gemma3");
	matrix(&f, "blk.0.ssm_a.weight", 8, 0);
	assert_int_equal(open_model(&f, &m), -ENOTSUP);
	expect_words("blk.0.ssm_a.weight");
}

/* Compiles the file as a whole. */
static int compile(const struct file *f)
{
	struct compile_job job = {.options = COMPILE_OPTIONS_DEFAULT, .quiet = true};
	char dir[] = "/tmp/txda-test-XXXXXX", path[64], out[64], command[64];
	const struct bytes *b = whole(f);
	struct compile_result result;
	struct model m;
	FILE *to;
	int r;

	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/m.gguf", dir);
	snprintf(out, sizeof(out), "%s/case", dir);
	to = fopen(path, "w");
	assert_true(to && fwrite(b->at, 1, b->n, to) == b->n && !fclose(to));
	assert_int_equal(model_open(path, &m, &error), 0);
	job.model = &m;
	job.case_path = out;
	r = model_resolve_options(&m, &job.options, &error);
	if (!r)
		r = compile_run(&job, &result, &error);
	model_close(&m);
	snprintf(command, sizeof(command), "rm -r %s", dir);
	assert_int_equal(system(command), 0);
	return r;
}

/* A tensor that is known, but that this model has no use for, changes the results as well. */
static void test_unused(void **state)
{
	static const char *const more[] = {
		"blk.0.attn_q_norm.weight", "blk.0.attn_norm.bias", "blk.0.attn_sinks.weight",
		"blk.0.ffn_gate.bias",	    "output_norm.bias",	    "blk.1.attn_norm.weight",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++) {
		struct file f = {0};

		llama(&f);
		key_u32(&f, "llama.block_count", 1);
		if (!i && compile(&f))
			fail_msg("%s", error.text);
		matrix(&f, more[i], 8, 0);
		assert_int_equal(compile(&f), -ENOTSUP);
		expect_words(more[i]);
		expect_words("not used by llama with a block_count of 1");
	}
}

/* ---- tokenisers ---- */

static int tokenizer(struct file *f, struct gguf_file *ret)
{
	struct gguf *g;
	int r;

	memset(ret, 0, GGUF_FILES * sizeof(*ret));
	assert_int_equal(open_file(f, &g), 0);
	r = gguf_tokenizer(g, ret, &error);
	gguf_close(g);
	return r;
}

static void free_files(struct gguf_file *files)
{
	for (unsigned i = 0; i < GGUF_FILES; i++)
		free(files[i].text);
}

static void expect_tokenizer(struct file *f, const char *what)
{
	struct gguf_file files[GGUF_FILES];

	assert_true(tokenizer(f, files) < 0);
	expect_words(what);
	free_files(files);
}

static const char *const words[] = {"<unk>", "<s>", "</s>", "<0x0A>", "a", "b", "ab"};
#define N_WORDS 7

/* A tokeniser in SentencePiece's way; its scores may be other than as many. */
static void pieces(struct file *f, unsigned scores)
{
	static const int32_t types[] = {2, 3, 3, 6, 1, 1, 1};

	key_text(f, "tokenizer.ggml.model", "llama");
	key_texts(f, "tokenizer.ggml.tokens", words, N_WORDS);
	key_array(f, "tokenizer.ggml.token_type", GGUF_I32, N_WORDS);
	put(&f->keys, types, sizeof(types));
	key_array(f, "tokenizer.ggml.scores", GGUF_F32, scores);
	for (unsigned i = 0; i < scores; i++)
		put(&f->keys, &(float){-(float)i}, 4);
}

static void test_pieces(void **state)
{
	struct gguf_file files[GGUF_FILES];
	cJSON *json, *config, *model;
	struct file f = {0};
	char err[200];

	(void)state;
	pieces(&f, N_WORDS);
	key_u32(&f, "tokenizer.ggml.eos_token_id", 2);
	key_text(&f, "tokenizer.chat_template", "{{ x }}");
	assert_int_equal(tokenizer(&f, files), 0);
	assert_string_equal(files[0].name, "tokenizer.model");
	assert_string_equal(files[1].name, "tokenizer_config.json");
	config = cJSON_Parse(files[1].text);
	assert_string_equal(cJSON_GetObjectItem(config, "eos_token")->valuestring, "</s>");
	assert_string_equal(cJSON_GetObjectItem(config, "chat_template")->valuestring, "{{ x }}");
	assert_true(cJSON_IsTrue(cJSON_GetObjectItem(config, "add_bos_token")));
	assert_int_equal(sentencepiece_convert(files[0].text, files[0].bytes, config, &json, err,
					       sizeof(err)),
			 0);
	model = cJSON_GetObjectItem(json, "model");
	assert_int_equal(cJSON_GetObjectItem(cJSON_GetObjectItem(model, "vocab"), "ab")->valueint,
			 6);
	assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(model, "merges")), 1);
	assert_true(cJSON_IsTrue(cJSON_GetObjectItem(model, "byte_fallback")));
	assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(json, "added_tokens")), 3);
	cJSON_Delete(json);
	cJSON_Delete(config);
	free_files(files);
}

static void test_hostile_tokenizer(void **state)
{
	const char *const broken[] = {"a", "\xe2\x96"};
	struct gguf_file files[GGUF_FILES];
	struct file f = {0};

	(void)state;
	assert_int_equal(tokenizer(&f, files), 0); /* none */
	assert_null(files[0].text);
	key_text(&f, "tokenizer.ggml.model", "bert");
	expect_tokenizer(&f, "\"bert\" is not supported");
	f = (struct file){0};
	key_text(&f, "tokenizer.ggml.model", "gpt2");
	expect_tokenizer(&f, "tokens: missing");
	key_texts(&f, "tokenizer.ggml.tokens", words, N_WORDS);
	expect_tokenizer(&f, "tokenizer.ggml.pre: \"\" is not supported");
	key_text(&f, "tokenizer.ggml.pre", "gpt-2 gpt2");
	expect_tokenizer(&f, "\"gpt-2 gpt2\" is not supported");
	f = (struct file){0};
	key_text(&f, "tokenizer.ggml.model", "gpt2");
	key_text(&f, "tokenizer.ggml.pre", "qwen2");
	key_texts(&f, "tokenizer.ggml.tokens", words, N_WORDS);
	expect_tokenizer(&f, "merges: missing");
	key_texts(&f, "tokenizer.ggml.merges", broken, 2);
	expect_tokenizer(&f, "merges: element 1 is not UTF-8");
	f = (struct file){0};
	pieces(&f, N_WORDS - 1);
	expect_tokenizer(&f, "scores: 6 elements, not 7 to 7");
	f = (struct file){0};
	pieces(&f, N_WORDS);
	key_u32(&f, "tokenizer.ggml.bos_token_id", N_WORDS);
	expect_tokenizer(&f, "bos_token_id: 7 is not one of 7 tokens");
	f = (struct file){0};
	key_text(&f, "tokenizer.ggml.model", "llama");
	key_texts(&f, "tokenizer.ggml.tokens", broken, 2);
	expect_tokenizer(&f, "tokens: element 1");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_config),	       cmocka_unit_test(test_gemma),
		cmocka_unit_test(test_hostile_config), cmocka_unit_test(test_deepseek),
		cmocka_unit_test(test_stacked),	       cmocka_unit_test(test_lists),
		cmocka_unit_test(test_pieces),	       cmocka_unit_test(test_hostile_tokenizer),
		cmocka_unit_test(test_factor),	       cmocka_unit_test(test_other_keys),
		cmocka_unit_test(test_routing),	       cmocka_unit_test(test_unused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
