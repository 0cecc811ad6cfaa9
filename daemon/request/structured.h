/* SPDX-License-Identifier: MIT */
/*
 * Grammars for the forms that requests ask for: a JSON schema, a regular expression, ..., or a tool
 * call. The model's text process makes them. Those of late are kept, with what their masks have
 * taught, and found again by their text, each by the user who asked for it: how fast an answer comes
 * must not tell what others ask for.
 *
 * Threads: any; the cache has a lock.
 */
#ifndef TXDA_SERVER_STRUCTURED_H
#define TXDA_SERVER_STRUCTURED_H

#include "api_params.h"
#include "grammar.h"
#include "model_text.h"

struct txda_tokenizer;
struct structured;

/* For one model. @width: tokens that it may give. Reads the whole vocabulary. -ENOMEM, -EINVAL. */
int structured_new(const struct txda_tokenizer *tokenizer, unsigned width, struct structured **ret);
void structured_free(struct structured *s);

/*
 * The grammar that the request's answers must fit, with a reference; *ret NULL: any text will do.
 * False: it cannot be made, @e says why (400).
 */
bool structured_compile(struct structured *s, const struct model_text *t,
			const struct api_params *p, const struct text_caller *caller,
			struct grammar **ret, struct api_error *e);

struct grammar_vocab *structured_vocab(const struct structured *s);

#endif
