// SPDX-License-Identifier: MIT
#include "structured_key.h"

#include <stdio.h>
#include <string.h>

#include "text_buf.h"
#include "text_tree.h"

bool structured_key(const struct api_params *p, enum reply_tools tools, struct text_buf *key,
		    struct text_bytes *ret_tree)
{
	const struct api_format *f = &p->format;
	const char *name = p->tool_choice == API_TOOLS_NAMED ? p->tool_name : "";
	const char *space = f->whitespace ? f->whitespace : "";
	const char *salt = p->cache_salt ? p->cache_salt : "";
	char head[120];
	size_t before;

	/* An empty expression for white space is another thing than none, which is the default. */
	snprintf(head, sizeof(head), "%d %d %d %d %d %d %d %d", (int)p->kind, (int)f->form,
		 f->strict, f->compact, (int)p->tool_choice, p->parallel_tools, (int)tools,
		 f->whitespace != NULL);
	/* With their NULs, so that none of them can continue in the next one. */
	if (!text_buf_add(key, head, strlen(head) + 1) ||
	    !text_buf_add(key, name, strlen(name) + 1) ||
	    !text_buf_add(key, space, strlen(space) + 1) ||
	    !text_buf_add(key, salt, strlen(salt) + 1))
		return false;
	before = key->len;
	/*
	 * As a tree and not as JSON text: the text of a number is that of its double, but the
	 * grammar is made from the literal.
	 */
	if (!text_tree_write(f->form ? f->value : p->tools, key))
		return false;
	*ret_tree = (struct text_bytes){key->data + before, key->len - before};
	return true;
}
