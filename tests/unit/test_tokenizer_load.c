// SPDX-License-Identifier: MIT
/*
 * Whole tokenisers: the shipped models (TXDA_MODELS names their directory, TXDA_FIXTURES that of
 * the fixtures), small ones made here, what is refused and how, and many threads at once.
 */
#include "unit.h"
#include "case_file.h"
#include "detok.h"

#include <errno.h>
#include <pthread.h>

static struct txda_tokenizer *load_shipped(const char *variable, const char *name)
{
	const char *root = getenv(variable);
	struct txda_tokenizer *tok = NULL;
	char path[512], err[512];

	if (!root) {
		print_message("skipped %s: %s is not set\n", name, variable);
		return NULL;
	}
	snprintf(path, sizeof(path), "%s/%s", root, name);
	if (txda_tokenizer_load(path, &tok, err, sizeof(err)))
		fail_msg("%s", err);
	return tok;
}

static int parse_text(const char *json, const char *config_text, struct txda_tokenizer **ret_tok,
		      char *err, size_t errlen)
{
	cJSON *config = config_text ? cJSON_Parse(config_text) : NULL;
	int r;

	assert_true(config || !config_text);
	r = txda_tokenizer_parse(TXDA_TOKENIZER_JSON, json, strlen(json), config, ret_tok, err,
				 errlen);
	cJSON_Delete(config);
	return r;
}

static struct txda_tokenizer *load_text(const char *json, const char *config)
{
	struct txda_tokenizer *tok = NULL;
	char err[512];

	if (parse_text(json, config, &tok, err, sizeof(err)))
		fail_msg("%s", err);
	return tok;
}

static void check_ids(const struct txda_tokenizer *tok, const char *text, unsigned flags,
		      const uint32_t *want, size_t n_want)
{
	uint32_t *ids;
	size_t n;

	assert_int_equal(txda_tokenizer_encode(tok, text, strlen(text), flags, &ids, &n), 0);
	assert_int_equal(n, n_want);
	if (n)
		assert_memory_equal(ids, want, n * sizeof(*ids));
	free(ids);
}

#define IDS(...) (const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}) / 4

/* The text, then decoded at once and token by token, must be the text again. */
static void check_round_trip(const struct txda_tokenizer *tok, const char *text)
{
	size_t n, len, piece_len, at = 0;
	struct txda_detok *detok;
	const char *piece;
	char *back;
	uint32_t *ids;

	assert_int_equal(txda_tokenizer_encode(tok, text, strlen(text), 0, &ids, &n), 0);
	assert_int_equal(txda_tokenizer_decode(tok, ids, n, false, &back, &len), 0);
	assert_string_equal(back, text);
	assert_int_equal(len, strlen(text));
	assert_int_equal(txda_detok_new(tok, false, NULL, 0, &detok), 0);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(txda_detok_feed(detok, ids[i], &piece, &piece_len), 0);
		assert_true(at + piece_len <= len);
		assert_memory_equal(piece, back + at, piece_len);
		at += piece_len;
	}
	assert_int_equal(txda_detok_flush(detok, &piece, &piece_len), 0);
	assert_int_equal(piece_len, 0);
	assert_int_equal(at, len);
	txda_detok_free(detok);
	free(back);
	free(ids);
}

static const char *const texts[] = {
	"",
	"a",
	" ",
	"Once upon a time, there was a princess.",
	"  two  spaces\n\n\tand a tab ",
	"it's 1234567 o'clock; we'll see!",
	"\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\x80\xE2\x80\x8D",
	"<|im_start|>user\nHi<|im_end|>\n",
};

TEST(test_demo)
{
	struct txda_tokenizer *tok = load_shipped("TXDA_MODELS", "demo");
	uint32_t *ids;
	size_t n, len;

	if (!tok)
		skip();
	assert_int_equal(txda_tokenizer_vocab_size(tok), 4096);
	assert_int_equal(txda_tokenizer_eos(tok), 2);
	assert_true(txda_tokenizer_is_special(tok, 1));
	assert_false(txda_tokenizer_is_special(tok, 3));
	assert_false(txda_tokenizer_is_special(tok, UINT32_MAX));
	assert_string_equal(txda_tokenizer_piece(tok, 1, &len), "<|im_start|>");
	assert_int_equal(len, 12);
	assert_null(txda_tokenizer_piece(tok, 4096, NULL));
	assert_null(txda_tokenizer_bytes(tok, UINT32_MAX, NULL));
	assert_int_equal(txda_tokenizer_piece_id(tok, "<|im_end|>", 10), 2);
	assert_int_equal(txda_tokenizer_piece_id(tok, "no such piece", 13), TXDA_TOKEN_NONE);
	n = txda_tokenizer_piece_id(tok, "\xC4\xA0the", 5);
	assert_string_equal(txda_tokenizer_bytes(tok, (uint32_t)n, NULL), " the");
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		check_round_trip(tok, texts[i]);
	check_ids(tok, "<|im_end|>", 0, IDS(2));
	assert_int_equal(txda_tokenizer_encode(tok, "<|im_end|>", 10, TXDA_ENCODE_NO_SPECIAL_PARSE,
					       &ids, &n),
			 0);
	assert_true(n > 1);
	free(ids);
	assert_int_equal(txda_tokenizer_encode(tok, "a\xFF", 2, 0, &ids, &n), -EILSEQ);
	assert_int_equal(txda_tokenizer_encode(tok, "a\xE4\xB8", 3, 0, &ids, &n), -EILSEQ);
	assert_int_equal(txda_tokenizer_encode(tok, "a", 1, 64, &ids, &n), -EINVAL);
	assert_int_equal(txda_tokenizer_encode(tok, "a\0b", 3, 0, &ids, &n), 0);
	assert_int_equal(n, 3);
	free(ids);
	txda_tokenizer_free(tok);
}

TEST(test_fixtures)
{
	static const char *const names[] = {"llama2", "llama31", "qwen2-sharded", "qwen3",
					    "internlm3"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct txda_tokenizer *tok = load_shipped("TXDA_FIXTURES", names[i]);

		if (!tok)
			skip();
		check_round_trip(tok, "The river, 12 o'clock.");
		txda_tokenizer_free(tok);
	}
}

/* A model of a few tokens, SentencePiece style; %s stands for further members. */
#define SMALL_MODEL                                                                                \
	"\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"fuse_unk\":true,\"byte_fallback\":" \
	"true,\"vocab\":{\"<unk>\":0,\"<s>\":1,\"</"                                               \
	"s>\":2,\"\\u2581\":3,\"a\":4,\"b\":5,\"ab\":6,\"\\u2581ab\":7,\"<0xC3>\":8,\"<0xA9>\":9}" \
	",\"merges\":[\"a b\",\"\\u2581 "                                                          \
	"ab\"]},\"added_tokens\":[{\"id\":1,\"content\":\"<s>\",\"special\":true},{\"id\":10,"     \
	"\"content\":\"<x>\",\"special\":false,\"normalized\":false}]"

#define SMALL_DECODER                                                                              \
	"\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{"     \
	"\"String\":\"\\u2581\"},\"content\":\" "                                                  \
	"\"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" "  \
	"\",\"start\":1,\"stop\":0}]}"

TEST(test_small)
{
	struct txda_tokenizer *tok = load_text("{" SMALL_MODEL "," SMALL_DECODER
					       ",\"normalizer\":{\"type\":\"Replace\",\"pattern\":{"
					       "\"String\":\" \"},\"content\":\"\\u2581\"}}",
					       "{\"bos_token\":{\"content\":\"<s>\"},\"eos_token\":"
					       "\"</s>\",\"add_bos_token\":true}");
	char *text;
	size_t len;

	check_ids(tok, " ab ab", 0, IDS(7, 7));
	check_ids(tok, "ab", TXDA_ENCODE_ADD_SPECIAL, IDS(1, 6));
	check_ids(tok,
		  "a\xC3\xA9"
		  "b",
		  0, IDS(4, 8, 9, 5));
	check_ids(tok, "zza", 0, IDS(0, 4));
	check_ids(tok, "<s>a<x>", 0, IDS(1, 4, 10));
	check_ids(tok, "<s><x>", TXDA_ENCODE_NO_SPECIAL_PARSE, IDS(0, 10));
	assert_int_equal(txda_tokenizer_eos(tok), 2);
	assert_int_equal(txda_tokenizer_decode(tok, IDS(7, 7, 8, 9, 99, 1), true, &text, &len), 0);
	assert_string_equal(text, "ab ab\xC3\xA9");
	free(text);
	assert_int_equal(txda_tokenizer_decode(tok, IDS(7, 8, 1, 9, 8), false, &text, &len), 0);
	assert_string_equal(text, "ab\xEF\xBF\xBD<s>\xEF\xBF\xBD\xEF\xBF\xBD");
	free(text);
	txda_tokenizer_free(tok);
}

/* A map holds a key once, with its last value; several keys may have one value. */
TEST(test_duplicates)
{
	static const char *const decoders[] = {"",
					       ",\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_"
					       "prefix_space\":false,\"use_regex\":false}"};

	for (size_t i = 0; i < 2; i++) {
		struct txda_tokenizer *tok;
		char json[512];

		snprintf(json, sizeof(json),
			 "{\"model\":{\"vocab\":{\"a\":1,\"b\":2,\"a\":3,\"c\":2,\"ab\":4,\"x\":5,"
			 "\"x\":5,\"abab\":4,\"long\":2,\"l\":6,\"o\":7},\"merges\":[\"a b\",\"ab "
			 "ab\"]}%s}",
			 decoders[i]);
		tok = load_text(json, NULL);
		assert_int_equal(txda_tokenizer_vocab_size(tok), 8);
		assert_null(txda_tokenizer_piece(tok, 1, NULL));
		assert_int_equal(txda_tokenizer_piece_id(tok, "a", 1), 3);
		assert_int_equal(txda_tokenizer_piece_id(tok, "b", 1), 2);
		assert_int_equal(txda_tokenizer_piece_id(tok, "c", 1), 2);
		assert_string_equal(txda_tokenizer_piece(tok, 2, NULL), "long");
		/* a and b join, and so do a and c, which is b's other name; a word is not as short as another. */
		check_ids(tok, "xabab", 0, IDS(5, 4));
		check_ids(tok, "ac", 0, IDS(4));
		check_ids(tok, "c", 0, IDS(2));
		check_ids(tok, "lo", 0, IDS(6, 7));
		check_ids(tok, "xcax", 0, IDS(5, 2, 3, 5));
		txda_tokenizer_free(tok);
	}
}

static struct txda_tokenizer *loaded;

static void load_row(char **field)
{
	loaded = load_text(field[0], field[1]);
}

TEST(test_gemma)
{
	struct txda_tokenizer *tok;
	char *text;
	size_t len;

	each_case("tokenizers.txt", "gemma", load_row);
	tok = loaded;
	check_ids(tok, "ab ab", 0, IDS(9, 11));
	check_ids(tok, "ab  ab", TXDA_ENCODE_ADD_SPECIAL, IDS(2, 9, 10, 11));
	check_ids(tok, "<start_of_turn>a\n\n\nb", 0, IDS(14, 7, 5, 4, 8));
	check_ids(tok, "\xC3\xA9 a", 0, IDS(12, 13, 10, 7));
	assert_int_equal(txda_tokenizer_decode(tok, IDS(2, 11, 6, 12, 13, 14), true, &text, &len),
			 0);
	assert_string_equal(text, " ab  \xC3\xA9");
	free(text);
	txda_tokenizer_free(tok);
}

static void feed(struct txda_detok *detok, uint32_t id, const char *want)
{
	const char *text;
	size_t len;

	assert_int_equal(txda_detok_feed(detok, id, &text, &len), 0);
	assert_string_equal(text, want);
	assert_int_equal(len, strlen(want));
}

TEST(test_stream)
{
	struct txda_tokenizer *tok = load_text("{" SMALL_MODEL "," SMALL_DECODER "}", NULL);
	struct txda_detok *detok;
	const char *text;
	size_t len;

	assert_int_equal(txda_detok_new(tok, true, NULL, 0, &detok), 0);
	feed(detok, 1, "");
	feed(detok, 7, "ab");
	feed(detok, 7, " ab");
	feed(detok, 8, "");
	feed(detok, 1, "");
	feed(detok, 9, "\xC3\xA9");
	feed(detok, 8, "");
	feed(detok, 4,
	     "\xEF\xBF\xBD"
	     "a");
	feed(detok, 12345, "");
	feed(detok, 8, "");
	assert_int_equal(txda_detok_flush(detok, &text, &len), 0);
	assert_string_equal(text, "\xEF\xBF\xBD");
	assert_int_equal(txda_detok_flush(detok, &text, &len), 0);
	assert_int_equal(len, 0);
	feed(detok, 3, " ");
	txda_detok_free(detok);
	/* A character that the prompt began. */
	assert_int_equal(txda_detok_new(tok, false, IDS(7, 8), &detok), 0);
	feed(detok, 9, "\xC3\xA9");
	feed(detok, 7, " ab");
	txda_detok_free(detok);
	txda_tokenizer_free(tok);
}

static void refuse(char **field)
{
	const char *at = strchr(field[0], '@');
	struct txda_tokenizer *tok = NULL;
	char json[2048], err[512] = "";

	snprintf(json, sizeof(json), "%.*s%s%s", at ? (int)(at - field[0]) : (int)strlen(field[0]),
		 field[0], at ? SMALL_MODEL : "", at ? at + 1 : "");
	if (parse_text(json, field[2], &tok, err, sizeof(err)) != -EINVAL || tok)
		fail_msg("taken: %s", field[0]);
	if (!strstr(err, field[1]))
		fail_msg("%s: the message is \"%s\", not \"%s\"", field[0], err, field[1]);
}

TEST(test_refused)
{
	each_case("tokenizers.txt", "refused", refuse);
}

struct work {
	const struct txda_tokenizer *tok;
	const char *text;
	size_t len;
	uint32_t *ids;
	size_t n;
	int ret;
};

static void *encode_thread(void *arg)
{
	struct work *work = arg;

	work->ret =
		txda_tokenizer_encode(work->tok, work->text, work->len, 0, &work->ids, &work->n);
	return NULL;
}

TEST(test_threads)
{
	struct txda_tokenizer *tok = load_shipped("TXDA_MODELS", "demo");
	struct work work[4];
	pthread_t threads[4];
	char text[60000];

	if (!tok)
		skip();
	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = "the wolf and her; 12's\n"[i * 7 % 23];
	for (size_t i = 0; i < 4; i++) {
		work[i] = (struct work){.tok = tok, .text = text, .len = sizeof(text)};
		assert_int_equal(pthread_create(&threads[i], NULL, encode_thread, &work[i]), 0);
	}
	for (size_t i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(work[i].ret, 0);
		assert_int_equal(work[i].n, work[0].n);
		assert_memory_equal(work[i].ids, work[0].ids, work[0].n * sizeof(uint32_t));
	}
	for (size_t i = 0; i < 4; i++)
		free(work[i].ids);
	txda_tokenizer_free(tok);
}

/* A word of a megabyte, a megabyte of marks: each must take about as long as prose. */
TEST(test_hostile_sizes)
{
	static const char *const units[] = {"a",	" ",	       "\n ",
					    "'",	"<|im_start|", "\xCC\x81\xCC\xA3",
					    "\xC2\xA0", "\xE4\xB8\xAD"};
	struct txda_tokenizer *tok = load_shipped("TXDA_MODELS", "demo");
	size_t size = 1000000, n;
	char *text = malloc(size + 16);
	uint32_t *ids;

	if (!tok || !text) {
		free(text);
		skip();
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
		size_t unit = strlen(units[i]), len = 0;

		for (; len < size; len += unit)
			memcpy(text + len, units[i], unit);
		assert_int_equal(txda_tokenizer_encode(tok, text, len, 0, &ids, &n), 0);
		assert_true(n > 0);
		free(ids);
	}
	free(text);
	txda_tokenizer_free(tok);
}

TEST_MAIN
