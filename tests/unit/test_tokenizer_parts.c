// SPDX-License-Identifier: MIT
/* The tokeniser's parts alone: splitting, expressions, normalising, merging, added tokens. */
#include "unit.h"
#include "bpe.h"
#include "case_file.h"
#include "pretok.h"
#include "text_unicode.h"
#include "tokenizer_added.h"
#include "tokenizer_normalize.h"

#include <errno.h>

static uint64_t random_state = 88172645463325252ull;

static uint32_t random_below(uint32_t n)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32_t)(random_state >> 32) % n;
}

/* A text of up to @max characters out of @n choices; the caller has room. */
static size_t random_text(const char *const *choices, unsigned n, unsigned max, char *out)
{
	unsigned count = random_below(max + 1);
	size_t len = 0;

	while (count--) {
		const char *choice = choices[random_below(n)];

		memcpy(out + len, choice, strlen(choice));
		len += strlen(choice);
	}
	out[len] = '\0';
	return len;
}

static int collect(void *arg, const char *word, size_t len)
{
	struct text_buf *buf = arg;

	assert_true(!buf->len || text_buf_add_string(buf, "|"));
	assert_true(text_buf_add(buf, word, len));
	return 0;
}

static void load_pretok(struct pretok *pretok, const char *json)
{
	char err[256] = "";
	struct json_errors errors = {err, sizeof(err), 0};
	cJSON *tree = cJSON_Parse(json);

	memset(pretok, 0, sizeof(*pretok));
	assert_non_null(tree);
	if (pretok_load(pretok, tree, &errors))
		fail_msg("%s: %s", json, err);
	cJSON_Delete(tree);
}

/* The words of @text with a bar between them; the caller frees it. */
static char *words(const struct pretok *pretok, const char *text, size_t len, bool first)
{
	struct text_buf out = {0};
	struct pretok_run run = {.pretok = pretok, .emit = collect, .arg = &out};

	assert_int_equal(pretok_run_piece(&run, text, len, first), 0);
	pretok_run_free(&run);
	assert_true(text_buf_end(&out));
	return out.data;
}

static void check_words(const char *json, const char *text, bool first, const char *expected)
{
	struct pretok pretok;
	char *got;

	load_pretok(&pretok, json);
	got = words(&pretok, text, strlen(text), first);
	assert_string_equal(got, expected);
	free(got);
	pretok_free(&pretok);
}

#define SPLIT(pattern, behavior, invert)                                                           \
	"{\"type\":\"Split\",\"pattern\":" pattern ",\"behavior\":\"" behavior                     \
	"\",\"invert\":" invert "}"
#define DASH "{\"String\":\"-\"}"

static void check_row(char **field)
{
	check_words(field[0], field[1], !field[3], field[2]);
}

TEST(test_splits)
{
	each_case("splits.txt", "behaviors", check_row);
	each_case("splits.txt", "other splits", check_row);
	check_words("{\"type\":\"WhitespaceSplit\"}", " a\tb\u3000c ", true, "a|b|c");
}

static void refuse_regex(char **field)
{
	char err[256] = "";
	struct json_errors errors = {err, sizeof(err), 0};
	struct pretok pretok = {0};
	cJSON *tree = cJSON_Parse(SPLIT("{}", "Isolated", "false"));

	cJSON_AddStringToObject(cJSON_GetObjectItem(tree, "pattern"), "Regex", field[0]);
	if (pretok_load(&pretok, tree, &errors) != -EINVAL)
		fail_msg("taken: %s", field[0]);
	assert_non_null(strstr(err, "pre_tokenizer.pattern.Regex"));
	cJSON_Delete(tree);
	pretok_free(&pretok);
}

/* Where PCRE2 reads an expression otherwise than Oniguruma: \s without U+180E, \w with marks, and
 * what is refused. */
TEST(test_regex_dialect)
{
	check_words(SPLIT("{\"Regex\":\"\\\\s+\"}", "Removed", "false"),
		    "a\xE1\xA0\x8E"
		    "b\xC2\x85"
		    "c\xE2\x80\xA8"
		    "d\x1C"
		    "e",
		    true,
		    "a\xE1\xA0\x8E"
		    "b|c|d\x1C"
		    "e");
	check_words(SPLIT("{\"Regex\":\"[\\\\s]+|[^\\\\S]\"}", "Removed", "false"), "a \tb", true,
		    "a|b");
	check_words(SPLIT("{\"Regex\":\"[^\\\\s\\\\p{L}]\"}", "Removed", "false"), "a-b c", true,
		    "a|b c");
	check_words(SPLIT("{\"Regex\":\"\\\\w+\"}", "Removed", "true"), "ab\xCC\x81_1-\xC3\xA9",
		    true, "ab\xCC\x81_1|\xC3\xA9");
	/* U+3001 is no Han, though Han is written with it. */
	check_words(SPLIT("{\"Regex\":\"\\\\p{Han}+\"}", "Isolated", "false"), "a好、好好", true,
		    "a|好|、|好好");
	check_words(SPLIT("{\"Regex\":\"[\\\\p{^Han}]+\"}", "Isolated", "false"), "a好、好好", true,
		    "a|好|、|好好");
	check_words(SPLIT("{\"Regex\":\"[\\\\p{Ll}\\\\p{Lo}&&[^\\\\p{Han}\\\\sx]]+\"}", "Isolated",
			  "false"),
		    "abカ好 xcA-", true, "abカ|好 x|c|A-");
	check_words(SPLIT("{\"Regex\":\"(?i:'s|'ll)\"}", "Isolated", "false"), "a'S'LL'\xC5\xBF",
		    true, "a|'S|'LL|'\xC5\xBF");
	each_case("splits.txt", "refused expressions", refuse_regex);
}

/* The scanners by hand must give what the expressions give. */
TEST(test_fast_scanner)
{
	static const char *const choices[] = {
		"a",
		"S",
		"s",
		"t",
		"l",
		"L",
		"re",
		"'",
		"'",
		" ",
		" ",
		"\n",
		"\r",
		"\t",
		"1",
		"23",
		".",
		"?!",
		"_",
		"\x0B",
		"\x1C",
		"\x7F",
		"\xC3\xA9",
		"\xC5\xBF",
		"\xC2\xA0",
		"\xC2\x85",
		"\xE3\x80\x80",
		"\xC2\xBD",
		"\xE4\xB8\xAD",
		"\xCC\x81",
		"\xE2\x80\x99",
		"\xF0\x9F\x98\x80",
	};
	static const char *const jsons[] = {
		"{\"type\":\"ByteLevel\",\"add_prefix_space\":false}",
		SPLIT("{\"Regex\":\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?"
		      "\\\\p{L}+|\\\\p{N}| "
		      "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|"
		      "\\\\s+\"}",
		      "Isolated", "false"),
		SPLIT("{\"Regex\":\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?"
		      "\\\\p{L}+|\\\\p{N}{1,3}| "
		      "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|"
		      "\\\\s+\"}",
		      "Isolated", "false"),
	};
	char text[256];

	for (size_t j = 0; j < ARRAY_SIZE(jsons); j++) {
		struct pretok fast, slow;

		load_pretok(&fast, jsons[j]);
		load_pretok(&slow, jsons[j]);
		assert_true(fast.steps[0].fast.on);
		slow.steps[0].fast.on = false;
		for (unsigned i = 0; i < 100000; i++) {
			size_t len = random_text(choices, ARRAY_SIZE(choices), 12, text);
			char *a = words(&fast, text, len, true), *b = words(&slow, text, len, true);

			if (strcmp(a, b))
				fail_msg("by hand %s, by expression %s", a, b);
			free(a);
			free(b);
		}
		pretok_free(&fast);
		pretok_free(&slow);
	}
}

static char *normalized(const struct normalizer *normalizer, const char *text, size_t len)
{
	struct normalize_run run = {0};
	struct text_buf copy = {0};

	assert_int_equal(normalize(normalizer, &run, text, len, &text, &len), 0);
	assert_true(text_buf_add(&copy, text, len) && text_buf_end(&copy));
	normalize_run_free(&run);
	return copy.data;
}

static void check_normalized(const char *json, const char *text, const char *expected)
{
	struct json_errors errors = {NULL, 0, 0};
	struct normalizer normalizer = {0};
	cJSON *tree = cJSON_Parse(json);
	char *got;

	assert_non_null(tree);
	assert_int_equal(normalizer_load(&normalizer, tree, &errors), 0);
	got = normalized(&normalizer, text, strlen(text));
	assert_string_equal(got, expected);
	free(got);
	cJSON_Delete(tree);
	normalizer_free(&normalizer);
}

TEST(test_normalizers)
{
	check_normalized("{\"type\":\"NFC\"}", "cafe\xCC\x81!", "caf\xC3\xA9!");
	/* U+11A7 composes with nothing, U+11A8 does */
	check_normalized("{\"type\":\"NFC\"}",
			 "\xEA\xB0\x80\xE1\x86\xA7\xE1\x86\xA7 \xEA\xB0\x80\xE1\x86\xA8",
			 "\xEA\xB0\x80\xE1\x86\xA7\xE1\x86\xA7 \xEA\xB0\x81");
	check_normalized("{\"type\":\"NFC\"}",
			 "\xE1\x86\xA7"
			 "e\xCC\x81\xE1\x86\xA7",
			 "\xE1\x86\xA7\xC3\xA9\xE1\x86\xA7");
	check_normalized("{\"type\":\"NFD\"}", "caf\xC3\xA9", "cafe\xCC\x81");
	check_normalized("{\"type\":\"NFKC\"}", "\xEF\xAC\x81\xC2\xB2", "fi2");
	check_normalized("{\"type\":\"Prepend\",\"prepend\":\"_\"}", "a", "_a");
	check_normalized("{\"type\":\"Prepend\",\"prepend\":\"_\"}", "", "");
	check_normalized("{\"type\":\"Replace\",\"pattern\":{\"String\":\"ab\"},\"content\":\"x\"}",
			 "ababcab", "xxcx");
	check_normalized(
		"{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},\"content\":\" \"}",
		"a   b c  ", "a b c ");
	check_normalized("{\"type\":\"Lowercase\"}", "\xC3\x89 A\xC4\xB0", "\xC3\xA9 ai\xCC\x87");
	check_normalized("{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true}",
			 " \xC2\xA0"
			 "a b\n",
			 "a b");
	check_normalized(
		"{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"_\"},{"
		"\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"_\"}]}",
		"a b", "_a_b");
}

/* NFC region by region is NFC of the whole, and what counts as inert is. */
TEST(test_nfc)
{
	static const char *const choices[] = {
		"a",
		"e",
		" ",
		"\xC3\xA9",
		"\xCC\x81",
		"\xCC\xA3",
		"\xCC\x88",
		"\xCD\x85",
		"\xE1\x84\x80",
		"\xE1\x85\xA1",
		"\xE1\x86\xA8",
		"\xEA\xB0\x80",
		"\xE2\x84\xAB",
		"\xE3\x81\x8B",
		"\xE3\x82\x99",
		"\xE0\xA4\xA8",
		"\xE0\xA4\xBC",
		"\xE0\xA5\x98",
		"\xE4\xB8\xAD",
		"\xEF\xA4\x80",
		"\xF0\x9D\x85\x97",
		"\xD7\xA9",
		"\xD6\xBC",
		"\xD7\x81",
	};
	struct normalizer normalizer = {
		.steps = {{.kind = NORMALIZE_UNICODE, .compose = true}},
		.n_steps = 1,
	};
	char text[256];

	for (unsigned i = 0; i < 50000; i++) {
		size_t len = random_text(choices, ARRAY_SIZE(choices), 40, text);
		char *got = normalized(&normalizer, text, len);
		utf8proc_uint8_t *want = utf8proc_NFC((const utf8proc_uint8_t *)text);

		assert_non_null(want);
		assert_string_equal(got, (const char *)want);
		free(got);
		free(want);
	}
	for (uint32_t cp = 1; cp < 0x110000; cp++) {
		size_t len = 1;
		char *got;

		if ((cp >= 0xD800 && cp < 0xE000) || !normalize_nfc_inert(cp))
			continue;
		text[0] = 'e';
		len += utf8_encode(cp, (uint8_t *)text + 1);
		text[len] = '\0';
		got = (char *)utf8proc_NFC((const utf8proc_uint8_t *)text);
		if (strcmp(got, text) ||
		    utf8proc_get_property((utf8proc_int32_t)cp)->combining_class)
			fail_msg("U+%04X is not inert", cp);
		free(got);
	}
}

/* The definition: again and again the best pair, the leftmost of equal ones. */
static size_t naive_merge(const struct bpe *bpe, uint32_t *symbols, size_t n,
			  const uint32_t (*pairs)[2])
{
	for (;;) {
		uint32_t best = BPE_NONE;
		size_t at = 0;

		for (size_t i = 0; i + 1 < n; i++) {
			for (uint32_t rank = 0; rank < bpe->n_merges && rank < best; rank++) {
				if (pairs[rank][0] == symbols[i] &&
				    pairs[rank][1] == symbols[i + 1]) {
					best = rank;
					at = i;
				}
			}
		}
		if (best == BPE_NONE)
			return n;
		symbols[at] = bpe->merged[best];
		memmove(symbols + at + 1, symbols + at + 2, (n - at - 2) * sizeof(*symbols));
		n--;
	}
}

TEST(test_merging)
{
	static const char *const pieces[] = {"a",   "b",   "c",	   "ab", "bc",	"aa",
					     "abc", "aaa", "aaaa", "ca", "abca"};
	static const uint32_t pairs[][2] = {{5, 5}, {0, 1}, {0, 0}, {3, 2}, {1, 2},
					    {5, 0}, {2, 0}, {6, 0}, {3, 9}};
	static const uint32_t merged[] = {8, 3, 5, 6, 4, 7, 9, 10, 10};
	static const char *const letters[] = {"a", "b", "c", "a"};
	struct bpe bpe = {.byte_level = true, .unk = BPE_NONE};
	struct bpe_scratch scratch = {0};
	struct string_table table;
	char text[400];

	assert_int_equal(string_table_init(&table, 11, 0), 0);
	assert_int_equal(string_index_init(&bpe.words, &table, 11), 0);
	for (uint32_t i = 0; i < 11; i++) {
		assert_int_equal(string_table_set(&table, i, pieces[i], strlen(pieces[i])), 0);
		assert_true(string_index_add(&bpe.words, i));
	}
	assert_false(string_index_add(&bpe.words, 3));
	assert_int_equal(bpe_init(&bpe, 9), 0);
	for (uint32_t i = 0; i < 9; i++)
		bpe_add_merge(&bpe, pairs[i][0], pairs[i][1], merged[i]);
	assert_int_equal(bpe_finish(&bpe), 0);
	for (unsigned i = 0; i < 20000; i++) {
		size_t len = random_text(letters, 4, i % 4 ? 10 : 300, text), n;
		struct id_vec ids = {0};
		uint32_t want[300];

		for (size_t k = 0; k < len; k++)
			want[k] = (uint32_t)(text[k] - 'a');
		n = naive_merge(&bpe, want, len, pairs);
		assert_int_equal(bpe_encode(&bpe, &scratch, text, len, &ids), 0);
		assert_int_equal(ids.len, n);
		if (n)
			assert_memory_equal(ids.data, want, n * sizeof(*want));
		free(ids.data);
	}
	bpe_scratch_free(&scratch);
	bpe_free(&bpe);
	string_table_free(&table);
}

TEST(test_added_tokens)
{
	static const struct added_token tokens[] = {
		{.id = 10, .special = true},
		{.id = 11},
		{.id = 12, .single_word = true},
		{.id = 13, .lstrip = true, .rstrip = true},
	};
	static const char *const spellings[] = {"<a>", "<a><b>", "word", "*"};
	static const char text[] = "x <a><b><a> sword word * <a><b";
	struct added_set set = {.tokens = tokens};
	struct added_walk walk = {0};

	assert_false(added_set_next(&set, text, sizeof(text) - 1, false, &walk));
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(added_set_add(&set, spellings[i], strlen(spellings[i]), i), 0);
	walk = (struct added_walk){0};
	assert_true(added_set_next(&set, text, sizeof(text) - 1, false, &walk));
	assert_int_equal(walk.id, 11);
	assert_int_equal(walk.before, 0);
	assert_int_equal(walk.start, 2);
	assert_true(added_set_next(&set, text, sizeof(text) - 1, false, &walk));
	assert_int_equal(walk.id, 10);
	assert_int_equal(walk.start, walk.before);
	assert_true(added_set_next(&set, text, sizeof(text) - 1, false, &walk));
	assert_int_equal(walk.id, 12);
	assert_int_equal(walk.start, 18);
	assert_true(added_set_next(&set, text, sizeof(text) - 1, false, &walk));
	assert_int_equal(walk.id, 13);
	assert_int_equal(walk.start, 22);
	assert_int_equal(walk.done, 25);
	assert_true(added_set_next(&set, text, sizeof(text) - 1, false, &walk));
	assert_int_equal(walk.id, 10);
	assert_false(added_set_next(&set, text, sizeof(text) - 1, false, &walk));
	assert_int_equal(walk.done, 28);
	walk = (struct added_walk){.scan = 8, .done = 8};
	assert_true(added_set_next(&set, text, sizeof(text) - 1, true, &walk));
	assert_int_equal(walk.id, 12);
	assert_int_equal(added_set_add(&set, text, ADDED_TOKEN_MAX + 1, 0), -E2BIG);
	added_set_free(&set);
}

TEST_MAIN
