// SPDX-License-Identifier: MIT
#include "json_strict.h"
#include "owned.h"
#include "utf8.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* cJSON copies a number into 64 bytes before converting it. */
#define CJSON_NUMBER_MAX 63

struct scanner {
	const uint8_t *buf;
	size_t len;
	size_t at;
	bool unrepresentable; /* found something that cJSON would misread; see make_copy() */
};

static int peek(const struct scanner *sc)
{
	return sc->at < sc->len ? sc->buf[sc->at] : -1;
}

static void skip_space(struct scanner *sc)
{
	while (sc->at < sc->len) {
		uint8_t c = sc->buf[sc->at];

		if (c != ' ' && c != '\n' && c != '\t' && c != '\r')
			return;
		sc->at++;
	}
}

static bool scan_word(struct scanner *sc, const char *word)
{
	for (; *word; word++, sc->at++)
		if (peek(sc) != (uint8_t)*word)
			return false;
	return true;
}

static bool scan_digits(struct scanner *sc)
{
	size_t start = sc->at;

	while (peek(sc) >= '0' && peek(sc) <= '9')
		sc->at++;
	return sc->at > start;
}

static bool scan_number(struct scanner *sc)
{
	size_t start = sc->at;

	if (peek(sc) == '-')
		sc->at++;
	if (peek(sc) == '0')
		sc->at++;
	else if (!scan_digits(sc))
		return false;
	if (peek(sc) == '.') {
		sc->at++;
		if (!scan_digits(sc))
			return false;
	}
	if (peek(sc) == 'e' || peek(sc) == 'E') {
		sc->at++;
		if (peek(sc) == '+' || peek(sc) == '-')
			sc->at++;
		if (!scan_digits(sc))
			return false;
	}
	if (sc->at - start > CJSON_NUMBER_MAX)
		sc->unrepresentable = true;
	return true;
}

static bool scan_hex4(struct scanner *sc, uint32_t *ret_value)
{
	uint32_t value = 0;

	for (int i = 0; i < 4; i++, sc->at++) {
		int c = peek(sc);

		if (c >= '0' && c <= '9')
			value = value << 4 | (uint32_t)(c - '0');
		else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
			value = value << 4 | (uint32_t)((c | 0x20) - 'a' + 10);
		else
			return false;
	}
	*ret_value = value;
	return true;
}

/* After the backslash and the u: four digits, and the second half if they are a high surrogate. */
static bool scan_unicode_escape(struct scanner *sc)
{
	size_t start = sc->at;
	uint32_t cp, low;

	if (!scan_hex4(sc, &cp))
		return false;
	if (cp == 0)
		sc->unrepresentable = true;
	if (cp < 0xD800 || cp > 0xDFFF)
		return true;
	if (cp >= 0xDC00) {
		sc->at = start;
		return false;
	}
	if (!scan_word(sc, "\\u"))
		return false;
	start = sc->at;
	if (!scan_hex4(sc, &low))
		return false;
	if (low < 0xDC00 || low > 0xDFFF) {
		sc->at = start;
		return false;
	}
	return true;
}

static bool scan_string(struct scanner *sc)
{
	sc->at++;
	while (sc->at < sc->len) {
		uint8_t c = sc->buf[sc->at];

		if (c == '"') {
			sc->at++;
			return true;
		}
		if (c < 0x20)
			return false;
		if (c == '\\') {
			sc->at++;
			c = sc->at < sc->len ? sc->buf[sc->at] : 0;
			if (c == 'u') {
				sc->at++;
				if (!scan_unicode_escape(sc))
					return false;
				continue;
			}
			if (!c || !strchr("\"\\/bfnrt", c))
				return false;
			sc->at++;
		} else if (c < 0x80) {
			sc->at++;
		} else {
			bool whole;
			unsigned n = utf8_scan(sc->buf + sc->at, sc->len - sc->at, &whole);

			if (!whole)
				return false;
			sc->at += n;
		}
	}
	return false;
}

static bool scan_scalar(struct scanner *sc)
{
	switch (peek(sc)) {
	case '"': return scan_string(sc);
	case 't': return scan_word(sc, "true");
	case 'f': return scan_word(sc, "false");
	case 'n': return scan_word(sc, "null");
	default: return scan_number(sc);
	}
}

/* `"key" :` with surrounding white space. */
static bool scan_key(struct scanner *sc)
{
	skip_space(sc);
	if (peek(sc) != '"' || !scan_string(sc))
		return false;
	skip_space(sc);
	if (peek(sc) != ':')
		return false;
	sc->at++;
	return true;
}

static int scan_text(struct scanner *sc, unsigned max_depth)
{
	char open[TXDA_JSON_DEPTH_LIMIT]; /* the closing character of each level */
	unsigned depth = 0;

	for (;;) {
		int c;

		/* A value starts here. */
		skip_space(sc);
		c = peek(sc);
		if (c == '{' || c == '[') {
			if (depth == max_depth)
				return -E2BIG;
			open[depth++] = c == '{' ? '}' : ']';
			sc->at++;
			skip_space(sc);
			if (peek(sc) != open[depth - 1]) {
				if (c == '{' && !scan_key(sc))
					return -EINVAL;
				continue;
			}
		} else if (!scan_scalar(sc)) {
			return -EINVAL;
		}
		/* A value ended here, or an empty array or object ends. */
		for (;;) {
			skip_space(sc);
			if (!depth)
				return sc->at == sc->len ? 0 : -EINVAL;
			if (peek(sc) != open[depth - 1])
				break;
			depth--;
			sc->at++;
		}
		if (peek(sc) != ',')
			return -EINVAL;
		sc->at++;
		if (open[depth - 1] == '}' && !scan_key(sc))
			return -EINVAL;
	}
}

int txda_json_check(const char *buf, size_t len, unsigned max_depth, size_t *ret_err_off)
{
	struct scanner sc = {.buf = (const uint8_t *)buf, .len = len};
	int ret;

	if (max_depth > TXDA_JSON_DEPTH_LIMIT)
		max_depth = TXDA_JSON_DEPTH_LIMIT;
	ret = scan_text(&sc, max_depth);
	if (ret && ret_err_off)
		*ret_err_off = sc.at;
	return ret;
}

static void describe(char *err, size_t errlen, const struct scanner *sc, int code)
{
	size_t line = 1, column = 1;
	char what[64];

	if (!err || !errlen)
		return;
	for (size_t i = 0; i < sc->at; i++) {
		column++;
		if (sc->buf[i] == '\n') {
			line++;
			column = 1;
		}
	}
	if (code == -E2BIG)
		snprintf(what, sizeof(what), "nested deeper than %d levels", TXDA_JSON_MAX_DEPTH);
	else if (sc->at >= sc->len)
		snprintf(what, sizeof(what), "unexpected end of text");
	else if (sc->buf[sc->at] > 0x20 && sc->buf[sc->at] < 0x7F)
		snprintf(what, sizeof(what), "'%c' cannot stand here", sc->buf[sc->at]);
	else
		snprintf(what, sizeof(what), "byte 0x%02x cannot stand here", sc->buf[sc->at]);
	snprintf(err, errlen, "line %zu, column %zu: %s", line, column, what);
}

/* Rewrites the number [at, end), of more than 63 bytes, so that cJSON reads all of it. */
static void shorten_number(char *at, char *end)
{
	char text[40];
	char saved = *end;
	int n;

	*end = '\0';
	n = snprintf(text, sizeof(text), "%.17g", strtod(at, NULL));
	*end = saved;
	/* JSON cannot express infinity; 1e999 is read as infinity. */
	if (n > 0 && (strchr(text, 'n') || strchr(text, 'i')))
		n = snprintf(text, sizeof(text), "%s1e999", *at == '-' ? "-" : "");
	memset(at, ' ', (size_t)(end - at));
	memcpy(at, text, (size_t)n);
}

/*
 * Copies checked text, replacing what cJSON would misread: \u0000 by @nul, numbers of more than 63
 * characters by 17 digits. The length is unchanged. NUL-terminated.
 */
static char *make_copy(const char *buf, size_t len, const char *nul)
{
	char *copy = malloc(len + 1);
	size_t at = 0;

	if (!copy)
		return NULL;
	memcpy(copy, buf, len);
	copy[len] = '\0';
	while (at < len) {
		size_t start = at;

		if (copy[at] == '"') {
			for (at++; copy[at] != '"'; at += copy[at] == '\\' ? 2 : 1)
				if (!strncmp(copy + at, "\\u0000", 6))
					memcpy(copy + at, nul, 6);
			at++;
		} else if (copy[at] == '-' || (copy[at] >= '0' && copy[at] <= '9')) {
			at += strspn(copy + at, "-+.eE0123456789");
			if (at - start > CJSON_NUMBER_MAX)
				shorten_number(copy + start, copy + at);
		} else {
			at++;
		}
	}
	return copy;
}

static cJSON *parse(const char *buf, size_t len, const char *nul, char *err, size_t errlen)
{
	struct scanner sc = {.buf = (const uint8_t *)buf, .len = len};
	char *copy = NULL;
	cJSON *json;
	int ret;

	ret = scan_text(&sc, TXDA_JSON_MAX_DEPTH);
	if (ret) {
		describe(err, errlen, &sc, ret);
		return NULL;
	}
	if (sc.unrepresentable) {
		copy = make_copy(buf, len, nul);
		if (!copy) {
			if (err && errlen)
				snprintf(err, errlen, "out of memory for %zu bytes of JSON", len);
			return NULL;
		}
	}
	json = cJSON_ParseWithLength(copy ? copy : buf, len);
	free(copy);
	/* The syntax is valid, so only an allocation can have failed. */
	if (!json && err && errlen)
		snprintf(err, errlen, "out of memory for the tree of %zu bytes of JSON", len);
	return json;
}

cJSON *txda_json_parse(const char *buf, size_t len, char *err, size_t errlen)
{
	return parse(buf, len, "\\ufffd", err, errlen);
}

static int load(const char *path, size_t max_bytes, const char *nul, cJSON **ret_json, char *err,
		size_t errlen)
{
	char *text, why[480];
	size_t bytes;
	int r = owned_read_path(path, max_bytes, &text, &bytes, why, sizeof(why));

	if (r) {
		if (err && errlen)
			snprintf(err, errlen, "%s", why);
		return r;
	}
	*ret_json = parse(text, bytes, nul, why, sizeof(why));
	free(text);
	if (*ret_json)
		return 0;
	if (err && errlen)
		snprintf(err, errlen, "%s: %s", path, why);
	return -EINVAL;
}

int txda_json_load(const char *path, size_t max_bytes, cJSON **ret_json, char *err, size_t errlen)
{
	return load(path, max_bytes, "\\ufffd", ret_json, err, errlen);
}

int txda_json_load_nul(const char *path, size_t max_bytes, cJSON **ret_json, char *err,
		       size_t errlen)
{
	return load(path, max_bytes, "\\uffff", ret_json, err, errlen);
}
