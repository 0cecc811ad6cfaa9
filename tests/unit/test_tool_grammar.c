// SPDX-License-Identifier: MIT
/* Forced tool calls: in every format, what the grammar allows is what the reply parser reads.
 * TXDA_MODELS names the models' directory. */
#include <errno.h>

#include "unit.h"
#include "grammar.h"
#include "grammar_build.h"
#include "reply_parser.h"
#include "tokenizer.h"
#include "work.h"

#define BAR "\xEF\xBD\x9C"
#define LOW "\xE2\x96\x81"

static struct txda_tokenizer *tokenizer;
static struct grammar_vocab *vocab;
static cJSON *functions;

static const char functions_json[] =
	"[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": "
	"\"object\", "
	"\"properties\": {\"s\": {\"type\": \"string\"}, \"n\": {\"type\": \"integer\"}, \"e\": "
	"{\"type\": "
	"\"string\", \"enum\": [\"a<b\", \"c\"]}, \"k\": {\"enum\": [\"x\", \"y\"]}}, "
	"\"required\": [\"s\"], "
	"\"additionalProperties\": "
	"false}}}, {\"type\": \"function\", \"function\": {\"name\": \"g\", \"parameters\": "
	"{\"type\": "
	"\"object\", \"properties\": {}, \"additionalProperties\": false}}}]";

static int set_up(void **state)
{
	static char bytes[256];
	struct grammar_token tokens[256];
	char dir[1024], err[256];

	for (unsigned i = 0; i < 256; i++) {
		bytes[i] = (char)i;
		tokens[i] = (struct grammar_token){.bytes = &bytes[i], .len = 1};
	}
	functions = cJSON_Parse(functions_json);
	snprintf(dir, sizeof(dir), "%s/demo", getenv("TXDA_MODELS"));
	return !functions || grammar_vocab_new(tokens, 256, 256, &vocab) ||
	       txda_tokenizer_load(dir, &tokenizer, err, sizeof(err));
}

static int tear_down(void **state)
{
	cJSON_Delete(functions);
	grammar_vocab_unref(vocab);
	txda_tokenizer_free(tokenizer);
	return 0;
}

/* ---- what comes out of the parser ------------------------------------------------------------ */

static char calls[4096];

static int on_text(void *arg, const char *text, size_t len)
{
	fail_msg("not a call: %.*s", (int)len, text);
	return 0;
}

static int on_call(void *arg, const struct reply_call *call)
{
	strcat(calls, "|");
	strncat(calls, call->name, call->name_len);
	strcat(calls, ":");
	return 0;
}

static int on_arguments(void *arg, unsigned index, const char *text, size_t len)
{
	strncat(calls, text, len);
	return 0;
}

static void parse(enum reply_tools tools, const char *text)
{
	const struct reply_sink sink = {on_text, on_text, on_call, on_arguments, NULL};
	const struct reply_options options = {.tools = tools, .functions = functions};
	struct reply_parser *p = reply_parser_new(&options, &sink);

	assert_non_null(p);
	calls[0] = '\0';
	assert_int_equal(reply_parser_feed(p, text, strlen(text)), 0);
	assert_int_equal(reply_parser_flush(p), 0);
	reply_parser_free(p);
}

/* ---- what the grammar takes ------------------------------------------------------------------ */

/* How many bytes of the text it takes; *whole: the text may end there. */
static size_t taken_of(const struct api_params *params, enum reply_tools tools,
		       enum reply_reasoning reasoning, const char *text, bool *whole)
{
	struct grammar_builder *b = grammar_builder_new();
	struct grammar_matcher *m;
	struct grammar_mask mask;
	struct grammar *g;
	char err[256] = "";
	uint32_t root;
	size_t n = 0;

	assert_non_null(b);
	form_grammar(b, params, tools, reasoning, tokenizer, &root);
	if (grammar_build(b, root, &g, err, sizeof(err)))
		fail_msg("%s: %s", reply_format(tools)->name, err);
	grammar_builder_free(b);
	assert_int_equal(grammar_matcher_new(g, vocab, &m), 0);
	while (text[n] && !grammar_matcher_accept_bytes(m, text + n, 1))
		n++;
	*whole = !text[n] && !grammar_matcher_mask(m, &mask) && mask.end;
	grammar_matcher_free(m);
	grammar_unref(g);
	return n;
}

static size_t taken(enum reply_tools tools, bool parallel, const char *name, const char *text,
		    bool *whole)
{
	const struct api_params params = {
		.tools = functions,
		.tool_choice = name ? API_TOOLS_NAMED : API_TOOLS_REQUIRED,
		.tool_name = (char *)name,
		.parallel_tools = parallel,
	};

	return taken_of(&params, tools, REPLY_NO_REASONING, text, whole);
}

static const struct {
	enum reply_tools tools;
	const char *text; /* of two calls */
	const char *calls;
} samples[] = {
	{REPLY_HERMES,
	 "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"x\", \"n\": 1}}\n</tool_call>\n"
	 "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>",
	 "|f:{\"s\": \"x\", \"n\": 1}|g:{}"},
	{REPLY_LLAMA,
	 "{\"name\": \"f\", \"parameters\": {\"s\": \"x\"}}; {\"name\": \"g\", \"parameters\": {}}",
	 "|f:{\"s\": \"x\"}|g:{}"},
	{REPLY_DEEPSEEK,
	 "<" BAR "tool" LOW "calls" LOW "begin" BAR "><" BAR "tool" LOW "call" LOW "begin" BAR
	 ">function<" BAR "tool" LOW "sep" BAR ">f\n```json\n{\"s\": \"x\"}\n```<" BAR "tool" LOW
	 "call" LOW "end" BAR ">\n<" BAR "tool" LOW "call" LOW "begin" BAR ">function<" BAR
	 "tool" LOW "sep" BAR ">g\n```json\n{}\n```<" BAR "tool" LOW "call" LOW "end" BAR "><" BAR
	 "tool" LOW "calls" LOW "end" BAR ">",
	 "|f:{\"s\": \"x\"}|g:{}"},
	{REPLY_DSML,
	 "<" BAR "DSML" BAR "function_calls>\n<" BAR "DSML" BAR "invoke name=\"f\">\n<" BAR
	 "DSML" BAR "parameter name=\"s\" string=\"true\">1 < 2</" BAR "DSM</" BAR "DSML" BAR
	 "parameter>\n<" BAR "DSML" BAR "parameter name=\"n\" string=\"false\">3</" BAR "DSML" BAR
	 "parameter>\n</" BAR "DSML" BAR "invoke>\n<" BAR "DSML" BAR "invoke name=\"g\">\n</" BAR
	 "DSML" BAR "invoke>\n</" BAR "DSML" BAR "function_calls>",
	 "|f:{\"s\": \"1 < 2</" BAR "DSM\", \"n\": 3}|g:{}"},
	{REPLY_MISTRAL, "[TOOL_CALLS]f[ARGS]{\"s\": \"x\"}[TOOL_CALLS]g[ARGS]{}",
	 "|f:{\"s\": \"x\"}|g:{}"},
	{REPLY_MISTRAL_LIST,
	 "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"s\": \"x\"}}][TOOL_CALLS]"
	 "[{\"name\": \"g\", \"arguments\": {}}]",
	 "|f:{\"s\": \"x\"}|g:{}"},
	{REPLY_GLM,
	 "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>a "
	 "<b></arg_\n</arg_value>\n<arg_key>e</arg_key>\n"
	 "<arg_value>a<b</arg_value>\n</tool_call>\n<tool_call>g\n</tool_call>",
	 "|f:{\"s\": \"a <b></arg_\\n\", \"e\": \"a<b\"}|g:{}"},
	{REPLY_GLM4, "f\n{\"s\": \"x\"}<|assistant|>g\n{}", "|f:{\"s\": \"x\"}|g:{}"},
	{REPLY_INTERNLM,
	 "<|action_start|><|plugin|>\n{\"name\": \"f\", \"parameters\": {\"s\": "
	 "\"x\"}}<|action_end|>"
	 "<|action_start|><|plugin|>\n{\"name\": \"g\", \"parameters\": {}}<|action_end|>",
	 "|f:{\"s\": \"x\"}|g:{}"},
	{REPLY_KIMI,
	 "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
	 "{\"s\": \"x\"}<|tool_call_end|><|tool_call_begin|>functions.g:12"
	 "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
	 "|f:{\"s\": \"x\"}|g:{}"},
	{REPLY_QWEN_XML,
	 "<tool_call>\n<function=f>\n<parameter=s>\n<</p></parametex\n</"
	 "parameter>\n<parameter=n>\n-7\n"
	 "</parameter>\n<parameter=k>\nx\n</parameter>\n</function>\n</"
	 "tool_call>\n<tool_call>\n<function=g>\n</function>\n</"
	 "tool_call>",
	 "|f:{\"s\": \"<</p></parametex\", \"n\": -7, \"k\": \"x\"}|g:{}"},
	{REPLY_HARMONY,
	 "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"s\": \"x\"}",
	 "|f:{\"s\": \"x\"}"},
};

TEST(calls_are_allowed_and_read)
{
	bool whole;

	for (size_t i = 0; i < ARRAY_SIZE(samples); i++) {
		const char *text = samples[i].text;
		size_t n = taken(samples[i].tools, true, NULL, text, &whole);

		if (n < strlen(text) || !whole)
			fail_msg("%s: %s\nis taken as far as %zu",
				 reply_format(samples[i].tools)->name, text, n);
		parse(samples[i].tools, text);
		assert_string_equal(calls, samples[i].calls);
		/* Not more than one where one is asked for, and of that name. */
		if (samples[i].tools == REPLY_HARMONY)
			continue;
		assert_true(taken(samples[i].tools, false, NULL, text, &whole) < strlen(text));
		assert_true(taken(samples[i].tools, false, "g", text, &whole) < strlen(text) / 2);
	}
}

TEST(schemas_hold_between_marks)
{
	static const struct {
		enum reply_tools tools;
		const char *text;
		size_t left; /* bytes, from the first that is wrong */
	} wrong[] = {
		/* Neither of the enum; no number; a required one is left out. */
		{REPLY_GLM,
		 "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value></arg_value>\n<arg_key>e</"
		 "arg_key>\n<arg_value>b",
		 1},
		{REPLY_QWEN_XML,
		 "<tool_call>\n<function=f>\n<parameter=s>\n\n</parameter>\n<parameter=n>\nx", 1},
		{REPLY_GLM, "<tool_call>f\n</tool_call>", 11},
		{REPLY_QWEN_XML, "<tool_call>\n<function=h>", 2},
	};
	bool whole;

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		assert_int_equal(taken(wrong[i].tools, true, NULL, wrong[i].text, &whole),
				 strlen(wrong[i].text) - wrong[i].left);
}

/* Whether a forced call of a function of @list may have the arguments. */
static bool takes_arguments(const char *list, const char *name, const char *arguments)
{
	cJSON *tools = cJSON_Parse(list);
	const struct api_params params = {
		.tools = tools,
		.tool_choice = API_TOOLS_NAMED,
		.tool_name = (char *)name,
	};
	char text[256];
	bool whole;

	assert_non_null(tools);
	snprintf(text, sizeof(text),
		 "<tool_call>\n{\"name\": \"%s\", \"arguments\": %s}\n</tool_call>", name,
		 arguments);
	taken_of(&params, REPLY_HERMES, REPLY_NO_REASONING, text, &whole);
	cJSON_Delete(tools);
	return whole;
}

#define FUNCTION(members) "{\"type\": \"function\", \"function\": {\"name\": " members "}}"

/* Whatever the schema is; without one there are no parameters. */
TEST(arguments_are_objects)
{
	static const struct {
		const char *function, *good, *bad;
	} cases[] = {
		{FUNCTION("\"f\""), "{}", "{\"a\": 1}"},
		{FUNCTION("\"f\", \"parameters\": null"), "{}", "\"a\""},
		{FUNCTION("\"f\", \"parameters\": {}"), "{}", "{\"a\": 1}"},
		{FUNCTION("\"f\", \"parameters\": {}"), "{}", "\"a\""},
		{FUNCTION("\"f\", \"parameters\": {\"type\": [\"object\", \"null\"]}"),
		 "{\"a\": 1}", "null"},
		{FUNCTION("\"f\", \"parameters\": {\"description\": \"x\"}"), "{\"a\": 1}", "[]"},
		{FUNCTION("\"f\", \"parameters\": {\"properties\": {\"a\": {\"type\": "
			  "\"integer\"}}}"),
		 "{\"a\": 1}", "{\"b\": 1}"},
		{FUNCTION("\"f\", \"parameters\": {\"anyOf\": [{\"type\": \"string\"}, "
			  "{\"properties\": "
			  "{\"a\": {\"type\": \"integer\"}}, \"required\": [\"a\"]}]}"),
		 "{\"a\": 1}", "\"a\""},
		{FUNCTION("\"f\", \"parameters\": {\"$ref\": \"#/$defs/p\", \"$defs\": {\"p\": "
			  "{\"properties\": {\"a\": {\"type\": \"integer\"}}}}}"),
		 "{\"a\": 1}", "{\"a\": \"x\"}"},
	};
	char list[512];

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		snprintf(list, sizeof(list), "[%s]", cases[i].function);
		if (!takes_arguments(list, "f", cases[i].good))
			fail_msg("%s does not take %s", list, cases[i].good);
		if (takes_arguments(list, "f", cases[i].bad))
			fail_msg("%s takes %s", list, cases[i].bad);
	}
}

/* Keywords that cannot be enforced are refused in the schemas of strict functions only. */
TEST(strictness_is_the_functions_own)
{
#define UNIQUE                                                                                     \
	"\"parameters\": {\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"array\", "    \
	"\"uniqueItems\": true}}}"
	static const char *const good = "[" FUNCTION("\"f\", " UNIQUE) ", " FUNCTION(
		"\"g\", \"strict\": true, \"parameters\": {\"type\": \"object\", "
		"\"properties\": {\"n\": {\"type\": \"integer\"}}, \"required\": [\"n\"]}") "]";
	struct api_params params = {.tool_choice = API_TOOLS_REQUIRED};
	cJSON *tools = cJSON_Parse(good);
	struct grammar_builder *b;
	struct grammar *g = NULL;
	char err[256] = "";
	uint32_t root;
	bool whole;

	params.tools = tools;
	assert_true(takes_arguments(good, "f", "{\"a\": [1]}"));
	assert_true(takes_arguments(good, "g", "{\"n\": 1}"));
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(
			taken_of(&params, REPLY_HERMES, REPLY_NO_REASONING,
				 i ? "<tool_call>\n{\"name\": \"g\", \"arguments\": {\"n\": \"x\""
				   : "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1",
				 &whole),
			45);
	cJSON_Delete(tools);
	tools = cJSON_Parse("[" FUNCTION("\"f\", \"strict\": true, " UNIQUE) "]");
	params.tools = tools;
	b = grammar_builder_new();
	form_grammar(b, &params, REPLY_HERMES, REPLY_NO_REASONING, tokenizer, &root);
	assert_int_equal(grammar_build(b, root, &g, err, sizeof(err)), -EINVAL);
	assert_says(err, "uniqueItems");
	grammar_builder_free(b);
	cJSON_Delete(tools);
}

/* What comes before: a message on the channel "analysis", or none. */
TEST(channels_come_before)
{
	static const char analysis[] =
		"<|channel|>analysis<|message|>Hm < so.<|end|><|start|>assistant";
	static const char final[] = "<|channel|>final<|message|>{\"a\": 1}";
	static const char call[] =
		"<|channel|>commentary to=functions.g <|constrain|>json<|message|>{}";
	const struct api_params form = {.format = {.form = API_FORM_OBJECT}};
	const struct api_params tools = {.tools = functions, .tool_choice = API_TOOLS_REQUIRED};
	const struct {
		const struct api_params *params;
		const char *before, *text;
		bool taken;
	} cases[] = {
		{&form, "", final, true},	  {&form, analysis, final, true},
		{&form, "", "{\"a\": 1}", false}, {&form, analysis, call, false},
		{&tools, "", call, true},	  {&tools, analysis, call, true},
		{&tools, analysis, final, false},
	};
	char text[256];
	bool whole;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		snprintf(text, sizeof(text), "%s%s", cases[i].before, cases[i].text);
		taken_of(cases[i].params, REPLY_HARMONY, REPLY_CHANNELS, text, &whole);
		assert_int_equal(whole, cases[i].taken);
	}
}

/*
 * Between marks, strings have no schema but their list: the rest is refused when strict, or named.
 */
TEST(constraints_between_marks)
{
	static const struct {
		const char *schema, *skipped; /* of a string; NULL: refused */
		bool strict;
	} cases[] = {
		{"{\"type\":\"string\",\"enum\":[\"a\"],\"description\":\"d\"}", "", true},
		{"{\"type\":\"string\",\"minLength\":3}", NULL, true},
		{"{\"type\":\"string\",\"minLength\":3}", "minLength", false},
		{"{\"type\":\"string\",\"pattern\":\"a\"}", "pattern", false},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct grammar_builder *b = grammar_builder_new();
		struct api_params p = {.tool_choice = API_TOOLS_REQUIRED};
		struct grammar *g = NULL;
		char text[512], err[256] = "";
		cJSON *tools;
		uint32_t root;

		snprintf(text, sizeof(text),
			 "[{\"function\":{\"name\":\"f\",\"strict\":%s,\"parameters\":{\"type\":"
			 "\"object\",\"properties\":{\"s\":%s}}}}]",
			 cases[i].strict ? "true" : "false", cases[i].schema);
		p.tools = tools = cJSON_Parse(text);
		form_grammar(b, &p, REPLY_QWEN_XML, REPLY_NO_REASONING, tokenizer, &root);
		if (grammar_build(b, root, &g, err, sizeof(err)) && cases[i].skipped)
			fail_msg("%s: %s", text, err);
		if (cases[i].skipped)
			assert_string_equal(grammar_skipped(g), cases[i].skipped);
		else
			assert_says(err, "\"minLength\", which cannot be enforced");
		grammar_unref(g);
		grammar_builder_free(b);
		cJSON_Delete(tools);
	}
}

TEST_MAIN_ALL(set_up, tear_down)
