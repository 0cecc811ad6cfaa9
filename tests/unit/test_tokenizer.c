// SPDX-License-Identifier: MIT
/* The tokeniser against the text conformance data, where it is at hand. Cases of its own are in
 * test_tokenizer_load.c and test_tokenizer_parts.c. */
#include "unit.h"
#include "detok.h"
#include "json_strict.h"
#include "conformance.h"

#define FILE_MAX_BYTES (64u << 20)

static const char *const names[] = {
	"qwen2", "gpt2", "llama2", "mini-deepseek3", "mini-metaspace", "mini-added",
};

struct count {
	size_t passed, failed;
};

static void score(struct count *count, bool ok, const char *name, const char *file, unsigned index)
{
	if (ok) {
		count->passed++;
		return;
	}
	if (count->failed++ < 5)
		print_message("wrong: %s/%s.json, entry %u\n", name, file, index);
}

static const cJSON *get(const cJSON *object, const char *key)
{
	return cJSON_GetObjectItemCaseSensitive(object, key);
}

/* The ids of an array; *ret_ids is freed by the caller. */
static size_t read_ids(const cJSON *array, uint32_t **ret_ids)
{
	size_t n = array ? (size_t)cJSON_GetArraySize(array) : 0, i = 0;
	const cJSON *item;

	*ret_ids = malloc((n + 1) * sizeof(**ret_ids));
	assert_non_null(*ret_ids);
	cJSON_ArrayForEach(item, array)
		(*ret_ids)[i++] = (uint32_t)item->valuedouble;
	return n;
}

/*
 * The parser gives U+FFFD for \u0000, and the texts have both. So the texts are read from the
 * file's own bytes, with \u0000 made U+F8FE (which no text has) before parsing and NUL behind it.
 */
static char *text_of(const cJSON *string, size_t *ret_len)
{
	const char *in = string->valuestring;
	char *out = malloc(strlen(in) + 1), *at = out;

	assert_non_null(out);
	while (*in) {
		if (!strncmp(in, "\xEF\xA3\xBE", 3)) {
			*at++ = '\0';
			in += 3;
		} else {
			*at++ = *in++;
		}
	}
	*at = '\0';
	*ret_len = (size_t)(at - out);
	return out;
}

static cJSON *load_cases(const char *name, const char *file)
{
	char root[1024], path[256];
	size_t len;
	char *text;
	cJSON *json;

	snprintf(path, sizeof(path), "tokenizers/%s/%s.json", name, file);
	if (!conformance_path(root, sizeof(root), path))
		return NULL;
	text = conformance_read(root, &len);
	assert_non_null(text);
	for (size_t i = 0; i + 6 <= len; i++) {
		if (text[i] == '\\' && !memcmp(text + i, "\\u0000", 6))
			memcpy(text + i, "\\uf8fe", 6);
		else if (text[i] == '\\')
			i++;
	}
	json = txda_json_parse(text, len, NULL, 0);
	free(text);
	assert_non_null(json);
	return json;
}

static bool encodes_to(const struct txda_tokenizer *tok, const char *text, size_t len,
		       unsigned flags, const cJSON *expected)
{
	uint32_t *ids = NULL, *want;
	size_t n = 0, n_want = read_ids(expected, &want);
	bool ok = !txda_tokenizer_encode(tok, text, len, flags, &ids, &n) && n == n_want &&
		  !memcmp(ids, want, n * sizeof(*ids));

	free(ids);
	free(want);
	return ok;
}

static struct count run_encode(const struct txda_tokenizer *tok, const char *name, const char *file,
			       unsigned flags)
{
	struct count count = {0, 0};
	cJSON *cases = load_cases(name, file);
	const cJSON *item;
	unsigned i = 0;

	cJSON_ArrayForEach(item, cases) {
		size_t len;
		char *text = text_of(get(item, "text"), &len);

		score(&count, encodes_to(tok, text, len, flags, get(item, "ids")), name, file, i++);
		free(text);
	}
	cJSON_Delete(cases);
	return count;
}

/* Each run of U+FFFD becomes one. */
static void squeeze(char *text, size_t *len)
{
	size_t out = 0;

	for (size_t i = 0; i < *len; i++) {
		text[out++] = text[i];
		while (out >= 6 && !memcmp(text + out - 6, "\xEF\xBF\xBD\xEF\xBF\xBD", 6))
			out -= 3;
	}
	*len = out;
}

static bool decodes_to(const struct txda_tokenizer *tok, const cJSON *item, bool skip_special)
{
	const cJSON *expected = get(item, skip_special ? "text_skip_special" : "text");
	size_t n, len = 0, n_want;
	char *text = NULL, *want = text_of(expected, &n_want);
	uint32_t *ids;
	bool ok;

	n = read_ids(get(item, "ids"), &ids);
	ok = !txda_tokenizer_decode(tok, ids, n, skip_special, &text, &len);
	if (ok && cJSON_IsTrue(get(item, "lenient"))) {
		squeeze(text, &len);
		squeeze(want, &n_want);
	}
	ok = ok && len == n_want && !memcmp(text, want, len);
	free(text);
	free(want);
	free(ids);
	return ok;
}

static struct count run_decode(const struct txda_tokenizer *tok, const char *name)
{
	struct count count = {0, 0};
	cJSON *cases = load_cases(name, "decode");
	const cJSON *item;
	unsigned i = 0;

	cJSON_ArrayForEach(item, cases) {
		score(&count, decodes_to(tok, item, false) && decodes_to(tok, item, true), name,
		      "decode", i++);
	}
	cJSON_Delete(cases);
	return count;
}

struct sink {
	char *text;
	size_t len;
};

static void sink_add(struct sink *sink, const char *text, size_t len)
{
	sink->text = realloc(sink->text, sink->len + len + 1);
	assert_non_null(sink->text);
	memcpy(sink->text + sink->len, text, len);
	sink->len += len;
}

static void sink_add_json(struct sink *sink, const cJSON *string)
{
	size_t len;
	char *text = text_of(string, &len);

	sink_add(sink, text, len);
	free(text);
}

static bool starts_with(const struct sink *text, const struct sink *start)
{
	return text->len >= start->len &&
	       (!start->len || !memcmp(text->text, start->text, start->len));
}

static bool rest_matches(const cJSON *rest, const char *text, size_t len)
{
	size_t n_want;
	char *want;
	bool ok;

	if (!rest)
		return true;
	if (cJSON_IsNull(rest)) {
		for (size_t i = 0; i < len; i += 3)
			if (len - i < 3 || memcmp(text + i, "\xEF\xBF\xBD", 3))
				return false;
		return true;
	}
	want = text_of(rest, &n_want);
	ok = len == n_want && !memcmp(text, want, len);
	free(want);
	return ok;
}

static bool streams(const struct txda_tokenizer *tok, const cJSON *item)
{
	struct sink given = {0}, early = {0}, late = {0};
	const cJSON *piece = get(item, "pieces")->child, *late_piece = get(item, "late")->child;
	uint32_t *ids, *prompt;
	size_t n = read_ids(get(item, "ids"), &ids),
	       n_prompt = read_ids(get(item, "prompt"), &prompt);
	struct txda_detok *detok, *copy;
	const char *text;
	bool ok = true;
	size_t len;

	assert_int_equal(txda_detok_new(tok, cJSON_IsTrue(get(item, "skip_special")), prompt,
					n_prompt, &detok),
			 0);
	for (size_t i = 0; i < n; i++) {
		/* A copy goes on like the one that it is of. */
		assert_int_equal(txda_detok_copy(detok, &copy), 0);
		txda_detok_free(detok);
		detok = copy;
		assert_int_equal(txda_detok_feed(detok, ids[i], &text, &len), 0);
		assert_int_equal(text[len], '\0');
		sink_add(&given, text, len);
		sink_add_json(&early, piece);
		sink_add_json(&late, late_piece);
		ok = ok && starts_with(&given, &late) && starts_with(&early, &given);
		piece = piece->next;
		late_piece = late_piece->next;
	}
	assert_int_equal(txda_detok_flush(detok, &text, &len), 0);
	ok = ok && rest_matches(get(item, "rest"), text, len);
	txda_detok_free(detok);
	free(given.text);
	free(early.text);
	free(late.text);
	free(ids);
	free(prompt);
	return ok;
}

static struct count run_stream(const struct txda_tokenizer *tok, const char *name)
{
	struct count count = {0, 0};
	cJSON *cases = load_cases(name, "stream");
	const cJSON *item;
	unsigned i = 0;

	cJSON_ArrayForEach(item, cases)
		score(&count, streams(tok, item), name, "stream", i++);
	cJSON_Delete(cases);
	return count;
}

/* The output that a chat file expects of a case, or NULL. */
static const cJSON *expected_chat(const cJSON *chat, const char *name)
{
	const cJSON *item;

	cJSON_ArrayForEach(item, get(chat, "cases"))
		if (!strcmp(get(item, "name")->valuestring, name))
			return get(item, "expected");
	return NULL;
}

static struct count run_chat_ids(const struct txda_tokenizer *tok, const char *name)
{
	struct count count = {0, 0};
	char root[1024], path[256], err[256];
	const cJSON *item;
	cJSON *cases;
	unsigned i = 0;

	snprintf(path, sizeof(path), "tokenizers/%s/chat_ids.json", name);
	if (!conformance_path(root, sizeof(root), path))
		return count;
	cases = load_cases(name, "chat_ids");
	cJSON_ArrayForEach(item, cases) {
		const cJSON *expected = NULL;
		cJSON *chat = NULL;
		bool ok;

		if (conformance_path(root, sizeof(root), get(item, "file")->valuestring))
			txda_json_load(root, FILE_MAX_BYTES, &chat, err, sizeof(err));
		if (chat)
			expected = expected_chat(chat, get(item, "case")->valuestring);
		ok = cJSON_IsString(expected) &&
		     encodes_to(tok, expected->valuestring, strlen(expected->valuestring), 0,
				get(item, "ids"));
		score(&count, ok, name, "chat_ids", i++);
		cJSON_Delete(chat);
	}
	cJSON_Delete(cases);
	return count;
}

static size_t report(const char *name, const char *file, struct count count)
{
	print_message("%-15s %-13s %4zu of %4zu\n", name, file, count.passed,
		      count.passed + count.failed);
	return count.failed;
}

TEST(test_conformance)
{
	size_t failed = 0;
	char dir[512];

	if (!conformance_path(dir, sizeof(dir), "tokenizers")) {
		skip();
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct txda_tokenizer *tok = NULL;
		char err[256], path[768];

		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		if (txda_tokenizer_load(path, &tok, err, sizeof(err)))
			fail_msg("%s", err);
		failed += report(names[i], "cases", run_encode(tok, names[i], "cases", 0));
		failed += report(names[i], "plain",
				 run_encode(tok, names[i], "plain", TXDA_ENCODE_NO_SPECIAL_PARSE));
		failed +=
			report(names[i], "with_special",
			       run_encode(tok, names[i], "with_special", TXDA_ENCODE_ADD_SPECIAL));
		failed += report(names[i], "chat_ids", run_chat_ids(tok, names[i]));
		failed += report(names[i], "decode", run_decode(tok, names[i]));
		failed += report(names[i], "stream", run_stream(tok, names[i]));
		txda_tokenizer_free(tok);
	}
	assert_int_equal(failed, 0);
}

TEST_MAIN
