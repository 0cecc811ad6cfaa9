/* SPDX-License-Identifier: MIT */
/*
 * A request to the engine (engine.h): its parameters and its results.
 *
 * It is shared between its client side (the server) and the engine; both hold a reference. The
 * engine appends results to the request's own arrays, whose size was fixed at submission, and puts
 * the request on the engine's ready list, waking the client side through an eventfd. So the engine
 * never waits for a client, and a slow reader costs only that memory.
 */
#ifndef TXDA_ENGINE_REQUEST_H
#define TXDA_ENGINE_REQUEST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "images.h"
#include "user_id.h"

struct beam_options;

#define ENGINE_MAX_LOGPROBS    64
#define ENGINE_MAX_STOP_TOKENS 16
#define ENGINE_MAX_BIASES      1024
#define ENGINE_MAX_BEAMS       32

/* Added to a token's logit. */
struct engine_bias {
	int32_t token;
	float bias;
};

struct engine_sampling {
	float temperature;   /* 0: greedy */
	float top_p;	     /* (0, 1]; 1: off */
	float min_p;	     /* [0, 1]; 0: off */
	int top_k;	     /* 0: off */
	uint64_t seed;	     /* random numbers depend only on (seed, position) */
	int logprobs;	     /* -1: none; n: the chosen token's and the n most likely ones' */
	unsigned max_tokens; /* to generate, at least 1 */
	unsigned min_tokens;
	bool ignore_eos; /* stop tokens do not end the answer */
	unsigned n_stop_tokens;
	int32_t stop_tokens[ENGINE_MAX_STOP_TOKENS];
	/*
	 * Penalties for tokens that occurred: the logit is divided by repetition (multiplied if
	 * negative), also for tokens of the prompt; presence is subtracted once, and frequency as
	 * often as the token was generated.
	 */
	float repetition_penalty;		   /* above 0; 1 or 0: off */
	float presence_penalty, frequency_penalty; /* 0: off */
	unsigned n_biases;
	const struct engine_bias *biases; /* [n_biases], each token once; copied */
};

/* The set of allowed next tokens. */
struct engine_mask {
	const uint32_t *bits; /* token t: bit t % 32 of word t / 32 */
	const int32_t *list;  /* [n] if there are no bits; neither: every token is allowed */
	uint32_t n;	      /* number of tokens allowed by bits or list */
	bool end;	      /* stop tokens are allowed, too; otherwise they are not */
};

/*
 * Constrains the generated tokens to a format. The engine calls these from separate threads that
 * may block (mask_workers.h), one call at a time; a sequence whose mask is not ready when its row
 * is takes no part in steps until it is. free() is also called there, when the request has ended,
 * or in the thread that drops the last reference to a request that was never submitted.
 */
struct engine_constraint;
struct engine_constraint_ops {
	/* *ret is valid until the next call. -errno: the request fails. */
	int (*mask)(struct engine_constraint *c, struct engine_mask *ret);
	/*
	 * A token (not a stop token) was chosen. 1: nothing may follow. -errno: the request fails.
	 */
	int (*accept)(struct engine_constraint *c, int32_t token);
	/* The message of the last error. */
	const char *(*error)(struct engine_constraint *c);
	void (*free)(struct engine_constraint *c);
};
struct engine_constraint {
	const struct engine_constraint_ops *ops;
};

/* Embeddings: how the last hidden states of a prompt become one vector. */
enum engine_pooling_how {
	ENGINE_POOL_NOT = 0,
	ENGINE_POOL_LAST, /* of the last token */
	ENGINE_POOL_MEAN, /* of all tokens, summed in position order */
	ENGINE_POOL_CLS,  /* of the first token */
};

struct engine_pooling {
	enum engine_pooling_how how;
	unsigned dimensions; /* number of leading elements returned; 0: all */
	bool normalize;	     /* normalised to length 1 */
};

/*
 * Receives rows of a prompt's outputs directly from the engine's buffers: logits, last hidden
 * states, or both. The engine calls row() from its thread, between two steps, so it must not block;
 * free() is called by the thread that drops the last reference to the request.
 */
struct engine_sink;
struct engine_sink_ops {
	/*
	 * Row @i of those requested, in order; @logits [vocab] and @hidden [hidden] (NULL if not
	 * requested) are valid during the call. -errno: the request fails.
	 */
	int (*row)(struct engine_sink *s, unsigned i, const float *logits, const float *hidden);
	/* The message of the last error. */
	const char *(*error)(struct engine_sink *s);
	void (*free)(struct engine_sink *s);
};
struct engine_sink {
	const struct engine_sink_ops *ops;
	const unsigned *rows; /* [n_rows] positions, increasing, up to the last token's */
	unsigned n_rows;
	unsigned vocab, hidden; /* columns that row() reads; 0: not requested */
};

enum engine_finish {
	ENGINE_RUNNING = 0,
	ENGINE_FINISH_STOP = 1,	  /* a stop token, which is the last of tokens[] */
	ENGINE_FINISH_LENGTH = 2, /* max_tokens or the model's context */
	ENGINE_FINISH_CANCELLED = 3,
	ENGINE_FINISH_ERROR = 4,    /* see error and error_text */
	ENGINE_FINISH_COMPLETE = 5, /* the request's constraint allows nothing more */
	ENGINE_FINISH_TIMEOUT = 6,  /* -ETIMEDOUT: deadline; its tokens are valid */
	ENGINE_N_FINISHES
};

struct engine_logprob {
	int32_t token;
	float logprob;
};

/* Who may find what is kept of a request: the user, or a number for the user and its salt. */
static inline uint64_t engine_owner(user_id uid, uint64_t salt)
{
	return salt ? salt | 1ull << 63 : uid;
}

struct engine_request {
	/* Set by the client side before engine_submit(), constant afterwards. */
	uint64_t id;
	user_id uid; /* the user, for fair scheduling */
	/*
	 * Nothing that is kept of requests, blocks of the prefix cache or images, is found by those
	 * of other users, nor with another salt: a hash of the user and its salt. 0: none.
	 */
	uint64_t salt;
	int priority; /* higher runs first; normally 0 */
	/*
	 * CLOCK_MONOTONIC: it ends at the first step boundary after this time; 0: no deadline
	 */
	uint64_t deadline_ns;
	struct engine_sampling sampling;
	unsigned n_prompt;
	const int32_t *prompt;	      /* [n_prompt], owned by the request */
	bool prompt_logprobs;	      /* also return logprobs of the prompt's own tokens (echo) */
	struct engine_images *images; /* a reference, owned by the request; NULL: text only */
	/*
	 * Requests for the same prompt that are submitted with this one and fork from it, linked by
	 * fork_next: the prompt is computed and counted once. They have no sink and no pooling.
	 */
	struct engine_request *forks, *fork_next;
	bool continues;		    /* earlier parts of the client's request have been submitted */
	bool beyond_queue;	    /* accepted even by a full queue, to keep work already done */
	struct beam_search *search; /* from engine_beam_new(); has results once complete */
	void *client;		    /* private to the client side */
	struct engine_constraint *constraint; /* owned by the request; NULL: none */
	struct engine_pooling pooling;	      /* a vector is requested; nothing is generated */
	struct engine_sink *sink; /* owned by the request; NULL: none. Nothing is generated */

	/*
	 * Written by the engine; entry i is valid for i < n_tokens (acquire). Arrays have
	 * sampling.max_tokens entries.
	 */
	atomic_uint n_tokens;
	int32_t *tokens;
	struct engine_logprob *logprobs; /* [max_tokens], chosen tokens; NULL: none */
	struct engine_logprob *top;	 /* [max_tokens][sampling.logprobs]; NULL if none */
	float *prompt_lp;		 /* [n_prompt]; [0] is NaN; NULL if not requested */
	/* [n_prompt][sampling.logprobs] at each place of the prompt; [0] is not set; NULL: none */
	struct engine_logprob *prompt_top;
	float *embedding;	/* [pooling.dimensions] once finish is ENGINE_FINISH_COMPLETE */
	unsigned cached_tokens; /* prompt tokens found in the prefix cache */
	atomic_int finish;	/* enum engine_finish, stored after the last token (release) */
	int error;		/* -errno */
	char error_text[256];
	/*
	 * CLOCK_MONOTONIC nanoseconds; 0: not yet. The first three and cached_tokens may be read
	 * once n_tokens is above 0 (acquire), and so may prompt_lp and prompt_top; last_token_ns,
	 * error and error_text once finish is set.
	 */
	uint64_t queued_ns, started_ns, first_token_ns, last_token_ns;

	/* Private to the engine. */
	atomic_bool cancelled;
	atomic_bool on_ready_list;
	struct engine_request *ready_next; /* the client thread's, after engine_take_ready() */
	struct engine_request *push_next;  /* link of the ready list */
	atomic_int refs;
	struct engine_seq *seq;
	struct beam_run *beams;	     /* NULL: no beam search */
	struct token_counts *counts; /* for penalties; NULL: none */
	double *pooled;		     /* [pooling.dimensions] the sum so far */
	unsigned n_taken;	     /* rows already passed to the sink */
};

/*
 * Allocates a request with room for its prompt and its results in one block: prompt and sampling
 * are copied. The caller sets the other constant fields. Returns one reference.
 */
int engine_request_new(const int32_t *prompt, unsigned n_prompt,
		       const struct engine_sampling *sampling, bool prompt_logprobs,
		       struct engine_request **ret);
/*
 * A request for a vector of @pooling->dimensions, which must be set. Such requests share steps with
 * all others; the vector is bit-identical to that of a request running alone. It ends with
 * ENGINE_FINISH_COMPLETE.
 */
int engine_embedding_new(const int32_t *prompt, unsigned n_prompt,
			 const struct engine_pooling *pooling, struct engine_request **ret);
/*
 * A request for rows of its prompt's outputs; takes over @sink on success. Such requests share
 * steps with all others; the rows are bit-identical to those of a request running alone. It ends
 * with ENGINE_FINISH_COMPLETE. -EINVAL: the rows are not increasing, or do not end with the prompt.
 */
int engine_forward_new(const int32_t *prompt, unsigned n_prompt, struct engine_sink *sink,
		       struct engine_request **ret);
/*
 * A beam search after a prompt (beam.h); it ends with ENGINE_FINISH_COMPLETE. -EINVAL, -E2BIG:
 * options out of range.
 */
int engine_beam_new(const int32_t *prompt, unsigned n_prompt, const struct beam_options *options,
		    struct engine_request **ret);
struct engine_request *engine_request_ref(struct engine_request *r);
void engine_request_unref(struct engine_request *r);

#endif
