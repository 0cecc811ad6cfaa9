// SPDX-License-Identifier: MIT
/* Values listed in a schema: enum, const. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text_buf.h"
#include "json_text.h"
#include "schema_internal.h"

#define MAX_STEP (1ull << 60) /* digits of a multipleOf; ten times that fits in 64 bits */

unsigned schema_type_of(const cJSON *value)
{
	switch (value->type & 0xFF) {
	case cJSON_NULL: return JSON_NULL;
	case cJSON_False:
	case cJSON_True: return JSON_BOOLEAN;
	case cJSON_Number:
		return floor(value->valuedouble) == value->valuedouble ? JSON_INTEGER : JSON_NUMBER;
	case cJSON_String: return JSON_STRING;
	case cJSON_Array: return JSON_ARRAY;
	default: return JSON_OBJECT;
	}
}

static bool type_fits(const cJSON *schema, const cJSON *value)
{
	static const char *const names[] = {"null",   "boolean", "integer", "number",
					    "string", "array",	 "object"};
	const cJSON *type = schema_member(schema, "type"), *one;
	unsigned mine = schema_type_of(value), allowed = 0;

	if (!type)
		return true;
	for (unsigned i = 0; i < 7; i++) {
		if (cJSON_IsString(type) && !strcmp(type->valuestring, names[i]))
			allowed |= 1u << i;
		if (!cJSON_IsArray(type))
			continue;
		cJSON_ArrayForEach(one, type) {
			if (cJSON_IsString(one) && !strcmp(one->valuestring, names[i]))
				allowed |= 1u << i;
		}
	}
	if (allowed & JSON_NUMBER)
		allowed |= JSON_INTEGER;
	if (cJSON_IsTrue(schema_member(schema, "nullable")))
		allowed |= JSON_NULL;
	return allowed & mine;
}

/* A number's text: digits * 10^exponent, the last digit not 0 unless all are. */
struct decimal {
	uint64_t digits; /* modulo what was asked for */
	long exponent;
	bool zero, wrapped; /* wrapped: digits is less than all of them */
};

static struct decimal read_decimal(const char *text, uint64_t mod)
{
	struct decimal d = {.zero = true};
	bool fraction = false;
	long zeros = 0, power;

	for (; *text && *text != 'e' && *text != 'E'; text++) {
		fraction = fraction || *text == '.';
		if (*text < '0' || *text > '9')
			continue;
		d.exponent -= fraction;
		zeros++;
		if (*text == '0')
			continue;
		d.zero = false;
		for (; zeros; zeros--) {
			d.digits = d.digits * 10 + (zeros == 1 ? (uint64_t)(*text - '0') : 0);
			d.wrapped = d.wrapped || d.digits >= mod;
			d.digits %= mod;
		}
	}
	power = *text ? strtol(text + 1, NULL, 10) : 0;
	power = power > 1000000000 ? 1000000000 : power < -1000000000 ? -1000000000 : power;
	d.exponent += zeros + power;
	return d;
}

/* The literal if it was recorded, else the shortest text that reads back as the same value. */
static const char *number_text(const cJSON *value, char buf[40])
{
	if (value->valuestring)
		return value->valuestring;
	for (int digits = 15; digits <= 17; digits++) {
		snprintf(buf, 40, "%.*g", digits, value->valuedouble);
		if (strtod(buf, NULL) == value->valuedouble)
			break;
	}
	return buf;
}

/* Exactly, as decimals: 0.3 is a multiple of 0.1, unlike their doubles. */
static bool is_multiple(const cJSON *schema, const cJSON *value)
{
	const cJSON *multiple = schema_member(schema, "multipleOf");
	struct decimal step, d;
	char buf[40];

	if (!cJSON_IsNumber(multiple) || !(multiple->valuedouble > 0))
		return true;
	step = read_decimal(number_text(multiple, buf), MAX_STEP);
	if (step.wrapped || step.zero)
		return fmod(value->valuedouble, multiple->valuedouble) == 0;
	d = read_decimal(number_text(value, buf), step.digits);
	if (d.zero || d.exponent < step.exponent)
		return d.zero;
	/* What 64 factors of 10 leave, more of them do as well: the step is below 2^64. */
	for (int i = 0; d.digits && i < 64 && d.exponent > step.exponent; i++, d.exponent--)
		d.digits = d.digits * 10 % step.digits;
	return !d.digits;
}

/* Whether both are integers with literals: those beyond what a double represents have them. */
static bool both_literal(const cJSON *a, const cJSON *b)
{
	return a->valuestring && b->valuestring && !strpbrk(a->valuestring, ".eE") &&
	       !strpbrk(b->valuestring, ".eE");
}

/* Below, at or above 0 as a is below, at or above b. Different doubles are in the right order. */
static int compare_numbers(const cJSON *a, const cJSON *b)
{
	const char *x = a->valuestring, *y = b->valuestring;
	int sign = 1, order;

	if (a->valuedouble != b->valuedouble)
		return a->valuedouble < b->valuedouble ? -1 : 1;
	if (!both_literal(a, b))
		return 0;
	if (*x == '-' && *y == '-') {
		sign = -1;
		x++;
		y++;
	}
	order = strlen(x) != strlen(y) ? (strlen(x) < strlen(y) ? -1 : 1) : strcmp(x, y);
	return sign * order;
}

static bool number_fits(const cJSON *schema, const cJSON *value)
{
	const cJSON *least = schema_member(schema, "minimum");
	const cJSON *above = schema_member(schema, "exclusiveMinimum");
	const cJSON *most = schema_member(schema, "maximum");
	const cJSON *below = schema_member(schema, "exclusiveMaximum");
	int low = cJSON_IsNumber(least) ? compare_numbers(value, least) : 1;
	int high = cJSON_IsNumber(most) ? compare_numbers(value, most) : -1;

	/* In draft 4, the exclusive forms are booleans beside the others. */
	return (cJSON_IsTrue(above) ? low > 0 : low >= 0) &&
	       (cJSON_IsTrue(below) ? high < 0 : high <= 0) &&
	       !(cJSON_IsNumber(above) && compare_numbers(value, above) <= 0) &&
	       !(cJSON_IsNumber(below) && compare_numbers(value, below) >= 0);
}

static bool string_fits(const cJSON *schema, const char *value)
{
	const cJSON *least = schema_member(schema, "minLength");
	const cJSON *most = schema_member(schema, "maxLength");
	double n = 0;

	for (; *value; value++)
		n += ((unsigned char)*value & 0xC0) != 0x80;
	return !(cJSON_IsNumber(least) && n < least->valuedouble) &&
	       !(cJSON_IsNumber(most) && n > most->valuedouble);
}

/* A member of an object; the search starts at @near, where objects written alike have it. */
static const cJSON *find_member(const cJSON *object, const cJSON *near, const char *name)
{
	const cJSON *item;

	for (item = near; item; item = item->next) {
		if (!strcmp(item->string, name))
			return item;
	}
	for (item = object->child; item && item != near; item = item->next) {
		if (!strcmp(item->string, name))
			return item;
	}
	return NULL;
}

/* The number of elements or members. */
static bool count_fits(const cJSON *schema, const cJSON *value)
{
	const cJSON *least =
		schema_member(schema, cJSON_IsArray(value) ? "minItems" : "minProperties");
	const cJSON *most =
		schema_member(schema, cJSON_IsArray(value) ? "maxItems" : "maxProperties");
	double n = least || most ? cJSON_GetArraySize(value) : 0;

	return !(cJSON_IsNumber(least) && n < least->valuedouble) &&
	       !(cJSON_IsNumber(most) && n > most->valuedouble);
}

static bool has_required(const cJSON *schema, const cJSON *value)
{
	const cJSON *required = schema_member(schema, "required"), *name;
	const cJSON *found = value->child;

	if (!cJSON_IsArray(required))
		return true;
	cJSON_ArrayForEach(name, required) {
		if (!cJSON_IsString(name))
			continue;
		found = find_member(value, found, name->valuestring);
		if (!found)
			return false;
	}
	return true;
}

static bool same_number(const cJSON *a, const cJSON *b)
{
	/* Literals of integers are unique. */
	if (both_literal(a, b))
		return !strcmp(a->valuestring, b->valuestring);
	return a->valuedouble == b->valuedouble;
}

/*
 * Looks at each member of objects once per level: cJSON_Compare() compares them in both directions,
 * so that its time doubles with each level. With as many members on both sides one direction is
 * enough, as no key occurs twice. Recursion is limited by the maximum depth of JSON.
 */
bool schema_same(const cJSON *a, const cJSON *b)
{
	bool object = cJSON_IsObject(a);
	const cJSON *item, *other;

	if ((a->type & 0xFF) != (b->type & 0xFF))
		return false;
	if (cJSON_IsNumber(a))
		return same_number(a, b);
	if (cJSON_IsString(a))
		return !strcmp(a->valuestring, b->valuestring);
	/* The others have no children. */
	if (cJSON_GetArraySize(a) != cJSON_GetArraySize(b))
		return false;
	other = b->child;
	for (item = a->child; item; item = item->next) {
		if (object)
			other = find_member(b, other, item->string);
		if (!other || !schema_same(item, other))
			return false;
		other = other->next;
	}
	return true;
}

static bool is_listed(const cJSON *schema, const cJSON *value)
{
	const cJSON *constant = schema_member(schema, "const");
	const cJSON *values = schema_member(schema, "enum"), *one;
	bool found = !cJSON_IsArray(values);

	if (constant && !schema_same(constant, value))
		return false;
	/*
	 * Avoids searching the list that the value comes from, which would be quadratic for long
	 * lists.
	 */
	for (one = found ? NULL : values->child; one && !found; one = one->next)
		found = one == value;
	for (one = found ? NULL : values->child; one && !found; one = one->next)
		found = schema_same(one, value);
	return found;
}

/* Refuses, when strict, what could exclude the value and is not compared with it. */
static void refuse_unchecked(struct grammar_json *j, const cJSON *schema, const cJSON *value)
{
	static const struct {
		const char *keyword;
		unsigned type;
	} unchecked[] = {
		{"pattern", JSON_STRING},
		{"format", JSON_STRING},
		{"items", JSON_ARRAY},
		{"prefixItems", JSON_ARRAY},
		{"properties", JSON_OBJECT},
		{"patternProperties", JSON_OBJECT},
		{"additionalProperties", JSON_OBJECT},
		{"unevaluatedProperties", JSON_OBJECT},
		{"propertyNames", JSON_OBJECT},
	};
	unsigned type = schema_type_of(value);
	char words[64];

	/* Without elements or members there is nothing to exclude. */
	if (!j->options.strict || (type != JSON_STRING && !value->child))
		return;
	for (size_t i = 0; i < sizeof(unchecked) / sizeof(unchecked[0]); i++) {
		const cJSON *member = schema_member(schema, unchecked[i].keyword);

		if (!member || unchecked[i].type != type || cJSON_IsTrue(member) ||
		    (!strcmp(unchecked[i].keyword, "format") && !schema_format(schema)))
			continue;
		snprintf(words, sizeof(words), "%s beside enum or const", unchecked[i].keyword);
		schema_refuse(j, words);
	}
}

static bool fits(const cJSON *schema, const cJSON *value)
{
	if (cJSON_IsFalse(schema) || !type_fits(schema, value))
		return false;
	switch (value->type & 0xFF) {
	case cJSON_Number: return number_fits(schema, value) && is_multiple(schema, value);
	case cJSON_String: return string_fits(schema, value->valuestring);
	case cJSON_Array: return count_fits(schema, value);
	case cJSON_Object: return count_fits(schema, value) && has_required(schema, value);
	default: return true;
	}
}

bool schema_accepts(struct grammar_json *j, const struct view *v, const cJSON *value)
{
	for (unsigned i = 0; i < v->n; i++) {
		if (!fits(v->parts[i].schema, value) || !is_listed(v->parts[i].schema, value))
			return false;
	}
	for (unsigned i = 0; i < v->n; i++)
		refuse_unchecked(j, v->parts[i].schema, value);
	return true;
}

bool schema_accepts_name(struct grammar_json *j, const struct view *v, const char *name)
{
	cJSON *value = cJSON_CreateStringReference(name);
	bool ok = value;

	if (!value)
		grammar_fail(j->b, -ENOMEM, "out of memory");
	for (unsigned i = 0; i < v->n && ok; i++)
		ok = fits(v->parts[i].schema, value) && is_listed(v->parts[i].schema, value);
	for (unsigned i = 0; i < v->n && ok; i++) {
		if (schema_member(v->parts[i].schema, "pattern") ||
		    schema_format(v->parts[i].schema))
			schema_refuse(j,
				      "pattern or format in propertyNames beside named properties");
	}
	cJSON_Delete(value);
	return ok;
}

/* ---- printing -------------------------------------------------------------------------------- */

static bool add_string(struct text_buf *buf, const char *text)
{
	size_t len;
	char *quoted = json_quote(text, strlen(text), &len);
	bool ok = quoted && text_buf_add(buf, quoted, len);

	free(quoted);
	return ok;
}

/* Recursion is limited by the maximum depth of JSON. */
static bool add_value(struct text_buf *buf, const cJSON *value)
{
	bool object = cJSON_IsObject(value), ok = true;
	const cJSON *item;
	char number[40];

	switch (value->type & 0xFF) {
	case cJSON_NULL: return text_buf_add_string(buf, "null");
	case cJSON_False: return text_buf_add_string(buf, "false");
	case cJSON_True: return text_buf_add_string(buf, "true");
	case cJSON_Number: return text_buf_add_string(buf, number_text(value, number));
	case cJSON_String: return add_string(buf, value->valuestring);
	default: break;
	}
	ok = text_buf_add_string(buf, object ? "{" : "[");
	for (item = value->child; ok && item; item = item->next) {
		if (item != value->child)
			ok = text_buf_add_string(buf, ", ");
		if (ok && object)
			ok = add_string(buf, item->string) && text_buf_add_string(buf, ": ");
		ok = ok && add_value(buf, item);
	}
	return ok && text_buf_add_string(buf, object ? "}" : "]");
}

char *schema_print(const cJSON *value, size_t *ret_len)
{
	struct text_buf buf = {0};

	if (!add_value(&buf, value) || !text_buf_end(&buf)) {
		free(buf.data);
		return NULL;
	}
	*ret_len = buf.len;
	return buf.data;
}
