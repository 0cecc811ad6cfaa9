/* SPDX-License-Identifier: MIT */
/*
 * Grammars for the forms that requests ask for: a JSON schema, a regular expression, ..., or a tool
 * call. Those of late are kept, with what their masks have taught, and found again by their text.
 *
 * Threads: any; the cache has a lock.
 */
#ifndef TXDA_SERVER_STRUCTURED_H
#define TXDA_SERVER_STRUCTURED_H

#include "api_params.h"
#include "grammar.h"
#include "reply_parser.h"

struct txda_tokenizer;
struct structured;

/* For one model. @width: tokens that it may give. Reads the whole vocabulary. -ENOMEM, -EINVAL. */
int structured_new(const struct txda_tokenizer *tokenizer, unsigned width, struct structured **ret);
void structured_free(struct structured *s);

/*
 * The grammar that the request's answers must fit, with a reference; *ret NULL: any text will do.
 * @tools: the format of calls. False: it cannot be made, @e says why (400).
 */
bool structured_compile(struct structured *s, const struct api_params *p, enum reply_tools tools,
			struct grammar **ret, struct api_error *e);

struct grammar_vocab *structured_vocab(const struct structured *s);

/* tool_grammar.c: defines the calls of @p's tools; *ret_root is their rule. Errors are the
 * builder's. */
struct grammar_builder;
void tool_grammar(struct grammar_builder *b, const struct api_params *p, enum reply_tools tools,
		  const struct txda_tokenizer *tokenizer, uint32_t *ret_root);

#endif
