/* SPDX-License-Identifier: MIT */
/*
 * One answer in the making: takes tokens as they come, turns them into text, watches for stop
 * strings, takes reasoning and tool calls apart, and keeps what was not yet sent. Knows neither
 * JSON nor sockets.
 *
 * The tokens are an engine request's, or were found by beam search (choice_init_tokens()).
 *
 * Threads: the event loop's; the engine's side of the request is read as engine.h says.
 */
#ifndef TXDA_SERVER_CHOICE_H
#define TXDA_SERVER_CHOICE_H

#include "api_params.h"
#include "client.h"
#include "engine.h"
#include "json_out.h"
#include "model_text.h"

struct exchange;
struct grammar;
struct reply_parser;
struct txda_detok;
struct stop_matcher;

/* Where a generated token begins in the text of its choice, echo not counted. */
struct token_mark {
	size_t byte;
	unsigned character;
};

#define CHOICE_NOT_GIVEN UINT32_MAX

struct choice_call {
	char id[32];
	char *name;
	bool begun; /* its name was sent */
	bool has_arguments;
	struct json_out arguments; /* not yet taken by choice_sent(), as plain bytes */
};

struct choice {
	struct client client; /* first: the engine's news are for it */
	struct exchange *exchange;
	unsigned index; /* in the answer; CHOICE_NOT_GIVEN: it was not among the best */
	unsigned prompt_index;
	const struct prompt_tokens *prompt;
	const struct api_params *params;
	const struct model_text *text_side;
	struct engine_request *request; /* NULL: the tokens are from elsewhere */
	bool engine_done; /* the engine is through with the request, and that was counted */

	/* The tokens: the request's, or the choice's own. */
	const int32_t *tokens;
	const struct engine_logprob *logprobs, *top; /* as engine_request has them, or NULL */
	unsigned n_top;				     /* of each token */
	unsigned n_tokens;			     /* own ones */
	void *owned;
	double score; /* mean log probability, to rank the best of several */

	struct txda_detok *detok;
	struct stop_matcher *stop;
	struct reply_parser *parser; /* NULL: all is content */
	enum reply_tools tools;
	unsigned seen;		    /* tokens taken from the request */
	unsigned completion_tokens; /* of the usage; final once finish_reason is set */
	unsigned reasoning_tokens;
	bool reasoned;	  /* reasoning is over */
	size_t fed_bytes; /* text that came out of the detokeniser */
	unsigned fed_characters;
	size_t released; /* bytes of it that passed the stop strings */

	/* Released and not yet taken by choice_sent(), as plain bytes. */
	struct json_out text, reasoning;
	struct choice_call *calls; /* [n_calls] */
	unsigned n_calls;
	bool too_many;		       /* a call came that was not wanted */
	struct token_mark *marks;      /* [max_tokens]; only if log probabilities are wanted */
	unsigned shown_from, shown_to; /* tokens whose log probabilities go with that text */
	const char *finish_reason; /* "stop", "length", "tool_calls", "timeout"; NULL: goes on */
	uint64_t last_news_ns;
	unsigned counted;	  /* tokens that the metrics know of */
	bool begun;		  /* something of it was streamed */
	unsigned echo_characters; /* of the echoed prompt, once it was streamed */
};

/*
 * Prepares text side and engine request, which is kept to @grammar unless that is NULL. 0, -ENOMEM
 * or -E2BIG; choice_clear() is due in any case.
 */
int choice_init(struct choice *c, const struct engine_sampling *sampling, struct grammar *grammar);
/* The same for @n tokens that are there already. @logprobs [n], @top [n][n_top]; all are copied. */
int choice_init_tokens(struct choice *c, const int32_t *tokens, unsigned n,
		       const struct engine_logprob *logprobs, const struct engine_logprob *top,
		       unsigned n_top);
void choice_clear(struct choice *c);

/*
 * Takes up to @max tokens. Returns how many there were, 0 also when finish_reason was set before;
 * or -ENOMEM. When the engine ended the request with an error or a cancellation, finish_reason
 * stays NULL.
 */
int choice_advance(struct choice *c, unsigned max);
/* Takes all of own tokens; @reason as the engine would have it. */
int choice_take_all(struct choice *c, enum engine_finish how);
/* Whether there is something that was not sent. */
bool choice_has_news(const struct choice *c);
/* What lies in text, reasoning, calls and shown was sent. */
void choice_sent(struct choice *c);
/* Sets the score from the log probabilities. */
void choice_rate(struct choice *c);

#endif
