// SPDX-License-Identifier: MIT
#include "chat_messages.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json_strict.h"

__attribute__((format(printf, 2, 3))) static int fail(struct txda_template_error *error,
						      const char *format, ...)
{
	va_list args;

	error->kind = TXDA_TEMPLATE_RUNTIME;
	error->line = 0;
	va_start(args, format);
	vsnprintf(error->message, sizeof(error->message), format, args);
	va_end(args);
	return -EINVAL;
}

static int out_of_memory(struct txda_template_error *error)
{
	fail(error, "out of memory");
	error->kind = TXDA_TEMPLATE_MEMORY;
	return -ENOMEM;
}

static cJSON *member(const cJSON *object, const char *name)
{
	return cJSON_GetObjectItemCaseSensitive(object, name);
}

static const cJSON *tool_arguments(const cJSON *call)
{
	return member(member(call, "function"), "arguments");
}

/* Whether calls come without the text that the template needs. */
static bool lacks_content(const cJSON *message, const struct txda_chat_capabilities *caps)
{
	return !caps->null_content && cJSON_IsNull(member(message, "content")) &&
	       cJSON_GetArraySize(member(message, "tool_calls"));
}

/* Whether this message needs to be converted. */
static bool needs_change(const cJSON *message, const struct txda_chat_capabilities *caps)
{
	const cJSON *content = member(message, "content"), *call;

	if (cJSON_IsArray(content) && !caps->content_parts)
		return true;
	if (cJSON_IsString(content) && !caps->content_string && caps->content_parts)
		return true;
	if (lacks_content(message, caps))
		return true;
	if (caps->argument_objects)
		cJSON_ArrayForEach(call, member(message, "tool_calls"))
			if (cJSON_IsString(tool_arguments(call)))
				return true;
	return false;
}

/* The text of one part, or NULL with @error. Strings in the list count as texts. */
static const char *part_text(const cJSON *part, int number, struct txda_template_error *error)
{
	const cJSON *type = member(part, "type"), *text = member(part, "text");

	if (cJSON_IsString(part))
		return part->valuestring;
	if (cJSON_IsString(text) &&
	    (!type || (cJSON_IsString(type) && (!strcmp(type->valuestring, "text") ||
						!strcmp(type->valuestring, "input_text") ||
						!strcmp(type->valuestring, "output_text")))))
		return text->valuestring;
	if (cJSON_IsString(type) && strcmp(type->valuestring, "text"))
		fail(error, "messages[%d]: the chat template takes no content of type '%.60s'",
		     number, type->valuestring);
	else
		fail(error, "messages[%d]: a part of the content has no text", number);
	return NULL;
}

static int join_parts(const cJSON *parts, int number, struct txda_template_error *error,
		      cJSON **ret)
{
	const cJSON *part;
	size_t length = 0, used = 0;
	char *text;

	cJSON_ArrayForEach(part, parts) {
		const char *s = part_text(part, number, error);

		if (!s)
			return -EINVAL;
		length += strlen(s) + 1;
	}
	text = malloc(length + 1);
	if (!text)
		return out_of_memory(error);
	cJSON_ArrayForEach(part, parts) {
		const char *s = part_text(part, number, error);

		if (part != parts->child)
			text[used++] = '\n';
		memcpy(text + used, s, strlen(s));
		used += strlen(s);
	}
	text[used] = '\0';
	*ret = cJSON_CreateString(text);
	free(text);
	return *ret ? 0 : out_of_memory(error);
}

static int wrap_string(const cJSON *content, struct txda_template_error *error, cJSON **ret)
{
	cJSON *parts = cJSON_CreateArray(), *part = cJSON_CreateObject();

	if (!parts || !part || !cJSON_AddStringToObject(part, "type", "text") ||
	    !cJSON_AddStringToObject(part, "text", content->valuestring) ||
	    !cJSON_AddItemToArray(parts, part)) {
		cJSON_Delete(parts);
		cJSON_Delete(part);
		return out_of_memory(error);
	}
	*ret = parts;
	return 0;
}

static int change_content(cJSON *message, int number, const struct txda_chat_capabilities *caps,
			  struct txda_template_error *error)
{
	cJSON *content = member(message, "content"), *changed;
	int rc;

	if (cJSON_IsArray(content) && !caps->content_parts)
		rc = join_parts(content, number, error, &changed);
	else if (cJSON_IsString(content) && !caps->content_string && caps->content_parts)
		rc = wrap_string(content, error, &changed);
	else if (lacks_content(message, caps))
		rc = (changed = cJSON_CreateString("")) ? 0 : out_of_memory(error);
	else
		return 0;
	if (rc)
		return rc;
	if (!cJSON_ReplaceItemInObjectCaseSensitive(message, "content", changed)) {
		cJSON_Delete(changed);
		return out_of_memory(error);
	}
	return 0;
}

/*
 * Text that is not a JSON object is kept: the model may have generated it in this form. Blank text
 * is what some clients send for a call without arguments, and becomes an empty object.
 */
static int change_arguments(cJSON *call, struct txda_template_error *error)
{
	cJSON *function = member(call, "function");
	cJSON *arguments = member(function, "arguments"), *parsed;
	const char *text;

	if (!cJSON_IsString(arguments))
		return 0;
	text = arguments->valuestring;
	if (!text[strspn(text, " \t\r\n")])
		text = "{}";
	parsed = txda_json_parse(text, strlen(text), NULL, 0);
	if (!cJSON_IsObject(parsed)) {
		cJSON_Delete(parsed);
		return 0;
	}
	if (txda_template_mark_numbers(parsed, text, strlen(text)) == -ENOMEM ||
	    !cJSON_ReplaceItemInObjectCaseSensitive(function, "arguments", parsed)) {
		cJSON_Delete(parsed);
		return out_of_memory(error);
	}
	return 0;
}

static int change_message(cJSON *message, int number, const struct txda_chat_capabilities *caps,
			  struct txda_template_error *error)
{
	cJSON *call;
	int rc = change_content(message, number, caps, error);

	if (rc || !caps->argument_objects)
		return rc;
	cJSON_ArrayForEach(call, member(message, "tool_calls")) {
		rc = change_arguments(call, error);
		if (rc)
			return rc;
	}
	return 0;
}

int txda_chat_messages_adapt(const cJSON *messages,
			     const struct txda_chat_capabilities *capabilities,
			     struct txda_template_error *error, cJSON **ret_messages)
{
	bool change = false;
	const cJSON *message;
	cJSON *copy, *item;
	int number = 0, rc;

	if (!cJSON_IsArray(messages))
		return fail(error, "messages must be an array");
	cJSON_ArrayForEach(message, messages) {
		if (!cJSON_IsObject(message))
			return fail(error, "messages[%d] must be an object", number);
		change |= needs_change(message, capabilities);
		number++;
	}
	if (!change) {
		*ret_messages = NULL;
		return 0;
	}
	copy = cJSON_Duplicate(messages, true);
	if (!copy)
		return out_of_memory(error);
	number = 0;
	cJSON_ArrayForEach(item, copy) {
		rc = change_message(item, number++, capabilities, error);
		if (rc) {
			cJSON_Delete(copy);
			return rc;
		}
	}
	*ret_messages = copy;
	return 0;
}
