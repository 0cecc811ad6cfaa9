// SPDX-License-Identifier: MIT
/* Who runs: admission, forks, preemption. */
#include <stdlib.h>
#include <string.h>

#include "scheduler_internal.h"

/* ---- preemption ------------------------------------------------------------------------------ */

/* Takes @victim out of the plan and gives its blocks back; it waits again. */
static void preempt(struct scheduler *s, struct sched_seq *victim)
{
	if (victim->planned)
		sched_plan_remove(s, victim);
	sched_run_remove(s, victim, true);
	sched_wait_insert(s, victim);
	s->preemptions++;
	s->plan.preempted = true;
}

/* How many a user runs, without those that are to be preempted. */
static unsigned stays(const struct scheduler *s, unsigned user)
{
	return s->users[user].running - s->users[user].victims;
}

/* Whether @a is preempted before @b: the lower one, of the user who runs more, then the younger
 * one. */
static bool yields_before(const struct scheduler *s, const struct sched_seq *a,
			  const struct sched_seq *b)
{
	unsigned of_a = stays(s, a->user), of_b = stays(s, b->user);

	if (a->level != b->level)
		return a->level < b->level;
	return of_a != of_b ? of_a > of_b : sched_before(b, a);
}

struct sched_seq *sched_preempt_lowest(struct scheduler *s)
{
	struct sched_seq *victim = s->running[0];

	for (unsigned i = 1; i < s->n_running; i++) {
		if (yields_before(s, s->running[i], victim))
			victim = s->running[i];
	}
	preempt(s, victim);
	return victim;
}

int64_t sched_raised(const struct scheduler *s, const struct sched_seq *seq)
{
	return seq->priority + (int64_t)((s->step - seq->arrival_step) / SCHEDULER_AGING_STEPS);
}

unsigned sched_fair_share(const struct scheduler *s, unsigned total)
{
	unsigned low = 1, high = total ? total : 1;

	while (low < high) {
		unsigned cap = (low + high + 1) / 2;
		uint64_t sum = 0;

		for (unsigned i = 0; i < s->n_users; i++)
			sum += s->users[i].wants < cap ? s->users[i].wants : cap;
		if (sum <= total)
			low = cap;
		else
			high = cap - 1;
	}
	return low;
}

unsigned sched_cap(struct scheduler *s)
{
	for (unsigned i = 0; i < s->n_users; i++)
		s->users[i].wants = s->users[i].live;
	return sched_fair_share(s, s->options.max_seqs);
}

/*
 * The next victim for @seq to be admitted, of a user who is over its cap: after the exchange it
 * still runs as many as @seq's user, or more. NULL: there is none.
 */
static struct sched_seq *over_cap_victim(const struct scheduler *s, const struct sched_seq *seq)
{
	unsigned mine = s->users[seq->user].running;
	struct sched_seq *victim = NULL;
	int64_t level = sched_raised(s, seq);

	for (unsigned i = 0; i < s->n_running; i++) {
		struct sched_seq *other = s->running[i];

		if (!other->victim && other->level <= level && stays(s, other->user) >= mine + 2 &&
		    (!victim || yields_before(s, other, victim)))
			victim = other;
	}
	return victim;
}

/* ---- admission ------------------------------------------------------------------------------- */

/* Free blocks that are left for @n running sequences to grow into. */
static unsigned margin(const struct scheduler *s, unsigned n)
{
	unsigned most = kv_blocks(s->kv) / 16;

	return n < most ? n : most;
}

unsigned scheduler_reserve(struct scheduler *s, struct sched_seq *seq, unsigned n)
{
	unsigned size = kv_block_size(s->kv), have;

	if (n > s->options.max_context - seq->n_total)
		n = s->options.max_context - seq->n_total;
	while (seq->n_blocks < sched_blocks_for(s, seq->n_total + n) &&
	       kv_free_blocks(s->kv) > margin(s, s->n_running) &&
	       kv_alloc(s->kv, &seq->blocks[seq->n_blocks]))
		seq->n_blocks++;
	have = seq->n_blocks * size;
	have = have > seq->n_total ? have - seq->n_total : 0;
	return n < have ? n : have;
}

/*
 * Makes sure of a slot and @needed free blocks for @seq, by preemption if that helps. Nobody is
 * preempted before that is known: what was computed would be lost for nothing, step after step.
 */
static bool make_room(struct scheduler *s, struct sched_seq *seq, unsigned needed)
{
	unsigned victims = 0, have = kv_free_blocks(s->kv);
	struct sched_seq *victim;
	bool enough;

	for (;;) {
		enough = s->n_slots + victims && have >= needed + margin(s, s->n_running - victims);
		victim = enough ? NULL : over_cap_victim(s, seq);
		if (!victim)
			break;
		victim->victim = true;
		s->users[victim->user].victims++;
		have += kv_own_blocks(s->kv, victim->blocks, victim->n_blocks);
		victims++;
	}
	for (unsigned i = s->n_running; victims && i-- > 0;) {
		victim = s->running[i];
		if (!victim->victim)
			continue;
		victim->victim = false;
		s->users[victim->user].victims--;
		victims--;
		if (!enough)
			continue;
		/* It stands where those stood in whose slots it comes. */
		if (victim->level > seq->level)
			seq->level = victim->level;
		preempt(s, victim);
	}
	return enough;
}

/* The hash of block @n behind @before, remembered while the sequence waits if there is memory. */
static uint64_t block_hash(struct scheduler *s, struct sched_seq *seq, unsigned n, uint64_t before)
{
	uint64_t hash;

	if (n < seq->n_hashes)
		return seq->hashes[n];
	hash = kv_hash(s->kv, seq->owner, before,
		       sched_block_tokens(s, seq, n * kv_block_size(s->kv)));
	if (!seq->hashes)
		seq->hashes = malloc(sched_blocks_for(s, seq->n_total) * sizeof(*seq->hashes));
	if (seq->hashes && n == seq->n_hashes)
		seq->hashes[seq->n_hashes++] = hash;
	return hash;
}

/*
 * Takes the blocks that are still there of the sequence's beginning; returns how many. The last
 * known token is always computed, for its row; so are rows for prompt logprobs.
 */
static unsigned match(struct scheduler *s, struct sched_seq *seq, uint32_t *blocks,
		      struct kv_chain *ret_chain)
{
	unsigned size = kv_block_size(s->kv), limit = seq->n_total - 1, n = 0;

	if (seq->prompt_row + 1 < seq->n_prompt && seq->prompt_row < limit)
		limit = seq->prompt_row;
	*ret_chain = (struct kv_chain){0};
	while ((n + 1) * size <= limit &&
	       kv_match(s->kv, seq->owner, ret_chain, block_hash(s, seq, n, ret_chain->hash),
			sched_block_tokens(s, seq, n * size), &blocks[n]))
		n++;
	return n;
}

/*
 * Lets a waiting sequence run, on the full blocks [n] that @chain ends and whose references are its
 * own from now on, and on further ones for its known tokens, which are free.
 */
static void run_waiting(struct scheduler *s, struct sched_seq *seq, const uint32_t *blocks,
			unsigned n, const struct kv_chain *chain)
{
	unsigned needed = sched_blocks_for(s, seq->n_total);

	seq->slot = s->slots[--s->n_slots];
	seq->blocks = s->block_table + (size_t)seq->slot * s->max_blocks;
	memcpy(seq->blocks, blocks, n * sizeof(*blocks));
	seq->n_matched = seq->n_computed = n * kv_block_size(s->kv);
	seq->n_committed = n;
	seq->chain = *chain;
	while (n < needed && kv_alloc(s->kv, &seq->blocks[n]))
		n++;
	seq->n_blocks = n;
	seq->n_admissions++;
	if (seq->n_charged < seq->n_computed)
		seq->n_charged = seq->n_computed;
	sched_wait_remove(s, seq);
	s->running[s->n_running++] = seq;
	s->users[seq->user].running++;
}

bool sched_admit(struct scheduler *s, struct sched_seq *seq)
{
	struct kv_chain chain;
	unsigned n;

	if ((!s->n_slots || !kv_free_blocks(s->kv)) && !over_cap_victim(s, seq))
		return false;
	/* What is matched is held while victims are chosen, so that it is not counted as theirs. */
	n = match(s, seq, s->matched, &chain);
	if (!make_room(s, seq, sched_blocks_for(s, seq->n_total) - n)) {
		kv_release(s->kv, s->matched, n, true);
		return false;
	}
	run_waiting(s, seq, s->matched, n, &chain);
	return true;
}

bool scheduler_fork(struct scheduler *s, const struct sched_seq *parent, struct sched_seq *child)
{
	unsigned n = parent->n_computed / kv_block_size(s->kv);

	if (parent->uid == child->uid)
		child->owner = parent->owner;
	scheduler_add(s, child);
	if (!parent->blocks || parent->uid != child->uid || child->n_total <= parent->n_computed ||
	    !s->n_slots ||
	    kv_free_blocks(s->kv) <
		    sched_blocks_for(s, child->n_total) - n + margin(s, s->n_running))
		return false;
	kv_share(s->kv, parent->blocks, n);
	child->level = parent->level;
	child->n_charged = parent->n_computed;
	run_waiting(s, child, parent->blocks, n, &parent->chain);
	return true;
}
