/* SPDX-License-Identifier: MIT */
/*
 * Messages in the form that a template understands. Pure; inputs are read only.
 */
#ifndef TXDA_TEXT_CHAT_MESSAGES_H
#define TXDA_TEXT_CHAT_MESSAGES_H

#include "chat_template.h"

/*
 * Check @messages and adapt them to @capabilities (chat_template.h says how). *@ret_messages is
 * NULL when they fit as they are, else a tree for the caller to delete. Returns 0, -EINVAL with
 * @error filled in, or -ENOMEM.
 */
int txda_chat_messages_adapt(const cJSON *messages,
			     const struct txda_chat_capabilities *capabilities,
			     struct txda_template_error *error, cJSON **ret_messages);

#endif
