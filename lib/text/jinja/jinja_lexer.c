// SPDX-License-Identifier: MIT
/*
 * Lexer. The source switches between text, `{{ … }}`, `{% … %}`, `{# … #}` and raw blocks;
 * whitespace control (`-`, `+`, trim_blocks, lstrip_blocks) is settled here, so the parser sees
 * final texts.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jinja_ast.h"

enum { MAX_BRACKETS = 256 };

struct lexer {
	const char *source;
	size_t length;
	size_t at;
	unsigned int line;
	struct jinja_arena *arena;
	struct jinja_tokens *tokens;
	struct txda_template_error *error;
};

int jinja_set_error(struct txda_template_error *error, enum txda_template_error_kind kind,
		    unsigned int line, const char *format, ...)
{
	va_list args;

	error->kind = kind;
	error->line = line;
	va_start(args, format);
	vsnprintf(error->message, sizeof(error->message), format, args);
	va_end(args);
	switch (kind) {
	case TXDA_TEMPLATE_OK: return 0;
	case TXDA_TEMPLATE_RAISED: return -EPROTO;
	case TXDA_TEMPLATE_LIMIT: return -E2BIG;
	case TXDA_TEMPLATE_MEMORY: return -ENOMEM;
	default: return -EINVAL;
	}
}

static int out_of_memory(struct lexer *lx)
{
	if (lx->arena->exhausted)
		return jinja_set_error(lx->error, TXDA_TEMPLATE_LIMIT, lx->line,
				       "the template needs more than %zu bytes", lx->arena->limit);
	return jinja_set_error(lx->error, TXDA_TEMPLATE_MEMORY, lx->line, "out of memory");
}

static int syntax_error(struct lexer *lx, const char *message)
{
	return jinja_set_error(lx->error, TXDA_TEMPLATE_SYNTAX, lx->line, "%s", message);
}

/*
 * The new token is returned through @ret (may be NULL), with its type, line, data and length set.
 */
static int push(struct lexer *lx, enum jinja_token_type type, size_t start, size_t length,
		struct jinja_token **ret)
{
	struct jinja_tokens *tokens = lx->tokens;
	struct jinja_token *token = NULL;

	if (tokens->n == tokens->capacity) {
		size_t capacity = tokens->capacity ? tokens->capacity * 2 : 256;

		token = realloc(tokens->items, capacity * sizeof(*token));
		if (!token)
			return jinja_set_error(lx->error, TXDA_TEMPLATE_MEMORY, lx->line,
					       "out of memory");
		tokens->items = token;
		tokens->capacity = capacity;
	}
	token = &tokens->items[tokens->n++];
	*token = (struct jinja_token){.type = (uint8_t)type,
				      .line = lx->line,
				      .data = lx->source + start,
				      .length = length};
	if (ret)
		*ret = token;
	return 0;
}

static bool looking_at(const struct lexer *lx, size_t at, const char *text)
{
	size_t n = strlen(text);

	return lx->length - at >= n && !memcmp(lx->source + at, text, n);
}

static void advance(struct lexer *lx, size_t to)
{
	for (; lx->at < to; lx->at++)
		if (lx->source[lx->at] == '\n')
			lx->line++;
}

static size_t skip_space(const struct lexer *lx, size_t at)
{
	while (at < lx->length) {
		uint32_t c;
		size_t n = jinja_utf8_decode(lx->source + at, lx->length - at, &c);

		if (!jinja_is_space(c))
			break;
		at += n;
	}
	return at;
}

/* End of @start..@end without the whitespace before @end. */
static size_t strip_end(const struct lexer *lx, size_t start, size_t end)
{
	size_t kept = start, at = start;

	while (at < end) {
		uint32_t c;

		at += jinja_utf8_decode(lx->source + at, end - at, &c);
		if (!jinja_is_space(c))
			kept = at;
	}
	return kept;
}

/*
 * Text before a tag: `-` strips all whitespace before it; lstrip_blocks strips what stands between
 * the start of the line and a block or comment, unless there is a `+`. @line_start: the text itself
 * begins a line.
 */
static size_t end_of_text(const struct lexer *lx, size_t start, size_t end, char sign,
			  bool is_variable, bool line_start)
{
	size_t line = end;

	if (sign == '-')
		return strip_end(lx, start, end);
	if (sign == '+' || is_variable)
		return end;
	while (line > start && lx->source[line - 1] != '\n')
		line--;
	if (line == start && !line_start)
		return end;
	return strip_end(lx, line, end) == line ? line : end;
}

/*
 * Is there the end of a block or comment (@close is `%}` or `#}`) with an optional sign at @at?
 * Returns where the text after it begins (`-` and trim_blocks applied), or 0.
 */
static size_t block_close(const struct lexer *lx, size_t at, const char *close)
{
	char sign = at < lx->length ? lx->source[at] : '\0';

	if (sign == '-' && looking_at(lx, at + 1, close))
		return skip_space(lx, at + 3);
	if (sign == '+' && looking_at(lx, at + 1, close))
		return at + 3;
	if (!looking_at(lx, at, close))
		return 0;
	at += 2;
	return at < lx->length && lx->source[at] == '\n' ? at + 1 : at;
}

static char sign_at(const struct lexer *lx, size_t at)
{
	if (at < lx->length && (lx->source[at] == '-' || lx->source[at] == '+'))
		return lx->source[at];
	return '\0';
}

/*
 * Does `{%` at @at open the block @word (raw, endraw)? Returns the position behind the word or 0.
 */
static size_t raw_word(const struct lexer *lx, size_t at, const char *word)
{
	at += 2;
	if (sign_at(lx, at))
		at++;
	at = skip_space(lx, at);
	if (!looking_at(lx, at, word))
		return 0;
	return skip_space(lx, at + strlen(word));
}

/*
 * Behind the `%}` of `{% raw %}`, whose following newline is not trimmed; 0 when this is no raw
 * block.
 */
static size_t raw_begin(const struct lexer *lx, size_t at)
{
	at = raw_word(lx, at, "raw");
	if (at && looking_at(lx, at, "-%}"))
		return skip_space(lx, at + 3);
	if (at && looking_at(lx, at, "%}"))
		return at + 2;
	return 0;
}

static int push_text(struct lexer *lx, size_t start, size_t end)
{
	return end > start ? push(lx, TOKEN_DATA, start, end - start, NULL) : 0;
}

static int lex_raw(struct lexer *lx, size_t body)
{
	size_t at;

	advance(lx, body);
	for (at = body; at < lx->length; at++) {
		size_t word, next, end;
		int rc;

		if (!looking_at(lx, at, "{%"))
			continue;
		word = raw_word(lx, at, "endraw");
		next = word ? block_close(lx, word, "%}") : 0;
		if (!next)
			continue;
		end = end_of_text(lx, body, at, sign_at(lx, at + 2), false,
				  lx->source[body - 1] == '\n');
		rc = push_text(lx, body, end);
		advance(lx, next);
		return rc;
	}
	return syntax_error(lx, "missing end of raw block");
}

static int lex_comment(struct lexer *lx, size_t body)
{
	size_t at;

	for (at = body; at < lx->length; at++) {
		size_t next = block_close(lx, at, "#}");

		if (next) {
			advance(lx, next);
			return 0;
		}
	}
	return syntax_error(lx, "missing end of comment tag");
}

static int hex_digits(const char *s, size_t available, unsigned int n, uint32_t *ret)
{
	uint32_t c = 0;
	unsigned int i;

	if (available < n)
		return -EINVAL;
	for (i = 0; i < n; i++) {
		char d = s[i];

		if (d >= '0' && d <= '9')
			c = c << 4 | (uint32_t)(d - '0');
		else if ((d | 32) >= 'a' && (d | 32) <= 'f')
			c = c << 4 | (uint32_t)((d | 32) - 'a' + 10);
		else
			return -EINVAL;
	}
	*ret = c;
	return 0;
}

/*
 * One escape of a string literal at s[0] == '\\'; gives the character (or UINT32_MAX: nothing) and
 * its size in the source. An unknown escape stands for itself: *ret_size is 0 then.
 */
static int decode_escape(const char *s, size_t n, uint32_t *ret_char, size_t *ret_size)
{
	static const char names[] = "abfnrtv\\'\"";
	static const char chars[] = "\a\b\f\n\r\t\v\\'\"";
	const char *known;
	uint32_t low;
	size_t i;

	known = s[1] ? strchr(names, s[1]) : NULL;
	*ret_size = 2;
	if (known) {
		*ret_char = (unsigned char)chars[known - names];
		return 0;
	}
	switch (s[1]) {
	case '\n': *ret_char = UINT32_MAX; return 0;
	case 'x': *ret_size = 4; return hex_digits(s + 2, n - 2, 2, ret_char);
	case 'u':
		*ret_size = 6;
		if (hex_digits(s + 2, n - 2, 4, ret_char))
			return -EINVAL;
		if (*ret_char >= 0xd800 && *ret_char < 0xdc00 && n >= 12 && s[6] == '\\' &&
		    s[7] == 'u' && !hex_digits(s + 8, n - 8, 4, &low) && low >= 0xdc00 &&
		    low < 0xe000) {
			*ret_char = 0x10000 + ((*ret_char - 0xd800) << 10) + (low - 0xdc00);
			*ret_size = 12;
		}
		return *ret_char >= 0xd800 && *ret_char < 0xe000 ? -EINVAL : 0;
	case 'U':
		*ret_size = 10;
		if (hex_digits(s + 2, n - 2, 8, ret_char) || *ret_char > 0x10ffff)
			return -EINVAL;
		return *ret_char >= 0xd800 && *ret_char < 0xe000 ? -EINVAL : 0;
	case 'N': return -EINVAL; /* named characters */
	default: break;
	}
	*ret_size = 0;
	for (i = 1, *ret_char = 0; i < 4 && i < n && s[i] >= '0' && s[i] <= '7'; i++) {
		*ret_char = *ret_char * 8 + (uint32_t)(s[i] - '0');
		*ret_size = i + 1;
	}
	return 0;
}

static int lex_string(struct lexer *lx)
{
	char quote = lx->source[lx->at];
	size_t start = lx->at + 1, end = start, used = 0;
	struct jinja_token *token = NULL;
	bool escaped = false;
	char *text;
	int rc;

	while (end < lx->length && lx->source[end] != quote) {
		if (lx->source[end] == '\\') {
			escaped = true;
			end++;
		}
		end++;
	}
	if (end >= lx->length)
		return syntax_error(lx, "unterminated string");
	rc = push(lx, TOKEN_STRING, start, end - start, &token);
	if (rc)
		return rc;
	if (escaped) {
		text = jinja_arena_alloc(lx->arena, end - start);
		if (!text)
			return out_of_memory(lx);
		while (start < end) {
			uint32_t c;
			size_t size = 0;

			if (lx->source[start] == '\\' &&
			    decode_escape(lx->source + start, end - start, &c, &size))
				return syntax_error(lx, "bad escape in string");
			if (!size)
				text[used++] = lx->source[start++];
			else if (c != UINT32_MAX)
				used += jinja_utf8_encode(c, text + used);
			start += size;
		}
		token->data = text;
		token->length = used;
	}
	advance(lx, end + 1);
	return 0;
}

static bool is_digit(char c, unsigned int base)
{
	if (base <= 10)
		return c >= '0' && c < (char)('0' + base);
	return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'f');
}

/*
 * Digits with single underscores between them; returns the position behind, copies digits to @out.
 */
static size_t scan_digits(const struct lexer *lx, size_t at, unsigned int base, char *out,
			  size_t out_size, size_t *out_used)
{
	while (at < lx->length) {
		char c = lx->source[at];

		if (c == '_' && at + 1 < lx->length && is_digit(lx->source[at + 1], base) &&
		    is_digit(lx->source[at - 1], base)) {
			at++;
			continue;
		}
		if (!is_digit(c, base))
			break;
		if (*out_used + 1 < out_size)
			out[(*out_used)++] = c;
		at++;
	}
	return at;
}

static int lex_number(struct lexer *lx)
{
	char text[512];
	size_t used = 0, at = lx->at, mark;
	unsigned int base = 10;
	bool real = false;
	struct jinja_token *token = NULL;
	int rc;

	if (lx->source[at] == '0' && at + 2 < lx->length) {
		char c = (char)(lx->source[at + 1] | 32);

		base = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 10;
		if (base != 10 && is_digit(lx->source[at + 2], base))
			at += 2;
		else
			base = 10;
	}
	at = scan_digits(lx, at, base, text, sizeof(text), &used);
	if (base == 10 && (lx->at == 0 || lx->source[lx->at - 1] != '.')) {
		if (at + 1 < lx->length && lx->source[at] == '.' &&
		    is_digit(lx->source[at + 1], 10)) {
			real = true;
			if (used + 1 < sizeof(text))
				text[used++] = '.';
			at = scan_digits(lx, at + 1, 10, text, sizeof(text), &used);
		}
		mark = at;
		if (mark < lx->length && (lx->source[mark] | 32) == 'e') {
			mark++;
			if (sign_at(lx, mark))
				mark++;
			if (mark < lx->length && is_digit(lx->source[mark], 10)) {
				real = true;
				if (used + 2 < sizeof(text)) {
					text[used++] = 'e';
					text[used++] = lx->source[mark - 1];
				}
				if (text[used - 1] != '+' && text[used - 1] != '-')
					used--;
				at = scan_digits(lx, mark, 10, text, sizeof(text), &used);
			}
		}
	}
	if (used + 1 >= sizeof(text))
		return syntax_error(lx, "number too long");
	text[used] = '\0';
	rc = push(lx, real ? TOKEN_FLOAT : TOKEN_INTEGER, lx->at, at - lx->at, &token);
	if (rc)
		return rc;
	if (real) {
		token->real = strtod(text, NULL);
	} else {
		errno = 0;
		token->integer = strtoll(text, NULL, (int)base);
		if (errno)
			return syntax_error(lx, "integer literal does not fit 64 bits");
	}
	lx->at = at;
	return 0;
}

static bool is_name_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80) ||
	       (c >= '0' && c <= '9');
}

static int lex_operator(struct lexer *lx, char *brackets, unsigned int *n_brackets)
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
	char c = lx->source[lx->at];
	size_t i;
	int rc;

	for (i = 0; i < sizeof(operators) / sizeof(operators[0]); i++)
		if (looking_at(lx, lx->at, operators[i].text))
			break;
	if (i == sizeof(operators) / sizeof(operators[0]))
		return jinja_set_error(lx->error, TXDA_TEMPLATE_SYNTAX, lx->line,
				       "unexpected character 0x%02x", (unsigned char)c);
	if (c == '(' || c == '[' || c == '{') {
		if (*n_brackets == MAX_BRACKETS)
			return jinja_set_error(lx->error, TXDA_TEMPLATE_LIMIT, lx->line,
					       "more than %d open brackets", MAX_BRACKETS);
		brackets[(*n_brackets)++] = c == '(' ? ')' : c == '[' ? ']' : '}';
	} else if (c == ')' || c == ']' || c == '}') {
		if (!*n_brackets || brackets[*n_brackets - 1] != c)
			return jinja_set_error(lx->error, TXDA_TEMPLATE_SYNTAX, lx->line,
					       "unexpected '%c'", c);
		(*n_brackets)--;
	}
	rc = push(lx, operators[i].type, lx->at, strlen(operators[i].text), NULL);
	lx->at += strlen(operators[i].text);
	return rc;
}

/* Inside {{ }} or {% %}, up to and including its end. */
static int lex_code(struct lexer *lx, bool is_variable)
{
	char brackets[MAX_BRACKETS];
	unsigned int n_brackets = 0;
	int rc = 0;

	while (!rc) {
		size_t next = 0;
		char c;

		advance(lx, skip_space(lx, lx->at));
		if (lx->at >= lx->length)
			return 0; /* the parser says what is missing */
		if (!n_brackets && !is_variable) {
			next = block_close(lx, lx->at, "%}");
		} else if (!n_brackets) {
			if (looking_at(lx, lx->at, "-}}"))
				next = skip_space(lx, lx->at + 3);
			else if (looking_at(lx, lx->at, "}}"))
				next = lx->at + 2;
		}
		if (next) {
			rc = push(lx, is_variable ? TOKEN_VARIABLE_END : TOKEN_BLOCK_END, lx->at, 2,
				  NULL);
			advance(lx, next);
			return rc;
		}
		c = lx->source[lx->at];
		if (is_digit(c, 10)) {
			rc = lex_number(lx);
		} else if (is_name_char(c)) {
			for (next = lx->at; next < lx->length && is_name_char(lx->source[next]);)
				next++;
			rc = push(lx, TOKEN_NAME, lx->at, next - lx->at, NULL);
			lx->at = next;
		} else if (c == '"' || c == '\'') {
			rc = lex_string(lx);
		} else {
			rc = lex_operator(lx, brackets, &n_brackets);
		}
	}
	return rc;
}

/* One stretch of text and the tag behind it. */
static int lex_text(struct lexer *lx)
{
	size_t start = lx->at, at = start, raw = 0, end;
	bool line_start = start == 0 || lx->source[start - 1] == '\n';
	bool is_variable;
	char kind, sign;
	int rc;

	while (at + 1 < lx->length &&
	       (lx->source[at] != '{' || !strchr("%{#", lx->source[at + 1]) || !lx->source[at + 1]))
		at++;
	if (at + 1 >= lx->length) {
		rc = push_text(lx, start, lx->length);
		advance(lx, lx->length);
		return rc;
	}
	kind = lx->source[at + 1];
	sign = sign_at(lx, at + 2);
	is_variable = kind == '{';
	end = end_of_text(lx, start, at, sign, is_variable, line_start);
	rc = push_text(lx, start, end);
	if (rc)
		return rc;
	advance(lx, at);
	if (kind == '%')
		raw = raw_begin(lx, at);
	if (raw)
		return lex_raw(lx, raw);
	advance(lx, at + 2 + (sign != '\0'));
	if (kind == '#')
		return lex_comment(lx, lx->at);
	rc = push(lx, is_variable ? TOKEN_VARIABLE_BEGIN : TOKEN_BLOCK_BEGIN, at, 2, NULL);
	return rc ? rc : lex_code(lx, is_variable);
}

int jinja_lex(const char *source, size_t length, struct jinja_arena *arena,
	      struct jinja_tokens *tokens, struct txda_template_error *error)
{
	struct lexer lx = {.line = 1, .arena = arena, .tokens = tokens, .error = error};
	char *copy = jinja_arena_alloc(arena, length + 1);
	size_t i;
	int rc = 0;

	if (!copy)
		return out_of_memory(&lx);
	for (i = 0; i < length; i++) {
		if (source[i] == '\r') {
			copy[lx.length++] = '\n';
			if (i + 1 < length && source[i + 1] == '\n')
				i++;
		} else {
			copy[lx.length++] = source[i];
		}
	}
	if (lx.length && copy[lx.length - 1] == '\n')
		lx.length--;
	copy[lx.length] = '\0';
	lx.source = copy;
	while (!rc && lx.at < lx.length)
		rc = lex_text(&lx);
	return rc ? rc : push(&lx, TOKEN_EOF, lx.length, 0, NULL);
}
