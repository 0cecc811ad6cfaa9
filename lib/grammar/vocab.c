// SPDX-License-Identifier: MIT
#include "vocab.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TOKENS  (1u << 21)
#define MAX_LENGTH  1024 /* longer tokens are never allowed */
#define TOKEN_BYTES 4	 /* of a control token's path */

/* The trie path of a token, to be copied to @out; returns its length, 0: the token is left out. */
static size_t path_of(const struct grammar_token *token, uint32_t id, char *out)
{
	const char path[TOKEN_BYTES] = {(char)TOKEN_BYTE, (char)(id >> 16), (char)(id >> 8),
					(char)id};

	if (!token->bytes || !token->len || token->len > MAX_LENGTH)
		return 0;
	if (token->special) {
		if (out)
			memcpy(out, path, sizeof(path));
		return sizeof(path);
	}
	if (memchr(token->bytes, TOKEN_BYTE, token->len))
		return 0;
	if (out)
		memcpy(out, token->bytes, token->len);
	return token->len;
}

static int copy_tokens(struct grammar_vocab *v, const struct grammar_token *tokens)
{
	size_t total = 0;

	v->first = calloc((size_t)v->n_tokens + 1, sizeof(*v->first));
	v->same = calloc(v->n_tokens, sizeof(*v->same));
	if (!v->first || !v->same)
		return -ENOMEM;
	for (uint32_t i = 0; i < v->n_tokens; i++) {
		size_t len = path_of(&tokens[i], i, NULL);

		v->first[i] = (uint32_t)total;
		v->longest = len > v->longest ? (uint32_t)len : v->longest;
		total += len;
		v->same[i] = -1;
	}
	v->first[v->n_tokens] = (uint32_t)total;
	v->text = malloc(total + 1);
	if (!v->text)
		return -ENOMEM;
	for (uint32_t i = 0; i < v->n_tokens; i++)
		path_of(&tokens[i], i, v->text + v->first[i]);
	return 0;
}

static int by_text(const void *x, const void *y, void *arg)
{
	const struct grammar_vocab *v = arg;
	uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
	uint32_t len_a = v->first[a + 1] - v->first[a], len_b = v->first[b + 1] - v->first[b];
	int order =
		memcmp(v->text + v->first[a], v->text + v->first[b], len_a < len_b ? len_a : len_b);

	if (order)
		return order;
	if (len_a != len_b)
		return len_a < len_b ? -1 : 1;
	return a < b ? -1 : a > b;
}

/* Builds the trie; @order lists the tokens that have bytes, sorted. */
static int lay_out(struct grammar_vocab *v, const uint32_t *order, uint32_t n)
{
	uint32_t open[MAX_LENGTH + 1] = {0}; /* the node at each depth of the path */
	uint32_t depth = 0;

	v->nodes = calloc((size_t)v->first[v->n_tokens] + 1, sizeof(*v->nodes));
	if (!v->nodes)
		return -ENOMEM;
	v->nodes[v->n_nodes++].token = -1;
	for (uint32_t i = 0; i < n; i++) {
		const char *text = v->text + v->first[order[i]];
		uint32_t len = v->first[order[i] + 1] - v->first[order[i]], shared = 0;

		while (shared < len && shared < depth &&
		       v->nodes[open[shared + 1]].byte == (uint8_t)text[shared])
			shared++;
		if (shared == len && shared == depth && i) {
			/* The same bytes as the previous token. */
			v->same[order[i - 1]] = (int32_t)order[i];
			continue;
		}
		for (; depth > shared; depth--)
			v->nodes[open[depth]].skip = v->n_nodes;
		for (; depth < len; depth++) {
			open[depth + 1] = v->n_nodes;
			v->nodes[v->n_nodes++] = (struct trie_node){
				.token = -1,
				.depth = (uint16_t)(depth + 1),
				.byte = (uint8_t)text[depth],
			};
		}
		v->nodes[open[depth]].token = (int32_t)order[i];
	}
	for (; depth; depth--)
		v->nodes[open[depth]].skip = v->n_nodes;
	v->nodes[0].skip = v->n_nodes;
	return 0;
}

int grammar_vocab_new(const struct grammar_token *tokens, uint32_t n, uint32_t width,
		      struct grammar_vocab **ret)
{
	struct grammar_vocab *v;
	uint32_t *order, n_order = 0;
	int error;

	if (!n || n > MAX_TOKENS || width < n || width > MAX_TOKENS)
		return -EINVAL;
	v = calloc(1, sizeof(*v));
	order = calloc(n, sizeof(*order));
	if (!v || !order) {
		free(v);
		free(order);
		return -ENOMEM;
	}
	atomic_init(&v->refs, 1);
	v->n_tokens = n;
	v->width = width;
	error = copy_tokens(v, tokens);
	if (!error) {
		for (uint32_t i = 0; i < n; i++) {
			if (v->first[i + 1] > v->first[i])
				order[n_order++] = i;
		}
		qsort_r(order, n_order, sizeof(*order), by_text, v);
		error = lay_out(v, order, n_order);
	}
	free(order);
	if (error) {
		grammar_vocab_unref(v);
		return error;
	}
	*ret = v;
	return 0;
}

struct grammar_vocab *grammar_vocab_ref(struct grammar_vocab *v)
{
	atomic_fetch_add_explicit(&v->refs, 1, memory_order_relaxed);
	return v;
}

void grammar_vocab_unref(struct grammar_vocab *v)
{
	if (!v || atomic_fetch_sub_explicit(&v->refs, 1, memory_order_acq_rel) != 1)
		return;
	free(v->nodes);
	free(v->same);
	free(v->text);
	free(v->first);
	free(v);
}
