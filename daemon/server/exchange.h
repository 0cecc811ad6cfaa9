/* SPDX-License-Identifier: MIT */
/*
 * One request to /v1/chat/completions, /v1/completions or /v1/embeddings, from its body to the last
 *byte of the answer:
 *
 *	exchange_start()   the body goes to the text pool: JSON → parameters → template → tokens
 *	job done           one engine request per choice is submitted
 *	news from engine   tokens → text → events of a stream, or collected for one reply
 *	end                usage, metrics; freed when the engine is through with every choice, too
 *
 * When the client goes away (or an error ends it early) the choices are cancelled and the exchange
 *outlives the connection until the engine has let go.
 *
 * Threads: the event loop's, but for the job.
 */
#ifndef TXDA_SERVER_EXCHANGE_H
#define TXDA_SERVER_EXCHANGE_H

#include "choice.h"
#include "http.h"
#include "models.h"
#include "textpool.h"

struct beams;
struct embeddings;
struct server;

struct exchange {
	struct server *server;
	struct exchange *prev, *next;
	struct textpool_job job;
	bool in_pool;
	struct http_conn *conn; /* NULL: gone, or answered */
	uid_t uid;
	uint64_t permitted; /* models that the client may use, a bit each */
	enum api_kind kind;
	char *body;
	size_t body_len;

	/* By the job. */
	bool parsed, encoded;
	struct api_error error;
	struct api_params params;
	struct served_model *model;
	const struct model_text *text;
	struct prompt_tokens *prompts; /* [n_prompts] */
	unsigned n_prompts;

	char id[40];
	const char *model_name;	 /* as the request called it */
	struct grammar *grammar; /* of the answers; NULL: none */
	struct beams *beams;	 /* NULL: no beam search */
	struct embeddings *embeddings;
	int64_t created;
	uint64_t arrived_ns;
	struct choice *choices; /* [n_choices], prompts outermost */
	unsigned n_choices;
	unsigned live;	/* engine requests that have not ended */
	bool streaming; /* the head of the stream was sent */
	bool answered;	/* nothing more will be sent */
	uint64_t held;	/* bytes taken from the budget */
};

/* Takes over the request on @c, its body included. */
void exchange_start(struct server *s, struct http_conn *c, enum api_kind kind);
void exchange_gone(struct exchange *x);
void exchange_drained(struct exchange *x);
/* Ends all that run, with an error for their clients. */
void exchange_abort_all(struct server *s, const char *why);
/* Every choice is finished: sends the answer, or the end of the stream. */
void exchange_complete(struct exchange *x);
/* Ends the exchange with an error for the client, if it is still there and was not answered. */
void exchange_fail(struct exchange *x, const struct api_error *e);
/* Frees it when nothing needs it any more. */
void exchange_free_if_over(struct exchange *x);
/* What a failed engine call means for the client; false. */
bool exchange_submit_error(const struct exchange *x, int error, const char *text,
			   struct api_error *e);
/* An engine request of this exchange was submitted, or has ended. */
void exchange_begin_request(struct exchange *x, struct engine_request *r);
void exchange_end_request(struct exchange *x, struct engine_request *r);
/* Frees all, at the end, when no engine and no pool works on them any more. */
void exchange_free_all(struct server *s);

#endif
