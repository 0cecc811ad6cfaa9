// SPDX-License-Identifier: MIT
#include "tokenizer_added.h"
#include "array.h"
#include "text_unicode.h"

#include <errno.h>
#include <stdlib.h>

static uint32_t find_child(const struct added_set *set, uint32_t node, uint8_t byte)
{
	for (node = set->nodes[node].child; node; node = set->nodes[node].sibling)
		if (set->nodes[node].byte == byte)
			return node;
	return 0;
}

static uint32_t new_node(struct added_set *set, uint8_t byte)
{
	if (set->n_nodes >= UINT32_MAX ||
	    !array_grow(&set->nodes, &set->cap_nodes, set->n_nodes + 1, sizeof(*set->nodes)))
		return 0;
	if (!set->n_nodes)
		set->n_nodes = 1;
	set->nodes[set->n_nodes] = (struct added_node){.byte = byte};
	return (uint32_t)set->n_nodes++;
}

int added_set_add(struct added_set *set, const char *spelling, size_t len, uint32_t index)
{
	const uint8_t *s = (const uint8_t *)spelling;
	uint32_t node;

	if (!len)
		return 0;
	if (len > ADDED_TOKEN_MAX)
		return -E2BIG;
	node = set->roots[s[0]];
	if (!node) {
		node = new_node(set, s[0]);
		set->roots[s[0]] = node;
	}
	for (size_t i = 1; node && i < len; i++) {
		uint32_t child = find_child(set, node, s[i]);

		if (!child) {
			child = new_node(set, s[i]);
			if (child) {
				set->nodes[child].sibling = set->nodes[node].child;
				set->nodes[node].child = child;
			}
		}
		node = child;
	}
	if (!node)
		return -ENOMEM;
	if (!set->nodes[node].token)
		set->nodes[node].token = index + 1;
	return 0;
}

void added_set_free(struct added_set *set)
{
	free(set->nodes);
	*set = (struct added_set){0};
}

/* The longest token that starts at @at; its end in *ret_end. NULL: none. */
static const struct added_token *longest_at(const struct added_set *set, const uint8_t *s,
					    size_t len, size_t at, size_t *ret_end)
{
	const struct added_token *found = NULL;
	uint32_t node = set->roots[s[at]];

	while (node) {
		at++;
		if (set->nodes[node].token) {
			found = &set->tokens[set->nodes[node].token - 1];
			*ret_end = at;
		}
		if (at == len)
			break;
		node = find_child(set, node, s[at]);
	}
	return found;
}

/* Start of the character that ends at @end > 0. */
static size_t previous_char(const uint8_t *s, size_t end)
{
	do
		end--;
	while (end && (s[end] & 0xC0) == 0x80);
	return end;
}

static bool word_before(const uint8_t *s, size_t at)
{
	unsigned size;

	return at && unicode_is_word(utf8_decode(s + previous_char(s, at), &size));
}

static bool word_behind(const uint8_t *s, size_t len, size_t at)
{
	unsigned size;

	return at < len && unicode_is_word(utf8_decode(s + at, &size));
}

static size_t strip_left(const uint8_t *s, size_t at, size_t floor)
{
	unsigned size;

	while (at > floor) {
		size_t previous = previous_char(s, at);

		if (!unicode_is_space(utf8_decode(s + previous, &size)))
			break;
		at = previous;
	}
	return at;
}

static size_t strip_right(const uint8_t *s, size_t len, size_t at)
{
	unsigned size;

	while (at < len && unicode_is_space(utf8_decode(s + at, &size)))
		at += size;
	return at;
}

bool added_set_next(const struct added_set *set, const char *text, size_t len, bool no_special,
		    struct added_walk *walk)
{
	const uint8_t *s = (const uint8_t *)text;
	size_t at = walk->scan;

	while (at < len) {
		const struct added_token *token;
		size_t start, end;

		if (!set->roots[s[at]]) {
			at++;
			continue;
		}
		token = longest_at(set, s, len, at, &end);
		if (!token) {
			at++;
			continue;
		}
		/* A match that does not qualify still occupies its text. */
		start = at;
		at = end;
		if (no_special && token->special)
			continue;
		if (token->single_word && (word_before(s, start) || word_behind(s, len, end)))
			continue;
		if (token->lstrip)
			start = strip_left(s, start, walk->done);
		/* White space consumed by the last token is not consumed again. */
		if (end < walk->done)
			end = walk->done;
		if (token->rstrip)
			end = strip_right(s, len, end);
		walk->before = walk->done;
		walk->start = start > walk->done ? start : walk->done;
		walk->done = end;
		walk->scan = at;
		walk->id = token->id;
		return true;
	}
	walk->scan = at;
	return false;
}
