// SPDX-License-Identifier: MIT
/*
 * Rendering of requests: the variables that a template sees.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "chat_internal.h"
#include "chat_messages.h"

const struct txda_chat_capabilities *
txda_chat_template_capabilities(const struct txda_chat_template *chat)
{
	return &chat->standard->capabilities;
}

const struct chat_named_template *chat_choose(const struct txda_chat_template *chat,
					      const struct txda_chat_request *request)
{
	if (chat->tool_use && cJSON_GetArraySize(request->tools) > 0)
		return chat->tool_use;
	return chat->standard;
}

/*
 * Set @name to a reference: the context owns nothing of @value, which is only read. Names may be
 * set more than once; rendering takes the last one.
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

	cJSON_ArrayForEach(item,
			   object) if (!set_reference(context, item->string, item)) return false;
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

int chat_render_plain(const struct txda_chat_template *chat, const struct txda_template *template,
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

int txda_chat_template_render(const struct txda_chat_template *chat,
			      const struct txda_chat_request *request,
			      struct txda_template_error *error, char **ret_text,
			      size_t *ret_length)
{
	const struct chat_named_template *named = chat_choose(chat, request);
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
	rc = chat_render_plain(chat, named->template, &adapted, error, ret_text, ret_length);
	cJSON_Delete(messages);
	return rc;
}
