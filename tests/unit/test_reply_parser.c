// SPDX-License-Identifier: MIT
/* Replies taken apart, whole, in pieces, and cut off at every place. */

#include <errno.h>

#include "unit.h"
#include "case_file.h"
#include "reply_parser.h"

/* What came out, written down: R[reasoning] C[content] name(arguments). */
struct result {
	char reasoning[4096], content[4096], calls[4096];
	unsigned n_calls;
	bool stop; /* the sink refuses calls */
	bool in_arguments;
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
	ret->in_arguments = reply_parser_in_arguments(p);
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

static void check_reasoning(char **field)
{
	const struct reply_options o = {
		.reasoning = strcmp(field[0], "plain") ? REPLY_THINK : REPLY_NO_REASONING,
		.in_reasoning = !strcmp(field[0], "thinking"),
	};

	check(&o, field[1], field[2], field[3], "");
}

TEST(reasoning_is_split_off)
{
	each_case("replies.txt", "reasoning", check_reasoning);
}

TEST(the_sink_can_stop_it)
{
	struct result r = {.stop = true};
	const struct reply_sink sink = {on_reasoning, on_content, on_call, on_arguments, &r};
	const struct reply_options o = {.tools = REPLY_HERMES};
	struct reply_parser *p = reply_parser_new(&o, &sink);
	const char *text = "<tool_call>{\"name\": \"f\", \"arguments\": {}}";

	assert_int_equal(reply_parser_feed(p, text, strlen(text)), -ECANCELED);
	reply_parser_free(p);
}

static void check_arguments(char **field)
{
	struct reply_options o = {0};
	static struct result r;

	assert_true(reply_tools_named(field[0], &o.tools));
	for (size_t every = 1; every < 8; every++) {
		parse(&o, field[1], 0, every, &r);
		if (r.in_arguments != !strcmp(field[2], "yes"))
			fail_msg("%s in pieces of %zu: %s", field[1], every, r.calls);
	}
}

/* Arguments that have begun are complete or were cut off, in whatever pieces they came. */
TEST(arguments_end)
{
	each_case("replies.txt", "arguments", check_arguments);
}

static cJSON *functions;

static const char functions_json[] =
	"[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": "
	"\"object\", "
	"\"properties\": {\"s\": {\"type\": \"string\"}, \"n\": {\"type\": \"integer\"}, \"o\": "
	"{\"type\": \"object\"}, \"e\": {\"enum\": [\"1\", \"2\"]}, \"u\": {}}}}}, "
	"{\"type\": \"function\", \"function\": {\"name\": \"g\"}}, "
	"{\"type\": \"function\", \"function\": {\"name\": \"get.weather-now_2\", \"parameters\": "
	"{\"properties\": {\"city\": {\"type\": \"string\"}}}}}]";

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

/* Channels are parted also where there are no tools. */
TEST(harmony_without_tools)
{
	const struct reply_options none = {.reasoning = REPLY_CHANNELS};

	check(&none,
	      "<|channel|>analysis<|message|>x<|end|><|start|>assistant<|channel|>final<|message|>"
	      "y<|return|>",
	      "x", "y", "");
}

/* ---- recorded replies ------------------------------------------------------------------------ */

/* A line of replies/FORMAT.txt: reply, calls, content and reasoning between tabs, with \n, \t and \\. */
struct recorded {
	char text[2048], calls[2048], content[1024], reasoning[1024];
};

static void unescape(char *to, size_t size, const char *from, size_t len)
{
	size_t n = 0;

	for (size_t i = 0; i < len && n + 1 < size; i++) {
		char c = from[i];

		if (c == '\\' && ++i < len)
			c = from[i] == 'n' ? '\n' : from[i] == 't' ? '\t' : from[i];
		to[n++] = c;
	}
	to[n] = '\0';
	assert_true(n + 1 < size);
}

static void read_line(const char *line, struct recorded *ret)
{
	const struct {
		char *to;
		size_t size;
	} fields[] = {{ret->text, sizeof(ret->text)},
		      {ret->calls, sizeof(ret->calls)},
		      {ret->content, sizeof(ret->content)},
		      {ret->reasoning, sizeof(ret->reasoning)}};

	for (size_t i = 0; i < 4; i++) {
		size_t len = strcspn(line, "\t\n");

		unescape(fields[i].to, fields[i].size, line, len);
		line += len + (line[len] == '\t');
	}
}

static size_t characters(const char *text, size_t n)
{
	size_t at = 0;

	for (; n && text[at]; n--)
		for (at++; (text[at] & 0xC0) == 0x80; at++)
			;
	return at;
}

/* The first @len bytes in pieces of @n characters. */
static void parse_pieces(const struct reply_options *options, const char *text, size_t len,
			 size_t n, struct result *ret)
{
	const struct reply_sink sink = {on_reasoning, on_content, on_call, on_arguments, ret};
	struct reply_parser *p;

	memset(ret, 0, sizeof(*ret));
	p = reply_parser_new(options, &sink);
	assert_non_null(p);
	for (size_t at = 0, more; at < len; at += more) {
		more = characters(text + at, n);
		more = more < len - at ? more : len - at;
		assert_int_equal(reply_parser_feed(p, text + at, more), 0);
	}
	if (text[len])
		reply_parser_cut_off(p);
	assert_int_equal(reply_parser_flush(p), 0);
	reply_parser_free(p);
}

static bool same(const struct result *a, const struct result *b)
{
	return !strcmp(a->reasoning, b->reasoning) && !strcmp(a->content, b->content) &&
	       !strcmp(a->calls, b->calls);
}

/*
 * One character that may have begun a mark, and white space before it, is text, as far as anybody
 * can tell.
 */
static bool is_start(const char *start, const char *text)
{
	size_t n = strlen(start);

	n -= n && (start[n - 1] == '<' || start[n - 1] == '[') && strncmp(start, text, n);
	while (n && strchr(" \n", start[n - 1]) && strncmp(start, text, n))
		n--;
	return !strncmp(start, text, n);
}

/*
 * A reply that was cut off says what the whole one says up to there. In formats of calls without
 * marks it may show the beginning of what then is a call: until then it is none.
 */
static void check_cut(const struct reply_options *o, const struct recorded *r, size_t len)
{
	static struct result whole, pieces;
	char shown[sizeof(r->text)];

	snprintf(shown, sizeof(shown), "%.*s", (int)len, r->text);
	parse_pieces(o, r->text, len, SIZE_MAX, &whole);
	parse_pieces(o, r->text, len, 1 + len % 7, &pieces);
	if (!same(&whole, &pieces) || !is_start(whole.calls, r->calls) ||
	    !is_start(whole.reasoning, r->reasoning) ||
	    (!is_start(whole.content, r->content) &&
	     (!reply_format(o->tools)->whole || whole.n_calls || !strstr(shown, whole.content))))
		fail_msg("%s\ncut off at %zu: R[%s] C[%s] %s\nin pieces R[%s] C[%s] %s", r->text,
			 len, whole.reasoning, whole.content, whole.calls, pieces.reasoning,
			 pieces.content, pieces.calls);
}

static void check_recorded(const struct reply_options *o, const struct recorded *r)
{
	static struct result got;
	size_t len = strlen(r->text);

	for (size_t n = 0; n <= 7; n++) {
		parse_pieces(o, r->text, len, n ? n : SIZE_MAX, &got);
		if (strcmp(got.reasoning, r->reasoning) || strcmp(got.content, r->content) ||
		    strcmp(got.calls, r->calls))
			fail_msg("%s\nin pieces of %zu: R[%s] C[%s] %s\nnot R[%s] C[%s] %s",
				 r->text, n, got.reasoning, got.content, got.calls, r->reasoning,
				 r->content, r->calls);
	}
	for (size_t at = 0; at < len; at += characters(r->text + at, 1))
		check_cut(o, r, at);
}

TEST(recorded_replies)
{
	const char *dir = getenv("TXDA_REPLIES");
	char path[512], name[32], reasoning[32];
	static struct recorded r;

	assert_non_null(dir);
	for (unsigned i = REPLY_NO_TOOLS + 1; i < REPLY_TOOLS_COUNT; i++) {
		struct reply_options o = {.tools = i, .functions = functions};
		char *line = NULL;
		size_t room = 0;
		unsigned n = 0;
		FILE *f;

		snprintf(path, sizeof(path), "%s/%s.txt", dir, reply_format(i)->name);
		f = fopen(path, "r");
		assert_non_null(f);
		assert_int_equal(fscanf(f, "# %31s %31s\n", name, reasoning), 2);
		assert_string_equal(name, reply_format(i)->name);
		assert_true(reply_reasoning_named(reasoning, &o.reasoning));
		for (; getline(&line, &room, f) > 0; n++) {
			read_line(line, &r);
			check_recorded(&o, &r);
		}
		assert_true(n >= 30);
		free(line);
		fclose(f);
	}
}

TEST(templates_tell_the_format)
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
		{"<\xEF\xBD\x9Ctool\xE2\x96\x81"
		 "calls\xE2\x96\x81"
		 "begin\xEF\xBD\x9C>",
		 REPLY_DEEPSEEK, REPLY_NO_REASONING},
		{"{% for tool in tools %} <|eot_id|>", REPLY_LLAMA, REPLY_NO_REASONING},
		{"{{ messages }}", REPLY_NO_TOOLS, REPLY_NO_REASONING},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(reply_tools_of_template(cases[i].source, strlen(cases[i].source)),
				 cases[i].tools);
		assert_int_equal(
			reply_reasoning_of_template(cases[i].source, strlen(cases[i].source)),
			cases[i].reasoning);
	}
}

TEST(parsers_have_names)
{
	enum reply_reasoning reasoning;
	enum reply_tools tools;

	for (unsigned i = 0; i < REPLY_TOOLS_COUNT; i++) {
		assert_true(reply_tools_named(reply_format(i)->name, &tools));
		assert_int_equal(tools, i);
	}
	assert_false(reply_tools_named("auto", &tools));
	assert_true(reply_reasoning_named("deepseek_r1", &reasoning));
	assert_int_equal(reasoning, REPLY_THINK);
	assert_false(reply_reasoning_named("", &reasoning));
}

TEST_MAIN_ALL(read_functions, free_functions)
