/* SPDX-License-Identifier: MIT */
/* What the scheduler's parts share: scheduler.c has the lists of users and sequences,
 * scheduler_plan.c the rules. */
#ifndef TXDA_ENGINE_SCHEDULER_INTERNAL_H
#define TXDA_ENGINE_SCHEDULER_INTERNAL_H

#include "scheduler.h"

struct user {
	uid_t uid;
	unsigned live;			/* sequences, running and waiting; 0: idle */
	unsigned running;		/* of these */
	unsigned yielding;		/* of the running ones, while victims are chosen */
	uint64_t served;		/* virtual counter: tokens computed for it, or lifted */
	uint64_t left_out;		/* the step that last went without it */
	unsigned decodes;		/* in the plan */
	uint64_t turn;			/* admission of the last sequence that had its turn */
	struct sched_seq *first, *last; /* waiting, by sched_before() */
	int top;			/* highest priority of these */
	unsigned n_top;			/* of that priority */
};

/* A step while it is planned: what is in it, and what is left of its limits. */
struct plan {
	struct sched_item *items;
	unsigned n_items;
	unsigned tokens, rows;
	bool preempted;
	bool begun;	       /* between scheduler_begin() and scheduler_plan() */
	bool kept;	       /* what scheduler_begin() planned is still there, in place */
	bool left_out;	       /* see scheduler_left_out() */
	bool spared;	       /* see scheduler_spared() */
	bool limited;	       /* see scheduler_limited() */
	unsigned decodes;      /* most of one user; UINT_MAX: no limit */
	unsigned crowd_tokens; /* of chunks, left for users with many sequences */
};

struct scheduler {
	struct scheduler_options options;
	struct kv *kv;
	unsigned max_blocks; /* of one sequence */
	uint64_t step, arrivals, admissions, preemptions;
	uint64_t last_served; /* counter of the user that became idle last */
	uint64_t served[2 * SCHEDULER_MAX_PRIORITY + 1]; /* virtual times, by priority level */
	unsigned n_running, n_waiting, n_users;
	struct sched_seq **running; /* [max_seqs] in order of admission */
	unsigned *slots;	    /* [max_seqs] free rows of the block table, a stack */
	unsigned n_slots;
	struct user *users;    /* [max_live] */
	int32_t *tokens;       /* [block_size] a block's tokens in one piece */
	uint32_t *block_table; /* [max_seqs + 1, max_blocks]; the last row is for trying */
	unsigned chunk_limit;  /* tokens of chunks in a step with decodes; 0: no limit */
	unsigned crowd_decodes, crowd_chunks; /* limits while there is company; 0: none */
	struct plan plan;
};

static inline unsigned sched_blocks_for(const struct scheduler *s, unsigned tokens)
{
	unsigned size = kv_block_size(s->kv);

	return tokens / size + (tokens % size != 0);
}

/* Whether a user has so many sequences that others are not to wait for all of them. */
static inline bool sched_crowds(const struct scheduler *s, unsigned user)
{
	unsigned few = s->crowd_decodes > SCHEDULER_FEW ? s->crowd_decodes : SCHEDULER_FEW;

	return s->users[user].live > few;
}

/* Whether it is a place for decodes that an item takes. */
static inline bool sched_decodes(const struct sched_item *item)
{
	return item->tokens == item->drafts + 1 && item->first >= item->seq->n_prompt;
}

/* Whether @a comes before @b among one user's waiting sequences: who has waited for as many steps
 * as raise it to the other's priority, or longer. */
bool sched_before(const struct sched_seq *a, const struct sched_seq *b);
void sched_wait_insert(struct scheduler *s, struct sched_seq *seq);
void sched_wait_remove(struct scheduler *s, struct sched_seq *seq);
/* Gives its blocks back; it runs and waits no more. */
void sched_run_remove(struct scheduler *s, struct sched_seq *seq);
void sched_plan_remove(struct scheduler *s, struct sched_seq *seq);
/* The sequence's known tokens [first, first + block_size) in one piece. */
const int32_t *sched_block_tokens(const struct scheduler *s, const struct sched_seq *seq,
				  unsigned first);

#endif
