// SPDX-License-Identifier: MIT
#include "api_fields.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "api_value.h"
#include "nearest.h"

enum field_use {
	HONOURED,    /* the code that reads it must use it: see api_fields_settle() */
	LABEL,	     /* for people to read: there is nothing to honour, or to report */
	NO_EFFECT,   /* ignoring it leaves the answer unchanged */
	UNSUPPORTED, /* ignoring it would change the answer */
};

struct object;

struct field {
	const char *name;
	unsigned kinds; /* bits by enum api_kind */
	enum field_use use;
	const char *harmless;	     /* the JSON value that means the same as none; NULL: null */
	const struct object *inside; /* of the object, or of the objects of the array */
};

struct object {
	const struct field *fields;
	unsigned n;
	bool open;  /* unknown members are passed to the chat template, or ignored */
	bool typed; /* of all members but `type` only the one that `type` names is honoured */
};

#define OBJECT(fields, open)                                                                       \
	{                                                                                          \
		fields, sizeof(fields) / sizeof((fields)[0]), open                                 \
	}

#define CHAT	   (1u << API_CHAT)
#define COMPLETION (1u << API_COMPLETION)
#define EMBEDDING  (1u << API_EMBEDDING)
#define TOKENIZE   (1u << API_TOKENIZE)
#define DETOKENIZE (1u << API_DETOKENIZE)
#define FORWARD	   (1u << API_FORWARD)
#define GENERATION (CHAT | COMPLETION)
#define PROMPT	   (CHAT | EMBEDDING | TOKENIZE) /* made by the chat template */
#define ANY	   UINT32_MAX

/* ---- nested objects -------------------------------------------------------------------------- */

static const struct field image_fields[] = {
	{"url", ANY},
	{"detail", ANY},
};
static const struct object image = OBJECT(image_fields, true);

/* Parts of other types are refused because of their type. */
static const struct field part_fields[] = {
	{"type", ANY},
	{"text", ANY},
	{"image_url", ANY, .inside = &image},
};
static const struct object part = {part_fields, sizeof(part_fields) / sizeof(part_fields[0]),
				   .open = true, .typed = true};

static const struct field called_fields[] = {
	{"name", ANY},
	{"arguments", ANY},
};
static const struct object called = OBJECT(called_fields, true);
static const struct field call_fields[] = {
	{"id", ANY},
	{"type", ANY},
	{"function", ANY, .inside = &called},
};
static const struct object call = OBJECT(call_fields, true);

static const struct field message_fields[] = {
	{"role", ANY},
	{"content", ANY, .inside = &part},
	{"name", ANY},
	{"tool_calls", ANY, .inside = &call},
	{"tool_call_id", ANY},
	{"reasoning_content", ANY},
	{"reasoning", ANY, NO_EFFECT},
	{"refusal", ANY, NO_EFFECT},
	{"annotations", ANY, NO_EFFECT},
	{"audio", ANY, NO_EFFECT},
	{"function_call", ANY, NO_EFFECT},
};
static const struct object message = OBJECT(message_fields, true);

static const struct field function_fields[] = {
	{"name", ANY},
	{"description", ANY},
	{"parameters", ANY},
	{"strict", ANY},
};
static const struct object function = OBJECT(function_fields, true);
static const struct field tool_fields[] = {
	{"type", ANY},
	{"function", ANY, .inside = &function},
};
static const struct object tool = OBJECT(tool_fields, true);

static const struct field named_fields[] = {{"name", ANY}};
static const struct object named = OBJECT(named_fields, false);
static const struct field choice_fields[] = {
	{"type", ANY},
	{"function", ANY, .inside = &named},
};
static const struct object choice = OBJECT(choice_fields, false);

static const struct field stream_fields[] = {
	{"include_usage", ANY},
	{"continuous_usage_stats", ANY},
	{"include_obfuscation", ANY, NO_EFFECT},
};
static const struct object stream = OBJECT(stream_fields, false);

static const struct field schema_fields[] = {
	{"name", ANY, LABEL},
	{"description", ANY, LABEL},
	{"schema", ANY},
	{"strict", ANY},
};
static const struct object schema = OBJECT(schema_fields, false);
static const struct field format_fields[] = {
	{"type", ANY},
	{"json_schema", ANY, .inside = &schema},
	{"schema", ANY},
};
static const struct object format = OBJECT(format_fields, false);

static const struct field structured_fields[] = {
	{"json", ANY},
	{"regex", ANY},
	{"choice", ANY},
	{"grammar", ANY},
	{"json_object", ANY, .harmless = "false"},
	{"whitespace_pattern", ANY},
	{"disable_any_whitespace", ANY, .harmless = "false"},
	{"disable_fallback", ANY, NO_EFFECT},
	{"disable_additional_properties", ANY, UNSUPPORTED, "false"},
	{"structural_tag", ANY, UNSUPPORTED},
};
static const struct object structured = OBJECT(structured_fields, false);

static const struct field tensor_fields[] = {
	{"fd", ANY},
	{"offset", ANY},
	{"shape", ANY},
	{"dtype", ANY},
};
static const struct object tensor = OBJECT(tensor_fields, false);

/* ---- the body -------------------------------------------------------------------------------- */

static const struct field root_fields[] = {
	{"model", ANY},
	{"timeout", ANY},
	{"priority", ANY},
	{"keep_alive", ANY},
	{"user", ANY, NO_EFFECT},
	{"metadata", ANY, NO_EFFECT},
	{"store", ANY, NO_EFFECT},
	{"service_tier", ANY, NO_EFFECT},
	{"safety_identifier", ANY, NO_EFFECT},
	{"prompt_cache_key", ANY, NO_EFFECT},
	{"prompt_cache_retention", ANY, NO_EFFECT},
	{"request_id", ANY, NO_EFFECT},
	{"cache_salt", ANY},
	{"prediction", CHAT, NO_EFFECT},
	{"guided_decoding_backend", GENERATION, NO_EFFECT},

	{"messages", PROMPT, .inside = &message},
	{"tools", PROMPT, .inside = &tool},
	{"tool_choice", PROMPT, .inside = &choice},
	{"parallel_tool_calls", PROMPT, .harmless = "true"},
	{"chat_template_kwargs", PROMPT},
	{"reasoning_effort", PROMPT},
	{"add_generation_prompt", PROMPT},
	{"continue_final_message", PROMPT},
	{"include_reasoning", CHAT},
	{"thinking_budget", CHAT},
	{"thinking_token_budget", CHAT},
	{"prompt", COMPLETION | TOKENIZE},
	{"input", EMBEDDING},
	{"tokens", DETOKENIZE},
	{"add_special_tokens", GENERATION | EMBEDDING | TOKENIZE},
	{"return_token_strs", TOKENIZE},

	{"stream", GENERATION},
	{"stream_options", GENERATION, .inside = &stream},
	{"max_tokens", GENERATION},
	{"max_new_tokens", GENERATION},
	{"max_completion_tokens", CHAT},
	{"min_tokens", GENERATION},
	{"n", GENERATION},
	{"best_of", GENERATION},
	{"temperature", GENERATION},
	{"top_p", GENERATION},
	{"top_k", GENERATION},
	{"min_p", GENERATION},
	{"seed", GENERATION},
	{"repetition_penalty", GENERATION},
	{"presence_penalty", GENERATION},
	{"frequency_penalty", GENERATION},
	{"logit_bias", GENERATION},
	{"logprobs", GENERATION},
	{"top_logprobs", CHAT},
	{"stop", GENERATION},
	{"stop_token_ids", GENERATION},
	{"include_stop_str_in_output", GENERATION},
	{"ignore_eos", GENERATION},
	{"skip_special_tokens", GENERATION},
	{"use_beam_search", GENERATION},
	{"beam_width", GENERATION},
	{"length_penalty", GENERATION, .harmless = "1"},
	{"early_stopping", GENERATION, .harmless = "false"},
	{"response_format", GENERATION, .inside = &format},
	{"structured_outputs", GENERATION, .inside = &structured},
	{"guided_json", GENERATION},
	{"guided_regex", GENERATION},
	{"guided_choice", GENERATION},
	{"guided_grammar", GENERATION},
	{"guided_whitespace_pattern", GENERATION},
	{"echo", COMPLETION},

	{"encoding_format", EMBEDDING},
	{"dimensions", EMBEDDING},
	{"pooling", EMBEDDING},
	{"normalize", EMBEDDING},

	{"input_ids", FORWARD, .inside = &tensor},
	{"logits", FORWARD, .inside = &tensor},
	{"hidden_states", FORWARD, .inside = &tensor},
	{"rows", FORWARD},

	{"suffix", COMPLETION, UNSUPPORTED, "\"\""},
	{"echo", CHAT, UNSUPPORTED, "false"},
	{"verbosity", CHAT, UNSUPPORTED, "\"medium\""},
	{"modalities", CHAT, UNSUPPORTED, "[\"text\"]"},
	{"audio", CHAT, UNSUPPORTED},
	{"web_search_options", CHAT, UNSUPPORTED},
	{"functions", CHAT, UNSUPPORTED, "[]"},
	{"function_call", CHAT, UNSUPPORTED, "\"none\""},
	{"documents", CHAT, UNSUPPORTED, "[]"},
	{"chat_template", PROMPT, UNSUPPORTED},
	{"mm_processor_kwargs", PROMPT, UNSUPPORTED, "{}"},
	{"spaces_between_special_tokens", GENERATION, UNSUPPORTED, "true"},
	{"truncate_prompt_tokens", GENERATION | EMBEDDING, UNSUPPORTED},
	{"prompt_logprobs", GENERATION, UNSUPPORTED},
	{"allowed_token_ids", GENERATION, UNSUPPORTED},
	{"bad_words", GENERATION, UNSUPPORTED, "[]"},
	{"logits_processors", GENERATION, UNSUPPORTED, "[]"},
	{"return_tokens_as_token_ids", GENERATION, UNSUPPORTED, "false"},
	{"return_token_ids", GENERATION, UNSUPPORTED, "false"},
	{"kv_transfer_params", GENERATION, UNSUPPORTED, "{}"},
	{"vllm_xargs", GENERATION, UNSUPPORTED, "{}"},
};
static const struct object root_object = OBJECT(root_fields, false);

/* Names used by other servers for members of this API. */
static const struct {
	const char *theirs, *ours;
} translations[] = {
	{"n_predict", "max_tokens"},
	{"num_predict", "max_tokens"},
	{"max_length", "max_tokens"},
	{"repeat_penalty", "repetition_penalty"},
	{"do_sample", "temperature"},
	{"format", "response_format"},
	{"json_schema", "response_format"},
	{"grammar", "guided_grammar"},
	{"enable_thinking", "chat_template_kwargs"},
	{"thinking", "chat_template_kwargs"},
	{"text", "prompt"},
};

/* ---- the nearest known name ------------------------------------------------------------------ */

static const struct field *find(const struct object *o, unsigned kinds, const char *name)
{
	for (unsigned i = 0; i < o->n; i++)
		if (o->fields[i].kinds & kinds && !strcmp(o->fields[i].name, name))
			return &o->fields[i];
	return NULL;
}

/* A member name of @o; NULL: none. */
static const char *find_nearest(const struct object *o, unsigned kinds, const char *name)
{
	struct nearest near = nearest_to(name);
	const char *found = NULL;

	for (size_t i = 0; i < sizeof(translations) / sizeof(translations[0]); i++)
		if (!strcmp(name, translations[i].theirs) && find(o, kinds, translations[i].ours))
			return translations[i].ours;
	for (unsigned i = 0; i < o->n; i++)
		if (o->fields[i].kinds & kinds && o->fields[i].use == HONOURED &&
		    nearest_take(&near, o->fields[i].name))
			found = o->fields[i].name;
	return found;
}

static bool refuse_unknown(const char *path, const char *name, const char *near,
			   struct api_error *e)
{
	char param[96];

	snprintf(param, sizeof(param), "%s%.60s", path, name);
	return api_error_set(e, 400, "unknown_parameter", param,
			     "Unrecognized request argument supplied: %s%.60s%s%s%s", path, name,
			     near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

/* ---- the check ------------------------------------------------------------------------------- */

struct check {
	unsigned kinds;
	char *ignored; /* [API_IGNORED_MAX] */
	struct api_error *e;
};

/*
 * Records a name once, if there is room. Names come from the client, so characters that are not
 * allowed in a header are left out.
 */
static void ignore(struct check *c, const char *path, const char *name)
{
	static const char allowed[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-[]";
	char whole[128];
	size_t n, used = strlen(c->ignored);

	snprintf(whole, sizeof(whole), "%s%.60s", path, name);
	for (char *p = whole; *p; p++)
		if (!strchr(allowed, *p))
			*p = '?';
	n = strlen(whole);
	for (const char *p = c->ignored; (p = strstr(p, whole)); p++)
		if ((p == c->ignored || p[-1] == ' ') && (!p[n] || p[n] == ','))
			return;
	if (used + 2 + n + sizeof(", ...") <= API_IGNORED_MAX)
		snprintf(c->ignored + used, API_IGNORED_MAX - used, "%s%s", used ? ", " : "",
			 whole);
	else if (used < 5 || strcmp(c->ignored + used - 5, ", ..."))
		snprintf(c->ignored + used, API_IGNORED_MAX - used, ", ...");
}

/* Whether a value is the one that disables the feature. */
static bool is_harmless(const cJSON *value, const char *harmless)
{
	char text[64];

	return harmless &&
	       cJSON_PrintPreallocated((cJSON *)value, text, (int)sizeof(text), false) &&
	       !strcmp(text, harmless);
}

static bool check_object(struct check *c, const cJSON *object, const struct object *o,
			 const char *path);

static bool check_inside(struct check *c, const cJSON *value, const struct field *f,
			 const char *path)
{
	bool list = cJSON_IsArray(value);
	char inner[96];
	const cJSON *item;

	snprintf(inner, sizeof(inner), "%s%s%s.", path, f->name, list ? "[]" : "");
	if (!list)
		return check_object(c, value, f->inside, inner);
	cJSON_ArrayForEach(item, value) {
		if (!check_object(c, item, f->inside, inner))
			return false;
	}
	return true;
}

static bool check_member(struct check *c, const cJSON *value, const struct object *o,
			 const char *path)
{
	const struct field *f = find(o, c->kinds, value->string);
	char param[96], shown[96];

	if (!f && !o->open)
		return refuse_unknown(path, value->string, find_nearest(o, c->kinds, value->string),
				      c->e);
	if (!f || f->use == NO_EFFECT) {
		ignore(c, path, value->string);
		return true;
	}
	if (f->use == UNSUPPORTED && !is_harmless(value, f->harmless)) {
		snprintf(param, sizeof(param), "%s%s", path, f->name);
		return api_error_set(c->e, 400, "unsupported_value", param,
				     "%s is not supported: it must be %s or absent, not %s", param,
				     f->harmless ? f->harmless : "null",
				     api_describe(value, shown, sizeof(shown)));
	}
	return !f->inside || check_inside(c, value, f, path);
}

/* A value that is not an object is refused by the code that reads it. */
static bool check_object(struct check *c, const cJSON *object, const struct object *o,
			 const char *path)
{
	const char *type =
		o->typed ? cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, "type"))
			 : NULL;
	const cJSON *value;

	if (!cJSON_IsObject(object))
		return true;
	cJSON_ArrayForEach(value, object) {
		if (type && strcmp(value->string, "type") != 0 && strcmp(value->string, type) != 0)
			ignore(c, path, value->string);
		else if (!check_member(c, value, o, path))
			return false;
	}
	return true;
}

/* Removes members that are null, so that they are absent for chat templates, too. */
static void strip_nulls(cJSON *object, const struct object *o, unsigned kinds)
{
	cJSON *value = object->child, *next, *item;

	for (; value; value = next) {
		const struct field *f = find(o, kinds, value->string);

		next = value->next;
		if (cJSON_IsNull(value))
			cJSON_Delete(cJSON_DetachItemViaPointer(object, value));
		else if (f && f->inside && cJSON_IsObject(value))
			strip_nulls(value, f->inside, kinds);
		else if (f && f->inside && cJSON_IsArray(value))
			cJSON_ArrayForEach(item, value)
				if (cJSON_IsObject(item))
					strip_nulls(item, f->inside, kinds);
	}
}

bool api_fields_check(enum api_kind kind, cJSON *root, char *ret_ignored, struct api_error *e)
{
	struct check c = {1u << kind, ret_ignored, e};

	ret_ignored[0] = '\0';
	strip_nulls(root, &root_object, c.kinds);
	return check_object(&c, root, &root_object, "");
}

/* ---- what is left over ----------------------------------------------------------------------- */

/*
 * Members within an object qualify each other, so one without effect is a mistake; one of the body
 * is reported. Open objects are the template's, which sees all of them.
 */
static bool settle_object(struct check *c, const cJSON *object, const struct object *o,
			  const char *path)
{
	const cJSON *value;
	char inner[96];

	cJSON_ArrayForEach(value, object) {
		const struct field *f = find(o, c->kinds, value->string);

		if (!f || f->use != HONOURED)
			continue;
		snprintf(inner, sizeof(inner), "%s%s.", path, f->name);
		if (api_is_used(value)) {
			if (f->inside && !f->inside->open && cJSON_IsObject(value) &&
			    !settle_object(c, value, f->inside, inner))
				return false;
		} else if (is_harmless(value, f->harmless)) {
			continue;
		} else if (!*path) {
			ignore(c, path, f->name);
		} else {
			inner[strlen(inner) - 1] = '\0';
			return api_error_set(c->e, 400, "unsupported_value", inner,
					     "%s has no effect beside the other members of %.*s",
					     inner, (int)strlen(path) - 1, path);
		}
	}
	return true;
}

bool api_fields_settle(enum api_kind kind, const cJSON *root, char *ignored, struct api_error *e)
{
	struct check c = {1u << kind, ignored, e};

	return settle_object(&c, root, &root_object, "");
}

void api_fields_ignore(char *ignored, const char *path, const char *names)
{
	struct check c = {.ignored = ignored};
	char name[64];

	for (size_t n; *names; names += n + (names[n] == '\n')) {
		n = strcspn(names, "\n");
		snprintf(name, sizeof(name), "%.*s", (int)n, names);
		for (char *blank = name; (blank = strchr(blank, ' '));)
			*blank = '_';
		ignore(&c, path, name);
	}
}

bool api_fields_only(const cJSON *root, const char *const *names, struct api_error *e)
{
	const cJSON *value;

	cJSON_ArrayForEach(value, root) {
		const char *const *name = names;

		while (*name && strcmp(*name, value->string))
			name++;
		if (!*name && !cJSON_IsNull(value))
			return refuse_unknown("", value->string, NULL, e);
	}
	return true;
}
