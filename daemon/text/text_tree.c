// SPDX-License-Identifier: MIT
#include "text_tree.h"

#include <errno.h>
#include <stdint.h>

#include "json_strict.h"
#include "text_buf.h"

#define DEPTH (2 * TXDA_JSON_MAX_DEPTH) /* a schema given as text is nested in another tree */

/*
 * A node is this struct, then the key and the text if present, each NUL-terminated, then the
 * children, each a node.
 */
struct node {
	uint32_t type;
	uint32_t has_key, key_len;
	uint32_t has_text, text_len; /* of a string; of a number, as written */
	uint32_t n_children;
	double number;
};

static bool add_text(struct text_buf *out, const char *text, uint32_t len)
{
	return !text || text_buf_add(out, text, (size_t)len + 1);
}

bool text_tree_write(const cJSON *tree, struct text_buf *out)
{
	struct node node = {0};
	const cJSON *child;
	bool ok;

	if (!tree)
		return true;
	node.type = (uint32_t)tree->type & 0xFF;
	node.has_key = tree->string != NULL;
	node.key_len = tree->string ? (uint32_t)strlen(tree->string) : 0;
	node.has_text = tree->valuestring != NULL;
	node.text_len = tree->valuestring ? (uint32_t)strlen(tree->valuestring) : 0;
	node.number = tree->valuedouble;
	cJSON_ArrayForEach(child, tree)
		node.n_children++;
	ok = text_buf_add(out, &node, sizeof(node)) && add_text(out, tree->string, node.key_len) &&
	     add_text(out, tree->valuestring, node.text_len);
	cJSON_ArrayForEach(child, tree)
		ok = ok && text_tree_write(child, out);
	return ok;
}

struct reader {
	const char *at, *end;
	int error;
};

static char *read_text(struct reader *r, bool has, uint32_t len)
{
	char *copy;

	if (!has || r->error)
		return NULL;
	if (len >= (size_t)(r->end - r->at) || strnlen(r->at, (size_t)len + 1) != len) {
		r->error = -EINVAL;
		return NULL;
	}
	copy = malloc((size_t)len + 1);
	if (!copy) {
		r->error = -ENOMEM;
		return NULL;
	}
	memcpy(copy, r->at, (size_t)len + 1);
	r->at += (size_t)len + 1;
	return copy;
}

static bool is_sound(const struct node *n)
{
	switch (n->type) {
	case cJSON_String: return n->has_text && !n->n_children;
	case cJSON_Number:
	case cJSON_False:
	case cJSON_True:
	case cJSON_NULL: return !n->n_children;
	case cJSON_Array:
	case cJSON_Object: return true;
	default: return false;
	}
}

/* Recursion is limited by DEPTH. */
static cJSON *read_node(struct reader *r, bool in_object, unsigned depth)
{
	struct node node;
	cJSON *item, *last = NULL;

	if (depth == DEPTH || (size_t)(r->end - r->at) < sizeof(node)) {
		r->error = -EINVAL;
		return NULL;
	}
	memcpy(&node, r->at, sizeof(node));
	r->at += sizeof(node);
	item = is_sound(&node) && (!in_object || node.has_key) ? cJSON_CreateNull() : NULL;
	if (!item) {
		r->error = -EINVAL;
		return NULL;
	}
	item->type = (int)node.type;
	cJSON_SetNumberHelper(item, node.number);
	item->string = read_text(r, node.has_key, node.key_len);
	item->valuestring = read_text(r, node.has_text, node.text_len);
	for (uint32_t i = 0; i < node.n_children && !r->error; i++) {
		cJSON *child = read_node(r, node.type == cJSON_Object, depth + 1);

		if (!child)
			break;
		if (last) {
			last->next = child;
			child->prev = last;
		} else {
			item->child = child;
		}
		last = child;
		item->child->prev = last; /* as cJSON represents it */
	}
	return item;
}

int text_tree_read(const char *data, size_t len, cJSON **ret)
{
	struct reader r = {.at = data};

	*ret = NULL;
	if (!len)
		return 0;
	r.end = data + len;
	*ret = read_node(&r, false, 0);
	if (!r.error && r.at != r.end)
		r.error = -EINVAL;
	if (r.error) {
		cJSON_Delete(*ret);
		*ret = NULL;
	}
	return r.error;
}
