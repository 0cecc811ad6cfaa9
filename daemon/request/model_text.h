/* SPDX-License-Identifier: MIT */
/*
 * What the server must know of a model to speak with it: tokens and their texts, stop tokens,
 * defaults for sampling, how it writes reasoning and tool calls. The model's text process reads them
 * once from the model's directory, and turns text into tokens and forms into grammars; tokens become
 * text here, by tables that were checked. Not changed afterwards, but for max_context; any number of
 * threads may use it.
 */
#ifndef TXDA_SERVER_MODEL_TEXT_H
#define TXDA_SERVER_MODEL_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "engine.h"

#include "api_params.h"
#include "processor.h"
#include "reply_parser.h"
#include "text_process.h"

struct grammar;
struct structured;
struct txda_detok;
struct txda_tokenizer;

/* How replies are to be read; names as of --tool-call-parser and --reasoning-parser. */
struct model_text_options {
	const char *tool_parser;      /* NULL or "auto": by template and vocabulary */
	const char *reasoning_parser; /* likewise */
	bool must_fit; /* the directory is not the one that was compiled: its tokeniser may not have
			  more tokens than the model */
	struct text_process_options process;
};
/* Whether the name is one of those: "auto", "none", "hermes", ... */
bool model_text_tool_parser(const char *name, enum reply_tools *ret);
bool model_text_reasoning_parser(const char *name, enum reply_reasoning *ret);

struct model_text {
	struct txda_tokenizer *tokenizer; /* its tables, which do not encode */
	struct text_process *process;
	bool has_chat; /* false: chat_error says why */
	char chat_error[256];
	_Atomic unsigned
		max_context; /* the engine's limit; changes when the model is loaded anew */
	unsigned vocab;
	struct image_tower tower; /* max_units is 0: it takes no images, image_error may say why */
	struct image_processor processor;
	unsigned embeds; /* bytes of an image's token, once it is encoded */
	char image_error[256];
	/* generation_config.json, or OpenAI's defaults */
	double temperature, top_p, min_p;
	double repetition_penalty;
	unsigned top_k;
	enum reply_tools tools; /* REPLY_NO_TOOLS: calls are not looked for */
	enum reply_reasoning reasoning;
	int32_t think, think_end;      /* tokens; -1: the vocabulary has none */
	struct structured *structured; /* grammars for the vocabulary */
	unsigned n_stop_tokens;
	int32_t stop_tokens[ENGINE_MAX_STOP_TOKENS - API_MAX_STOP_TOKENS];
};

int model_text_load(const char *dir, const struct engine_limits *limits,
		    const struct model_text_options *options, struct model_text **ret, char *err,
		    size_t errlen);
void model_text_free(struct model_text *t);

/* One prompt, ready for the engine. */
struct prompt_tokens {
	int32_t *ids; /* [n] */
	unsigned n;
	bool in_reasoning;	      /* it ends where the model is to reason */
	bool reasoned;		      /* it ends behind reasoning, which is not to begin again */
	struct engine_images *images; /* a reference; NULL: only text */
	struct txda_detok *detok;     /* ready for what follows; NULL: not needed so far */
};
void prompt_tokens_free(struct prompt_tokens *p);

/*
 * Turns the prompts of @p into tokens and checks them against the model's context. Fills
 * @ret[n_prompts] (1 for a chat), in which @images [p->n_images] have their places, and gives max_tokens its value if the request has none. On false
 * @e says why; what is in @ret is to be freed all the same.
 */
bool model_text_encode(const struct model_text *t, struct api_params *p,
		       struct engine_image *const *images, const struct text_caller *caller,
		       struct prompt_tokens *ret, struct api_error *e);
/*
 * Has the text process do a job for the member @param of the request. On false @e says what became
 * of it.
 */
bool model_text_call(const struct model_text *t, struct text_job *job,
		     const struct text_bytes parts[TEXT_JOB_PARTS], size_t max_answer,
		     const struct text_caller *caller, const char *param, struct text_done **ret,
		     struct api_error *e);

/* The format in which this request's tool calls are written. */
enum reply_tools model_text_tools(const struct model_text *t, const struct api_params *p);
/* The grammar for the request's answers, with a reference; NULL: none is asked for. */
bool model_text_grammar(const struct model_text *t, const struct api_params *p,
			const struct text_caller *caller, struct grammar **ret,
			struct api_error *e);
/* Keeps @r to the grammar, after reasoning where the model does that, and that to its budget. 0, -ENOMEM, -E2BIG. */
int model_text_constrain(const struct model_text *t, const struct api_params *p,
			 const struct prompt_tokens *prompt, struct grammar *grammar,
			 struct engine_request *r);
/* Whether the token is a mark of the reply format, which is not left out of the text. */
bool model_text_is_mark(const struct model_text *t, enum reply_tools tools, uint32_t token);

/* Whether the token ends an answer to this request. */
bool model_text_stops(const struct model_text *t, const struct api_params *p, int32_t token);
/* The request's wishes over the model's defaults. @biases [API_MAX_BIASES] is memory that *ret
 * points into. The seed is chosen for choice @k of a prompt from
 * @seed. */
void model_text_sampling(const struct model_text *t, const struct api_params *p, uint64_t seed,
			 unsigned k, struct engine_bias *biases, struct engine_sampling *ret);

#endif
