/* SPDX-License-Identifier: MIT */
/*
 * Inside of a chat template object, shared by loading, probing and rendering.
 */
#ifndef TXDA_TEXT_CHAT_INTERNAL_H
#define TXDA_TEXT_CHAT_INTERNAL_H

#include "chat_template.h"

enum { CHAT_MAX_TEMPLATES = 32 };

struct chat_named_template {
	char *name; /* "default", "tool_use", … */
	struct txda_template *template;
	struct txda_chat_capabilities capabilities;
};

struct txda_chat_template {
	struct chat_named_template templates[CHAT_MAX_TEMPLATES];
	unsigned int n_templates;
	const struct chat_named_template *standard; /* "default", or the only one */
	const struct chat_named_template *tool_use; /* for requests with tools, or NULL */
	cJSON *special_tokens;			    /* object: bos_token and the like */
};

/* The template of @request; its capabilities fit it. */
const struct chat_named_template *chat_choose(const struct txda_chat_template *chat,
					      const struct txda_chat_request *request);

/* Render @request with @template, messages as they are. */
int chat_render_plain(const struct txda_chat_template *chat, const struct txda_template *template,
		      const struct txda_chat_request *request, struct txda_template_error *error,
		      char **ret_text, size_t *ret_length);

/* Find out what a template can do. 0 or -ENOMEM; what fails to render counts as not supported. */
int chat_probe(const struct txda_chat_template *chat, struct chat_named_template *named);

#endif
