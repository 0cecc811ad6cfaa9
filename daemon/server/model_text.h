/* SPDX-License-Identifier: MIT */
/*
 * What the server must know of a model to speak with it: tokeniser, chat template, stop tokens,
 * defaults for sampling. Read once from the model's directory and not changed afterwards; any
 * number of threads may use it.
 */
#ifndef TXDA_SERVER_MODEL_TEXT_H
#define TXDA_SERVER_MODEL_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "engine/engine.h"

#include "api_params.h"

struct txda_tokenizer;
struct txda_chat_template;

struct model_text {
	struct txda_tokenizer *tokenizer;
	struct txda_chat_template *chat; /* NULL: the model has none; chat_error says why */
	char chat_error[256];
	unsigned max_context, vocab; /* the engine's limits */
	/* generation_config.json, or OpenAI's defaults */
	double temperature, top_p, min_p;
	unsigned top_k;
	unsigned n_stop_tokens;
	int32_t stop_tokens[ENGINE_MAX_STOP_TOKENS - API_MAX_STOP_TOKENS];
};

int model_text_load(const char *dir, const struct engine_limits *limits, struct model_text **ret,
		    char *err, size_t errlen);
void model_text_free(struct model_text *t);

/* One prompt, ready for the engine. */
struct prompt_tokens {
	int32_t *ids; /* [n] */
	unsigned n;
};

/*
 * Turns the prompts of @p into tokens and checks them against the model's context. Fills
 * @ret[n_prompts] (1 for a chat) and gives max_tokens its value if the request has none. On false
 * @e says why; what is in @ret is to be freed all the same.
 */
bool model_text_encode(const struct model_text *t, struct api_params *p, struct prompt_tokens *ret,
		       struct api_error *e);

/* The request's wishes over the model's defaults. The seed is chosen for choice @k of a prompt from
 * @seed. */
void model_text_sampling(const struct model_text *t, const struct api_params *p, uint64_t seed,
			 unsigned k, struct engine_sampling *ret);

#endif
