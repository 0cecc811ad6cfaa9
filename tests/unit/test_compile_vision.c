// SPDX-License-Identifier: MIT
/* Models that see: what is read of their configurations, what is refused and by which name; the
 * coordinates of rotary positions. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "config.h"
#include "family.h"

#define TEXT                                                                                       \
	"\"hidden_size\":64,\"intermediate_size\":128,\"num_hidden_layers\":2,"                    \
	"\"num_attention_heads\":4,\"vocab_size\":528,"                                            \
	"\"rope_scaling\":{\"type\":\"mrope\",\"mrope_section\":[2,3,3]}"
#define QWEN25(extra, tower)                                                                       \
	"{\"model_type\":\"qwen2_5_vl\"," TEXT ",\"image_token_id\":519" extra                     \
	",\"vision_config\":{\"hidden_size\":48,\"num_heads\":4,\"out_hidden_size\":64" tower "}}"
#define LLAVA(extra, tower)                                                                        \
	"{\"model_type\":\"llava_next\",\"image_token_index\":512,\"text_config\":{"               \
	"\"model_type\":\"llama\"," TEXT "}" extra ",\"vision_config\":{\"hidden_size\":64,"       \
	"\"num_attention_heads\":4,\"num_hidden_layers\":4,\"image_size\":24,\"patch_size\":"      \
	"6" tower "},\"image_grid_pinpoints\":[[24,48],[72,24]]}"
#define QWEN3(tower)                                                                               \
	"{\"model_type\":\"qwen3_vl\",\"image_token_id\":519,\"text_config\":{\"head_dim\":"       \
	"16," TEXT "},\"vision_config\":{\"hidden_size\":40,\"num_heads\":2,\"depth\":4,"          \
	"\"out_hidden_size\":64" tower "}}"

static struct tool_error error;

static void expect_ok(const char *text, struct model_config *c)
{
	if (config_parse(text, strlen(text), c, &error))
		fail_msg("%s", error.text);
}

/* The error names @what. */
static void expect_error(const char *text, const char *what)
{
	struct model_config c;

	assert_true(config_parse(text, strlen(text), &c, &error) < 0);
	if (!strstr(error.text, what))
		fail_msg("\"%s\" does not say \"%s\"", error.text, what);
}

static void test_windows(void **state)
{
	struct model_config c;

	(void)state;
	expect_ok(QWEN25("", ",\"window_size\":112,\"patch_size\":14"), &c);
	assert_string_equal(c.model_type, "qwen2_5_vl");
	assert_true(c.family == &family_qwen2_vl && c.qkv_bias);
	assert_int_equal(c.vision.window, 4);
	assert_int_equal(c.vision.rows, 4);
	assert_int_equal(c.vision.depth, 32);
	assert_true(c.vision.whole[7] && c.vision.whole[31] && !c.vision.whole[8]);
	assert_int_equal(c.vision.act, TXDA_ACT_SILU);
	assert_int_equal(c.mrope.section[2], 3);
	/* Of a small tower only those of the default layers count that it has. */
	expect_ok(QWEN25("", ",\"depth\":9"), &c);
	assert_true(c.vision.whole[7]);
	expect_ok(QWEN25("", ",\"fullatt_block_indexes\":[0]"), &c);
	assert_true(c.vision.whole[0] && !c.vision.whole[7]);
	expect_error(QWEN25("", ",\"window_size\":27"), "window_size: 27");
	expect_error(QWEN25("", ",\"fullatt_block_indexes\":[32]"), "fullatt_block_indexes");
	expect_error(QWEN25("", ",\"fullatt_block_indexes\":7"), "fullatt_block_indexes");
	expect_error(QWEN25("", ",\"hidden_act\":\"gelu\""), "hidden_act");
	expect_error(QWEN25("", ",\"in_channels\":1"), "in_channels");
	expect_error(QWEN25("", ",\"spatial_merge_size\":9"), "spatial_merge_size");
}

static void test_tower_sizes(void **state)
{
	(void)state;
	expect_error("{\"model_type\":\"qwen2_vl\"," TEXT ",\"image_token_id\":1}",
		     "vision_config: not an object");
	expect_error("{\"model_type\":\"qwen2_5_vl\"," TEXT ",\"image_token_id\":519,"
		     "\"vision_config\":{\"hidden_size\":50,\"num_heads\":4}}",
		     "hidden_size: 50 is not a multiple");
	expect_error("{\"model_type\":\"qwen2_5_vl\"," TEXT ",\"image_token_id\":519,"
		     "\"vision_config\":{\"hidden_size\":40,\"num_heads\":4}}",
		     "hidden_size: 40 / num_heads 4");
	expect_error(
		"{\"model_type\":\"qwen2_5_vl\"," TEXT ",\"image_token_id\":519,"
		"\"vision_config\":{\"hidden_size\":48,\"num_heads\":4,\"out_hidden_size\":32}}",
		"embeddings of 32 elements");
	expect_error(
		"{\"model_type\":\"qwen2_5_vl\"," TEXT ",\"image_token_id\":528,"
		"\"vision_config\":{\"hidden_size\":48,\"num_heads\":4,\"out_hidden_size\":64}}",
		"image_token_id: 528");
	expect_error(
		"{\"model_type\":\"qwen2_5_vl\"," TEXT ","
		"\"vision_config\":{\"hidden_size\":48,\"num_heads\":4,\"out_hidden_size\":64}}",
		"image_token_id: missing");
}

static void test_deepstack(void **state)
{
	struct model_config c;

	(void)state;
	expect_ok(QWEN3(",\"deepstack_visual_indexes\":[0,2],\"num_position_embeddings\":25"), &c);
	assert_int_equal(c.vision.n_deep, 2);
	assert_int_equal(c.vision.deep[1], 2);
	assert_int_equal(c.vision.side, 5);
	assert_int_equal(c.vision.act, TXDA_ACT_GELU_TANH);
	assert_true(c.qk_norm);
	expect_error(QWEN3(",\"num_position_embeddings\":26"), "num_position_embeddings: 26");
	expect_error(QWEN3(",\"deepstack_visual_indexes\":[0,4]"), "deepstack_visual_indexes");
	expect_error(QWEN3(",\"deepstack_visual_indexes\":[2,0,2]"), "layer 2 is there twice");
	expect_error(QWEN3(",\"hidden_act\":\"relu\""), "hidden_act: \"relu\"");
}

#define QWEN35(type, text, tower)                                                                  \
	"{\"model_type\":\"" type "\",\"image_token_id\":519,\"text_config\":{\"head_dim\":32,"    \
	"\"hidden_size\":64,\"intermediate_size\":128,\"num_hidden_layers\":4,"                    \
	"\"num_attention_heads\":4,\"vocab_size\":528" text "},\"vision_config\":{"                \
	"\"hidden_size\":40,\"num_heads\":2,\"depth\":4,\"out_hidden_size\":64" tower "}}"

/* A tower without taps before a text whose layers differ; coordinates interleave unless said. */
static void test_hybrid(void **state)
{
	struct model_config c;

	(void)state;
	expect_ok(QWEN35("qwen3_5",
			 ",\"rope_parameters\":{\"mrope_section\":[2,1,1],\"rope_theta\":5e5}",
			 ",\"rope_parameters\":{\"rope_type\":\"axial\",\"rope_theta\":500}"),
		  &c);
	assert_int_equal(c.vision.n_deep, 0);
	assert_true(c.vision.rope_theta == 500 && c.rope.theta == 5e5);
	assert_int_equal(c.rope_dim, 8);
	assert_true(c.mrope.interleaved && c.mrope.section[0] == 2);
	assert_true(c.attention_gate && c.delta.layer[2] && !c.delta.layer[3]);
	expect_ok(QWEN35("qwen3_5_moe", ",\"num_experts\":8,\"moe_intermediate_size\":32", ""), &c);
	assert_int_equal(c.moe.n_experts, 8);
	assert_int_equal(c.mrope.section[2], 10);
	assert_true(c.vision.rope_theta == 10000);
	expect_error(QWEN35("qwen3_5", "", ",\"rope_parameters\":{\"rope_type\":\"yarn\"}"),
		     "vision_config: rope_parameters: rope_type: \"yarn\"");
	expect_error(QWEN35("qwen3_5", ",\"attn_output_gate\":false", ""), "attn_output_gate");
	expect_error(QWEN35("qwen3_5", ",\"rope_parameters\":{\"mrope_section\":7}", ""),
		     "mrope_section");
	expect_error(QWEN35("qwen3_5", ",\"layer_types\":[\"full_attention\"]", ""), "layer_types");
}

#define MINICPM(extra, tower)                                                                      \
	"{\"model_type\":\"minicpmv4_6\",\"image_token_id\":512,\"insert_layer_id\":1,"            \
	"\"text_config\":{\"model_type\":\"qwen3_5_text\",\"head_dim\":16," TEXT "}" extra         \
	",\"vision_config\":{\"hidden_size\":40,\"num_attention_heads\":4,\"num_hidden_layers\":"  \
	"4,"                                                                                       \
	"\"image_size\":50,\"patch_size\":4" tower "}}"

/* Two merges, one of them between two layers, or only the last; plain positions in the text. */
static void test_slices(void **state)
{
	struct model_config c;

	(void)state;
	expect_ok(MINICPM("", ""), &c);
	assert_true(c.family == &family_qwen3_5);
	assert_int_equal(c.mrope.section[0], 0);
	assert_int_equal(c.vision.shrink, 1);
	assert_int_equal(c.vision.merge, 4);
	assert_int_equal(c.vision.rows, 16);
	assert_int_equal(c.vision.window, 2);
	assert_int_equal(c.vision.side, 12);
	assert_int_equal(c.vision.act, TXDA_ACT_GELU_TANH);
	expect_ok(MINICPM(",\"downsample_mode\":\"4x\"", ",\"layer_norm_eps\":0.5"), &c);
	assert_int_equal(c.vision.merge, 2);
	assert_int_equal(c.vision.window, 0);
	assert_true(c.vision.eps == 0.5f && c.vision.merge_eps == 1e-6f);
	expect_error(MINICPM(",\"downsample_mode\":\"8x\"", ""), "downsample_mode: \"8x\"");
	expect_error(MINICPM(",\"merger_times\":2", ""), "merger_times: 2");
	expect_error(MINICPM(",\"merge_kernel_size\":[2,3]", ""), "merge_kernel_size");
	expect_error(MINICPM(",\"drop_vision_last_layer\":true", ""), "drop_vision_last_layer");
	expect_error(MINICPM("", ",\"window_kernel_size\":[4,4]"), "window_kernel_size");
	expect_error(MINICPM("", ",\"window_kernel_size\":2"), "window_kernel_size");
	expect_error(MINICPM("", ",\"num_channels\":1"), "num_channels");
	expect_error("{\"model_type\":\"minicpmv4_6\",\"image_token_id\":512,\"text_config\":{"
		     "\"model_type\":\"llama\"," TEXT "},\"vision_config\":{\"hidden_size\":40,"
		     "\"num_attention_heads\":4,\"num_hidden_layers\":4}}",
		     "insert_layer_id: missing");
	expect_error("{\"model_type\":\"minicpmv4_6\",\"image_token_id\":512,\"text_config\":{"
		     "\"model_type\":\"llama\"," TEXT "},\"insert_layer_id\":4,\"vision_config\":{"
		     "\"hidden_size\":40,\"num_attention_heads\":4,\"num_hidden_layers\":4}}",
		     "insert_layer_id: 4");
}

static void test_tiles(void **state)
{
	struct model_config c;

	(void)state;
	expect_ok(LLAVA("", ""), &c);
	assert_true(c.family == &family_llama);
	assert_int_equal(c.vision.depth, 3); /* the state before the last layer */
	assert_int_equal(c.vision.side, 4);
	assert_int_equal(c.vision.rows, 17);
	assert_int_equal(c.vision.n_pinpoints, 2);
	assert_int_equal(c.mrope.section[0], 0);
	expect_ok(LLAVA(",\"vision_feature_layer\":-1", ""), &c);
	assert_int_equal(c.vision.depth, 4);
	expect_ok(LLAVA(",\"vision_feature_layer\":1", ""), &c);
	assert_int_equal(c.vision.depth, 1);
	expect_error(LLAVA(",\"vision_feature_layer\":5", ""),
		     "vision_feature_layer: layer 5 of 4 does not exist");
	expect_error(LLAVA(",\"vision_feature_layer\":[-2,-3]", ""), "vision_feature_layer");
	expect_error(LLAVA(",\"vision_feature_select_strategy\":\"full\"", ""),
		     "vision_feature_select_strategy");
	expect_error(LLAVA("", ",\"model_type\":\"siglip_vision_model\""), "siglip_vision_model");
	expect_error(LLAVA(",\"projector_hidden_act\":\"relu\"", ""), "projector_hidden_act");
	expect_error(
		"{\"model_type\":\"llava_next\",\"text_config\":{\"model_type\":\"qwen2_vl\"}}",
		"model_type");
	expect_error("{\"model_type\":\"llava_next\"}", "model_type");
}

static void test_axes(void **state)
{
	static const uint32_t apart[8] = {0, 0, 1, 1, 1, 2, 2, 2},
			      woven[8] = {0, 1, 2, 0, 1, 2, 0, 0};
	struct mrope_config m = {{2, 3, 3}, false};
	uint32_t axes[8];

	(void)state;
	assert_int_equal(mrope_axes(&m, 8, axes, &error), 0);
	assert_memory_equal(axes, apart, sizeof(axes));
	m = (struct mrope_config){{4, 2, 2}, true};
	assert_int_equal(mrope_axes(&m, 8, axes, &error), 0);
	assert_memory_equal(axes, woven, sizeof(axes));
	assert_true(mrope_axes(&m, 7, axes, &error) < 0);
	assert_non_null(strstr(error.text, "mrope_section"));
}

/* Released LLaVA-NeXT checkpoints say of their text only what its family does not have anyway. */
static void test_usual_text(void **state)
{
	static const char vicuna[] =
		"{\"model_type\":\"llava_next\",\"image_token_index\":32000,\"vision_feature_"
		"layer\":-2,"
		"\"text_config\":{\"model_type\":\"%s\"%s},\"vision_config\":{\"hidden_size\":1024,"
		"\"image_size\":336,\"intermediate_size\":4096,\"num_attention_heads\":16,"
		"\"num_hidden_layers\":24,\"patch_size\":14}}";
	struct model_config c;
	char text[600];

	(void)state;
	snprintf(text, sizeof(text), vicuna, "llama", ",\"vocab_size\":32064");
	expect_ok(text, &c);
	assert_true(c.hidden_size == 4096 && c.intermediate_size == 11008 && c.n_layers == 32);
	assert_true(c.n_heads == 32 && c.n_kv_heads == 32 && c.vocab_size == 32064);
	assert_true(c.vision.depth == 23 && c.vision.out == 4096);
	snprintf(text, sizeof(text), vicuna, "mistral",
		 ",\"vocab_size\":32064,\"num_key_value_heads\":8,\"sliding_window\":null");
	expect_ok(text, &c);
	assert_true(c.intermediate_size == 14336 && c.n_kv_heads == 8 && c.head_dim == 128);
	snprintf(text, sizeof(text), vicuna, "qwen2", ",\"hidden_size\":2048");
	expect_ok(text, &c);
	assert_true(c.hidden_size == 2048 && c.intermediate_size == 22016);
	assert_true(c.vocab_size == 151936 && c.head_dim == 64);
	snprintf(text, sizeof(text), vicuna, "qwen3", "");
	expect_error(text, "hidden_size: missing");
	/* At the top all must be there. */
	expect_error("{\"model_type\":\"llama\",\"vocab_size\":32064}", "hidden_size: missing");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_windows),	  cmocka_unit_test(test_tower_sizes),
		cmocka_unit_test(test_deepstack), cmocka_unit_test(test_tiles),
		cmocka_unit_test(test_slices),	  cmocka_unit_test(test_hybrid),
		cmocka_unit_test(test_axes),	  cmocka_unit_test(test_usual_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
