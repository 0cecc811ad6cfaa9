// SPDX-License-Identifier: MIT
/*
 * What a template can do is found by rendering small conversations with marks in them and looking
 * for the marks. A mark may come out in the wrong dress (a list printed as Python would, JSON text
 * quoted once more): that is told by the quotes around it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "chat_internal.h"

#define TEXT_MARK "txda-probe-text"
#define TOOL_MARK "txda_probe_tool"
#define KEY_MARK  "txda_probe_key"

static const char string_content[] = "[{\"role\":\"user\",\"content\":\"" TEXT_MARK "\"}]";
static const char part_content[] =
	"[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"" TEXT_MARK "\"}]}]";
static const char tools[] =
	"[{\"type\":\"function\",\"function\":{\"name\":\"" TOOL_MARK "\",\"description\":\"d\","
	"\"parameters\":{\"type\":\"object\",\"properties\":{\"p\":{\"type\":\"string\","
	"\"description\":\"d\"}},\"required\":[\"p\"]}}}]";

#define CALL(content, arguments)                                                                   \
	"[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"content\":" content      \
	",\"tool_calls\":[{\"id\":\"call12345\",\"type\":\"function\",\"function\":{\"name\":"     \
	"\"" TOOL_MARK "\",\"arguments\":" arguments "}}]}]"
#define OBJECT "{\"" KEY_MARK "\":\"v\"}"
#define STRING "\"{\\\"" KEY_MARK "\\\":\\\"v\\\"}\""

static const struct txda_template_limits probe_limits = {
	.steps = 2 * 1000 * 1000,
	.memory = (size_t)32 << 20,
	.output = (size_t)4 << 20,
	.depth = 600,
};

/* The output, "" when rendering fails, NULL without memory. */
static char *probe(const struct txda_chat_template *chat, const struct chat_named_template *named,
		   const char *messages, const char *with_tools)
{
	static const struct tm day = {.tm_year = 125, .tm_mon = 0, .tm_mday = 1, .tm_wday = 3};
	cJSON *message_tree = cJSON_Parse(messages);
	cJSON *tool_tree = with_tools ? cJSON_Parse(with_tools) : NULL;
	struct txda_chat_request request = {
		.messages = message_tree, .tools = tool_tree, .now = &day, .limits = &probe_limits};
	struct txda_template_error error;
	char *text = NULL;
	int rc = -ENOMEM;

	if (message_tree && (tool_tree || !with_tools))
		rc = chat_render_plain(chat, named->template, &request, &error, &text, NULL);
	cJSON_Delete(message_tree);
	cJSON_Delete(tool_tree);
	if (!rc)
		return text;
	return rc == -ENOMEM ? NULL : strdup("");
}

static int probe_content(const struct txda_chat_template *chat, struct chat_named_template *named)
{
	struct txda_chat_capabilities *caps = &named->capabilities;
	char *text = probe(chat, named, string_content, NULL);
	char *parts = probe(chat, named, part_content, NULL);

	if (text && parts) {
		caps->content_string = strstr(text, TEXT_MARK) != NULL;
		caps->content_parts = strstr(parts, TEXT_MARK) &&
				      !strstr(parts, "'" TEXT_MARK "'") &&
				      !strstr(parts, "\"" TEXT_MARK "\"");
		if (!caps->content_parts)
			caps->content_string = true; /* the usual form, for want of a better */
	}
	free(text);
	free(parts);
	return text && parts ? 0 : -ENOMEM;
}

/*
 * Are the arguments of the call rendered? As text they may come out in quotes once more, as an
 * object in Python's spelling: neither is what the model was trained on.
 */
static bool is_well_rendered(const char *text)
{
	const char *key = strstr(text, KEY_MARK);

	if (!key)
		return false;
	return key[strlen(KEY_MARK)] != '\\' && key[strlen(KEY_MARK)] != '\'';
}

/*
 * Some templates want content to be None beside tool calls, some a string; some show calls only if
 * there are tools.
 */
static int probe_calls(const struct txda_chat_template *chat,
		       const struct chat_named_template *named, const char *const conversations[2],
		       bool *ret)
{
	unsigned int i;

	*ret = false;
	for (i = 0; i < 4 && !*ret; i++) {
		char *text = probe(chat, named, conversations[i & 1], i & 2 ? tools : NULL);

		if (!text)
			return -ENOMEM;
		*ret = is_well_rendered(text);
		free(text);
	}
	return 0;
}

static int probe_tools(const struct txda_chat_template *chat, struct chat_named_template *named)
{
	static const char *const objects[2] = {CALL("null", OBJECT), CALL("\"\"", OBJECT)};
	static const char *const strings[2] = {CALL("null", STRING), CALL("\"\"", STRING)};
	struct txda_chat_capabilities *caps = &named->capabilities;
	char *text = probe(chat, named, string_content, tools);
	int rc;

	if (!text)
		return -ENOMEM;
	caps->tools = strstr(text, TOOL_MARK) != NULL;
	free(text);
	rc = probe_calls(chat, named, objects, &caps->argument_objects);
	if (rc)
		return rc;
	caps->tool_calls = caps->argument_objects;
	return caps->tool_calls ? 0 : probe_calls(chat, named, strings, &caps->tool_calls);
}

int chat_probe(const struct txda_chat_template *chat, struct chat_named_template *named)
{
	int rc = probe_content(chat, named);

	named->capabilities.thinking = txda_template_mentions(named->template, "enable_thinking");
	return rc ? rc : probe_tools(chat, named);
}
