/* SPDX-License-Identifier: MIT */
/*
 * One request to an inference route, from its body to the last byte of its answer.
 *
 * It has one phase, whatever it asks for:
 *
 *	phase      what goes on                                      who works       next
 *	received   the body is here                                  -               parsing, finishing
 *	parsing    JSON becomes parameters                           text worker     parked, encoding, finishing
 *	parked     its model is being loaded                         loader          encoding, queued, finishing
 *	encoding   template, tokens, grammar, detokenisers           text worker     parked, queued, running,
 *	                                                                             finishing
 *	queued     the engine has given nothing yet                  engine          running, finishing
 *	running    the engine gives results, they become an answer   engine, worker  finishing
 *	finishing  the client has its answer or is gone; engine and  -               done
 *	           worker let go
 *	done       nothing refers to it any more                     text worker     -
 *
 * (A request that needs no engine runs at once when it is encoded.) What is asked for is a kind: a
 * table of functions for the steps of this life. The event loop moves bytes and phases; whatever
 * takes time by the length of a text is done by a text worker, one job of an exchange at a time, so
 * that what is written keeps its order. While the engine makes more of an answer that a worker is
 * busy with, the exchange is only marked; so a batch of tokens is one job.
 *
 * The border of the text work: a worker is given the body, then the parameters and the model's text
 * side; later, for each choice, the tokens that are there, their log probabilities and how the
 * engine ended (struct choice_input). It gives back an error or the engine's requests, then bytes
 * for the client (out, answer), which choices' text has ended, and whether the answer is complete.
 * It sees no connection, no engine, no model and no other exchange.
 *
 * Threads: the event loop's, but for encode(), output() and release() of the kinds. While at_worker
 * is set the members below "the worker's" are the worker's.
 */
#ifndef TXDA_SERVER_EXCHANGE_H
#define TXDA_SERVER_EXCHANGE_H

#include "choice.h"
#include "client.h"
#include "http.h"
#include "models.h"
#include "textpool.h"

struct answer_shape;
struct descriptor_set;
struct evbuffer;
struct exchange;
struct server;

enum exchange_phase {
	PHASE_RECEIVED,
	PHASE_PARSING,
	PHASE_PARKED,
	PHASE_ENCODING,
	PHASE_QUEUED,
	PHASE_RUNNING,
	PHASE_FINISHING,
	PHASE_DONE,
	N_PHASES,
};

/* One engine request of an exchange. */
struct sequence {
	struct client client; /* first: the engine's events are for it */
	struct exchange *exchange;
	struct engine_request *request; /* a reference */
	struct sequence *next, **link;	/* of exchange->live, while link is not NULL */
	unsigned counted;		/* tokens that metrics and budget know of */
	uint64_t counted_ns;
};

/*
 * A kind of request. Functions that may fail return false with the error for the client. Beam
 * search, which chats and completions become when they ask for it, has no names and shape.
 */
struct request_kind {
	const char *name;		  /* for lists of requests */
	const char *id;			  /* what the ids begin with */
	const char *prompt;		  /* the member that becomes the prompt, for errors */
	const struct answer_shape *shape; /* respond.h; NULL: the kind writes its answers itself */

	/* The loop's. */
	bool (*arrive)(struct exchange *x, struct api_error *e); /* NULL, or as it is received */
	bool (*check)(struct exchange *x, struct api_error *e);	 /* NULL, or before encode() */
	bool (*start)(struct exchange *x, struct api_error *e);	 /* submits; NULL: no engine */
	/* NULL, or the engine has given more, or (how is not ENGINE_RUNNING) ended it. */
	bool (*event)(struct sequence *s, enum engine_finish how, struct api_error *e);
	bool (*written)(struct exchange *x, struct api_error *e); /* NULL, or behind output() */
	void (*over)(struct exchange *x); /* NULL, or no worker and no engine has it any more */

	/* The text workers'. */
	bool (*encode)(struct exchange *x, struct api_error *e);
	/*
	 * Writes what can be said into out, and sets complete with the last of it. May leave some
	 * for another turn and set more. False: out of memory.
	 */
	bool (*output)(struct exchange *x);
	void (*release)(struct exchange *x); /* NULL, or frees what is its own */
};

extern const struct request_kind kind_chat, kind_completion, kind_beam, kind_embedding,
	kind_tokenize, kind_detokenize, kind_forward;

struct exchange {
	struct conn_user user; /* first: the connection's events are for it */
	struct server *server;
	struct exchange *prev, *next;
	enum exchange_phase phase;
	const struct request_kind *kind;
	const struct answer_shape *shape;
	enum api_kind route;
	struct textpool_job job;
	bool at_worker;		    /* the job is in the pool */
	bool wake;		    /* there is more to write since it was given to the pool */
	struct model_waiter waiter; /* for its model's load */
	struct http_conn *conn;	    /* NULL: gone, or answered */
	bool streaming;		    /* the head of the stream was sent */
	uid_t uid;
	pid_t pid;
	char user_name[IDENTITY_NAME]; /* whose key was sent; "": the uid says it all */
	struct served_model *model;
	struct descriptor_set *set; /* that came with a forward call, until the engine has it */
	struct sequence *live;	    /* the engine has these */
	unsigned n_live;
	uint64_t generated;	 /* tokens */
	struct account *account; /* of its user; a reference */
	uint64_t held;		 /* bytes taken from the budget by the loop */

	/* Constant once they are set. */
	char id[40];
	const char *model_name; /* as the request called it, or own_name */
	char own_name[256];
	char fingerprint[48];
	const struct model_text *text;
	int64_t created;
	uint64_t arrived_ns;
	uint64_t deadline_ns;	   /* 0: none */
	struct text_caller caller; /* the same for the model's text process; the loop's: gone */

	/* The worker's. */
	char *body;
	size_t body_len;
	bool parsed, encoded;
	struct api_error error; /* why it could not be parsed or encoded */
	struct api_params params;
	struct engine_image **images; /* [n_images] references, in the order of the prompt */
	unsigned n_images;
	struct prompt_tokens *prompts; /* [n_prompts] */
	unsigned n_prompts;
	struct grammar *grammar; /* of the answers; NULL: none */
	struct choice *choices;	 /* [n_choices], prompts outermost */
	unsigned n_choices;
	void *own;		 /* the kind's */
	struct json_out out;	 /* for the client; of a whole answer the last part */
	struct evbuffer *answer; /* a whole answer; NULL: of a stream */
	unsigned cursor;	 /* where output() goes on */
	bool more, complete, failed;
	uint64_t worker_held; /* bytes taken from the budget by workers */
};

/* Takes over the request on @c, its body included. */
void exchange_start(struct server *s, struct http_conn *c, enum api_kind route);
/* Goes on as far as it can: called when its model is ready. */
void exchange_go_on(struct exchange *x);
/* Has a worker write what there is for the client. */
void exchange_output(struct exchange *x);
/* Ends all that run, of @m unless that is NULL, with an error for their clients. */
void exchange_abort(struct server *s, const struct served_model *m, const char *why);
/* Whether a client waits for it. */
static inline bool exchange_is_open(const struct exchange *x)
{
	return x->conn;
}
/* For lists of requests: the phase in words, and what it is. */
const char *exchange_state(const struct exchange *x);
const char *exchange_name(const struct exchange *x);
/* Ends the open exchange of that id, if it is one of user @uid's or @any. False: there is none. */
bool exchange_cancel(struct server *s, const char *id, uid_t uid, bool any);
/* Ends it with an error for the client, if that still waits. */
void exchange_fail(struct exchange *x, const struct api_error *e);
/*
 * Ends the exchange with an error if its time is over; true: it was. Called where it waits for
 * something else than the engine, which ends requests itself.
 */
bool exchange_end_late(struct exchange *x);
/* Frees it when nothing needs it any more. */
void exchange_free_if_over(struct exchange *x);
/* Turns the request's prompts into tokens. Any thread. */
bool exchange_encode_prompts(struct exchange *x, struct api_error *e);
/*
 * Takes @bytes from the budget in place of what the exchange holds; @member of the request makes it
 * so many.
 */
bool exchange_hold(struct exchange *x, uint64_t bytes, const char *member, struct api_error *e);
/*
 * The same for a worker: takes so many more before they are there; and what was not needed goes
 * back. What is left is given back at the end.
 */
bool exchange_take(struct exchange *x, uint64_t bytes, const char *member, struct api_error *e);
void exchange_return(struct exchange *x, uint64_t bytes);
/*
 * It holds so many bytes more, which cannot be refused any more. Beyond the limit the largest
 * exchange of the user who holds most is ended, with an error for its client.
 */
void exchange_grow(struct exchange *x, uint64_t bytes);

/*
 * Gives the requests of s[0..n), which have the same prompt, to the engine, all or none; errors as
 * model_submit().
 */
int exchange_submit(struct exchange *x, struct sequence *s, unsigned n, char *err, size_t errlen);
/* What a failed engine call means for the client; false. */
bool exchange_engine_error(const struct exchange *x, int error, const char *text,
			   struct api_error *e);
/* Whether the engine ended @r with a result; if not, @e says what that means for the client. */
bool exchange_has_result(const struct exchange *x, const struct engine_request *r,
			 enum engine_finish how, struct api_error *e);
/* Counts a request that the engine ended. */
void exchange_observe(const struct exchange *x, const struct engine_request *r,
		      enum engine_finish how);
/* Frees all, at the end, when no engine and no pool works on them any more. */
void exchange_free_all(struct server *s);

#endif
