// SPDX-License-Identifier: MIT
/* Strings with a schema: pattern, length, format. */
#include <errno.h>
#include <string.h>

#include "grammar_regex.h"
#include "json_text.h"
#include "schema_internal.h"

/* RFC 3339, 5.7: the days that a month has, in a leap year one more. */
#define LEAP "([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)"
#define DATE                                                                                       \
	"([0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|"  \
	"02-(0[1-9]|1[0-9]|2[0-8]))|" LEAP "-02-29)"
#define ZONE  "(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define TIME  "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?" ZONE
#define OCTET "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define IPV4  OCTET "(\\." OCTET "){3}"
#define H16   "[0-9a-fA-F]{1,4}"
/* Labels of a name have up to 63 characters, the name 253: few long ones, or more short ones. */
#define LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define SHORT "[A-Za-z0-9]([A-Za-z0-9-]{0,25}[A-Za-z0-9])?"
#define HOST  "(" LABEL "(\\." LABEL "){0,2}|" SHORT "(\\." SHORT "){0,8})"
/* RFC 5321: 64 characters before the @, 254 together. */
#define ATEXT	"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]"
#define LOCAL	"(" ATEXT "{1,64}|" ATEXT "{1,12}(\\." ATEXT "{1,12}){1,4})"
#define MAIL_AT "(" LABEL "\\." LABEL "|" SHORT "(\\." SHORT "){0,5})"
/* RFC 3986, without IP literals. */
#define PCHAR	  "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9a-fA-F]{2})"
#define PATH	  "(" PCHAR "|/){0,1000}"
#define REST	  "(" PCHAR "|[/?]){0,1000}"
#define AUTHORITY "(" USER "{0,60}@)?" NAME "{0,250}(:[0-9]{0,5})?"
#define USER	  "([A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9a-fA-F]{2})"
#define NAME	  "([A-Za-z0-9._~!$&'()*+,;=-]|%[0-9a-fA-F]{2})"
#define DUR_TIME  "T([0-9]{1,9}H([0-9]{1,9}M([0-9]{1,9}S)?)?|[0-9]{1,9}M([0-9]{1,9}S)?|[0-9]{1,9}S)"
#define DUR_DATE  "([0-9]{1,9}D|[0-9]{1,9}M([0-9]{1,9}D)?|[0-9]{1,9}Y([0-9]{1,9}M([0-9]{1,9}D)?)?)"

static const struct {
	const char *name, *expression;
} formats[] = {
	{"date", DATE},
	{"time", TIME},
	{"date-time", DATE "T" TIME},
	{"duration", "P(" DUR_DATE "(" DUR_TIME ")?|" DUR_TIME "|[0-9]{1,9}W)"},
	{"uuid", "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"},
	{"ipv4", IPV4},
	{"ipv6",
	 "((" H16 ":){7}" H16 "|(" H16 ":){1,7}:|(" H16 ":){1,6}:" H16 "|(" H16 ":){1,5}(:" H16
	 "){1,2}|(" H16 ":){1,4}(:" H16 "){1,3}|(" H16 ":){1,3}(:" H16 "){1,4}|(" H16
	 ":){1,2}(:" H16 "){1,5}|" H16 ":(:" H16 "){1,6}|:((:" H16 "){1,7}|:))"},
	{"email", LOCAL "@" MAIL_AT},
	{"hostname", HOST},
	{"uri", "[A-Za-z][A-Za-z0-9+.-]{0,30}:(//" AUTHORITY "(/" PATH ")?|/?" PCHAR PATH
		")(\\?" REST ")?(#" REST ")?"},
};

static struct grammar_piece quoted(struct grammar_json *j, struct grammar_piece inside)
{
	struct grammar_piece piece = grammar_seq(j->b, grammar_text(j->b, "\""), inside);

	return grammar_seq(j->b, piece, grammar_text(j->b, "\""));
}

const char *schema_format(const cJSON *schema)
{
	const cJSON *format = schema_member(schema, "format");

	for (size_t i = 0; cJSON_IsString(format) && i < sizeof(formats) / sizeof(formats[0]);
	     i++) {
		if (!strcmp(formats[i].name, format->valuestring))
			return formats[i].expression;
	}
	return NULL;
}

/* One expression can be followed: a pattern rather than a format. */
static void take_expression(struct grammar_json *j, const char *found, bool pattern,
			    const char **ret, bool *ret_pattern)
{
	if (!found)
		return;
	if (*ret && (pattern != *ret_pattern || strcmp(*ret, found) != 0))
		schema_refuse(j, "pattern or format together with another one");
	if (*ret && (*ret_pattern || !pattern))
		return;
	*ret = found;
	*ret_pattern = pattern;
}

struct grammar_piece schema_string(struct grammar_json *j, const struct view *v)
{
	struct grammar_regex_options options = {.json = true};
	const char *expression = NULL;
	uint32_t min = 0, max = GRAMMAR_UNLIMITED;

	for (unsigned i = 0; i < v->n; i++) {
		const cJSON *schema = v->parts[i].schema;
		const cJSON *pattern = schema_member(schema, "pattern");
		uint32_t least = 0, most = GRAMMAR_UNLIMITED;

		schema_count(j, schema, "minLength", &least);
		schema_count(j, schema, "maxLength", &most);
		min = least > min ? least : min;
		max = most < max ? most : max;
		if (pattern && !cJSON_IsString(pattern)) {
			schema_wrong(j, "pattern", "a string");
			return grammar_never(j->b);
		}
		take_expression(j, cJSON_GetStringValue(pattern), true, &expression,
				&options.search);
		take_expression(j, schema_format(schema), false, &expression, &options.search);
	}
	if (expression && (min || max != GRAMMAR_UNLIMITED))
		schema_refuse(j, "minLength or maxLength together with a pattern or format");
	if (expression)
		return quoted(j, grammar_regex(j->b, expression, strlen(expression), &options));
	if (max < min)
		return grammar_never(j->b);
	if (!min && max == GRAMMAR_UNLIMITED)
		return grammar_call(j->b, j->string);
	return quoted(j, grammar_repeat(j->b, json_any_char(j->b), min, max));
}
