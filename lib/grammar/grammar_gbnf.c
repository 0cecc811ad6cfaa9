// SPDX-License-Identifier: MIT
#include "grammar_gbnf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hash.h"
#include "scan.h"

#define MAX_NAME 100

struct name {
	char text[MAX_NAME + 1];
	uint32_t rule;
};

struct parser {
	struct grammar_builder *b;
	struct scan s;
	unsigned depth;
	struct name *names; /* sorted when it is looked up by halves; see find_rule() */
	size_t n_names, cap_names;
	uint32_t *slots; /* an index over names, number + 1 */
	size_t n_slots;
	struct grammar_set set; /* being read; too large for the stack of a recursion */
};

static struct grammar_piece alternatives(struct parser *p);

static unsigned line_of(const struct parser *p)
{
	unsigned line = 1;

	for (size_t i = 0; i < p->s.at && i < p->s.len; i++)
		line += p->s.text[i] == '\n';
	return line;
}

static struct grammar_piece wrong(struct parser *p, const char *what)
{
	grammar_fail(p->b, -EINVAL, "grammar, line %u: %s", line_of(p), what);
	return grammar_never(p->b);
}

/* ---- words ----------------------------------------------------------------------------------- */

static void skip(struct scan *s)
{
	for (;;) {
		char c = scan_peek(s, 0);

		if (c == '#') {
			while (!scan_end(s) && scan_peek(s, 0) != '\n')
				s->at++;
		} else if (c && strchr(" \t\r\n", c)) {
			s->at++;
		} else {
			return;
		}
	}
}

static void skip_space(struct parser *p)
{
	skip(&p->s);
}

static bool is_name_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '-' || c == '_';
}

static bool take_name(struct parser *p, char name[MAX_NAME + 1])
{
	size_t n = 0;

	while (n <= MAX_NAME && is_name_char(scan_peek(&p->s, n)))
		n++;
	if (n > MAX_NAME) {
		wrong(p, "a name is longer than 100 characters");
		return false;
	}
	memcpy(name, p->s.text + p->s.at, n);
	name[n] = 0;
	p->s.at += n;
	return n;
}

static bool take_defines(struct scan *s)
{
	if (scan_peek(s, 0) != ':' || scan_peek(s, 1) != ':' || scan_peek(s, 2) != '=')
		return false;
	s->at += 3;
	return true;
}

/* A rule begins here: the previous one has ended. */
static bool at_rule(const struct parser *p)
{
	struct scan ahead = p->s;
	size_t n = 0;

	while (is_name_char(scan_peek(&ahead, n)))
		n++;
	ahead.at += n;
	skip(&ahead);
	return n && take_defines(&ahead);
}

/* ---- rules by name --------------------------------------------------------------------------- */

static size_t slot_of(const struct parser *p, const char *name)
{
	uint64_t hash = hash_fnv1a(HASH_FNV1A, name, strlen(name));
	size_t at;

	for (at = hash & (p->n_slots - 1); p->slots[at]; at = (at + 1) & (p->n_slots - 1)) {
		if (!strcmp(p->names[p->slots[at] - 1].text, name))
			break;
	}
	return at;
}

static bool grow_names(struct parser *p)
{
	size_t cap = p->cap_names ? 2 * p->cap_names : 32;
	struct name *names = realloc(p->names, cap * sizeof(*names));
	uint32_t *slots = calloc(4 * cap, sizeof(*slots));

	if (names)
		p->names = names;
	if (!names || !slots) {
		free(slots);
		grammar_fail(p->b, -ENOMEM, "out of memory");
		return false;
	}
	free(p->slots);
	p->slots = slots;
	p->n_slots = 4 * cap;
	p->cap_names = cap;
	for (size_t i = 0; i < p->n_names; i++)
		p->slots[slot_of(p, names[i].text)] = (uint32_t)i + 1;
	return true;
}

static uint32_t find_rule(struct parser *p, const char *name)
{
	size_t at;

	if (p->n_names == p->cap_names && !grow_names(p))
		return 0;
	at = slot_of(p, name);
	if (p->slots[at])
		return p->names[p->slots[at] - 1].rule;
	snprintf(p->names[p->n_names].text, sizeof(p->names[0].text), "%s", name);
	p->names[p->n_names].rule = grammar_rule(p->b, name);
	p->slots[at] = (uint32_t)++p->n_names;
	return p->names[p->n_names - 1].rule;
}

/* ---- characters ------------------------------------------------------------------------------ */

/* A character or an escape. */
static bool take_char(struct parser *p, uint32_t *ret)
{
	char c;

	if (!scan_take(&p->s, '\\'))
		return scan_char(&p->s, ret);
	c = scan_peek(&p->s, 0);
	if (!scan_char(&p->s, ret))
		return false;
	switch (c) {
	case 'n': *ret = '\n'; return true;
	case 'r': *ret = '\r'; return true;
	case 't': *ret = '\t'; return true;
	case 'x': return scan_hex(&p->s, 2, ret);
	case 'u': return scan_hex(&p->s, 4, ret);
	case 'U': return scan_hex(&p->s, 8, ret);
	default: return c && strchr("\\\"[]-^/'", c);
	}
}

static struct grammar_piece text(struct parser *p)
{
	struct grammar_piece piece = grammar_empty(p->b);
	uint8_t bytes[4];
	uint32_t c;

	while (!scan_take(&p->s, '"')) {
		if (!take_char(p, &c) || (c >= 0xD800 && c <= 0xDFFF))
			return wrong(p, scan_end(&p->s) ? "a string is not closed"
							: "not a character");
		piece = grammar_seq(
			p->b, piece,
			grammar_bytes(p->b, (const char *)bytes, utf8_encode(c, bytes)));
		if (grammar_failed(p->b))
			break;
	}
	return piece;
}

static struct grammar_piece set(struct parser *p)
{
	bool inverted = scan_take(&p->s, '^');
	uint32_t first, last;

	grammar_set_clear(&p->set);
	while (!scan_take(&p->s, ']')) {
		if (!take_char(p, &first))
			return wrong(p,
				     scan_end(&p->s) ? "a set is not closed" : "not a character");
		last = first;
		if (scan_peek(&p->s, 0) == '-' && scan_peek(&p->s, 1) != ']') {
			p->s.at++;
			if (!take_char(p, &last) || last < first)
				return wrong(p, "an invalid range of characters");
		}
		grammar_set_add(&p->set, first, last);
	}
	if (inverted)
		grammar_set_invert(&p->set);
	return grammar_char(p->b, &p->set);
}

/* ---- expressions ----------------------------------------------------------------------------- */

static struct grammar_piece group(struct parser *p)
{
	struct grammar_piece piece;

	if (p->depth == GRAMMAR_GBNF_MAX_DEPTH)
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
	char name[MAX_NAME + 1];

	if (scan_take(&p->s, '"'))
		return text(p);
	if (scan_take(&p->s, '['))
		return set(p);
	if (scan_take(&p->s, '('))
		return group(p);
	if (scan_take(&p->s, '.')) {
		grammar_set_clear(&p->set);
		grammar_set_invert(&p->set);
		return grammar_char(p->b, &p->set);
	}
	if (take_name(p, name))
		return grammar_call(p->b, find_rule(p, name));
	return wrong(p, scan_end(&p->s) ? "the grammar ends where something is expected"
					: "a syntax error");
}

/* After the {. */
static bool bounds(struct parser *p, uint32_t *min, uint32_t *max)
{
	skip_space(p);
	if (!scan_number(&p->s, min))
		return false;
	*max = *min;
	skip_space(p);
	if (scan_take(&p->s, ',')) {
		skip_space(p);
		*max = GRAMMAR_UNLIMITED;
		if (scan_peek(&p->s, 0) != '}' && !scan_number(&p->s, max))
			return false;
	}
	skip_space(p);
	return scan_take(&p->s, '}') && *min <= *max;
}

static struct grammar_piece repeated(struct parser *p)
{
	struct grammar_piece piece = atom(p);
	uint32_t min, max;

	while (!grammar_failed(p->b)) {
		skip_space(p);
		if (scan_take(&p->s, '*'))
			piece = grammar_star(p->b, piece);
		else if (scan_take(&p->s, '+'))
			piece = grammar_plus(p->b, piece);
		else if (scan_take(&p->s, '?'))
			piece = grammar_optional(p->b, piece);
		else if (!scan_take(&p->s, '{'))
			break;
		else if (bounds(p, &min, &max))
			piece = grammar_repeat(p->b, piece, min, max);
		else
			return wrong(p, "an invalid repetition");
	}
	return piece;
}

static struct grammar_piece sequence(struct parser *p)
{
	struct grammar_piece piece = grammar_empty(p->b);

	for (;;) {
		char c;

		skip_space(p);
		c = scan_peek(&p->s, 0);
		if (grammar_failed(p->b) || scan_end(&p->s) || c == '|' || c == ')' || at_rule(p))
			return piece;
		piece = grammar_seq(p->b, piece, repeated(p));
	}
}

static struct grammar_piece alternatives(struct parser *p)
{
	struct grammar_piece piece = sequence(p);

	while (!grammar_failed(p->b) && scan_take(&p->s, '|'))
		piece = grammar_either(p->b, piece, sequence(p));
	return piece;
}

static void rule(struct parser *p)
{
	char name[MAX_NAME + 1];
	uint32_t number;

	if (!take_name(p, name)) {
		wrong(p, "a rule's name is expected");
		return;
	}
	skip_space(p);
	if (!take_defines(&p->s)) {
		wrong(p, "::= is expected");
		return;
	}
	number = find_rule(p, name);
	if (grammar_is_defined(p->b, number))
		wrong(p, "a rule is defined twice");
	else
		grammar_define(p->b, number, alternatives(p));
	skip_space(p);
	if (scan_peek(&p->s, 0) == ')')
		wrong(p, "a ) without its (");
}

void grammar_gbnf(struct grammar_builder *b, const char *text, size_t len, uint32_t *ret_root)
{
	struct parser p = {.b = b, .s = {.text = text, .len = len}};

	skip_space(&p);
	if (scan_end(&p.s))
		wrong(&p, "it is empty");
	while (!scan_end(&p.s) && !grammar_failed(b)) {
		rule(&p);
		skip_space(&p);
	}
	*ret_root = grammar_failed(b) ? 0 : find_rule(&p, "root");
	free(p.names);
	free(p.slots);
}
