/* SPDX-License-Identifier: MIT */
/* Converts messages to the form that a template supports. Pure; inputs are read only. */
#ifndef TXDA_TEXT_CHAT_MESSAGES_H
#define TXDA_TEXT_CHAT_MESSAGES_H

#include "chat_template.h"

/*
 * Checks @messages and adapts them to @capabilities as described in chat_template.h. *@ret_messages
 * is NULL if no change is needed, else a tree that the caller deletes. Returns 0, -EINVAL with
 * @error filled in, or -ENOMEM.
 */
int txda_chat_messages_adapt(const cJSON *messages,
			     const struct txda_chat_capabilities *capabilities,
			     struct txda_template_error *error, cJSON **ret_messages);

#endif
