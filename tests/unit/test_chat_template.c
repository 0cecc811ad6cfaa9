// SPDX-License-Identifier: MIT
/*
 * Chat templates of models: where they are found, what requests become, what is refused; and that
 * the probes tell real templates apart, where the conformance data is present.
 */
#include "chat_template.h"
#include "json_strict.h"
#include "conformance.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static char directory[64];

static int make_directory(void **state)
{
	(void)state;
	strcpy(directory, "/tmp/txda-chat-XXXXXX");
	return mkdtemp(directory) ? 0 : -1;
}

static int remove_directory(void **state)
{
	static const char *const files[] = {"chat_template.jinja",
					    "chat_template.json",
					    "tokenizer_config.json",
					    "special_tokens_map.json",
					    "additional_chat_templates/tool_use.jinja",
					    "additional_chat_templates"};
	char path[256];
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", directory, files[i]);
		remove(path);
	}
	return rmdir(directory);
}

static void write_file(const char *name, const char *text)
{
	char path[256];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	file = fopen(path, "w");
	assert_non_null(file);
	fputs(text, file);
	assert_int_equal(fclose(file), 0);
}

static struct txda_chat_template *load(void)
{
	struct txda_chat_template *chat = NULL;
	char err[512] = "";

	if (txda_chat_template_load(directory, &chat, err, sizeof(err)))
		fail_msg("%s", err);
	return chat;
}

static void expect_no_load(int expected, const char *part)
{
	struct txda_chat_template *chat = NULL;
	char err[512] = "";
	int rc = txda_chat_template_load(directory, &chat, err, sizeof(err));

	if (rc != expected || !strstr(err, part))
		fail_msg("%d: %s", rc, err);
	assert_int_equal(txda_chat_template_load(directory, &chat, NULL, 0), expected);
}

/* The template of a model without other files. */
static struct txda_chat_template *from_text(const char *source)
{
	struct txda_chat_template *chat;

	assert_int_equal(make_directory(NULL), 0);
	write_file("chat_template.jinja", source);
	chat = load();
	assert_int_equal(remove_directory(NULL), 0);
	return chat;
}

/*
 * @request: {"messages": ..., "tools": ...}; the output or the error's message, for
 * free()
 */
static char *render(const struct txda_chat_template *chat, const char *request, int *ret_rc)
{
	cJSON *json = cJSON_Parse(request);
	struct txda_chat_request r = {
		.messages = cJSON_GetObjectItem(json, "messages"),
		.tools = cJSON_GetObjectItem(json, "tools"),
		.documents = cJSON_GetObjectItem(json, "documents"),
		.variables = cJSON_GetObjectItem(json, "variables"),
		.add_generation_prompt = true,
	};
	struct txda_template_error error;
	char *before, *after, *text = NULL;

	assert_non_null(json);
	before = cJSON_PrintUnformatted(json);
	*ret_rc = txda_chat_template_render(chat, &r, &error, &text, NULL);
	after = cJSON_PrintUnformatted(json);
	assert_string_equal(before, after); /* the request is read only */
	free(before);
	free(after);
	cJSON_Delete(json);
	return *ret_rc ? strdup(error.message) : text;
}

static void expect(const struct txda_chat_template *chat, const char *request, const char *expected)
{
	int rc;
	char *text = render(chat, request, &rc);

	if (rc || strcmp(text, expected))
		fail_msg("%d: %s\n  expected %s", rc, text, expected);
	free(text);
}

static void expect_error(const struct txda_chat_template *chat, const char *request, int expected,
			 const char *part)
{
	int rc;
	char *text = render(chat, request, &rc);

	if (rc != expected || !strstr(text, part))
		fail_msg("%d: %s", rc, text);
	free(text);
}

#define HI "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}"
#define HI_TOOLS                                                                                   \
	"{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"tools\": [{\"type\": 1}]}"

static void test_sources(void **state)
{
	struct txda_chat_template *chat;
	char path[256];

	(void)state;
	expect_no_load(-ENOENT, "no chat template");
	write_file("tokenizer_config.json", "{\"bos_token\": \"<s>\", \"chat_template\": null}");
	expect_no_load(-ENOENT, "no chat template");
	write_file("chat_template.json", "{\"chat_template\": \"json {{ bos_token }}\"}");
	chat = load();
	expect(chat, HI, "json <s>");
	txda_chat_template_free(chat);
	write_file("tokenizer_config.json",
		   "{\"bos_token\": {\"content\": \"<s>\"}, \"eos_token\": null, \"chat_template\":"
		   " \"config {{ bos_token ~ eos_token }}{{ additional_special_tokens }}\"}");
	write_file("special_tokens_map.json",
		   "{\"bos_token\": \"<x>\", \"eos_token\": \"</s>\","
		   " \"additional_special_tokens\": [\"<a>\", {\"content\": \"<b>\"}]}");
	chat = load();
	expect(chat, HI, "config <s></s>['<a>', '<b>']");
	txda_chat_template_free(chat);
	write_file("chat_template.jinja", "file {{ messages[0].content }}\n");
	chat = load();
	expect(chat, HI, "file Hi");
	expect(chat, HI_TOOLS, "file Hi");
	txda_chat_template_free(chat);
	snprintf(path, sizeof(path), "%s/additional_chat_templates", directory);
	assert_int_equal(mkdir(path, 0700), 0);
	write_file("additional_chat_templates/tool_use.jinja", "tools {{ tools|length }}");
	chat = load();
	expect(chat, HI, "file Hi");
	expect(chat, HI_TOOLS, "tools 1");
	txda_chat_template_free(chat);
	txda_chat_template_free(NULL);
}

/* A template is text that may hold NUL, from a file of its own and as JSON has it. */
static void test_nul(void **state)
{
	static const char want[] = "a\0b3Hi";
	cJSON *request = cJSON_Parse(HI);
	const struct txda_chat_request r = {.messages = cJSON_GetObjectItem(request, "messages")};
	struct txda_chat_template *chat;
	char *text;
	size_t len;

	(void)state;
	write_file("tokenizer_config.json",
		   "{\"chat_template\": \"a\\u0000b{{ 'x\\u0000y'|length }}"
		   "{{ messages[0].content }}\"}");
	chat = load();
	assert_int_equal(txda_chat_template_render(chat, &r, NULL, &text, &len), 0);
	assert_int_equal(len, sizeof(want) - 1);
	assert_memory_equal(text, want, len);
	/* What it can was found out behind the NUL. */
	assert_true(txda_chat_template_capabilities(chat)->content_string);
	free(text);
	txda_chat_template_free(chat);
	cJSON_Delete(request);
}

static void test_named(void **state)
{
	struct txda_chat_template *chat;

	(void)state;
	write_file("tokenizer_config.json",
		   "{\"chat_template\": [{\"name\": \"default\", \"template\": \"plain\"},"
		   " {\"name\": \"tool_use\", \"template\": \"with tools\"}]}");
	chat = load();
	expect(chat, HI, "plain");
	expect(chat, HI_TOOLS, "with tools");
	txda_chat_template_free(chat);
	write_file("tokenizer_config.json",
		   "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"a\"},"
		   " {\"name\": \"x\", \"template\": \"b\"}]}");
	expect_no_load(-EINVAL, "none of the 2 chat templates is named 'default'");
	write_file("tokenizer_config.json", "{\"chat_template\": [{\"name\": \"rag\"}]}");
	expect_no_load(-EINVAL, "lacks its name or text");
	write_file("tokenizer_config.json", "{\"chat_template\": 5}");
	expect_no_load(-EINVAL, "must be a string or a list");
	write_file("tokenizer_config.json", "{\"chat_template\": \"a\\n{% if %}\"}");
	expect_no_load(-EINVAL, "tokenizer_config.json: chat template 'default', line 2");
	write_file("tokenizer_config.json", "{\"chat_template\": ");
	expect_no_load(-EINVAL, "tokenizer_config.json");
	write_file("chat_template.jinja", "a\xC3\xA9\xC3{{ messages }}");
	expect_no_load(-EINVAL, "chat_template.jinja: byte 0xc3 at offset 3 is not UTF-8");
}

static void test_variables(void **state)
{
	struct txda_chat_template *chat =
		from_text("{{ add_generation_prompt }}{{ tools }}{{ documents }}"
			  "{{ enable_thinking }}{{ x }}");

	(void)state;
	assert_true(txda_chat_template_capabilities(chat)->thinking);
	expect(chat, HI, "TrueNoneNone");
	expect(chat,
	       "{\"messages\": [], \"variables\": {\"enable_thinking\": false, \"x\": 1,"
	       " \"tools\": 5, \"add_generation_prompt\": false}, \"documents\": [2]}",
	       "TrueNone[2]False1");
	expect_error(chat, "{\"messages\": 5}", -EINVAL, "messages must be an array");
	expect_error(chat, "{\"messages\": [5]}", -EINVAL, "messages[0] must be an object");
	expect_error(chat, "{\"messages\": [], \"tools\": {}}", -EINVAL, "tools must be an array");
	expect_error(chat, "{\"messages\": [], \"documents\": 1}", -EINVAL, "documents must be");
	expect_error(chat, "{\"messages\": [], \"variables\": []}", -EINVAL, "must be an object");
	txda_chat_template_free(chat);
	chat = from_text("{{ raise_exception('only ' ~ messages|length) }}");
	expect_error(chat, HI, -EPROTO, "only 1");
	txda_chat_template_free(chat);
}

#define PARTS(more)                                                                                \
	"{\"messages\": [{\"role\": \"user\", \"content\": ["                                      \
	"{\"type\": \"text\", \"text\": \"a\"},{\"type\": \"text\", \"text\": \"b\"}" more "]}]}"

static void test_content(void **state)
{
	struct txda_chat_template *chat;

	(void)state;
	chat = from_text("{% for m in messages %}[{{ m['content'] }}]{% endfor %}");
	assert_false(txda_chat_template_capabilities(chat)->content_parts);
	expect(chat, HI, "[Hi]");
	expect(chat, PARTS(""), "[a\nb]");
	expect(chat, "{\"messages\": [{\"role\": \"user\", \"content\": []}]}", "[]");
	expect(chat, "{\"messages\": [{\"role\": \"user\", \"content\": null}]}", "[None]");
	expect_error(chat, PARTS(",{\"type\": \"image_url\"}"), -EINVAL,
		     "messages[0]: the chat template takes no content of type 'image_url'");
	expect_error(chat, PARTS(",{\"type\": \"text\"}"), -EINVAL, "has no text");
	expect_error(chat, PARTS(",5"), -EINVAL, "has no text");
	txda_chat_template_free(chat);
	chat = from_text("{% for m in messages %}{% if m.content is string %}{{ m.content }}"
			 "{% else %}{% for p in m.content %}<{{ p.type }}:{{ p.text }}>{% endfor %}"
			 "{% endif %}{% endfor %}");
	assert_true(txda_chat_template_capabilities(chat)->content_parts);
	expect(chat, HI, "Hi");
	expect(chat, PARTS(",{\"type\": \"image\"}"), "<text:a><text:b><image:>");
	txda_chat_template_free(chat);
	chat = from_text("{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}"
			 "{% endfor %}");
	assert_false(txda_chat_template_capabilities(chat)->content_string);
	expect(chat, HI, "Hi");
	txda_chat_template_free(chat);
}

#define CALL(arguments)                                                                            \
	"{\"messages\": [{\"role\": \"assistant\", \"content\": null,"                             \
	" \"tool_calls\": [{\"id\": \"1\", \"type\": \"function\", \"function\": {\"name\":"       \
	" \"f\", \"arguments\": " arguments "}}]}]}"

static void test_tool_calls(void **state)
{
	static const char loop[] = "{% for m in messages %}{% for c in m.tool_calls or [] %}";
	const struct txda_chat_capabilities *caps;
	struct txda_chat_template *chat;
	char source[512];

	(void)state;
	snprintf(source, sizeof(source), "%s{{ c.function.arguments|tojson }}{%% endfor %%}%s",
		 loop, "{% endfor %}{{ tools|tojson }}");
	chat = from_text(source);
	caps = txda_chat_template_capabilities(chat);
	assert_true(caps->tools && caps->tool_calls && caps->argument_objects);
	expect(chat, CALL("\"{\\\"a\\\": 1.0, \\\"b\\\": [12345678901234567890]}\""),
	       "{\"a\": 1.0, \"b\": [12345678901234567890]}null");
	expect(chat, CALL("{\"a\":1}"), "{\"a\": 1}null");
	expect(chat, CALL("\"{broken\""), "\"{broken\"null");
	expect(chat, CALL("\"\""), "{}null");
	expect(chat, CALL("\" \\n\""), "{}null");
	txda_chat_template_free(chat);
	snprintf(source, sizeof(source), "%s{{ 'args: ' + c.function.arguments }}{%% endfor %%}%s",
		 loop, "{% endfor %}");
	chat = from_text(source);
	caps = txda_chat_template_capabilities(chat);
	assert_true(!caps->tools && caps->tool_calls && !caps->argument_objects);
	expect(chat, CALL("\"{\\\"a\\\":1}\""), "args: {\"a\":1}");
	txda_chat_template_free(chat);
	chat = from_text("x");
	caps = txda_chat_template_capabilities(chat);
	assert_true(!caps->tools && !caps->tool_calls && !caps->argument_objects);
	txda_chat_template_free(chat);
}

static void test_real_templates(void **state)
{
	static const struct {
		const char *file;
		const char *key;
		struct txda_chat_capabilities expected;
	} models[] = {
		{"chat/qwen3.json",
		 "qwen3",
		 {true, false, true, true, true, true, REPLY_HERMES, REPLY_THINK}},
		{"chat/qwen2.5.json",
		 "qwen2.5",
		 {true, false, true, true, true, false, REPLY_HERMES, 0}},
		{"chat/llama-3.1.json",
		 "llama-3.1",
		 {true, false, true, true, true, false, REPLY_LLAMA, 0}},
		{"chat/llama-2.json", "llama-2", {true, false, false, false, false, false}},
		{"chat/mistral.json", "mistral", {true, false, false, false, false, false}},
		{"chat/deepseek-v3.json",
		 "deepseek-v3",
		 {true, false, false, true, false, false, REPLY_DEEPSEEK, 0}},
		{"chat/huggingface_js_e2e.json",
		 "Qwen/Qwen2.5-VL-7B-Instruct",
		 {true, true, false, false, false, false}},
	};
	char path[1024], err[512];
	size_t i;

	(void)state;
	if (!conformance_path(path, sizeof(path), "chat"))
		skip();
	for (i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
		const struct txda_chat_capabilities *caps, *e = &models[i].expected;
		struct txda_chat_template *chat;
		const cJSON *source;
		cJSON *root;

		assert_true(conformance_path(path, sizeof(path), models[i].file));
		assert_int_equal(txda_json_load(path, 64 << 20, &root, err, sizeof(err)), 0);
		source = cJSON_GetObjectItemCaseSensitive(
			cJSON_GetObjectItemCaseSensitive(root, "templates"), models[i].key);
		assert_non_null(source);
		chat = from_text(source->valuestring);
		caps = txda_chat_template_capabilities(chat);
		if (memcmp(caps, e, sizeof(*e)))
			fail_msg("%s: string %d, parts %d, tools %d, calls %d, objects %d, "
				 "thinking %d, calls %d, reasoning %d",
				 models[i].key, caps->content_string, caps->content_parts,
				 caps->tools, caps->tool_calls, caps->argument_objects,
				 caps->thinking, (int)caps->calls, (int)caps->reasoning);
		txda_chat_template_free(chat);
		cJSON_Delete(root);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_sources, make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(test_nul, make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(test_named, make_directory, remove_directory),
		cmocka_unit_test(test_variables),
		cmocka_unit_test(test_content),
		cmocka_unit_test(test_tool_calls),
		cmocka_unit_test(test_real_templates),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
