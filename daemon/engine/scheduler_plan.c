// SPDX-License-Identifier: MIT
/* The contents of a step: decodes, proposals, prefill chunks. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "scheduler_internal.h"

#define STEP_NS_MOST (3600ull * 1000000000)
#define LEAST_CHUNK  16 /* minimum chunk tokens beside decodes, however slow the chips are */

/* ---- items ----------------------------------------------------------------------------------- */

/*
 * Number of prompt logprob rows in the next @tokens tokens; *ret_first: the first one's position.
 */
static unsigned prompt_rows(const struct sched_seq *seq, unsigned tokens, unsigned *ret_first)
{
	unsigned from = seq->prompt_row > seq->n_computed ? seq->prompt_row : seq->n_computed;
	unsigned to = seq->n_computed + tokens;

	if (to > seq->n_prompt - 1)
		to = seq->n_prompt - 1;
	*ret_first = from;
	return to > from ? to - from : 0;
}

/* The longest chunk of @seq, up to @most tokens, that the rest of the step has room for; 0: none. */
static unsigned longest_chunk(const struct scheduler *s, const struct sched_seq *seq, unsigned most)
{
	const struct plan *plan = &s->plan;
	unsigned remaining = seq->n_total - seq->n_computed;
	unsigned border = kv_seq_limit(s->kv, &seq->cache, seq->n_computed) - seq->n_computed;
	unsigned tokens = remaining < most ? remaining : most;
	unsigned first, rows;

	tokens = tokens < border ? tokens : border;
	rows = prompt_rows(seq, tokens, &first);
	if (rows > plan->rows) {
		tokens = first - seq->n_computed + plan->rows;
		rows = plan->rows;
	}
	if (tokens == remaining && rows == plan->rows)
		tokens--;
	return tokens;
}

/* Charges the user for known tokens [0, end) that were not charged before. */
static void charge(struct scheduler *s, struct sched_seq *seq, unsigned end)
{
	unsigned from = seq->n_charged, outputs;

	if (end <= from)
		return;
	outputs = end - (from > seq->n_prompt ? from : end < seq->n_prompt ? end : seq->n_prompt);
	s->users[seq->user].counter += end - from + outputs * (SCHEDULER_OUTPUT_WEIGHT - 1);
	seq->n_charged = end;
}

static void plan_add(struct scheduler *s, struct sched_seq *seq, unsigned tokens)
{
	struct plan *plan = &s->plan;
	struct sched_item *item = &plan->items[plan->n_items++];
	unsigned end = seq->n_computed + tokens;

	*item = (struct sched_item){.seq = seq, .first = seq->n_computed, .tokens = tokens};
	item->rows = prompt_rows(seq, tokens, &item->first_row);
	item->sample = end == seq->n_total;
	kv_seq_plan(s->kv, &seq->cache, item->first, end, sched_margin(s, s->n_running));
	plan->tokens -= tokens;
	plan->rows -= item->rows + item->sample;
	seq->planned = tokens;
	charge(s, seq, end);
}

void sched_plan_remove(struct scheduler *s, const struct sched_seq *seq)
{
	struct plan *plan = &s->plan;
	struct sched_item *item = plan->items;

	while (item->seq != seq)
		item++;
	plan->tokens += item->tokens;
	plan->rows += item->rows + item->sample + item->drafts;
	plan->n_items--;
	plan->kept = false;
	memmove(item, item + 1, (size_t)(plan->items + plan->n_items - item) * sizeof(*item));
}

bool sched_plan_drop(struct plan *plan)
{
	unsigned n = 0, n_before = plan->n_items;

	for (unsigned i = 0; i < n_before; i++) {
		const struct sched_item *item = &plan->items[i];

		if (item->seq->planned) {
			plan->items[n++] = *item;
			continue;
		}
		plan->tokens += item->tokens;
		plan->rows += item->rows + item->sample + item->drafts;
		plan->kept = false;
	}
	plan->n_items = n;
	return n < n_before;
}

/* ---- decodes --------------------------------------------------------------------------------- */

/*
 * The number of tokens of a sequence's decode, 0 if it has none: one, or after a fork or a
 * preemption also those of the last block, unless other decodes need the room. Such sequences are
 * not part of a step that is begun early, whose placeholders are in items of one token.
 */
static unsigned decode_tokens(const struct scheduler *s, const struct sched_seq *seq, bool early)
{
	unsigned left = seq->n_total - seq->n_computed, others;

	if (seq->planned)
		return 0;
	if (left == 1)
		return 1;
	others = s->n_running - s->plan.n_items - 1;
	return seq->n_total > seq->n_prompt && !early && left <= kv_block_size(s->kv) &&
			       left + others <= s->plan.tokens
		       ? left
		       : 0;
}

/* Allocates the blocks of @seq's next positions; false if @seq itself was preempted. */
static bool grow(struct scheduler *s, struct sched_seq *seq)
{
	while (!kv_seq_grow(s->kv, &seq->cache, seq->n_total)) {
		if (sched_preempt_lowest(s) == seq)
			return false;
	}
	return true;
}

/* @early: a step runs, so nothing is preempted; sequences that lack a block have to wait. */
static void plan_decodes(struct scheduler *s, bool early)
{
	unsigned i = 0;

	while (i < s->n_running) {
		struct sched_seq *seq = s->running[i];
		unsigned tokens = decode_tokens(s, seq, early), at;

		if (!tokens || (early && kv_seq_lacks(s->kv, &seq->cache, seq->n_total) >
						 kv_free_blocks(s->kv))) {
			i++;
			continue;
		}
		if (!grow(s, seq)) {
			i = 0;
			continue;
		}
		plan_add(s, seq, tokens);
		/* Preemptions may have changed its index. */
		for (at = s->plan.preempted ? 0 : i; s->running[at] != seq;)
			at++;
		i = at + 1;
	}
}

/* Adds proposals to the decodes, which are all that is planned so far. */
static void plan_drafts(struct scheduler *s)
{
	struct plan *plan = &s->plan;

	for (unsigned i = 0; i < plan->n_items; i++) {
		struct sched_item *item = &plan->items[i];
		unsigned n = item->seq->n_draft;

		n = n < plan->tokens ? n : plan->tokens;
		n = n < plan->rows ? n : plan->rows;
		if (!n)
			continue;
		item->drafts = scheduler_reserve(s, item->seq, n);
		/* The item differs now from the one scheduler_begin() returned. */
		plan->kept = plan->kept && !item->drafts;
		item->tokens += item->drafts;
		plan->tokens -= item->drafts;
		plan->rows -= item->drafts;
	}
}

/* ---- chunks ---------------------------------------------------------------------------------- */

/*
 * The virtual time of a priority level: the highest counter of the sequences given chunks on it
 * before these.
 */
static uint64_t *virtual_time(struct scheduler *s, int level)
{
	if (level > SCHEDULER_MAX_PRIORITY)
		level = SCHEDULER_MAX_PRIORITY;
	if (level < -SCHEDULER_MAX_PRIORITY)
		level = -SCHEDULER_MAX_PRIORITY;
	return &s->times[level + SCHEDULER_MAX_PRIORITY];
}

/*
 * A user's counter as used on a level: at most a few steps behind the level's time. Waiting behind
 * higher levels, or long decoding, gives no credit.
 */
static uint64_t counter_at(struct scheduler *s, unsigned user, int level)
{
	uint64_t credit = (uint64_t)SCHEDULER_CREDIT_STEPS * s->options.max_tokens;
	uint64_t time = *virtual_time(s, level), least = time > credit ? time - credit : 0;

	return s->users[user].counter > least ? s->users[user].counter : least;
}

/*
 * Candidate @i: first the running prefills, then each user's first waiting sequence; NULL: there is
 * none.
 */
static struct sched_seq *candidate(const struct scheduler *s, unsigned i)
{
	struct sched_seq *seq;

	if (i >= s->n_running)
		return s->users[i - s->n_running].spent ? NULL : s->users[i - s->n_running].first;
	seq = s->running[i];
	return !seq->planned && !s->users[seq->user].spent && seq->n_total - seq->n_computed > 1 &&
			       longest_chunk(s, seq, s->plan.tokens)
		       ? seq
		       : NULL;
}

/* The highest priority of the first @n candidates, above which waiting does not raise others. */
static int top_priority(const struct scheduler *s, unsigned n)
{
	int top = INT_MIN;

	for (unsigned i = 0; i < n; i++) {
		const struct sched_seq *seq = candidate(s, i);
		int priority;

		if (!seq)
			continue;
		priority = i < s->n_running ? seq->priority : s->users[seq->user].top;
		top = priority > top ? priority : top;
	}
	return top;
}

/* Sort key of candidates. */
struct rank {
	struct sched_seq *seq;
	int level;
	bool capped; /* it waits, and its user has reached its cap */
	uint64_t counter;
	unsigned running; /* virtual counter of its user */
};

static bool ranks_before(const struct rank *a, const struct rank *b)
{
	if (a->level != b->level)
		return a->level > b->level;
	if (a->capped != b->capped)
		return b->capped;
	if (a->counter != b->counter)
		return a->counter < b->counter;
	return a->running != b->running ? a->running < b->running : sched_before(a->seq, b->seq);
}

/*
 * The best candidate among the running prefills and (if @waiting) the waiting sequences; NULL:
 * none.
 */
static struct sched_seq *choose(struct scheduler *s, bool waiting, int *ret_level)
{
	unsigned n = s->n_running + (waiting ? s->n_users : 0);
	int top = top_priority(s, n);
	struct rank best = {0};

	for (unsigned i = 0; i < n; i++) {
		struct rank rank = {.seq = candidate(s, i)};
		int64_t raised;

		if (!rank.seq)
			continue;
		raised = sched_raised(s, rank.seq);
		rank.level = raised < top ? (int)raised : top;
		rank.running = s->users[rank.seq->user].running;
		rank.capped = !sched_runs(rank.seq) && rank.running >= s->plan.cap;
		rank.counter = counter_at(s, rank.seq->user, rank.level);
		if (!best.seq || ranks_before(&rank, &best))
			best = rank;
	}
	if (best.seq && !sched_runs(best.seq))
		best.seq->level = best.level;
	*ret_level = best.level;
	return best.seq;
}

/* Plans a chunk of a running sequence that was chosen at @level. */
static void plan_chunk(struct scheduler *s, struct sched_seq *seq, unsigned tokens, int level)
{
	struct user *user = &s->users[seq->user];
	uint64_t *time = virtual_time(s, level);

	user->counter = counter_at(s, seq->user, level);
	if (user->counter > *time)
		*time = user->counter;
	plan_add(s, seq, tokens);
}

static void plan_chunks(struct scheduler *s)
{
	struct plan *plan = &s->plan;
	bool waiting = !plan->preempted;

	for (unsigned i = 0; i < s->n_users; i++)
		s->users[i].spent = false;
	/*
	 * If all slots are taken, the admitted sequence gets the tokens and row of the preempted
	 * one.
	 */
	while (plan->tokens || (waiting && s->n_waiting && !s->n_slots)) {
		struct sched_seq *seq;
		uint64_t preemptions;
		unsigned tokens, left;
		bool grown;
		int level;

		waiting = waiting && s->n_waiting && (plan->rows || !s->n_slots);
		seq = choose(s, waiting, &level);
		if (!seq)
			break;
		left = sched_chunk_share(s, seq);
		if (!left) {
			s->users[seq->user].spent = true;
			continue;
		}
		if (!sched_runs(seq) && !sched_admit(s, seq)) {
			waiting = false;
			continue;
		}
		preemptions = s->preemptions;
		/* A chunk of layers with a window may need blocks that were not needed before. */
		grown = grow(s, seq);
		waiting = waiting && s->preemptions == preemptions;
		if (!grown)
			continue;
		/*
		 * No rows may be left for an admitted sequence: then it starts with the next step.
		 */
		tokens = longest_chunk(s, seq, left < plan->tokens ? left : plan->tokens);
		if (tokens)
			plan_chunk(s, seq, tokens, level);
		if (left != UINT_MAX)
			s->part_tokens -= tokens;
	}
}

/* Maximum chunk tokens of a step with @decodes. */
static unsigned chunk_limit(struct scheduler *s, unsigned decodes)
{
	unsigned limit = s->chunk_tokens, brief = sched_chunk_limit(s);

	if (!decodes || !s->options.max_stall_ns)
		return brief;
	limit = limit > decodes ? limit : decodes;
	limit = limit > LEAST_CHUNK ? limit : LEAST_CHUNK;
	return limit < brief ? limit : brief;
}

/* ---- stalls ---------------------------------------------------------------------------------- */

/* Whether the item's user is heavy compared to one whose first token the step produces. */
static bool stands_still(const struct scheduler *s, const struct sched_item *item)
{
	const struct plan *plan = &s->plan;
	unsigned running = s->users[item->seq->user].running;

	for (unsigned i = 0; i < plan->n_items; i++) {
		const struct sched_seq *seq = plan->items[i].seq;

		if (plan->items[i].sample && seq->n_total == seq->n_prompt &&
		    running >= s->users[seq->user].running + 2 && item->seq->level <= seq->level)
			return true;
	}
	return false;
}

/* Leaves heavy users out of a step with a light user's first token, while the budget lasts. */
static void stall_heavy(struct scheduler *s)
{
	struct plan *plan = &s->plan;

	s->stalls = false;
	if (s->stall_ns <= 0)
		return;
	/* All items are compared with the complete plan before any is removed. */
	for (unsigned i = 0; i < plan->n_items; i++) {
		if (stands_still(s, &plan->items[i]))
			plan->items[i].seq->planned = 0;
	}
	s->stalls = sched_plan_drop(plan);
}

bool scheduler_stalls(const struct scheduler *s)
{
	return s->stalls;
}

/* ---- step durations -------------------------------------------------------------------------- */

/*
 * How many would have fitted into @limit_ns given that @n took @ns, at most twice as many. Other
 * parts of the step took time, too: in a step below the limit at least as many would have fitted,
 * and after a step above it the next ones converge to what fits.
 */
static double fitting(double n, uint64_t limit_ns, uint64_t ns)
{
	double fits = ns ? n * ((double)limit_ns / (double)ns) : 2 * n;

	return fits < 2 * n ? fits : 2 * n;
}

void scheduler_measured(struct scheduler *s, const struct sched_item *items, unsigned n_items,
			uint64_t ns)
{
	unsigned chunks = 0, rows = 0;
	double fits;

	if (ns > STEP_NS_MOST)
		ns = STEP_NS_MOST;
	s->stall_ns += s->stalls ? -(int64_t)ns : (int64_t)ns / SCHEDULER_STALL_PART;
	if (s->stall_ns > s->stall_limit)
		s->stall_ns = s->stall_limit;
	for (unsigned i = 0; i < n_items; i++) {
		if (items[i].tokens - items[i].drafts > 1)
			chunks += items[i].tokens;
		else
			rows += items[i].tokens;
	}
	sched_cost_note(s, rows, chunks, (double)ns);
	if (!chunks) {
		fits = fitting(n_items, s->options.max_decode_ns, ns);
		/* Fractions count: a fraction more may cost little. */
		if (fits < n_items || fits > s->decode_rows)
			s->decode_rows = (unsigned)fits + (fits < 1 || fits > n_items);
		return;
	}
	fits = fitting(chunks, s->options.max_stall_ns, ns);
	if (fits < chunks || fits > s->chunk_tokens)
		s->chunk_tokens =
			fits < s->options.max_tokens ? (unsigned)fits : s->options.max_tokens;
}

/* ---- a step ---------------------------------------------------------------------------------- */

static void plan_begin(struct scheduler *s, struct sched_item *items)
{
	s->plan = (struct plan){
		.items = items,
		.tokens = s->options.max_tokens,
		.rows = s->options.max_rows,
		.begun = true,
		.kept = true,
	};
	s->step++;
}

unsigned scheduler_begin(struct scheduler *s, struct sched_item *items)
{
	plan_begin(s, items);
	plan_decodes(s, true);
	return s->plan.n_items;
}

bool scheduler_kept(const struct scheduler *s)
{
	return s->plan.kept;
}

unsigned scheduler_plan(struct scheduler *s, struct sched_item *items)
{
	struct plan *plan = &s->plan;
	unsigned limit;

	if (!plan->begun)
		plan_begin(s, items);
	plan_decodes(s, false);
	plan->company = s->options.fair_time && sched_has_company(s);
	sched_take_turns(s);
	if (!plan->preempted)
		plan_drafts(s);
	limit = chunk_limit(s, plan->n_items);
	plan->tokens = plan->tokens < limit ? plan->tokens : limit;
	plan->cap = sched_cap(s);
	plan_chunks(s);
	stall_heavy(s);
	/* Proposals are valid for this step only: later their positions may have other tokens. */
	for (unsigned i = 0; i < s->n_running; i++) {
		if (!s->running[i]->planned)
			s->running[i]->n_draft = 0;
	}
	plan->begun = false;
	return plan->n_items;
}
