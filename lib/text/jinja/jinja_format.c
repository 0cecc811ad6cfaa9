// SPDX-License-Identifier: MIT
/*
 * Formatting of values into strings: the operator % and str.format() with the field syntax that
 * they share.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "jinja_text.h"

enum {
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

static int scan_number(struct cursor *c, int64_t *ret)
{
	int64_t n = 0;

	while (peek(c) >= '0' && peek(c) <= '9') {
		n = n * 10 + (*c->at++ - '0');
		if (n > 100 * 1000 * 1000)
			return jinja_fail(c->r, "format: a width or precision is too large");
	}
	*ret = n;
	return 0;
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

/* Write @text with the padding of @field. */
static int emit(struct jinja_render *r, const struct field *field, struct jinja_str *text,
		char default_align)
{
	char align = field->align ? field->align : default_align;
	size_t sign = 0;
	int64_t missing = field->width - (int64_t)jinja_str_chars(text), left = 0;
	int rc = 0;

	if (missing < 0)
		missing = 0;
	if (align == '=' && text->length && strchr("+- ", text->data[0]))
		sign = 1;
	if (align == '=' || align == '>')
		left = missing;
	else if (align == '^')
		left = missing / 2;
	rc = jinja_write(r, text->data, sign);
	for (missing -= left; !rc && left > 0; left--)
		rc = jinja_write_char(r, field->fill);
	if (!rc)
		rc = jinja_write(r, text->data + sign, text->length - sign);
	for (; !rc && missing > 0; missing--)
		rc = jinja_write_char(r, field->fill);
	return rc;
}

static int emit_number(struct jinja_render *r, const struct field *field, char text[NUMBER_SIZE])
{
	struct jinja_str s;
	char with_sign[NUMBER_SIZE + 1];

	if (field->comma)
		group_digits(text);
	if (text[0] != '-' && (field->sign == '+' || field->sign == ' ')) {
		with_sign[0] = field->sign;
		memcpy(with_sign + 1, text, strlen(text) + 1);
		text = with_sign;
	}
	s = (struct jinja_str){text, strlen(text), JINJA_UNCOUNTED};
	return emit(r, field, &s, '>');
}

static int format_int(struct jinja_render *r, const struct field *field, int64_t i)
{
	uint64_t magnitude = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
	const char *sign = i < 0 ? "-" : "";
	char text[NUMBER_SIZE], digits[72];
	struct jinja_str one;
	int used = 64;

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
		digits[used] = '\0';
		do {
			digits[--used] = (char)('0' + (magnitude & 1));
			magnitude >>= 1;
		} while (magnitude);
		snprintf(text, sizeof(text), "%s%s%s", sign, field->alternate ? "0b" : "",
			 digits + used);
		break;
	case 'c':
		if (i < 0 || i > 0x10ffff || (i >= 0xd800 && i < 0xe000))
			return jinja_fail(r, "format: %" PRId64 " is no character", i);
		one = (struct jinja_str){digits, jinja_utf8_encode((uint32_t)i, digits), 1};
		return emit(r, field, &one, '<');
	default: snprintf(text, sizeof(text), "%" PRId64, i);
	}
	return emit_number(r, field, text);
}

static int format_float(struct jinja_render *r, const struct field *field, double f)
{
	int precision = field->precision < 0 ? 6 : (int)field->precision;
	char text[NUMBER_SIZE], pattern[8] = "%.*f";
	size_t mark = r->out.length, length;

	if (field->precision > MAX_PRECISION)
		return jinja_fail(r, "format: a precision of %" PRId64 " is too large",
				  field->precision);
	if (!field->type && field->precision < 0) {
		int rc = jinja_write_float(r, f);

		length = r->out.length - mark;
		if (rc || length >= sizeof(text))
			return rc;
		memcpy(text, r->out.data + mark, length);
		text[length] = '\0';
		r->out.length = mark;
		return emit_number(r, field, text);
	}
	if (field->type == '%') {
		snprintf(text, sizeof(text), "%.*f%%", precision, f * 100);
		return emit_number(r, field, text);
	}
	if (field->alternate)
		memcpy(pattern, "%#.*f", 6);
	pattern[strlen(pattern) - 1] = field->type ? field->type : 'g';
	snprintf(text, sizeof(text), pattern, precision, f);
	return emit_number(r, field, text);
}

static int format_str(struct jinja_render *r, const struct field *field, struct jinja_str *s,
		      char align)
{
	struct jinja_str cut = *s;

	if (field->precision >= 0 && (uint64_t)field->precision < jinja_str_chars(s)) {
		cut.length = jinja_str_offset(s, (size_t)field->precision);
		cut.chars = (size_t)field->precision;
	}
	return emit(r, field, &cut, align);
}

static bool is_float_type(char type)
{
	return type && strchr("eEfFgG%", type);
}

/* repr(v) as a string */
static int repr_of(struct jinja_render *r, struct jinja_value v, struct jinja_str **ret)
{
	size_t mark = r->out.length;
	struct jinja_value text;
	int rc = jinja_write_repr(r, v);

	if (!rc)
		rc = jinja_captured(r, mark, &text);
	if (!rc)
		*ret = text.string;
	return rc;
}

static int percent_value(struct jinja_render *r, const struct field *field, struct jinja_value v)
{
	struct field plain = *field;
	struct jinja_str *s;
	int64_t i;
	double f;
	int rc;

	switch (field->type) {
	case 's':
	case 'r':
	case 'a':
		rc = field->type == 's' ? jinja_to_str(r, v, &s) : repr_of(r, v, &s);
		if (plain.align == '=')
			plain.align = '>';
		plain.fill = ' ';
		return rc ? rc : format_str(r, &plain, s, '>');
	case 'c':
		if (v.kind == JINJA_STRING && jinja_str_chars(v.string) == 1)
			return format_str(r, field, v.string, '>');
		if (jinja_as_int(v, &i))
			return format_int(r, field, i);
		return jinja_fail(r, "%%c requires an integer or a character");
	case 'd':
	case 'i':
	case 'u':
		plain.type = 'd';
		if (v.kind == JINJA_FLOAT && v.real > -9e18 && v.real < 9e18)
			return format_int(r, &plain, (int64_t)v.real);
		/* fall through */
	case 'x':
	case 'X':
	case 'o':
		if (jinja_as_int(v, &i))
			return format_int(r, &plain, i);
		break;
	default:
		if (is_float_type(field->type) && field->type != '%') {
			if (jinja_as_double(v, &f))
				return format_float(r, field, f);
			break;
		}
		return jinja_fail(r, "format: unsupported character '%c'", field->type);
	}
	if (v.kind == JINJA_UNDEFINED)
		return jinja_fail_undefined(r, v);
	return jinja_fail(r, "%%%c: a number is required, not '%s'", field->type,
			  jinja_type_name(v));
}

/* Where the arguments of % come from: one after the other, or by name. */
struct arguments {
	struct jinja_value all;
	size_t next;
	bool escape;
};

static int next_argument(struct jinja_render *r, struct arguments *a, struct jinja_value *ret)
{
	bool tuple = jinja_is_tuple(a->all);

	if (a->next >= (tuple ? a->all.seq->n : 1))
		return jinja_fail(r, "not enough arguments for format string");
	*ret = tuple ? a->all.seq->items[a->next] : a->all;
	a->next++;
	return 0;
}

static int star_or_number(struct cursor *c, struct arguments *a, int64_t *ret)
{
	struct jinja_value v;
	int rc;

	if (peek(c) != '*')
		return scan_number(c, ret);
	c->at++;
	rc = next_argument(c->r, a, &v);
	if (rc)
		return rc;
	if (!jinja_as_int(v, ret) || *ret > 100 * 1000 * 1000 || *ret < -100 * 1000 * 1000)
		return jinja_fail(c->r, "format: * wants an integer");
	return 0;
}

static int percent_flags(struct cursor *c, struct arguments *a, struct field *field)
{
	bool left = false, zero = false;
	int rc;

	for (;; c->at++) {
		char flag = peek(c);

		if (flag == '-')
			left = true;
		else if (flag == '0')
			zero = true;
		else if (flag == '+' || (flag == ' ' && field->sign != '+'))
			field->sign = flag;
		else if (flag == '#')
			field->alternate = true;
		else if (flag != ' ')
			break;
	}
	rc = star_or_number(c, a, &field->width);
	if (!rc && peek(c) == '.') {
		c->at++;
		rc = star_or_number(c, a, &field->precision);
		if (field->precision < 0)
			field->precision = 0;
	}
	while (peek(c) == 'l' || peek(c) == 'h' || peek(c) == 'L')
		c->at++;
	if (field->width < 0) {
		left = true;
		field->width = -field->width;
	}
	field->align = left ? '<' : zero ? '=' : '>';
	field->fill = zero && !left ? '0' : ' ';
	return rc;
}

/* %(name)s */
static int percent_name(struct cursor *c, struct arguments *a, struct jinja_value *ret)
{
	const char *close = memchr(c->at, ')', (size_t)(c->end - c->at));
	struct jinja_value *found;

	if (!close)
		return jinja_fail(c->r, "incomplete format key");
	if (a->all.kind != JINJA_DICT)
		return jinja_fail(c->r, "format requires a mapping");
	found = jinja_dict_find(&c->r->arena, a->all.dict, c->at + 1, (size_t)(close - c->at) - 1);
	if (!found)
		return jinja_fail(c->r, "format: no value for a key of the format");
	c->at = close + 1;
	*ret = *found;
	return 0;
}

static int percent_field(struct cursor *c, struct arguments *a)
{
	struct field field = {.fill = ' ', .precision = -1};
	struct jinja_value v = {0};
	bool named = peek(c) == '(';
	int rc = named ? percent_name(c, a, &v) : 0;

	if (!rc)
		rc = percent_flags(c, a, &field);
	if (rc)
		return rc;
	field.type = peek(c);
	if (!field.type)
		return jinja_fail(c->r, "incomplete format");
	c->at++;
	if (field.type == '%')
		return jinja_write(c->r, "%", 1);
	if (!named)
		rc = next_argument(c->r, a, &v);
	if (!rc && a->escape && field.type == 's')
		rc = jinja_escape(c->r, v, &v);
	return rc ? rc : percent_value(c->r, &field, v);
}

int jinja_percent_format(struct jinja_render *r, const struct jinja_str *format, bool safe,
			 struct jinja_value all, struct jinja_value *ret)
{
	struct cursor c = {r, format->data, format->data + format->length};
	struct arguments a = {.all = all, .escape = safe};
	size_t mark = r->out.length;
	int rc = 0;

	while (!rc && c.at < c.end) {
		const char *percent = memchr(c.at, '%', (size_t)(c.end - c.at));
		const char *stop = percent ? percent : c.end;

		rc = jinja_write(r, c.at, (size_t)(stop - c.at));
		if (!rc)
			rc = jinja_charge(r, 1);
		c.at = percent ? percent + 1 : c.end;
		if (!rc && percent)
			rc = percent_field(&c, &a);
	}
	if (!rc && jinja_is_tuple(all) && a.next < all.seq->n)
		rc = jinja_fail(r, "not all arguments converted during string formatting");
	/* what has items counts as a mapping, of which not all must be used */
	if (!rc && !a.next && !jinja_is_tuple(all) && all.kind != JINJA_DICT &&
	    all.kind != JINJA_SEQ && all.kind != JINJA_UNDEFINED)
		rc = jinja_fail(r, "not all arguments converted during string formatting");
	if (!rc)
		rc = jinja_captured(r, mark, ret);
	if (!rc)
		ret->safe = safe;
	return rc;
}

/* [[fill]align][sign][#][0][width][,][.precision][type] */
static int parse_spec(struct cursor *c, struct field *field)
{
	uint32_t fill = ' ';
	size_t n = c->at < c->end ? jinja_utf8_decode(c->at, (size_t)(c->end - c->at), &fill) : 0;
	int rc;

	if (n && c->at + n < c->end && strchr("<>^=", c->at[n]) && c->at[n]) {
		field->fill = fill;
		field->align = c->at[n];
		c->at += n + 1;
	} else if (peek(c) && strchr("<>^=", peek(c))) {
		field->align = *c->at++;
	}
	if (peek(c) && strchr("+- ", peek(c)))
		field->sign = *c->at++;
	if (peek(c) == '#') {
		field->alternate = true;
		c->at++;
	}
	if (peek(c) == '0') {
		if (!field->align) {
			field->fill = '0';
			field->align = '=';
		}
		c->at++;
	}
	rc = scan_number(c, &field->width);
	if (!rc && peek(c) == ',') {
		field->comma = true;
		c->at++;
	}
	if (!rc && peek(c) == '.') {
		c->at++;
		rc = scan_number(c, &field->precision);
	}
	if (!rc && c->at < c->end)
		field->type = *c->at++;
	if (!rc && c->at < c->end)
		rc = jinja_fail(c->r, "format: invalid format specifier");
	return rc;
}

static int format_value(struct jinja_render *r, const struct field *field, struct jinja_value v)
{
	char type = field->type;
	struct jinja_str *s;
	int64_t i = 0;
	double f = 0;
	int rc;

	if (jinja_is_number(v) && v.kind != JINJA_BIGINT &&
	    (v.kind != JINJA_BOOL || type || field->width)) {
		if (is_float_type(type) || v.kind == JINJA_FLOAT) {
			jinja_as_double(v, &f);
			if (type && !is_float_type(type))
				return jinja_fail(r, "format: unknown code '%c' for a float", type);
			return format_float(r, field, f);
		}
		jinja_as_int(v, &i);
		if (type && !strchr("dxXobcn", type))
			return jinja_fail(r, "format: unknown code '%c' for an integer", type);
		return format_int(r, field, i);
	}
	if (type && type != 's')
		return jinja_fail(r, "format: unknown code '%c' for '%s'", type,
				  jinja_type_name(v));
	rc = jinja_to_str(r, v, &s);
	return rc ? rc : format_str(r, field, s, '<');
}

/* The first part of a field name: nothing, a number, or a keyword; then .name and [key]. */
static int field_argument(struct jinja_render *r, const struct jinja_args *args, const char *name,
			  size_t length, size_t *next, struct jinja_value *ret)
{
	size_t first = 0, index = 0, k;
	int rc = 0;

	while (first < length && name[first] != '.' && name[first] != '[')
		first++;
	for (k = 0; k < first && k < 9 && name[k] >= '0' && name[k] <= '9'; k++)
		index = index * 10 + (size_t)(name[k] - '0');
	if (k == first) {
		if (!first)
			index = (*next)++;
		if (index >= args->n)
			return jinja_fail(r, "format: there is no argument %zu", index);
		*ret = args->positional[index];
	} else {
		for (k = 0; k < args->n_keywords; k++)
			if (args->keywords[k].name->length == first &&
			    !memcmp(args->keywords[k].name->data, name, first))
				break;
		if (k == args->n_keywords)
			return jinja_fail(r, "format: there is no argument '%.*s'",
					  (int)(first < 60 ? first : 60), name);
		*ret = args->keywords[k].value;
	}
	while (!rc && first < length) {
		bool item = name[first] == '[';
		size_t start = ++first;
		struct jinja_value key;

		while (first < length &&
		       (item ? name[first] != ']' : name[first] != '.' && name[first] != '['))
			first++;
		rc = jinja_string(r, name + start, first - start, &key);
		if (!rc && item)
			rc = jinja_path(r, *ret, key, ret);
		else if (!rc)
			rc = jinja_attribute(r, *ret, key.string, ret);
		if (item && first < length)
			first++;
	}
	return rc;
}

static int format_field(struct cursor *c, const struct jinja_args *args, size_t *next)
{
	const char *close = memchr(c->at, '}', (size_t)(c->end - c->at)), *name = c->at, *stop;
	struct field field = {.fill = ' ', .precision = -1};
	struct cursor spec = *c;
	struct jinja_value v;
	char conversion = '\0';
	int rc;

	if (!close)
		return jinja_fail(c->r, "format: expected '}' before end of string");
	c->at = close + 1;
	spec.end = close;
	for (stop = name; stop < close && *stop != ':' && *stop != '!'; stop++)
		;
	spec.at = stop;
	if (stop < close && *stop == '!') {
		conversion = stop + 1 < close ? stop[1] : '\0';
		if (!conversion || !strchr("rsa", conversion))
			return jinja_fail(c->r, "format: bad conversion");
		spec.at = stop + 2;
	}
	if (spec.at < close && *spec.at++ != ':')
		return jinja_fail(c->r, "format: expected ':' after conversion specifier");
	rc = field_argument(c->r, args, name, (size_t)(stop - name), next, &v);
	if (!rc)
		rc = parse_spec(&spec, &field);
	if (!rc && conversion) {
		struct jinja_str *s;

		rc = conversion == 's' ? jinja_to_str(c->r, v, &s) : repr_of(c->r, v, &s);
		if (!rc)
			v = (struct jinja_value){.kind = JINJA_STRING, .string = s};
	}
	return rc ? rc : format_value(c->r, &field, v);
}

int jinja_method_format(struct jinja_render *r, struct jinja_value self,
			const struct jinja_args *args, struct jinja_value *ret)
{
	struct cursor c = {r, self.string->data, self.string->data + self.string->length};
	size_t mark = r->out.length, next = 0;
	int rc = 0;

	while (!rc && c.at < c.end) {
		char brace = *c.at;
		const char *plain = c.at;

		while (c.at < c.end && *c.at != '{' && *c.at != '}')
			c.at++;
		if (c.at > plain) {
			rc = jinja_write(r, plain, (size_t)(c.at - plain));
			continue;
		}
		c.at++;
		if (peek(&c) == brace) {
			c.at++;
			rc = jinja_write(r, &brace, 1);
		} else if (brace == '}') {
			rc = jinja_fail(r, "format: single '}' encountered in format string");
		} else {
			rc = format_field(&c, args, &next);
		}
		if (!rc)
			rc = jinja_charge(r, 1);
	}
	return rc ? rc : jinja_captured(r, mark, ret);
}
