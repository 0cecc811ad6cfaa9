/* SPDX-License-Identifier: MIT */
/*
 * The text side of a model: tokens and their texts, stop tokens, sampling defaults, formats of
 * reasoning and tool calls. The model's text process reads them once from the model's directory,
 * and tokenises text and builds grammars; tokens are converted to text here, by tables that were
 * checked. Immutable afterwards, except for max_context; any number of threads may use it.
 */
#ifndef TXDA_REQUEST_MODEL_TEXT_H
#define TXDA_REQUEST_MODEL_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "engine.h"

#include "api_params.h"
#include "processor.h"
#include "reply_parser.h"
#include "text_process.h"

struct account;
struct grammar;
struct pictures;
struct structured;
struct txda_detok;
struct txda_tokenizer;

/* Formats of replies; names as in --tool-call-parser and --reasoning-parser. */
struct model_text_options {
	const char *tool_parser;      /* NULL or "auto": by template and vocabulary */
	const char *reasoning_parser; /* the same */
	bool must_fit;		      /* not the compiled directory: check the tokeniser's size */
	struct text_process_options process;
};
/* Whether the name is a known format: "auto", "none", "hermes", ... */
bool model_text_tool_parser(const char *name, enum reply_tools *ret);
bool model_text_reasoning_parser(const char *name, enum reply_reasoning *ret);

struct model_text {
	struct txda_tokenizer *tokenizer; /* its tables, for decoding only */
	struct text_process *process;
	bool has_chat; /* false: chat_error says why */
	char chat_error[256];
	_Atomic unsigned max_context; /* the engine's limit; changes when the model is reloaded */
	unsigned vocab;
	struct image_tower tower; /* max_units is 0: it takes no images, see image_error */
	struct image_processor processor;
	unsigned embeds; /* bytes of an encoded image's token */
	char image_error[256];
	/* generation_config.json, or OpenAI's defaults */
	double temperature, top_p, min_p;
	double repetition_penalty;
	unsigned top_k;
	enum reply_tools tools; /* REPLY_NO_TOOLS: calls are not parsed */
	enum reply_reasoning reasoning;
	int32_t think, think_end;      /* token id; -1: the vocabulary has none */
	struct structured *structured; /* grammars for the vocabulary */
	unsigned n_stop_tokens;
	int32_t stop_tokens[ENGINE_MAX_STOP_TOKENS - API_MAX_STOP_TOKENS];
};

#define MODEL_TEXT_MAX_IDS (1u << 24) /* of a text that is not for the engine */

int model_text_load(const char *dir, const struct engine_limits *limits,
		    const struct model_text_options *options, struct model_text **ret, char *err,
		    size_t errlen);
void model_text_free(struct model_text *t);

/* One prompt, ready for the engine. */
struct prompt_tokens {
	int32_t *ids; /* [n] */
	unsigned n;
	bool in_reasoning;	      /* reasoning has been started by the prompt */
	bool reasoned;		      /* the prompt has ended reasoning */
	struct engine_images *images; /* a reference; NULL: text only */
	struct txda_detok *detok;     /* state after the prompt; NULL: not needed so far */
};
void prompt_tokens_free(struct prompt_tokens *p);

/*
 * Tokenises the prompts of @p and checks them against the model's context. Fills @ret[n_prompts] (1
 * for a chat), with @pictures placed, and sets max_tokens if the request has none. On false @e is
 * set; the contents of @ret must be freed in any case.
 */
bool model_text_encode(const struct model_text *t, struct api_params *p,
		       const struct pictures *pictures, const struct text_caller *caller,
		       struct prompt_tokens *ret, struct api_error *e);
/* Lets the text process do a job for the member @param of the request. On false @e is set. */
bool model_text_call(const struct model_text *t, struct text_job *job,
		     const struct text_bytes parts[TEXT_JOB_PARTS], size_t max_answer,
		     const struct text_caller *caller, const char *param, struct text_done **ret,
		     struct api_error *e);

/* Takes the ids of an answer into *ret. False: one is not a token id, or there is no memory. */
bool model_text_take_ids(const struct model_text *t, const struct text_done *done, uint32_t max_ids,
			 struct prompt_tokens *ret);

/* The format of this request's tool calls. */
enum reply_tools model_text_tools(const struct model_text *t, const struct api_params *p);
/*
 * The grammar for the request's answers, with a reference; NULL: none is requested. Its memory is
 * charged to @a.
 */
bool model_text_grammar(const struct model_text *t, struct api_params *p,
			const struct text_caller *caller, struct account *a, struct grammar **ret,
			struct api_error *e);
/*
 * Constrains @r to the grammar, after reasoning if the model does that, and reasoning to its
 * budget. 0, -ENOMEM, -E2BIG.
 */
int model_text_constrain(const struct model_text *t, const struct api_params *p,
			 const struct prompt_tokens *prompt, struct grammar *grammar,
			 struct engine_request *r);
/* Whether the token is a mark of the reply format, which must not be dropped from the text. */
bool model_text_is_mark(const struct model_text *t, enum reply_tools tools, uint32_t token);

/* Whether the token ends an answer to this request. */
bool model_text_stops(const struct model_text *t, const struct api_params *p, int32_t token);
/*
 * The request's sampling parameters over the model's defaults. @biases [API_MAX_BIASES] is memory
 * that *ret points into. The seed of choice @k of a prompt is derived from @seed.
 */
void model_text_sampling(const struct model_text *t, const struct api_params *p, uint64_t seed,
			 unsigned k, struct engine_bias *biases, struct engine_sampling *ret);

#endif
