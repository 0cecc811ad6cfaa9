// SPDX-License-Identifier: MIT
/* Tool calls as grammars, in the format that the model was trained on. */
#include <errno.h>
#include <string.h>

#include "api_value.h"
#include "grammar_build.h"
#include "grammar_schema.h"
#include "reply_format.h"
#include "tokenizer.h"
#include "utf8.h"
#include "work.h"

#define MAX_CALLS      32 /* in one answer */
#define MAX_MARK_CHARS 64

struct writer {
	struct grammar_builder *b;
	struct grammar_json *json;	/* the current function's */
	struct grammar_json *shared[2]; /* of those that are not strict, and that are; NULL: none */
	const struct reply_format *format;
	enum reply_tools tools;
	const struct txda_tokenizer *tokenizer;
};

struct grammar_piece marked_text(struct grammar_builder *b, const struct txda_tokenizer *tokenizer,
				 const struct reply_format *format, const char *text)
{
	struct grammar_piece piece = grammar_empty(b);

	while (text && *text) {
		const char *next = NULL, *const *mark = format->marks;
		size_t len = strlen(text);
		uint32_t id = TXDA_TOKEN_NONE;

		for (unsigned i = 0; i < REPLY_MAX_MARKS && mark[i]; i++) {
			const char *at = strstr(text, mark[i]);
			uint32_t token =
				txda_tokenizer_piece_id(tokenizer, mark[i], strlen(mark[i]));

			if (!at || (next && at >= next) || token == TXDA_TOKEN_NONE ||
			    !txda_tokenizer_is_special(tokenizer, token))
				continue;
			next = at;
			len = strlen(mark[i]);
			id = token;
		}
		if (next != text) {
			len = next ? (size_t)(next - text) : strlen(text);
			piece = grammar_seq(b, piece, grammar_bytes(b, text, len));
		} else {
			piece = grammar_seq(b, piece, grammar_token(b, id));
		}
		text += len;
	}
	return piece;
}

static struct grammar_piece marked(struct writer *w, const char *text)
{
	return marked_text(w->b, w->tokenizer, w->format, text);
}

/*
 * Any text that does not contain @mark. The mark's first character, <, occurs in it only once, so
 * after a partial match the mark can start again only there, and one node per matched character is
 * enough.
 */
static struct grammar_piece text_without(struct grammar_builder *b, const char *mark)
{
	struct grammar_piece whole = {grammar_node(b), grammar_node(b)}, step;
	uint32_t nodes[MAX_MARK_CHARS], chars[MAX_MARK_CHARS];
	struct grammar_set set;
	unsigned n = 0;

	while (*mark && n < MAX_MARK_CHARS) {
		unsigned len;

		chars[n] = utf8_decode((const uint8_t *)mark, &len);
		mark += len;
		nodes[n] = n ? grammar_node(b) : whole.start;
		n++;
	}
	for (unsigned i = 0; i < n; i++) {
		grammar_set_clear(&set);
		grammar_set_add(&set, 0, 0x10FFFF);
		grammar_set_remove(&set, chars[i], chars[i]);
		grammar_set_remove(&set, chars[0], chars[0]);
		step = grammar_char(b, &set);
		grammar_link(b, nodes[i], step.start);
		grammar_link(b, step.end, nodes[0]);
		if (i) {
			step = grammar_character(b, chars[0]);
			grammar_link(b, nodes[i], step.start);
			grammar_link(b, step.end, nodes[1]);
		}
		if (i + 1 < n) {
			step = grammar_character(b, chars[i]);
			grammar_link(b, nodes[i], step.start);
			grammar_link(b, step.end, nodes[i + 1]);
		}
		grammar_link(b, nodes[i], whole.end);
	}
	return whole;
}

/* ---- arguments between marks ----------------------------------------------------------------- */

/* A string without quotes: one of an enum, or any. */
static struct grammar_piece plain_string(struct writer *w, const cJSON *schema)
{
	static const char *const enforced[] = {"type", "enum", NULL};
	const cJSON *values = api_member(schema, "enum"), *value;
	struct grammar_piece piece = grammar_never(w->b);

	grammar_json_only(w->json, schema, enforced);
	if (!cJSON_IsArray(values))
		return text_without(w->b, w->format->value_end);
	cJSON_ArrayForEach(value, values) {
		if (cJSON_IsString(value))
			piece = grammar_either(w->b, piece, grammar_text(w->b, value->valuestring));
	}
	return piece;
}

static struct grammar_piece argument(struct writer *w, const cJSON *parameters, const cJSON *schema)
{
	const struct reply_format *f = w->format;
	bool string = reply_is_text(schema), lines = !f->value;
	struct grammar_piece value =
		string ? plain_string(w, schema)
		       : grammar_call(w->b, grammar_json_schema(w->json, parameters, schema));
	struct grammar_piece piece = marked(w, f->key);

	piece = grammar_seq(w->b, piece, grammar_text(w->b, schema->string));
	piece = grammar_seq(w->b, piece, marked(w, f->key_end));
	if (w->tools == REPLY_DSML)
		piece = grammar_seq(w->b, piece, grammar_text(w->b, string ? "true" : "false"));
	else
		piece = grammar_seq(w->b, piece, grammar_text(w->b, "\n"));
	piece = grammar_seq(w->b, piece, marked(w, f->value));
	piece = grammar_seq(w->b, piece, value);
	if (lines)
		piece = grammar_seq(w->b, piece, grammar_text(w->b, "\n"));
	piece = grammar_seq(w->b, piece, marked(w, f->value_end));
	return grammar_seq(w->b, piece, grammar_text(w->b, "\n"));
}

static bool is_required(const cJSON *parameters, const char *name)
{
	const cJSON *item;

	cJSON_ArrayForEach(item, api_member(parameters, "required")) {
		if (cJSON_IsString(item) && !strcmp(item->valuestring, name))
			return true;
	}
	return false;
}

/* The properties in schema order; the model may leave out those that are not required. */
static struct grammar_piece arguments_in_tags(struct writer *w, const cJSON *parameters)
{
	/* There are never additional ones. */
	static const char *const enforced[] = {"type", "properties", "required",
					       "additionalProperties", NULL};
	struct grammar_piece piece = grammar_empty(w->b), one;
	const cJSON *schema;

	grammar_json_only(w->json, parameters, enforced);

	/* The line break that ends a name may be part of its end mark. */
	if (w->format->name_end[0] != '\n')
		piece = grammar_text(w->b, "\n");
	cJSON_ArrayForEach(schema, api_member(parameters, "properties")) {
		one = argument(w, parameters, schema);
		if (!is_required(parameters, schema->string))
			one = grammar_optional(w->b, one);
		piece = grammar_seq(w->b, piece, one);
	}
	return piece;
}

/* ---- calls ----------------------------------------------------------------------------------- */

/*
 * Arguments are an object, whatever else the schema allows. A function without a schema, or with an
 * empty one, has no parameters.
 */
static struct grammar_piece arguments_in_json(struct writer *w, const cJSON *parameters)
{
	if (!parameters || (cJSON_IsObject(parameters) && !parameters->child))
		return grammar_text(w->b, "{}");
	return grammar_call(w->b, grammar_json_object_schema(w->json, parameters, parameters));
}

/* One call of one tool. */
static struct grammar_piece call_of(struct writer *w, const cJSON *function)
{
	const struct reply_format *f = w->format;
	const cJSON *parameters = api_member(function, "parameters");
	struct grammar_piece piece =
		grammar_seq(w->b, marked(w, f->begin), marked(w, f->before_name));

	piece = grammar_seq(w->b, piece,
			    grammar_text(w->b, api_member(function, "name")->valuestring));
	if (w->tools == REPLY_KIMI) {
		piece = grammar_seq(w->b, piece, grammar_text(w->b, ":"));
		piece = grammar_seq(w->b, piece,
				    grammar_repeat(w->b, grammar_byte(w->b, '0', '9'), 1, 4));
	}
	piece = grammar_seq(w->b, piece, marked(w, f->name_end));
	if (f->syntax == SYNTAX_TAGS)
		piece = grammar_seq(w->b, piece, arguments_in_tags(w, parameters));
	else
		piece = grammar_seq(w->b, piece, arguments_in_json(w, parameters));
	piece = grammar_seq(w->b, piece, marked(w, f->after));
	/* The end of a message ends the answer. */
	return f->syntax == SYNTAX_HARMONY ? piece : grammar_seq(w->b, piece, marked(w, f->end));
}

/*
 * Sets w->json for a function: what cannot be enforced is refused only in the schemas of functions
 * whose arguments must always be valid. false: out of memory.
 */
static bool choose_json(struct writer *w, const cJSON *function)
{
	/* On one line, as templates print calls and models were trained. */
	const struct grammar_json_options options = {
		.strict = cJSON_IsTrue(api_member(function, "strict")),
		.whitespace = " ?",
	};
	struct grammar_json **json = &w->shared[options.strict];

	if (!*json)
		*json = grammar_json_new(w->b, &options);
	if (!*json)
		grammar_fail(w->b, -ENOMEM, "out of memory");
	w->json = *json;
	return w->json;
}

/* The schemas are compiled once all functions have asked for theirs. */
static void finish_json(struct writer *w)
{
	for (unsigned i = 0; i < 2; i++) {
		if (!w->shared[i])
			continue;
		grammar_json_finish(w->shared[i]);
		grammar_json_free(w->shared[i]);
	}
}

void tool_grammar(struct grammar_builder *b, const struct api_params *p, enum reply_tools tools,
		  const struct txda_tokenizer *tokenizer, uint32_t *ret_root)
{
	struct writer w = {
		.b = b,
		.format = reply_format(tools),
		.tools = tools,
		.tokenizer = tokenizer,
	};
	uint32_t root = grammar_rule(b, "tool calls"), one = grammar_rule(b, "a tool call");
	struct grammar_piece piece = grammar_never(b), more;
	const cJSON *tool;

	*ret_root = root;
	cJSON_ArrayForEach(tool, p->tools) {
		const cJSON *function = api_member(tool, "function");

		if (p->tool_choice == API_TOOLS_NAMED &&
		    strcmp(api_member(function, "name")->valuestring, p->tool_name))
			continue;
		if (!choose_json(&w, function))
			break;
		piece = grammar_either(b, piece, call_of(&w, function));
	}
	grammar_define(b, one, piece);
	finish_json(&w);
	piece = marked(&w, w.format->section);
	if (tools == REPLY_DSML)
		piece = grammar_seq(b, piece, grammar_text(b, "\n"));
	piece = grammar_seq(b, piece, grammar_call(b, one));
	if (p->parallel_tools && p->tool_choice == API_TOOLS_REQUIRED &&
	    w.format->syntax != SYNTAX_HARMONY) {
		more = grammar_seq(b, marked(&w, w.format->between), grammar_call(b, one));
		piece = grammar_seq(b, piece, grammar_repeat(b, more, 0, MAX_CALLS - 1));
	}
	if (tools == REPLY_DSML)
		piece = grammar_seq(b, piece, grammar_text(b, "\n"));
	grammar_define(b, root, grammar_seq(b, piece, marked(&w, w.format->section_end)));
}
