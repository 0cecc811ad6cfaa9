// SPDX-License-Identifier: MIT
/* Admission, forks, preemption. */
#include <stdlib.h>
#include <string.h>

#include "scheduler_internal.h"

/* ---- preemption ------------------------------------------------------------------------------ */

/* Removes @victim from the plan and releases its blocks; it waits again. */
static void preempt(struct scheduler *s, struct sched_seq *victim)
{
	if (victim->planned)
		sched_plan_remove(s, victim);
	sched_run_remove(s, victim, true);
	sched_wait_insert(s, victim);
	s->preemptions++;
	s->plan.preempted = true;
}

/* How many sequences a user runs, without preemption candidates. */
static unsigned stays(const struct scheduler *s, unsigned user)
{
	return s->users[user].running - s->users[user].victims;
}

/*
 * Whether @a is preempted before @b: by lower level, then by the user who runs more, then the
 * younger one.
 */
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
 * The next victim for the admission of @seq, from a user over its cap: afterwards that user still
 * runs as many as @seq's user, or more. NULL: there is none.
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

unsigned sched_margin(const struct scheduler *s, unsigned n)
{
	unsigned most = kv_blocks(s->kv) / 16;

	n *= kv_layout(s->kv)->n_groups;
	return n < most ? n : most;
}

unsigned scheduler_reserve(struct scheduler *s, struct sched_seq *seq, unsigned n)
{
	unsigned size = kv_block_size(s->kv), lacks;

	if (n > s->options.max_context - seq->n_total)
		n = s->options.max_context - seq->n_total;
	while ((lacks = kv_seq_lacks(s->kv, &seq->cache, seq->n_total + n)) &&
	       kv_free_blocks(s->kv) < lacks + sched_margin(s, s->n_running)) {
		unsigned over = (seq->n_total + n - 1) % size + 1; /* in the last block */

		if (over >= n)
			return 0;
		n -= over;
	}
	kv_seq_grow(s->kv, &seq->cache, seq->n_total + n);
	return n;
}

/*
 * Ensures a slot and @needed free blocks for @seq, by preemption if that is sufficient. Nothing is
 * preempted before that is known: otherwise computed tokens would be lost for nothing, step after
 * step.
 */
static bool make_room(struct scheduler *s, struct sched_seq *seq, unsigned needed)
{
	unsigned victims = 0, have = kv_free_blocks(s->kv);
	struct sched_seq *victim;
	bool enough;

	for (;;) {
		enough = s->n_slots + victims &&
			 have >= needed + sched_margin(s, s->n_running - victims);
		victim = enough ? NULL : over_cap_victim(s, seq);
		if (!victim)
			break;
		victim->victim = true;
		s->users[victim->user].victims++;
		have += kv_seq_own(s->kv, &victim->cache);
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
		/* It takes the level of the sequences whose slots it gets. */
		if (victim->level > seq->level)
			seq->level = victim->level;
		preempt(s, victim);
	}
	return enough;
}

/* The hash of block @n after @before, cached while the sequence waits if there is memory. */
static uint64_t block_hash(struct scheduler *s, struct sched_seq *seq, unsigned n, uint64_t before)
{
	uint64_t hash;

	if (n < seq->n_hashes)
		return seq->hashes[n];
	hash = kv_hash(s->kv, seq->owner, before, sched_block_key(s, seq, n));
	if (!seq->hashes)
		seq->hashes = malloc(sched_blocks_for(s, seq->n_total) * sizeof(*seq->hashes));
	if (seq->hashes && n == seq->n_hashes)
		seq->hashes[seq->n_hashes++] = hash;
	return hash;
}

/*
 * Takes the blocks of the sequence's prefix that are cached. The last known token is always
 * computed, for its row; so are rows for prompt logprobs.
 */
static void match(struct scheduler *s, struct sched_seq *seq, struct kv_seq *ret_found)
{
	unsigned size = kv_block_size(s->kv), limit = seq->n_total - 1, n = 0;

	if (seq->prompt_row + 1 < seq->n_prompt && seq->prompt_row < limit)
		limit = seq->prompt_row;
	kv_seq_init(s->kv, ret_found, sched_tables(s, s->options.max_seqs));
	while ((n + 1) * size <= limit && kv_seq_match(s->kv, ret_found, seq->owner,
						       block_hash(s, seq, n, ret_found->chain.hash),
						       sched_block_key(s, seq, n)))
		n++;
	kv_seq_settle(s->kv, ret_found);
}

/*
 * Starts a waiting sequence with the full blocks of @found, whose references it takes over, and with
 * newly allocated ones for its known tokens; enough are free.
 */
static void run_waiting(struct scheduler *s, struct sched_seq *seq, const struct kv_seq *found)
{
	seq->slot = s->slots[--s->n_slots];
	kv_seq_move(s->kv, &seq->cache, found, sched_tables(s, seq->slot));
	kv_seq_grow(s->kv, &seq->cache, seq->n_total);
	seq->n_matched = seq->n_computed = found->n_committed * kv_block_size(s->kv);
	seq->n_admissions++;
	if (seq->n_charged < seq->n_computed)
		seq->n_charged = seq->n_computed;
	sched_wait_remove(s, seq);
	s->running[s->n_running++] = seq;
	s->users[seq->user].running++;
}

bool sched_admit(struct scheduler *s, struct sched_seq *seq)
{
	struct kv_seq found;

	if ((!s->n_slots || !kv_free_blocks(s->kv)) && !over_cap_victim(s, seq))
		return false;
	/*
	 * Matched blocks are held while victims are chosen, so that they do not count as the
	 * victims'.
	 */
	match(s, seq, &found);
	if (!make_room(s, seq, kv_seq_lacks(s->kv, &found, seq->n_total))) {
		kv_seq_drop(s->kv, &found, true);
		return false;
	}
	run_waiting(s, seq, &found);
	return true;
}

bool scheduler_fork(struct scheduler *s, const struct sched_seq *parent, struct sched_seq *child)
{
	const bool same = parent->uid == child->uid && parent->salt == child->salt;
	struct kv_seq found;

	if (same)
		child->owner = parent->owner;
	scheduler_add(s, child);
	if (!sched_runs(parent) || !same || child->n_total <= parent->n_computed || !s->n_slots)
		return false;
	kv_seq_init(s->kv, &found, sched_tables(s, s->options.max_seqs));
	kv_seq_fork(s->kv, &found, &parent->cache);
	if (kv_free_blocks(s->kv) <
	    kv_seq_lacks(s->kv, &found, child->n_total) + sched_margin(s, s->n_running)) {
		kv_seq_drop(s->kv, &found, true);
		return false;
	}
	child->level = parent->level;
	child->n_charged = parent->n_computed;
	run_waiting(s, child, &found);
	return true;
}
