/* SPDX-License-Identifier: MIT */
/*
 * One request to /v1/chat/completions, /v1/completions, /v1/embeddings or /v1/forward, from its
 * body to the last byte of the answer:
 *
 *	exchange_start()   the body goes to the text pool: JSON → parameters
 *	parsed             the model is looked up; one that is not loaded is asked for, and waited
 * for exchange_go_on()   to the text pool again: template → tokens encoded            one engine
 * request per choice is submitted news from engine   tokens → text → events of a stream, or
 * collected for one reply end                usage, metrics; freed when the engine is through with
 * every choice, too
 *
 * When the client goes away (or an error ends it early) the choices are cancelled and the exchange
 * outlives the connection until the engine has let go.
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
struct descriptor_set;
struct embeddings;
struct forward_call;
struct server;

struct exchange {
	struct conn_user user; /* first: the connection's news are for it */
	struct server *server;
	struct exchange *prev, *next;
	struct textpool_job job;
	bool in_pool;
	bool expected; /* counted as one that its model has still to work for */
	bool parked;   /* in its model's list of those that wait for the load */
	struct exchange *park_next;
	uint64_t parked_ns;
	struct http_conn *conn; /* NULL: gone, or answered */
	uid_t uid;
	pid_t pid;
	char user_name[IDENTITY_NAME]; /* whose key was sent; "": the uid says it all */
	enum api_kind kind;
	char *body;
	size_t body_len;

	/* By the jobs. */
	bool parsed, encoded;
	struct api_error error;
	struct api_params params;
	struct served_model *model; /* found by the loop between the two */
	const struct model_text *text;
	struct prompt_tokens *prompts; /* [n_prompts] */
	unsigned n_prompts;

	char id[40];
	const char *model_name; /* as the request called it, or own_name */
	char own_name[256];
	struct grammar *grammar; /* of the answers; NULL: none */
	struct beams *beams;	 /* NULL: no beam search */
	struct embeddings *embeddings;
	struct forward_call *forward;
	struct descriptor_set *set; /* that came with a forward call, until the engine has it */
	int64_t created;
	uint64_t arrived_ns;
	uint64_t deadline_ns;	/* 0: none */
	struct choice *choices; /* [n_choices], prompts outermost */
	unsigned n_choices;
	unsigned live;	/* engine requests that have not ended */
	bool streaming; /* the head of the stream was sent */
	bool answered;	/* nothing more will be sent */
	bool cancelled; /* by an administrator or its user */
	uint64_t held;	/* bytes taken from the budget */
};

/* Takes over the request on @c, its body included. */
void exchange_start(struct server *s, struct http_conn *c, enum api_kind kind);
/* Its model is ready: the second job, or the submission. */
void exchange_go_on(struct exchange *x);
/* Ends all that run, of @m unless that is NULL, with an error for their clients. */
void exchange_abort(struct server *s, const struct served_model *m, const char *why);
/* Whether it is being answered: when it is not any more, the engine may still have to let go. */
static inline bool exchange_is_open(const struct exchange *x)
{
	return x->conn && !x->cancelled;
}
/* Ends the open exchange of that id, if it is one of user @uid's or @any. False: there is none. */
bool exchange_cancel(struct server *s, const char *id, uid_t uid, bool any);
/* Every choice is finished: sends the answer, or the end of the stream. */
void exchange_complete(struct exchange *x);
/* The headers of an answer that is one: its id, and what of the request had no effect. */
#define EXCHANGE_HEADERS_MAX (API_IGNORED_MAX + 96)
char *exchange_headers(const struct exchange *x, char *buf, size_t len);
/* Ends the exchange with an error for the client, if it is still there and was not answered. */
void exchange_fail(struct exchange *x, const struct api_error *e);
/*
 * Ends the exchange with an error if its time is over; true: it was. Called where it waits for
 * something else than the engine, which ends requests itself.
 */
bool exchange_end_late(struct exchange *x);
/* Frees it when nothing needs it any more. */
void exchange_free_if_over(struct exchange *x);
/* What a failed engine call means for the client; false. */
bool exchange_submit_error(const struct exchange *x, int error, const char *text,
			   struct api_error *e);
/* Submits an engine request of this exchange; errors as model_submit(). */
int exchange_submit(struct exchange *x, struct engine_request *r, struct client *client, char *err,
		    size_t errlen);
/* Counts a request that has ended and was not to generate anything. */
void exchange_observe(const struct exchange *x, const struct engine_request *r);
/* It has ended. */
void exchange_end_request(struct exchange *x, struct engine_request *r);
/* Frees all, at the end, when no engine and no pool works on them any more. */
void exchange_free_all(struct server *s);

#endif
