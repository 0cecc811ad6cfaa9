/* SPDX-License-Identifier: MIT */
/*
 * The parsed and checked body of a request to one of the inference routes.
 *
 * api_fields.h says which members are allowed. Those that are honoured must have the right type and
 * range; null counts as absent. A key that occurs twice in an object is an error.
 *
 * Pure: needs no model and shares no state; any thread.
 */
#ifndef TXDA_API_API_PARAMS_H
#define TXDA_API_API_PARAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cjson/cJSON.h>

#include "api_error.h"
#include "api_fields.h"
#include "api_format.h"
#include "stop.h"

#define API_MAX_VALUES	    1000000 /* JSON values in a body */
#define API_MAX_CHOICES	    256	    /* prompts times n or best_of */
#define API_MAX_N	    128
#define API_MAX_BEAMS	    32
#define API_MAX_INPUTS	    2048 /* texts of one request for embeddings */
#define API_MAX_LOGPROBS    20
#define API_MAX_STOP_TOKENS 8
#define API_MAX_BIASES	    1024
#define API_MAX_TOOLS	    128
#define API_PROMPT_NAME	    32 /* bytes */

/* A prompt, as text or as token ids. */
struct api_prompt {
	const char *text; /* NULL: ids; owned by the JSON tree */
	int32_t *ids;
	unsigned n_ids;
};

struct api_bias {
	int32_t token;
	float bias;
};

enum api_tool_choice {
	API_TOOLS_NONE,	    /* no tools, or they must not be called */
	API_TOOLS_AUTO,	    /* the model decides */
	API_TOOLS_REQUIRED, /* at least one call */
	API_TOOLS_NAMED,    /* a call of the function in tool_name */
};

enum api_pooling {
	API_POOL_BY_MODEL, /* the checkpoint's default */
	API_POOL_LAST,
	API_POOL_MEAN,
	API_POOL_CLS,
};

enum api_dtype {
	API_INT32,
	API_INT64,
	API_FLOAT32,
};

/* An array in memory that the client passed as a descriptor. */
struct api_tensor {
	bool given;
	unsigned fd; /* index among the descriptors of the request */
	uint64_t offset;
	enum api_dtype dtype;
	unsigned n_dims;
	uint64_t shape[2]; /* [n_dims] */
};

enum api_rows {
	API_ROWS_LAST,
	API_ROWS_ALL,
	API_ROWS_LIST,
};

enum api_early_stopping {
	API_STOP_BY_SCORE, /* false: stop when no better beam is likely */
	API_STOP_AT_WIDTH, /* true: stop when there are as many finished beams as requested */
	API_STOP_NEVER,	   /* "never": stop only when no better beam is possible */
};

#define API_MAX_PRIORITY 32 /* and -32 */

#define API_NO_BUDGET UINT32_MAX

struct api_params {
	enum api_kind kind;
	cJSON *root;		       /* the body; the const pointers below point into it */
	char ignored[API_IGNORED_MAX]; /* ignored members: "store, user" */
	const char *model;	       /* NULL: the first one served */
	bool keep_alive_given;
	double timeout;		/* time limit of the answer in seconds; 0: not given */
	const char *cache_salt; /* NULL: none */
	int64_t priority;   /* lower values run first, as in vLLM; below 0: administrators only */
	int64_t keep_alive; /* seconds that the model stays loaded; -1: forever */
	bool stream, include_usage, continuous_usage;
	bool echo, ignore_eos, skip_special, include_stop;
	unsigned n, best_of; /* best_of answers are generated, the n best are returned */
	unsigned max_tokens; /* 0 and max_tokens_given: echo only */
	bool max_tokens_given;
	unsigned default_max_tokens; /* the model's default; 0: OpenAI's default */
	unsigned min_tokens;
	unsigned thinking_budget; /* tokens of reasoning; API_NO_BUDGET: unlimited */
	/* NaN, or -1 for top_k: not given, use the model's default */
	double temperature, top_p, min_p, repetition_penalty;
	double presence_penalty, frequency_penalty;
	int64_t top_k;
	struct api_bias *biases; /* [n_biases] */
	unsigned n_biases;
	bool seed_given;
	int64_t seed;
	const char *stop[STOP_MAX_STRINGS];
	unsigned n_stop;
	int32_t stop_tokens[API_MAX_STOP_TOKENS];
	unsigned n_stop_tokens;
	int logprobs; /* -1: none; n: the chosen token's and those of the n most likely ones */
	struct api_format format;

	/* Beam search: 0: none */
	unsigned beam_width;
	double length_penalty;
	enum api_early_stopping early_stopping;

	/* chat, and tokenize with messages */
	/*
	 * Array of objects with role; content is a string (text parts are joined), or if there are
	 * images an array of {"type": "text", "text": ...} and {"type": "image"}.
	 */
	const cJSON *messages;
	cJSON *images; /* array of their image_url, an URL or an object, in order; NULL: no images */
	unsigned n_images;
	const cJSON *tools; /* array of objects for the template, or NULL */
	enum api_tool_choice tool_choice;
	const char *tool_name;
	bool parallel_tools, include_reasoning;
	const cJSON *template_kwargs; /* object, or NULL */
	bool add_generation_prompt, continue_final_message;
	/* completions, embeddings, tokenize */
	struct api_prompt *prompts;
	unsigned n_prompts;
	bool add_special; /* add the model's special tokens, such as <s>, around a text */
	/* embeddings */
	bool base64;
	enum api_pooling pooling;
	bool normalize_given, normalize; /* not given: the model's default */
	unsigned dimensions;		 /* 0: all */
	/* tokenize */
	bool token_strings;
	/* forward */
	struct api_tensor input_ids, logits, hidden_states;
	enum api_rows rows;
	unsigned *row_list; /* [n_row_list] positions, increasing */
	unsigned n_row_list;
};

/* Parses and checks @body. On false @e describes the error, and there is nothing to free. */
bool api_params_parse(enum api_kind kind, const char *body, size_t len, struct api_params *ret,
		      struct api_error *e);
void api_params_free(struct api_params *p);
/*
 * Reports that the chat template does not mention these variables, one a line: of
 * chat_template_kwargs, or "tools".
 */
void api_params_unread(struct api_params *p, const char *names);
/* For errors: what to call prompt @i of member @name, "input[3]" if there are several. */
const char *api_prompt_name(const struct api_params *p, const char *name, unsigned i,
			    char buf[API_PROMPT_NAME]);
/* Parses a duration as in `keep_alive`: seconds as a number, or "90", "90s", "5m", "2h", or -1. */
bool api_parse_keep_alive(const cJSON *root, bool *ret_given, int64_t *ret, struct api_error *e);

/*
 * ---- internal parts
 * ----------------------------------------------------------------------------------
 */

/* api_sampling.c */
bool api_parse_sampling(struct api_params *p, struct api_error *e);
/* api_forward.c: the members of a forward call. */
bool api_parse_forward(struct api_params *p, struct api_error *e);
/* "int32", ... */
const char *api_dtype_name(enum api_dtype dtype);
unsigned api_dtype_bytes(enum api_dtype dtype);
/* api_tools.c: `tools`, `tool_choice`, `parallel_tool_calls`. */
bool api_parse_tools(struct api_params *p, struct api_error *e);

#endif
