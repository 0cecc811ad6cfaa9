// SPDX-License-Identifier: MIT
/* The program builder against the checker: what is built passes, scratch tensors that live together
 * never overlap, and damage is found. */
#include <errno.h>

#include "unit.h"
#include "crc32c.h"
#include "graph.h"
#include "model.h"
#include "program.h"
#include "program_view.h"

static struct tool_error error;
static const uint32_t sym_max[TXDA_SYM_COUNT] = {0, 64, 8, 8, 4, 1000};

/* A chain of norms with a long-lived tensor across it. */
static void *build_chain(size_t *ret_bytes, unsigned length)
{
	struct program *p = program_new("chain", 1, 0, sym_max);
	uint32_t weights = program_add_slot(p, "weights", TXDA_SLOT_WEIGHTS, 4096);
	uint32_t scratch = program_add_slot(p, "scratch", TXDA_SLOT_SCRATCH, 0);
	uint32_t w, first, last, next;
	struct txda_op *op;
	void *data;
	unsigned i;

	w = program_add_tensor(p, &(struct program_tensor){
					  .name = "w",
					  .slot = weights,
					  .dtype = TXDA_F32,
					  .ndim = 1,
					  .dim = {PROGRAM_DIM(24)},
				  });
	first = last = program_add_scratch(p, scratch, "first", TXDA_F32, PROGRAM_SYM(T), 24);
	for (i = 0; i < length; i++) {
		next = program_add_scratch(p, scratch, program_label(p, "t%u", i), TXDA_F32,
					   PROGRAM_SYM(T), 24);
		op = program_add_op(p, TXDA_OP_RMSNORM, program_label(p, "norm %u", i));
		op->in[0] = i == length - 1 ? first : last;
		op->in[1] = w;
		op->out[0] = next;
		op->rmsnorm.eps = 1e-5f;
		last = next;
	}
	assert_int_equal(program_finish(p, &data, ret_bytes, &error), 0);
	/* Three tensors live at once: first, the last and the next. */
	assert_int_equal(program_slot_bytes(p, scratch), 3 * 64 * 24 * 4);
	program_free(p);
	return data;
}

TEST(test_chain)
{
	struct program_view v;
	size_t bytes;
	void *data = build_chain(&bytes, 20);

	assert_int_equal(program_view(data, bytes, &v, &error), 0);
	assert_int_equal(v.header->n_ops, 20);
	assert_int_equal(v.header->n_tensors, 22);
	assert_string_equal(program_name(&v, v.header->name), "chain");
	assert_string_equal(program_name(&v, v.ops[3].label), "norm 3");
	free(data);
}

/* No two scratch tensors that live at the same time share a byte. */
static void check_liveness(const struct program_view *v)
{
	uint32_t n = v->header->n_tensors, i, j, k;
	struct {
		uint32_t first, last;
	} *live = calloc(n, sizeof(*live));

	for (i = 0; i < n; i++)
		live[i].first = TXDA_NONE;
	for (i = 0; i < v->header->n_ops; i++) {
		for (k = 0; k < 9; k++) {
			uint32_t t = k < 6 ? v->ops[i].in[k] : v->ops[i].out[k - 6];

			if (t == TXDA_NONE)
				continue;
			if (live[t].first == TXDA_NONE)
				live[t].first = i;
			live[t].last = i;
		}
	}
	for (i = 0; i < n; i++) {
		const struct txda_tensor *a = &v->tensors[i];

		if (v->slots[a->slot].kind != TXDA_SLOT_SCRATCH)
			continue;
		assert_int_equal(a->flags, TXDA_TENSOR_ACTIVATION);
		for (j = 0; j < i; j++) {
			const struct txda_tensor *b = &v->tensors[j];

			if (b->slot != a->slot || live[i].first > live[j].last ||
			    live[j].first > live[i].last)
				continue;
			assert_true(a->offset + program_tensor_bytes(v, a) <= b->offset ||
				    b->offset + program_tensor_bytes(v, b) <= a->offset);
		}
	}
	free(live);
}

static void build_model(const char *config, uint32_t tp, enum weight_mode weights)
{
	struct compile_options o = COMPILE_OPTIONS_DEFAULT;
	struct model m = {.name = "m"};
	uint32_t rank;

	assert_int_equal(config_parse(config, strlen(config), &m.config, &error), 0);
	o.tp = tp;
	o.weights = weights;
	assert_int_equal(model_resolve_options(&m, &o, &error), 0);
	for (rank = 0; rank < tp; rank++) {
		struct compiled_chip chip;
		struct program_view v;

		if (graph_build(&m.config, &m.source, &o, rank, &chip, &error))
			fail_msg("%s", error.text);
		assert_int_equal(program_view(chip.kcore, chip.kcore_bytes, &v, &error), 0);
		check_liveness(&v);
		compiled_chip_free(&chip);
	}
}

TEST(test_graphs)
{
	static const char *const configs[] = {
		"{\"model_type\":\"llama\",\"hidden_size\":90,\"intermediate_size\":250,\"num_"
		"hidden_layers\":3,"
		"\"num_attention_heads\":8,\"num_key_value_heads\":2,\"head_dim\":6,\"vocab_size\":"
		"517,"
		"\"attention_bias\":true,\"mlp_bias\":true}",
		"{\"model_type\":\"qwen3\",\"hidden_size\":64,\"intermediate_size\":100,\"num_"
		"hidden_layers\":2,"
		"\"num_attention_heads\":4,\"num_key_value_heads\":4,\"head_dim\":32,\"vocab_"
		"size\":300,"
		"\"tie_word_embeddings\":true}",
		"{\"model_type\":\"qwen2\",\"hidden_size\":64,\"intermediate_size\":100,\"num_"
		"hidden_layers\":2,"
		"\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":300,\"use_"
		"sliding_window\":true,"
		"\"sliding_window\":16,\"max_window_layers\":1}",
	};
	unsigned i;
	int w;

	for (i = 0; i < 3; i++) {
		for (w = WEIGHTS_KEEP; w <= WEIGHTS_W4; w++) {
			build_model(configs[i], 1, (enum weight_mode)w);
			build_model(configs[i], 2, (enum weight_mode)w);
			build_model(configs[i], 4, (enum weight_mode)w);
		}
	}
}

/* Each known shape has a graph. */
TEST(test_shapes)
{
	char list[256], *at = list, *name;

	model_synthetic_list(list, sizeof(list));
	while ((name = strsep(&at, ", ")) != NULL) {
		struct model m;

		if (!*name)
			continue;
		if (model_open_synthetic(name, &m, &error))
			fail_msg("%s", error.text);
		for (int w = WEIGHTS_KEEP; w <= WEIGHTS_W4; w++)
			build_model(m.config_text, 1, (enum weight_mode)w);
		model_close(&m);
	}
}

/* How many products take unrounded inputs, of the experts and of the others. */
static void count_unrounded(const char *config, unsigned *experts, unsigned *others)
{
	struct compile_options o = COMPILE_OPTIONS_DEFAULT;
	struct compiled_chip chip;
	struct program_view v;
	struct model m;

	if (model_open_text("m", config, &m, &error))
		fail_msg("%s", error.text);
	assert_int_equal(model_resolve_options(&m, &o, &error), 0);
	assert_int_equal(graph_build(&m.config, &m.source, &o, 0, &chip, &error), 0);
	assert_int_equal(program_view(chip.kcore, chip.kcore_bytes, &v, &error), 0);
	*experts = *others = 0;
	for (uint32_t i = 0; i < v.header->n_ops; i++) {
		const struct txda_op *op = &v.ops[i];

		if (op->op == TXDA_OP_MOE_LINEAR) {
			bool f32 = op->moe_linear.flags & TXDA_LINEAR_F32_INPUT;

			*(op->moe_linear.n_experts ? experts : others) += f32;
			if (op->moe_linear.act)
				assert_int_equal(v.tensors[op->out[0]].dtype,
						 f32 ? TXDA_F32 : TXDA_BF16);
		} else if (op->op == TXDA_OP_LINEAR) {
			*others += op->linear.flags & TXDA_LINEAR_F32_INPUT ? 1 : 0;
		}
	}
	compiled_chip_free(&chip);
	model_close(&m);
}

#define TWO_LAYERS(type, more)                                                                     \
	"{\"model_type\":\"" type "\",\"hidden_size\":64,\"intermediate_size\":96,"                \
	"\"moe_intermediate_size\":48,\"num_hidden_layers\":2,\"num_attention_heads\":4,"          \
	"\"num_key_value_heads\":4,\"vocab_size\":300,\"num_experts_per_tok\":2," more "}"
#define LATENT                                                                                     \
	"\"kv_lora_rank\":32,\"qk_rope_head_dim\":16,\"qk_nope_head_dim\":16,\"v_head_dim\":16,"   \
	"\"n_routed_experts\":8,\"first_k_dense_replace\":1,\"n_group\":1,\"topk_group\":1"
#define GLM                                                                                        \
	"\"n_routed_experts\":8,\"n_shared_experts\":1,\"first_k_dense_replace\":1,\"n_group\":1," \
	"\"topk_group\":1,\"num_nextn_predict_layers\":0"

/*
 * Inputs of experts stay unrounded where attention's do: where no norm bounds the softmax. A
 * router's always do.
 */
TEST(test_rounding)
{
	static const struct {
		const char *config;
		unsigned experts, others;
	} cases[] = {
		{TWO_LAYERS("qwen3_moe", "\"num_experts\":8"), 0, 2},
		/* and q, k and v, output */
		{TWO_LAYERS("qwen2_moe",
			    "\"num_experts\":8,\"shared_expert_intermediate_size\":48"),
		 4, 2 + 2 + 4 + 2 * 2},
		{TWO_LAYERS("deepseek_v3", LATENT ",\"q_lora_rank\":24"), 0, 1},
		/* q (nope, rope), kv_a, q_latent, v, output; a dense layer; a shared expert */
		{TWO_LAYERS("deepseek_v3", LATENT), 2, 1 + 2 * 6 + 2 + 2},
		/* also q_a, and the indexer's q, k and weights */
		{TWO_LAYERS("deepseek_v32", LATENT ",\"q_lora_rank\":24,\"index_n_heads\":4,"
						   "\"index_head_dim\":32"),
		 2, 1 + 2 * 10 + 2 + 2},
		{TWO_LAYERS("glm4_moe", GLM ",\"use_qk_norm\":true"), 0, 1},
		{TWO_LAYERS("glm4_moe", GLM), 2, 1 + 2 * 2 + 2 + 2},
	};

	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		unsigned experts, others;

		count_unrounded(cases[i].config, &experts, &others);
		assert_int_equal(experts, cases[i].experts);
		assert_int_equal(others, cases[i].others);
	}
}

#define TILES(height, width)                                                                       \
	"{\"model_type\":\"llava_next\",\"image_token_index\":512,\"text_config\":{"               \
	"\"model_type\":\"llama\",\"hidden_size\":64,\"intermediate_size\":128,"                   \
	"\"num_hidden_layers\":1,\"num_attention_heads\":4,\"vocab_size\":528},"                   \
	"\"vision_config\":{\"hidden_size\":64,\"intermediate_size\":96,\"num_attention_heads\":"  \
	"4,"                                                                                       \
	"\"num_hidden_layers\":2,\"image_size\":24,\"patch_size\":6},"                             \
	"\"image_grid_pinpoints\":[[24,48],[" height "," width "]]}"

/* Grids of images up to what readers of a case dir take, where 32 bits would hold less, too. */
TEST(test_tiles)
{
	static const struct {
		const char *config, *error;
	} cases[] = {
		{TILES("24576", "24552"), "an image of 1047553 tiles has 20951060 tokens"},
		{TILES("65520", "65520"), "an image of 7452901 tiles has 149058020 tokens"},
	};
	struct compile_options o = COMPILE_OPTIONS_DEFAULT;

	o.tp = 1;
	build_model(TILES("19200", "24000"), 1, WEIGHTS_KEEP);
	for (unsigned i = 0; i < 2; i++) {
		struct model m = {.name = "m"};
		struct compiled_chip chip;

		assert_int_equal(
			config_parse(cases[i].config, strlen(cases[i].config), &m.config, &error),
			0);
		assert_int_equal(model_resolve_options(&m, &o, &error), 0);
		assert_int_equal(graph_build(&m.config, &m.source, &o, 0, &chip, &error), -EINVAL);
		if (!strstr(error.text, cases[i].error) ||
		    !strstr(error.text, "the limits are 1048576 and 16777216"))
			fail_msg("%s", error.text);
	}
}

static void seal(uint8_t *data, size_t bytes)
{
	uint32_t crc;

	memset(data + offsetof(struct txda_program, crc32c), 0, 4);
	crc = crc32c(0, data, bytes);
	memcpy(data + offsetof(struct txda_program, crc32c), &crc, 4);
}

static void expect_bad(uint8_t *data, size_t bytes, const char *what)
{
	struct program_view v;

	seal(data, bytes);
	assert_true(program_view(data, bytes, &v, &error) < 0);
	if (!strstr(error.text, what))
		fail_msg("\"%s\" does not say \"%s\"", error.text, what);
}

TEST(test_damage)
{
	size_t bytes, i;
	uint8_t *good = build_chain(&bytes, 4), *data = malloc(bytes);
	struct txda_program *h = (struct txda_program *)data;
	struct txda_tensor *t;
	struct program_view v;
	struct txda_op *op;

	assert_non_null(data);
	/* Any changed byte breaks the checksum, any cut the size. */
	for (i = 0; i < bytes; i += 7) {
		memcpy(data, good, bytes);
		data[i] ^= 0x10;
		assert_true(program_view(data, bytes, &v, &error) < 0);
		assert_true(program_view(good, i, &v, &error) < 0);
	}
#define DAMAGE(statement, what)                                                                    \
	do {                                                                                       \
		memcpy(data, good, bytes);                                                         \
		t = (struct txda_tensor *)(data + h->tensors_off);                                 \
		op = (struct txda_op *)(data + h->ops_off);                                        \
		statement;                                                                         \
		expect_bad(data, bytes, what);                                                     \
	} while (0)
	DAMAGE(h->major = 2, "version 2.");
	DAMAGE(h->n_slots = 65, "65 slots");
	DAMAGE(h->rank = 1, "rank 1");
	DAMAGE(h->reserved[7] = 1, "reserved");
	DAMAGE(h->sym_max[TXDA_SYM_T] = 0, "symbol T");
	DAMAGE(h->n_ops = 0x4000000, "ops");
	DAMAGE(h->tensors_off += 4, "tensors at offset");
	DAMAGE(h->strings_bytes--, "");
	DAMAGE(h->name = 1u << 30, "name is outside");
	DAMAGE(t[1].slot = 9, "slot 9");
	DAMAGE(t[1].offset += 32, "multiple of 64");
	DAMAGE(t[1].offset = 1ull << 63, "do not fit");
	DAMAGE(t[1].dim[1].mul = 0xffffffff, "do not fit");
	DAMAGE(t[1].dim[0].sym = 6, "dimension 0");
	DAMAGE(t[1].ndim = 5, "5 dimensions");
	DAMAGE(t[1].group = 32, "group of 32");
	DAMAGE(op[1].op = TXDA_OP_COUNT, "opcode");
	DAMAGE(op[1].in[0] = TXDA_NONE, "input 0 is missing");
	DAMAGE(op[1].in[1] = 99, "tensor 99 of 6");
	DAMAGE(op[1].in[3] = 0, "not wanted");
	DAMAGE(op[1].out[0] = 0, "do not fit the op");
	DAMAGE(op[1].raw[1] = 1, "parameter word 1");
	DAMAGE(op[1].label = 1u << 20, "label");
	free(good);
	free(data);
}

TEST_MAIN
