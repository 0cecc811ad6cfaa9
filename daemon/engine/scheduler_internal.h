/* SPDX-License-Identifier: MIT */
/*
 * Shared by the scheduler's files: scheduler.c has users and lists of sequences, scheduler_admit.c
 * admission and preemption, scheduler_plan.c the steps,
 * scheduler_share.c their durations.
 */
#ifndef TXDA_ENGINE_SCHEDULER_INTERNAL_H
#define TXDA_ENGINE_SCHEDULER_INTERNAL_H

#include "scheduler.h"

struct user {
	user_id uid;
	unsigned live;			/* sequences, running and waiting; 0: idle */
	unsigned running;		/* running ones */
	unsigned victims;		/* candidates for preemption among the running ones */
	unsigned wants;			/* demand in a max-min share */
	uint64_t counter;		/* virtual token counter */
	bool spent;			/* no more chunks in this step */
	uint64_t seen_ns;		/* busy_ns when it last had sequences; 0: never */
	struct sched_seq *first, *last; /* waiting sequences, ordered by sched_before() */
	int top;			/* highest priority among these */
	unsigned n_top;			/* number with that priority */
};

#define STEP_SIZES 16

/* Average time of steps with about the same number of decodes and chunk tokens. */
struct step_size {
	double rows, tokens, ns;
	double weight; /* 0: none yet */
};

/* The estimated cost of a step; 0: not known. */
struct step_cost {
	/* Steps of decodes alone, and others; by powers of two. */
	struct step_size sizes[2][STEP_SIZES];
	double step_ns, row_ns; /* per step, plus this for each decode */
	double token_ns;	/* plus this for each chunk token */
	bool guessed;		/* all measured steps were of one size */
};

/* A step being planned: its items, and the remaining limits. */
struct plan {
	struct sched_item *items;
	unsigned n_items;
	unsigned tokens, rows;
	unsigned cap; /* max-min fair number of running sequences per user */
	bool preempted;
	bool begun;   /* between scheduler_begin() and scheduler_plan() */
	bool company; /* steps should be short, as there are several users */
	bool split;   /* decodes take turns, fewer of them in favour of the heavy users' chunks */
	bool shared;  /* part_tokens was set for this step's chunks of heavy users */
	bool kept;    /* the items from scheduler_begin() are all still there, in place */
};

struct scheduler {
	struct scheduler_options options;
	struct kv *kv;
	uint64_t step, arrivals, preemptions, owners, turns;
	uint64_t last_counter;				/* of the user that became idle last */
	uint64_t times[2 * SCHEDULER_MAX_PRIORITY + 1]; /* virtual times by priority level */
	unsigned n_running, n_waiting, n_users;
	struct sched_seq **running; /* [max_seqs] in order of admission */
	unsigned *slots;	    /* [max_seqs] free rows of the block table, as a stack */
	unsigned n_slots;
	struct user *users; /* [max_users] */
	int32_t *key;	    /* [key_words] of a block, in one piece */
	/* [max_seqs + 1, kv_seq_entries()], the last of a sequence considered for admission */
	uint32_t *block_table;
	unsigned chunk_tokens; /* chunk tokens within max_stall_ns, as measured */
	unsigned decode_rows;  /* decodes that fit into max_decode_ns, as measured */
	struct step_cost cost;
	uint64_t busy_ns;	      /* total duration of all steps */
	double part_row, part_tokens; /* carried over by heavy users to the next step */
	/* Budget for steps without heavy users, and its maximum; below 0: overdrawn. */
	int64_t stall_ns, stall_limit;
	bool stalls; /* the last plan leaves out some heavy users */
	struct plan plan;
};

static inline unsigned sched_blocks_for(const struct scheduler *s, unsigned tokens)
{
	unsigned size = kv_block_size(s->kv);

	return tokens / size + (tokens % size != 0);
}

static inline bool sched_runs(const struct sched_seq *seq)
{
	return seq->cache.blocks[0];
}

/* The tables of slot @slot; slot max_seqs is of a sequence considered for admission. */
static inline uint32_t *sched_tables(const struct scheduler *s, unsigned slot)
{
	return s->block_table + slot * kv_seq_entries(s->kv);
}

/* ---- scheduler.c ----------------------------------------------------------------------------- */

/*
 * Order of one user's waiting sequences: @a comes before @b if its priority, raised by waiting, is
 * higher, or if it is older at the same level.
 */
bool sched_before(const struct sched_seq *a, const struct sched_seq *b);
void sched_wait_insert(struct scheduler *s, struct sched_seq *seq);
void sched_wait_remove(struct scheduler *s, struct sched_seq *seq);
/* Releases its blocks, to be reused @again or not; it neither runs nor waits any more. */
void sched_run_remove(struct scheduler *s, struct sched_seq *seq, bool again);
/* The key of the sequence's block @n, whose tokens are known, until the next call. */
const int32_t *sched_block_key(const struct scheduler *s, const struct sched_seq *seq, unsigned n);

/* ---- scheduler_admit.c ----------------------------------------------------------------------- */

/* Its priority plus the levels gained by waiting. */
int64_t sched_raised(const struct scheduler *s, const struct sched_seq *seq);
/* The number of sequences each user may run for a max-min fair share of all slots. */
unsigned sched_cap(struct scheduler *s);
/* The largest share of a user when @total is divided max-min fairly by demand, at least 1. */
unsigned sched_fair_share(const struct scheduler *s, unsigned total);
/* Admits a waiting sequence, preempting others if necessary; false: it has to wait. */
bool sched_admit(struct scheduler *s, struct sched_seq *seq);
/* Free blocks reserved for the growth of @n running sequences. */
unsigned sched_margin(const struct scheduler *s, unsigned n);
/* Preempts the first running sequence in preemption order for a decode, and returns it. */
struct sched_seq *sched_preempt_lowest(struct scheduler *s);

/* ---- scheduler_plan.c ------------------------------------------------------------------------ */

void sched_plan_remove(struct scheduler *s, const struct sched_seq *seq);
/* Removes items that are no longer planned; returns whether there were any. */
bool sched_plan_drop(struct plan *plan);

/* ---- scheduler_share.c ----------------------------------------------------------------------- */

/* Records that a step with @rows decodes and @chunks chunk tokens took @ns. */
void sched_cost_note(struct scheduler *s, unsigned rows, unsigned chunks, double ns);
/* Whether there is more than one user, or was a short while ago. */
bool sched_has_company(struct scheduler *s);
/*
 * Makes sequences take turns if the decodes, which are all that is planned so far, take too long.
 */
void sched_take_turns(struct scheduler *s);
/* Maximum chunk tokens of a step, so that a newly arriving user does not wait for long. */
unsigned sched_chunk_limit(struct scheduler *s);
/*
 * The number of these tokens that @seq may have beside the decodes of others, subtracted from
 * part_tokens; UINT_MAX: no limit.
 */
unsigned sched_chunk_share(struct scheduler *s, const struct sched_seq *seq);

#endif
