/* SPDX-License-Identifier: MIT */
/* What the scheduler's files share: scheduler.c has users and lists of sequences, scheduler_admit.c
 * admission and preemption, scheduler_plan.c the steps. */
#ifndef TXDA_ENGINE_SCHEDULER_INTERNAL_H
#define TXDA_ENGINE_SCHEDULER_INTERNAL_H

#include "scheduler.h"

struct user {
	uid_t uid;
	unsigned live;			/* sequences, running and waiting; 0: idle */
	unsigned running;		/* of these */
	unsigned victims;		/* of the running ones, while they are chosen */
	unsigned wants;			/* of what is being shared */
	uint64_t counter;		/* virtual token counter */
	struct sched_seq *first, *last; /* waiting, by sched_before() */
	int top;			/* highest priority of these */
	unsigned n_top;			/* of that priority */
};

/* A step while it is planned: what is in it, and what is left of its limits. */
struct plan {
	struct sched_item *items;
	unsigned n_items;
	unsigned tokens, rows;
	unsigned cap; /* max-min fair number of running sequences of a user */
	bool preempted;
	bool begun; /* between scheduler_begin() and scheduler_plan() */
	bool kept;  /* what scheduler_begin() planned is still there, in place */
};

struct scheduler {
	struct scheduler_options options;
	struct kv *kv;
	unsigned max_blocks; /* of one sequence */
	uint64_t step, arrivals, preemptions, owners, turns;
	uint64_t last_counter;				/* of the user that became idle last */
	uint64_t times[2 * SCHEDULER_MAX_PRIORITY + 1]; /* virtual times, by priority level */
	unsigned n_running, n_waiting, n_users;
	struct sched_seq **running; /* [max_seqs] in order of admission */
	unsigned *slots;	    /* [max_seqs] free rows of the block table, a stack */
	unsigned n_slots;
	struct user *users;    /* [max_users] */
	int32_t *tokens;       /* [block_size] a block's tokens in one piece */
	uint32_t *block_table; /* [max_seqs, max_blocks] */
	uint32_t *matched;     /* [max_blocks] of a sequence that may be admitted */
	unsigned chunk_tokens; /* that fit into max_stall_ns beside decodes, by what was measured */
	unsigned decode_rows;  /* decodes that fit into max_decode_ns, likewise */
	/* Budget for steps without heavy users, and the most that is saved up; below 0: used up. */
	int64_t stall_ns, stall_limit;
	bool stalls; /* the last plan leaves some out */
	struct plan plan;
};

static inline unsigned sched_blocks_for(const struct scheduler *s, unsigned tokens)
{
	unsigned size = kv_block_size(s->kv);

	return tokens / size + (tokens % size != 0);
}

/* ---- scheduler.c ----------------------------------------------------------------------------- */

/* Whether @a comes before @b among one user's waiting sequences: who has waited for as many steps
 * as raise it to the other's priority, or longer. */
bool sched_before(const struct sched_seq *a, const struct sched_seq *b);
void sched_wait_insert(struct scheduler *s, struct sched_seq *seq);
void sched_wait_remove(struct scheduler *s, struct sched_seq *seq);
/* Gives its blocks back, to be found @again or not; it runs and waits no more. */
void sched_run_remove(struct scheduler *s, struct sched_seq *seq, bool again);
/* The sequence's known tokens [first, first + block_size) in one piece. */
const int32_t *sched_block_tokens(const struct scheduler *s, const struct sched_seq *seq,
				  unsigned first);

/* ---- scheduler_admit.c ----------------------------------------------------------------------- */

/* Its priority and what waiting has raised it by. */
int64_t sched_raised(const struct scheduler *s, const struct sched_seq *seq);
/* How many sequences each user may run so that all slots are shared max-min fairly. */
unsigned sched_cap(struct scheduler *s);
/* The most that a user gets when @total is shared max-min fairly by what users want, at least 1. */
unsigned sched_fair_share(const struct scheduler *s, unsigned total);
/* Admits a waiting sequence, with preemption of others if need be; false: it has to wait. */
bool sched_admit(struct scheduler *s, struct sched_seq *seq);
/* Preempts the first running sequence to give way for a decode, and returns it. */
struct sched_seq *sched_preempt_lowest(struct scheduler *s);

/* ---- scheduler_plan.c ------------------------------------------------------------------------ */

void sched_plan_remove(struct scheduler *s, const struct sched_seq *seq);

#endif
