// SPDX-License-Identifier: MIT
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "engine_request.h"
#include "scheduler_internal.h"

#define STALL_NS 1000000000 /* maximum budget if stalls are not limited */

int scheduler_new(const struct scheduler_options *options, struct kv *kv, struct scheduler **ret)
{
	struct scheduler *s;
	bool fits;

	if (!options->max_seqs || !options->max_users || !options->max_context ||
	    options->max_tokens < options->max_seqs || options->max_rows < options->max_seqs)
		return -EINVAL;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->options = *options;
	s->kv = kv;
	s->stall_limit = options->max_stall_ns ? (int64_t)options->max_stall_ns : STALL_NS;
	s->stall_ns = s->stall_limit;
	s->decode_rows = options->max_seqs;
	fits = sched_blocks_for(s, options->max_context) <= kv_layout(kv)->max_blocks &&
	       kv_layout_need(kv_layout(kv), options->max_context) <= kv_blocks(kv);
	s->running = calloc(options->max_seqs, sizeof(*s->running));
	s->slots = calloc(options->max_seqs, sizeof(*s->slots));
	s->users = calloc(options->max_users, sizeof(*s->users));
	s->key = calloc(kv_key_words(kv), sizeof(*s->key));
	s->block_table =
		calloc((size_t)options->max_seqs + 1, kv_seq_entries(kv) * sizeof(*s->block_table));
	if (!fits || !s->running || !s->slots || !s->users || !s->key || !s->block_table) {
		scheduler_free(s);
		return fits ? -ENOMEM : -EINVAL;
	}
	for (unsigned i = options->max_seqs; i-- > 0;)
		s->slots[s->n_slots++] = i;
	*ret = s;
	return 0;
}

void scheduler_free(struct scheduler *s)
{
	if (!s)
		return;
	free(s->running);
	free(s->slots);
	free(s->users);
	free(s->key);
	free(s->block_table);
	free(s);
}

/* ---- users ----------------------------------------------------------------------------------- */

/* The entry of @uid; a new one replaces that of the idle user with the lowest counter. */
static unsigned find_user(struct scheduler *s, user_id uid)
{
	unsigned spare = UINT_MAX;

	for (unsigned i = 0; i < s->n_users; i++) {
		const struct user *user = &s->users[i];

		if (user->uid == uid)
			return i;
		if (!user->live && (spare == UINT_MAX || user->counter < s->users[spare].counter))
			spare = i;
	}
	if (s->n_users < s->options.max_users)
		spare = s->n_users++;
	s->users[spare] = (struct user){.uid = uid};
	return spare;
}

/*
 * Idle time is not credited to a returning user: its counter is raised to the minimum of the
 * others'.
 */
static void user_enter(struct scheduler *s, struct user *user)
{
	uint64_t least = UINT64_MAX;

	if (user->live++)
		return;
	for (unsigned i = 0; i < s->n_users; i++) {
		const struct user *other = &s->users[i];

		if (other != user && other->live && other->counter < least)
			least = other->counter;
	}
	if (least == UINT64_MAX)
		least = s->last_counter;
	if (user->counter < least)
		user->counter = least;
}

static void user_leave(struct scheduler *s, struct user *user)
{
	if (!--user->live)
		s->last_counter = user->counter;
}

/* ---- waiting and running --------------------------------------------------------------------- */

bool sched_before(const struct sched_seq *a, const struct sched_seq *b)
{
	int64_t of_a = (int64_t)a->arrival_step - (int64_t)a->priority * SCHEDULER_AGING_STEPS;
	int64_t of_b = (int64_t)b->arrival_step - (int64_t)b->priority * SCHEDULER_AGING_STEPS;

	return of_a != of_b ? of_a < of_b : a->arrival < b->arrival;
}

void sched_wait_insert(struct scheduler *s, struct sched_seq *seq)
{
	struct user *user = &s->users[seq->user];
	struct sched_seq *after = user->last;

	while (after && sched_before(seq, after))
		after = after->prev;
	seq->prev = after;
	seq->next = after ? after->next : user->first;
	if (seq->next)
		seq->next->prev = seq;
	else
		user->last = seq;
	if (after)
		after->next = seq;
	else
		user->first = seq;
	if (!user->n_top || seq->priority > user->top) {
		user->top = seq->priority;
		user->n_top = 0;
	}
	user->n_top += seq->priority == user->top;
	s->n_waiting++;
}

/* Called after the last waiting sequence with the user's highest priority left. */
static void find_top(struct user *user)
{
	user->top = INT_MIN;
	for (const struct sched_seq *seq = user->first; seq; seq = seq->next) {
		if (seq->priority > user->top) {
			user->top = seq->priority;
			user->n_top = 0;
		}
		user->n_top += seq->priority == user->top;
	}
}

void sched_wait_remove(struct scheduler *s, struct sched_seq *seq)
{
	struct user *user = &s->users[seq->user];

	if (seq->prev)
		seq->prev->next = seq->next;
	else
		user->first = seq->next;
	if (seq->next)
		seq->next->prev = seq->prev;
	else
		user->last = seq->prev;
	seq->prev = seq->next = NULL;
	free(seq->hashes);
	seq->hashes = NULL;
	seq->n_hashes = 0;
	user->n_top -= seq->priority == user->top;
	if (!user->n_top)
		find_top(user);
	s->n_waiting--;
}

void sched_run_remove(struct scheduler *s, struct sched_seq *seq, bool again)
{
	unsigned i = 0;

	while (s->running[i] != seq)
		i++;
	s->n_running--;
	memmove(&s->running[i], &s->running[i + 1], (s->n_running - i) * sizeof(*s->running));
	kv_seq_drop(s->kv, &seq->cache, again);
	s->slots[s->n_slots++] = seq->slot;
	s->users[seq->user].running--;
	seq->n_computed = 0;
	seq->planned = 0;
	seq->n_draft = 0;
}

void scheduler_add(struct scheduler *s, struct sched_seq *seq)
{
	seq->user = find_user(s, seq->uid);
	if (s->options.prefix_caching)
		seq->owner = engine_owner(seq->uid, seq->salt);
	else if (!seq->owner)
		seq->owner = ++s->owners;
	seq->arrival = s->arrivals++;
	seq->arrival_step = s->step;
	seq->level = seq->priority;
	user_enter(s, &s->users[seq->user]);
	sched_wait_insert(s, seq);
}

static void take_out(struct scheduler *s, struct sched_seq *seq, bool again)
{
	if (s->plan.begun && seq->planned)
		sched_plan_remove(s, seq);
	if (sched_runs(seq))
		sched_run_remove(s, seq, again);
	else
		sched_wait_remove(s, seq);
	user_leave(s, &s->users[seq->user]);
}

void scheduler_remove(struct scheduler *s, struct sched_seq *seq)
{
	take_out(s, seq, s->options.prefix_caching);
}

void scheduler_park(struct scheduler *s, struct sched_seq *seq)
{
	take_out(s, seq, true);
}

/* ---- after a step ---------------------------------------------------------------------------- */

const int32_t *sched_block_key(const struct scheduler *s, const struct sched_seq *seq, unsigned n)
{
	unsigned size = kv_block_size(s->kv), first = n * size, of_prompt = 0;
	bool plain = kv_key_words(s->kv) == size;

	if (plain && first + size <= seq->n_prompt)
		return seq->prompt + first;
	if (first < seq->n_prompt) {
		of_prompt = seq->n_prompt - first < size ? seq->n_prompt - first : size;
		memcpy(s->key, seq->prompt + first, of_prompt * sizeof(*s->key));
	}
	if (of_prompt < size)
		memcpy(s->key + of_prompt, seq->generated + (first + of_prompt - seq->n_prompt),
		       (size - of_prompt) * sizeof(*s->key));
	if (!plain)
		engine_images_key(seq->images, first, size, s->key + size);
	return s->key;
}

void scheduler_done(struct scheduler *s, const struct sched_item *items, unsigned n_items)
{
	unsigned size = kv_block_size(s->kv);

	for (unsigned i = 0; i < n_items; i++) {
		struct sched_seq *seq = items[i].seq;

		seq->turn = ++s->turns;
		seq->n_computed += items[i].tokens - items[i].rejected;
		seq->planned = 0;
		seq->n_draft = 0;
		while ((seq->cache.n_committed + 1) * size <= seq->n_computed)
			kv_seq_commit(s->kv, &seq->cache, seq->owner,
				      sched_block_key(s, seq, seq->cache.n_committed),
				      s->options.prefix_caching);
		kv_seq_moved(&seq->cache);
	}
}

/* ---- lists of sequences ---------------------------------------------------------------------- */

unsigned scheduler_running(const struct scheduler *s)
{
	return s->n_running;
}

uint64_t scheduler_preemptions(const struct scheduler *s)
{
	return s->preemptions;
}

struct sched_seq *scheduler_running_seq(const struct scheduler *s, unsigned i)
{
	return s->running[i];
}
