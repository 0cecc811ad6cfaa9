/* SPDX-License-Identifier: MIT */
/*
 * The text of one answer while it is generated: takes tokens as they come, converts them to text,
 * checks stop strings, separates reasoning and tool calls, and keeps what was not yet sent.
 * Independent of engine, JSON and sockets.
 *
 * Threads: one at a time, a text worker.
 */
#ifndef TXDA_REQUEST_CHOICE_H
#define TXDA_REQUEST_CHOICE_H

#include "api_params.h"
#include "engine.h"
#include "json_out.h"
#include "model_text.h"

struct reply_parser;
struct txda_detok;
struct stop_matcher;

/* Where a generated token starts in the text of its choice, excluding an echo. */
struct token_mark {
	size_t byte;
	unsigned character;
};

#define CHOICE_NOT_GIVEN UINT32_MAX

struct choice_call {
	char id[128];
	char *name;
	bool begun; /* its name was sent */
	bool has_arguments;
	struct json_out arguments; /* not yet taken by choice_sent(), unescaped bytes */
};

/*
 * The engine's output for a choice so far: arrays that only grow, of which the first n entries are
 * valid, and how it ended.
 */
struct choice_input {
	const int32_t *tokens;
	const struct engine_logprob *logprobs; /* of the chosen tokens; NULL: not requested */
	const struct engine_logprob *top;      /* [n][n_top]; NULL: none */
	unsigned n_top;
	const float *prompt_logprobs;		 /* [prompt->n]; NULL: none */
	const struct engine_logprob *prompt_top; /* [prompt->n][n_top]; NULL: none */
	unsigned n;
	unsigned cached_tokens; /* of the prompt */
	enum engine_finish how;
};

struct choice {
	unsigned index; /* in the answer; CHOICE_NOT_GIVEN: not among the best */
	unsigned prompt_index;
	struct prompt_tokens *prompt;
	const struct api_params *params;
	const struct model_text *text_side;
	struct choice_input input;
	double score; /* mean log probability, for ranking with best_of */

	struct txda_detok *detok;
	struct stop_matcher *stop;
	struct reply_parser *parser; /* NULL: everything is content */
	enum reply_tools tools;
	unsigned seen;		    /* tokens consumed from the input */
	unsigned completion_tokens; /* for the usage; final once finish_reason is set */
	unsigned reasoning_tokens;
	bool reasoned;	  /* reasoning is over */
	bool spoke;	  /* there was content, or a call */
	size_t fed_bytes; /* bytes of text that the detokeniser returned */
	unsigned fed_characters;
	size_t released; /* bytes of it that passed the stop strings */

	/* Released text not yet taken by choice_sent(), unescaped bytes. */
	struct json_out text, reasoning;
	struct choice_call *calls; /* [n_calls] */
	unsigned n_calls;
	bool too_many;		       /* a call arrived that was not wanted */
	struct token_mark *marks;      /* [max_tokens]; only if log probabilities are wanted */
	unsigned shown_from, shown_to; /* tokens whose log probabilities belong to that text */
	const char *finish_reason;     /* one of OpenAI's; NULL: not finished */
	bool late;		       /* its deadline has passed: "length" */
	bool begun;		       /* some of it was streamed */
	unsigned echo_characters;      /* of the echoed prompt, once streamed */
};

/*
 * Prepares the choice for up to @max_tokens; prompt, params and text_side must be set, and the
 * prompt gets a detokeniser that all its choices are copied from. -ENOMEM; choice_clear() must be
 * called in any case.
 */
int choice_init(struct choice *c, unsigned max_tokens);
void choice_clear(struct choice *c);

/*
 * Consumes up to @max tokens of the input. Returns how many there were, 0 also when finish_reason
 * was set before; or -ENOMEM. If the engine ended with an error or a cancellation, finish_reason
 * stays NULL.
 */
int choice_advance(struct choice *c, unsigned max);
/* Whether there is anything that was not sent. */
bool choice_has_output(const struct choice *c);
/* Marks the contents of text, reasoning, calls and shown as sent. */
void choice_sent(struct choice *c);
/* Sets the score from the log probabilities. */
void choice_rate(struct choice *c);

#endif
