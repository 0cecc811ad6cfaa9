// SPDX-License-Identifier: MIT
#include "chat_template.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat_messages.h"
#include "json_strict.h"
#include "owned.h"
#include "text_files.h"
#include "utf8.h"

enum {
	MAX_TEMPLATES = 32,
	MAX_CONFIG = 64 << 20,
};

struct chat_named_template {
	char *name; /* "default", "tool_use", … */
	struct txda_template *template;
	struct txda_chat_capabilities capabilities;
};

struct txda_chat_template {
	struct chat_named_template templates[MAX_TEMPLATES];
	unsigned int n_templates;
	const struct chat_named_template *standard; /* "default", or the only one */
	const struct chat_named_template *tool_use; /* for requests with tools, or NULL */
	cJSON *special_tokens;			    /* object: bos_token and the like */
};

/* ---- rendering ----------------------------------------------------------------------------------- */

/*
 * Sets @name to a reference: the context does not own @value, which is only read. A name may be set
 * more than once; rendering uses the last value.
 */
static bool set_reference(cJSON *context, const char *name, const cJSON *value)
{
	if (!value)
		return cJSON_AddNullToObject(context, name) != NULL;
	return cJSON_AddItemReferenceToObject(context, name, (cJSON *)value);
}

static bool set_members(cJSON *context, const cJSON *object)
{
	const cJSON *item;

	cJSON_ArrayForEach(item, object)
		if (!set_reference(context, item->string, item))
			return false;
	return true;
}

static bool fill_context(cJSON *context, const struct txda_chat_template *chat,
			 const struct txda_chat_request *request)
{
	return set_members(context, chat->special_tokens) &&
	       set_members(context, request->variables) &&
	       set_reference(context, "messages", request->messages) &&
	       set_reference(context, "tools", request->tools) &&
	       set_reference(context, "documents", request->documents) &&
	       cJSON_AddBoolToObject(context, "add_generation_prompt",
				     request->add_generation_prompt);
}

/* Renders messages without converting them. */
static int render_plain(const struct txda_chat_template *chat, const struct txda_template *template,
			const struct txda_chat_request *request, struct txda_template_error *error,
			char **ret_text, size_t *ret_length)
{
	struct txda_template_options options = {.now = request->now, .limits = request->limits};
	cJSON *context = cJSON_CreateObject();
	int rc = -ENOMEM;

	if (context && fill_context(context, chat, request))
		rc = txda_template_render(template, context, &options, error, ret_text, ret_length);
	else
		*error = (struct txda_template_error){.kind = TXDA_TEMPLATE_MEMORY,
						      .message = "out of memory"};
	cJSON_Delete(context);
	return rc;
}

static int check_member(const cJSON *value, bool fits, const char *what,
			struct txda_template_error *error)
{
	if (!value || fits)
		return 0;
	error->kind = TXDA_TEMPLATE_RUNTIME;
	error->line = 0;
	snprintf(error->message, sizeof(error->message), "%s", what);
	return -EINVAL;
}

static const struct chat_named_template *choose(const struct txda_chat_template *chat,
						bool with_tools)
{
	return with_tools && chat->tool_use ? chat->tool_use : chat->standard;
}

bool txda_chat_template_mentions(const struct txda_chat_template *chat, bool with_tools,
				 const char *name)
{
	return txda_template_mentions(choose(chat, with_tools)->template, name);
}

int txda_chat_template_render(const struct txda_chat_template *chat,
			      const struct txda_chat_request *request,
			      struct txda_template_error *error, char **ret_text,
			      size_t *ret_length)
{
	const struct chat_named_template *named =
		choose(chat, cJSON_GetArraySize(request->tools) > 0);
	struct txda_chat_request adapted = *request;
	struct txda_template_error own_error;
	cJSON *messages = NULL;
	int rc;

	if (!error)
		error = &own_error;
	*error = (struct txda_template_error){0};
	rc = check_member(request->tools,
			  cJSON_IsArray(request->tools) || cJSON_IsNull(request->tools),
			  "tools must be an array", error);
	if (!rc)
		rc = check_member(request->documents,
				  cJSON_IsArray(request->documents) ||
					  cJSON_IsNull(request->documents),
				  "documents must be an array", error);
	if (!rc)
		rc = check_member(request->variables, cJSON_IsObject(request->variables),
				  "the variables of a chat template must be an object", error);
	if (!rc)
		rc = txda_chat_messages_adapt(request->messages, &named->capabilities, error,
					      &messages);
	if (rc)
		return rc;
	if (messages)
		adapted.messages = messages;
	rc = render_plain(chat, named->template, &adapted, error, ret_text, ret_length);
	cJSON_Delete(messages);
	return rc;
}

/* ---- probing ------------------------------------------------------------------------------------- */

/*
 * A template's capabilities are found by rendering small conversations that contain marks and
 * searching the output for the marks. A mark may be rendered in the wrong form (a list in Python's
 * notation, JSON text quoted again), which is recognised by the quotes around it.
 */
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

/* The output, "" if rendering fails, NULL if out of memory. */
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
	size_t length = 0;
	int rc = -ENOMEM;

	if (message_tree && (tool_tree || !with_tools))
		rc = render_plain(chat, named->template, &request, &error, &text, &length);
	cJSON_Delete(message_tree);
	cJSON_Delete(tool_tree);
	/* It is searched as a C string. */
	for (size_t i = 0; !rc && i < length; i++)
		text[i] = text[i] ? text[i] : ' ';
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
			caps->content_string = true; /* the usual form, as a fallback */
	}
	free(text);
	free(parts);
	return text && parts ? 0 : -ENOMEM;
}

/*
 * Whether the arguments of the call are rendered correctly. Text may be quoted again, and an object
 * may be printed in Python's notation: the model was trained on neither.
 */
static bool is_well_rendered(const char *text)
{
	const char *key = strstr(text, KEY_MARK);

	if (!key)
		return false;
	return key[strlen(KEY_MARK)] != '\\' && key[strlen(KEY_MARK)] != '\'';
}

/*
 * Whether the call is rendered with the content None or "", and whether None is good: some
 * templates require it beside calls, others fail on it or print it. Some render calls only if there
 * are tools.
 */
static int probe_calls(const struct txda_chat_template *chat, struct chat_named_template *named,
		       const char *with_none, const char *with_empty, bool *ret)
{
	int rc = 0;

	*ret = false;
	for (unsigned int i = 0; i < 2 && !rc && !*ret; i++) {
		char *none = probe(chat, named, with_none, i ? tools : NULL);
		char *empty = probe(chat, named, with_empty, i ? tools : NULL);

		if (none && empty) {
			bool good = is_well_rendered(none);

			*ret = good || is_well_rendered(empty);
			/* Without calls it is at least to be rendered. */
			named->capabilities.null_content =
				(*ret ? good : *none != '\0') &&
				(!strstr(none, "None") || strstr(empty, "None"));
		} else {
			rc = -ENOMEM;
		}
		free(none);
		free(empty);
	}
	return rc;
}

static int probe_tools(const struct txda_chat_template *chat, struct chat_named_template *named)
{
	struct txda_chat_capabilities *caps = &named->capabilities;
	char *text = probe(chat, named, string_content, tools);
	int rc;

	if (!text)
		return -ENOMEM;
	caps->tools = strstr(text, TOOL_MARK) != NULL;
	free(text);
	rc = probe_calls(chat, named, CALL("null", OBJECT), CALL("\"\"", OBJECT),
			 &caps->argument_objects);
	caps->tool_calls = caps->argument_objects;
	if (rc || caps->tool_calls)
		return rc;
	return probe_calls(chat, named, CALL("null", STRING), CALL("\"\"", STRING),
			   &caps->tool_calls);
}

/* Determines what a template supports. 0 or -ENOMEM; what fails to render counts as unsupported. */
static int probe_all(const struct txda_chat_template *chat, struct chat_named_template *named)
{
	int rc = probe_content(chat, named);

	named->capabilities.thinking = txda_template_mentions(named->template, "enable_thinking");
	return rc ? rc : probe_tools(chat, named);
}

/* ---- loading ------------------------------------------------------------------------------------- */

/* State of a load: its source and where errors are reported. */
struct loader {
	const char *directory;
	char *err;
	size_t errlen;
	struct txda_chat_template *chat;
};

__attribute__((format(printf, 3, 4))) static int fail(struct loader *l, int rc, const char *format,
						      ...)
{
	va_list args;

	if (!l->err || !l->errlen)
		return rc;
	va_start(args, format);
	vsnprintf(l->err, l->errlen, format, args);
	va_end(args);
	return rc;
}

static int add_template(struct loader *l, const char *file, const char *name, const char *source,
			size_t length)
{
	struct txda_chat_template *chat = l->chat;
	struct chat_named_template *named = &chat->templates[chat->n_templates];
	struct txda_template_error error;
	int rc;

	if (chat->n_templates == MAX_TEMPLATES)
		return fail(l, -E2BIG, "%s: more than %d chat templates", file, MAX_TEMPLATES);
	named->name = strdup(name);
	if (!named->name)
		return fail(l, -ENOMEM, "out of memory");
	chat->n_templates++;
	named->capabilities.calls = reply_tools_of_template(source, length);
	named->capabilities.reasoning = reply_reasoning_of_template(source, length);
	rc = txda_template_parse(source, length, &error, &named->template);
	if (rc)
		return fail(l, rc, "%s: chat template '%s', line %u: %s", file, name, error.line,
			    error.message);
	return 0;
}

/* Adds the text of a JSON string, which may contain NULs (load_json()). */
static int add_string(struct loader *l, const char *file, const char *name, const char *text)
{
	size_t len = strlen(text), n = 0;
	char *copy = malloc(len + 1);
	int rc;

	if (!copy)
		return fail(l, -ENOMEM, "out of memory");
	for (size_t i = 0; i < len; i++) {
		bool nul = !strncmp(text + i, TXDA_JSON_NUL, 3);

		copy[n++] = nul ? '\0' : text[i];
		i += nul ? 2 : 0;
	}
	rc = add_template(l, file, name, copy, n);
	free(copy);
	return rc;
}

/* A string, a list of {name, template}, or an object of templates by name. */
static int add_from_json(struct loader *l, const char *file, const cJSON *value)
{
	const cJSON *item;
	int rc = 0;

	if (cJSON_IsObject(value)) {
		cJSON_ArrayForEach(item, value) {
			if (!cJSON_IsString(item))
				return fail(l, -EINVAL, "%s: the chat template '%.60s' is no text",
					    file, item->string);
			rc = add_string(l, file, item->string, item->valuestring);
			if (rc)
				return rc;
		}
		return 0;
	}
	if (cJSON_IsString(value))
		return add_string(l, file, "default", value->valuestring);
	if (!cJSON_IsArray(value))
		return fail(l, -EINVAL,
			    "%s: chat_template must be a string or a list, or an object", file);
	cJSON_ArrayForEach(item, value) {
		const cJSON *name = cJSON_GetObjectItemCaseSensitive(item, "name");
		const cJSON *text = cJSON_GetObjectItemCaseSensitive(item, "template");

		if (!cJSON_IsString(name) || !cJSON_IsString(text))
			return fail(l, -EINVAL, "%s: a chat template lacks its name or text", file);
		rc = add_string(l, file, name->valuestring, text->valuestring);
		if (rc)
			return rc;
	}
	return rc;
}

/* Reads a file below the directory as text; -ENOENT if there is none. */
static int read_file(struct loader *l, const char *file, char **ret_text, size_t *ret_length)
{
	char path[4096];

	if (snprintf(path, sizeof(path), "%s/%s", l->directory, file) >= (int)sizeof(path))
		return fail(l, -ENAMETOOLONG, "%s: path too long", file);
	return owned_read_path(path, TXDA_TEMPLATE_MAX_SOURCE, ret_text, ret_length, l->err,
			       l->errlen);
}

static int add_from_file(struct loader *l, const char *file, const char *name)
{
	size_t length, valid;
	char *text;
	int rc = read_file(l, file, &text, &length);

	if (rc)
		return rc;
	valid = utf8_valid_prefix((const uint8_t *)text, length);
	if (valid < length)
		rc = fail(l, -EINVAL, "%s: byte 0x%02x at offset %zu is not UTF-8", file,
			  (unsigned char)text[valid], valid);
	else
		rc = add_template(l, file, name, text, length);
	free(text);
	return rc;
}

static int add_more(struct loader *l)
{
	static const char folder[] = TEXT_FILES_FOLDER;
	char path[4096], file[512], name[256];
	struct dirent *entry;
	DIR *dir;
	int rc = 0;

	if (snprintf(path, sizeof(path), "%s/%s", l->directory, folder) >= (int)sizeof(path))
		return 0;
	dir = opendir(path);
	if (!dir)
		return 0;
	while (!rc && (entry = readdir(dir))) {
		const char *dot = strrchr(entry->d_name, '.');

		if (!dot || strcmp(dot, ".jinja") || dot == entry->d_name)
			continue;
		snprintf(name, sizeof(name), "%.*s", (int)(dot - entry->d_name), entry->d_name);
		snprintf(file, sizeof(file), "%s/%s", folder, entry->d_name);
		rc = add_from_file(l, file, name);
	}
	closedir(dir);
	return rc;
}

static int load_json(struct loader *l, const char *file, cJSON **ret)
{
	char path[4096];

	if (snprintf(path, sizeof(path), "%s/%s", l->directory, file) >= (int)sizeof(path))
		return fail(l, -ENAMETOOLONG, "%s: path too long", file);
	return txda_json_load_nul(path, MAX_CONFIG, ret, l->err, l->errlen);
}

/* A token is a string or an object with its text in `content`. */
static const char *token_text(const cJSON *token)
{
	const cJSON *content = cJSON_GetObjectItemCaseSensitive(token, "content");

	if (cJSON_IsString(token))
		return token->valuestring;
	return cJSON_IsString(content) ? content->valuestring : NULL;
}

static int add_special_tokens(struct loader *l, const cJSON *config)
{
	static const char *const names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
					    "pad_token", "cls_token", "mask_token"};
	static const char list_name[] = "additional_special_tokens";
	cJSON *tokens = l->chat->special_tokens;
	const cJSON *item, *more = cJSON_GetObjectItemCaseSensitive(config, list_name);
	cJSON *list;
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const char *text = token_text(cJSON_GetObjectItemCaseSensitive(config, names[i]));

		if (text && !cJSON_GetObjectItemCaseSensitive(tokens, names[i]) &&
		    !cJSON_AddStringToObject(tokens, names[i], text))
			return fail(l, -ENOMEM, "out of memory");
	}
	if (!cJSON_IsArray(more) || cJSON_GetObjectItemCaseSensitive(tokens, list_name))
		return 0;
	list = cJSON_AddArrayToObject(tokens, list_name);
	if (!list)
		return fail(l, -ENOMEM, "out of memory");
	cJSON_ArrayForEach(item, more) {
		const char *text = token_text(item);
		cJSON *token = text ? cJSON_CreateString(text) : NULL;

		if (text && !cJSON_AddItemToArray(list, token))
			return fail(l, -ENOMEM, "out of memory");
	}
	return 0;
}

static const struct chat_named_template *find_template(const struct txda_chat_template *chat,
						       const char *name)
{
	unsigned int i;

	for (i = 0; i < chat->n_templates; i++)
		if (!strcmp(chat->templates[i].name, name))
			return &chat->templates[i];
	return NULL;
}

/* Everything is read: chooses the standard template and probes the templates. */
static int finish(struct loader *l)
{
	struct txda_chat_template *chat = l->chat;
	unsigned int i;

	if (!chat->n_templates)
		return fail(l, -ENOENT, "%s: the model has no chat template", l->directory);
	chat->standard = find_template(chat, "default");
	chat->tool_use = find_template(chat, "tool_use");
	if (!chat->standard && chat->n_templates > 1)
		return fail(l, -EINVAL, "%s: none of the %u chat templates is named 'default'",
			    l->directory, chat->n_templates);
	if (!chat->standard)
		chat->standard = &chat->templates[0];
	for (i = 0; i < chat->n_templates; i++) {
		if (probe_all(chat, &chat->templates[i]))
			return fail(l, -ENOMEM, "out of memory");
		if (chat->tool_use && chat->standard == &chat->templates[i])
			chat->templates[i].capabilities.calls = chat->tool_use->capabilities.calls;
	}
	return 0;
}

static int load_all(struct loader *l)
{
	cJSON *config = NULL, *map = NULL, *processor = NULL;
	const cJSON *value;
	int rc = add_from_file(l, "chat_template.jinja", "default");

	if (rc && rc != -ENOENT)
		return rc;
	rc = load_json(l, "tokenizer_config.json", &config);
	if (!rc) {
		value = cJSON_GetObjectItemCaseSensitive(config, "chat_template");
		if (!l->chat->n_templates && value && !cJSON_IsNull(value))
			rc = add_from_json(l, "tokenizer_config.json", value);
		if (!rc)
			rc = add_special_tokens(l, config);
		cJSON_Delete(config);
	}
	if (rc && rc != -ENOENT)
		return rc;
	rc = load_json(l, "special_tokens_map.json", &map);
	if (!rc) {
		rc = add_special_tokens(l, map);
		cJSON_Delete(map);
	}
	if (rc && rc != -ENOENT)
		return rc;
	rc = l->chat->n_templates ? -ENOENT : load_json(l, "chat_template.json", &processor);
	if (!rc) {
		value = cJSON_GetObjectItemCaseSensitive(processor, "chat_template");
		if (value)
			rc = add_from_json(l, "chat_template.json", value);
		cJSON_Delete(processor);
	}
	if (rc && rc != -ENOENT)
		return rc;
	rc = add_more(l);
	return rc ? rc : finish(l);
}

static int new_chat(struct loader *l)
{
	l->chat = calloc(1, sizeof(*l->chat));
	if (l->chat)
		l->chat->special_tokens = cJSON_CreateObject();
	if (l->chat && l->chat->special_tokens)
		return 0;
	txda_chat_template_free(l->chat);
	return fail(l, -ENOMEM, "out of memory");
}

int txda_chat_template_load(const char *directory, struct txda_chat_template **ret_template,
			    char *err, size_t errlen)
{
	struct loader l = {.directory = directory, .err = err, .errlen = errlen};
	int rc = new_chat(&l);

	if (rc)
		return rc;
	rc = load_all(&l);
	if (rc) {
		txda_chat_template_free(l.chat);
		return rc;
	}
	*ret_template = l.chat;
	return 0;
}

void txda_chat_template_free(struct txda_chat_template *chat)
{
	unsigned int i;

	if (!chat)
		return;
	for (i = 0; i < chat->n_templates; i++) {
		free(chat->templates[i].name);
		txda_template_free(chat->templates[i].template);
	}
	cJSON_Delete(chat->special_tokens);
	free(chat);
}

const struct txda_chat_capabilities *
txda_chat_template_capabilities(const struct txda_chat_template *chat)
{
	return &chat->standard->capabilities;
}
