/* SPDX-License-Identifier: MIT */
/* Options, limits and counters of an engine (engine.h). */
#ifndef TXDA_ENGINE_OPTIONS_H
#define TXDA_ENGINE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "engine_request.h"

struct txda_context;

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

struct engine_limits {
	unsigned vocab, block_size, kv_blocks, max_num_seqs, max_num_batched_tokens;
	unsigned max_context; /* prompt and generated tokens per request */
	uint64_t kv_block_bytes;
	unsigned hidden;	       /* elements of a vector; 0: no hidden states */
	struct engine_pooling pooling; /* the model's, or last token, normalised */
	struct image_tower tower;      /* max_units is 0: the model has no vision */
	unsigned embeds;	       /* bytes of an encoded image's token */
};

/* Counters for /metrics. */
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

#endif
