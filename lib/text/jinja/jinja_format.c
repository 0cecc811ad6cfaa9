// SPDX-License-Identifier: MIT
/*
 * Formatting of values into strings: the operator % and str.format() with the field syntax that
 * they share.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jinja_render.h"

enum {
	MAX_WIDTH = 100 * 1000 * 1000,
	MAX_PRECISION = 300,
	NUMBER_SIZE = 1024, /* the longest double with that precision */
};

struct field {
	uint32_t fill;
	char align; /* < > ^ = or 0: by type */
	char sign;  /* + or space before numbers that are not negative; 0: nothing */
	char type;  /* 0: by value */
	char comma; /* between groups of three decimal digits, or four of other bases; 0: nothing */
	bool mark;  /* prefix of the base before the digits, such as 0x */
	bool plain; /* the specifier is empty */
	bool zeros; /* unless an alignment is given, numbers are padded after their sign */
	int64_t width;
	int64_t precision; /* -1: none */
	int64_t digits;	   /* minimum of an integer */
};

struct cursor {
	struct jinja_render *r;
	const char *at;
	const char *end;
};

static char peek(const struct cursor *c)
{
	return c->at < c->end ? *c->at : '\0';
}

static bool skip(struct cursor *c, const char *chars, char *ret)
{
	char found = peek(c);

	if (!found || !strchr(chars, found))
		return false;
	*ret = found;
	c->at++;
	return true;
}

static int64_t scan_number(struct cursor *c)
{
	int64_t n = 0;

	for (; peek(c) >= '0' && peek(c) <= '9'; c->at++) {
		n = n * 10 + (*c->at - '0');
		if (n > MAX_WIDTH)
			jinja_fail(c->r, "format: a width or precision is larger than %d",
				   MAX_WIDTH);
	}
	return n;
}

/* Writes @text with the padding of @field. */
static void emit(struct jinja_render *r, const struct field *field, struct jinja_str text,
		 char default_align)
{
	char align = field->align ? field->align : default_align;
	int64_t missing = field->width - (int64_t)jinja_str_chars(&text), left, i;
	size_t sign = align == '=' && text.length && strchr("+- ", text.data[0]);

	if (align == '=' && field->mark && text.length > sign + 1 && text.data[sign] == '0' &&
	    strchr("xXob", text.data[sign + 1]))
		sign += 2;
	if (missing < 0)
		missing = 0;
	left = align == '=' || align == '>' ? missing : align == '^' ? missing / 2 : 0;
	jinja_write(r, text.data, sign);
	for (i = 0; i < left; i++)
		jinja_write_char(r, field->fill);
	jinja_write(r, text.data + sign, text.length - sign);
	for (; i < missing; i++)
		jinja_write_char(r, field->fill);
}

static bool is_float_type(char type)
{
	return type && strchr("eEfFgG%", type);
}

/* An integer's digits, without sign and prefix. */
static void write_whole(struct jinja_render *r, char type, uint64_t n)
{
	char bits[64], *at = bits + sizeof(bits);

	if (type == 'b') {
		do
			*--at = (char)('0' + (n & 1));
		while (n >>= 1);
		jinja_write(r, at, (size_t)(bits + sizeof(bits) - at));
		return;
	}
	jinja_writef(r,
		     type == 'x'   ? "%" PRIx64
		     : type == 'X' ? "%" PRIX64
		     : type == 'o' ? "%" PRIo64
				   : "%" PRIu64,
		     n);
}

/*
 * A float by a precision alone, as Python does it: like %g, but one that looks like an integer gets
 * ".0", for which a digit of the precision is kept.
 */
static void write_general(struct jinja_render *r, int precision, double f)
{
	int most = precision ? precision : 1;
	char text[NUMBER_SIZE], *exponent, *last;

	snprintf(text, sizeof(text), "%.*e", most - 1, f);
	exponent = strchr(text, 'e');
	if (!exponent || strtol(exponent + 1, NULL, 10) != most - 1) {
		snprintf(text, sizeof(text), "%.*g", most, f);
		jinja_write_text(r, text);
		if (!strpbrk(text, ".en"))
			jinja_write_text(r, ".0");
		return;
	}
	for (last = exponent; memchr(text, '.', (size_t)(exponent - text)) && last[-1] == '0';
	     last--)
		;
	last -= last[-1] == '.';
	jinja_write(r, text, (size_t)(last - text));
	jinja_write_text(r, exponent);
}

/* The digits of a number without its sign. */
static void write_digits(struct jinja_render *r, const struct field *field, struct jinja_value v)
{
	int precision = field->precision < 0 ? 6 : (int)field->precision;
	char type = field->type == 'n' ? v.kind == JINJA_FLOAT ? 'g' : 'd' : field->type;
	char pattern[] = "%.*g", text[NUMBER_SIZE];
	int64_t i = 0;
	double f = 0;

	if (v.kind == JINJA_BIGINT && (!type || strchr("diu", type))) {
		const struct jinja_str *digits = jinja_to_str(r, v);
		size_t sign = digits->data[0] == '-';

		jinja_write(r, digits->data + sign, digits->length - sign);
		return;
	}
	jinja_as_double(v, &f);
	if (jinja_as_int(v, &i) && !is_float_type(type)) {
		write_whole(r, type, i < 0 ? 0 - (uint64_t)i : (uint64_t)i);
		return;
	}
	if (field->precision > MAX_PRECISION)
		jinja_fail(r, "format: a precision of %" PRId64 " is larger than %d",
			   field->precision, MAX_PRECISION);
	if (!type && field->precision < 0) {
		jinja_write_float(r, fabs(f));
		return;
	}
	if (!type) {
		write_general(r, precision, fabs(f));
		return;
	}
	pattern[3] = type == '%' ? 'f' : type;
	snprintf(text, sizeof(text), pattern, precision, fabs(type == '%' ? f * 100 : f));
	jinja_write_text(r, text);
	if (type == '%')
		jinja_write_text(r, "%");
}

static void format_number(struct jinja_render *r, const struct field *field, struct jinja_value v)
{
	const bool other = field->type && strchr("xXob", field->type);
	const char *of_whole = other ? "0123456789abcdefABCDEF" : "0123456789";
	const size_t group = other ? 4 : 3;
	size_t mark = r->out.len, whole = 0, zeros = 0, n, i;
	struct jinja_str *digits;
	double f = 0;

	write_digits(r, field, v);
	digits = jinja_captured(r, mark).string;
	mark = r->out.len;
	jinja_as_double(v, &f);
	if (signbit(f) && !isnan(f))
		jinja_write(r, "-", 1);
	else if (field->sign)
		jinja_write(r, &field->sign, 1);
	if (field->mark && other) {
		jinja_write(r, "0", 1);
		jinja_write(r, &field->type, 1);
	}
	while (whole < digits->length && strchr(of_whole, digits->data[whole]))
		whole++;
	if (field->digits > (int64_t)digits->length)
		zeros = (size_t)field->digits - digits->length;
	/* Zeros that pad a number are in groups, too. */
	n = r->out.len - mark + digits->length;
	if (field->comma && field->zeros && !field->align && whole) {
		jinja_charge(r, (uint64_t)field->width);
		while ((int64_t)(n + zeros + (whole + zeros - 1) / group) < field->width)
			zeros++;
	}
	for (i = 0; i < zeros + digits->length; i++) {
		if (field->comma && i && i < zeros + whole && (zeros + whole - i) % group == 0)
			jinja_write(r, &field->comma, 1);
		jinja_write(r, i < zeros ? "0" : digits->data + i - zeros, 1);
	}
	emit(r, field, *jinja_captured(r, mark).string, field->zeros ? '=' : '>');
}

static void format_str(struct jinja_render *r, const struct field *field, struct jinja_str *s,
		       char align)
{
	struct jinja_str cut = *s;

	if (field->precision >= 0 && (uint64_t)field->precision < jinja_str_chars(s)) {
		cut.length = jinja_str_offset(s, (size_t)field->precision);
		cut.chars = (size_t)field->precision;
	}
	emit(r, field, cut, align);
}

static struct jinja_str *repr_of(struct jinja_render *r, struct jinja_value v)
{
	size_t mark = r->out.len;

	jinja_write_repr(r, v);
	return jinja_captured(r, mark).string;
}

/* The same as Python's ascii(). */
static struct jinja_str *ascii_of(struct jinja_render *r, struct jinja_value v)
{
	const struct jinja_str *s = repr_of(r, v);
	size_t mark = r->out.len, at = 0;
	uint32_t c;

	while (at < s->length) {
		at += jinja_decode(s, at, &c);
		if (c < 0x80)
			jinja_write_char(r, c);
		else if (c < 0x100)
			jinja_writef(r, "\\x%02" PRIx32, c);
		else
			jinja_writef(r, c < 0x10000 ? "\\u%04" PRIx32 : "\\U%08" PRIx32, c);
	}
	return jinja_captured(r, mark).string;
}

/* %c and {:c}: a character, given by its code point or, for %c, as a string. */
static void format_char(struct jinja_render *r, const struct field *field, struct jinja_value v,
			char align)
{
	struct jinja_str *s;
	size_t mark = r->out.len;
	int64_t i;

	if (v.kind == JINJA_STRING) {
		s = v.string;
		if (jinja_str_chars(s) != 1)
			jinja_fail(r, "%%c: not a number or one character");
	} else {
		if (!jinja_as_int(v, &i) || i < 0 || i > 0x10ffff || (i >= 0xd800 && i < 0xe000))
			jinja_fail(r, "format: no character has this number");
		jinja_write_char(r, (uint32_t)i);
		s = jinja_captured(r, mark).string;
	}
	emit(r, field, *s, align);
}

static void percent_value(struct jinja_render *r, struct field *field, struct jinja_value v)
{
	char type = field->type;
	double f;
	int64_t i;

	if (strchr("diuxXo", type))
		field->digits = field->precision;
	if (type == 's' || type == 'r') {
		field->align = field->align == '<' ? '<' : '>';
		field->fill = ' ';
		format_str(r, field, type == 'r' ? repr_of(r, v) : jinja_to_str(r, v), '>');
	} else if (type == 'c') {
		field->fill = ' ';
		format_char(r, field, v, '>');
	} else if ((strchr("diuxXo", type) && jinja_as_int(v, &i)) ||
		   (strchr("diu", type) && v.kind == JINJA_BIGINT)) {
		format_number(r, field, v);
	} else if (strchr("diu", type) && v.kind == JINJA_FLOAT) {
		format_number(r, field, jinja_whole(r, v.real));
	} else if (strchr("eEfFgG", type) && jinja_as_double(v, &f)) {
		format_number(r, field, v);
	} else {
		if (!strchr("diuxXoeEfFgG", type))
			jinja_fail(r, "format: unsupported character '%c'", type);
		jinja_need_defined(r, v);
		jinja_fail(r, "%%%c: a number is required, not '%s'", type, jinja_type_name(v));
	}
}

/* Source of the arguments of %: in order, or by name. */
struct arguments {
	struct jinja_value all;
	size_t next;
};

static struct jinja_value next_argument(struct jinja_render *r, struct arguments *a)
{
	bool tuple = jinja_is_tuple(a->all);

	if (a->next >= (tuple ? a->all.seq->n : 1))
		jinja_fail(r, "not enough arguments for format string");
	a->next++;
	return tuple ? a->all.seq->items[a->next - 1] : a->all;
}

/* A number, or * for one of the arguments. */
static int64_t percent_number(struct cursor *c, struct arguments *a)
{
	char star;
	int64_t n;

	if (!skip(c, "*", &star))
		return scan_number(c);
	if (!jinja_as_int(next_argument(c->r, a), &n))
		jinja_fail(c->r, "format: * requires an integer");
	if (n > MAX_WIDTH || n < -MAX_WIDTH)
		jinja_fail(c->r, "format: a width or precision is larger than %d", MAX_WIDTH);
	return n;
}

static void percent_flags(struct cursor *c, struct arguments *a, struct field *field)
{
	bool left = false, zero = false;
	char flag;

	while (skip(c, "-0+ #", &flag)) {
		left |= flag == '-';
		field->mark |= flag == '#';
		zero |= flag == '0';
		if (flag == '+' || (flag == ' ' && !field->sign))
			field->sign = flag;
	}
	field->width = percent_number(c, a);
	if (field->width < 0) {
		field->width = -field->width;
		left = true;
	}
	if (skip(c, ".", &flag)) {
		field->precision = percent_number(c, a);
		if (field->precision < 0)
			field->precision = 0;
	}
	field->align = left ? '<' : zero ? '=' : '>';
	field->fill = zero && !left ? '0' : ' ';
}

/* %(name)s */
static struct jinja_value percent_name(struct cursor *c, struct arguments *a)
{
	const char *close = memchr(c->at, ')', (size_t)(c->end - c->at));
	struct jinja_value *found;
	struct jinja_str name;

	if (!close)
		jinja_fail(c->r, "incomplete format key");
	if (a->all.kind != JINJA_DICT)
		jinja_fail(c->r, "format requires a mapping");
	name = (struct jinja_str){c->at + 1, (size_t)(close - c->at) - 1, JINJA_UNCOUNTED};
	jinja_charge_bytes(c->r, name.length);
	found = jinja_dict_find(&c->r->arena, a->all.dict, &name);
	if (!found)
		jinja_fail(c->r, "format: no value for the key '%.*s'", JINJA_SHOW(&name));
	c->at = close + 1;
	return *found;
}

struct jinja_value jinja_percent_format(struct jinja_render *r, struct jinja_value format,
					struct jinja_value all)
{
	struct cursor c = {r, format.string->data, format.string->data + format.string->length};
	struct arguments a = {.all = all};
	size_t mark = r->out.len;
	bool safe = format.safe;

	while (c.at < c.end) {
		const char *percent = memchr(c.at, '%', (size_t)(c.end - c.at));
		const char *stop = percent ? percent : c.end;
		struct field field = {.fill = ' ', .precision = -1};
		struct jinja_value v = {0};
		bool named;

		jinja_charge(r, 1);
		jinja_write(r, c.at, (size_t)(stop - c.at));
		c.at = stop + (percent != NULL);
		if (!percent)
			break;
		named = peek(&c) == '(';
		if (named)
			v = percent_name(&c, &a);
		percent_flags(&c, &a, &field);
		field.type = peek(&c);
		if (!field.type)
			jinja_fail(r, "incomplete format");
		c.at++;
		if (field.type == '%') {
			jinja_write(r, "%", 1);
			continue;
		}
		if (!named)
			v = next_argument(r, &a);
		percent_value(r, &field, safe && field.type == 's' ? jinja_escape(r, v) : v);
	}
	/* as in Python, a value with items counts as a mapping, of which some may be unused */
	if (jinja_is_tuple(all) ? a.next < all.seq->n
				: !a.next && all.kind != JINJA_DICT && all.kind != JINJA_SEQ &&
					  all.kind != JINJA_UNDEFINED)
		jinja_fail(r, "not all arguments converted during string formatting");
	format = jinja_captured(r, mark);
	format.safe = safe;
	return format;
}

/* "%s, %s"|format(a, b) or "%(x)s"|format(x=a) */
struct jinja_value jinja_filter_format(struct jinja_call *c)
{
	struct jinja_value format = jinja_str_value(jinja_to_str(c->r, c->self));
	struct jinja_seq *tuple;

	format.safe = c->self.safe;
	if (c->args->n && c->args->n_keywords)
		jinja_fail(c->r, "format: positional and keyword arguments together");
	if (c->args->n_keywords)
		return jinja_percent_format(
			c->r, format,
			jinja_dict_value(jinja_dict_from_args(c->r, "format", c->args)));
	tuple = jinja_new_seq(c->r, JINJA_TUPLE, 0);
	jinja_append_all(c->r, tuple, c->args->positional, c->args->n);
	return jinja_percent_format(c->r, format, jinja_seq_value(tuple));
}

/* [[fill]align][sign][#][0][width][, or _][.precision][type] */
static void parse_spec(struct cursor *c, struct field *field)
{
	const struct jinja_str rest = {c->at, (size_t)(c->end - c->at), 0};
	uint32_t fill = ' ';
	size_t n = rest.length ? jinja_decode(&rest, 0, &fill) : 0;
	bool filled = n < rest.length && rest.data[n] && strchr("<>^=", rest.data[n]);
	char flag;

	if (filled) {
		field->fill = fill;
		c->at += n;
	}
	skip(c, "<>^=", &field->align);
	if (skip(c, "+- ", &flag) && flag != '-')
		field->sign = flag;
	field->mark = skip(c, "#", &flag);
	field->zeros = skip(c, "0", &flag);
	if (field->zeros && !filled)
		field->fill = '0';
	field->width = scan_number(c);
	skip(c, ",_", &field->comma);
	if (skip(c, ".", &flag))
		field->precision = scan_number(c);
	if (c->at < c->end)
		field->type = *c->at++;
	if (c->at < c->end)
		jinja_fail(c->r, "format: invalid format specifier");
}

/* Only strings and numbers take specifiers, and strings fewer than numbers. */
static void check_spec(struct jinja_render *r, const struct field *field, struct jinja_value v)
{
	if (!field->plain && v.kind != JINJA_STRING && !jinja_is_number(v))
		jinja_fail(r, "format: a specifier is not supported for '%s'", jinja_type_name(v));
	if (v.kind == JINJA_STRING &&
	    (field->sign || field->comma || field->mark || field->align == '='))
		jinja_fail(r, "format: a sign, '#', '=', ',' and '_' are not allowed for 'str'");
}

static void format_value(struct jinja_render *r, const struct field *field, struct jinja_value v)
{
	char type = field->type;
	double f;

	check_spec(r, field, v);
	if (type &&
	    (type == 's' ? v.kind != JINJA_STRING
			 : !strchr(v.kind == JINJA_FLOAT ? "eEfFgGn%" : "bcdnxXoeEfFgG%", type) ||
				   (!jinja_as_double(v, &f) && v.kind != JINJA_BIGINT)))
		jinja_fail(r, "format: unknown code '%c' for '%s'", type, jinja_type_name(v));
	if ((field->precision >= 0 && type && strchr("bcdxXo", type)) ||
	    (field->precision >= 0 && !type && jinja_as_double(v, &f) && v.kind != JINJA_FLOAT))
		jinja_fail(r, "format: precision not allowed for an integer");
	if (field->comma && type && strchr(field->comma == ',' ? "bcnsxXo" : "cns", type))
		jinja_fail(r, "format: '%c' not allowed with '%c'", field->comma, type);
	if (type == 'c')
		format_char(r, field, v, '<');
	else if (v.kind == JINJA_BIGINT && type && strchr("xXob", type))
		jinja_fail(r, "format: '%c' of an integer beyond 64 bits is not supported", type);
	else if (type == 's' || (!jinja_as_double(v, &f) && v.kind != JINJA_BIGINT) ||
		 (v.kind == JINJA_BOOL && field->plain))
		format_str(r, field, jinja_to_str(r, v), '<');
	else
		format_number(r, field, v);
}

/* The first part of a field name: nothing, a number, or a keyword; then .name and [key]. */
static struct jinja_value field_argument(struct jinja_call *c, const struct jinja_str *name,
					 size_t *next)
{
	const struct jinja_args *args = c->args;
	size_t first = 0, index = 0, k;
	struct jinja_str part = *name;
	struct jinja_value v, key;

	while (first < name->length && name->data[first] != '.' && name->data[first] != '[')
		first++;
	part.length = first;
	for (k = 0; k < first && k < 9 && name->data[k] >= '0' && name->data[k] <= '9'; k++)
		index = index * 10 + (size_t)(name->data[k] - '0');
	if (k == first) {
		if (!first)
			index = (*next)++;
		if (index >= args->n)
			jinja_fail(c->r, "format: there is no argument %zu", index);
		v = args->positional[index];
	} else {
		for (k = 0; k < args->n_keywords; k++)
			if (jinja_str_equal(args->keywords[k].name, &part))
				break;
		if (k == args->n_keywords)
			jinja_fail(c->r, "format: there is no argument '%.*s'", JINJA_SHOW(&part));
		v = args->keywords[k].value;
	}
	while (first < name->length) {
		bool item = name->data[first] == '[';
		size_t start = ++first;

		while (first < name->length && name->data[first] != (item ? ']' : '.') &&
		       (item || name->data[first] != '['))
			first++;
		key = jinja_substring(c->r, name, start, first);
		v = item ? jinja_path(c->r, v, key) : jinja_attribute(c->r, v, key.string);
		first += item && first < name->length;
	}
	return v;
}

/* The end of a field, whose specifier may contain fields. */
static const char *field_end(const struct cursor *c)
{
	unsigned int depth = 0;

	for (const char *at = c->at; at < c->end; at++) {
		depth += *at == '{';
		if (*at == '}' && !depth--)
			return at;
	}
	jinja_fail(c->r, "format: expected '}' before end of string");
}

/* Replaces fields in a format specifier by their values. */
static void expand_spec(struct jinja_call *call, struct cursor *spec, size_t *next)
{
	size_t mark = call->r->out.len;
	const struct jinja_str *s;

	while (spec->at < spec->end) {
		const char *open = memchr(spec->at, '{', (size_t)(spec->end - spec->at)), *close;
		struct jinja_str name;

		jinja_write(spec->r, spec->at, (size_t)((open ? open : spec->end) - spec->at));
		if (!open)
			break;
		close = memchr(open, '}', (size_t)(spec->end - open));
		if (!close)
			jinja_fail(spec->r, "format: expected '}' before end of string");
		name = (struct jinja_str){open + 1, (size_t)(close - open) - 1, JINJA_UNCOUNTED};
		if (memchr(name.data, ':', name.length) || memchr(name.data, '{', name.length))
			jinja_fail(spec->r, "format: fields are nested too deeply");
		jinja_write_str(spec->r, field_argument(call, &name, next));
		spec->at = close + 1;
	}
	s = jinja_captured(spec->r, mark).string;
	spec->at = s->data;
	spec->end = s->data + s->length;
}

/* After the `{` of a field. */
static void format_field(struct jinja_call *call, struct cursor *c, size_t *next)
{
	const char *close = field_end(c), *stop;
	struct field field = {.fill = ' ', .precision = -1};
	struct cursor spec = {c->r, NULL, close};
	struct jinja_value v;
	struct jinja_str name;
	char conversion = '\0';

	for (stop = c->at; stop < close && *stop != ':' && *stop != '!'; stop++)
		;
	name = (struct jinja_str){c->at, (size_t)(stop - c->at), JINJA_UNCOUNTED};
	c->at = close + 1;
	spec.at = stop;
	if (peek(&spec) == '!') {
		spec.at++;
		if (!skip(&spec, "rsa", &conversion))
			jinja_fail(c->r, "format: bad conversion");
	}
	if (spec.at < close && *spec.at++ != ':')
		jinja_fail(c->r, "format: expected ':' after conversion specifier");
	v = field_argument(call, &name, next);
	if (memchr(spec.at, '{', (size_t)(spec.end - spec.at)))
		expand_spec(call, &spec, next);
	field.plain = spec.at == spec.end;
	parse_spec(&spec, &field);
	if (conversion)
		v = jinja_str_value(conversion == 's'	? jinja_to_str(c->r, v)
				    : conversion == 'r' ? repr_of(c->r, v)
							: ascii_of(c->r, v));
	format_value(c->r, &field, v);
}

struct jinja_value jinja_method_format(struct jinja_call *call)
{
	const struct jinja_str *s = call->self.string;
	struct cursor c = {call->r, s->data, s->data + s->length};
	size_t mark = call->r->out.len, next = 0;
	struct jinja_value v;
	char brace;

	while (c.at < c.end) {
		const char *plain = c.at;

		jinja_charge(c.r, 1);
		while (c.at < c.end && *c.at != '{' && *c.at != '}')
			c.at++;
		jinja_write(c.r, plain, (size_t)(c.at - plain));
		if (!skip(&c, "{}", &brace))
			break;
		if (peek(&c) == brace)
			jinja_write(c.r, c.at++, 1);
		else if (brace == '}')
			jinja_fail(c.r, "format: single '}' encountered in format string");
		else
			format_field(call, &c, &next);
	}
	v = jinja_captured(c.r, mark);
	v.safe = call->self.safe;
	return v;
}
