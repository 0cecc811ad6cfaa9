// SPDX-License-Identifier: MIT
/*
 * Chat templates of models: where they are found, what requests become, what is refused; and that
 * the probes tell real templates apart, where the conformance data is present.
 */
#include "unit.h"
#include "case_file.h"
#include "chat_template.h"
#include "json_strict.h"
#include "conformance.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

static char directory[64];

static int make_directory(void)
{
	strcpy(directory, "/tmp/txda-chat-XXXXXX");
	return mkdtemp(directory) ? 0 : -1;
}

static int remove_directory(void)
{
	static const char *const files[] = {"chat_template.jinja",
					    "chat_template.json",
					    "tokenizer_config.json",
					    "special_tokens_map.json",
					    "additional_chat_templates/tool_use.jinja",
					    "additional_chat_templates"};
	char path[256];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(files); i++) {
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

	assert_int_equal(make_directory(), 0);
	write_file("chat_template.jinja", source);
	chat = load();
	assert_int_equal(remove_directory(), 0);
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

TEST(test_sources)
{
	struct txda_chat_template *chat;
	char path[256];

	assert_int_equal(make_directory(), 0);
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
	assert_int_equal(remove_directory(), 0);
}

/* A template is text that may hold NUL, from a file of its own and as JSON has it. */
TEST(test_nul)
{
	static const char want[] = "a\0b3Hi";
	cJSON *request = cJSON_Parse(HI);
	const struct txda_chat_request r = {.messages = cJSON_GetObjectItem(request, "messages")};
	struct txda_chat_template *chat;
	char *text;
	size_t len;

	assert_int_equal(make_directory(), 0);
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
	assert_int_equal(remove_directory(), 0);
}

TEST(test_named)
{
	struct txda_chat_template *chat;

	assert_int_equal(make_directory(), 0);
	write_file("tokenizer_config.json",
		   "{\"chat_template\": [{\"name\": \"default\", \"template\": \"plain\"},"
		   " {\"name\": \"tool_use\", \"template\": \"with tools\"}]}");
	chat = load();
	expect(chat, HI, "plain");
	expect(chat, HI_TOOLS, "with tools");
	txda_chat_template_free(chat);
	write_file("tokenizer_config.json",
		   "{\"chat_template\": {\"tool_use\": \"tools\", \"default\": \"no tools\"}}");
	chat = load();
	expect(chat, HI, "no tools");
	expect(chat, HI_TOOLS, "tools");
	txda_chat_template_free(chat);
	write_file("tokenizer_config.json",
		   "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"a\"},"
		   " {\"name\": \"x\", \"template\": \"b\"}]}");
	expect_no_load(-EINVAL, "none of the 2 chat templates is named 'default'");
	write_file("tokenizer_config.json", "{\"chat_template\": {\"rag\": 5}}");
	expect_no_load(-EINVAL, "the chat template 'rag' is no text");
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
	assert_int_equal(remove_directory(), 0);
}

static bool can(const struct txda_chat_capabilities *caps, const char *what)
{
#define FLAG(name)                                                                                 \
	if (!strcmp(what, #name))                                                                  \
	return caps->name
	FLAG(thinking);
	FLAG(content_parts);
	FLAG(content_string);
	FLAG(tools);
	FLAG(tool_calls);
	FLAG(argument_objects);
	FLAG(null_content);
#undef FLAG
	fail_msg("no template can %s", what);
	return false;
}

/* The template of the rows that follow. */
static struct txda_chat_template *current;

static void check_row(char **field)
{
	char *want = field[1];

	if (!strncmp(field[0], "= ", 2)) {
		txda_chat_template_free(current);
		current = from_text(field[0] + 2);
		for (char *what; want && (what = strsep(&want, " "));) {
			bool is = what[strlen(what) - 1] == '1';

			what[strlen(what) - 2] = '\0';
			if (can(txda_chat_template_capabilities(current), what) != is)
				fail_msg("%s: %s is %d", field[0], what, !is);
		}
	} else if (want[0] == '!') {
		bool own = want[1] == '!';

		expect_error(current, field[0], own ? -EPROTO : -EINVAL, want + 1 + own);
	} else {
		expect(current, field[0], want);
	}
}

TEST(test_requests)
{
	each_case("chat.txt", "variables", check_row);
	each_case("chat.txt", "content", check_row);
	each_case("chat.txt", "tool calls", check_row);
	txda_chat_template_free(current);
	current = NULL;
}

TEST(test_real_templates)
{
	static const struct {
		const char *file;
		const char *key;
		struct txda_chat_capabilities expected;
	} models[] = {
		{"chat/qwen3.json",
		 "qwen3",
		 {true, false, true, true, true, true, REPLY_HERMES, REPLY_THINK, false}},
		{"chat/qwen2.5.json",
		 "qwen2.5",
		 {true, false, true, true, true, false, REPLY_HERMES, 0, true}},
		{"chat/llama-3.1.json",
		 "llama-3.1",
		 {true, false, true, true, true, false, REPLY_LLAMA, 0, true}},
		{"chat/llama-2.json", "llama-2", {true, false, false, false, false, false}},
		{"chat/mistral.json", "mistral", {true, false, false, false, false, false}},
		{"chat/deepseek-v3.json",
		 "deepseek-v3",
		 {true, false, false, true, false, false, REPLY_DEEPSEEK, 0, true}},
		{"chat/huggingface_js_e2e.json",
		 "Qwen/Qwen2.5-VL-7B-Instruct",
		 {true, true, false, false, false, false}},
	};
	char path[1024], err[512];
	size_t i;

	if (!conformance_path(path, sizeof(path), "chat"))
		skip();
	for (i = 0; i < ARRAY_SIZE(models); i++) {
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

TEST_MAIN
