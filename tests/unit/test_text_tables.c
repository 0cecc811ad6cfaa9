// SPDX-License-Identifier: MIT
/*
 * What crosses the border to a model's text process: tables and trees that come out as they went in,
 * and damaged ones, which are an error or at least harmless. TXDA_MODELS names the models' directory.
 */
#include <errno.h>

#include "test_dir.h"
#include "chat_template.h"
#include "detok.h"
#include "grammar.h"
#include "grammar_build.h"
#include "grammar_regex.h"
#include "grammar_schema.h"
#include "jinja.h"
#include "json_strict.h"
#include "text_tree.h"
#include "tokenizer.h"
#include "work.h"

#define DAMAGES 3000

static uint32_t random_state = 1;

static uint32_t random_below(uint32_t n)
{
	random_state = random_state * 1664525u + 1013904223u;
	return (uint32_t)((uint64_t)random_state * n >> 32);
}

/* Bytes that end where memory ends, so that AddressSanitizer sees who reads behind them. */
static char *copy_of(const struct text_buf *b, size_t len)
{
	char *copy = malloc(len ? len : 1);

	assert_non_null(copy);
	memcpy(copy, b->data, len);
	return copy;
}

/* Changes a few bytes, near the beginning as often as anywhere. */
static void damage(char *data, size_t len)
{
	for (unsigned n = 1 + random_below(3); n; n--) {
		size_t at = random_below(random_below(2) && len > 64 ? 64 : (uint32_t)len);

		data[at] = (char)(random_below(2) ? random_below(256) : random_below(2) * 255);
	}
}

/* ---- tokenisers ------------------------------------------------------------------------------ */

static struct txda_tokenizer *load(const char *variable, const char *name)
{
	const char *root = getenv(variable);
	struct txda_tokenizer *tok = NULL;
	char path[512], err[512];

	if (!root)
		return NULL;
	snprintf(path, sizeof(path), "%s/%s", root, name);
	if (txda_tokenizer_load(path, &tok, err, sizeof(err)))
		fail_msg("%s", err);
	return tok;
}

/* All that is asked of tables, of every token. */
static void use(const struct txda_tokenizer *tok)
{
	size_t n = txda_tokenizer_vocab_size(tok), len;
	struct txda_detok *detok;
	const char *text;
	char *whole;

	assert_int_equal(txda_detok_new(tok, false, NULL, 0, &detok), 0);
	for (uint32_t id = 0; id <= n && id < 5000; id++) {
		assert_int_equal(txda_detok_feed(detok, id, &text, &len), 0);
		assert_int_equal(text[len], 0);
		assert_int_equal(txda_tokenizer_decode(tok, &id, 1, true, &whole, &len), 0);
		free(whole);
	}
	assert_int_equal(txda_detok_flush(detok, &text, &len), 0);
	txda_detok_free(detok);
}

static void same_token(const struct txda_tokenizer *a, const struct txda_tokenizer *b, uint32_t id)
{
	size_t len_a = 0, len_b = 0;
	const char *x = txda_tokenizer_piece(a, id, &len_a),
		   *y = txda_tokenizer_piece(b, id, &len_b);

	assert_int_equal(!x, !y);
	assert_int_equal(len_a, len_b);
	if (!x)
		return;
	assert_memory_equal(x, y, len_a + 1);
	x = txda_tokenizer_bytes(a, id, &len_a);
	y = txda_tokenizer_bytes(b, id, &len_b);
	assert_int_equal(len_a, len_b);
	assert_memory_equal(x, y, len_a + 1);
	assert_int_equal(txda_tokenizer_is_special(a, id), txda_tokenizer_is_special(b, id));
	assert_int_equal(txda_tokenizer_piece_id(a, txda_tokenizer_piece(a, id, &len_a), len_a),
			 txda_tokenizer_piece_id(b, txda_tokenizer_piece(b, id, &len_b), len_b));
}

TEST(test_tokenizer)
{
	static const char *const fixtures[] = {"qwen3", "llama2", "gemma3", "llama31"};
	struct txda_tokenizer *tok, *tables;
	uint32_t *ids;
	size_t n;

	for (unsigned i = 0; i <= ARRAY_SIZE(fixtures); i++) {
		struct text_buf bytes = {0};

		tok = i ? load("TXDA_FIXTURES", fixtures[i - 1]) : load("TXDA_MODELS", "demo");
		assert_non_null(tok);
		assert_int_equal(txda_tokenizer_export(tok, &bytes), 0);
		assert_int_equal(txda_tokenizer_import(bytes.data, bytes.len, &tables), 0);
		assert_int_equal(txda_tokenizer_vocab_size(tok), txda_tokenizer_vocab_size(tables));
		assert_int_equal(txda_tokenizer_eos(tok), txda_tokenizer_eos(tables));
		for (uint32_t id = 0; id < txda_tokenizer_vocab_size(tok) + 2; id++)
			same_token(tok, tables, id);
		use(tables);
		assert_int_equal(txda_tokenizer_encode(tables, "a", 1, 0, &ids, &n), -ENOTSUP);
		txda_tokenizer_free(tables);
		txda_tokenizer_free(tok);
		free(bytes.data);
	}
}

TEST(test_tokenizer_damaged)
{
	struct txda_tokenizer *tok = load("TXDA_MODELS", "demo"), *tables;
	struct text_buf bytes = {0};
	unsigned taken = 0;

	assert_non_null(tok);
	assert_int_equal(txda_tokenizer_export(tok, &bytes), 0);
	txda_tokenizer_free(tok);
	for (size_t len = 0; len < bytes.len; len += 1 + len / 7) {
		char *copy = copy_of(&bytes, len);

		assert_int_equal(txda_tokenizer_import(copy, len, &tables), -EINVAL);
		free(copy);
	}
	for (unsigned i = 0; i < DAMAGES / 10; i++) {
		char *copy = copy_of(&bytes, bytes.len);

		damage(copy, bytes.len);
		if (!txda_tokenizer_import(copy, bytes.len, &tables)) {
			taken++;
			use(tables);
			txda_tokenizer_free(tables);
		}
		free(copy);
	}
	/* Some bytes are only other texts. */
	assert_in_range(taken, 1, DAMAGES / 10 - 1);
	free(bytes.data);
}

/* ---- grammars -------------------------------------------------------------------------------- */

static struct grammar_vocab *bytes_vocab(void)
{
	static char bytes[256];
	struct grammar_token tokens[256];
	struct grammar_vocab *v;

	for (unsigned i = 0; i < 256; i++) {
		bytes[i] = (char)i;
		tokens[i] = (struct grammar_token){&bytes[i], 1, false};
	}
	assert_int_equal(grammar_vocab_new(tokens, 256, 256, &v), 0);
	return v;
}

static struct grammar *regex(const char *text)
{
	const struct grammar_regex_options options = {0};
	struct grammar_builder *b = grammar_builder_new();
	uint32_t root = grammar_rule(b, "all");
	struct grammar *g;
	char err[256];

	grammar_define(b, root, grammar_regex(b, text, strlen(text), &options));
	assert_int_equal(grammar_build(b, root, &g, err, sizeof(err)), 0);
	grammar_builder_free(b);
	return g;
}

static struct grammar *schema(const char *text)
{
	const struct grammar_json_options options = {.strict = true};
	struct grammar_builder *b = grammar_builder_new();
	struct grammar_json *j = grammar_json_new(b, &options);
	cJSON *json = cJSON_Parse(text);
	uint32_t root = grammar_json_schema(j, json, json);
	struct grammar *g;
	char err[256];

	grammar_json_finish(j);
	grammar_json_free(j);
	assert_int_equal(grammar_build(b, root, &g, err, sizeof(err)), 0);
	grammar_builder_free(b);
	cJSON_Delete(json);
	return g;
}

static bool takes(struct grammar *g, struct grammar_vocab *v, const char *text)
{
	struct grammar_matcher *m;
	struct grammar_mask mask;
	bool ok;

	assert_int_equal(grammar_matcher_new(g, v, &m), 0);
	ok = !grammar_matcher_accept_bytes(m, text, strlen(text)) &&
	     !grammar_matcher_mask(m, &mask) && mask.end;
	grammar_matcher_free(m);
	return ok;
}

/* Goes on with any token that may come, for a while. */
static void follow(struct grammar *g, struct grammar_vocab *v)
{
	struct grammar_matcher *m;
	struct grammar_mask mask;

	if (grammar_matcher_new(g, v, &m))
		return;
	for (unsigned i = 0; i < 20 && !grammar_matcher_mask(m, &mask) && mask.n; i++) {
		int32_t token = mask.list ? mask.list[random_below(mask.n)] : 0;

		while (mask.bits && !(mask.bits[token / 32] >> (token % 32) & 1))
			token++;
		if (grammar_matcher_accept(m, token))
			break;
	}
	grammar_matcher_free(m);
}

TEST(test_grammar)
{
	struct grammar_vocab *v = bytes_vocab();
	struct grammar *g[2], *copy;
	struct text_buf bytes = {0};

	g[0] = regex("(ab|c){2,5}x*[0-9]+");
	g[1] = schema("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\",\"items\":"
		      "{\"type\":\"integer\"},\"minItems\":2,\"maxItems\":9},\"b\":{\"enum\":"
		      "[\"x\",\"yy\"]}},\"required\":[\"a\",\"b\"],"
		      "\"additionalProperties\":false}");
	for (unsigned i = 0; i < 2; i++) {
		bytes.len = 0;
		assert_int_equal(grammar_export(g[i], &bytes), 0);
		assert_int_equal(grammar_import(bytes.data, bytes.len, &copy), 0);
		assert_true(takes(copy, v, i ? "{\"a\":[1,2],\"b\":\"yy\"}" : "abcxx12"));
		assert_false(takes(copy, v, i ? "{\"a\":[1],\"b\":\"yy\"}" : "abxx12"));
		grammar_unref(copy);
		for (size_t len = 0; len < bytes.len; len += 1 + len / 9) {
			char *cut = copy_of(&bytes, len);

			assert_int_equal(grammar_import(cut, len, &copy), -EINVAL);
			free(cut);
		}
		for (unsigned k = 0; k < DAMAGES; k++) {
			char *damaged = copy_of(&bytes, bytes.len);

			damage(damaged, bytes.len);
			if (!grammar_import(damaged, bytes.len, &copy)) {
				follow(copy, v);
				grammar_unref(copy);
			}
			free(damaged);
		}
		grammar_unref(g[i]);
	}
	grammar_vocab_unref(v);
	free(bytes.data);
}

/* ---- trees ----------------------------------------------------------------------------------- */

TEST(test_tree)
{
	static const char text[] = "{\"a\":[1,2.0,1e3,-0.5,12345678901234567890,true,false,null],"
				   "\"\":{\"b\":\"\\u00e9\\n\",\"a\":{}},\"c\":[],\"d\":\"\"}";
	cJSON *tree = txda_json_parse(text, strlen(text), NULL, 0), *copy;
	struct text_buf bytes = {0};
	const cJSON *number;

	assert_int_equal(txda_template_mark_numbers(tree, text, strlen(text)), 0);
	assert_true(text_tree_write(tree, &bytes));
	assert_int_equal(text_tree_read(bytes.data, bytes.len, &copy), 0);
	assert_true(cJSON_Compare(tree, copy, true));
	/* How it was written is kept. */
	number = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(copy, "a"), 1);
	assert_string_equal(number->valuestring, "2.0");
	cJSON_Delete(copy);
	cJSON_Delete(tree);
	for (size_t len = 1; len < bytes.len; len++) {
		char *cut = copy_of(&bytes, len);

		assert_int_equal(text_tree_read(cut, len, &copy), -EINVAL);
		free(cut);
	}
	for (unsigned i = 0; i < DAMAGES; i++) {
		char *damaged = copy_of(&bytes, bytes.len);

		damage(damaged, bytes.len);
		if (!text_tree_read(damaged, bytes.len, &copy))
			cJSON_Delete(copy);
		free(damaged);
	}
	assert_int_equal(text_tree_read(NULL, 0, &copy), 0);
	assert_null(copy);
	free(bytes.data);
}

/* Nested deeper than any request may be. */
TEST(test_tree_deep)
{
	cJSON *tree = cJSON_CreateArray(), *at = tree, *copy;
	struct text_buf bytes = {0};

	for (unsigned i = 0; i < 300; i++) {
		cJSON *inner = cJSON_CreateArray();

		cJSON_AddItemToArray(at, inner);
		at = inner;
	}
	assert_true(text_tree_write(tree, &bytes));
	assert_int_equal(text_tree_read(bytes.data, bytes.len, &copy), -EINVAL);
	cJSON_Delete(tree);
	free(bytes.data);
}

/* ---- jobs ------------------------------------------------------------------------------------ */

/* Messages of no sense are refused by the program, too. */
TEST(test_jobs)
{
	struct text_job job = {.kind = TEXT_JOB_ENCODE, .size = sizeof(job), .max_ids = 9};
	struct text_buf out = {0}, read = {0};
	struct text_model m = {0};
	struct text_done done;
	char path[512];

	snprintf(path, sizeof(path), "%s/demo", getenv("TXDA_MODELS"));
	assert_int_equal(text_model_read(&m, path, NULL, &read), 0);
	assert_int_equal(text_work(&m, (char *)&job, sizeof(job), &out), 0);
	memcpy(&done, out.data, sizeof(done));
	assert_int_equal(done.error, 0);
	assert_int_equal(done.n, 0);
	assert_int_equal(text_work(&m, (char *)&job, sizeof(job) - 1, &out), -EINVAL);
	job.parts[0] = (struct text_part){sizeof(job) - 1, 1};
	assert_int_equal(text_work(&m, (char *)&job, sizeof(job), &out), -EINVAL);
	job.parts[0] = (struct text_part){sizeof(job), 1};
	assert_int_equal(text_work(&m, (char *)&job, sizeof(job), &out), -EINVAL);
	job.parts[0] = (struct text_part){UINT32_MAX, UINT32_MAX};
	assert_int_equal(text_work(&m, (char *)&job, sizeof(job), &out), -EINVAL);
	job.parts[0] = (struct text_part){0};
	job.kind = 77;
	assert_int_equal(text_work(&m, (char *)&job, sizeof(job), &out), 0);
	memcpy(&done, out.data, sizeof(done));
	assert_int_equal(done.error, -EINVAL);
	txda_chat_template_free(m.chat);
	txda_tokenizer_free(m.tokenizer);
	free(out.data);
	free(read.data);
}

/* The demo model with a template of its own. */
static void read_model(struct text_model *m, const char *template)
{
	struct text_buf read = {0};
	char target[512];

	snprintf(target, sizeof(target), "%s/demo/tokenizer.json", getenv("TXDA_MODELS"));
	assert_int_equal(symlink(target, at("tokenizer.json")), 0);
	put("chat_template.jinja", template, 0644);
	assert_int_equal(text_model_read(m, test_dir, NULL, &read), 0);
	assert_non_null(m->chat);
	free(read.data);
}

/* The answer to a job whose only part is @part; to be freed. */
static struct text_done *work_on(const struct text_model *m, struct text_job job,
				 const struct text_buf *part)
{
	struct text_buf in = {0}, out = {0};

	assert_true(text_buf_add(&in, &job, sizeof(job)));
	assert_true(text_buf_add(&in, part->data, part->len));
	job.size = (uint32_t)in.len;
	job.max_ids = 1000;
	job.parts[0] = (struct text_part){sizeof(job), job.size - (uint32_t)sizeof(job)};
	memcpy(in.data, &job, sizeof(job));
	assert_int_equal(text_work(m, in.data, in.len, &out), 0);
	free(in.data);
	return (struct text_done *)out.data;
}

static struct text_done *continue_chat(const struct text_model *m, const char *messages)
{
	const struct text_job job = {.kind = TEXT_JOB_CHAT, .flags = TEXT_CONTINUE_FINAL};
	cJSON *tree = cJSON_Parse(messages);
	struct text_done *done;
	struct text_buf part = {0};

	assert_true(tree && text_tree_write(tree, &part));
	done = work_on(m, job, &part);
	cJSON_Delete(tree);
	free(part.data);
	return done;
}

/* The messages as a prompt to be continued have the tokens of @want. */
static void expect_continued(const struct text_model *m, const char *messages, const char *want)
{
	const struct text_job job = {.kind = TEXT_JOB_ENCODE};
	struct text_buf part = {0};
	struct text_done *done = continue_chat(m, messages), *wanted;

	assert_true(text_buf_add(&part, want, strlen(want)));
	wanted = work_on(m, job, &part);
	if (done->error || done->n != wanted->n ||
	    memcmp(done + 1, wanted + 1, done->n * sizeof(int32_t)) != 0)
		fail_msg("%s: %d, %u tokens, not %u", messages, done->error, done->n, wanted->n);
	free(done);
	free(wanted);
	free(part.data);
}

#define FINAL(content)                                                                             \
	"[{\"role\":\"user\",\"content\":\"OK!\"},{\"role\":\"assistant\",\"content\":" content "}]"

/* The prompt ends with exactly the last message's text, or with what a template leaves of it. */
TEST_WITH(test_continue, test_dir_make, test_dir_remove)
{
	static const struct {
		const char *content, *kept, *trimmed;
	} cases[] = {
		{"\"OK!\"", "OK!", "OK!"},
		{"\"OK!\\n\"", "OK!\n", "OK!"},
		{"\" \\n OK! \\n \"", " \n OK! \n ", "OK!"},
		{"\"\"", "", ""},
		{"\"\\n\"", "\n", ""},
		{"\"<\"", "<", "<"},
		{"\"txda-final-message-ends-here a\"", "txda-final-message-ends-here a",
		 "txda-final-message-ends-here a"},
		{"[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\\n\"}]",
		 "a\nb\n", "a\nb"},
	};
	/* White space around the text is the template's. */
	static const char *const bodies[] = {"m.content", "m.content|trim"};
	struct text_model m = {0};
	struct text_done *done;
	char text[256], want[128];

	for (size_t i = 0; i < 2 * ARRAY_SIZE(cases); i++) {
		snprintf(text, sizeof(text),
			 "{%% for m in messages %%}<\n{{ %s }} >\n{%% endfor %%}", bodies[i & 1]);
		read_model(&m, text);
		snprintf(text, sizeof(text), FINAL("%s"), cases[i / 2].content);
		snprintf(want, sizeof(want), "<\nOK! >\n<\n%s",
			 i & 1 ? cases[i / 2].trimmed : cases[i / 2].kept);
		expect_continued(&m, text, want);
		txda_chat_template_free(m.chat);
		txda_tokenizer_free(m.tokenizer);
		unlink(at("chat_template.jinja"));
		unlink(at("tokenizer.json"));
	}
	/* At the very beginning. */
	read_model(&m, "{{ messages[1].content }}. The end.");
	expect_continued(&m, FINAL("\"a \""), "a ");
	/* Without text in the prompt there is nothing to continue. */
	done = continue_chat(&m, FINAL("null"));
	assert_int_equal(done->error, -EPROTO);
	assert_says(done->message, "continue_final_message");
	free(done);
	done = continue_chat(&m, "[{\"content\":\"a\"},{\"content\":\"b\"},{\"content\":\"c\"}]");
	assert_int_equal(done->error, -EPROTO);
	free(done);
	txda_chat_template_free(m.chat);
	txda_tokenizer_free(m.tokenizer);
}

TEST_MAIN
