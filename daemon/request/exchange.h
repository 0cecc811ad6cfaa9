/* SPDX-License-Identifier: MIT */
/*
 * A request to an inference route, from its body to the last byte of its answer.
 *
 * It has exactly one phase, whatever its kind:
 *
 *	phase      what goes on                                      who works       next
 *	received   the body is here                                  -               parsing, finishing
 *	parsing    JSON becomes parameters                           text worker     parked, encoding, finishing
 *	parked     its model is being loaded                         loader          encoding, queued, finishing
 *	encoding   template, tokens, grammar, detokenisers           text worker     parked, queued, running,
 *	                                                                             finishing
 *	queued     no result from the engine yet                     engine          running, finishing
 *	running    results of the engine are converted to an answer  engine, worker  finishing
 *	finishing  answered, or the client is gone; until engine     -               done
 *	           and worker have released it
 *	done       nothing refers to it any more; it is freed        text worker     -
 *
 * (A request that needs no engine is running as soon as it is encoded.) The kind of a request is a
 * table of functions for the steps of this life. The event loop only moves bytes and phases; any
 * work whose time depends on the length of a text is done by a text worker, one job of an exchange
 * at a time, so that output stays in order. If the engine produces more while a worker is busy with
 * the exchange, the exchange is only marked; so a batch of tokens is one job.
 *
 * The interface of the text work: a worker gets the body, then the parameters and the model's text
 * side; later, for each choice, the available tokens, their log probabilities and how the engine
 * ended (struct choice_input). It returns an error or the engine's requests, then bytes for the
 * client (out, answer), which choices' text has ended, and whether the answer is complete. It has
 * no access to connections, engine, models and other exchanges.
 *
 * Threads: the event loop's, except for encode(), output() and release() of the kinds. While
 * at_worker is set, the members below "the worker's" belong to the worker.
 */
#ifndef TXDA_REQUEST_EXCHANGE_H
#define TXDA_REQUEST_EXCHANGE_H

#include "choice.h"
#include "client.h"
#include "http.h"
#include "models.h"
#include "pictures_place.h"
#include "textpool.h"

struct answer_shape;
struct descriptor_set;
struct evbuffer;
struct exchange;
struct service;

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
	struct client client; /* first member: the engine's events refer to it */
	struct exchange *exchange;
	struct engine_request *request; /* a reference */
	struct sequence *next, **link;	/* in exchange->live, while link is not NULL */
	unsigned counted;		/* tokens already counted in metrics and budget */
	uint64_t counted_ns;
};

/*
 * A kind of request. Functions that may fail return false with the error for the client. Beam
 * search, which chats and completions use on request, has no names and shape.
 */
struct request_kind {
	const char *name;		  /* name in lists of requests */
	const char *id;			  /* prefix of the ids */
	const char *prompt;		  /* the member that contains the prompt, for errors */
	const struct answer_shape *shape; /* respond.h; NULL: the kind writes its answers itself */

	/* Called by the loop. */
	bool (*arrive)(struct exchange *x, struct api_error *e); /* NULL, or at arrival */
	bool (*check)(struct exchange *x, struct api_error *e);	 /* NULL, or before encode() */
	bool (*start)(struct exchange *x, struct api_error *e);	 /* submits; NULL: no engine */
	/*
	 * NULL, or called when the engine has produced more, or (how is not ENGINE_RUNNING) ended
	 * it.
	 */
	bool (*event)(struct sequence *s, enum engine_finish how, struct api_error *e);
	bool (*written)(struct exchange *x, struct api_error *e); /* NULL, or after output() */
	void (*over)(struct exchange *x); /* NULL, or once worker and engine are done */

	/* Called by text workers. */
	bool (*encode)(struct exchange *x, struct api_error *e);
	/*
	 * Writes available output into out, and sets complete with the last of it. May leave some
	 * for another job and set more. False: out of memory.
	 */
	bool (*output)(struct exchange *x);
	void (*release)(struct exchange *x); /* NULL, or frees the kind's own data */
};

extern const struct request_kind kind_chat, kind_completion, kind_beam, kind_embedding,
	kind_tokenize, kind_detokenize, kind_forward;

struct exchange {
	struct conn_user user; /* first member: the connection's events refer to it */
	struct service *service;
	struct exchange *prev, *next;
	enum exchange_phase phase;
	const struct request_kind *kind;
	const struct answer_shape *shape;
	enum api_kind route;
	struct textpool_job job;
	bool at_worker;		    /* the job is in the pool */
	bool wake;		    /* there is more to write since it was queued in the pool */
	struct model_waiter waiter; /* waiting for its model's load */
	struct http_conn *conn;	    /* NULL: client gone, or answered */
	bool streaming;		    /* the head of the stream was sent */
	user_id uid;
	pid_t pid;
	char user_name[IDENTITY_NAME]; /* of the key's user; "": see the uid */
	struct served_model *model;
	struct descriptor_set
		*set; /* received with the request; of a forward call until the engine has it */
	struct sequence *live; /* the engine has these */
	unsigned n_live;
	uint64_t generated;	 /* tokens */
	struct account *account; /* of its user; a reference */
	uint64_t held;		 /* bytes taken from the budget by the loop */

	/* Constant once set. */
	char id[40];
	const char *model_name; /* as named in the request, or own_name */
	char own_name[256];
	char fingerprint[48];
	const struct model_text *text;
	int64_t created;
	uint64_t arrived_ns;
	uint64_t deadline_ns;	   /* 0: none */
	struct text_caller caller; /* of the text process; set by the loop: gone */

	/* The worker's. */
	char *body;
	size_t body_len;
	bool parsed, encoded;
	struct api_error error; /* parse or encode error */
	struct api_params params;
	struct pictures pictures;
	struct prompt_tokens *prompts; /* [n_prompts] */
	unsigned n_prompts;
	struct grammar *grammar; /* of the answers; NULL: none */
	struct choice *choices;	 /* [n_choices], prompts outermost */
	unsigned n_choices;
	void *own;		 /* the kind's own data */
	struct json_out out;	 /* for the client; of a whole answer the last part */
	struct evbuffer *answer; /* a whole answer; NULL: streamed */
	unsigned cursor;	 /* where output() continues */
	bool more, complete, failed;
	uint64_t worker_held; /* bytes taken from the budget by workers */
};

/* Takes over the request on @c, including its body. */
void exchange_start(struct service *s, struct http_conn *c, enum api_kind route);
/* Continues as far as possible: called when its model is ready. */
void exchange_resume(struct exchange *x);
/* Makes a worker write the available output for the client. */
void exchange_output(struct exchange *x);
/* Ends all exchanges, only those of @m unless that is NULL, with an error for their clients. */
void exchange_abort(struct service *s, const struct served_model *m, const char *why);
/* Whether a client waits for it. */
static inline bool exchange_is_open(const struct exchange *x)
{
	return x->conn;
}
/* For lists of requests: name of the phase, and of the kind. */
const char *exchange_state(const struct exchange *x);
const char *exchange_name(const struct exchange *x);
/*
 * Cancels the open exchange with that id, if it belongs to user @uid or @any is set. False: there
 * is none.
 */
bool exchange_cancel(struct service *s, const char *id, user_id uid, bool any);
/* Ends it with an error for the client, if that is still waiting. */
void exchange_fail(struct exchange *x, const struct api_error *e);
/*
 * Ends the exchange with an error if its deadline has passed; true: it has. Called where it waits
 * for something other than the engine, which checks deadlines itself.
 */
bool exchange_end_late(struct exchange *x);
/* Frees it when nothing uses it any more. */
void exchange_free_if_over(struct exchange *x);
/* Takes the descriptors received with the request into x->set. Event loop, on arrival. */
bool exchange_take_fds(struct exchange *x, struct api_error *e);
/* Tokenises the request's prompts, with the pictures that were read. Text workers. */
bool exchange_encode_prompts(struct exchange *x, struct api_error *e);
/*
 * Takes @bytes from the budget in place of what the exchange holds; @member of the request causes
 * the size.
 */
bool exchange_hold(struct exchange *x, uint64_t bytes, const char *member, struct api_error *e);
/*
 * The same for a worker: takes more before it is allocated; and returns what was not needed. The
 * remainder is returned at the end.
 */
bool exchange_take(struct exchange *x, uint64_t bytes, const char *member, struct api_error *e);
void exchange_return(struct exchange *x, uint64_t bytes);
/*
 * Accounts for memory that cannot be refused any more. Beyond the limit the largest exchange of the
 * user who holds most is ended, with an error for its client.
 */
void exchange_grow(struct exchange *x, uint64_t bytes);

/*
 * Submits the requests of s[0..n), which have the same prompt, to the engine, all or none; errors
 * as model_submit().
 */
int exchange_submit(struct exchange *x, struct sequence *s, unsigned n, char *err, size_t errlen);
/* Sets the client's error for a failed engine call; returns false. */
bool exchange_engine_error(const struct exchange *x, int error, const char *text,
			   struct api_error *e);
/* Whether the engine ended @r with a result; if not, @e is the error for the client. */
bool exchange_has_result(const struct exchange *x, const struct engine_request *r,
			 enum engine_finish how, struct api_error *e);
/* Counts a request that the engine ended. */
void exchange_observe(const struct exchange *x, const struct engine_request *r,
		      enum engine_finish how);
/* Frees everything at shutdown, when no engine and no pool works on exchanges any more. */
void exchange_free_all(struct service *s);

#endif
