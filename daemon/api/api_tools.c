// SPDX-License-Identifier: MIT
#include <stdio.h>
#include <string.h>

#include "api_params.h"
#include "api_value.h"

/* A valid function name: letters, digits, and - _ . */
static bool is_function_name(const char *name)
{
	size_t n =
		strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-");

	return n && n <= 64 && !name[n];
}

static bool check_tool(const cJSON *tool, unsigned index, struct api_error *e)
{
	const cJSON *function = cJSON_IsObject(tool) ? api_member(tool, "function") : NULL;
	const cJSON *parameters;
	const char *type = "function", *name = NULL;
	char where[64], buf[96];
	bool strict;

	snprintf(where, sizeof(where), "tools[%u]", index);
	if (!cJSON_IsObject(tool))
		return api_error_set(e, 400, NULL, where, "%s must be an object, not %s", where,
				     api_describe(tool, buf, sizeof(buf)));
	if (!api_string(tool, "type", &type, e))
		return false;
	if (strcmp(type, "function"))
		return api_error_set(e, 400, "unsupported_value", where,
				     "%s has the type \"%.40s\"; only \"function\" is supported",
				     where, type);
	snprintf(where, sizeof(where), "tools[%u].function", index);
	if (!cJSON_IsObject(function))
		return api_error_set(e, 400, NULL, where, "%s must be an object", where);
	if (!api_string(function, "name", &name, e) || !api_bool(function, "strict", &strict, e))
		return false;
	if (!name || !is_function_name(name))
		return api_error_set(e, 400, NULL, where,
				     "%s.name must have 1 to 64 letters, digits, and _ . or -, not "
				     "\"%.80s\"",
				     where, name ? name : "");
	parameters = api_member(function, "parameters");
	if (parameters && !cJSON_IsObject(parameters) && !cJSON_IsBool(parameters))
		return api_error_set(e, 400, NULL, where, "%s.parameters must be a JSON schema",
				     where);
	return true;
}

static bool has_tool(const cJSON *tools, const char *name)
{
	const cJSON *tool;

	cJSON_ArrayForEach(tool, tools) {
		const cJSON *mine = api_member(api_member(tool, "function"), "name");

		if (!strcmp(mine->valuestring, name))
			return true;
	}
	return false;
}

/* {"type": "function", "function": {"name": "f"}} */
static bool named_choice(struct api_params *p, const cJSON *choice, const cJSON *tools,
			 struct api_error *e)
{
	const cJSON *function = api_member(choice, "function");
	const char *type = "function", *name = NULL;

	if (!api_string(choice, "type", &type, e))
		return false;
	if (strcmp(type, "function"))
		return api_error_set(e, 400, "unsupported_value", "tool_choice",
				     "tool_choice has the type \"%.40s\"; only \"function\" is "
				     "supported",
				     type);
	if (!cJSON_IsObject(function) || !api_string(function, "name", &name, e) || !name)
		return api_error_set(e, 400, NULL, "tool_choice",
				     "tool_choice must name a function: {\"type\": \"function\", "
				     "\"function\": {\"name\": ...}}");
	if (!has_tool(tools, name))
		return api_error_set(e, 400, NULL, "tool_choice",
				     "tool_choice names \"%.80s\", which is not one of the tools",
				     name);
	p->tool_choice = API_TOOLS_NAMED;
	p->tool_name = name;
	return true;
}

static bool parse_choice(struct api_params *p, const cJSON *tools, struct api_error *e)
{
	const cJSON *choice = api_member(p->root, "tool_choice");
	const char *word = cJSON_IsString(choice) ? choice->valuestring : NULL;
	bool any = tools && tools->child;
	char buf[96];

	p->tool_choice = any ? API_TOOLS_AUTO : API_TOOLS_NONE;
	if (!choice || (word && !strcmp(word, "auto")))
		return true;
	if (word && !strcmp(word, "none")) {
		p->tool_choice = API_TOOLS_NONE;
		return true;
	}
	if (!cJSON_IsObject(choice) && (!word || strcmp(word, "required")))
		return api_error_set(
			e, 400, NULL, "tool_choice",
			"tool_choice must be \"none\", \"auto\", \"required\" or name a "
			"function, not %s",
			api_describe(choice, buf, sizeof(buf)));
	if (!any)
		return api_error_set(e, 400, NULL, "tool_choice",
				     "tool_choice asks for a call, but there are no tools");
	if (!word)
		return named_choice(p, choice, tools, e);
	p->tool_choice = API_TOOLS_REQUIRED;
	return true;
}

/* What the model writes by itself is parsed, but not constrained. */
static void ignore_strict(struct api_params *p)
{
	const cJSON *tool;

	cJSON_ArrayForEach(tool, p->tools) {
		if (cJSON_IsTrue(api_member(api_member(tool, "function"), "strict")))
			api_fields_ignore(p->ignored, "tools[].function.", "strict");
	}
}

bool api_parse_tools(struct api_params *p, struct api_error *e)
{
	const cJSON *tools = api_member(p->root, "tools"), *tool;
	unsigned index = 0;
	char buf[96];

	p->parallel_tools = true;
	if (tools && !cJSON_IsArray(tools))
		return api_error_set(e, 400, NULL, "tools", "tools must be an array, not %s",
				     api_describe(tools, buf, sizeof(buf)));
	if (tools && cJSON_GetArraySize(tools) > API_MAX_TOOLS)
		return api_error_set(e, 400, NULL, "tools",
				     "tools has %d functions; the limit is %d",
				     cJSON_GetArraySize(tools), API_MAX_TOOLS);
	cJSON_ArrayForEach(tool, tools) {
		if (!check_tool(tool, index++, e))
			return false;
	}
	if (!parse_choice(p, tools, e) ||
	    !api_bool(p->root, "parallel_tool_calls", &p->parallel_tools, e))
		return false;
	p->tools = p->tool_choice == API_TOOLS_NONE ? NULL : tools;
	if (!p->tools)
		api_leave(p->root, "parallel_tool_calls");
	if (p->tool_choice < API_TOOLS_REQUIRED)
		ignore_strict(p);
	if (p->tool_choice >= API_TOOLS_REQUIRED && p->format.form)
		return api_error_set(e, 400, NULL, "tool_choice",
				     "tool_choice asks for a call and %s for another format: they "
				     "exclude each other",
				     p->format.param);
	return true;
}
