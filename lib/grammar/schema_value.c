// SPDX-License-Identifier: MIT
/* Values listed in a schema: enum, const. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text_buf.h"
#include "json_text.h"
#include "schema_internal.h"

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

static bool number_fits(const cJSON *schema, double value)
{
	const cJSON *least = schema_member(schema, "minimum");
	const cJSON *above = schema_member(schema, "exclusiveMinimum");
	const cJSON *most = schema_member(schema, "maximum");
	const cJSON *below = schema_member(schema, "exclusiveMaximum");

	return !(cJSON_IsNumber(least) && value < least->valuedouble) &&
	       !(cJSON_IsNumber(above) && value <= above->valuedouble) &&
	       !(cJSON_IsNumber(most) && value > most->valuedouble) &&
	       !(cJSON_IsNumber(below) && value >= below->valuedouble) &&
	       !(cJSON_IsTrue(above) && cJSON_IsNumber(least) && value == least->valuedouble) &&
	       !(cJSON_IsTrue(below) && cJSON_IsNumber(most) && value == most->valuedouble);
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

static bool same_number(const cJSON *a, const cJSON *b)
{
	/* Integers that a double cannot represent have their literals, which are unique. */
	if (a->valuestring && b->valuestring && !strpbrk(a->valuestring, ".eE") &&
	    !strpbrk(b->valuestring, ".eE"))
		return !strcmp(a->valuestring, b->valuestring);
	return a->valuedouble == b->valuedouble;
}

/*
 * Looks at each member of objects once per level: cJSON_Compare() compares them in both directions,
 * so that its time doubles with each level. With as many members on both sides one direction is
 * enough, as no key occurs twice. Recursion is limited by the maximum depth of JSON.
 */
static bool same_value(const cJSON *a, const cJSON *b)
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
		if (!other || !same_value(item, other))
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

	if (constant && !same_value(constant, value))
		return false;
	/*
	 * Avoids searching the list that the value comes from, which would be quadratic for long
	 * lists.
	 */
	for (one = found ? NULL : values->child; one && !found; one = one->next)
		found = one == value;
	for (one = found ? NULL : values->child; one && !found; one = one->next)
		found = same_value(one, value);
	return found;
}

bool schema_accepts(const struct view *v, const cJSON *value)
{
	for (unsigned i = 0; i < v->n; i++) {
		const cJSON *schema = v->parts[i].schema;

		if (cJSON_IsFalse(schema) || !type_fits(schema, value) ||
		    (cJSON_IsNumber(value) && !number_fits(schema, value->valuedouble)) ||
		    (cJSON_IsString(value) && !string_fits(schema, value->valuestring)) ||
		    !is_listed(schema, value))
			return false;
	}
	return true;
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

/* The literal if it was recorded, else the shortest text that reads back as the same value. */
static bool add_number(struct text_buf *buf, const cJSON *value)
{
	char text[40];

	if (value->valuestring)
		return text_buf_add_string(buf, value->valuestring);
	for (int digits = 15; digits <= 17; digits++) {
		snprintf(text, sizeof(text), "%.*g", digits, value->valuedouble);
		if (strtod(text, NULL) == value->valuedouble)
			break;
	}
	return text_buf_add_string(buf, text);
}

/* Recursion is limited by the maximum depth of JSON. */
static bool add_value(struct text_buf *buf, const cJSON *value)
{
	bool object = cJSON_IsObject(value), ok = true;
	const cJSON *item;

	switch (value->type & 0xFF) {
	case cJSON_NULL: return text_buf_add_string(buf, "null");
	case cJSON_False: return text_buf_add_string(buf, "false");
	case cJSON_True: return text_buf_add_string(buf, "true");
	case cJSON_Number: return add_number(buf, value);
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
