// SPDX-License-Identifier: MIT
/* GGUF files: good ones, each way in which a header can lie, and what the metadata comes to. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <unistd.h>
#include <cmocka.h>

#include "check.h"
#include "config.h"
#include "ggml.h"
#include "gguf_model.h"
#include "gguf_name.h"
#include "k_order.h"
#include "pack.h"
#include "param.h"
#include "sentencepiece.h"

static struct tool_error error;

/* ---- files, value by value ---- */

struct bytes {
	uint8_t at[1 << 14];
	size_t n;
};

static void put(struct bytes *b, const void *data, size_t n)
{
	assert_true(b->n + n <= sizeof(b->at));
	if (n)
		memcpy(b->at + b->n, data, n);
	b->n += n;
}

static void put_u32(struct bytes *b, uint32_t v)
{
	put(b, &v, 4);
}

static void put_u64(struct bytes *b, uint64_t v)
{
	put(b, &v, 8);
}

static void put_text(struct bytes *b, const char *s)
{
	put_u64(b, strlen(s));
	put(b, s, strlen(s));
}

struct file {
	struct bytes keys, tensors, data;
	uint32_t n_keys, n_tensors;
	/* What a lying header says instead; 0: the truth. */
	uint64_t says_keys, says_tensors;
	uint32_t magic, version;
	size_t cut; /* bytes that its end lacks */
};

static void key(struct file *f, const char *name, uint32_t type)
{
	put_text(&f->keys, name);
	put_u32(&f->keys, type);
	f->n_keys++;
}

static void key_u32(struct file *f, const char *name, uint32_t v)
{
	key(f, name, GGUF_U32);
	put_u32(&f->keys, v);
}

static void key_f32(struct file *f, const char *name, float v)
{
	key(f, name, GGUF_F32);
	put(&f->keys, &v, 4);
}

static void key_text(struct file *f, const char *name, const char *v)
{
	key(f, name, GGUF_STRING);
	put_text(&f->keys, v);
}

static void key_array(struct file *f, const char *name, uint32_t type, uint64_t n)
{
	key(f, name, GGUF_ARRAY);
	put_u32(&f->keys, type);
	put_u64(&f->keys, n);
}

static void key_texts(struct file *f, const char *name, const char *const *v, uint64_t n)
{
	key_array(f, name, GGUF_STRING, n);
	for (uint64_t i = 0; i < n; i++)
		put_text(&f->keys, v[i]);
}

/* As it is said, with @bytes of data. */
static void tensor(struct file *f, const char *name, uint32_t type, const uint64_t *dim,
		   uint32_t ndim, size_t bytes)
{
	put_text(&f->tensors, name);
	put_u32(&f->tensors, ndim);
	put(&f->tensors, dim, ndim * sizeof(*dim));
	put_u32(&f->tensors, type);
	put_u64(&f->tensors, f->data.n);
	for (size_t i = 0; i < (bytes + 31) / 32 * 32; i++)
		put(&f->data, &(uint8_t){(uint8_t)i}, 1);
	f->n_tensors++;
}

static void matrix(struct file *f, const char *name, uint64_t cols, uint64_t rows)
{
	tensor(f, name, GGML_F32, (const uint64_t[]){cols, rows}, rows ? 2 : 1,
	       (size_t)(cols * (rows ? rows : 1) * 4));
}

static const struct bytes *whole(const struct file *f)
{
	static struct bytes b;
	static const uint8_t zeros[32];

	b.n = 0;
	put_u32(&b, f->magic ? f->magic : 0x46554747);
	put_u32(&b, f->version ? f->version : 3);
	put_u64(&b, f->says_tensors ? f->says_tensors : f->n_tensors);
	put_u64(&b, f->says_keys ? f->says_keys : f->n_keys);
	put(&b, f->keys.at, f->keys.n);
	put(&b, f->tensors.at, f->tensors.n);
	put(&b, zeros, (32 - b.n % 32) % 32);
	put(&b, f->data.at, f->data.n);
	memset(&error, 0, sizeof(error));
	return &b;
}

static int open_file(const struct file *f, struct gguf **ret)
{
	const struct bytes *b = whole(f);

	return gguf_open_memory(b->at, b->n - f->cut, ret, &error);
}

static void expect_words(const char *what)
{
	if (!strstr(error.text, what))
		fail_msg("\"%s\" does not say \"%s\"", error.text, what);
}

static void expect_refused(const struct file *f, const char *what)
{
	struct gguf *g;

	assert_true(open_file(f, &g) < 0);
	expect_words(what);
}

static void test_good(void **state)
{
	const char *const words[] = {"a", "", "\xc3\xa9"};
	const struct gguf_tensor *t;
	struct file f = {0};
	struct gguf_value v;
	struct gguf *g;
	char *text;

	(void)state;
	key_text(&f, "general.name", "x");
	key_u32(&f, "n", 7);
	key_f32(&f, "f", 0.5f);
	key_texts(&f, "words", words, 3);
	key_array(&f, "i8", GGUF_I8, 2);
	put(&f.keys, "\xff\x02", 2);
	tensor(&f, "a", GGML_Q8_0, (const uint64_t[]){64, 3}, 2, 6 * 34);
	tensor(&f, "b", GGML_F16, (const uint64_t[]){3}, 1, 6);
	assert_int_equal(open_file(&f, &g), 0);
	assert_int_equal(gguf_string(g, "general.name", &text, NULL), 0);
	assert_string_equal(text, "x");
	free(text);
	assert_int_equal(gguf_string(g, "none", &text, NULL), 0);
	assert_null(text);
	assert_int_equal(gguf_string(g, "n", &text, &error), -EINVAL);
	assert_true(gguf_number(gguf_get(g, "n"), 0) == 7);
	assert_true(gguf_number(gguf_get(g, "f"), 0) == 0.5);
	assert_true(gguf_number(gguf_get(g, "i8"), 0) == -1);
	v = *gguf_get(g, "words");
	assert_int_equal(v.n, 3);
	for (unsigned i = 0; i < 3; i++) {
		struct gguf_text word = gguf_next_text(&v);

		assert_int_equal(word.bytes, strlen(words[i]));
		assert_memory_equal(word.text, words[i], word.bytes);
	}
	t = gguf_at(g, 1);
	assert_string_equal(t->name, "b");
	assert_int_equal(t->dim[0] * 10 + t->dim[1], 31);
	assert_int_equal(t->data[5], 5);
	assert_null(gguf_at(g, 2));
	gguf_close(g);
}

static void test_hostile_header(void **state)
{
	struct file f = {.magic = 0x46554746};

	(void)state;
	expect_refused(&f, "not a GGUF file");
	f = (struct file){.version = 0x03000000};
	expect_refused(&f, "big-endian");
	f = (struct file){.version = 1};
	expect_refused(&f, "version 1");
	f = (struct file){.says_keys = UINT64_MAX};
	expect_refused(&f, "18446744073709551615 keys");
	f = (struct file){.says_tensors = 1ull << 40};
	expect_refused(&f, "1099511627776 tensors");
	f = (struct file){.says_keys = 2};
	key_u32(&f, "a", 1);
	expect_refused(&f, "");
	f = (struct file){.cut = 20};
	expect_refused(&f, "truncated");
}

static void test_hostile_keys(void **state)
{
	struct file f = {0};

	(void)state;
	put_u64(&f.keys, 1ull << 60);
	f.n_keys = 1;
	put(&f.keys, (const uint8_t[64]){0}, 64);
	expect_refused(&f, "1152921504606846976 bytes");
	f = (struct file){0};
	key_u32(&f, "", 1);
	expect_refused(&f, "not 1 to 256");
	f = (struct file){0};
	key_u32(&f, "\xff", 1);
	expect_refused(&f, "UTF-8");
	f = (struct file){0};
	key(&f, "k", 13);
	expect_refused(&f, "k: values of type 13");
	f = (struct file){0};
	key_array(&f, "k", GGUF_ARRAY, 1);
	expect_refused(&f, "type 9 are not known in arrays");
	f = (struct file){0};
	key_array(&f, "k", GGUF_U64, UINT64_MAX / 8 + 2);
	expect_refused(&f, "elements of 8 bytes");
	f = (struct file){0};
	key_array(&f, "k", GGUF_STRING, UINT64_MAX);
	expect_refused(&f, "truncated");
	f = (struct file){0};
	key(&f, "k", GGUF_STRING);
	put_u64(&f.keys, UINT64_MAX - 7);
	expect_refused(&f, "truncated");
	f = (struct file){0};
	key_u32(&f, "k", 1);
	key_u32(&f, "k", 2);
	expect_refused(&f, "k: there twice");
	f = (struct file){0};
	key_u32(&f, "general.alignment", 24);
	expect_refused(&f, "24 is not a power of two");
	f = (struct file){0};
	key_text(&f, "general.alignment", "32");
	expect_refused(&f, "general.alignment");
}

static void test_hostile_tensors(void **state)
{
	struct file f = {0};

	(void)state;
	tensor(&f, "a", GGML_F32, NULL, 0, 4);
	expect_refused(&f, "0 dimensions");
	f = (struct file){0};
	tensor(&f, "a", GGML_F32, (const uint64_t[]){1, 1, 1, 1, 1}, 5, 4);
	expect_refused(&f, "5 dimensions");
	f = (struct file){0};
	tensor(&f, "a", GGML_F32, (const uint64_t[]){1, 0}, 2, 4);
	expect_refused(&f, "dimension 1 of 0");
	f = (struct file){0};
	tensor(&f, "a", GGML_F32, (const uint64_t[]){1ull << 32, 1ull << 32}, 2, 4);
	expect_refused(&f, "not 1 to 2^48");
	f = (struct file){0};
	tensor(&f, "a", GGML_F32, (const uint64_t[]){1ull << 24, 1ull << 23}, 2, 4);
	expect_refused(&f, "a\": 562949953421312 bytes");
	f = (struct file){0};
	tensor(&f, "a", 10, (const uint64_t[]){256}, 1, 84);
	expect_refused(&f, "type 10 is not supported (F32");
	f = (struct file){0};
	tensor(&f, "a", UINT32_MAX, (const uint64_t[]){256}, 1, 84);
	expect_refused(&f, "type 4294967295");
	f = (struct file){0};
	tensor(&f, "a", GGML_Q6_K, (const uint64_t[]){128, 2}, 2, 210);
	expect_refused(&f, "rows of 128 elements are not a multiple of 256");
	f = (struct file){0};
	matrix(&f, "a", 8, 0);
	put(&f.data, (const uint8_t[32]){0}, 32);
	matrix(&f, "b", 8, 0);
	expect_refused(&f, "\"b\" begins at 64, not at 32");
	f = (struct file){0};
	matrix(&f, "a", 8, 0);
	f.data.n = 0;
	matrix(&f, "b", 8, 0);
	expect_refused(&f, "\"b\" begins at 0, not at 32");
	f = (struct file){.cut = 1};
	matrix(&f, "a", 8, 0);
	expect_refused(&f, "truncated");
	f = (struct file){0};
	matrix(&f, "a", 8, 0);
	matrix(&f, "a", 8, 0);
	expect_refused(&f, "\"a\" occurs twice");
}

/* ---- blocks ---- */

static void test_blocks(void **state)
{
	uint8_t q4[18] = {0x00, 0x40}, q6[210] = {0}; /* a scale of 2 */
	uint8_t mx4[17] = {129, 0x2f};		      /* 4; -6, and for element 16: 1 */
	struct source_tensor t = ggml_tensor(GGML_Q4_0, 1, 32, q4);
	uint8_t codes[4];
	float y[3];

	(void)state;
	q4[2] = 0xf1;
	q4[3] = 0x08;
	source_read(&t, 0, 0, 2, y);
	assert_true(y[0] == -14 && y[1] == 0);
	source_read(&t, 0, 16, 2, y);
	assert_true(y[0] == 14 && y[1] == -16);
	quant_codes(&t, 0, 15, 2, codes);
	assert_int_equal(codes[1], 15);
	assert_true(quant_scale(&t, 0, 0) == 2);
	t = ggml_tensor(GGML_MXFP4, 1, 32, mx4);
	source_read(&t, 0, 0, 2, y);
	assert_true(y[0] == -24 && y[1] == 0);
	source_read(&t, 0, 16, 1, y);
	assert_true(y[0] == 4);
	/* What a block is read as does not depend on where one begins. */
	t = ggml_tensor(GGML_Q6_K, 1, 256, q6);
	q6[209] = 0x40;
	q6[192 + 4] = 0x80; /* -128 for elements 64 to 79 */
	q6[0] = 0x50;	    /* element 64: 5, and two bits of it */
	q6[128] = 0x10;
	source_read(&t, 0, 63, 3, y);
	assert_true(y[0] == 0 && y[1] == 2.0f * -128 * (21 - 32) && y[2] == 2.0f * -128 * -32);
}

/* Whatever the bytes of a block are, the chip's tiles mean what the block does, to the bit: also where a
 * shard begins within a block. */
static void test_tiles(void **state)
{
	static const struct range parts[] = {{0, 512}, {256, 256}, {64, 448},
					     {32, 96}, {16, 80},   {8, 300}};
	static float block[PACK_K][TXDA_TILE_N];
	uint8_t data[32 * 512 * 4], out[512 * 160];
	float y[512];

	(void)state;
	/* No half-precision number in it has all bits of the exponent. */
	for (unsigned i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 2654435761u >> 13 & 0xbb);
	for (uint32_t type = 0; type < GGML_TYPES; type++) {
		const struct ggml_format *f = ggml_format(type);
		struct source_tensor t;

		if (!f || !f->bits)
			continue;
		t = ggml_tensor(type, 32, 512, data);
		for (unsigned i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
			struct param_part part = {.source = t, .rows = 32, .col = parts[i].first};
			struct k_order order;
			struct param_tiles tiles = {.name = f->name,
						    .dtype = f->tiles,
						    .layout = TXDA_TILE32,
						    .keep = true,
						    .n = 32,
						    .n_parts = 1,
						    .part = &part};
			struct cm_tensor w = {.dtype = f->tiles, .layout = TXDA_TILE32, .ptr = out};

			assert_int_equal(k_order_make(&t, parts[i], f->tiles, 0, &order), 0);
			tiles.k = order.n;
			tiles.group = w.group = order.group;
			tiles.columns = order.columns;
			w.dim[0] = 32;
			w.dim[1] = order.n;
			assert_true(txda_tile_panel_bytes(f->tiles, order.n, order.group) <=
				    sizeof(out));
			assert_int_equal(param_make_panel(&tiles, 0, block, out, &error), 0);
			for (unsigned n = 0; n < 32; n++) {
				source_read(&t, n, parts[i].first, parts[i].n, y);
				for (uint32_t k = 0; k < order.n; k++) {
					uint32_t from = order.columns ? order.columns[k] : k;

					if (from != TXDA_NONE && cm_tile_get(&w, n, k) != y[from])
						fail_msg("%s, columns from %u: row %u, %u is %g, "
							 "not %g",
							 f->name, parts[i].first, n, from,
							 (double)cm_tile_get(&w, n, k),
							 (double)y[from]);
				}
			}
			free(order.columns);
		}
	}
}

static void test_not_finite(void **state)
{
	static const uint8_t types[] = {GGML_Q4_1, GGML_Q5_0, GGML_Q4_K,
					GGML_Q6_K, GGML_Q8_0, GGML_MXFP4};
	static float block[PACK_K][TXDA_TILE_N];
	uint8_t data[256 * 4], out[256 * 160];

	(void)state;
	for (unsigned i = 0; i < sizeof(types); i++) {
		const struct ggml_format *f = ggml_format(types[i]);
		struct param_part part = {.source = ggml_tensor(types[i], 1, 256, data), .rows = 1};
		struct param_tiles tiles = {.name = "w",
					    .dtype = f->tiles,
					    .layout = TXDA_TILE32,
					    .group = 32,
					    .keep = true,
					    .n = 1,
					    .k = 256,
					    .n_parts = 1,
					    .part = &part};

		memset(data, 0xff, sizeof(data));
		assert_int_equal(param_make_panel(&tiles, 0, block, out, &error), -ERANGE);
		expect_words("w: the scale of row 0, column 0 is not finite");
	}
}

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

/* ---- several files ---- */

static void test_names(void **state)
{
	static const char *const none[] = {
		"a.gguf",
		"-00001-of-00002.gguf",
		"d/-00001-of-00002.gguf",
		"a-00003-of-00002.gguf",
		"a-00000-of-00002.gguf",
		"a-00001-of-00000.gguf",
		"a-00001-of-04097.gguf",
		"a-00001-of-0000x.gguf",
		"a-00001-of-00002.bin",
		"a-0001-of-00002.gguf",
		"",
	};
	char name[] = "d/a-00001-of-00012.gguf", whole_name[] = "a.b.gguf";

	(void)state;
	for (unsigned i = 0; i < sizeof(none) / sizeof(none[0]); i++)
		assert_int_equal(gguf_name_parts(none[i]), 0);
	assert_int_equal(gguf_name_parts(name), 12);
	gguf_name_set_part(name, 12);
	assert_string_equal(name, "d/a-00012-of-00012.gguf");
	assert_true(gguf_name_same(name, "d/a-00003-of-00012.gguf"));
	assert_false(gguf_name_same(name, "d/b-00003-of-00012.gguf"));
	assert_false(gguf_name_same(name, "d/a-00003-of-00013.gguf"));
	assert_false(gguf_name_same(name, "d/a-00013-of-00012.gguf"));
	gguf_name_cut(name);
	assert_string_equal(name, "d/a");
	gguf_name_cut(whole_name);
	assert_string_equal(whole_name, "a.b");
}

/* What a part says of itself; @no from 0 on. */
static void key_part(struct file *f, uint32_t no, uint32_t count, uint32_t tensors)
{
	key_u32(f, "split.no", no);
	key_u32(f, "split.count", count);
	key_u32(f, "split.tensors.count", tensors);
}

static void save(int dirfd, const char *name, const struct file *f)
{
	const struct bytes *b = whole(f);
	int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, b->at, b->n), b->n);
	close(fd);
}

#define PART(no, of) "m-0000" #no "-of-0000" #of ".gguf"

static void expect_split(int dirfd, const char *name, const char *file, const char *what)
{
	struct gguf_model *m;

	memset(&error, 0, sizeof(error));
	assert_true(gguf_model_open(dirfd, name, &m, &error) < 0);
	expect_words(file);
	expect_words(what);
}

static void test_parts(void **state)
{
	static const char *const names[] = {PART(1, 2), PART(2, 2), PART(1, 3), PART(3, 3),
					    "alone.gguf"};
	struct file first = {0}, second = {0}, twin = {0}, more = {0}, bare = {0}, joined = {0};
	char dir[] = "/tmp/txda-gguf-XXXXXX";
	struct gguf_model *m;
	int fd;

	(void)state;
	assert_non_null(mkdtemp(dir));
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	key_part(&first, 0, 2, 2);
	key_text(&first, "general.architecture", "llama");
	matrix(&first, "token_embd.weight", 8, 4);
	key_part(&second, 1, 2, 2);
	matrix(&second, "output.weight", 8, 4);
	key_part(&twin, 1, 2, 2);
	matrix(&twin, "token_embd.weight", 8, 4);
	key_part(&more, 1, 2, 3);
	matrix(&more, "output.weight", 8, 4);
	matrix(&bare, "output.weight", 8, 4);
	key_part(&joined, 0, 0, 1);
	key_text(&joined, "general.architecture", "llama");
	matrix(&joined, "token_embd.weight", 8, 4);

	save(fd, PART(1, 2), &first);
	expect_split(fd, PART(1, 2), PART(2, 2), "No such file");
	save(fd, PART(2, 2), &second);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(gguf_model_open(fd, names[i], &m, &error), 0);
		assert_true(gguf_model_has(m, "model.embed_tokens.weight"));
		assert_true(gguf_model_has(m, "lm_head.weight"));
		assert_non_null(gguf_get(gguf_model_file(m, 0), "general.architecture"));
		assert_null(gguf_model_file(m, 2));
		assert_int_equal(gguf_model_unchanged(m, &error), 0);
		gguf_model_free(m);
	}
	assert_int_equal(gguf_model_open(fd, PART(1, 2), &m, &error), 0);
	save(fd, PART(2, 2), &more);
	assert_int_equal(gguf_model_unchanged(m, &error), -ESTALE);
	gguf_model_free(m);
	expect_split(fd, PART(1, 2), PART(2, 2), "split.tensors.count: 3, expected 2");
	save(fd, PART(2, 2), &twin);
	expect_split(fd, PART(1, 2), PART(2, 2), "\"token_embd.weight\"");
	save(fd, PART(2, 2), &first);
	expect_split(fd, PART(1, 2), PART(2, 2), "split.no: 0, expected 1");
	save(fd, PART(2, 2), &bare);
	expect_split(fd, PART(1, 2), PART(2, 2), "split.count: missing in a file of 2");
	/* As many as the name says. */
	save(fd, PART(1, 3), &first);
	save(fd, "m-00002-of-00003.gguf", &second);
	save(fd, PART(3, 3), &second);
	expect_split(fd, PART(3, 3), PART(1, 3), "split.count: 2, expected 3");
	save(fd, "alone.gguf", &first);
	expect_split(fd, "alone.gguf", "alone.gguf", "-00001-of-00002.gguf");
	save(fd, "alone.gguf", &joined);
	assert_int_equal(gguf_model_open(fd, "alone.gguf", &m, &error), 0);
	gguf_model_free(m);

	unlinkat(fd, "m-00002-of-00003.gguf", 0);
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unlinkat(fd, names[i], 0);
	close(fd);
	assert_int_equal(rmdir(dir), 0);
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
	assert_int_equal(sentencepiece_convert((const uint8_t *)files[0].text, files[0].bytes,
					       config, &json, err, sizeof(err)),
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
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_hostile_header),
		cmocka_unit_test(test_hostile_keys),
		cmocka_unit_test(test_hostile_tensors),
		cmocka_unit_test(test_blocks),
		cmocka_unit_test(test_tiles),
		cmocka_unit_test(test_not_finite),
		cmocka_unit_test(test_config),
		cmocka_unit_test(test_gemma),
		cmocka_unit_test(test_hostile_config),
		cmocka_unit_test(test_deepseek),
		cmocka_unit_test(test_stacked),
		cmocka_unit_test(test_lists),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_parts),
		cmocka_unit_test(test_pieces),
		cmocka_unit_test(test_hostile_tokenizer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
