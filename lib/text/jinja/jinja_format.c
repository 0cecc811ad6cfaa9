// SPDX-License-Identifier: MIT
/*
 * Formatting of values into strings: the operator % and str.format() with the field syntax that
 * they share.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "jinja_render.h"

enum {
	MAX_WIDTH = 100 * 1000 * 1000,
	MAX_PRECISION = 300,
	NUMBER_SIZE = 1024, /* the longest double with that precision, with commas */
};

struct field {
	uint32_t fill;
	char align; /* < > ^ = or 0: by type */
	char sign;  /* + - or space */
	char type;  /* 0: by value */
	bool alternate;
	bool comma;
	int64_t width;
	int64_t precision; /* -1: none */
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

/* Write @text with the padding of @field. */
static void emit(struct jinja_render *r, const struct field *field, struct jinja_str text,
		 char default_align)
{
	char align = field->align ? field->align : default_align;
	int64_t missing = field->width - (int64_t)jinja_str_chars(&text), left, i;
	size_t sign = align == '=' && text.length && strchr("+-", text.data[0]);

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

/* Commas between groups of three digits before the point. */
static void group_digits(char text[NUMBER_SIZE])
{
	char grouped[NUMBER_SIZE];
	size_t start = strcspn(text, "0123456789"), used = 0, i;
	size_t digits = strspn(text + start, "0123456789");

	for (i = 0; text[i] && used + 2 < NUMBER_SIZE; i++) {
		if (i > start && i < start + digits && (start + digits - i) % 3 == 0)
			grouped[used++] = ',';
		grouped[used++] = text[i];
	}
	grouped[used] = '\0';
	memcpy(text, grouped, used + 1);
}

static void emit_number(struct jinja_render *r, const struct field *field, char text[NUMBER_SIZE])
{
	char with_sign[NUMBER_SIZE + 1] = {field->sign};

	if (field->comma)
		group_digits(text);
	if (text[0] != '-' && (field->sign == '+' || field->sign == ' ')) {
		strcpy(with_sign + 1, text);
		text = with_sign;
	}
	emit(r, field, (struct jinja_str){text, strlen(text), JINJA_UNCOUNTED}, '>');
}

static void format_int(struct jinja_render *r, const struct field *field, int64_t i)
{
	uint64_t magnitude = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
	const char *sign = i < 0 ? "-" : "";
	char text[NUMBER_SIZE], digits[72] = "", *bit = digits + 64;
	uint8_t bytes[4];

	switch (field->type) {
	case 'x':
		snprintf(text, sizeof(text), "%s%s%" PRIx64, sign, field->alternate ? "0x" : "",
			 magnitude);
		break;
	case 'X':
		snprintf(text, sizeof(text), "%s%s%" PRIX64, sign, field->alternate ? "0X" : "",
			 magnitude);
		break;
	case 'o':
		snprintf(text, sizeof(text), "%s%s%" PRIo64, sign, field->alternate ? "0o" : "",
			 magnitude);
		break;
	case 'b':
		do
			*--bit = (char)('0' + (magnitude & 1));
		while (magnitude >>= 1);
		snprintf(text, sizeof(text), "%s%s%s", sign, field->alternate ? "0b" : "", bit);
		break;
	case 'c':
		if (i < 0 || i > 0x10ffff || (i >= 0xd800 && i < 0xe000))
			jinja_fail(r, "format: %" PRId64 " is no character", i);
		emit(r, field,
		     (struct jinja_str){(char *)bytes, utf8_encode((uint32_t)i, bytes), 1}, '<');
		return;
	default: snprintf(text, sizeof(text), "%" PRId64, i);
	}
	emit_number(r, field, text);
}

static bool is_float_type(char type)
{
	return type && strchr("eEfFgG%", type);
}

static void format_float(struct jinja_render *r, const struct field *field, double f)
{
	int precision = field->precision < 0 ? 6 : (int)field->precision;
	char text[NUMBER_SIZE], pattern[8] = "%.*f";
	size_t mark = r->out.len;

	if (field->precision > MAX_PRECISION)
		jinja_fail(r, "format: a precision of %" PRId64 " is larger than %d",
			   field->precision, MAX_PRECISION);
	if (!field->type && field->precision < 0) {
		jinja_write_float(r, f); /* a few digits, which fit */
		snprintf(text, sizeof(text), "%.*s", (int)(r->out.len - mark), r->out.data + mark);
		r->out.len = mark;
	} else if (field->type == '%') {
		snprintf(text, sizeof(text), "%.*f%%", precision, f * 100);
	} else {
		if (field->alternate)
			strcpy(pattern, "%#.*f");
		pattern[strlen(pattern) - 1] = field->type ? field->type : 'g';
		snprintf(text, sizeof(text), pattern, precision, f);
	}
	emit_number(r, field, text);
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

static void percent_value(struct jinja_render *r, struct field *field, struct jinja_value v)
{
	char type = field->type;
	double f;
	int64_t i;

	if (strchr("sra", type)) {
		field->align = field->align == '<' ? '<' : '>';
		field->fill = ' ';
		format_str(r, field, type == 's' ? jinja_to_str(r, v) : repr_of(r, v), '>');
	} else if (type == 'c' && v.kind == JINJA_STRING && jinja_str_chars(v.string) == 1) {
		format_str(r, field, v.string, '>');
	} else if (strchr("diuxXoc", type) && jinja_as_int(v, &i)) {
		format_int(r, field, i);
	} else if (strchr("diu", type) && v.kind == JINJA_FLOAT && fabs(v.real) < 9e18) {
		format_int(r, field, (int64_t)v.real);
	} else if (strchr("eEfFgG", type) && jinja_as_double(v, &f)) {
		format_float(r, field, f);
	} else {
		if (!strchr("diuxXoceEfFgG", type))
			jinja_fail(r, "format: unsupported character '%c'", type);
		jinja_need_defined(r, v);
		jinja_fail(r, "%%%c: a number is required, not '%s'", type, jinja_type_name(v));
	}
}

/* Where the arguments of % come from: one after the other, or by name. */
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

static int64_t star_or_number(struct cursor *c, struct arguments *a)
{
	int64_t n;
	char star;

	if (!skip(c, "*", &star))
		return scan_number(c);
	if (!jinja_as_int(next_argument(c->r, a), &n) || n > MAX_WIDTH || n < -MAX_WIDTH)
		jinja_fail(c->r, "format: * wants an integer");
	return n;
}

static void percent_flags(struct cursor *c, struct arguments *a, struct field *field)
{
	bool left = false, zero = false;
	char flag;

	while (skip(c, "-0+ #", &flag)) {
		left |= flag == '-';
		zero |= flag == '0';
		field->alternate |= flag == '#';
		if (flag == '+' || (flag == ' ' && !field->sign))
			field->sign = flag;
	}
	field->width = star_or_number(c, a);
	if (skip(c, ".", &flag)) {
		field->precision = star_or_number(c, a);
		if (field->precision < 0)
			field->precision = 0;
	}
	while (skip(c, "lhL", &flag))
		;
	if (field->width < 0) {
		left = true;
		field->width = -field->width;
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
	/* what has items counts as a mapping, of which not all must be used */
	if (jinja_is_tuple(all) ? a.next < all.seq->n
				: !a.next && all.kind != JINJA_DICT && all.kind != JINJA_SEQ &&
					  all.kind != JINJA_UNDEFINED)
		jinja_fail(r, "not all arguments converted during string formatting");
	format = jinja_captured(r, mark);
	format.safe = safe;
	return format;
}

/* "%s, %s"|format(a, b): with keywords they are the mapping */
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

/* [[fill]align][sign][#][0][width][,][.precision][type] */
static void parse_spec(struct cursor *c, struct field *field)
{
	const struct jinja_str rest = {c->at, (size_t)(c->end - c->at), 0};
	uint32_t fill = ' ';
	size_t n = rest.length ? jinja_decode(&rest, 0, &fill) : 0;
	char flag;

	if (n < rest.length && rest.data[n] && strchr("<>^=", rest.data[n])) {
		field->fill = fill;
		c->at += n;
	}
	skip(c, "<>^=", &field->align);
	skip(c, "+- ", &field->sign);
	field->alternate = skip(c, "#", &flag);
	if (skip(c, "0", &flag) && !field->align) {
		field->fill = '0';
		field->align = '=';
	}
	field->width = scan_number(c);
	field->comma = skip(c, ",", &flag);
	if (skip(c, ".", &flag))
		field->precision = scan_number(c);
	if (c->at < c->end)
		field->type = *c->at++;
	if (c->at < c->end)
		jinja_fail(c->r, "format: invalid format specifier");
}

static void format_value(struct jinja_render *r, const struct field *field, struct jinja_value v)
{
	char type = field->type;
	int64_t i;
	double f;

	if (v.kind == JINJA_FLOAT || (is_float_type(type) && jinja_as_double(v, &f))) {
		if (type && !is_float_type(type))
			jinja_fail(r, "format: unknown code '%c' for a float", type);
		jinja_as_double(v, &f);
		format_float(r, field, f);
	} else if (v.kind == JINJA_INT || (v.kind == JINJA_BOOL && (type || field->width))) {
		if (type && !strchr("dxXobcn", type))
			jinja_fail(r, "format: unknown code '%c' for an integer", type);
		jinja_as_int(v, &i);
		format_int(r, field, i);
	} else if (type && type != 's') {
		jinja_fail(r, "format: unknown code '%c' for '%s'", type, jinja_type_name(v));
	} else {
		format_str(r, field, jinja_to_str(r, v), '<');
	}
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

/* Behind the `{` of a field. */
static void format_field(struct jinja_call *call, struct cursor *c, size_t *next)
{
	const char *close = memchr(c->at, '}', (size_t)(c->end - c->at)), *stop;
	struct field field = {.fill = ' ', .precision = -1};
	struct cursor spec = {c->r, NULL, close};
	struct jinja_value v;
	struct jinja_str name;
	char conversion = '\0';

	if (!close)
		jinja_fail(c->r, "format: expected '}' before end of string");
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
	parse_spec(&spec, &field);
	if (conversion)
		v = jinja_str_value(conversion == 's' ? jinja_to_str(c->r, v) : repr_of(c->r, v));
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
