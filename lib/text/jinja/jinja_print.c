// SPDX-License-Identifier: MIT
/*
 * Values as text: what Python's str() and repr() give.
 */
#include "jinja_render.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The fewest digits that read back as the same double, then fixed notation for exponents -4..15. */
int jinja_write_float(struct jinja_render *r, double f)
{
	char text[40], out[64];
	int precision, exponent, n_digits = 0, used = 0, i;
	char digits[24] = "0";

	if (isnan(f))
		return jinja_write_text(r, "nan");
	if (isinf(f))
		return jinja_write_text(r, f < 0 ? "-inf" : "inf");
	for (precision = 0; precision < 17; precision++) {
		snprintf(text, sizeof(text), "%.*e", precision, f);
		if (strtod(text, NULL) == f)
			break;
	}
	exponent = atoi(strchr(text, 'e') + 1);
	for (i = 0; text[i] != 'e'; i++)
		if (text[i] >= '0' && text[i] <= '9')
			digits[n_digits++] = text[i];
	if (text[0] == '-')
		out[used++] = '-';
	if (exponent < -4 || exponent >= 16) {
		out[used++] = digits[0];
		if (n_digits > 1)
			out[used++] = '.';
		memcpy(out + used, digits + 1, (size_t)n_digits - 1);
		used += n_digits - 1;
		used += snprintf(out + used, sizeof(out) - (size_t)used, "e%c%02d",
				 exponent < 0 ? '-' : '+', abs(exponent));
		return jinja_write(r, out, (size_t)used);
	}
	if (exponent < 0) {
		out[used++] = '0';
		out[used++] = '.';
		for (i = exponent + 1; i < 0; i++)
			out[used++] = '0';
	}
	for (i = 0; i < n_digits || i <= exponent; i++) {
		out[used++] = i < n_digits ? digits[i] : '0';
		if (i == exponent)
			out[used++] = '.';
	}
	if (out[used - 1] == '.')
		out[used++] = '0';
	return jinja_write(r, out, (size_t)used);
}

static int write_escaped(struct jinja_render *r, uint32_t c)
{
	char text[12];

	switch (c) {
	case '\n': return jinja_write_text(r, "\\n");
	case '\r': return jinja_write_text(r, "\\r");
	case '\t': return jinja_write_text(r, "\\t");
	default: break;
	}
	if (c < 0x100)
		snprintf(text, sizeof(text), "\\x%02" PRIx32, c);
	else if (c < 0x10000)
		snprintf(text, sizeof(text), "\\u%04" PRIx32, c);
	else
		snprintf(text, sizeof(text), "\\U%08" PRIx32, c);
	return jinja_write_text(r, text);
}

static int write_quoted(struct jinja_render *r, const struct jinja_str *s)
{
	bool single = memchr(s->data, '\'', s->length) && !memchr(s->data, '"', s->length);
	uint32_t quote = single ? '"' : '\'';
	size_t at = 0, plain = 0;
	int rc = jinja_write_char(r, quote);

	while (!rc && at < s->length) {
		uint32_t c;
		size_t n = jinja_utf8_decode(s->data + at, s->length - at, &c);
		bool stray = n == 1 && c >= 0x80; /* no UTF-8: left as it is */
		bool marked = c == quote || c == '\\';

		if (marked || (!stray && !jinja_is_printable(c))) {
			rc = jinja_write(r, s->data + plain, at - plain);
			if (!rc && marked)
				rc = jinja_write_text(r, "\\");
			else if (!rc)
				rc = write_escaped(r, c);
			plain = marked ? at : at + n;
		}
		at += n;
	}
	if (!rc)
		rc = jinja_write(r, s->data + plain, s->length - plain);
	return rc ? rc : jinja_write_char(r, quote);
}

static int write_items(struct jinja_render *r, const struct jinja_seq *seq, const char *open,
		       const char *close)
{
	size_t i;
	int rc = jinja_write_text(r, open);

	for (i = 0; !rc && i < seq->n; i++) {
		if (i)
			rc = jinja_write(r, ", ", 2);
		if (!rc)
			rc = jinja_write_repr(r, seq->items[i]);
	}
	return rc ? rc : jinja_write_text(r, close);
}

static int write_seq(struct jinja_render *r, const struct jinja_seq *seq)
{
	char text[96];

	switch (seq->flavor) {
	case JINJA_LIST: return write_items(r, seq, "[", "]");
	case JINJA_TUPLE:
	case JINJA_GROUP: return write_items(r, seq, "(", seq->n == 1 ? ",)" : ")");
	case JINJA_KEYS: return write_items(r, seq, "dict_keys([", "])");
	case JINJA_VALUES: return write_items(r, seq, "dict_values([", "])");
	case JINJA_ITEMS: return write_items(r, seq, "dict_items([", "])");
	case JINJA_RANGE:
		snprintf(text, sizeof(text), "range(%" PRId64 ", %" PRId64, seq->range[0],
			 seq->range[1]);
		if (seq->range[2] != 1)
			snprintf(text + strlen(text), sizeof(text) - strlen(text), ", %" PRId64,
				 seq->range[2]);
		strcat(text, ")");
		return jinja_write_text(r, text);
	default:
		return jinja_write_text(r, seq->flavor == JINJA_GENERATOR
						   ? "<generator object>"
						   : "<list_reverseiterator object>");
	}
}

static int write_dict(struct jinja_render *r, const struct jinja_dict *dict)
{
	size_t i;
	int rc = jinja_write(r, "{", 1);

	for (i = 0; !rc && i < dict->n; i++) {
		if (i)
			rc = jinja_write(r, ", ", 2);
		if (!rc)
			rc = jinja_write_repr(r, dict->entries[i].key);
		if (!rc)
			rc = jinja_write(r, ": ", 2);
		if (!rc)
			rc = jinja_write_repr(r, dict->entries[i].value);
	}
	return rc ? rc : jinja_write(r, "}", 1);
}

static int write_compound(struct jinja_render *r, struct jinja_value v)
{
	int rc = jinja_enter(r);

	if (rc)
		return rc;
	rc = jinja_charge(r, 1);
	if (!rc && v.kind == JINJA_SEQ) {
		rc = write_seq(r, v.seq);
	} else if (!rc) {
		if (v.kind == JINJA_NAMESPACE)
			rc = jinja_write_text(r, "<Namespace ");
		if (!rc)
			rc = write_dict(r, v.dict);
		if (!rc && v.kind == JINJA_NAMESPACE)
			rc = jinja_write_text(r, ">");
	}
	jinja_leave(r);
	return rc;
}

int jinja_write_repr(struct jinja_render *r, struct jinja_value v)
{
	int rc;

	if (v.kind == JINJA_STRING && v.safe) {
		rc = jinja_write_text(r, "Markup(");
		if (!rc)
			rc = write_quoted(r, v.string);
		return rc ? rc : jinja_write_text(r, ")");
	}
	if (v.kind == JINJA_STRING)
		return write_quoted(r, v.string);
	if (v.kind == JINJA_UNDEFINED)
		return jinja_write_text(r, "Undefined");
	return jinja_write_str(r, v);
}

int jinja_write_str(struct jinja_render *r, struct jinja_value v)
{
	char text[96];

	switch (v.kind) {
	case JINJA_UNDEFINED: return 0;
	case JINJA_NONE: return jinja_write_text(r, "None");
	case JINJA_BOOL: return jinja_write_text(r, v.boolean ? "True" : "False");
	case JINJA_INT:
		snprintf(text, sizeof(text), "%" PRId64, v.integer);
		return jinja_write_text(r, text);
	case JINJA_FLOAT: return jinja_write_float(r, v.real);
	case JINJA_BIGINT:
	case JINJA_STRING: return jinja_write(r, v.string->data, v.string->length);
	case JINJA_SEQ:
	case JINJA_DICT:
	case JINJA_NAMESPACE: return write_compound(r, v);
	case JINJA_MACRO:
		snprintf(text, sizeof(text), "<Macro '%.*s'>",
			 (int)(v.macro->signature->name->length < 60
				       ? v.macro->signature->name->length
				       : 60),
			 v.macro->signature->name->data);
		return jinja_write_text(r, text);
	default:
		snprintf(text, sizeof(text), "<%s object>", jinja_type_name(v));
		return jinja_write_text(r, text);
	}
}
