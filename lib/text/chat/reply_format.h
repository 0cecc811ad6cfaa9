/* SPDX-License-Identifier: MIT */
/*
 * The formats in which models write tool calls and reasoning: one table, used to parse replies
 * (reply_parser.h) and to force calls (the daemon's tool grammar).
 *
 *	hermes       <tool_call>{"name": "f", "arguments": {...}}</tool_call> (Qwen 2.5 and 3)
 *	llama3_json  {"name": "f", "parameters": {...}}, several with ; between them, maybe behind
 *	             <|python_tag|>, and nothing else (Llama 3.x)
 *	pythonic     [f(a=1, b='x'), g()] and nothing else (Llama 3.2 and 4)
 *	deepseek_v3  <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f, then the
 *	             arguments in a ```json block (V3, R1) or f<｜tool▁sep｜>{...} (V3.1),
 *	             <｜tool▁call▁end｜>...<｜tool▁calls▁end｜>
 *	deepseek_v32 <｜DSML｜function_calls><｜DSML｜invoke name="f"><｜DSML｜parameter name="a"
 *	             string="true">x</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜function_calls>
 *	mistral      [TOOL_CALLS]f[ARGS]{...}[TOOL_CALLS]g[ARGS]{...}, with [CALL_ID]ID before
 *	             [ARGS] from some
 *	mistral_list [TOOL_CALLS][{"name": "f", "arguments": {...}}, ...] (of 2024)
 *	glm45        <tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x</arg_value>\n</tool_call>
 *	glm4         f\n{...}, several with <|assistant|> between them (GLM-4 of 2024 and 2025)
 *	internlm     <|action_start|><|plugin|>{"name": "f", "parameters": {...}}<|action_end|>
 *	kimi_k2      <|tool_calls_section_begin|><|tool_call_begin|>functions.f:0
 *	             <|tool_call_argument_begin|>{...}<|tool_call_end|>...<|tool_calls_section_end|>
 *	qwen3_coder  <tool_call><function=f><parameter=a>\nx\n</parameter></function></tool_call>
 *	             (Qwen3-Coder, Qwen3.5)
 *	gpt_oss      messages on channels: <|channel|>analysis<|message|>...<|end|><|start|>assistant
 *	             <|channel|>commentary to=functions.f <|constrain|>json<|message|>{...}<|call|>
 *
 * Sources: the chat templates that the checkpoints ship, and OpenAI's description of harmony.
 * Threads: constant data, pure functions.
 */
#ifndef TXDA_TEXT_REPLY_FORMAT_H
#define TXDA_TEXT_REPLY_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <cjson/cJSON.h>

enum reply_tools {
	REPLY_NO_TOOLS, /* text that looks like a call is content */
	REPLY_HERMES,
	REPLY_LLAMA,
	REPLY_PYTHONIC,
	REPLY_DEEPSEEK,
	REPLY_DSML,
	REPLY_MISTRAL,
	REPLY_MISTRAL_LIST,
	REPLY_GLM,
	REPLY_GLM4,
	REPLY_INTERNLM,
	REPLY_KIMI,
	REPLY_QWEN_XML,
	REPLY_HARMONY,
	REPLY_TOOLS_COUNT
};

enum reply_reasoning {
	REPLY_NO_REASONING,
	REPLY_THINK,	/* <think>...</think> at the beginning */
	REPLY_BRACKETS, /* [THINK]...[/THINK] at the beginning (Magistral) */
	REPLY_CHANNELS, /* messages on the channel "analysis" (gpt-oss) */
	REPLY_REASONING_COUNT
};

/* The syntax of a call. */
enum reply_syntax {
	SYNTAX_NONE,
	SYNTAX_JSON,	/* an object with the name and the arguments */
	SYNTAX_PYTHON,	/* a list of Python calls */
	SYNTAX_NAMED,	/* the name, then a JSON object */
	SYNTAX_TAGS,	/* the name, then each argument between its own marks */
	SYNTAX_HARMONY, /* a message with a recipient */
};

#define REPLY_MAX_MARKS 6

/* Strings are NULL if absent. */
struct reply_format {
	const char *name; /* of --tool-call-parser */
	enum reply_syntax syntax;
	bool whole;			    /* calls are only at the beginning of the content */
	const char *section, *section_end;  /* around all calls */
	const char *begin, *end;	    /* around each */
	const char *between;		    /* between two calls, when they are generated */
	const char *before_name, *name_end; /* around the name */
	const char *after;		    /* the arguments */
	/* Of SYNTAX_TAGS: around the key and the value of each argument. */
	const char *key, *key_end, *value, *value_end;
	/* Marks that are control tokens in some vocabularies; NULL-terminated. */
	const char *marks[REPLY_MAX_MARKS];
};

const struct reply_format *reply_format(enum reply_tools tools);

/*
 * SYNTAX_TAGS: whether a value of this JSON schema is written without quotes, since it can only be
 * a string.
 */
bool reply_is_text(const cJSON *schema);

/* The marks before and after reasoning; NULL for none and for channels. */
const char *reply_think(enum reply_reasoning reasoning);
const char *reply_think_end(enum reply_reasoning reasoning);

/* The parser called @name; false: there is none. "auto" and "none" are handled by the caller. */
bool reply_tools_named(const char *name, enum reply_tools *ret);
bool reply_reasoning_named(const char *name, enum reply_reasoning *ret);

/*
 * The format that a checkpoint's chat template implies: its text contains the marks, since it
 * renders earlier calls with them. REPLY_NO_TOOLS: no known marks.
 */
enum reply_tools reply_tools_of_template(const char *source, size_t len);
enum reply_reasoning reply_reasoning_of_template(const char *source, size_t len);

#endif
