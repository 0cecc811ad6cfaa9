// SPDX-License-Identifier: MIT
#include "api_messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api_value.h"

static bool out_of_memory(struct api_error *e)
{
	return api_error_set(e, 500, NULL, NULL, "out of memory");
}

enum part_kind {
	PART_BROKEN,
	PART_TEXT,
	PART_IMAGE,
};

static enum part_kind check_part(const cJSON *part, const char *where, struct api_error *e)
{
	const char *type = NULL;
	char buf[96];
	const cJSON *text;

	if (!cJSON_IsObject(part))
		api_error_set(e, 400, NULL, where, "%s must be an object, not %s", where,
			      api_describe(part, buf, sizeof(buf)));
	if (!cJSON_IsObject(part) || !api_string(part, "type", &type, e))
		return PART_BROKEN;
	if (type && !strcmp(type, "image_url"))
		return PART_IMAGE;
	if (!type || strcmp(type, "text")) {
		api_error_set(e, 400, "unsupported_value", where,
			      "%s has the type \"%.40s\"; only \"text\" and \"image_url\" are "
			      "supported",
			      where, type ? type : "");
		return PART_BROKEN;
	}
	text = cJSON_GetObjectItemCaseSensitive(part, "text");
	if (!cJSON_IsString(text)) {
		api_error_set(e, 400, NULL, where, "%s has no string \"text\"", where);
		return PART_BROKEN;
	}
	return PART_TEXT;
}

/* Moves the image_url of a part to the list of images; templates only see the part's type. */
static bool take_image(struct api_params *p, cJSON *part, const char *where, struct api_error *e)
{
	const char *detail = NULL;
	cJSON *image = cJSON_GetObjectItemCaseSensitive(part, "image_url"), *url = image, *type;

	if (cJSON_IsObject(image)) {
		if (!api_string(image, "detail", &detail, e))
			return false;
		if (detail && strcmp(detail, "auto") && strcmp(detail, "low") &&
		    strcmp(detail, "high"))
			return api_error_set(e, 400, NULL, where,
					     "%s: detail must be \"auto\", \"low\" or \"high\", "
					     "not \"%.40s\"",
					     where, detail);
		url = cJSON_GetObjectItemCaseSensitive(image, "url");
	}
	if (!cJSON_IsString(url))
		return api_error_set(e, 400, NULL, where,
				     "%s must have image_url, an object with the string \"url\"",
				     where);
	type = cJSON_CreateString("image");
	if (!p->images)
		p->images = cJSON_CreateArray();
	if (!type || !p->images || !cJSON_ReplaceItemInObjectCaseSensitive(part, "type", type)) {
		cJSON_Delete(type);
		return out_of_memory(e);
	}
	cJSON_AddItemToArray(p->images, cJSON_DetachItemViaPointer(part, image));
	p->n_images++;
	return true;
}

/* Templates look for members such as `video` and `image`, whatever the type of a part is. */
static void strip_part(cJSON *part, const char *kept)
{
	cJSON *member = part->child, *next;

	for (; member; member = next) {
		next = member->next;
		if (strcmp(member->string, "type") != 0 && strcmp(member->string, kept) != 0)
			cJSON_Delete(cJSON_DetachItemViaPointer(part, member));
	}
}

/* Checks the parts of a message; what a template makes of several texts is its own affair. */
static bool check_parts(struct api_params *p, const cJSON *parts, unsigned index,
			struct api_error *e)
{
	unsigned k = 0;
	cJSON *part;

	cJSON_ArrayForEach(part, parts) {
		char where[64];

		snprintf(where, sizeof(where), "messages[%u].content[%u]", index, k++);
		switch (check_part(part, where, e)) {
		case PART_BROKEN: return false;
		case PART_TEXT: strip_part(part, "text"); break;
		case PART_IMAGE:
			if (!take_image(p, part, where, e))
				return false;
			strip_part(part, "type");
		}
	}
	return true;
}

/* A string that is not empty; @optional: or an empty one or none. */
static bool check_string(const cJSON *object, const char *path, const char *name, bool optional,
			 struct api_error *e)
{
	const cJSON *value = api_member(object, name);
	char where[96], buf[96];

	if (cJSON_IsString(value) ? optional || *value->valuestring : !value && optional)
		return true;
	snprintf(where, sizeof(where), "%s.%s", path, name);
	if (!value)
		return api_error_set(e, 400, NULL, where, "%s is missing", where);
	return api_error_set(e, 400, NULL, where, "%s must be a string%s, not %s", where,
			     optional ? "" : " that is not empty",
			     api_describe(value, buf, sizeof(buf)));
}

/* A call of an earlier turn: what a model wrote, so its name and arguments may be odd. */
static bool check_call(const cJSON *call, const char *where, struct api_error *e)
{
	const cJSON *function, *type, *arguments;
	char inner[96], buf[96];

	if (!cJSON_IsObject(call))
		return api_error_set(e, 400, NULL, where, "%s must be an object, not %s", where,
				     api_describe(call, buf, sizeof(buf)));
	if (!check_string(call, where, "id", true, e) ||
	    !check_string(call, where, "type", true, e))
		return false;
	type = api_member(call, "type");
	if (type && strcmp(type->valuestring, "function"))
		return api_error_set(e, 400, "unsupported_value", where,
				     "%s has the type \"%.40s\"; only \"function\" is supported",
				     where, type->valuestring);
	function = api_member(call, "function");
	snprintf(inner, sizeof(inner), "%.64s.function", where);
	if (!function)
		return api_error_set(e, 400, NULL, inner, "%s is missing", inner);
	if (!cJSON_IsObject(function))
		return api_error_set(e, 400, NULL, inner, "%s must be an object, not %s", inner,
				     api_describe(function, buf, sizeof(buf)));
	if (!check_string(function, inner, "name", false, e))
		return false;
	arguments = api_member(function, "arguments");
	if (!arguments || cJSON_IsString(arguments) || cJSON_IsObject(arguments))
		return true;
	snprintf(inner, sizeof(inner), "%.64s.function.arguments", where);
	return api_error_set(e, 400, NULL, inner, "%s must be JSON text or an object, not %s",
			     inner, api_describe(arguments, buf, sizeof(buf)));
}

/* The members of a message beside its role and content. */
static bool check_rest(const cJSON *message, unsigned index, struct api_error *e)
{
	const cJSON *calls = api_member(message, "tool_calls"), *call;
	char where[64], buf[96];
	unsigned i = 0;

	snprintf(where, sizeof(where), "messages[%u]", index);
	if (!check_string(message, where, "name", true, e) ||
	    !check_string(message, where, "tool_call_id", true, e))
		return false;
	snprintf(where, sizeof(where), "messages[%u].tool_calls", index);
	if (calls && !cJSON_IsArray(calls))
		return api_error_set(e, 400, NULL, where, "%s must be an array, not %s", where,
				     api_describe(calls, buf, sizeof(buf)));
	cJSON_ArrayForEach(call, calls) {
		snprintf(where, sizeof(where), "messages[%u].tool_calls[%u]", index, i++);
		if (!check_call(call, where, e))
			return false;
	}
	return true;
}

static bool check_message(struct api_params *p, cJSON *message, unsigned index, struct api_error *e)
{
	const cJSON *role, *content, *calls;
	char where[64], buf[96];

	snprintf(where, sizeof(where), "messages[%u]", index);
	if (!cJSON_IsObject(message))
		return api_error_set(e, 400, NULL, where, "%s must be an object, not %s", where,
				     api_describe(message, buf, sizeof(buf)));
	role = api_member(message, "role");
	content = api_member(message, "content");
	calls = api_member(message, "tool_calls");
	snprintf(where, sizeof(where), "messages[%u].role", index);
	if (!role)
		return api_error_set(e, 400, NULL, where, "%s is missing", where);
	if (!cJSON_IsString(role) || !*role->valuestring)
		return api_error_set(e, 400, NULL, where,
				     "%s must be a string such as \"user\", not %s", where,
				     api_describe(role, buf, sizeof(buf)));
	if (!check_rest(message, index, e))
		return false;
	snprintf(where, sizeof(where), "messages[%u].content", index);
	if (cJSON_IsArray(content))
		return check_parts(p, content, index, e);
	if (content && !cJSON_IsString(content))
		return api_error_set(e, 400, NULL, where,
				     "%s must be a string or an array of parts, not %s", where,
				     api_describe(content, buf, sizeof(buf)));
	if (!content && !(calls && calls->child))
		return api_error_set(e, 400, NULL, where, "%s is missing", where);
	/* Templates read content without checking whether it is present; "" where they need it. */
	if (!content && !cJSON_AddNullToObject(message, "content"))
		return out_of_memory(e);
	return true;
}

/* Adds a variable that is marked, as it is not the client's (api_params_unread()). */
static bool add_own(cJSON *object, const char *name, cJSON *value)
{
	if (!value || !cJSON_AddItemToObject(object, name, value)) {
		cJSON_Delete(value);
		return false;
	}
	return api_member(object, name);
}

/*
 * The effort level is interpreted by the template, as in vLLM; "none" is also a value that Qwen's
 * know.
 */
static bool add_effort(struct api_params *p, const cJSON **kwargs, struct api_error *e)
{
	const char *effort = NULL;
	cJSON *object = (cJSON *)*kwargs;

	if (!api_string(p->root, "reasoning_effort", &effort, e))
		return false;
	if (!effort)
		return true;
	if (!object) {
		object = cJSON_CreateObject();
		if (!object || !cJSON_AddItemToObject(p->root, "chat_template_kwargs", object)) {
			cJSON_Delete(object);
			return out_of_memory(e);
		}
		api_member(p->root, "chat_template_kwargs");
	}
	if (cJSON_GetObjectItemCaseSensitive(object, "reasoning_effort"))
		api_leave(p->root, "reasoning_effort");
	else if (!add_own(object, "reasoning_effort", cJSON_CreateString(effort)))
		return out_of_memory(e);
	if (!strcmp(effort, "none") &&
	    !cJSON_GetObjectItemCaseSensitive(object, "enable_thinking") &&
	    !add_own(object, "enable_thinking", cJSON_CreateFalse()))
		return out_of_memory(e);
	*kwargs = object;
	return true;
}

void api_params_unread(struct api_params *p, const char *names)
{
	bool effort = false, thinking = false;
	const cJSON *item;
	char name[64];

	for (size_t n; *names; names += n + (names[n] == '\n')) {
		n = strcspn(names, "\n");
		snprintf(name, sizeof(name), "%.*s", (int)n, names);
		item = cJSON_GetObjectItemCaseSensitive(p->template_kwargs, name);
		if (item && !api_is_used(item))
			api_fields_ignore(p->ignored, "chat_template_kwargs.", name);
		else if (item && !strcmp(name, "enable_thinking"))
			thinking = true;
		else if (item)
			effort = true;
		else if (!strcmp(name, "tools") && p->tool_choice == API_TOOLS_AUTO)
			api_fields_ignore(p->ignored, "", name);
	}
	/* "none" may be told by either variable. */
	item = cJSON_GetObjectItemCaseSensitive(p->template_kwargs, "enable_thinking");
	if (effort && (thinking || !item || !api_is_used(item)))
		api_fields_ignore(p->ignored, "", "reasoning_effort");
}

bool api_parse_messages(struct api_params *p, struct api_error *e)
{
	const cJSON *messages = api_member(p->root, "messages"),
		    *kwargs = api_member(p->root, "chat_template_kwargs");
	unsigned index = 0;
	cJSON *message;
	char buf[96];

	if (!messages)
		return api_error_set(e, 400, NULL, "messages", "messages is missing");
	if (!cJSON_IsArray(messages))
		return api_error_set(e, 400, NULL, "messages", "messages must be an array, not %s",
				     api_describe(messages, buf, sizeof(buf)));
	if (!messages->child)
		return api_error_set(e, 400, NULL, "messages", "messages must not be empty");
	cJSON_ArrayForEach(message, messages)
		if (!check_message(p, message, index++, e))
			return false;
	p->messages = messages;
	if (kwargs && !cJSON_IsObject(kwargs))
		return api_error_set(e, 400, NULL, "chat_template_kwargs",
				     "chat_template_kwargs must be an object, not %s",
				     api_describe(kwargs, buf, sizeof(buf)));
	if (!add_effort(p, &kwargs, e))
		return false;
	p->template_kwargs = kwargs;
	if (!api_bool(p->root, "continue_final_message", &p->continue_final_message, e))
		return false;
	/* An embedding is of the messages alone, without the prompt for an answer. */
	p->add_generation_prompt = !p->continue_final_message && p->kind != API_EMBEDDING;
	if (!api_bool(p->root, "add_generation_prompt", &p->add_generation_prompt, e))
		return false;
	if (p->continue_final_message && p->add_generation_prompt)
		return api_error_set(
			e, 400, NULL, "continue_final_message",
			"continue_final_message and add_generation_prompt exclude each other");
	return api_parse_tools(p, e);
}

static bool parse_ids(const cJSON *array, const char *name, struct api_prompt *ret,
		      struct api_error *e)
{
	unsigned n = (unsigned)cJSON_GetArraySize(array), i = 0;
	const cJSON *item;
	char buf[96];

	if (!n)
		return api_error_set(e, 400, NULL, name, "%s must not be empty", name);
	ret->ids = malloc(n * sizeof(*ret->ids));
	if (!ret->ids)
		return out_of_memory(e);
	ret->n_ids = n;
	cJSON_ArrayForEach(item, array) {
		int64_t id;

		if (!api_value_int(item, &id) || id < 0 || id > INT32_MAX)
			return api_error_set(e, 400, NULL, name, "%s must hold token ids, not %s",
					     name, api_describe(item, buf, sizeof(buf)));
		ret->ids[i++] = (int32_t)id;
	}
	return true;
}

/* Limits their number: for completions by the answers, for embeddings by the texts. */
static bool check_number(const struct api_params *p, const char *name, unsigned n,
			 struct api_error *e)
{
	if (p->kind == API_EMBEDDING && n > API_MAX_INPUTS)
		return api_error_set(e, 400, NULL, name, "%s has %u texts; the limit is %d", name,
				     n, API_MAX_INPUTS);
	if (p->kind == API_COMPLETION && n > API_MAX_CHOICES / p->best_of)
		return api_error_set(e, 400, NULL, name,
				     "%u prompts with %s = %u make %llu choices; the limit is %d",
				     n, p->best_of > p->n ? "best_of" : "n", p->best_of,
				     (unsigned long long)n * p->best_of, API_MAX_CHOICES);
	return true;
}

bool api_parse_prompts(struct api_params *p, const char *name, struct api_error *e)
{
	const cJSON *prompt = api_member(p->root, name), *item;
	bool many = cJSON_IsArray(prompt) &&
		    (cJSON_IsString(prompt->child) || cJSON_IsArray(prompt->child));
	unsigned n = many ? (unsigned)cJSON_GetArraySize(prompt) : 1;
	char buf[96], one_name[API_PROMPT_NAME];

	if (!prompt)
		return api_error_set(e, 400, NULL, name, "%s is missing", name);
	if (!cJSON_IsString(prompt) && !cJSON_IsArray(prompt))
		return api_error_set(
			e, 400, NULL, name,
			"%s must be a string, an array of strings, or token ids, not %s", name,
			api_describe(prompt, buf, sizeof(buf)));
	if (!check_number(p, name, n, e))
		return false;
	p->prompts = calloc(n, sizeof(*p->prompts));
	if (!p->prompts)
		return out_of_memory(e);
	p->n_prompts = n;
	if (!many) {
		p->prompts[0].text = cJSON_IsString(prompt) ? prompt->valuestring : NULL;
		return cJSON_IsString(prompt) || parse_ids(prompt, name, &p->prompts[0], e);
	}
	n = 0;
	cJSON_ArrayForEach(item, prompt) {
		struct api_prompt *one = &p->prompts[n];

		if (cJSON_IsString(prompt->child) != cJSON_IsString(item) ||
		    (!cJSON_IsString(item) && !cJSON_IsArray(item)))
			return api_error_set(
				e, 400, NULL, name,
				"%s must hold strings only or arrays only, not %s among them", name,
				api_describe(item, buf, sizeof(buf)));
		if (cJSON_IsString(item))
			one->text = item->valuestring;
		else if (!parse_ids(item, api_prompt_name(p, name, n, one_name), one, e))
			return false;
		n++;
	}
	return true;
}
