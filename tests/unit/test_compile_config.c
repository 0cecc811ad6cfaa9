// SPDX-License-Identifier: MIT
/*
 * config.json: both spellings, defaults, limits, models that see, and the rope schemes against
 * values worked out by other means.
 */
#include <errno.h>
#include <math.h>

#include "unit.h"
#include "case_file.h"
#include "config_members.h"
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

#define TEXT                                                                                       \
	"\"hidden_size\":64,\"intermediate_size\":128,\"num_hidden_layers\":2,\"num_attention_"    \
	"heads\":4,\"vocab_size\":528,\"rope_scaling\":{\"type\":\"mrope\",\"mrope_section\":[2,"  \
	"3,3]}"

/* A config.json, and members with their values or "!" and words of the error. */
static void check_row(const char *row, const char *sizes, char *want)
{
	const char *at = strchr(row, '@');
	struct model_config c;
	char text[2048];
	int r;

	snprintf(text, sizeof(text), "%.*s%s%s", at ? (int)(at - row) : (int)strlen(row), row,
		 at ? sizes : "", at ? at + 1 : "");
	r = parse(text, &c);
	if (want[0] == '!') {
		if (!r || !strstr(error.text, want + 1))
			fail_msg("%s: %d, \"%s\" does not say \"%s\"", row, r, error.text,
				 want + 1);
		return;
	}
	if (r)
		fail_msg("%s: %s", row, error.text);
	expect_members(row, &c, want);
}

static void check_text(char **field)
{
	check_row(field[0], SIZES, field[1]);
}

static void check_vision(char **field)
{
	check_row(field[0], TEXT, field[1]);
}

#define CASES(name, section, check)                                                                \
	TEST(test_##name)                                                                          \
	{                                                                                          \
		each_case("configs.txt", section, check);                                          \
	}
CASES(defaults, "defaults", check_text)
CASES(family_defaults, "family defaults", check_text)
CASES(families, "families", check_text)
CASES(experts, "experts", check_text)
CASES(window, "window", check_text)
CASES(sparse_layers, "sparse layers", check_text)
CASES(gemma, "gemma", check_text)
CASES(gemma_errors, "gemma errors", check_text)
CASES(text_only, "text only", check_text)
CASES(text_quantisation, "text quantisation", check_text)
CASES(gpt_oss, "gpt oss", check_text)
CASES(mixed, "mixed", check_text)
CASES(symmetry, "symmetry", check_text)
CASES(placement, "placement", check_text)
CASES(rope_places, "rope places", check_text)
CASES(context, "context", check_text)
CASES(errors, "errors", check_text)
CASES(vision_windows, "vision: windows", check_vision)
CASES(vision_tower_sizes, "vision: tower sizes", check_vision)
CASES(vision_deepstack, "vision: deepstack", check_vision)
CASES(vision_hybrid, "vision: hybrid", check_vision)
CASES(vision_slices, "vision: slices", check_vision)
CASES(vision_tiles, "vision: tiles", check_vision)
CASES(vision_usual_text, "vision: usual text", check_vision)

TEST(test_spellings)
{
	struct model_config a, b;

	expect_ok("{\"model_type\":\"llama\"," SIZES
		  ",\"rope_theta\":500000.0,\"torch_dtype\":\"bfloat16\",\"rope_scaling\":{"
		  "\"type\":\"linear\",\"factor\":4.0},\"head_dim\":null}",
		  &a);
	expect_ok("{\"model_type\":\"llama\"," SIZES
		  ",\"dtype\":\"bfloat16\",\"eos_token_id\":[1,2],\"rope_parameters\":{\"rope_"
		  "type\":\"linear\",\"factor\":4,\"rope_theta\":500000}}",
		  &b);
	assert_memory_equal(&a, &b, sizeof(a));
	assert_int_equal(a.rope.type, ROPE_LINEAR);
	assert_true(a.rope.factor == 4 && a.rope.theta == 500000);
	expect_ok("{\"model_type\":\"llama\"," SIZES
		  ",\"rope_scaling\":null,\"rope_parameters\":null}",
		  &a);
	assert_int_equal(a.rope.type, ROPE_DEFAULT);
}

/* The layer that predicts a token more comes behind as many as there may be, and has experts. */
TEST(test_most_layers)
{
	struct model_config c;

	expect_ok("{\"model_type\":\"deepseek_v3\",\"hidden_size\":96,\"intermediate_size\":256,"
		  "\"num_hidden_layers\":1024,\"num_attention_heads\":6,\"vocab_size\":512,\"kv_"
		  "lora_rank\":32,\"q_lora_rank\":24,\"qk_nope_head_dim\":16,\"qk_rope_head_dim\":"
		  "8,\"v_head_dim\":16,\"n_routed_experts\":16,\"moe_intermediate_size\":32,\"num_"
		  "nextn_predict_layers\":1}",
		  &c);
	assert_int_equal(c.n_layers + 1, sizeof(c.moe.layer));
	assert_int_equal(sizeof(c.delta.layer), sizeof(c.moe.layer));
	assert_int_equal(sizeof(c.layer_window), sizeof(c.moe.layer));
	assert_true(c.moe.layer[c.n_layers]);
}

static void expect_close(float got, double want)
{
	if (!(fabs((double)got - want) <= 3e-7 * fabs(want)))
		fail_msg("%.9g, expected %.9g", (double)got, want);
}

TEST(test_rope_default_linear_dynamic)
{
	struct rope_config rope = {.theta = 500000, .factor = 4};
	struct txda_op_rope_table t;
	float f[32];
	unsigned i;

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
TEST(test_rope_llama3)
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

TEST(test_rope_yarn)
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

/* The coordinates of rotary positions. */
TEST(test_axes)
{
	static const uint32_t apart[8] = {0, 0, 1, 1, 1, 2, 2, 2},
			      woven[8] = {0, 1, 2, 0, 1, 2, 0, 0};
	struct mrope_config m = {{2, 3, 3}, false};
	uint32_t axes[8];

	assert_int_equal(mrope_axes(&m, 8, axes, &error), 0);
	assert_memory_equal(axes, apart, sizeof(axes));
	m = (struct mrope_config){{4, 2, 2}, true};
	assert_int_equal(mrope_axes(&m, 8, axes, &error), 0);
	assert_memory_equal(axes, woven, sizeof(axes));
	assert_true(mrope_axes(&m, 7, axes, &error) < 0);
	assert_non_null(strstr(error.text, "mrope_section"));
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

TEST(test_shards)
{
	struct model_config c = {
		.n_heads = 24, .n_kv_heads = 8, .head_dim = 64, .hidden_size = 512};
	struct shard s;
	uint32_t tp;

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

TEST_MAIN
