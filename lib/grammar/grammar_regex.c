// SPDX-License-Identifier: MIT
#include "grammar_regex.h"

#include <errno.h>
#include <string.h>

#include "json_text.h"
#include "scan.h"

struct parser {
	struct grammar_builder *b;
	struct scan s;
	const struct grammar_regex_options *options;
	unsigned depth;
	struct grammar_set set; /* being read; too large for the stack of a recursion */
};

static struct grammar_piece alternatives(struct parser *p);

static struct grammar_piece wrong(struct parser *p, const char *what)
{
	grammar_fail(p->b, -EINVAL, "regular expression, offset %zu: %s", p->s.at, what);
	return grammar_never(p->b);
}

/* A character of p->set. */
static struct grammar_piece emit_set(struct parser *p)
{
	return p->options->json ? json_char(p->b, &p->set) : grammar_char(p->b, &p->set);
}

static struct grammar_piece emit_one(struct parser *p, uint32_t c)
{
	if (c >= 0xD800 && c <= 0xDFFF)
		return grammar_never(p->b);
	return p->options->json ? json_character(p->b, c) : grammar_character(p->b, c);
}

/* Any number of arbitrary characters. */
static struct grammar_piece anything(struct parser *p)
{
	if (p->options->json)
		return grammar_star(p->b, json_any_char(p->b));
	grammar_set_clear(&p->set);
	grammar_set_invert(&p->set);
	return grammar_star(p->b, grammar_char(p->b, &p->set));
}

/* ---- sets ------------------------------------------------------------------------------------ */

/* \d and similar classes; false: @c is none of them. */
static bool class_of(char c, struct grammar_set *set)
{
	struct grammar_set class;

	grammar_set_clear(&class);
	switch (c | 0x20) {
	case 'd': grammar_set_add(&class, '0', '9'); break;
	case 'w':
		grammar_set_add(&class, '0', '9');
		grammar_set_add(&class, 'A', 'Z');
		grammar_set_add(&class, '_', '_');
		grammar_set_add(&class, 'a', 'z');
		break;
	case 's':
		grammar_set_add(&class, '\t', '\r');
		grammar_set_add(&class, ' ', ' ');
		break;
	default: return false;
	}
	if (!(c & 0x20))
		grammar_set_invert(&class);
	for (unsigned i = 0; i < class.n; i++)
		grammar_set_add(set, class.ranges[i].first, class.ranges[i].last);
	return true;
}

static bool unicode_escape(struct scan *s, uint32_t *ret)
{
	unsigned n = 0;
	uint32_t low;

	if (scan_take(s, '{')) {
		while (scan_hex_digit(scan_peek(s, n)) >= 0 && n <= 8)
			n++;
		return n && n <= 8 && scan_hex(s, n, ret) && scan_take(s, '}');
	}
	if (!scan_hex(s, 4, ret))
		return false;
	/* A pair of surrogates is one character. */
	if (*ret >= 0xD800 && *ret < 0xDC00 && scan_peek(s, 0) == '\\' && scan_peek(s, 1) == 'u') {
		s->at += 2;
		if (!scan_hex(s, 4, &low) || low < 0xDC00 || low > 0xDFFF)
			return false;
		*ret = 0x10000 + ((*ret - 0xD800) << 10) + (low - 0xDC00);
	}
	return *ret < 0xD800 || *ret > 0xDFFF;
}

/* The character after a backslash, if it stands for a single one. */
static bool escaped_char(struct scan *s, uint32_t *ret)
{
	char c = scan_peek(s, 0);

	if (c && strchr("dDwWsSbBpPkQEAZzG123456789", c))
		return false;
	if (!scan_char(s, ret))
		return false;
	switch (c) {
	case 't': *ret = '\t'; return true;
	case 'n': *ret = '\n'; return true;
	case 'r': *ret = '\r'; return true;
	case 'f': *ret = '\f'; return true;
	case 'v': *ret = '\v'; return true;
	case '0': *ret = 0; return scan_peek(s, 0) < '0' || scan_peek(s, 0) > '9';
	case 'x': return scan_hex(s, 2, ret);
	case 'u': return unicode_escape(s, ret);
	default: return !((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
	}
}

/* One end of a range in [...]; *ret_class: it was a class and is in the set already. */
static bool set_member(struct scan *s, struct grammar_set *set, uint32_t *ret, bool *ret_class)
{
	*ret_class = false;
	if (!scan_take(s, '\\'))
		return scan_char(s, ret);
	if (class_of(scan_peek(s, 0), set)) {
		s->at++;
		*ret_class = true;
		return true;
	}
	if (scan_take(s, 'b')) {
		*ret = '\b';
		return true;
	}
	return escaped_char(s, ret);
}

static struct grammar_piece set_piece(struct parser *p)
{
	bool inverted = scan_take(&p->s, '^'), class;
	uint32_t first, last;

	grammar_set_clear(&p->set);
	while (!scan_take(&p->s, ']')) {
		if (!set_member(&p->s, &p->set, &first, &class))
			return wrong(p, scan_end(&p->s) ? "the set is not closed"
							: "an escape that is not supported");
		if (class)
			continue;
		last = first;
		if (scan_peek(&p->s, 0) == '-' && scan_peek(&p->s, 1) != ']') {
			p->s.at++;
			if (!set_member(&p->s, &p->set, &last, &class) || class || last < first)
				return wrong(p, "an invalid range of characters");
		}
		grammar_set_add(&p->set, first, last);
	}
	if (inverted)
		grammar_set_invert(&p->set);
	return emit_set(p);
}

/* ---- atoms ----------------------------------------------------------------------------------- */

static struct grammar_piece escape(struct parser *p)
{
	uint32_t c;

	grammar_set_clear(&p->set);
	if (class_of(scan_peek(&p->s, 0), &p->set)) {
		p->s.at++;
		return emit_set(p);
	}
	if (!escaped_char(&p->s, &c))
		return wrong(p, "an escape that is not supported (back references, \\b and \\p are "
				"not)");
	return emit_one(p, c);
}

static struct grammar_piece group(struct parser *p)
{
	struct grammar_piece piece;

	if (scan_take(&p->s, '?')) {
		if (scan_peek(&p->s, 0) == 'P')
			p->s.at++;
		if (scan_peek(&p->s, 0) == '<' && scan_peek(&p->s, 1) != '=' &&
		    scan_peek(&p->s, 1) != '!') {
			while (!scan_end(&p->s) && !scan_take(&p->s, '>'))
				p->s.at++;
		} else if (!scan_take(&p->s, ':')) {
			return wrong(p, "look-around and flags are not supported");
		}
	}
	if (p->depth == GRAMMAR_REGEX_MAX_DEPTH)
		return wrong(p, "groups nested deeper than 200");
	p->depth++;
	piece = alternatives(p);
	p->depth--;
	if (!scan_take(&p->s, ')'))
		return wrong(p, "a group is not closed");
	return piece;
}

static struct grammar_piece atom(struct parser *p)
{
	uint32_t c;

	if (!scan_char(&p->s, &c))
		return wrong(p, "not valid UTF-8");
	switch (c) {
	case '(': return group(p);
	case '[': return set_piece(p);
	case '\\': return escape(p);
	case '.':
		grammar_set_clear(&p->set);
		grammar_set_add(&p->set, '\n', '\n');
		grammar_set_add(&p->set, '\r', '\r');
		grammar_set_add(&p->set, 0x2028, 0x2029);
		grammar_set_invert(&p->set);
		return emit_set(p);
	case '*':
	case '+':
	case '?': return wrong(p, "nothing to repeat");
	case '^':
	case '$': return wrong(p, "^ and $ are supported at the ends of the expression only");
	default: return emit_one(p, c);
	}
}

/* {n}, {n,} or {n,m}; false: not a quantifier, so { stands for itself. */
static bool bounds(struct parser *p, uint32_t *min, uint32_t *max)
{
	struct scan s = p->s;

	if (!scan_take(&s, '{') || !scan_number(&s, min))
		return false;
	*max = *min;
	if (scan_take(&s, ',')) {
		*max = GRAMMAR_UNLIMITED;
		if (scan_peek(&s, 0) != '}' && !scan_number(&s, max))
			return false;
	}
	if (!scan_take(&s, '}'))
		return false;
	p->s = s;
	return true;
}

static struct grammar_piece repeated(struct parser *p)
{
	struct grammar_piece piece = atom(p);
	uint32_t min, max;

	while (!grammar_failed(p->b)) {
		if (scan_take(&p->s, '*')) {
			piece = grammar_star(p->b, piece);
		} else if (scan_take(&p->s, '+')) {
			piece = grammar_plus(p->b, piece);
		} else if (scan_take(&p->s, '?')) {
			piece = grammar_optional(p->b, piece);
		} else if (bounds(p, &min, &max)) {
			if (max < min)
				return wrong(p, "a repetition whose end is below its beginning");
			piece = grammar_repeat(p->b, piece, min, max);
		} else {
			break;
		}
		/* Lazy and greedy quantifiers match the same texts. */
		scan_take(&p->s, '?');
	}
	return piece;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static bool sequence_ends(const struct parser *p)
{
	char c = scan_peek(&p->s, 0);

	return scan_end(&p->s) || c == '|' || (c == ')' && p->depth);
}

static struct grammar_piece sequence(struct parser *p)
{
	struct grammar_piece piece = grammar_empty(p->b);
	bool outer = !p->depth, anchored = outer && scan_take(&p->s, '^');

	if (outer && p->options->search && !anchored)
		piece = grammar_seq(p->b, piece, anything(p));
	anchored = false;
	while (!sequence_ends(p) && !grammar_failed(p->b)) {
		if (outer && scan_peek(&p->s, 0) == '$') {
			struct scan s = p->s;

			s.at++;
			if (scan_end(&s) || scan_peek(&s, 0) == '|') {
				p->s = s;
				anchored = true;
				break;
			}
		}
		if (scan_peek(&p->s, 0) == ')')
			return wrong(p, "a ) without its (");
		piece = grammar_seq(p->b, piece, repeated(p));
	}
	if (outer && p->options->search && !anchored)
		piece = grammar_seq(p->b, piece, anything(p));
	return piece;
}

static struct grammar_piece alternatives(struct parser *p)
{
	struct grammar_piece piece = sequence(p);

	while (!grammar_failed(p->b) && scan_take(&p->s, '|'))
		piece = grammar_either(p->b, piece, sequence(p));
	return piece;
}

struct grammar_piece grammar_regex(struct grammar_builder *b, const char *text, size_t len,
				   const struct grammar_regex_options *options)
{
	struct parser p = {.b = b, .s = {.text = text, .len = len}, .options = options};

	return alternatives(&p);
}
