// SPDX-License-Identifier: MIT
/* Tool calls as grammars, each in the format that the model was trained on. */
#include <errno.h>
#include <string.h>

#include "api_value.h"
#include "grammar_build.h"
#include "grammar_schema.h"
#include "work.h"
#include "tokenizer.h"

#define MAX_CALLS 32 /* of one answer */

/* How a call is written: marks and texts around the name and the arguments. */
struct style {
	const char *first; /* before all calls */
	const char *begin; /* of a call, a mark */
	const char *before_name;
	const char *name_end;
	const char *after;   /* the arguments */
	const char *end;     /* of a call, a mark */
	const char *between; /* two calls */
	const char *last;    /* behind all calls */
};

/* A mark: the control token of that name where the vocabulary has one, else its text. */
static struct grammar_piece mark(struct grammar_builder *b, const struct txda_tokenizer *tokenizer,
				 const char *text)
{
	uint32_t id = txda_tokenizer_piece_id(tokenizer, text, strlen(text));

	if (*text && id != TXDA_TOKEN_NONE && txda_tokenizer_is_special(tokenizer, id))
		return grammar_token(b, id);
	return grammar_text(b, text);
}

static void style_of(enum reply_tools tools, struct style *ret)
{
	const struct style hermes = {
		.first = "",
		.begin = reply_mark(REPLY_HERMES, 0),
		.before_name = "\n{\"name\": \"",
		.name_end = "\", \"arguments\": ",
		.after = "}\n",
		.end = reply_mark(REPLY_HERMES, 1),
		.between = "\n",
		.last = "",
	};
	const struct style llama = {
		.first = "",
		.begin = "",
		.before_name = "{\"name\": \"",
		.name_end = "\", \"parameters\": ",
		.after = "}",
		.end = "",
		.between = "; ",
		.last = "",
	};
	const struct style deepseek = {
		.first = reply_mark(REPLY_DEEPSEEK, 0),
		.begin = reply_mark(REPLY_DEEPSEEK, 2),
		.before_name = "function",
		.name_end = "\n```json\n",
		.after = "\n```",
		.end = reply_mark(REPLY_DEEPSEEK, 3),
		.between = "\n",
		.last = reply_mark(REPLY_DEEPSEEK, 1),
	};

	*ret = tools == REPLY_DEEPSEEK ? deepseek : tools == REPLY_LLAMA ? llama : hermes;
}

/* One call of one tool. */
static struct grammar_piece call_of(struct grammar_builder *b, struct grammar_json *j,
				    const struct style *style, enum reply_tools tools,
				    const cJSON *function, const struct txda_tokenizer *tokenizer)
{
	const cJSON *parameters = api_member(function, "parameters");
	struct grammar_piece piece = mark(b, tokenizer, style->begin);
	uint32_t arguments = parameters ? grammar_json_schema(j, parameters, parameters)
					: grammar_json_object(j);

	piece = grammar_seq(b, piece, grammar_text(b, style->before_name));
	if (tools == REPLY_DEEPSEEK)
		piece = grammar_seq(b, piece, mark(b, tokenizer, reply_mark(REPLY_DEEPSEEK, 4)));
	piece = grammar_seq(b, piece, grammar_text(b, api_member(function, "name")->valuestring));
	piece = grammar_seq(b, piece, grammar_text(b, style->name_end));
	piece = grammar_seq(b, piece, grammar_call(b, arguments));
	piece = grammar_seq(b, piece, grammar_text(b, style->after));
	return grammar_seq(b, piece, mark(b, tokenizer, style->end));
}

/* Whether a function's arguments must be valid in every point. */
static bool is_strict(const cJSON *tools)
{
	const cJSON *tool;

	cJSON_ArrayForEach(tool, tools) {
		if (cJSON_IsTrue(api_member(api_member(tool, "function"), "strict")))
			return true;
	}
	return false;
}

void tool_grammar(struct grammar_builder *b, const struct api_params *p, enum reply_tools tools,
		  const struct txda_tokenizer *tokenizer, uint32_t *ret_root)
{
	/* As templates print calls, and so models were trained: on one line. */
	const struct grammar_json_options options = {
		.strict = is_strict(p->tools),
		.whitespace = " ?",
	};
	struct grammar_json *j = grammar_json_new(b, &options);
	uint32_t root = grammar_rule(b, "tool calls"), one = grammar_rule(b, "a tool call");
	struct grammar_piece piece = grammar_never(b), more;
	struct style style;
	const cJSON *tool;

	*ret_root = root;
	if (!j) {
		grammar_fail(b, -ENOMEM, "out of memory");
		return;
	}
	style_of(tools, &style);
	cJSON_ArrayForEach(tool, p->tools) {
		const cJSON *function = api_member(tool, "function");

		if (p->tool_choice == API_TOOLS_NAMED &&
		    strcmp(api_member(function, "name")->valuestring, p->tool_name))
			continue;
		piece = grammar_either(b, piece, call_of(b, j, &style, tools, function, tokenizer));
	}
	grammar_define(b, one, piece);
	grammar_json_finish(j);
	grammar_json_free(j);
	piece = grammar_seq(b, mark(b, tokenizer, style.first), grammar_call(b, one));
	if (p->parallel_tools && p->tool_choice == API_TOOLS_REQUIRED) {
		more = grammar_seq(b, grammar_text(b, style.between), grammar_call(b, one));
		piece = grammar_seq(b, piece, grammar_repeat(b, more, 0, MAX_CALLS - 1));
	}
	grammar_define(b, root, grammar_seq(b, piece, mark(b, tokenizer, style.last)));
}
