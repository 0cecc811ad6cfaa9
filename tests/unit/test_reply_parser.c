// SPDX-License-Identifier: MIT
/* Replies taken apart, whole and cut into pieces at every place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>

#include "reply_parser.h"

/* What came out, written down: R[reasoning] C[content] name(arguments). */
struct result {
	char reasoning[4096], content[4096], calls[4096];
	unsigned n_calls;
	bool stop; /* the sink refuses calls */
};

static int on_reasoning(void *arg, const char *text, size_t len)
{
	struct result *r = arg;

	assert_true(len > 0);
	strncat(r->reasoning, text, len);
	return 0;
}

static int on_content(void *arg, const char *text, size_t len)
{
	struct result *r = arg;

	assert_true(len > 0);
	strncat(r->content, text, len);
	return 0;
}

static int on_call(void *arg, const struct reply_call *call)
{
	struct result *r = arg;

	if (r->stop)
		return -ECANCELED;
	assert_int_equal(call->index, r->n_calls);
	r->n_calls++;
	strcat(r->calls, "|");
	strncat(r->calls, call->name, call->name_len);
	if (call->id) {
		strcat(r->calls, "#");
		strncat(r->calls, call->id, call->id_len);
	}
	strcat(r->calls, ":");
	return 0;
}

static int on_arguments(void *arg, unsigned index, const char *text, size_t len)
{
	struct result *r = arg;

	assert_true(len > 0);
	assert_int_equal(index + 1, r->n_calls);
	strncat(r->calls, text, len);
	return 0;
}

static void parse(const struct reply_options *options, const char *text, size_t cut, size_t every,
		  struct result *ret)
{
	const struct reply_sink sink = {on_reasoning, on_content, on_call, on_arguments, ret};
	struct reply_parser *p;
	size_t len = strlen(text);

	memset(ret, 0, sizeof(*ret));
	p = reply_parser_new(options, &sink);
	assert_non_null(p);
	if (every) {
		for (size_t at = 0; at < len; at += every)
			assert_int_equal(reply_parser_feed(p, text + at,
							   len - at < every ? len - at : every),
					 0);
	} else {
		assert_int_equal(reply_parser_feed(p, text, cut), 0);
		assert_int_equal(reply_parser_feed(p, text + cut, len - cut), 0);
	}
	assert_int_equal(reply_parser_flush(p), 0);
	reply_parser_free(p);
}

/* However it is cut, the same comes out. */
static void check(const struct reply_options *options, const char *text, const char *reasoning,
		  const char *content, const char *calls)
{
	static struct result r;

	for (size_t cut = 0; cut <= strlen(text) + 7; cut++) {
		if (cut <= strlen(text))
			parse(options, text, cut, 0, &r);
		else
			parse(options, text, 0, cut - strlen(text), &r);
		if (strcmp(r.reasoning, reasoning) || strcmp(r.content, content) ||
		    strcmp(r.calls, calls))
			fail_msg("%s\ncut at %zu: R[%s] C[%s] %s\nnot R[%s] C[%s] %s", text, cut,
				 r.reasoning, r.content, r.calls, reasoning, content, calls);
	}
}

static void reasoning_is_split_off(void **state)
{
	const struct reply_options think = {.reasoning = REPLY_THINK};
	const struct reply_options thinking = {.reasoning = REPLY_THINK, .in_reasoning = true};
	const struct reply_options not = {0};

	(void)state;
	check(&think, "<think>\nLet me see.\n\nYes.\n</think>\n\nIt is so.\n",
	      "Let me see.\n\nYes.", "It is so.\n", "");
	check(&think, "\n<think>a</think>b", "a", "b", "");
	check(&think, "No thought.", "", "No thought.", "");
	check(&think, "  <thin ice", "", "  <thin ice", "");
	check(&think, "<think>never done\n", "never done", "", "");
	check(&think, "<think>\n\n</think>\n\nHi", "", "Hi", "");
	check(&think, "<think>a </thin</think>b</think>", "a </thin", "b</think>", "");
	check(&think, "", "", "", "");
	check(&thinking, "\nso\n</think>\nthus", "so", "thus", "");
	check(&thinking, "so", "so", "", "");
	check(&not, "<think>a</think>b", "", "<think>a</think>b", "");
}

static void hermes(void **state)
{
	const struct reply_options o = {.tools = REPLY_HERMES};
	const struct reply_options think = {.tools = REPLY_HERMES, .reasoning = REPLY_THINK};

	(void)state;
	check(&o, "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>", "", "",
	      "|f:{\"a\": 1}");
	check(&o,
	      "I look. "
	      "\n<tool_call>{\"name\":\"f\",\"arguments\":{\"s\":\"}\\\"</tool_call>\"}}</"
	      "tool_call>\n"
	      "<tool_call>\n{\"arguments\": {\"x\": [1, {}]}, \"name\": \"g.h\"}\n</tool_call>\n",
	      "", "I look.", "|f:{\"s\":\"}\\\"</tool_call>\"}|g.h:{\"x\": [1, {}]}");
	check(&o, "<tool_call>{\"name\": \"n\\u00e9\\n\", \"other\": [1,\"}\"], \"arguments\": {}}",
	      "", "", "|n\xC3\xA9\n:{}");
	check(&o, "<tool_call>{\"name\": \"f\"}</tool_call> and more", "", "and more", "|f:");
	/* Arguments as a JSON text in a string. */
	check(&o,
	      "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": "
	      "\\\"\\u00e9\\ud83d\\ude00\\\"}\"}",
	      "", "", "|f:{\"a\": \"\xC3\xA9\xF0\x9F\x98\x80\"}");
	/* What is no call is content. */
	check(&o, "a <tool_call>b</tool_call> c", "", "a<tool_call>b</tool_call> c", "");
	check(&o, "<tool_call>{\"nam\": 1}</tool_call>", "", "<tool_call>{\"nam\": 1}</tool_call>",
	      "");
	check(&o, "<tool_call>{\"name\": \"\", ", "", "<tool_call>{\"name\": \"\", ", "");
	/* Cut off: neither is content. */
	check(&o, "a <tool_call>{\"na", "", "a", "");
	check(&o, "1 < 2 <tool", "", "1 < 2 <tool", "");
	check(&o, "<tool_call>{\"name\": \"f\", \"arguments\": {}}\n</tool", "", "", "|f:{}");
	/* Cut off, or broken, within the arguments. */
	check(&o, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": ", "", "", "|f:{\"a\": ");
	check(&o,
	      "<tool_call>{\"name\": \"f\", \"arguments\": {} "
	      "oops}</tool_call><tool_call>{\"name\": \"g\", "
	      "\"arguments\": 3}</tool_call>",
	      "", "", "|f:{}|g:3");
	check(&think,
	      "<think>\nhm <tool_call>\n</think>\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": "
	      "{}}\n"
	      "</tool_call>",
	      "hm <tool_call>", "", "|f:{}");
}

static void llama(void **state)
{
	const struct reply_options o = {.tools = REPLY_LLAMA};

	(void)state;
	check(&o, "{\"name\": \"f\", \"parameters\": {\"a\": \"b;c\"}}", "", "",
	      "|f:{\"a\": \"b;c\"}");
	check(&o,
	      " <|python_tag|>{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", "
	      "\"parameters\": {}}",
	      "", "", "|f:{}|g:{}");
	check(&o, "{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}", "", "", "|f:{}");
	check(&o, "Hello {\"name\": \"f\", \"parameters\": {}}", "",
	      "Hello {\"name\": \"f\", \"parameters\": {}}", "");
	check(&o, "{\"answer\": 42}", "", "{\"answer\": 42}", "");
	check(&o, " {x", "", " {x", "");
	check(&o, "<|python", "", "<|python", "");
	check(&o, "  ", "", "  ", "");
}

static void pythonic(void **state)
{
	const struct reply_options o = {.tools = REPLY_PYTHONIC};

	(void)state;
	check(&o, "[f(a=1, b='x\"y', c=[True, None, -2.5e3], d={'k': (1, 2,)}), g()]", "", "",
	      "|f:{\"a\": 1, \"b\": \"x\\\"y\", \"c\": [true,null,-2.5e3], \"d\": "
	      "{\"k\":[1,2]}}|g:{}");
	check(&o, " [ get.weather ( city=\"S\\'F\\n\" ) ] ", "",
	      " [ get.weather ( city=\"S\\'F\\n\" ) ] ", "");
	check(&o, "[f(city=\"S\\'F\\n\\q\")]", "", "", "|f:{\"city\": \"S'F\\n\\\\q\"}");
	check(&o, "[f(x=[])]", "", "", "|f:{\"x\": []}");
	check(&o, "[1, 2]", "", "[1, 2]", "");
	check(&o, "[f]", "", "[f]", "");
	check(&o, "text", "", "text", "");
	check(&o, "[f(a=", "", "", "|f:{\"a\": ");
	check(&o, "[f(a=&), g()] x", "", "", "|f:{\"a\": ");
}

#define BAR	  "\xEF\xBD\x9C"
#define LOW	  "\xE2\x96\x81"
#define CALLS	  "<" BAR "tool" LOW "calls" LOW "begin" BAR ">"
#define CALLS_END "<" BAR "tool" LOW "calls" LOW "end" BAR ">"
#define CALL	  "<" BAR "tool" LOW "call" LOW "begin" BAR ">"
#define CALL_END  "<" BAR "tool" LOW "call" LOW "end" BAR ">"
#define SEP	  "<" BAR "tool" LOW "sep" BAR ">"

static void deepseek(void **state)
{
	const struct reply_options o = {.tools = REPLY_DEEPSEEK, .reasoning = REPLY_THINK};

	(void)state;
	check(&o,
	      "<think>\nt\n</think>\n\nI call. " CALLS CALL "function" SEP
	      "f\n```json\n{\"a\": \"```\"}\n```" CALL_END "\n" CALL "function" SEP
	      "g\n```json\n{}\n```" CALL_END CALLS_END,
	      "t", "I call.", "|f:{\"a\": \"```\"}|g:{}");
	check(&o,
	      CALLS CALL "f" SEP "{\"a\": [1]}" CALL_END CALL "g" SEP "{}" CALL_END CALLS_END
			 "done",
	      "", "done", "|f:{\"a\": [1]}|g:{}");
	check(&o, CALLS CALL "f" SEP CALL_END CALLS_END, "", "", "|f:");
	check(&o, CALLS CALL "function" SEP "f\n```json\n{\"a\"", "", "", "|f:{\"a\"");
	check(&o, "<" BAR "tool" LOW "x", "", "<" BAR "tool" LOW "x", "");
}

static void the_sink_can_stop_it(void **state)
{
	struct result r = {.stop = true};
	const struct reply_sink sink = {on_reasoning, on_content, on_call, on_arguments, &r};
	const struct reply_options o = {.tools = REPLY_HERMES};
	struct reply_parser *p = reply_parser_new(&o, &sink);
	const char *text = "<tool_call>{\"name\": \"f\", \"arguments\": {}}";

	(void)state;
	assert_int_equal(reply_parser_feed(p, text, strlen(text)), -ECANCELED);
	reply_parser_free(p);
}

/* ---- other formats --------------------------------------------------------------------------- */

static cJSON *functions;

static const char functions_json[] =
	"[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": "
	"\"object\", "
	"\"properties\": {\"s\": {\"type\": \"string\"}, \"n\": {\"type\": \"integer\"}, \"o\": "
	"{\"type\": \"object\"}, \"e\": {\"enum\": [\"1\", \"2\"]}, \"u\": {}}}}}, "
	"{\"type\": \"function\", \"function\": {\"name\": \"g\"}}]";

static int read_functions(void **state)
{
	(void)state;
	functions = cJSON_Parse(functions_json);
	return functions ? 0 : -1;
}

static int free_functions(void **state)
{
	(void)state;
	cJSON_Delete(functions);
	return 0;
}

static void mistral(void **state)
{
	const struct reply_options o = {.tools = REPLY_MISTRAL, .reasoning = REPLY_BRACKETS};
	const struct reply_options list = {.tools = REPLY_MISTRAL_LIST};

	(void)state;
	check(&o, "[TOOL_CALLS]f[ARGS]{\"a\": 1}", "", "", "|f:{\"a\": 1}");
	check(&o,
	      "[THINK]hm\n[/THINK]So: [TOOL_CALLS]f[CALL_ID]aB3456789[ARGS]{}[TOOL_CALLS]g{\"x\": "
	      "\"}\"}",
	      "hm", "So:", "|f#aB3456789:{}|g:{\"x\": \"}\"}");
	check(&o, "[TOOL_CALLS]f[ARGS]{}[TOOL_C", "", "", "|f:{}");
	check(&o, "[TOOL_CALLS]f[ARGS]{}[TOOL_CALLS]g[AR", "", "", "|f:{}");
	check(&o, "a [TOOL] b", "", "a [TOOL] b", "");
	check(&list,
	      "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": [1]}, \"id\": "
	      "\"123456789\"}, "
	      "{\"name\": \"g\", \"arguments\": {}}]",
	      "", "", "|f:{\"a\": [1]}|g:{}");
	check(&list, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}, {\"na", "", "", "|f:{}");
	check(&list, "[TOOL_CALLS]f[ARGS]{}", "", "", "|f:{}");
}

static void glm(void **state)
{
	const struct reply_options o = {
		.tools = REPLY_GLM, .reasoning = REPLY_THINK, .functions = functions};

	(void)state;
	check(&o,
	      "<think>t</think>\nYes.\n<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>a "
	      "\"b\"\n1</arg_value>\n"
	      "<arg_key>n</arg_key>\n<arg_value>12</arg_value>\n</tool_call>\n<tool_call>g\n</"
	      "tool_call>",
	      "t", "Yes.", "|f:{\"s\": \"a \\\"b\\\"\\n1\", \"n\": 12}|g:{}");
	check(&o, "<tool_call>f<arg_key>s</arg_key><arg_value>12</arg_value></tool_call>", "", "",
	      "|f:{\"s\": \"12\"}");
	check(&o,
	      "<tool_call>\nh\n<arg_key>x</arg_key><arg_value>12</arg_value><arg_key>y</arg_key>"
	      "<arg_value>twelve</arg_value><arg_key>z</arg_key><arg_value>{\"k\": [True]}"
	      "</arg_value></tool_call>",
	      "", "", "|h:{\"x\": 12, \"y\": \"twelve\", \"z\": \"{\\\"k\\\": [True]}\"}");
	check(&o, "<tool_call>g</tool_call> <tool_", "", "", "|g:{}");
	check(&o, "<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>half a va", "", "",
	      "|f:{\"s\": \"half a va");
	check(&o, "<tool_call>not a call</tool_call>.", "", "<tool_call>not a call</tool_call>.",
	      "");
	check(&o, "<tool_call>f\n<arg_key>s</arg_key>oops</tool_call> and", "", "and",
	      "|f:{\"s\": ");
}

static void qwen_xml(void **state)
{
	const struct reply_options o = {.tools = REPLY_QWEN_XML, .functions = functions};

	(void)state;
	check(&o,
	      "I call.\n<tool_call>\n<function=f>\n<parameter=s>\nline 1\n  line "
	      "2\n\n</parameter>\n"
	      "<parameter=o>\n{\"a\": "
	      "\"</x>\"}\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n"
	      "<function=g>\n</function>\n</tool_call>",
	      "", "I call.", "|f:{\"s\": \"line 1\\n  line 2\\n\", \"o\": {\"a\": \"</x>\"}}|g:{}");
	check(&o,
	      "<tool_call><function=f><parameter=n>\nTrue\n</parameter><parameter=u>\n1.5\n</"
	      "parameter>"
	      "<parameter=e>\n1\n</parameter></function></tool_call>",
	      "", "", "|f:{\"n\": true, \"u\": 1.5, \"e\": \"1\"}");
	check(&o, "<tool_call>\n<function=f>\n<parameter=s>\n<b>&</b> a\\b\t</parameter>", "", "",
	      "|f:{\"s\": \"<b>&</b> a\\\\b\\u0009\"");
	check(&o, "<tool_call>\n<func", "", "", "");
	check(&o, "<tool_call>\n<other>", "", "<tool_call>\n<other>", "");
}

#define DSML	 "<" BAR "DSML" BAR
#define DSML_END "</" BAR "DSML" BAR

static void dsml(void **state)
{
	const struct reply_options o = {.tools = REPLY_DSML, .functions = functions};

	(void)state;
	check(&o,
	      "Look.\n\n" DSML "function_calls>\n" DSML "invoke name=\"f\">\n" DSML
	      "parameter name=\"s\" string=\"true\">5</" BAR "DSML" BAR "parameter>\n" DSML
	      "parameter name=\"n\" string=\"false\">5" DSML_END "parameter>\n" DSML_END
	      "invoke>\n" DSML "invoke name=\"g\">\n" DSML_END "invoke>\n" DSML_END
	      "function_calls>",
	      "", "Look.", "|f:{\"s\": \"5\", \"n\": 5}|g:{}");
	check(&o, DSML "function_calls>\n" DSML "invoke na", "", "", "");
}

static void glm4(void **state)
{
	const struct reply_options o = {.tools = REPLY_GLM4, .functions = functions};

	(void)state;
	check(&o, "f\n{\"s\": \"x\"}", "", "", "|f:{\"s\": \"x\"}");
	check(&o, "f\n{}<|assistant|>g\n{\"a\": 1}\n", "", "", "|f:{}|g:{\"a\": 1}");
	check(&o, "f\n{}<|assis", "", "", "|f:{}");
	check(&o, "f\nis a letter", "", "f\nis a letter", "");
	check(&o, "unknown\n{}", "", "unknown\n{}", "");
	check(&o, "Hello", "", "Hello", "");
}

static void internlm(void **state)
{
	const struct reply_options o = {.tools = REPLY_INTERNLM};

	(void)state;
	check(&o,
	      "Right.<|action_start|><|plugin|>\n{\"name\": \"f\", \"parameters\": {\"a\": "
	      "1}}<|action_end|>\n",
	      "", "Right.", "|f:{\"a\": 1}");
	check(&o, "<|action_start|><|interpreter|>\nprint(1)<|action_end|>", "",
	      "<|action_start|><|interpreter|>\nprint(1)<|action_end|>", "");
}

static void kimi(void **state)
{
	const struct reply_options o = {.tools = REPLY_KIMI};

	(void)state;
	check(&o,
	      "Yes. "
	      "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_"
	      "begin|>"
	      "{\"a\": "
	      "1}<|tool_call_end|><|tool_call_begin|>functions.g.h:1<|tool_call_argument_begin|>{}"
	      "<|tool_call_end|><|tool_calls_section_end|>",
	      "", "Yes.", "|f#functions.f:0:{\"a\": 1}|g.h#functions.g.h:1:{}");
	check(&o,
	      "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_"
	      "begin|>{}"
	      "<|tool_call_end|><|tool_call_begin|>functions.g",
	      "", "", "|f#functions.f:0:{}");
}

static void harmony(void **state)
{
	const struct reply_options o = {.tools = REPLY_HARMONY, .reasoning = REPLY_CHANNELS};
	const struct reply_options none = {.reasoning = REPLY_CHANNELS};

	(void)state;
	check(&o,
	      "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>final<|"
	      "message|>Hi < you",
	      "Think.", "Hi < you", "");
	check(&o,
	      "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|"
	      "message|>b<|end|>"
	      "<|start|>assistant<|channel|>commentary<|message|>I look.<|end|><|start|>assistant"
	      "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"s\": 1}<|call|>",
	      "a\nb", "I look.", "|f:{\"s\": 1}");
	check(&o,
	      " to=functions.f<|channel|>commentary "
	      "<|constrain|>json<|message|>{}<|call|><|start|>assistant"
	      "<|channel|>commentary to=functions.g<|message|>{}",
	      "", "", "|f:{}|g:{}");
	check(&o, "<|channel|>commentary to=python<|message|>1+1<|call|>", "1+1", "", "");
	check(&o, "No channels.", "", "No channels.", "");
	check(&o, "<|channel|>final<|message|>cut<|e", "", "cut", "");
	check(&o, "<|channel|>final<|message|>done<|end|><|start|>assis", "", "done", "");
	check(&none,
	      "<|channel|>analysis<|message|>x<|end|><|start|>assistant<|channel|>final<|message|>"
	      "y<|return|>",
	      "x", "y", "");
}

static void a_second_call_leaves_no_mark(void **state)
{
	const struct reply_options o = {.tools = REPLY_HERMES};
	const char *whole = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
	const char *second = "\n<tool_call>{\"name\": \"";
	char text[200];

	(void)state;
	for (size_t n = 1; n <= strlen(second); n++) {
		snprintf(text, sizeof(text), "%s%.*s", whole, (int)n, second);
		check(&o, text, "", "", "|f:{}");
	}
}

static void templates_tell_the_format(void **state)
{
	static const struct {
		const char *source;
		enum reply_tools tools;
		enum reply_reasoning reasoning;
	} cases[] = {
		{"{% if tools %}<tool_call>{{ x }}</tool_call>", REPLY_HERMES, REPLY_NO_REASONING},
		{"<tool_call>\n<function=...><parameter=...></think>", REPLY_QWEN_XML, REPLY_THINK},
		{"<tool_call>{{ n }}<arg_key>k</arg_key><arg_value>", REPLY_GLM,
		 REPLY_NO_REASONING},
		{"[TOOL_CALLS]{{ n }}[ARGS] [/THINK]", REPLY_MISTRAL, REPLY_BRACKETS},
		{"[TOOL_CALLS][", REPLY_MISTRAL_LIST, REPLY_NO_REASONING},
		{"<|channel|>analysis <|call|>", REPLY_HARMONY, REPLY_CHANNELS},
		{"<|tool_calls_section_begin|>", REPLY_KIMI, REPLY_NO_REASONING},
		{CALLS, REPLY_DEEPSEEK, REPLY_NO_REASONING},
		{"{% for tool in tools %} <|eot_id|>", REPLY_LLAMA, REPLY_NO_REASONING},
		{"{{ messages }}", REPLY_NO_TOOLS, REPLY_NO_REASONING},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(reply_tools_of_template(cases[i].source, strlen(cases[i].source)),
				 cases[i].tools);
		assert_int_equal(
			reply_reasoning_of_template(cases[i].source, strlen(cases[i].source)),
			cases[i].reasoning);
	}
}

static void parsers_have_names(void **state)
{
	enum reply_reasoning reasoning;
	enum reply_tools tools;

	(void)state;
	for (unsigned i = 0; i < REPLY_TOOLS_COUNT; i++) {
		assert_true(reply_tools_named(reply_format(i)->name, &tools));
		assert_int_equal(tools, i);
	}
	assert_false(reply_tools_named("auto", &tools));
	assert_true(reply_reasoning_named("deepseek_r1", &reasoning));
	assert_int_equal(reasoning, REPLY_THINK);
	assert_false(reply_reasoning_named("", &reasoning));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reasoning_is_split_off),
		cmocka_unit_test(hermes),
		cmocka_unit_test(llama),
		cmocka_unit_test(pythonic),
		cmocka_unit_test(deepseek),
		cmocka_unit_test(the_sink_can_stop_it),
		cmocka_unit_test(mistral),
		cmocka_unit_test(glm),
		cmocka_unit_test(qwen_xml),
		cmocka_unit_test(dsml),
		cmocka_unit_test(glm4),
		cmocka_unit_test(internlm),
		cmocka_unit_test(kimi),
		cmocka_unit_test(harmony),
		cmocka_unit_test(a_second_call_leaves_no_mark),
		cmocka_unit_test(templates_tell_the_format),
		cmocka_unit_test(parsers_have_names),
	};

	return cmocka_run_group_tests(tests, read_functions, free_functions);
}
