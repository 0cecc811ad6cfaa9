/* SPDX-License-Identifier: MIT */
/*
 * Decides what each step computes: a list of {sequence: number of tokens} under a token budget.
 * Pure: it knows KV blocks and token counts, no chip and no request.
 *
 * A sequence is n_total known tokens, of which n_computed have their KV in the cache. The
 * difference is what remains: 1 for a decode, more while a prompt, or after a preemption all of
 * it, is computed. There is no other distinction between prefill and decode.
 *
 * The policy:
 *
 * decodes	Every running sequence with one token left gets it. max_seqs is at most the token
 *		and the row limit, so that all of them fit into every step. One that goes on
 *		behind a fork or a preemption and has a block at most to compute anew counts as
 *		a decode, too, where the others leave it the tokens.
 *
 * turns	With max_decode_ns, when decodes of several users take longer than that, by the
 *		times that steps took before, each step has as many as fit: max-min fair shares
 *		for the users, at least one each, in which a user's sequences take turns. Higher
 *		levels are left alone.
 *
 * chunks	The rest of the budget goes to chunks of prompts of running and waiting sequences,
 *		one choice after the other. Beside decodes they have as many tokens as keep a step
 *		within max_stall_ns, by the times that steps took before, and at least as many as
 *		there are decodes: prompts always get on.
 *
 * stall	A step that ends a prompt, so that its user's first token comes, goes without the
 *		sequences of users who run at least two more, unless these are of a higher level.
 *		So a light user waits for the step that runs and for its own prompt, however many
 *		requests others have. That takes 1/SCHEDULER_STALL_PART of the time at most, saved
 *		up to max_stall_ns, by measured times: the heavy users keep the rest under any
 *		cost of a step, and beyond it prompts and decodes share the step.
 *
 * order	The highest priority first. Waiting raises a sequence by one level every
 *		SCHEDULER_AGING_STEPS steps, up to the highest that wants chunks, so that no
 *		priority starves another. Then users below their cap (see admission), then the user
 *		with the least virtual token counter, then the one who runs less, then first come,
 *		first served. A user's own requests run by raised priority, in order of arrival.
 *
 * counter	Fair queueing (Sheng et al., Fairness in Serving Large Language Models, OSDI 2024): a
 *		token of a prompt counts 1, a generated one SCHEDULER_OUTPUT_WEIGHT, what the prefix
 *		cache holds and what is computed again after a preemption nothing. When a user
 *		comes back its counter is lifted to the least of the active ones, and on each
 *		priority level it is at most SCHEDULER_CREDIT_STEPS steps behind the others': nobody
 *		saves up by idling, by waiting behind higher levels or by decoding. So users share
 *		the chip by tokens, however many requests each of them sends.
 *
 * admission	A waiting sequence runs when a slot is free and blocks for all its known tokens are,
 *		with a margin for the running ones to grow. The cap of running sequences of a user
 *		is max-min fair: slots that a user has no requests for are shared by the others. The
 *		chosen one is waited for: smaller ones do not overtake it until it starves.
 *
 * preemption	Blocks are given back; the sequence waits and keeps its place by arrival. It finds
 *		its blocks again, with or without a prefix cache, as far as nobody needed them, and
 *		computes the others again. That happens
 *		- on admission, when slots or blocks lack: the user who runs most, while that is at
 *		  least two more than the newcomer's user runs, loses its youngest, if its level is
 *		  no higher than the one to which waiting has raised the newcomer, and only if that
 *		  makes enough room;
 *		- when a decode needs a block and none is free: the lowest level, of that the user
 *		  who runs most, of his the youngest. The oldest of the highest level never gives
 *		  way here, so something always progresses, and every sequence ends.
 *		A level is the raised priority at admission, or that of those preempted for it.
 *
 * Proposed tokens (speculative decoding) ride along with a decode when all decodes have their
 * token: as many as tokens, rows and free blocks allow; nobody is preempted for them. What the
 * caller then rejects was computed in vain and is forgotten.
 *
 * The next step may be begun while the chips still compute the one before. scheduler_done() of a
 * step without proposals may be called as soon as it was launched: its tokens' KV will be there
 * before the next step runs. A caller that knows that a sequence will go on counts the token
 * that the step is to bring into n_total by then, too, and writes it to generated before the
 * next step is launched. scheduler_begin() then plans the decodes, as far as blocks are free;
 * nobody is preempted, as blocks may become free when the step before ends. What ended with it is
 * taken out by scheduler_remove(), and scheduler_plan() does the rest: chunks are chosen last, so
 * that who came meanwhile has its turn.
 *
 * Memory is allocated in scheduler_new(), but for the hashes of a prompt that waits: they are kept
 * so that it is hashed once, however often room for it lacks. One thread at a time.
 */
#ifndef TXDA_ENGINE_SCHEDULER_H
#define TXDA_ENGINE_SCHEDULER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "kv.h"

#define SCHEDULER_AGING_STEPS	256
#define SCHEDULER_MAX_PRIORITY	32 /* either way; what is beyond counts as this for credit */
#define SCHEDULER_CREDIT_STEPS	4  /* whole ones, of max_tokens */
#define SCHEDULER_OUTPUT_WEIGHT 2
#define SCHEDULER_STALL_PART	10 /* heavy users stand still for a tenth of the time at most */

struct engine_images;
struct scheduler;

/* A sequence, part of the caller's. Zero it, then set the first part before it is added first. */
struct sched_seq {
	uid_t uid;
	int priority;		  /* higher runs first */
	const int32_t *prompt;	  /* [n_prompt] */
	const int32_t *keys;	  /* NULL: prompt; else what tells its blocks apart in its place */
	const int32_t *generated; /* [n_total - n_prompt] */
	const struct engine_images *images; /* for the inputs of steps; NULL: only text */
	unsigned n_prompt;
	/* The caller counts it up when it has appended to generated, or is going to (see above). */
	unsigned n_total;
	/*
	 * The first position whose row is wanted for the logprob of the prompt token behind it;
	 * n_prompt - 1 or more: none (any more). The caller counts it up as it stores them.
	 */
	unsigned prompt_row;
	const int32_t *draft; /* proposals for positions n_total ..., [n_draft] */
	unsigned n_draft;     /* 0: none; used by the next plan */

	/* The scheduler's; the caller reads. */
	unsigned n_computed;
	unsigned n_blocks;
	uint32_t *blocks;   /* [max_blocks] while running, else NULL */
	unsigned n_matched; /* tokens that the last admission found in the cache */
	unsigned n_admissions;

	/* The scheduler's own. */
	uint64_t owner; /* of its blocks: the uid, or its and its forks' own number */
	struct sched_seq *prev, *next; /* of the uid's waiting list */
	uint64_t arrival;
	uint64_t arrival_step;
	struct kv_chain chain; /* of the committed blocks */
	uint64_t *hashes;      /* [n_hashes] of its first blocks, while it waits */
	unsigned n_hashes;
	unsigned n_committed; /* blocks */
	unsigned n_charged;   /* tokens that the uid's counter has seen */
	unsigned slot;	      /* of the block table, while running */
	uint64_t turn;	      /* rises with each step that it is in */
	unsigned planned;     /* tokens in this step */
	unsigned user;	      /* index of the uid's entry */
	int level;   /* the priority, or what waiting had raised it to when it was chosen */
	bool victim; /* to be preempted, while it is found out whether that makes enough room */
};

struct scheduler_options {
	unsigned max_seqs;     /* running at once */
	unsigned max_users;    /* who have sequences at once */
	unsigned max_tokens;   /* a step, at least max_seqs */
	unsigned max_rows;     /* a step, at least max_seqs */
	unsigned max_context;  /* most tokens of a sequence; its blocks must fit the whole cache */
	uint64_t max_stall_ns; /* of decodes, by a step's chunks; 0: no limit */
	uint64_t
		max_decode_ns; /* of a step's decodes, when they are of several users; 0: no limit */
	bool prefix_caching;   /* a user's sequences share blocks; else each finds its own only */
};

struct sched_item {
	struct sched_seq *seq;
	unsigned first;	 /* position of the first token */
	unsigned tokens; /* positions first .. first + tokens - 1 */
	unsigned rows;	 /* wanted for prompt logprobs, the first at position first_row */
	unsigned first_row;
	/* The last known token is among them: one more row, for the token behind it. */
	bool sample;
	unsigned drafts;   /* of the tokens, proposals at the end: a row more for each */
	unsigned rejected; /* of these; the caller sets it before scheduler_done() */
};

/* -EINVAL: the limits contradict each other. @kv is borrowed. */
int scheduler_new(const struct scheduler_options *options, struct kv *kv, struct scheduler **ret);
void scheduler_free(struct scheduler *s);

/* Adds a sequence to the waiting ones. At most max_users have some at a time. */
void scheduler_add(struct scheduler *s, struct sched_seq *seq);
/*
 * Adds @child, which goes on from where @parent is: n > 1 and beam search. Between two steps, with
 * the tokens of the last one known and @parent still there.
 *
 * The caller sets @child up as for scheduler_add(), with memory of its own for prompt and generated:
 * its tokens are @parent's as far as these are computed (parent->n_computed), then at least one
 * other (n_total > parent->n_computed). The logprobs of prompt tokens are @parent's to give.
 *
 * True: @child runs. It shares @parent's full KV blocks by reference count, and nothing of these is
 * computed or charged again. The last block, when it is only partly full, would be written by both,
 * so @child has its own and computes those tokens again (block size - 1 at most: a block lies in
 * pieces, one a layer, which chips do not copy); its next step has them and its last token, which
 * counts as a decode. @parent goes on as before, writes to its block, may be removed or preempted:
 * each of both keeps what it shares. So of the sequences that go on from one, let the first take
 * over @parent's and fork for the others only.
 *
 * False: no slot or no blocks are free, or it is another user's. @child waits as after
 * scheduler_add() and finds those of @parent's blocks that are still there.
 */
bool scheduler_fork(struct scheduler *s, const struct sched_seq *parent, struct sched_seq *child);
/* Takes a sequence out, waiting or running, while no step runs; gives its blocks back. */
void scheduler_remove(struct scheduler *s, struct sched_seq *seq);
/* The same of one that will be added again and then finds those of its blocks that are still there. */
void scheduler_park(struct scheduler *s, struct sched_seq *seq);

/*
 * Plans what can be planned of the next step into items [max_seqs] while the one before runs;
 * returns how many there are. Followed by scheduler_plan() with the same items.
 */
unsigned scheduler_begin(struct scheduler *s, struct sched_item *items);
/*
 * Plans the next step, or the rest of it, into items [max_seqs]; returns how many there are. 0:
 * nothing runs or waits. Each plan is followed by scheduler_done().
 */
unsigned scheduler_plan(struct scheduler *s, struct sched_item *items);
/* Whether the items of scheduler_begin() are the first ones of the last plan, as they were. */
bool scheduler_kept(const struct scheduler *s);
/* Whether the last plan goes without heavy users, for another's first token. */
bool scheduler_stalls(const struct scheduler *s);
/*
 * What the step of these items took, after its plan and before the next one's. Sets how long chunks
 * may be and how many decodes there may be, and counts what heavy users stood still.
 */
void scheduler_measured(struct scheduler *s, const struct sched_item *items, unsigned n_items,
			uint64_t ns);
/* The last plan's step has been computed: counts its tokens, shares the blocks that it filled. */
void scheduler_done(struct scheduler *s, const struct sched_item *items, unsigned n_items);

/*
 * Gives a running sequence blocks for up to @n positions behind its known tokens, from those that
 * are free, leaving as many as an admission would. Returns for how many it has blocks.
 */
unsigned scheduler_reserve(struct scheduler *s, struct sched_seq *seq, unsigned n);

unsigned scheduler_running(const struct scheduler *s);
unsigned scheduler_waiting(const struct scheduler *s);
uint64_t scheduler_preemptions(const struct scheduler *s);
/* Running sequence @i, in no particular order. */
struct sched_seq *scheduler_running_seq(const struct scheduler *s, unsigned i);
/* The waiting sequence after @seq, the first for NULL; NULL at the end. @seq may be removed after
 * the call that passed it. */
struct sched_seq *scheduler_next_waiting(const struct scheduler *s, const struct sched_seq *seq);

#endif
