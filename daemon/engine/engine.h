/* SPDX-License-Identifier: MIT */
/*
 * The serving engine: generates tokens for token sequences on one group of chips.
 *
 * It is independent of sockets, text and JSON. One engine thread per model replica plans steps
 * (scheduler.c) over paged KV (kv.c), fills the launch arguments (step.c), runs them through
 * libtxda and samples (sampler.c).
 *
 * There are two step slots: while the chips run a step, the engine delivers the events of the
 * previous one, counts the step's tokens as computed and plans and fills the next step's decodes,
 * each with a placeholder for the token that it depends on. When the step has ended, the tokens are
 * sampled into the placeholders, ended sequences are removed, prefill chunks are added, and the
 * next step is launched. Chunks come last so that a request that arrived meanwhile does not have to
 * wait another step. With proposals (speculation) the result of a step cannot be predicted: then
 * all of the next one is prepared after it. The tokens are the same in either case.
 *
 * A request is shared between its client side (the server) and the engine; both hold a reference.
 * The engine appends results to the request's own arrays, whose size was fixed at submission, and
 * puts the request on the engine's ready list, waking the client side through an eventfd. So the
 * engine never waits for a client, and a slow reader costs only that memory.
 *
 * Errors: 0 or -errno; messages in err.
 */
#ifndef TXDA_ENGINE_H
#define TXDA_ENGINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "images.h"

struct txda_context;
struct txda_group;
struct txda_weights;
struct engine;
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

struct engine_request {
	/* Set by the client side before engine_submit(), constant afterwards. */
	uint64_t id;
	uid_t uid;    /* the user, for fair scheduling */
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
	float *embedding;	/* [pooling.dimensions] once finish is ENGINE_FINISH_COMPLETE */
	unsigned cached_tokens; /* prompt tokens found in the prefix cache */
	atomic_int finish;	/* enum engine_finish, stored after the last token (release) */
	int error;		/* -errno */
	char error_text[256];
	/*
	 * CLOCK_MONOTONIC nanoseconds; 0: not yet. The first three and cached_tokens may be read
	 * once n_tokens is above 0 (acquire), and so may prompt_lp; last_token_ns, error and
	 * error_text once finish is set.
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

/*
 * Speculative decoding: a cheap method proposes tokens, and one step of the model checks them all.
 *
 * A proposal is accepted if it equals the token that the sampler chooses at that position, whose
 * random number depends only on (seed, position). So a request's tokens and logprobs are
 * bit-identical to those without speculation, greedy or not; only the time differs.
 */
enum engine_speculation {
	ENGINE_SPECULATE_NOT = 0,
	ENGINE_SPECULATE_NGRAM, /* tokens that followed an earlier occurrence of the last tokens */
	/*
	 * A draft model with the same vocabulary on the same chips; or the prediction layer of the
	 * model itself (MTP), when the case dir contains such a layer.
	 */
	ENGINE_SPECULATE_MODEL,
};

#define ENGINE_MAX_DRAFT 16 /* proposed tokens per step */

struct engine_options {
	const char *case_dir;
	const struct image_tower *tower; /* of its program `vision`; NULL: none */
	enum engine_speculation speculation;
	unsigned speculative_tokens;	 /* 0: 4, at most ENGINE_MAX_DRAFT */
	unsigned speculative_max_seqs;	 /* no proposals with more running sequences; 0: 8 */
	unsigned ngram_min, ngram_max;	 /* length of the repeated token sequence; 0: 2 and 4 */
	const char *draft_case_dir;	 /* case dir for ENGINE_SPECULATE_MODEL */
	unsigned max_num_seqs;		 /* 0: 256, at most the program's limit */
	unsigned max_num_batched_tokens; /* 0: 2048, at most the program's limit */
	unsigned max_context;		 /* tokens per sequence; 0: what model and memory allow */
	unsigned max_queue;		 /* waiting requests; 0: 1024 */
	unsigned max_kv_blocks;		 /* 0: what memory allows */
	uint64_t kv_reserve_bytes;
	bool prefix_caching;
	void (*load_progress)(void *arg, uint64_t done, uint64_t total);
	void *load_progress_arg;
	struct txda_context *context; /* the group's context, for its error messages; may be NULL */
	bool keep_weights;	      /* engine_weights() can be exported */
	bool map_weights;	      /* nobody else can write to the case dirs (txda.h) */
	unsigned step_seconds;	      /* the group is lost if a step takes longer; 0: 600 */
	/*
	 * Approximate limit on how long running sequences are delayed by a prefill chunk, estimated
	 * from earlier steps (scheduler.h); 0: no limit.
	 */
	unsigned max_stall_ms;
	unsigned max_decode_ms; /* approximate limit for decodes of several users; 0: none */
	bool fair_time;		/* steps are limited by their users' shares of time (scheduler.h) */
};

/* Loads the model on @group and starts the engine thread. Returns when it is loaded. */
int engine_new(struct txda_group *group, const struct engine_options *options, struct engine **ret,
	       char *err, size_t errlen);
/*
 * Cancels remaining requests, stops the thread, unloads. Requests stay valid for holders of
 * references. NULL is accepted.
 */
void engine_free(struct engine *e);

/*
 * Queues a request and its forks, all or none; takes a reference to each. A request is submitted
 * once. -EAGAIN: the queue is full; requests with `continues` may use as many additional places as
 * sequences run at once. -E2BIG: prompt longer than the context (which never exceeds the whole KV
 * cache; err has value and limit). -EINVAL: an empty prompt, a token outside the vocabulary, a
 * sampling parameter out of range. -EIO: the group was lost. -ESHUTDOWN: it is being freed.
 * -EOPNOTSUPP: a vector is requested of a program without hidden states, or rows that it does not
 * have, or images were prepared for another vision tower than the model's.
 */
int engine_submit(struct engine *e, struct engine_request *r, char *err, size_t errlen);
/* Cancels the request; it ends at the next step boundary. Idempotent, from any thread. */
void engine_cancel(struct engine *e, struct engine_request *r);

/* Readable when the ready list is not empty. */
int engine_ready_fd(struct engine *e);
/*
 * Takes the requests with events since the last call, oldest first, linked by ready_next (read it
 * before dropping the reference); each carries a reference that the caller drops. A request is in
 * the list once, however many events it has. One client thread at a time; a list has to be walked
 * before the next one is taken.
 */
struct engine_request *engine_take_ready(struct engine *e);

struct engine_limits {
	unsigned vocab, block_size, kv_blocks, max_num_seqs, max_num_batched_tokens;
	unsigned max_context; /* prompt and generated tokens per request */
	uint64_t kv_block_bytes;
	unsigned hidden;	       /* elements of a vector; 0: no hidden states */
	struct engine_pooling pooling; /* the model's, or last token, normalised */
	struct image_tower tower;      /* max_units is 0: the model has no vision */
	unsigned embeds;	       /* bytes of an encoded image's token */
};
void engine_limits(struct engine *e, struct engine_limits *ret);
/*
 * A reference to the weights of a rank, of the model or of the draft model. -ENOENT: there are
 * none.
 */
int engine_weights(struct engine *e, bool draft, unsigned rank, struct txda_weights **ret);

/* Counters for /metrics; a consistent snapshot after the last step, without stopping the engine. */
struct engine_stats {
	unsigned running, waiting;
	double kv_usage; /* 0..1 of the blocks in use */
	/*
	 * Contents of the used blocks in bytes per chip: layers with full attention, with a window,
	 * with a state.
	 */
	uint64_t kv_keys_bytes, kv_window_bytes, kv_state_bytes;
	uint64_t prompt_tokens, generation_tokens, preemptions, steps;
	uint64_t limited_steps;		      /* without heavy users, for a first token */
	uint64_t prefix_queries, prefix_hits; /* tokens */
	uint64_t finished[ENGINE_N_FINISHES]; /* by enum engine_finish */
	/*
	 * speculative decoding: sequences' steps with proposals, tokens in them, accepted ones
	 */
	uint64_t drafts, draft_tokens, accepted_tokens;
	uint64_t accepted_at[ENGINE_MAX_DRAFT]; /* how often the i-th proposal was accepted */
	/*
	 * bytes of launch arguments to all chips, of outputs from rank 0; without those of the
	 * draft model
	 */
	uint64_t bytes_written, bytes_read;
	uint64_t images, cached_images; /* encoded images; images found in the cache */
	uint64_t encode_launches;	/* launches needed for that */
	uint64_t encode_ns;
	uint64_t step_ns, host_ns; /* time on the chip, and its idle time between two steps */
	bool lost;		   /* the group failed; see error */
	char error[256];
};
void engine_stats(struct engine *e, struct engine_stats *ret);

#endif /* TXDA_ENGINE_H */
