// SPDX-License-Identifier: MIT
/* What the metadata of a GGUF file comes to: a configuration, a tokeniser; and what is refused. */
#include <errno.h>
#include <math.h>

#include "unit.h"
#include "case_file.h"
#include "compile.h"
#include "config_members.h"
#include "ggml.h"
#include "gguf_model.h"
#include "gguf_test.h"
#include "model.h"
#include "sentencepiece.h"

/* ---- models ---- */

/* Files by name. */
static char *bases[8][2];
static unsigned n_bases;

static void read_base(char **field)
{
	assert_true(n_bases < 8);
	for (unsigned i = 0; i < 2; i++)
		assert_non_null(bases[n_bases][i] = strdup(field[i]));
	n_bases++;
}

static int read_bases(void **state)
{
	(void)state;
	each_case("gguf.txt", "bases", read_base);
	return 0;
}

static int free_bases(void **state)
{
	(void)state;
	while (n_bases--) {
		free(bases[n_bases][0]);
		free(bases[n_bases][1]);
	}
	return 0;
}

static void add_value(struct file *f, const char *name, char *value)
{
	size_t len = strlen(value);

	if (value[0] == '\'') {
		value[len - 1] = '\0';
		key_text(f, name, value + 1);
	} else if (value[0] == '[') { /* bytes, between commas */
		key_array(f, name, GGUF_U8, (len - 1) / 2);
		for (size_t i = 1; i + 1 < len; i += 2)
			put(&f->keys, &(uint8_t){(uint8_t)(value[i] - '0')}, 1);
	} else if (strspn(value, "0123456789") == len) {
		key_u32(f, name, (uint32_t)strtoul(value, NULL, 10));
	} else {
		key_f32(f, name, strtof(value, NULL));
	}
}

/*
 * @spec: keys with texts, whole or decimal numbers or bytes, and tensors by their sizes; a name
 * without "=" or ":" is that of a base.
 */
static void add(struct file *f, const char *spec)
{
	char *text = strdup(spec), *rest = text;

	assert_non_null(text);
	for (char *word; (word = strsep(&rest, " "));) {
		char *value = strpbrk(word, "=:"), mark = value ? *value : 0;

		if (value)
			*value++ = '\0';
		for (unsigned i = 0; !mark && i < n_bases; i++) {
			if (!strcmp(bases[i][0], word))
				add(f, bases[i][1]);
		}
		if (mark == '=')
			add_value(f, word, value);
		if (mark == ':') {
			uint64_t cols = strtoull(value, &value, 10);

			matrix(f, word, cols, *value ? strtoull(value + 1, NULL, 10) : 0);
		}
	}
	free(text);
}

static int open_model(struct file *f, struct gguf_model **ret)
{
	struct gguf *g;

	assert_int_equal(open_file(f, &g), 0);
	return gguf_model_new(&g, 1, ret, &error);
}

/* A file, and the members of its configuration or "!" and words of the error. */
static void check_row(char **field)
{
	static struct model_config c;
	struct gguf_model *m = NULL;
	struct file f = {0};
	char *text = NULL;
	int r;

	add(&f, field[0]);
	r = open_model(&f, &m);
	if (!r)
		r = gguf_config(m, &text, &error);
	if (!r)
		r = config_parse(text, strlen(text), &c, &error);
	if (field[1][0] == '!') {
		if (!r || !strstr(error.text, field[1] + 1))
			fail_msg("%s: %d, \"%s\"", field[0], r, error.text);
	} else {
		if (r)
			fail_msg("%s: %s", field[0], error.text);
		gguf_adapt(m, &c);
		expect_members(field[0], &c, field[1]);
	}
	free(text);
	gguf_model_free(m);
}

#define CASES(name, section)                                                                       \
	TEST(test_##name)                                                                          \
	{                                                                                          \
		each_case("gguf.txt", section, check_row);                                         \
	}
CASES(config, "config")
CASES(factor, "factor")
CASES(routing, "routing")
CASES(other_keys, "other keys")
CASES(hostile_config, "hostile")

/* Tensors by the names that checkpoints have, with the sizes that they must have. */
TEST(test_tensors)
{
	struct source_tensor t;
	struct file f = {0};
	struct gguf_model *m;

	add(&f, "llama llama.block_count=1");
	assert_int_equal(open_model(&f, &m), 0);
	assert_int_equal(
		gguf_model_find(m, "model.layers.0.self_attn.k_proj.weight", 4, 8, &t, &error), 0);
	assert_int_equal(
		gguf_model_find(m, "model.layers.0.self_attn.k_proj.weight", 8, 4, &t, &error),
		-EINVAL);
	expect_words("expected the shape [8, 4], found [1, 1, 4, 8]");
	assert_int_equal(gguf_model_find(m, "lm_head.weight", 8, 4, &t, &error), -ENOENT);
	gguf_model_free(m);
	f = (struct file){0};
	add(&f, "gemma3");
	assert_int_equal(open_model(&f, &m), 0);
	assert_true(gguf_model_has(m, "model.layers.0.pre_feedforward_layernorm.weight"));
	assert_true(gguf_model_has(m, "model.layers.0.post_attention_layernorm.weight"));
	gguf_model_free(m);
	f = (struct file){0};
	add(&f, "deepseek2");
	assert_int_equal(open_model(&f, &m), 0);
	assert_int_equal(gguf_model_find(m, "model.layers.0.mlp.gate.e_score_correction_bias", 0, 4,
					 &t, &error),
			 0);
	gguf_model_free(m);
	f = (struct file){0};
	add(&f, "general.architecture='gemma3' blk.0.ssm_a.weight:8");
	assert_int_equal(open_model(&f, &m), -ENOTSUP);
	expect_words("blk.0.ssm_a.weight");
}

/* Vectors of experts are rows; the number behind heads or experts must be one of them. */
TEST(test_stacked)
{
	struct source_tensor t;
	struct file f = {0};
	struct gguf_model *m;

	add(&f,
	    "general.architecture='gpt-oss' blk.0.ffn_up_exps.bias:12x3 blk.0.attn_sinks.weight:4");
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
TEST(test_lists)
{
	static const char *const tokens[] = {"a", "<|im_end|>", "b", "<|endoftext|>", "<end>"};
	static struct model_config c;
	uint8_t windows[62] = {0};
	struct file f = {0};
	struct gguf_model *m;
	char *text;

	add(&f, "gemma3 gemma3.attention.sliding_window=16 tokenizer.ggml.eos_token_id=1 "
		"tokenizer.ggml.eot_token_id=4");
	windows[1] = windows[5] = 1;
	key_array(&f, "gemma3.attention.sliding_window_pattern", GGUF_BOOL, sizeof(windows));
	put(&f.keys, windows, sizeof(windows));
	key_texts(&f, "tokenizer.ggml.tokens", tokens, 5);
	assert_int_equal(open_model(&f, &m), 0);
	assert_int_equal(gguf_config(m, &text, &error), 0);
	assert_int_equal(config_parse(text, strlen(text), &c, &error), 0);
	assert_true(!c.layer_window[0] && c.layer_window[1] && c.layer_window[5]);
	if (!strstr(text, "\"eos_token_id\":\t[1, 4, 3]"))
		fail_msg("%s", text);
	free(text);
	gguf_model_free(m);
	f = (struct file){0};
	add(&f, "gemma3 gemma3.attention.sliding_window=16");
	key_array(&f, "gemma3.attention.sliding_window_pattern", GGUF_BOOL, 2);
	put(&f.keys, "\0\1", 2);
	assert_int_equal(open_model(&f, &m), 0);
	assert_int_equal(gguf_config(m, &text, &error), 0);
	assert_int_equal(config_parse(text, strlen(text), &c, &error), -EINVAL);
	expect_words("layer_types: not an array of num_hidden_layers 62");
	free(text);
	gguf_model_free(m);
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
TEST(test_unused)
{
	static const char *const more[] = {
		"blk.0.attn_q_norm.weight", "blk.0.attn_norm.bias", "blk.0.attn_sinks.weight",
		"blk.0.ffn_gate.bias",	    "output_norm.bias",	    "blk.1.attn_norm.weight",
	};

	for (size_t i = 0; i < ARRAY_SIZE(more); i++) {
		struct file f = {0};

		add(&f, "llama llama.block_count=1");
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

TEST(test_pieces)
{
	struct gguf_file files[GGUF_FILES];
	cJSON *json, *config, *model;
	struct file f = {0};
	char err[200];

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

/* All templates are there, each under its name. */
TEST(test_templates)
{
	static const char *const names[] = {"tool_use", "rag"};
	struct gguf_file files[GGUF_FILES];
	struct file f = {0};
	cJSON *config, *all;

	pieces(&f, N_WORDS);
	key_text(&f, "tokenizer.chat_template", "{{ x }}");
	key_text(&f, "tokenizer.chat_template.tool_use", "tools");
	key_text(&f, "tokenizer.chat_template.rag", "texts");
	key_texts(&f, "tokenizer.chat_templates", names, 2);
	assert_int_equal(tokenizer(&f, files), 0);
	config = cJSON_Parse(files[1].text);
	all = cJSON_GetObjectItem(config, "chat_template");
	assert_int_equal(cJSON_GetArraySize(all), 3);
	assert_string_equal(cJSON_GetObjectItem(all, "default")->valuestring, "{{ x }}");
	assert_string_equal(cJSON_GetObjectItem(all, "tool_use")->valuestring, "tools");
	assert_string_equal(cJSON_GetObjectItem(all, "rag")->valuestring, "texts");
	cJSON_Delete(config);
	free_files(files);
	f = (struct file){0};
	pieces(&f, N_WORDS);
	key_u32(&f, "tokenizer.chat_templates", 1);
	expect_tokenizer(&f, "tokenizer.chat_templates: not an array of strings");
}

TEST(test_hostile_tokenizer)
{
	const char *const broken[] = {"a", "\xe2\x96"};
	struct gguf_file files[GGUF_FILES];
	struct file f = {0};

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

TEST_MAIN_ALL(read_bases, free_bases)
