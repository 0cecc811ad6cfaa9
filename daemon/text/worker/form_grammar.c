// SPDX-License-Identifier: MIT
/* Grammars for requested output formats: a JSON schema, a regular expression, ... */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "grammar_build.h"
#include "grammar_gbnf.h"
#include "grammar_regex.h"
#include "grammar_schema.h"
#include "work.h"

static uint32_t schema_rule(struct grammar_builder *b, const struct api_format *f)
{
	const struct grammar_json_options options = {
		.strict = f->strict,
		.compact = f->compact,
		.whitespace = f->whitespace,
	};
	struct grammar_json *j = grammar_json_new(b, &options);
	uint32_t root;

	if (!j) {
		grammar_fail(b, -ENOMEM, "out of memory");
		return 0;
	}
	root = f->form == API_FORM_OBJECT ? grammar_json_object(j)
					  : grammar_json_schema(j, f->value, f->value);
	grammar_json_finish(j);
	grammar_json_free(j);
	return root;
}

static uint32_t choice_rule(struct grammar_builder *b, const struct api_format *f)
{
	size_t n = (size_t)cJSON_GetArraySize(f->value), i = 0;
	struct grammar_bytes *strings = calloc(n + 1, sizeof(*strings));
	uint32_t root = grammar_rule(b, "choice");
	const cJSON *item;

	if (!strings) {
		grammar_fail(b, -ENOMEM, "out of memory");
		return 0;
	}
	cJSON_ArrayForEach(item, f->value) {
		strings[i].bytes = item->valuestring;
		strings[i++].len = strlen(item->valuestring);
	}
	grammar_define(b, root, grammar_one_of(b, strings, n));
	free(strings);
	return root;
}

static uint32_t form_rule(struct grammar_builder *b, const struct api_format *f)
{
	const struct grammar_regex_options whole = {0};
	const char *text = cJSON_IsString(f->value) ? f->value->valuestring : "";
	uint32_t root = 0;

	switch (f->form) {
	case API_FORM_OBJECT:
	case API_FORM_SCHEMA: return schema_rule(b, f);
	case API_FORM_CHOICE: return choice_rule(b, f);
	case API_FORM_GRAMMAR: grammar_gbnf(b, text, strlen(text), &root); return root;
	default:
		root = grammar_rule(b, "expression");
		grammar_define(b, root, grammar_regex(b, text, strlen(text), &whole));
		return root;
	}
}

/* Any text, without control tokens. */
static struct grammar_piece any_text(struct grammar_builder *b)
{
	struct grammar_set set;

	grammar_set_clear(&set);
	grammar_set_add(&set, 0, 0x10FFFF);
	return grammar_star(b, grammar_char(b, &set));
}

/*
 * An optional message on the channel "analysis"; then a call's message, or the required format on
 * the channel "final".
 */
static uint32_t after_channels(struct grammar_builder *b, const struct txda_tokenizer *tokenizer,
			       bool form, uint32_t rule)
{
	const struct reply_format *f = reply_format(REPLY_HARMONY);
	uint32_t root = grammar_rule(b, "messages");
	struct grammar_piece piece = marked_text(b, tokenizer, f, "<|channel|>analysis<|message|>");

	piece = grammar_seq(b, piece, any_text(b));
	piece = grammar_seq(b, piece, marked_text(b, tokenizer, f, "<|end|><|start|>assistant"));
	piece = grammar_optional(b, piece);
	if (form)
		piece = grammar_seq(b, piece,
				    marked_text(b, tokenizer, f, "<|channel|>final<|message|>"));
	grammar_define(b, root, grammar_seq(b, piece, grammar_call(b, rule)));
	return root;
}

void form_grammar(struct grammar_builder *b, const struct api_params *p, enum reply_tools tools,
		  enum reply_reasoning reasoning, const struct txda_tokenizer *tokenizer,
		  uint32_t *ret_root)
{
	if (p->format.form)
		*ret_root = form_rule(b, &p->format);
	else
		tool_grammar(b, p, tools, tokenizer, ret_root);
	if (reasoning == REPLY_CHANNELS && !grammar_failed(b))
		*ret_root = after_channels(b, tokenizer, p->format.form, *ret_root);
}
