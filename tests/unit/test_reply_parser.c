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

static int on_call(void *arg, unsigned index, const char *name, size_t len)
{
	struct result *r = arg;

	if (r->stop)
		return -ECANCELED;
	assert_int_equal(index, r->n_calls);
	r->n_calls++;
	strcat(r->calls, "|");
	strncat(r->calls, name, len);
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

	for (size_t cut = 0; cut <= strlen(text) + 3; cut++) {
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
	const struct reply_options think = {.reasoning = true};
	const struct reply_options thinking = {.reasoning = true, .in_reasoning = true};
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
	const struct reply_options think = {.tools = REPLY_HERMES, .reasoning = true};

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
	check(&o, "<tool_call>{\"name\": \"\"", "", "<tool_call>{\"name\": \"\"", "");
	check(&o, "<tool_call>{\"na", "", "<tool_call>{\"na", "");
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
	const struct reply_options o = {.tools = REPLY_DEEPSEEK, .reasoning = true};

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

static void marks_are_listed(void **state)
{
	(void)state;
	assert_null(reply_mark(REPLY_NO_TOOLS, 0));
	assert_string_equal(reply_mark(REPLY_HERMES, 1), "</tool_call>");
	assert_null(reply_mark(REPLY_HERMES, 2));
	assert_null(reply_mark(REPLY_HERMES, 3));
	assert_string_equal(reply_mark(REPLY_DEEPSEEK, 4), SEP);
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
		cmocka_unit_test(marks_are_listed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
