/* SPDX-License-Identifier: MIT */
/*
 * Decides what each step computes: a list of {sequence: number of tokens} under a token budget.
 * Pure: it handles KV blocks and token counts, and is independent of chips and requests.
 *
 * A sequence has n_total known tokens, of which n_computed have their KV in the cache. The
 * difference is to be computed: 1 for a decode, more for a prompt, and everything after a
 * preemption. Prefill and decode are not distinguished otherwise.
 *
 * The policy:
 *
 * decodes	Every running sequence with one token left gets it. max_seqs is at most the token
 *		and the row limit, so that all of them fit into every step. A sequence that resumes
 *		after a fork or a preemption and has to recompute at most one block counts as a
 *		decode, too, if the others leave it the tokens.
 *
 * time	With fair_time no user is slowed down by more than the others' shares of the time. A
 *		line fitted through the times of earlier steps gives the cost of a step and of each
 *		decode in it (scheduler_share.c). A step of U users takes at most U times what the
 *		decodes of the lightest user take alone, less half a decode, in favour of users with
 *		few. Heavy users leave out what is beyond their max-min fair share of that, in
 *		turns. Where decodes cost next to nothing, nobody leaves any out. While there are
 *		several users, or were a short while ago, a step is no longer than wastes a
 *		twentieth on the cost of each step, so that a newcomer waits for a short one.
 *		Sequences of higher priority levels are not limited.
 *
 * turns	With max_decode_ns, a step of several users has as many decodes as fit into that
 *		time instead: users get max-min fair shares, at least one each, and a user's
 *		sequences take turns in its share. Higher levels are not limited.
 *
 * chunks	The rest of the budget goes to prefill chunks of running and waiting sequences,
 *		chosen one after the other. Beside decodes, chunks have as many tokens as keep a
 *		step within max_stall_ns, from the measured times of earlier steps, and at least as
 *		many as there are decodes, so that prompts always make progress.
 *		With fair_time, chunks of a user who has more requests than another whose decodes
 *		are in the step, or as many and has had more tokens, get what is left of the step's
 *		time, and at least half of what those decodes take.
 *
 * stall	A step that completes a prompt, and so produces its user's first token, leaves out
 *		the sequences of users who run at least two more, unless these are of a higher
 *		level. So a light user waits only for the running step and for its own prompt,
 *		however many requests others have. Such steps may use at most
 *		1/SCHEDULER_STALL_PART of the measured time, accumulated up to max_stall_ns: heavy
 *		users keep the rest at any cost per step; beyond the limit, prompts and decodes
 *		share the step.
 *
 * order	The highest priority first. Waiting raises a sequence by one level every
 *		SCHEDULER_AGING_STEPS steps, up to the highest level that wants chunks, so that no
 *		priority starves another. Then users below their cap (see admission), then the user
 *		with the lowest virtual token counter, then the one who runs fewer sequences, then
 *		first come, first served. A user's own requests are ordered by raised priority, then
 *		by arrival.
 *
 * counter	Fair queueing (Sheng et al., Fairness in Serving Large Language Models, OSDI 2024): a
 *		prompt token counts 1, a generated token SCHEDULER_OUTPUT_WEIGHT, prefix cache hits
 *		and tokens recomputed after a preemption 0. When a user becomes active again its
 *		counter is raised to the minimum of the active ones, and on each priority level it
 *		is at most SCHEDULER_CREDIT_STEPS steps behind the others': being idle, waiting
 *		behind higher levels and decoding give no credit. So users share the chip by tokens,
 *		however many requests each of them sends.
 *
 * admission	A waiting sequence is started when a slot is free and blocks for all its known
 *		tokens are, with a margin for the growth of running ones. The cap of running
 *		sequences per user is max-min fair: slots that a user has no requests for are shared
 *		by the others. The scheduler waits for room for the chosen sequence: smaller ones do
 *		not overtake it.
 *
 * preemption	A preempted sequence releases its blocks and waits again, keeping its place by
 *		arrival. Later it reuses those of its blocks that were not reallocated, with or
 *		without a prefix cache, and recomputes the others. That happens
 *		- on admission, when slots or blocks are missing: the user who runs most, if that is
 *		  at least two more than the new sequence's user runs, loses its youngest sequence,
 *		  if that one's level is no higher than the one to which waiting has raised the new
 *		  sequence, and only if that makes enough room;
 *		- when a decode needs a block and none is free: the lowest level, of that the user
 *		  who runs most, of that user's the youngest. The oldest sequence of the highest
 *		  level is never preempted here, so there is always progress, and every sequence
 *		  ends.
 *		A level is the raised priority at admission, or that of the sequences preempted for
 *		it.
 *
 * Proposed tokens (speculative decoding) are added to a decode when all decodes have their token:
 * as many as tokens, rows and free blocks allow; nothing is preempted for them. Tokens that the
 * caller rejects are not counted as computed.
 *
 * The next step may be begun while the chips still compute the previous one. scheduler_done() of a
 * step without proposals may be called as soon as it was launched: its tokens' KV will exist before
 * the next step runs. A caller that knows that a sequence will continue counts the token that the
 * step will produce in n_total by then, too, and writes it to generated before the next step is
 * launched. scheduler_begin() then plans the decodes, as far as blocks are free; nothing is
 * preempted, as blocks may become free when the previous step ends. Sequences that ended with it
 * are removed by scheduler_remove(), and scheduler_plan() does the rest: chunks are chosen last, so
 * that sequences that arrived meanwhile are considered.
 *
 * Memory is allocated in scheduler_new(), except for the hashes of a waiting prompt: they are kept
 * so that it is hashed once, however often it is considered. One thread at a time.
 */
#ifndef TXDA_ENGINE_SCHEDULER_H
#define TXDA_ENGINE_SCHEDULER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "kv_seq.h"
#include "user_id.h"

#define SCHEDULER_AGING_STEPS	256
#define SCHEDULER_MAX_PRIORITY	32 /* in either direction; the limit for credit */
#define SCHEDULER_CREDIT_STEPS	4  /* whole chunks, of max_tokens */
#define SCHEDULER_OUTPUT_WEIGHT 2
#define SCHEDULER_STALL_PART	10 /* heavy users are delayed for at most a tenth of the time */

struct engine_images;
struct scheduler;

/*
 * A sequence, embedded in the caller's. Zero it, then set the first part before it is first added.
 */
struct sched_seq {
	user_id uid;
	uint64_t salt;			    /* of engine_request.h */
	int priority;			    /* higher runs first */
	const int32_t *prompt;		    /* [n_prompt] */
	const int32_t *generated;	    /* [n_total - n_prompt] */
	const struct engine_images *images; /* NULL: only text */
	unsigned n_prompt;
	/*
	 * Incremented by the caller when it has appended to generated, or is going to (see above).
	 */
	unsigned n_total;
	/*
	 * The first position whose row is needed for the logprob of the prompt token after it;
	 * n_prompt - 1 or more: none (any more). The caller increments it as it stores them.
	 */
	unsigned prompt_row;
	const int32_t *draft; /* proposals for positions n_total ..., [n_draft] */
	unsigned n_draft;     /* 0: none; used by the next plan */

	/* Set by the scheduler, read by the caller. */
	unsigned n_computed;
	struct kv_seq cache; /* cache.blocks[0] is NULL while it waits */
	unsigned n_matched;  /* tokens that the last admission found in the cache */
	unsigned n_admissions;

	/* Private to the scheduler. */
	uint64_t owner; /* of its blocks: engine_owner(), or a number shared with its forks */
	struct sched_seq *prev, *next; /* link in the uid's waiting list */
	uint64_t arrival;
	uint64_t arrival_step;
	uint64_t *hashes; /* [n_hashes] of its first blocks, while it waits */
	unsigned n_hashes;
	unsigned n_charged; /* number of tokens already charged to the uid's counter */
	unsigned slot;	    /* row of the block table, while running */
	uint64_t turn;	    /* incremented by each step that it is in */
	unsigned planned;   /* tokens in this step */
	unsigned user;	    /* index of the uid's entry */
	int level;   /* the priority, or the level it had reached by waiting when it was chosen */
	bool victim; /* candidate for preemption */
};

struct scheduler_options {
	unsigned max_seqs;	/* running at once */
	unsigned max_users;	/* users with sequences at once */
	unsigned max_tokens;	/* tokens per step, at least max_seqs */
	unsigned max_rows;	/* rows per step, at least max_seqs */
	unsigned max_context;	/* tokens per sequence; its blocks must fit into the whole cache */
	uint64_t max_stall_ns;	/* delay of decodes by a step's chunks; 0: no limit */
	uint64_t max_decode_ns; /* duration of a step's decodes of several users; 0: no limit */
	bool fair_time;		/* limits steps by shares of time, see above */
	bool prefix_caching;	/* a user's sequences share blocks */
};

struct sched_item {
	struct sched_seq *seq;
	unsigned first;	 /* position of the first token */
	unsigned tokens; /* positions first .. first + tokens - 1 */
	unsigned rows;	 /* rows for prompt logprobs, the first at position first_row */
	unsigned first_row;
	/* The last known token is included: one more row, for the token after it. */
	bool sample;
	unsigned drafts;   /* proposals among the tokens, at the end: a row each */
	unsigned rejected; /* how many of these; the caller sets it before scheduler_done() */
};

/* -EINVAL: the limits contradict each other. @kv is borrowed. */
int scheduler_new(const struct scheduler_options *options, struct kv *kv, struct scheduler **ret);
void scheduler_free(struct scheduler *s);

/* Adds a sequence to the waiting ones. At most max_users users may have some at a time. */
void scheduler_add(struct scheduler *s, struct sched_seq *seq);
/*
 * Adds @child, a fork of @parent: for n > 1 and beam search. Between two steps, with the tokens of
 * the last one known and @parent still present.
 *
 * The caller sets up @child as for scheduler_add(), with its own memory for prompt and generated:
 * its tokens equal @parent's as far as these are computed (parent->n_computed), followed by at
 * least one more (n_total > parent->n_computed). Logprobs of prompt tokens come from @parent.
 *
 * True: @child runs. It shares @parent's full KV blocks by reference count, and none of their
 * tokens is computed or charged again. The last block, if only partly full, would be written by
 * both, so @child gets its own and recomputes those tokens (at most block size - 1: a block
 * consists of pieces, one per layer, which chips do not copy); its next step has them and its last
 * token, and counts as a decode. @parent continues as before, writes to its block, and may be
 * removed or preempted: both keep what they share. So of several continuations of a sequence, let
 * the first take over @parent's and fork only the others.
 *
 * False: no slot or no blocks are free, or it belongs to another user. @child waits as after
 * scheduler_add() and reuses those of @parent's blocks that still exist.
 */
bool scheduler_fork(struct scheduler *s, const struct sched_seq *parent, struct sched_seq *child);
/* Removes a sequence, waiting or running, while no step runs; releases its blocks. */
void scheduler_remove(struct scheduler *s, struct sched_seq *seq);
/*
 * The same for one that will be added again and then reuses those of its blocks that still exist.
 */
void scheduler_park(struct scheduler *s, struct sched_seq *seq);

/*
 * Plans the known part of the next step into items [max_seqs] while the previous one runs; returns
 * their number. Followed by scheduler_plan() with the same items.
 */
unsigned scheduler_begin(struct scheduler *s, struct sched_item *items);
/*
 * Plans the next step, or the rest of it, into items [max_seqs]; returns their number. 0: nothing
 * runs or waits. Each plan is followed by scheduler_done().
 */
unsigned scheduler_plan(struct scheduler *s, struct sched_item *items);
/* Whether the items of scheduler_begin() are unchanged at the start of the last plan. */
bool scheduler_kept(const struct scheduler *s);
/* Whether the last plan leaves out heavy users, for another user's first token. */
bool scheduler_stalls(const struct scheduler *s);
/*
 * The duration of the step with these items, reported after its plan and before the next one's.
 * Determines chunk length and number of decodes, and is charged to the delays of heavy users.
 */
void scheduler_measured(struct scheduler *s, const struct sched_item *items, unsigned n_items,
			uint64_t ns);
/* The last plan's step has been computed: counts its tokens, commits the blocks that it filled. */
void scheduler_done(struct scheduler *s, const struct sched_item *items, unsigned n_items);

/*
 * Gives a running sequence free blocks for up to @n positions after its known tokens, leaving as
 * many as an admission would. Returns for how many positions it has blocks.
 */
unsigned scheduler_reserve(struct scheduler *s, struct sched_seq *seq, unsigned n);

unsigned scheduler_running(const struct scheduler *s);
uint64_t scheduler_preemptions(const struct scheduler *s);
/* Running sequence @i, in no particular order. */
struct sched_seq *scheduler_running_seq(const struct scheduler *s, unsigned i);
#endif
