// SPDX-License-Identifier: MIT
#include "api_format.h"

#include <stdio.h>
#include <string.h>

#include "api_value.h"
#include "jinja.h"
#include "json_strict.h"

/* Records that @param requests @form; false: another parameter already did. */
static bool set_form(struct api_format *f, enum api_form form, const char *param,
		     const cJSON *value, struct api_error *e)
{
	if (f->form)
		return api_error_set(e, 400, NULL, param,
				     "%s and %s exclude each other: an answer has one format",
				     param, f->param);
	f->form = form;
	f->param = param;
	f->value = value;
	return true;
}

static bool must_be(const cJSON *value, const char *param, const char *what, struct api_error *e)
{
	char buf[96];

	return api_error_set(e, 400, NULL, param, "%s must be %s, not %s", param, what,
			     api_describe(value, buf, sizeof(buf)));
}

/* A schema as JSON, or as a string containing JSON. */
static bool set_schema(struct api_format *f, const char *param, const cJSON *value,
		       struct api_error *e)
{
	char err[128];

	if (cJSON_IsString(value)) {
		if (!set_form(f, API_FORM_SCHEMA, param, NULL, e))
			return false;
		f->owned = txda_json_parse(value->valuestring, strlen(value->valuestring), err,
					   sizeof(err));
		if (!f->owned)
			return api_error_set(e, 400, NULL, param, "%s is not valid JSON: %s", param,
					     err);
		f->value = f->owned;
		/* As for the body: the exact integers of enum, const and bounds. */
		if (txda_template_mark_numbers(f->owned, value->valuestring,
					       strlen(value->valuestring)))
			return api_error_set(e, 500, NULL, NULL, "out of memory");
		return api_check_duplicates(f->owned, e);
	}
	if (!cJSON_IsObject(value) && !cJSON_IsBool(value))
		return must_be(value, param, "a JSON schema", e);
	return set_form(f, API_FORM_SCHEMA, param, value, e);
}

static bool set_text(struct api_format *f, enum api_form form, const char *param,
		     const cJSON *value, struct api_error *e)
{
	if (!cJSON_IsString(value) || !*value->valuestring)
		return must_be(value, param, "a string that is not empty", e);
	return set_form(f, form, param, value, e);
}

static bool set_choice(struct api_format *f, const char *param, const cJSON *value,
		       struct api_error *e)
{
	const cJSON *item;

	if (!cJSON_IsArray(value) || !value->child)
		return must_be(value, param, "an array of one string or more", e);
	if (cJSON_GetArraySize(value) > API_MAX_FORM_CHOICES)
		return api_error_set(e, 400, NULL, param, "%s has %d strings; the limit is %d",
				     param, cJSON_GetArraySize(value), API_MAX_FORM_CHOICES);
	cJSON_ArrayForEach(item, value) {
		if (!cJSON_IsString(item) || !*item->valuestring)
			return must_be(item, param, "an array of strings that are not empty", e);
	}
	return set_form(f, API_FORM_CHOICE, param, value, e);
}

static bool parse_response_format(const cJSON *format, struct api_format *f, struct api_error *e)
{
	const cJSON *schema = NULL;
	const char *type = NULL;

	if (!cJSON_IsObject(format))
		return must_be(format, "response_format", "an object", e);
	if (!api_string(format, "type", &type, e))
		return false;
	if (!type)
		return api_error_set(e, 400, NULL, "response_format.type",
				     "response_format.type is missing; supported are \"text\", "
				     "\"json_object\" and \"json_schema\"");
	if (!strcmp(type, "text"))
		return true;
	if (!strcmp(type, "json_object")) {
		schema = api_member(format, "schema");
		return schema ? set_schema(f, "response_format.schema", schema, e)
			      : set_form(f, API_FORM_OBJECT, "response_format", NULL, e);
	}
	if (strcmp(type, "json_schema"))
		return api_error_set(e, 400, "unsupported_value", "response_format.type",
				     "response_format.type is \"%.40s\"; supported are \"text\", "
				     "\"json_object\" and \"json_schema\"",
				     type);
	format = api_member(format, "json_schema");
	if (!cJSON_IsObject(format))
		return api_error_set(e, 400, NULL, "response_format.json_schema",
				     "response_format.json_schema must be an object");
	schema = api_member(format, "schema");
	if (!schema)
		return api_error_set(e, 400, NULL, "response_format.json_schema.schema",
				     "response_format.json_schema.schema is missing");
	return api_bool(format, "strict", &f->strict, e) &&
	       set_schema(f, "response_format.json_schema.schema", schema, e);
}

struct names {
	const char *json, *regex, *choice, *grammar, *whitespace;
};

/*
 * Reads the members of @object with these names; @prefix and a name form the full name for errors.
 */
static bool parse_guides(const cJSON *object, bool nested, struct api_format *f,
			 struct api_error *e)
{
	static const struct names guided = {"guided_json", "guided_regex", "guided_choice",
					    "guided_grammar", "guided_whitespace_pattern"};
	static const struct names inner = {"json", "regex", "choice", "grammar",
					   "whitespace_pattern"};
	static const struct names outer = {
		"structured_outputs.json", "structured_outputs.regex", "structured_outputs.choice",
		"structured_outputs.grammar", "structured_outputs.whitespace_pattern"};
	const struct names *keys = nested ? &inner : &guided, *names = nested ? &outer : &guided;
	const cJSON *json = api_member(object, keys->json),
		    *regex = api_member(object, keys->regex);
	const cJSON *choice = api_member(object, keys->choice);
	const cJSON *grammar = api_member(object, keys->grammar);
	const cJSON *space = api_member(object, keys->whitespace);

	if (space && (f->whitespace || f->compact))
		return api_error_set(e, 400, NULL, names->whitespace,
				     "%s: structured_outputs says already which white space there "
				     "may be",
				     names->whitespace);
	return (!json || set_schema(f, names->json, json, e)) &&
	       (!regex || set_text(f, API_FORM_REGEX, names->regex, regex, e)) &&
	       (!choice || set_choice(f, names->choice, choice, e)) &&
	       (!grammar || set_text(f, API_FORM_GRAMMAR, names->grammar, grammar, e)) &&
	       api_string(object, keys->whitespace, &f->whitespace, e);
}

static bool parse_structured(const cJSON *object, struct api_format *f, struct api_error *e)
{
	bool any_object = false;

	if (!cJSON_IsObject(object))
		return must_be(object, "structured_outputs", "an object", e);
	if (!api_bool(object, "disable_any_whitespace", &f->compact, e) ||
	    !parse_guides(object, true, f, e) || !api_bool(object, "json_object", &any_object, e))
		return false;
	if (any_object && !set_form(f, API_FORM_OBJECT, "structured_outputs.json_object", NULL, e))
		return false;
	if (!f->form)
		return api_error_set(e, 400, NULL, "structured_outputs",
				     "structured_outputs has none of json, regex, choice, grammar "
				     "and json_object");
	return true;
}

bool api_parse_format(const cJSON *root, struct api_format *ret, struct api_error *e)
{
	const cJSON *format = api_member(root, "response_format");
	const cJSON *structured = api_member(root, "structured_outputs");

	*ret = (struct api_format){0};
	if ((format && !parse_response_format(format, ret, e)) ||
	    (structured && !parse_structured(structured, ret, e)) ||
	    !parse_guides(root, false, ret, e))
		return false;
	/* Only JSON has white space between tokens. */
	if (ret->form != API_FORM_OBJECT && ret->form != API_FORM_SCHEMA) {
		api_leave(root, "guided_whitespace_pattern");
		api_leave(structured, "whitespace_pattern");
		api_leave(structured, "disable_any_whitespace");
	}
	return true;
}

void api_format_free(struct api_format *f)
{
	cJSON_Delete(f->owned);
	f->owned = NULL;
}
