// SPDX-License-Identifier: MIT
/*
 * tokenizer.model: a model made of another's vocabulary must give the ids that the other gives, and
 * damaged ones an error.
 */
#include <errno.h>
#include <search.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit.h"
#include "conformance.h"
#include "json_strict.h"
#include "sentencepiece.h"
#include "tokenizer.h"

struct buffer {
	uint8_t *data;
	size_t n, room;
};

static void put(struct buffer *b, const void *data, size_t n)
{
	if (b->n + n > b->room) {
		b->room = 2 * (b->n + n);
		b->data = realloc(b->data, b->room);
	}
	memcpy(b->data + b->n, data, n);
	b->n += n;
}

static void put_varint(struct buffer *b, uint64_t v)
{
	for (; v > 127; v >>= 7)
		put(b, &(uint8_t){(uint8_t)(v | 128)}, 1);
	put(b, &(uint8_t){(uint8_t)v}, 1);
}

static void put_number(struct buffer *b, unsigned field, uint64_t v)
{
	put_varint(b, field << 3);
	put_varint(b, v);
}

static void put_text(struct buffer *b, unsigned field, const void *text, size_t len)
{
	put_varint(b, field << 3 | 2);
	put_varint(b, len);
	put(b, text, len);
}

static void put_message(struct buffer *b, unsigned field, struct buffer *message)
{
	put_text(b, field, message->data, message->n);
	free(message->data);
}

static void put_piece(struct buffer *b, const char *text, float score, unsigned type)
{
	struct buffer p = {0};

	put_text(&p, 1, text, strlen(text));
	put_varint(&p, 2 << 3 | 5);
	put(&p, &score, 4);
	put_number(&p, 3, type);
	put_message(b, 1, &p);
}

static void put_trainer(struct buffer *b, unsigned type, bool bytes)
{
	struct buffer t = {0};

	put_number(&t, 3, type);
	put_number(&t, 35, bytes);
	put_message(b, 2, &t);
}

/*
 * The first ids are <unk>, <s>, </s> and bytes. A piece's score falls with the rank of the first
 * merge that makes it.
 */
static struct buffer from_vocabulary(const cJSON *vocab, const cJSON *merges)
{
	int n = cJSON_GetArraySize(vocab), rank = 0;
	float *score = calloc((size_t)n, sizeof(*score));
	const char **piece = calloc((size_t)n, sizeof(*piece));
	struct buffer b = {0};
	const cJSON *item;

	assert_true(hcreate((size_t)n * 2));
	cJSON_ArrayForEach(item, vocab) {
		piece[item->valueint] = item->string;
		assert_non_null(
			hsearch((ENTRY){item->string, (void *)(intptr_t)item->valueint}, ENTER));
	}
	cJSON_ArrayForEach(item, merges) {
		char joined[256], *space;
		const ENTRY *made;

		snprintf(joined, sizeof(joined), "%s", item->valuestring);
		space = strchr(joined, ' ');
		memmove(space, space + 1, strlen(space));
		made = hsearch((ENTRY){joined, NULL}, FIND);
		assert_non_null(made);
		if (score[(intptr_t)made->data] == 0)
			score[(intptr_t)made->data] = (float)-++rank;
	}
	hdestroy();
	for (int i = 0; i < n; i++)
		put_piece(&b, piece[i], score[i], i == 0 ? 2 : i < 3 ? 3 : i < 259 ? 6 : 1);
	put_trainer(&b, 2, true);
	free(score);
	free(piece);
	return b;
}

TEST(test_same_ids)
{
	char path[512], dir[] = "/tmp/txda-sentencepiece-XXXXXX", err[256];
	struct txda_tokenizer *tok;
	cJSON *json, *cases;
	const cJSON *item, *model;
	struct buffer b;
	unsigned n = 0;
	FILE *f;

	if (!conformance_path(path, sizeof(path), "tokenizers/llama2/tokenizer.json"))
		skip();
	assert_int_equal(txda_json_load(path, 1 << 28, &json, err, sizeof(err)), 0);
	model = cJSON_GetObjectItem(json, "model");
	b = from_vocabulary(cJSON_GetObjectItem(model, "vocab"),
			    cJSON_GetObjectItem(model, "merges"));
	cJSON_Delete(json);
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/tokenizer.model", dir);
	f = fopen(path, "w");
	assert_non_null(f);
	assert_int_equal(fwrite(b.data, 1, b.n, f), b.n);
	fclose(f);
	free(b.data);
	if (txda_tokenizer_load(dir, &tok, err, sizeof(err)))
		fail_msg("%s", err);
	unlink(path);
	rmdir(dir);
	assert_true(conformance_path(path, sizeof(path), "tokenizers/llama2/cases.json"));
	assert_int_equal(txda_json_load(path, 1 << 28, &cases, err, sizeof(err)), 0);
	cJSON_ArrayForEach(item, cases) {
		const char *text = cJSON_GetObjectItem(item, "text")->valuestring;
		const cJSON *want = cJSON_GetObjectItem(item, "ids");
		uint32_t *ids;
		size_t count;

		/* the parser has U+FFFD for NUL */
		if (strstr(text, "\xef\xbf\xbd"))
			continue;
		assert_int_equal(txda_tokenizer_encode(tok, text, strlen(text), 0, &ids, &count),
				 0);
		if ((int)count != cJSON_GetArraySize(want))
			fail_msg("\"%s\": %zu ids, expected %d", text, count,
				 cJSON_GetArraySize(want));
		for (size_t i = 0; i < count; i++)
			assert_int_equal(ids[i], cJSON_GetArrayItem(want, (int)i)->valueint);
		free(ids);
		n++;
	}
	assert_true(n > 100);
	printf("%u texts have the ids of tokenizer.json\n", n);
	cJSON_Delete(cases);
	txda_tokenizer_free(tok);
}

static struct buffer small(void)
{
	struct buffer b = {0};

	put_piece(&b, "<unk>", 0, 2);
	put_piece(&b, "<s>", 0, 3);
	put_piece(&b, "</s>", 0, 3);
	put_piece(&b, "\xe2\x96\x81", -3, 1);
	put_piece(&b, "a", -4, 1);
	put_piece(&b, "b", -5, 1);
	put_piece(&b, "ab", -1, 1);
	put_piece(&b,
		  "\xe2\x96\x81"
		  "a",
		  -2, 1);
	put_piece(&b,
		  "\xe2\x96\x81"
		  "ab",
		  -6, 1);
	put_trainer(&b, 2, false);
	return b;
}

/* NormalizerSpec; a negative @strip_spaces is left out. */
static void put_normalizer(struct buffer *b, const char *rule, const char *table, int strip_spaces,
			   int escape)
{
	struct buffer s = {0};

	put_text(&s, 1, rule, strlen(rule));
	put_text(&s, 2, table, strlen(table));
	if (strip_spaces >= 0)
		put_number(&s, 4, (unsigned)strip_spaces);
	put_number(&s, 5, (unsigned)escape);
	put_message(b, 3, &s);
}

static void check_ids(const struct buffer *b, const char *text, const char *expected)
{
	struct txda_tokenizer *tok;
	char err[256], got[256] = "";
	uint32_t *ids;
	size_t n;

	if (txda_tokenizer_parse(TXDA_TOKENIZER_SENTENCEPIECE, (const char *)b->data, b->n, NULL,
				 &tok, err, sizeof(err)))
		fail_msg("%s", err);
	assert_int_equal(txda_tokenizer_encode(tok, text, strlen(text), 0, &ids, &n), 0);
	for (size_t i = 0; i < n; i++)
		sprintf(got + strlen(got), "%s%u", i ? " " : "", ids[i]);
	assert_string_equal(got, expected);
	free(ids);
	txda_tokenizer_free(tok);
}

/* Spaces are kept or not, as the model says; the ids are SentencePiece's. */
TEST(test_spaces)
{
	struct buffer b = small();

	check_ids(&b, "  a  b ", "3 3 7 3 3 5 3");
	put_normalizer(&b, "identity", "", 0, 1);
	check_ids(&b, "  a  b ", "3 3 7 3 3 5 3");
	free(b.data);
	b = small();
	put_normalizer(&b, "identity", "", 1, 1);
	check_ids(&b, "  a  b ", "7 3 5");
	check_ids(&b, "a\xe2\x96\x81 ", "7");
	check_ids(&b, "   ", "");
	/* its default */
	free(b.data);
	b = small();
	put_normalizer(&b, "identity", "", -1, 1);
	check_ids(&b, "  a  b ", "7 3 5");
	free(b.data);
}

/* Pieces of the user are found in the text, also those with spaces, and never merged. */
TEST(test_user_defined)
{
	struct txda_tokenizer *tok;
	struct buffer b = small();
	char *text;
	size_t len;

	put_piece(&b, "\xe2\x96\x81\xe2\x96\x81", 0, 4);
	put_piece(&b,
		  "b\xe2\x96\x81"
		  "a",
		  0, 4);
	put(&b, (const uint8_t[]){3 << 3 | 2, 2, 3 << 3, 0}, 4); /* no prefix */
	check_ids(&b, "a   ab  b", "4 9 8 9 5");
	check_ids(&b, "ab ab", "4 10 5");
	assert_int_equal(txda_tokenizer_parse(TXDA_TOKENIZER_SENTENCEPIECE, (const char *)b.data,
					      b.n, NULL, &tok, NULL, 0),
			 0);
	assert_int_equal(txda_tokenizer_piece_id(tok, "\xe2\x96\x81\xe2\x96\x81", 6), 9);
	assert_int_equal(
		txda_tokenizer_decode(tok, (const uint32_t[]){4, 9, 10}, 3, false, &text, &len), 0);
	assert_string_equal(text, "a  b a");
	free(text);
	txda_tokenizer_free(tok);
	free(b.data);
}

static void check_refused(const struct buffer *b, const char *part)
{
	char err[256];
	cJSON *json;

	assert_int_equal(
		sentencepiece_convert((char *)b->data, b->n, NULL, &json, err, sizeof(err)),
		-ENOTSUP);
	if (!strstr(err, part))
		fail_msg("%s", err);
}

/* Settings without an equivalent are refused, not ignored. */
TEST(test_settings)
{
	struct buffer b = small();
	size_t n = b.n;

	put_normalizer(&b, "nmt_nfkc", "table", 0, 1);
	check_refused(&b, "this is 'nmt_nfkc'");
	b.n = n;
	put_normalizer(&b, "identity", "", 0, 0);
	check_refused(&b, "escape_whitespaces");
	b.n = n;
	put(&b, (const uint8_t[]){2 << 3 | 2, 3, (24 << 3 & 127) | 128, 24 >> 4, 1}, 5);
	check_refused(&b, "treat_whitespace_as_suffix");
	free(b.data);
}

TEST(test_damage)
{
	struct buffer good = small(), bad = {0};
	uint8_t *copy = malloc(good.n);
	char err[256];
	cJSON *json;
	uint64_t rng = 1;

	assert_int_equal(
		sentencepiece_convert((char *)good.data, good.n, NULL, &json, err, sizeof(err)), 0);
	/* "ab" by a score of -1 before its space: the merges are in that order */
	assert_string_equal(
		cJSON_GetArrayItem(
			cJSON_GetArrayItem(
				cJSON_GetObjectItem(cJSON_GetObjectItem(json, "model"), "merges"),
				0),
			0)
			->valuestring,
		"a");
	cJSON_Delete(json);
	/* Cut anywhere, or with any byte changed: an error or a model, never a crash. */
	for (size_t i = 0; i < good.n; i++) {
		memcpy(copy, good.data, i);
		if (!sentencepiece_convert((char *)copy, i, NULL, &json, err, sizeof(err)))
			cJSON_Delete(json);
	}
	for (int i = 0; i < 20000; i++) {
		memcpy(copy, good.data, good.n);
		for (int j = 0; j <= i % 3; j++) {
			rng = rng * 6364136223846793005ull + 1442695040888963407ull;
			copy[(rng >> 33) % good.n] = (uint8_t)(rng >> 20);
		}
		if (!sentencepiece_convert((char *)copy, good.n, NULL, &json, err, sizeof(err)))
			cJSON_Delete(json);
	}
	put_piece(&bad, "x", 0, 1);
	put_trainer(&bad, 1, false);
	assert_int_equal(
		sentencepiece_convert((char *)bad.data, bad.n, NULL, &json, err, sizeof(err)),
		-ENOTSUP);
	assert_non_null(strstr(err, "only BPE"));
	bad.n = 0;
	put_piece(&bad, "x", 0, 1);
	put_piece(&bad, "x", -1, 1);
	put_trainer(&bad, 2, false);
	assert_int_equal(
		sentencepiece_convert((char *)bad.data, bad.n, NULL, &json, err, sizeof(err)),
		-EINVAL);
	assert_non_null(strstr(err, "the same text"));
	free(bad.data);
	free(good.data);
	free(copy);
}

TEST_MAIN
