/* SPDX-License-Identifier: MIT */
/*
 * The chat template of a model: converts OpenAI-style messages to the text of a prompt.
 *
 * A Hugging Face directory holds its template in chat_template.jinja, in tokenizer_config.json
 * ("chat_template": one text, a list of {name, template} or an object of texts by name) or in
 * chat_template.json, looked for in this order; further named ones in
 * additional_chat_templates/NAME.jinja. The special tokens (bos_token, eos_token, …) that a template
 * sees come from tokenizer_config.json, or special_tokens_map.json for those that are missing there.
 *
 * The text contains the special tokens as text, including a leading bos_token if the template
 * writes one: encode it with special tokens recognised and without adding any.
 *
 * Threads: an object is immutable after loading, render from any thread.
 */
#ifndef TXDA_TEXT_CHAT_TEMPLATE_H
#define TXDA_TEXT_CHAT_TEMPLATE_H

#include <stdbool.h>

#include "jinja.h"
#include "reply_format.h"

struct txda_chat_template;

/*
 * Capabilities of the template, determined by rendering small probes when it is loaded, and by its
 * marks.
 */
struct txda_chat_capabilities {
	bool content_string;   /* content may be a string */
	bool content_parts;    /* content may be a list of {"type": "text", "text": …} */
	bool tools;	       /* the prompt names the tools of the request */
	bool tool_calls;       /* tool calls of earlier assistant messages are rendered */
	bool argument_objects; /* function.arguments is to be an object; else JSON text */
	bool thinking;	       /* reads the variable enable_thinking */
	/* The format of calls that it makes the model write. */
	enum reply_tools calls;
	enum reply_reasoning reasoning;
	bool null_content; /* content None beside tool calls is good; else it is to be "" */
};

struct txda_chat_request {
	const cJSON *messages;	/* array of objects */
	const cJSON *tools;	/* array, or NULL */
	const cJSON *documents; /* array, or NULL */
	const cJSON *variables; /* object: more variables (enable_thinking, …), or NULL */
	const struct tm *now;	/* for strftime_now(); NULL: the local time */
	const struct txda_template_limits *limits; /* NULL: the default */
	bool add_generation_prompt;
};

/*
 * Loads the template of the model in @directory. Returns 0; -ENOENT if the model has none (callers
 * may offer plain completions only); -EINVAL, -E2BIG, -EFBIG if a file is malformed or too large;
 * -ENOMEM or another -errno of reading. @err (may be NULL) gets the reason and the file.
 */
int txda_chat_template_load(const char *directory, struct txda_chat_template **ret_template,
			    char *err, size_t errlen);

void txda_chat_template_free(struct txda_chat_template *chat);

/* What the template supports; `calls` is that of "tool_use" if there is one. */
const struct txda_chat_capabilities *
txda_chat_template_capabilities(const struct txda_chat_template *chat);

/* Whether the template for requests with (or without) tools mentions the variable at all. */
bool txda_chat_template_mentions(const struct txda_chat_template *chat, bool with_tools,
				 const char *name);

/*
 * Renders the prompt; the caller frees *@ret_text. Errors as txda_template_render(); -EPROTO is the
 * template's own refusal (raise_exception), whose message is meant for the client.
 *
 * Messages are passed unchanged, except that
 * - content in parts becomes a string for a template that knows no parts: texts joined by "\n", and
 *   a part that is not text is an error; a string becomes one part for a template that knows parts
 *   only;
 * - content None beside tool calls becomes "" for a template that fails on it or prints it;
 * - function.arguments of tool calls, JSON text in OpenAI's form, becomes an object for a template
 *   that expects one, an empty one if the text is blank. A template named "tool_use" is used
 *   instead of the default if there are tools. `tools` and `documents` are None if not given.
 *   @variables override special tokens, but not the members of the request.
 */
int txda_chat_template_render(const struct txda_chat_template *chat,
			      const struct txda_chat_request *request,
			      struct txda_template_error *error, char **ret_text,
			      size_t *ret_length);

#endif
