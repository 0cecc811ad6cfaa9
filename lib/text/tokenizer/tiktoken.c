// SPDX-License-Identifier: MIT
#include "tiktoken.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"
#include "bpe_vocab.h"

#define MAX_TOKEN_BYTES 1024
#define RESERVED	256
#define MAX_RANKS	(BPE_ID_LIMIT - RESERVED)

/* Part of the class's code, which comes with the checkpoint and is not run. */
#define NOT_HAN "&&[^\\p{Han}]]"
#define UPPER	"[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}" NOT_HAN
#define LOWER	"[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}" NOT_HAN
#define ENDING	"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
static const struct {
	const char *class, *pattern;
} known[] = {
	{"TikTokenTokenizer",
	 "[\\p{Han}]+|[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" ENDING
	 "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" ENDING
	 "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
};

struct token {
	uint32_t at, len; /* in struct ranks.bytes; len 0: the rank does not exist */
};

struct ranks {
	struct text_buf bytes;
	struct token *tokens; /* by rank */
	uint32_t n;	      /* the highest rank plus one */
	size_t room;
	unsigned long line;
	char *err;
	size_t errlen;
};

__attribute__((format(printf, 3, 4))) static int fail(const struct ranks *r, int code,
						      const char *format, ...)
{
	char what[200];
	va_list args;

	va_start(args, format);
	vsnprintf(what, sizeof(what), format, args);
	va_end(args);
	if (r->err && r->errlen && r->line)
		snprintf(r->err, r->errlen, "line %lu: %s", r->line, what);
	else if (r->err && r->errlen)
		snprintf(r->err, r->errlen, "%s", what);
	return code;
}

/* ---- lines ----------------------------------------------------------------------------------- */

static int sextet(char c)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const char *at = c ? strchr(digits, c) : NULL;

	return at ? (int)(at - digits) : -1;
}

/* Decodes @len bytes of base64 and appends them to @out. False: not base64. */
static bool add_base64(const char *text, size_t len, struct text_buf *out)
{
	size_t padding = 0;

	while (padding < 2 && len && text[len - 1] == '=') {
		padding++;
		len--;
	}
	if ((len + padding) % 4)
		return false;
	for (size_t i = 0; i < len; i += 4) {
		size_t left = len - i < 4 ? len - i : 4;
		uint32_t bits = 0;

		for (size_t k = 0; k < 4; k++) {
			int value = k < left ? sextet(text[i + k]) : 0;

			if (value < 0)
				return false;
			bits = bits << 6 | (uint32_t)value;
		}
		/* Unused bits must be zero, so that each token has only one spelling. */
		if (bits & ((1u << 8 * (4 - left)) - 1))
			return false;
		for (size_t k = 0; k + 1 < left; k++)
			out->data[out->len++] = (char)(bits >> (16 - 8 * k));
	}
	return true;
}

static int set_token(struct ranks *r, uint32_t rank, struct token token)
{
	if (rank >= r->room) {
		size_t room = r->room;

		if (!array_grow(&r->tokens, &r->room, (size_t)rank + 1, sizeof(*r->tokens)))
			return -ENOMEM;
		memset(r->tokens + room, 0, (r->room - room) * sizeof(*r->tokens));
	}
	if (r->tokens[rank].len)
		return fail(r, -EINVAL, "rank %u occurs twice", rank);
	r->tokens[rank] = token;
	if (rank >= r->n)
		r->n = rank + 1;
	return 0;
}

/* Digits and nothing else, at most nine of them. */
static bool parse_rank(const char *text, size_t len, uint32_t *ret)
{
	*ret = 0;
	for (size_t i = 0; i < len; i++) {
		if (text[i] < '0' || text[i] > '9' || i == 9)
			return false;
		*ret = *ret * 10 + (uint32_t)(text[i] - '0');
	}
	return len > 0;
}

static int read_line(struct ranks *r, const char *text, size_t len)
{
	const char *space = memchr(text, ' ', len);
	size_t spelt = space ? (size_t)(space - text) : len;
	uint32_t at = (uint32_t)r->bytes.len, rank;

	if (spelt > MAX_TOKEN_BYTES / 3 * 4 + 4)
		return fail(r, -EINVAL, "a token of %zu characters, the limit is %d bytes", spelt,
			    MAX_TOKEN_BYTES);
	if (!text_buf_reserve(&r->bytes, MAX_TOKEN_BYTES + 4))
		return -ENOMEM;
	if (!space || !add_base64(text, spelt, &r->bytes) || r->bytes.len == at ||
	    !parse_rank(space + 1, len - spelt - 1, &rank))
		return fail(r, -EINVAL, "not a token in base64, a space and its rank");
	if (rank >= MAX_RANKS)
		return fail(r, -EINVAL, "rank %u, the limit is %u", rank, MAX_RANKS - 1);
	return set_token(r, rank, (struct token){at, (uint32_t)r->bytes.len - at});
}

static int read_lines(struct ranks *r, const char *text, size_t size)
{
	int ret = 0;

	for (size_t at = 0, len; !ret && at < size; at += len + 1) {
		const char *end = memchr(text + at, '\n', size - at);

		len = end ? (size_t)(end - text) - at : size - at;
		r->line++;
		if (len && text[at + len - 1] == '\r')
			ret = len > 1 ? read_line(r, text + at, len - 1) : 0;
		else if (len)
			ret = read_line(r, text + at, len);
	}
	return ret;
}

static int by_bytes(const void *a, const void *b, void *arg)
{
	const struct ranks *r = arg;
	const struct token *x = &r->tokens[*(const uint32_t *)a],
			   *y = &r->tokens[*(const uint32_t *)b];
	int order = memcmp(r->bytes.data + x->at, r->bytes.data + y->at,
			   x->len < y->len ? x->len : y->len);

	return order ? order : (x->len > y->len) - (x->len < y->len);
}

/* Checks that there are no gaps, no duplicate tokens, and all single bytes. */
static int check(struct ranks *r)
{
	uint32_t *sorted = malloc((r->n ? r->n : 1) * sizeof(*sorted)), bytes = 0;
	int ret = sorted ? 0 : -ENOMEM;

	r->line = 0;
	for (uint32_t i = 0; !ret && i < r->n; i++) {
		if (!r->tokens[i].len)
			ret = fail(r, -EINVAL, "rank %u is missing, the highest is %u", i,
				   r->n - 1);
		bytes += r->tokens[i].len == 1;
		sorted[i] = i;
	}
	if (!ret && r->n)
		qsort_r(sorted, r->n, sizeof(*sorted), by_bytes, r);
	for (uint32_t i = 1; !ret && i < r->n; i++)
		if (!by_bytes(&sorted[i - 1], &sorted[i], r))
			ret = fail(r, -EINVAL, "ranks %u and %u are the same token", sorted[i - 1],
				   sorted[i]);
	if (!ret && bytes != 256)
		ret = fail(r, -EINVAL, "tokens of %u of the 256 bytes", bytes);
	free(sorted);
	return ret;
}

/* ---- in the words of tokenizer.json ---------------------------------------------------------- */

/* Spells bytes as GPT-2 does (tokenizer_unspell()); room for two bytes each and the NUL. */
static void spell(const uint8_t *bytes, size_t len, char *out)
{
	for (size_t i = 0; i < len; i++) {
		uint32_t c = bytes[i];

		if (c <= 0x20)
			c += 0x100;
		else if (c >= 0x7F && c <= 0xA0)
			c += 0x121 - 0x7F;
		else if (c == 0xAD)
			c = 0x143;
		if (c >= 0x80)
			*out++ = (char)(0xC0 | c >> 6);
		*out++ = (char)(c < 0x80 ? c : 0x80 | (c & 0x3F));
	}
	*out = '\0';
}

static bool add_vocab(const struct ranks *r, cJSON *model)
{
	cJSON *vocab = cJSON_AddObjectToObject(model, "vocab");
	char text[2 * MAX_TOKEN_BYTES + 16];
	bool ok = vocab != NULL;

	for (uint32_t i = 0; ok && i < r->n; i++) {
		spell((const uint8_t *)r->bytes.data + r->tokens[i].at, r->tokens[i].len, text);
		ok = cJSON_AddNumberToObject(vocab, text, i);
	}
	return ok;
}

/* Adds the special tokens without a name; the loader of tokenizer_config.json adds the others. */
static bool add_reserved(const struct ranks *r, const cJSON *named, cJSON *root)
{
	cJSON *added = cJSON_AddArrayToObject(root, "added_tokens");
	bool ok = added != NULL;

	for (uint32_t id = r->n; ok && id < r->n + RESERVED; id++) {
		char text[40];
		cJSON *token;

		snprintf(text, sizeof(text), "%u", id);
		if (cJSON_GetObjectItemCaseSensitive(named, text))
			continue;
		snprintf(text, sizeof(text), "<|reserved_token_%u|>", id);
		token = cJSON_CreateObject();
		ok = token && cJSON_AddItemToArray(added, token) &&
		     cJSON_AddNumberToObject(token, "id", id) &&
		     cJSON_AddStringToObject(token, "content", text) &&
		     cJSON_AddBoolToObject(token, "special", true);
	}
	return ok;
}

/* Everything that does not come from the file. */
static const char frame[] =
	"{\"model\":{\"type\":\"BPE\",\"ignore_merges\":true},\"decoder\":{\"type\":\"ByteLevel\"},"
	"\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
	"\"behavior\":\"Isolated\",\"pattern\":{}},{\"type\":\"ByteLevel\","
	"\"add_prefix_space\":false,\"use_regex\":false}]}}";

static cJSON *make_json(const struct ranks *r, const cJSON *named, const char *pattern)
{
	cJSON *root = cJSON_Parse(frame), *split;

	split = cJSON_GetObjectItem(root, "pre_tokenizer");
	split = cJSON_GetArrayItem(cJSON_GetObjectItem(split, "pretokenizers"), 0);
	if (cJSON_AddStringToObject(cJSON_GetObjectItem(split, "pattern"), "Regex", pattern) &&
	    add_vocab(r, cJSON_GetObjectItem(root, "model")) && add_reserved(r, named, root))
		return root;
	cJSON_Delete(root);
	return NULL;
}

int tiktoken_convert(const char *text, size_t size, const cJSON *config, cJSON **ret_json,
		     char *err, size_t errlen)
{
	const cJSON *named = cJSON_GetObjectItemCaseSensitive(config, "added_tokens_decoder");
	const char *class =
		cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(config, "tokenizer_class"));
	struct ranks r = {.err = err, .errlen = errlen};
	size_t i = 0;
	int ret;

	while (i < sizeof(known) / sizeof(known[0]) && (!class || strcmp(class, known[i].class)))
		i++;
	if (i == sizeof(known) / sizeof(known[0]))
		return fail(
			&r, -EINVAL,
			"tokenizer_config.json's tokenizer_class says how text is split, and %.80s "
			"is not known",
			class ? class : "null");
	if (!cJSON_IsObject(named))
		return fail(&r, -EINVAL, "tokenizer_config.json has no added_tokens_decoder");
	ret = read_lines(&r, text, size);
	if (!ret)
		ret = check(&r);
	if (!ret) {
		*ret_json = make_json(&r, named, known[i].pattern);
		ret = *ret_json ? 0 : -ENOMEM;
	}
	free(r.bytes.data);
	free(r.tokens);
	return ret;
}
