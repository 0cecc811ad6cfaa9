/* SPDX-License-Identifier: MIT */
/* By what a user's later request finds a kept grammar. */
#ifndef TXDA_REQUEST_STRUCTURED_KEY_H
#define TXDA_REQUEST_STRUCTURED_KEY_H

#include "api_params.h"
#include "reply_format.h"
#include "text_process.h"

struct text_buf;

/*
 * Appends everything that the request's grammar depends on to @key, which is empty, and its
 * cache_salt: requests with the same bytes have the same grammar. *ret_tree: its last part, the
 * format's value or the tools as text_tree_write() writes them. False: out of memory.
 */
bool structured_key(const struct api_params *p, enum reply_tools tools, struct text_buf *key,
		    struct text_bytes *ret_tree);

#endif
