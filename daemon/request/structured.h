/* SPDX-License-Identifier: MIT */
/*
 * Grammars for requested output formats: a JSON schema, a regular expression, ..., or a tool call.
 * The model's text process builds them. Recent ones are kept for the user (kept.h), including the
 * masks computed so far. A grammar's memory is charged to its user as long as it exists; the
 * grammars of a user who holds more than its share cache little.
 *
 * Threads: any.
 */
#ifndef TXDA_REQUEST_STRUCTURED_H
#define TXDA_REQUEST_STRUCTURED_H

#include "api_params.h"
#include "grammar.h"
#include "model_text.h"

struct account;
struct txda_tokenizer;
struct structured;

/*
 * For one model. @width: number of tokens that it can generate. Reads the whole vocabulary.
 * -ENOMEM, -EINVAL.
 */
int structured_new(const struct txda_tokenizer *tokenizer, unsigned width, struct structured **ret);
void structured_free(struct structured *s);

/*
 * The grammar that the request's answers must match, with a reference; *ret NULL: no constraint.
 * What it does not enforce is added to p->ignored. False: it cannot be built (400), or the user has
 * no room for it (429), see @e.
 */
bool structured_compile(struct structured *s, const struct model_text *t, struct api_params *p,
			const struct text_caller *caller, struct account *a, struct grammar **ret,
			struct api_error *e);

struct grammar_vocab *structured_vocab(const struct structured *s);

#endif
