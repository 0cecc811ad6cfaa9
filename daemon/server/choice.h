/* SPDX-License-Identifier: MIT */
/*
 * One answer in the making: takes the engine's tokens as they come, turns them into text, watches
 * for stop strings, and keeps what was not yet sent. Knows neither JSON nor sockets.
 *
 * Threads: the event loop's; the engine's side of the request is read as engine.h says.
 */
#ifndef TXDA_SERVER_CHOICE_H
#define TXDA_SERVER_CHOICE_H

#include "api_params.h"
#include "engine/engine.h"
#include "json_out.h"
#include "model_text.h"

struct exchange;
struct txda_detok;
struct stop_matcher;

/* Where a generated token begins in the text of its choice, echo not counted. */
struct token_mark {
	size_t byte;
	unsigned character;
};

struct choice {
	struct exchange *exchange;
	unsigned index;
	const struct prompt_tokens *prompt;
	const struct api_params *params;
	const struct model_text *text_side;
	struct engine_request *request;
	bool engine_done; /* the engine is through with the request, and that was counted */

	struct txda_detok *detok;
	struct stop_matcher *stop;
	unsigned seen;		    /* tokens taken from the request */
	unsigned completion_tokens; /* of the usage; final once finish_reason is set */
	size_t fed_bytes;	    /* text that came out of the detokeniser */
	unsigned fed_characters;
	size_t released; /* bytes of it that passed the stop strings */

	struct json_out text;	  /* released and not yet taken by choice_sent(), as plain bytes */
	struct token_mark *marks; /* [max_tokens]; only if log probabilities are wanted */
	unsigned shown_from, shown_to; /* tokens whose log probabilities go with that text */
	const char *finish_reason;     /* "stop", "length"; NULL: goes on */
	uint64_t last_news_ns;
	unsigned counted;	  /* tokens that the metrics know of */
	bool begun;		  /* something of it was streamed */
	unsigned echo_characters; /* of the echoed prompt, once it was streamed */
};

/* Prepares text side and engine request. 0 or -ENOMEM; choice_clear() is due in any case. */
int choice_init(struct choice *c, const struct engine_sampling *sampling);
void choice_clear(struct choice *c);

/*
 * Takes up to @max tokens. Returns how many there were, 0 also when finish_reason was set before;
 * or -ENOMEM. When the engine ended the request with an error or a cancellation, finish_reason
 * stays NULL.
 */
int choice_advance(struct choice *c, unsigned max);
/* What lies in text and shown was sent. */
void choice_sent(struct choice *c);

#endif
