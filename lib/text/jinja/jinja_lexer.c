// SPDX-License-Identifier: MIT
/*
 * Lexer. The source switches between text, `{{ … }}`, `{% … %}`, `{# … #}` and raw blocks;
 * whitespace control (`-`, `+`, trim_blocks, lstrip_blocks) is applied here, so the parser sees
 * final texts.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "jinja_ast.h"

#define lex_fail(lx, ...)                                                                          \
	((lx)->run->line = (lx)->line, jinja_throw((lx)->run, TXDA_TEMPLATE_SYNTAX, __VA_ARGS__))

static void emit(struct jinja_lexer *lx, struct jinja_token *token, enum jinja_token_type type,
		 size_t length)
{
	*token = (struct jinja_token){.type = (uint8_t)type,
				      .line = lx->line,
				      .data = lx->source + lx->at,
				      .length = length};
}

static bool looking_at(const struct jinja_lexer *lx, size_t at, const char *text)
{
	size_t n = strlen(text);

	return lx->length - at >= n && !memcmp(lx->source + at, text, n);
}

static void advance(struct jinja_lexer *lx, size_t to)
{
	for (; lx->at < to; lx->at++)
		if (lx->source[lx->at] == '\n')
			lx->line++;
}

static size_t skip_space(const struct jinja_lexer *lx, size_t at)
{
	const struct jinja_str source = {lx->source, lx->length, 0};
	uint32_t c;

	while (at < lx->length) {
		size_t n = jinja_decode(&source, at, &c);

		if (!jinja_is_space(c))
			break;
		at += n;
	}
	return at;
}

/* End of @start..@end without the whitespace before @end. */
static size_t strip_end(const struct jinja_lexer *lx, size_t start, size_t end)
{
	const struct jinja_str source = {lx->source, end, 0};
	size_t kept = start;
	uint32_t c;

	while (start < end) {
		start += jinja_decode(&source, start, &c);
		if (!jinja_is_space(c))
			kept = start;
	}
	return kept;
}

static char sign_at(const struct jinja_lexer *lx, size_t at)
{
	char c = at < lx->length ? lx->source[at] : '\0';

	return c == '-' || c == '+' ? c : '\0';
}

/*
 * Text before the tag at @end: `-` strips all whitespace before it; lstrip_blocks strips the white
 * space between the start of the line and a block or comment, unless there is a `+`.
 */
static size_t end_of_text(const struct jinja_lexer *lx, size_t start, size_t end)
{
	char sign = sign_at(lx, end + 2);
	size_t line = end;

	if (sign == '-')
		return strip_end(lx, start, end);
	if (sign == '+' || lx->source[end + 1] == '{')
		return end;
	while (line > start && lx->source[line - 1] != '\n')
		line--;
	if (line == start && start && lx->source[start - 1] != '\n')
		return end; /* a tag stands before it on this line */
	return strip_end(lx, line, end) == line ? line : end;
}

/*
 * If there is the end of a tag (@close is `%}`, `#}` or `}}`) with an optional sign at @at, returns
 * where the text after it begins (`-` and trim_blocks applied), else 0.
 */
static size_t tag_end(const struct jinja_lexer *lx, size_t at, const char *close)
{
	char sign = sign_at(lx, at);

	if (sign == '-' && looking_at(lx, at + 1, close))
		return skip_space(lx, at + 3);
	if (close[0] == '}')
		return looking_at(lx, at, close) ? at + 2 : 0;
	if (sign == '+' && looking_at(lx, at + 1, close))
		return at + 3;
	if (!looking_at(lx, at, close))
		return 0;
	at += 2;
	return at < lx->length && lx->source[at] == '\n' ? at + 1 : at;
}

/* If the `{%` at @at opens the tag @word (raw, endraw), returns the position after it, else 0. */
static size_t raw_word(const struct jinja_lexer *lx, size_t at, const char *word)
{
	at = skip_space(lx, at + 2 + (sign_at(lx, at + 2) != '\0'));
	return looking_at(lx, at, word) ? skip_space(lx, at + strlen(word)) : 0;
}

/*
 * The position after `{% raw %}`, whose following newline is not trimmed; 0 if there is none at
 * @at.
 */
static size_t raw_begin(const struct jinja_lexer *lx, size_t at)
{
	at = raw_word(lx, at, "raw");
	if (at && looking_at(lx, at, "-%}"))
		return skip_space(lx, at + 3);
	return at && looking_at(lx, at, "%}") ? at + 2 : 0;
}

static void lex_raw(struct jinja_lexer *lx, size_t body, struct jinja_token *token)
{
	size_t at;

	advance(lx, body);
	for (at = body; at < lx->length; at++) {
		size_t word = looking_at(lx, at, "{%") ? raw_word(lx, at, "endraw") : 0;
		size_t next = word ? tag_end(lx, word, "%}") : 0;

		if (!next)
			continue;
		emit(lx, token, TOKEN_DATA, end_of_text(lx, body, at) - body);
		advance(lx, next);
		return;
	}
	lex_fail(lx, "missing end of raw block");
}

static void skip_comment(struct jinja_lexer *lx)
{
	size_t at = lx->at + 2 + (sign_at(lx, lx->at + 2) != '\0'), next = 0;

	for (; at < lx->length && !next; at++)
		next = tag_end(lx, at, "#}");
	if (!next)
		lex_fail(lx, "missing end of comment tag");
	advance(lx, next);
}

/* Text up to the next tag, or the beginning of the tag; false: there was only a comment. */
static bool lex_text(struct jinja_lexer *lx, struct jinja_token *token)
{
	size_t tag = lx->at, end;
	bool block;

	while (tag + 1 < lx->length && (lx->source[tag] != '{' || !lx->source[tag + 1] ||
					!strchr("%{#", lx->source[tag + 1])))
		tag++;
	if (tag + 1 >= lx->length)
		tag = lx->length;
	end = tag == lx->length ? tag : end_of_text(lx, lx->at, tag);
	if (!lx->at_tag && end > lx->at) {
		emit(lx, token, TOKEN_DATA, end - lx->at);
		advance(lx, tag);
		lx->at_tag = true;
		return true;
	}
	advance(lx, tag);
	lx->at_tag = false;
	if (tag == lx->length) {
		emit(lx, token, TOKEN_EOF, 0);
		return true;
	}
	block = lx->source[tag + 1] == '%';
	end = block ? raw_begin(lx, tag) : 0;
	if (end) {
		lex_raw(lx, end, token);
		return token->length > 0;
	}
	if (lx->source[tag + 1] == '#') {
		skip_comment(lx);
		return false;
	}
	emit(lx, token, block ? TOKEN_BLOCK_BEGIN : TOKEN_VARIABLE_BEGIN, 2);
	advance(lx, tag + 2 + (sign_at(lx, tag + 2) != '\0'));
	lx->mode = block ? TOKEN_BLOCK_END : TOKEN_VARIABLE_END;
	return true;
}

static bool hex_digits(const char *s, size_t available, unsigned int n, uint32_t *ret)
{
	uint32_t c = 0;
	unsigned int i;

	if (available < n)
		return false;
	for (i = 0; i < n; i++) {
		char d = s[i];

		if (d >= '0' && d <= '9')
			c = c << 4 | (uint32_t)(d - '0');
		else if ((d | 32) >= 'a' && (d | 32) <= 'f')
			c = c << 4 | (uint32_t)((d | 32) - 'a' + 10);
		else
			return false;
	}
	*ret = c;
	return true;
}

/*
 * Decodes the escape of a string literal at s[0] == '\\'; returns the character (or UINT32_MAX:
 * nothing) and its size in the source. An unknown escape stands for itself: *ret_size is 0 then.
 */
static bool decode_escape(const char *s, size_t n, uint32_t *ret_char, size_t *ret_size)
{
	static const char names[] = "abfnrtv\\'\"";
	static const char chars[] = "\a\b\f\n\r\t\v\\'\"";
	const char *known = s[1] ? strchr(names, s[1]) : NULL;
	unsigned int digits = s[1] == 'x' ? 2 : s[1] == 'u' ? 4 : s[1] == 'U' ? 8 : 0;
	uint32_t low;
	size_t i;

	*ret_size = 2;
	if (known) {
		*ret_char = (unsigned char)chars[known - names];
		return true;
	}
	if (s[1] == '\n') {
		*ret_char = UINT32_MAX;
		return true;
	}
	if (s[1] == 'N') /* named characters are not supported */
		return false;
	if (digits) {
		*ret_size = 2 + digits;
		if (!hex_digits(s + 2, n - 2, digits, ret_char) || *ret_char > 0x10ffff)
			return false;
		if (digits == 4 && *ret_char >> 10 == 0x36 && n >= 12 && s[6] == '\\' &&
		    s[7] == 'u' && hex_digits(s + 8, n - 8, 4, &low) && low >> 10 == 0x37) {
			*ret_char = 0x10000 + ((*ret_char - 0xd800) << 10) + (low - 0xdc00);
			*ret_size = 12;
		}
		return *ret_char < 0xd800 || *ret_char >= 0xe000;
	}
	*ret_size = 0;
	for (i = 1, *ret_char = 0; i < 4 && i < n && s[i] >= '0' && s[i] <= '7'; i++) {
		*ret_char = *ret_char * 8 + (uint32_t)(s[i] - '0');
		*ret_size = i + 1;
	}
	return true;
}

static void lex_string(struct jinja_lexer *lx, struct jinja_token *token)
{
	size_t start = lx->at + 1, end = start, used = 0;
	const char *s = lx->source;
	bool escaped = false;
	char *text;

	for (; end < lx->length && s[end] != s[lx->at]; end++) {
		if (s[end] != '\\')
			continue;
		escaped = true;
		end++;
	}
	if (end >= lx->length)
		lex_fail(lx, "unterminated string");
	emit(lx, token, TOKEN_STRING, end - start);
	token->data = s + start;
	if (escaped) {
		text = jinja_arena_alloc(lx->run, end - start);
		while (start < end) {
			uint32_t c;
			size_t size = 0;

			if (s[start] == '\\' && !decode_escape(s + start, end - start, &c, &size))
				lex_fail(lx, "bad escape in string");
			if (!size)
				text[used++] = s[start++];
			else if (c != UINT32_MAX)
				used += utf8_encode(c, (uint8_t *)text + used);
			start += size;
		}
		token->data = text;
		token->length = used;
	}
	advance(lx, end + 1);
}

static bool is_digit(char c, unsigned int base)
{
	if (base <= 10)
		return c >= '0' && c < (char)('0' + base);
	return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'f');
}

struct digits {
	char text[512];
	size_t used;
};

static void keep(struct jinja_lexer *lx, struct digits *d, char c)
{
	if (d->used + 1 >= sizeof(d->text))
		lex_fail(lx, "number too long");
	d->text[d->used++] = c;
	d->text[d->used] = '\0';
}

/* Digits with single underscores between them; returns the position after them. */
static size_t scan_digits(struct jinja_lexer *lx, size_t at, unsigned int base, struct digits *d)
{
	for (; at < lx->length; at++) {
		char c = lx->source[at];

		if (c == '_' && at + 1 < lx->length && is_digit(lx->source[at + 1], base) &&
		    is_digit(lx->source[at - 1], base))
			continue;
		if (!is_digit(c, base))
			break;
		keep(lx, d, c);
	}
	return at;
}

static void lex_number(struct jinja_lexer *lx, struct jinja_token *token)
{
	const char *s = lx->source; /* terminated, so reading one or two bytes ahead is safe */
	char prefix = s[lx->at] == '0' ? (char)(s[lx->at + 1] | 32) : '\0';
	unsigned int base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 10;
	struct digits d = {.used = 0};
	bool real = false;
	size_t at = lx->at;

	if (base != 10 && is_digit(s[at + 2], base))
		at += 2;
	else
		base = 10;
	at = scan_digits(lx, at, base, &d);
	/* in `a.0.1` there are two indices, not a fraction */
	if (base == 10 && (lx->at == 0 || s[lx->at - 1] != '.')) {
		if (at + 1 < lx->length && s[at] == '.' && is_digit(s[at + 1], 10)) {
			real = true;
			keep(lx, &d, '.');
			at = scan_digits(lx, at + 1, 10, &d);
		}
		if (at < lx->length && (s[at] | 32) == 'e' &&
		    is_digit(s[at + 1 + (sign_at(lx, at + 1) != '\0')], 10)) {
			real = true;
			keep(lx, &d, 'e');
			if (sign_at(lx, ++at))
				keep(lx, &d, s[at++]);
			at = scan_digits(lx, at, 10, &d);
		}
	}
	if (!real && base == 10 && s[lx->at] == '0' && strspn(d.text, "0") != strlen(d.text) &&
	    (lx->at == 0 || s[lx->at - 1] != '.'))
		lex_fail(lx, "a number with a leading zero");
	emit(lx, token, real ? TOKEN_FLOAT : TOKEN_INTEGER, at - lx->at);
	lx->at = at;
	if (real) {
		token->real = strtod(d.text, NULL);
		return;
	}
	errno = 0;
	token->integer = strtoll(d.text, NULL, (int)base);
	if (errno && base != 10)
		lex_fail(lx, "integer literal does not fit 64 bits");
	if (errno) {
		size_t zeros = strspn(d.text, "0");
		char *text = jinja_arena_alloc(lx->run, d.used - zeros);

		token->type = TOKEN_BIGINT;
		token->length = d.used - zeros;
		token->data = memcpy(text, d.text + zeros, token->length);
	}
}

static bool is_name_char(char c)
{
	return is_digit(c, 10) || ((c | 32) >= 'a' && (c | 32) <= 'z') || c == '_' || (c & 0x80);
}

static void lex_operator(struct jinja_lexer *lx, struct jinja_token *token)
{
	static const struct {
		const char *text;
		enum jinja_token_type type;
	} operators[] = {
		{"==", TOKEN_EQ},      {"!=", TOKEN_NE},       {">=", TOKEN_GE},
		{"<=", TOKEN_LE},      {"//", TOKEN_FLOORDIV}, {"**", TOKEN_POW},
		{"+", TOKEN_ADD},      {"-", TOKEN_SUB},       {"*", TOKEN_MUL},
		{"/", TOKEN_DIV},      {"%", TOKEN_MOD},       {"~", TOKEN_TILDE},
		{"(", TOKEN_LPAREN},   {")", TOKEN_RPAREN},    {"[", TOKEN_LBRACKET},
		{"]", TOKEN_RBRACKET}, {"{", TOKEN_LBRACE},    {"}", TOKEN_RBRACE},
		{">", TOKEN_GT},       {"<", TOKEN_LT},	       {"=", TOKEN_ASSIGN},
		{".", TOKEN_DOT},      {":", TOKEN_COLON},     {"|", TOKEN_PIPE},
		{",", TOKEN_COMMA},    {";", TOKEN_SEMICOLON},
	};
	const size_t n = sizeof(operators) / sizeof(operators[0]);
	char c = lx->source[lx->at];
	size_t i = 0;

	while (i < n && !looking_at(lx, lx->at, operators[i].text))
		i++;
	if (i == n)
		lex_fail(lx, "unexpected character 0x%02x", (unsigned char)c);
	if (c == '(' || c == '[' || c == '{') {
		lx->run->line = lx->line;
		if (lx->n_brackets == JINJA_MAX_BRACKETS)
			jinja_throw(lx->run, TXDA_TEMPLATE_LIMIT, "more than %d open brackets",
				    JINJA_MAX_BRACKETS);
		lx->brackets[lx->n_brackets++] = c == '(' ? ')' : c == '[' ? ']' : '}';
	} else if (c == ')' || c == ']' || c == '}') {
		if (!lx->n_brackets || lx->brackets[lx->n_brackets - 1] != c)
			lex_fail(lx, "unexpected '%c'", c);
		lx->n_brackets--;
	}
	emit(lx, token, operators[i].type, strlen(operators[i].text));
	lx->at += token->length;
}

/* Inside {{ }} or {% %}, up to and including its end. */
static void lex_code(struct jinja_lexer *lx, struct jinja_token *token)
{
	const char *close = lx->mode == TOKEN_BLOCK_END ? "%}" : "}}";
	size_t next;
	char c;

	advance(lx, skip_space(lx, lx->at));
	if (lx->at >= lx->length) {
		emit(lx, token, TOKEN_EOF, 0); /* the parser reports what is missing */
		return;
	}
	next = lx->n_brackets ? 0 : tag_end(lx, lx->at, close);
	if (next) {
		emit(lx, token, lx->mode, 2);
		advance(lx, next);
		lx->mode = TOKEN_DATA;
		return;
	}
	c = lx->source[lx->at];
	if (is_digit(c, 10)) {
		lex_number(lx, token);
	} else if (is_name_char(c)) {
		for (next = lx->at; next < lx->length && is_name_char(lx->source[next]);)
			next++;
		emit(lx, token, TOKEN_NAME, next - lx->at);
		lx->at = next;
	} else if (c == '"' || c == '\'') {
		lex_string(lx, token);
	} else {
		lex_operator(lx, token);
	}
}

void jinja_lex(struct jinja_lexer *lx, struct jinja_token *ret)
{
	if (lx->mode != TOKEN_DATA)
		lex_code(lx, ret);
	else
		while (!lex_text(lx, ret))
			;
}

void jinja_lex_start(struct jinja_lexer *lx, struct jinja_run *run, const char *source,
		     size_t length)
{
	char *copy = jinja_arena_alloc(run, length + 1);
	size_t i;

	*lx = (struct jinja_lexer){.run = run, .line = 1, .mode = TOKEN_DATA};
	for (i = 0; i < length; i++) {
		bool two = source[i] == '\r' && i + 1 < length && source[i + 1] == '\n';

		copy[lx->length++] = source[i] == '\r' ? '\n' : source[i];
		i += two;
	}
	if (lx->length && copy[lx->length - 1] == '\n')
		lx->length--;
	copy[lx->length] = '\0';
	lx->source = copy;
}
