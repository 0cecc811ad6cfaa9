// SPDX-License-Identifier: MIT
#include "reply_format.h"

#include <string.h>

/* Full-width bar and low line, used in DeepSeek's marks. */
#define BAR "\xEF\xBD\x9C"
#define LOW "\xE2\x96\x81"

#define DSML	 "<" BAR "DSML" BAR
#define DSML_END "</" BAR "DSML" BAR

static const struct reply_format formats[REPLY_TOOLS_COUNT] =
	{
		[REPLY_NO_TOOLS] = {.name = "none"},
		[REPLY_HERMES] =
			{
				.name = "hermes",
				.syntax = SYNTAX_JSON,
				.begin = "<tool_call>",
				.end = "</tool_call>",
				.between = "\n",
				.before_name = "\n{\"name\": \"",
				.name_end = "\", \"arguments\": ",
				.after = "}\n",
				.marks = {"<tool_call>", "</tool_call>"},
			},
		[REPLY_LLAMA] =
			{
				.name = "llama3_json",
				.syntax = SYNTAX_JSON,
				.whole = true,
				.between = "; ",
				.before_name = "{\"name\": \"",
				.name_end = "\", \"parameters\": ",
				.after = "}",
				.marks = {"<|python_tag|>"},
			},
		[REPLY_PYTHONIC] =
			{
				.name = "pythonic",
				.syntax = SYNTAX_PYTHON,
				.whole = true,
				.marks = {"<|python_tag|>"},
			},
		[REPLY_DEEPSEEK] =
			{
				.name = "deepseek_v3",
				.syntax = SYNTAX_NAMED,
				.section = "<" BAR "tool" LOW "calls" LOW "begin" BAR ">",
				.section_end = "<" BAR "tool" LOW "calls" LOW "end" BAR ">",
				.begin = "<" BAR "tool" LOW "call" LOW "begin" BAR ">",
				.end = "<" BAR "tool" LOW "call" LOW "end" BAR ">",
				.between = "\n",
				.before_name = "function<" BAR "tool" LOW "sep" BAR ">",
				.name_end = "\n```json\n",
				.after = "\n```",
				.marks = {"<" BAR "tool" LOW "calls" LOW "begin" BAR ">",
					  "<" BAR "tool" LOW "calls" LOW "end" BAR ">",
					  "<" BAR "tool" LOW "call" LOW "begin" BAR ">",
					  "<" BAR "tool" LOW "call" LOW "end" BAR ">",
					  "<" BAR "tool" LOW "sep" BAR ">"},
			},
		[REPLY_DSML] =
			{
				.name = "deepseek_v32",
				.syntax = SYNTAX_TAGS,
				.section = DSML "function_calls>",
				.section_end = DSML_END "function_calls>",
				.begin = DSML "invoke name=\"",
				.end = DSML_END "invoke>",
				.between = "\n",
				.name_end = "\">",
				.key = DSML "parameter name=\"",
				.key_end = "\" string=\"",
				.value = "\">",
				.value_end = DSML_END "parameter>",
				.marks = {BAR "DSML" BAR},
			},
		[REPLY_MISTRAL] =
			{
				.name = "mistral",
				.syntax = SYNTAX_NAMED,
				.begin = "[TOOL_CALLS]",
				.name_end = "[ARGS]",
				.marks = {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"},
			},
		[REPLY_MISTRAL_LIST] =
			{
				.name = "mistral_list",
				.syntax = SYNTAX_JSON,
				.begin = "[TOOL_CALLS]",
				.before_name = "[{\"name\": \"",
				.name_end = "\", \"arguments\": ",
				.after = "}]",
				.marks = {"[TOOL_CALLS]"},
			},
		[REPLY_GLM] =
			{
				.name = "glm45",
				.syntax = SYNTAX_TAGS,
				.begin = "<tool_call>",
				.end = "</tool_call>",
				.between = "\n",
				.name_end = "\n",
				.key = "<arg_key>",
				.key_end = "</arg_key>",
				.value = "<arg_value>",
				.value_end = "</arg_value>",
				.marks = {"<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>",
					  "<arg_value>", "</arg_value>"},
			},
		[REPLY_GLM4] =
			{
				.name = "glm4",
				.syntax = SYNTAX_NAMED,
				.whole = true,
				.between = "<|assistant|>",
				.name_end = "\n",
				.marks = {"<|assistant|>"},
			},
		[REPLY_INTERNLM] =
			{
				.name = "internlm",
				.syntax = SYNTAX_JSON,
				.begin = "<|action_start|><|plugin|>",
				.end = "<|action_end|>",
				.before_name = "\n{\"name\": \"",
				.name_end = "\", \"parameters\": ",
				.after = "}",
				.marks = {"<|action_start|>", "<|plugin|>", "<|action_end|>"},
			},
		[REPLY_KIMI] =
			{
				.name = "kimi_k2",
				.syntax = SYNTAX_NAMED,
				.section = "<|tool_calls_section_begin|>",
				.section_end = "<|tool_calls_section_end|>",
				.begin = "<|tool_call_begin|>",
				.end = "<|tool_call_end|>",
				.before_name = "functions.",
				.name_end = "<|tool_call_argument_begin|>",
				.marks = {"<|tool_calls_section_begin|>",
					  "<|tool_calls_section_end|>", "<|tool_call_begin|>",
					  "<|tool_call_end|>", "<|tool_call_argument_begin|>"},
			},
		[REPLY_QWEN_XML] =
			{
				.name = "qwen3_coder",
				.syntax = SYNTAX_TAGS,
				.begin = "<tool_call>",
				.end = "</tool_call>",
				.between = "\n",
				.before_name = "\n<function=",
				.name_end = ">",
				.after = "</function>\n",
				.key = "<parameter=",
				.key_end = ">",
				.value_end = "</parameter>",
				.marks = {"<tool_call>", "</tool_call>"},
			},
		[REPLY_HARMONY] =
			{
				.name = "gpt_oss",
				.syntax = SYNTAX_HARMONY,
				.begin = "<|channel|>commentary to=functions.",
				.name_end = " <|constrain|>json<|message|>",
				.end = "<|call|>",
				.between = "<|start|>assistant",
				.marks = {"<|channel|>", "<|message|>", "<|constrain|>",
					  "<|start|>", "<|end|>", "<|call|>"},
			},
};

static const struct {
	const char *names[5], *begin, *end;
} reasonings[REPLY_REASONING_COUNT] = {
	[REPLY_NO_REASONING] = {{"none"}, NULL, NULL},
	[REPLY_THINK] = {{"qwen3", "deepseek_r1", "glm45", "kimi_k2"}, "<think>", "</think>"},
	[REPLY_BRACKETS] = {{"mistral"}, "[THINK]", "[/THINK]"},
	[REPLY_CHANNELS] = {{"gpt_oss"}, NULL, NULL},
};

const struct reply_format *reply_format(enum reply_tools tools)
{
	return &formats[tools];
}

const char *reply_think(enum reply_reasoning reasoning)
{
	return reasonings[reasoning].begin;
}

const char *reply_think_end(enum reply_reasoning reasoning)
{
	return reasonings[reasoning].end;
}

bool reply_tools_named(const char *name, enum reply_tools *ret)
{
	for (unsigned i = 0; i < REPLY_TOOLS_COUNT; i++) {
		if (strcmp(formats[i].name, name))
			continue;
		*ret = (enum reply_tools)i;
		return true;
	}
	return false;
}

bool reply_reasoning_named(const char *name, enum reply_reasoning *ret)
{
	for (unsigned i = 0; i < REPLY_REASONING_COUNT; i++) {
		for (unsigned k = 0; reasonings[i].names[k]; k++) {
			if (strcmp(reasonings[i].names[k], name))
				continue;
			*ret = (enum reply_reasoning)i;
			return true;
		}
	}
	return false;
}

static bool has(const char *source, size_t len, const char *mark)
{
	return memmem(source, len, mark, strlen(mark)) != NULL;
}

enum reply_tools reply_tools_of_template(const char *source, size_t len)
{
	/* A mark, and a second one if the first is ambiguous; more specific entries come first. */
	static const struct {
		const char *mark, *and;
		enum reply_tools tools;
	} signs[] = {
		{"<|channel|>", "<|call|>", REPLY_HARMONY},
		{BAR "DSML" BAR, NULL, REPLY_DSML},
		{"<" BAR "tool" LOW "calls" LOW "begin" BAR ">", NULL, REPLY_DEEPSEEK},
		{"<|tool_calls_section_begin|>", NULL, REPLY_KIMI},
		{"[TOOL_CALLS]", "[ARGS]", REPLY_MISTRAL},
		{"[TOOL_CALLS]", NULL, REPLY_MISTRAL_LIST},
		{"<|action_start|>", "<|plugin|>", REPLY_INTERNLM},
		{"<arg_key>", "<arg_value>", REPLY_GLM},
		{"<function=", "<parameter=", REPLY_QWEN_XML},
		{"<tool_call>", NULL, REPLY_HERMES},
		{"<|observation|>", "tools", REPLY_GLM4},
		{"func_name1(params_name1", NULL, REPLY_PYTHONIC},
		{"<|python_tag|>", NULL, REPLY_LLAMA},
		{"<|eot_id|>", "tools", REPLY_LLAMA},
	};

	for (size_t i = 0; i < sizeof(signs) / sizeof(signs[0]); i++) {
		if (has(source, len, signs[i].mark) &&
		    (!signs[i].and || has(source, len, signs[i].and)))
			return signs[i].tools;
	}
	return REPLY_NO_TOOLS;
}

enum reply_reasoning reply_reasoning_of_template(const char *source, size_t len)
{
	if (has(source, len, "<|channel|>") && has(source, len, "analysis"))
		return REPLY_CHANNELS;
	if (has(source, len, "[/THINK]"))
		return REPLY_BRACKETS;
	return has(source, len, "</think>") ? REPLY_THINK : REPLY_NO_REASONING;
}
