/* SPDX-License-Identifier: MIT */
/*
 * The serving engine: turns token ids into token ids on one group of chips.
 *
 * It knows no sockets, no text and no JSON. One engine thread per model replica plans steps
 * (scheduler.c) over paged KV (kv.c), fills the launch arguments (step.c), runs them through
 * libtxda and samples (sampler.c).
 *
 * There are two step slots: while the chips run a step the engine tells the clients the news of the
 * one before, counts the step's tokens as computed and plans and fills the next step's decodes, each
 * with a hole for the token that it waits for. When the step has ended, the tokens are sampled into
 * the holes, who ended is taken out, prompts' chunks are added, and the next step is launched. Chunks
 * come last so that a request that came meanwhile loses no step. With proposals (speculation) how far
 * a step gets is not known before it has ended: then all of the next one is prepared after it. Either
 * way a step has the tokens that it would have had otherwise.
 *
 * A request is shared between its client side (the server) and the engine; both hold a reference.
 * The engine appends results to the request's own arrays, whose size was fixed at submission, and
 * puts the request on the engine's ready list, waking the client side through an eventfd. So the
 * engine never waits for a client and a slow reader costs nothing but that memory.
 *
 * Errors: 0 or -errno; texts in err.
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
	uint64_t seed;	     /* random numbers are a function of (seed, position) alone */
	int logprobs;	     /* -1: none; n: the chosen token's and the n best ones' */
	unsigned max_tokens; /* to generate, at least 1 */
	unsigned min_tokens;
	bool ignore_eos; /* stop_tokens do not stop */
	unsigned n_stop_tokens;
	int32_t stop_tokens[ENGINE_MAX_STOP_TOKENS];
	/*
	 * Of tokens that occurred: a logit is divided by the first (multiplied if it is negative),
	 * for those of the prompt, too; the second is taken off it once, the third as often as
	 * the token was generated.
	 */
	float repetition_penalty;		   /* above 0; 1 or 0: off */
	float presence_penalty, frequency_penalty; /* 0: off */
	unsigned n_biases;
	const struct engine_bias *biases; /* [n_biases], no token twice; copied with the request */
};

/* Which tokens may come next. */
struct engine_mask {
	const uint32_t *bits; /* token t: bit t % 32 of word t / 32 */
	const int32_t *list;  /* [n] if there are no bits; neither: every token may come */
	uint32_t n;	      /* tokens that may come by bits or list */
	bool end;	      /* stop tokens may come, too; else they may not */
};

/*
 * Keeps the generated tokens within a form that somebody else knows. The engine calls from threads
 * of its own that may be held up (mask_workers.h), one call at a time; a sequence whose mask is not
 * known when its row is there takes no part in steps until it is. free() comes from there, too, when
 * the request has ended, or from the thread that drops the last reference to one that was never
 * submitted.
 */
struct engine_constraint;
struct engine_constraint_ops {
	/* *ret is valid until the next call. -errno: the request fails. */
	int (*mask)(struct engine_constraint *c, struct engine_mask *ret);
	/* The token was chosen (no stop token). 1: nothing may follow. -errno: the request fails.
	 */
	int (*accept)(struct engine_constraint *c, int32_t token);
	/* Words for the last error. */
	const char *(*error)(struct engine_constraint *c);
	void (*free)(struct engine_constraint *c);
};
struct engine_constraint {
	const struct engine_constraint_ops *ops;
};

/* Embeddings: how the last hidden states of a prompt become one vector. */
enum engine_pooling_how {
	ENGINE_POOL_NOT = 0,
	ENGINE_POOL_LAST, /* that of the last token */
	ENGINE_POOL_MEAN, /* of all tokens, summed in the order of their positions */
	ENGINE_POOL_CLS,  /* that of the first token */
};

struct engine_pooling {
	enum engine_pooling_how how;
	unsigned dimensions; /* the first ones of the vector are given; 0: all */
	bool normalize;	     /* what is given has length 1 */
};

/*
 * Takes rows of a prompt's outputs where the engine has them: logits, last hidden states, or both.
 * The engine calls row() from its thread, between two steps, so it must not wait; free() comes from
 * the thread that drops the last reference to the request.
 */
struct engine_sink;
struct engine_sink_ops {
	/*
	 * Row @i of those wanted, in their order; @logits [vocab] and @hidden [hidden] (NULL if
	 * none are wanted) are valid during the call. -errno: the request fails.
	 */
	int (*row)(struct engine_sink *s, unsigned i, const float *logits, const float *hidden);
	/* Words for the last error. */
	const char *(*error)(struct engine_sink *s);
	void (*free)(struct engine_sink *s);
};
struct engine_sink {
	const struct engine_sink_ops *ops;
	const unsigned *rows; /* [n_rows] positions, rising; the last one is the prompt's last */
	unsigned n_rows;
	unsigned vocab, hidden; /* columns that row() reads; 0: none of these */
};

enum engine_finish {
	ENGINE_RUNNING = 0,
	ENGINE_FINISH_STOP = 1,	  /* a stop token; it is the last of tokens[] */
	ENGINE_FINISH_LENGTH = 2, /* max_tokens or the model's context */
	ENGINE_FINISH_CANCELLED = 3,
	ENGINE_FINISH_ERROR = 4,    /* error and error_text say why */
	ENGINE_FINISH_COMPLETE = 5, /* nothing may follow, by the request's constraint */
	ENGINE_FINISH_TIMEOUT = 6,  /* -ETIMEDOUT: its deadline passed; what was generated stands */
	ENGINE_N_FINISHES
};

struct engine_logprob {
	int32_t token;
	float logprob;
};

struct engine_request {
	/* Set by the client side before engine_submit(), constant from then on. */
	uint64_t id;
	uid_t uid;    /* who asks, for fair sharing */
	int priority; /* higher runs first; 0 normally */
	/* CLOCK_MONOTONIC: it ends at the first step boundary from then on; 0: it may take for ever
	 */
	uint64_t deadline_ns;
	struct engine_sampling sampling;
	unsigned n_prompt;
	const int32_t *prompt;	      /* [n_prompt], owned by the request */
	bool prompt_logprobs;	      /* also give logprobs of the prompt's own tokens (echo) */
	struct engine_images *images; /* a reference, owned by the request; NULL: only text */
	/*
	 * Requests for the same prompt that are submitted with this one and go on from it, linked by
	 * fork_next: the prompt is computed and counted once. They have no sink and no pooling.
	 */
	struct engine_request *forks, *fork_next;
	bool continues;	   /* parts of the client's request went before */
	bool beyond_queue; /* a full queue takes this one, lest what was computed is lost */
	struct beam_search *search; /* of engine_beam_new(); its results once it is complete */
	void *client;		    /* the client side's own */
	struct engine_constraint *constraint; /* owned by the request; NULL: none */
	struct engine_pooling pooling;	      /* a vector is wanted; nothing is generated */
	struct engine_sink *sink; /* owned by the request; NULL: none. Nothing is generated */

	/*
	 * Written by the engine; entry i is valid for i < n_tokens (acquire). Arrays have
	 * sampling.max_tokens entries.
	 */
	atomic_uint n_tokens;
	int32_t *tokens;
	struct engine_logprob *logprobs; /* [max_tokens], the chosen ones; NULL: not wanted */
	struct engine_logprob *top;	 /* [max_tokens][sampling.logprobs]; NULL if none */
	float *prompt_lp;		 /* [n_prompt]; [0] is NaN; NULL if not wanted */
	float *embedding;	/* [pooling.dimensions] once finish is ENGINE_FINISH_COMPLETE */
	unsigned cached_tokens; /* prompt tokens that needed no compute */
	atomic_int finish;	/* enum engine_finish, stored after the last token (release) */
	int error;		/* -errno */
	char error_text[256];
	/*
	 * CLOCK_MONOTONIC nanoseconds; 0: not yet. The first three and cached_tokens may be read
	 * once n_tokens is above 0 (acquire), prompt_lp too; last_token_ns, error and error_text
	 * once finish is set.
	 */
	uint64_t queued_ns, started_ns, first_token_ns, last_token_ns;

	/* The engine's own. */
	atomic_bool cancelled;
	atomic_bool on_ready_list;
	struct engine_request *ready_next; /* the client thread's, after engine_take_ready() */
	struct engine_request *push_next;  /* the ready list's */
	atomic_int refs;
	struct engine_seq *seq;
	struct beam_run *beams;	     /* NULL: no beam search */
	struct token_counts *counts; /* for penalties; NULL: there are none */
	double *pooled;		     /* [pooling.dimensions] the sum so far */
	unsigned n_taken;	     /* rows that the sink has */
};

/*
 * Allocates a request with room for its prompt and its results in one piece: prompt and sampling
 * are copied. The caller sets the other constant fields. One reference.
 */
int engine_request_new(const int32_t *prompt, unsigned n_prompt,
		       const struct engine_sampling *sampling, bool prompt_logprobs,
		       struct engine_request **ret);
/*
 * A request for a vector of @pooling->dimensions, which must be given here. Such requests share
 * steps with all others; the vector is bit by bit what it is alone. It ends with
 * ENGINE_FINISH_COMPLETE.
 */
int engine_embedding_new(const int32_t *prompt, unsigned n_prompt,
			 const struct engine_pooling *pooling, struct engine_request **ret);
/*
 * A request for rows of its prompt's outputs; takes over @sink, unless it fails. Such requests
 * share steps with all others; the rows are bit by bit what they are alone. It ends with
 * ENGINE_FINISH_COMPLETE. -EINVAL: the rows do not rise, or do not end with the prompt.
 */
int engine_forward_new(const int32_t *prompt, unsigned n_prompt, struct engine_sink *sink,
		       struct engine_request **ret);
/*
 * A beam search behind a prompt (beam.h); it ends with ENGINE_FINISH_COMPLETE. -EINVAL, -E2BIG: the
 * options are out of range.
 */
int engine_beam_new(const int32_t *prompt, unsigned n_prompt, const struct beam_options *options,
		    struct engine_request **ret);
struct engine_request *engine_request_ref(struct engine_request *r);
void engine_request_unref(struct engine_request *r);

/*
 * Speculative decoding: something cheap proposes tokens, one step of the model checks them all.
 *
 * A proposal stands when it is the token that the sampler chooses at that position, whose random
 * number depends on (seed, position) alone. So a request's tokens and logprobs are bit by bit what
 * they are without speculation, greedy or not; only the time differs.
 */
enum engine_speculation {
	ENGINE_SPECULATE_NOT = 0,
	ENGINE_SPECULATE_NGRAM, /* what followed the last tokens when they occurred before */
	/*
	 * A small model with the same vocabulary, on the same chips; or the layer of the model
	 * itself that predicts further tokens (MTP), when the case dir is one of such a layer.
	 */
	ENGINE_SPECULATE_MODEL,
};

#define ENGINE_MAX_DRAFT 16 /* proposed tokens a step */

struct engine_options {
	const char *case_dir;
	enum engine_speculation speculation;
	unsigned speculative_tokens;	 /* 0: 4, at most ENGINE_MAX_DRAFT */
	unsigned speculative_max_seqs;	 /* more running sequences: no proposals; 0: 8 */
	unsigned ngram_min, ngram_max;	 /* tokens that must occur again; 0: 2 and 4 */
	const char *draft_case_dir;	 /* of ENGINE_SPECULATE_MODEL */
	unsigned max_num_seqs;		 /* 0: 256, at most the program's */
	unsigned max_num_batched_tokens; /* 0: 2048, at most the program's */
	unsigned max_context;		 /* tokens of a sequence; 0: what model and memory allow */
	unsigned max_queue;		 /* requests that may wait; 0: 1024 */
	unsigned max_kv_blocks;		 /* 0: what memory allows */
	uint64_t kv_reserve_bytes;
	bool prefix_caching;
	void (*load_progress)(void *arg, uint64_t done, uint64_t total);
	void *load_progress_arg;
	struct txda_context *context; /* the group's, for the words of its errors; may be NULL */
	bool keep_weights;	      /* engine_weights() are for export */
	unsigned step_seconds;	      /* a step that takes longer counts as a lost group; 0: 600 */
	/*
	 * The longest time, about, that running sequences stand still for a chunk of a prompt, by
	 * the times that steps took before (scheduler.h); 0: as long as it takes.
	 */
	unsigned max_stall_ms;
	unsigned max_decode_ms; /* about, of a step's decodes of several users; 0: no limit */
};

/* Loads the model on @group and starts the engine thread. Takes as long as the load. */
int engine_new(struct txda_group *group, const struct engine_options *options, struct engine **ret,
	       char *err, size_t errlen);
/*
 * Cancels what is left, stops the thread, unloads. Requests stay valid for those who hold
 * references. NULL is accepted.
 */
void engine_free(struct engine *e);

/*
 * Queues a request and its forks, all or none; takes a reference to each. A request is submitted
 * once. -EAGAIN: the queue is full; as many as run at once find a place that continue what was begun.
 * -E2BIG: prompt longer than the context (which never exceeds the whole KV cache; err says value
 * and limit). -EINVAL: an empty prompt, a token outside the vocabulary, a sampling parameter out of
 * range. -EIO: the group was lost. -ESHUTDOWN: it is being freed. -EOPNOTSUPP: a vector is wanted
 * of a program that gives no hidden states, or rows are wanted that it does not have, or images were
 * prepared for another tower than the model's.
 */
int engine_submit(struct engine *e, struct engine_request *r, char *err, size_t errlen);
/* The client is gone; the request ends at the next step boundary. Idempotent, from any thread. */
void engine_cancel(struct engine *e, struct engine_request *r);

/* Readable when the ready list is not empty. */
int engine_ready_fd(struct engine *e);
/*
 * Takes the requests with news since the last call, oldest first, linked by ready_next (read it
 * before dropping the reference); each carries a reference that the caller drops. A request is in
 * the list once, however much news it has. One client thread at a time; a list has to be walked
 * before the next one is taken.
 */
struct engine_request *engine_take_ready(struct engine *e);

struct engine_limits {
	unsigned vocab, block_size, kv_blocks, max_num_seqs, max_num_batched_tokens;
	unsigned max_context; /* prompt and generated tokens of a request */
	uint64_t kv_block_bytes;
	unsigned hidden;	       /* elements of a vector; 0: the program gives none */
	struct engine_pooling pooling; /* as the model says, or of the last token, normalised */
	struct image_tower tower;      /* max_units is 0: the model does not see */
	unsigned embeds;	       /* bytes of an image's token, once it is encoded */
};
void engine_limits(struct engine *e, struct engine_limits *ret);
/*
 * A reference to the weights of a rank, of the model or of the one that proposes tokens. -ENOENT:
 * there are none.
 */
int engine_weights(struct engine *e, bool draft, unsigned rank, struct txda_weights **ret);

/* Counters for /metrics; a consistent snapshot as of the last step, without stopping the engine. */
struct engine_stats {
	unsigned running, waiting;
	double kv_usage; /* 0..1 of the blocks in use */
	uint64_t prompt_tokens, generation_tokens, preemptions, steps;
	uint64_t limited_steps;		      /* without heavy users, for another's first token */
	uint64_t prefix_queries, prefix_hits; /* tokens */
	uint64_t finished[ENGINE_N_FINISHES]; /* by enum engine_finish */
	/* speculative decoding: sequences' steps with proposals, tokens in them, those that stood
	 */
	uint64_t drafts, draft_tokens, accepted_tokens;
	uint64_t accepted_at[ENGINE_MAX_DRAFT]; /* how often the i-th proposal stood */
	/* launch arguments to all chips, outputs from rank 0; without those of proposing */
	uint64_t bytes_written, bytes_read;
	uint64_t images, cached_images; /* that were encoded; that had been before */
	uint64_t encode_ns;
	uint64_t step_ns, host_ns; /* time on the chip, and while it idled between two steps */
	bool lost;		   /* the group failed; error has the words */
	char error[256];
};
void engine_stats(struct engine *e, struct engine_stats *ret);

#endif /* TXDA_ENGINE_H */
