/* SPDX-License-Identifier: MIT */
/*
 * Decides what each step computes: a list of {sequence: number of tokens} under a token budget.
 * Pure: it knows KV blocks and token counts, no chip and no request.
 *
 * A sequence is n_total known tokens, of which n_computed have their KV in the cache. The
 * difference is what remains: 1 for a decode, more while a prompt, or after a preemption all of
 * it, is computed. There is no other distinction between prefill and decode.
 *
 * The rules, in order:
 *
 * 1. Every running sequence with one token left gets it (but see 5 and 6). max_seqs is at most
 *    the token and the row limit, so that all of them always fit: nothing that was admitted waits
 *    behind a prompt.
 * 2. What is left of the budget goes to prefill chunks, one choice after the other among the
 *    running sequences with more tokens left and each uid's first waiting one:
 *	- the highest priority level first. Waiting raises a sequence by one level every
 *	  SCHEDULER_AGING_STEPS steps, up to the highest priority of those that want chunks: no
 *	  priority starves another.
 *	- then the uid that was served least: each uid has a virtual counter of the tokens that
 *	  were computed for it (Sheng et al., Fairness in Serving Large Language Models, OSDI
 *	  2024), and one that comes back after idling is lifted to the least of the active ones.
 *	  Against others of a level nobody saves up more than SCHEDULER_CREDIT_STEPS steps by
 *	  waiting behind higher ones or by decoding. So users share the chip by tokens, however many
 * requests each of them sends.
 *	- then first come, first served.
 *    A uid's own requests run by the priority to which waiting has raised them, in order of
 *    arrival. Priority says who comes in and whose prompt is computed; once a sequence decodes
 *    it matters only where somebody has to give way (3, 4, 5). What counts there is the level
 *    that it was admitted with, or that of those who gave way for it.
 * 3. A waiting sequence is admitted when blocks for all its known tokens are free, with a margin
 *    for the running ones to grow. The chosen one is waited for: smaller ones do not overtake it
 *    until it starves.
 *    When places or blocks lack, users who run at least two sequences more than the chosen
 *    one's give way as in rule 4, of no higher level than waiting has raised that one to, if
 *    that makes enough room: a user with many requests holds what others do not need, and no
 *    more than its part once they come.
 * 4. When a decode needs a block and none is free, the running sequence of the lowest level,
 *    among these of the user who runs most, its youngest, gives all its blocks back and waits
 *    again, keeping its place by arrival. It is computed anew later, through the prefix cache
 *    where that still holds it. The oldest of the highest level never gives way in this, so
 *    something always progresses, and every sequence ends.
 * 5. A step that computes a prompt for its first token goes without the sequences of users who
 *    run at least two more than the prompt's, unless their priority is higher: it is as short as
 *    if its user were alone. No user is left out of two steps running.
 * 6. By rule 5 a first token still waits for the step that runs when its prompt comes. So while
 *    users with few sequences come and go, the caller may limit what those with many have of a
 *    step (scheduler_limit_crowd()): places for decodes are then shared evenly between the
 *    users, and the sequences of who crowds go round on its places.
 *
 * Proposed tokens (speculative decoding) ride along with a decode when all decodes have their
 * token: as many as tokens, rows and free blocks allow; nobody is preempted for them. What the
 * caller then rejects was computed in vain and is forgotten.
 *
 * The next step may be begun while the chips still compute the one before. scheduler_done() of a
 * step without proposals may be called as soon as it was launched: its tokens' KV will be there
 * before the next step runs. A caller that knows that a sequence will go on counts the token
 * that the step is to bring into n_total by then, too, and writes it to generated before the
 * next step is launched. scheduler_begin() then gives every running sequence with one token left
 * its place by rule 1, as far as blocks are free; nobody is preempted, as blocks may become free
 * when the step before ends. What ended with it is taken out by scheduler_remove(), and
 * scheduler_plan() does the rest: chunks are chosen last, so that who came meanwhile has its
 * turn.
 *
 * Memory is allocated in scheduler_new() only. One thread at a time.
 */
#ifndef TXDA_ENGINE_SCHEDULER_H
#define TXDA_ENGINE_SCHEDULER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "kv.h"

#define SCHEDULER_AGING_STEPS  256
#define SCHEDULER_MAX_PRIORITY 32 /* either way; what is beyond counts as this for credit */
#define SCHEDULER_CREDIT_STEPS 4  /* whole ones, of max_tokens */
#define SCHEDULER_FEW	       8  /* sequences of a user who does not crowd, rule 6 */
#define SCHEDULER_CROWD_LEAST  16 /* tokens of chunks for those who do */

struct scheduler;

/* A sequence, part of the caller's. Zero it, then set the first part before scheduler_add(). */
struct sched_seq {
	uid_t uid;
	int priority;		  /* higher runs first */
	const int32_t *prompt;	  /* [n_prompt] */
	const int32_t *generated; /* [n_total - n_prompt] */
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
	bool goes_on;	      /* the prompt ends in tokens that were chosen: rule 5 is not for it */

	/* The scheduler's; the caller reads. */
	unsigned n_computed;
	unsigned n_blocks;
	uint32_t *blocks;   /* [max_blocks] while running, else NULL */
	unsigned n_matched; /* tokens that the last admission found in the cache */
	unsigned n_admissions;

	/* The scheduler's own. */
	struct sched_seq *prev, *next; /* of the uid's waiting list */
	uint64_t arrival;
	uint64_t arrival_step;
	uint64_t admission;   /* number of the last one */
	uint64_t chain;	      /* serial of the last committed block */
	unsigned n_committed; /* blocks */
	unsigned n_charged;   /* tokens that the uid's counter has seen */
	unsigned slot;	      /* of the block table, while running */
	unsigned planned;     /* tokens in this step */
	unsigned user;	      /* index of the uid's entry */
	int level;     /* the priority, or what waiting had raised it to when it was chosen */
	bool yielding; /* chosen to give way, while it is found out whether that helps */
	bool forked;   /* and has not been in a step since */
};

struct scheduler_options {
	unsigned max_seqs;    /* running at once */
	unsigned max_live;    /* running and waiting */
	unsigned max_tokens;  /* a step, at least max_seqs */
	unsigned max_rows;    /* a step, at least max_seqs */
	unsigned max_context; /* most tokens of a sequence; its blocks must fit the whole cache */
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

/* Adds a sequence to the waiting ones. At most max_live are there at a time. */
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
 * scheduler_add() and will find @parent's blocks in the prefix cache, if there is one.
 */
bool scheduler_fork(struct scheduler *s, const struct sched_seq *parent, struct sched_seq *child);
/* Takes a sequence out, waiting or running, while no step runs; gives its blocks back. */
void scheduler_remove(struct scheduler *s, struct sched_seq *seq);

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
/* From now on chunks have at most @tokens in a step that decodes, too; 0: what the step has left.
 */
void scheduler_limit_chunks(struct scheduler *s, unsigned tokens);
/*
 * From now on users crowd who have more sequences than @decodes, and than SCHEDULER_FEW. Of a
 * step's @decodes places for sequences that decode they have no more than an even share, and at
 * least one each. Of chunks they share @chunks tokens when nothing decodes, less when something
 * does, but SCHEDULER_CROWD_LEAST at least. 0, 0: no such limit.
 */
void scheduler_limit_crowd(struct scheduler *s, unsigned decodes, unsigned chunks);
/* Whether the last plan goes by rule 5 without all who run more than a user with few sequences,
 * for whose first token it is. */
bool scheduler_spared(const struct scheduler *s);
/* Whether rule 5 left anybody out of the last plan. */
bool scheduler_left_out(const struct scheduler *s);
/* Whether who crowds has less of the last plan by rule 6. */
bool scheduler_limited(const struct scheduler *s);
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
