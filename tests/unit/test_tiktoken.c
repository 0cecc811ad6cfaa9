// SPDX-License-Identifier: MIT
/*
 * tiktoken.model: made-up vocabularies against the definition of their encoding, how Kimi K2 splits
 * text, and files that are wrong.
 */
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit.h"
#include "text_buf.h"
#include "tokenizer.h"

#define CONFIG                                                                                     \
	"{\"tokenizer_class\":\"TikTokenTokenizer\",\"bos_token\":\"[BOS]\",\"eos_token\":\"[EOS]" \
	"\","                                                                                      \
	"\"added_tokens_decoder\":{\"%u\":{\"content\":\"[BOS]\",\"special\":true},\"%u\":{"       \
	"\"content\":"                                                                             \
	"\"[EOS]\",\"special\":true},\"%u\":{\"content\":\"<|tool_call_begin|>\",\"special\":"     \
	"false}}}"

static void add_line(struct text_buf *file, const char *token, size_t len, unsigned rank)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	char number[16];

	for (size_t i = 0; i < len; i += 3) {
		uint8_t b[3] = {0};
		char out[5] = "====";

		memcpy(b, token + i, len - i < 3 ? len - i : 3);
		out[0] = digits[b[0] >> 2];
		out[1] = digits[(b[0] & 3) << 4 | b[1] >> 4];
		if (len - i > 1)
			out[2] = digits[(b[1] & 15) << 2 | b[2] >> 6];
		if (len - i > 2)
			out[3] = digits[b[2] & 63];
		assert_true(text_buf_add_string(file, out));
	}
	snprintf(number, sizeof(number), " %u\n", rank);
	assert_true(text_buf_add_string(file, number));
}

/* The bytes in an order of their own, and @words behind them. */
static void make_file(struct text_buf *file, const char *const *words, unsigned n)
{
	for (unsigned i = 0; i < 256; i++)
		add_line(file, &(char){(char)(i * 7 + 3)}, 1, i);
	for (unsigned i = 0; i < n; i++)
		add_line(file, words[i], strlen(words[i]), 256 + i);
}

static unsigned rank_of_byte(char c)
{
	return (((uint8_t)c - 3u) * 183) & 255;
}

static int parse(const char *text, size_t len, const char *config_text,
		 struct txda_tokenizer **ret_tok, char *err, size_t errlen)
{
	cJSON *config = cJSON_Parse(config_text);
	int r;

	assert_non_null(config);
	r = txda_tokenizer_parse(TXDA_TOKENIZER_TIKTOKEN, text, len, config, ret_tok, err, errlen);
	cJSON_Delete(config);
	return r;
}

static struct txda_tokenizer *load(const struct text_buf *file, unsigned ranks)
{
	struct txda_tokenizer *tok;
	char config[512], err[512];

	snprintf(config, sizeof(config), CONFIG, ranks, ranks + 1, ranks + 5);
	if (parse(file->data, file->len, config, &tok, err, sizeof(err)))
		fail_msg("%s", err);
	return tok;
}

static uint32_t *encode(const struct txda_tokenizer *tok, const char *text, unsigned flags,
			size_t *ret_n)
{
	uint32_t *ids;

	assert_int_equal(txda_tokenizer_encode(tok, text, strlen(text), flags, &ids, ret_n), 0);
	return ids;
}

/* Two parts that together are a word become it, the one of the lowest rank first, the leftmost of equals. */
static size_t naive(const char *text, const char *const *words, unsigned n_words, unsigned *ranks)
{
	size_t n = strlen(text), at[80];

	for (size_t i = 0; i <= n; i++)
		at[i] = i;
	for (size_t i = 0; i < n; i++)
		ranks[i] = rank_of_byte(text[i]);
	for (;;) {
		unsigned best = n_words;
		size_t where = 0;

		for (size_t i = 0; i + 1 < n; i++) {
			size_t len = at[i + 2] - at[i];

			for (unsigned w = 0; w < best; w++) {
				if (strlen(words[w]) == len &&
				    !memcmp(words[w], text + at[i], len)) {
					best = w;
					where = i;
				}
			}
		}
		if (best == n_words)
			return n;
		ranks[where] = 256 + best;
		memmove(&ranks[where + 1], &ranks[where + 2], (n - where - 2) * sizeof(*ranks));
		memmove(&at[where + 1], &at[where + 2], (n - where - 1) * sizeof(*at));
		n--;
	}
}

TEST(test_by_rank)
{
	/* Several ways to make one: aba of ab and a or of a and ba. */
	static const char *const words[] = {"ba",  "ab", "aba",	  "aa", "abab",
					    "baa", "bb", "ababa", "abb"};
	enum { N = ARRAY_SIZE(words) };
	struct text_buf file = {0};
	struct txda_tokenizer *tok;
	uint32_t random = 1;

	make_file(&file, words, N);
	tok = load(&file, 256 + N);
	for (unsigned i = 0; i < 5000; i++) {
		unsigned want[80], len = 1 + i % 70;
		char text[80];
		uint32_t *ids;
		size_t n;

		for (unsigned k = 0; k < len; k++) {
			random = random * 1664525 + 1013904223;
			text[k] = "aab"[(random >> 16) % 3];
		}
		text[len] = '\0';
		ids = encode(tok, text, 0, &n);
		assert_int_equal(n, naive(text, words, N, want));
		assert_memory_equal(ids, want, n * sizeof(*want));
		free(ids);
	}
	txda_tokenizer_free(tok);
	free(file.data);
}

TEST(test_splits)
{
	/* Each would be taken, were the text not split in it. */
	static const char *const words[] = {
		"好w", "好、", "a你", "ab",  "AB",  "Ab",   " a",   "12",
		"23",  "123",  "'s",  "a's", "!\n", "\n\n", "你好", "Éé",
	};
	static const struct {
		const char *text;
		const char *pieces[6];
	} cases[] = {
		{"你好world", {"你好", "w", "o", "r", "l"}},
		{"好、好", {"", NULL}},
		{"a你", {"a", NULL}},
		{"Ab's", {"Ab", "'s"}},
		{"a's", {"a's"}},
		{"ABab", {"AB", "ab"}},
		{"1234", {"123", "4"}},
		{"b a", {"b", " a"}},
		{"!\n\n", {"!\n", "\n"}},
		{"Éé", {"Éé"}},
	};
	enum { N = ARRAY_SIZE(words) };
	struct text_buf file = {0};
	struct txda_tokenizer *tok;

	make_file(&file, words, N);
	tok = load(&file, 256 + N);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		size_t n, len, text_len;
		uint32_t *ids = encode(tok, cases[i].text, 0, &n);
		char *text;

		for (size_t k = 0; k < 6 && cases[i].pieces[k] && *cases[i].pieces[k]; k++) {
			assert_true(k < n);
			assert_string_equal(txda_tokenizer_bytes(tok, ids[k], &len),
					    cases[i].pieces[k]);
		}
		/* In no case a token across a border between Han and others. */
		for (size_t k = 0; k < n; k++)
			assert_true(ids[k] < 256 || ids[k] > 258);
		assert_int_equal(txda_tokenizer_decode(tok, ids, n, false, &text, &text_len), 0);
		assert_string_equal(text, cases[i].text);
		free(text);
		free(ids);
	}
	txda_tokenizer_free(tok);
	free(file.data);
}

TEST(test_special)
{
	static const char *const words[] = {"[B"};
	struct text_buf file = {0};
	struct txda_tokenizer *tok;
	uint32_t *ids;
	size_t n;

	make_file(&file, words, 1);
	tok = load(&file, 257);
	assert_int_equal(txda_tokenizer_vocab_size(tok), 257 + 256);
	assert_int_equal(txda_tokenizer_eos(tok), 258);
	assert_string_equal(txda_tokenizer_piece(tok, 259, NULL), "<|reserved_token_259|>");
	assert_string_equal(txda_tokenizer_piece(tok, 262, NULL), "<|tool_call_begin|>");
	assert_true(txda_tokenizer_is_special(tok, 512));
	assert_false(txda_tokenizer_is_special(tok, 262));
	ids = encode(tok, "[BOS]<|reserved_token_259|><|tool_call_begin|>[EOS]",
		     TXDA_ENCODE_ADD_SPECIAL, &n);
	assert_int_equal(n, 4);
	assert_memory_equal(ids, ((const uint32_t[]){257, 259, 262, 258}), 4 * sizeof(*ids));
	free(ids);
	ids = encode(tok, "[BOS]", TXDA_ENCODE_NO_SPECIAL_PARSE, &n);
	assert_int_equal(ids[0], 256);
	free(ids);
	txda_tokenizer_free(tok);
	free(file.data);
}

static void check_refused(const char *text, size_t len, const char *config, const char *expected)
{
	struct txda_tokenizer *tok = NULL;
	char err[512] = "";

	if (parse(text, len, config, &tok, err, sizeof(err)) != -EINVAL || tok)
		fail_msg("taken: %.100s", text);
	if (!strstr(err, expected))
		fail_msg("the message is \"%s\", not \"%s\"", err, expected);
}

TEST(test_refused)
{
	static const struct {
		const char *more, *expected;
	} cases[] = {
		{"!!!! 256\n", "line 257: not a token in base64"},
		{"YWI 256\n", "line 257: not a token in base64"},
		{"YW=I 256\n", "line 257: not a token in base64"},
		{"YWJ= 256\n", "line 257: not a token in base64"},
		{"==== 256\n", "line 257: not a token in base64"},
		{"YWI=\n", "line 257: not a token in base64"},
		{" 256\n", "line 257: not a token in base64"},
		{"YWI= \n", "line 257: not a token in base64"},
		{"YWI= 2x\n", "line 257: not a token in base64"},
		{"YWI= -1\n", "line 257: not a token in base64"},
		{"YWI= 99999999999999999999\n", "line 257: not a token in base64"},
		{"YWI= 2097000\n", "line 257: rank 2097000, the limit is 2096895"},
		{"\r\n\nYWI= 7\r\n", "line 259: rank 7 occurs twice"},
		{"YWI= 258\n", "rank 256 is missing, the highest is 258"},
		{"YWI= 256\nYWI= 257", "ranks 256 and 257 are the same token"},
	};
	char config[512], *huge = malloc(3000000);
	struct text_buf file = {0}, many = {0};
	size_t len;

	snprintf(config, sizeof(config), CONFIG, 256, 257, 261);
	make_file(&file, NULL, 0);
	len = file.len;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		file.len = len;
		assert_true(text_buf_add_string(&file, cases[i].more));
		check_refused(file.data, file.len, config, cases[i].expected);
	}
	check_refused(file.data, len, "{\"tokenizer_class\":\"QWenTokenizer\"}",
		      "QWenTokenizer is not known");
	check_refused(file.data, len, "{}", "tokenizer_class");
	check_refused(file.data, len, "{\"tokenizer_class\":\"TikTokenTokenizer\"}",
		      "no added_tokens_decoder");
	snprintf(config, sizeof(config), CONFIG, 9, 257, 261);
	check_refused(file.data, len, config, "id 9 belongs to");
	snprintf(config, sizeof(config), CONFIG, 256, 257, 261);
	check_refused("", 0, config, "tokens of 0 of the 256 bytes");
	assert_non_null(huge);
	memset(huge, 'A', 3000000);
	check_refused(huge, 3000000, config,
		      "line 1: a token of 3000000 characters, the limit is 1024 bytes");
	free(huge);
	/* More tokens than ids. */
	for (unsigned i = 0; i < 2200000; i++) {
		char line[24];
		uint32_t x = i;

		for (unsigned k = 0; k < 4; k++, x >>= 6)
			line[k] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
				[x & 63];
		snprintf(line + 4, sizeof(line) - 4, " %u\n", i);
		assert_true(text_buf_add_string(&many, line));
	}
	check_refused(many.data, many.len, config,
		      "line 2096897: rank 2096896, the limit is 2096895");
	free(many.data);
	free(file.data);
}

static void write_file(const char *dir, const char *name, const void *data, size_t len)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "w");
	assert_non_null(f);
	assert_int_equal(fwrite(data, 1, len, f), len);
	fclose(f);
}

TEST(test_directory)
{
	char dir[] = "/tmp/txda-tiktoken-XXXXXX", config[512], err[512], path[128];
	static const char *const names[] = {"tiktoken.model", "tokenizer_config.json"};
	struct text_buf file = {0};
	struct txda_tokenizer *tok;

	assert_non_null(mkdtemp(dir));
	snprintf(config, sizeof(config), CONFIG, 256, 257, 261);
	make_file(&file, NULL, 0);
	assert_int_equal(txda_tokenizer_load(dir, &tok, err, sizeof(err)), -ENOENT);
	assert_non_null(strstr(err, "tokenizer.json"));
	write_file(dir, names[0], file.data, file.len);
	assert_int_equal(txda_tokenizer_load(dir, &tok, err, sizeof(err)), -EINVAL);
	assert_non_null(strstr(err, "tiktoken.model: tokenizer_config.json's tokenizer_class"));
	write_file(dir, names[1], "[", 1);
	assert_int_equal(txda_tokenizer_load(dir, &tok, err, sizeof(err)), -EINVAL);
	assert_non_null(strstr(err, "tokenizer_config.json: line 1"));
	write_file(dir, names[1], config, strlen(config));
	assert_int_equal(txda_tokenizer_load(dir, &tok, err, sizeof(err)), 0);
	assert_int_equal(txda_tokenizer_vocab_size(tok), 512);
	txda_tokenizer_free(tok);
	for (size_t i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		unlink(path);
	}
	rmdir(dir);
	free(file.data);
}

TEST_MAIN
