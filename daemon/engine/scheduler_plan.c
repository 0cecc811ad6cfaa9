// SPDX-License-Identifier: MIT
#include <limits.h>
#include <string.h>

#include "scheduler_internal.h"

/* Rows of prompt logprobs in the next @tokens tokens; *ret_first: the first one's position. */
static unsigned prompt_rows(const struct sched_seq *seq, unsigned tokens, unsigned *ret_first)
{
	unsigned from = seq->prompt_row > seq->n_computed ? seq->prompt_row : seq->n_computed;
	unsigned to = seq->n_computed + tokens;

	if (to > seq->n_prompt - 1)
		to = seq->n_prompt - 1;
	*ret_first = from;
	return to > from ? to - from : 0;
}

/* The longest chunk of @seq that what is left of the step can take; 0: none. */
static unsigned longest_chunk(const struct scheduler *s, const struct sched_seq *seq)
{
	const struct plan *plan = &s->plan;
	unsigned limit = sched_crowds(s, seq->user) && plan->crowd_tokens < plan->tokens
				 ? plan->crowd_tokens
				 : plan->tokens;
	unsigned remaining = seq->n_total - seq->n_computed;
	unsigned tokens = remaining < limit ? remaining : limit;
	unsigned first, rows = prompt_rows(seq, tokens, &first);

	if (rows > plan->rows) {
		tokens = first - seq->n_computed + plan->rows;
		rows = plan->rows;
	}
	if (tokens == remaining && rows == plan->rows)
		tokens--;
	return tokens;
}

static void plan_add(struct scheduler *s, struct plan *plan, struct sched_seq *seq, unsigned tokens)
{
	struct sched_item *item = &plan->items[plan->n_items++];
	unsigned end = seq->n_computed + tokens;

	*item = (struct sched_item){.seq = seq, .first = seq->n_computed, .tokens = tokens};
	item->rows = prompt_rows(seq, tokens, &item->first_row);
	item->sample = end == seq->n_total;
	plan->tokens -= tokens;
	plan->rows -= item->rows + item->sample;
	s->users[seq->user].decodes += sched_decodes(item);
	seq->planned = tokens;
	/* What a preemption makes compute again is not the user's doing. */
	if (end > seq->n_charged) {
		s->users[seq->user].served += end - seq->n_charged;
		seq->n_charged = end;
	}
}

/* Takes @victim out of the plan and gives its blocks back. */
static void give_way(struct scheduler *s, struct plan *plan, struct sched_seq *victim)
{
	if (victim->planned)
		sched_plan_remove(s, victim);
	sched_run_remove(s, victim);
	sched_wait_insert(s, victim);
	s->preemptions++;
	plan->preempted = true;
}

/* How many a user runs, without those that are to give way. */
static unsigned stays(const struct scheduler *s, unsigned user)
{
	return s->users[user].running - s->users[user].yielding;
}

/* Whether @a gives way before @b: the lower one, of the user who runs more, then the younger one.
 */
static bool yields_before(const struct scheduler *s, const struct sched_seq *a,
			  const struct sched_seq *b)
{
	unsigned of_a = stays(s, a->user), of_b = stays(s, b->user);

	if (a->level != b->level)
		return a->level < b->level;
	return of_a != of_b ? of_a > of_b : sched_before(b, a);
}

/* The running sequence that gives way when a decode needs a block. */
static struct sched_seq *preempt(struct scheduler *s, struct plan *plan)
{
	struct sched_seq *victim = s->running[0];

	for (unsigned i = 1; i < s->n_running; i++) {
		if (yields_before(s, s->running[i], victim))
			victim = s->running[i];
	}
	give_way(s, plan, victim);
	return victim;
}

/* Gives @seq the block of its next position; false if it had to give way itself. */
static bool grow(struct scheduler *s, struct plan *plan, struct sched_seq *seq)
{
	while (seq->n_blocks < sched_blocks_for(s, seq->n_total)) {
		if (kv_alloc(s->kv, &seq->blocks[seq->n_blocks]))
			seq->n_blocks++;
		else if (preempt(s, plan) == seq)
			return false;
	}
	return true;
}

/*
 * Shares the step's places for decodes between the users: each has what it needs, as far as that is
 * no more than what the others have. Without a limit everybody has all.
 */
static unsigned share_decodes(const struct scheduler *s)
{
	unsigned left = s->crowd_decodes, share = 0, wanting;

	if (!left)
		return UINT_MAX;
	for (;; share++) {
		wanting = 0;
		for (unsigned i = 0; i < s->n_users; i++)
			wanting += s->users[i].running > share;
		if (share && (!wanting || wanting > left))
			return share;
		left -= wanting < left ? wanting : left;
	}
}

/*
 * Whether it is a sequence's turn to decode. Where a user who crowds runs more of them than it has
 * places, they go round by their admission; @late: those whose turn it is not, in places that are
 * left.
 */
static bool has_turn(const struct scheduler *s, const struct sched_seq *seq, bool late)
{
	const struct user *user = &s->users[seq->user];

	if (user->running <= s->plan.decodes || !sched_crowds(s, seq->user))
		return true;
	return user->decodes < s->plan.decodes && (late || seq->admission > user->turn);
}

/*
 * The tokens of a sequence's decode, 0 if it has none: the one that is left, and once after a fork
 * those of the last block, too, unless other decodes need the room. They are no part of a step that
 * is begun early, whose holes are of items of one token.
 */
static unsigned decode_tokens(const struct scheduler *s, const struct plan *plan,
			      const struct sched_seq *seq, bool early)
{
	unsigned left = seq->n_total - seq->n_computed, others = s->n_running - plan->n_items - 1;

	if (left == 1)
		return 1;
	return seq->forked && !early && left <= kv_block_size(s->kv) &&
			       left + others <= plan->tokens
		       ? left
		       : 0;
}

/* Plans those that have a turn; false: one has to wait for a block, and nobody takes its place. */
static bool plan_turns(struct scheduler *s, struct plan *plan, bool may_preempt, bool late)
{
	unsigned i = 0;

	while (i < s->n_running) {
		struct sched_seq *seq = s->running[i];
		unsigned before_me = 0, tokens = 0;

		if (!seq->planned && has_turn(s, seq, late))
			tokens = decode_tokens(s, plan, seq, !may_preempt);
		if (!tokens) {
			i++;
			continue;
		}
		if (!may_preempt && !kv_free_blocks(s->kv) &&
		    seq->n_blocks < sched_blocks_for(s, seq->n_total)) {
			if (plan->decodes != UINT_MAX)
				return false;
			i++;
			continue;
		}
		if (!grow(s, plan, seq)) {
			i = 0;
			continue;
		}
		plan_add(s, plan, seq, tokens);
		if (!plan->preempted) {
			i++;
			continue;
		}
		/* Preemptions may have moved it down. */
		while (s->running[before_me] != seq)
			before_me++;
		i = before_me + 1;
	}
	return true;
}

/* @may_preempt: no step runs, so that a sequence may give its blocks back for another. */
static void plan_decodes(struct scheduler *s, struct plan *plan, bool may_preempt)
{
	if (plan_turns(s, plan, may_preempt, false) && plan->decodes != UINT_MAX)
		plan_turns(s, plan, may_preempt, true);
}

const int32_t *sched_block_tokens(const struct scheduler *s, const struct sched_seq *seq,
				  unsigned first)
{
	unsigned size = kv_block_size(s->kv), n = 0;

	if (first + size <= seq->n_prompt)
		return seq->prompt + first;
	if (first < seq->n_prompt)
		n = seq->n_prompt - first;
	memcpy(s->tokens, seq->prompt + first, n * sizeof(*s->tokens));
	memcpy(s->tokens + n, seq->generated + (first + n - seq->n_prompt),
	       (size - n) * sizeof(*s->tokens));
	return s->tokens;
}

/* Free blocks that are left for @n running sequences to grow into. */
static unsigned margin(const struct scheduler *s, unsigned n)
{
	unsigned most = kv_blocks(s->kv) / 16;

	return n < most ? n : most;
}

/*
 * Takes the blocks that the cache holds of the sequence's beginning; returns how many. The last
 * known token is always computed, for its row; so are rows for prompt logprobs.
 */
static unsigned match(struct scheduler *s, const struct sched_seq *seq, uint32_t *blocks,
		      uint64_t *ret_chain)
{
	unsigned size = kv_block_size(s->kv), limit = seq->n_total - 1, n = 0;

	if (seq->prompt_row + 1 < seq->n_prompt && seq->prompt_row < limit)
		limit = seq->prompt_row;
	*ret_chain = KV_ROOT;
	while ((n + 1) * size <= limit &&
	       kv_match(s->kv, seq->uid, *ret_chain, sched_block_tokens(s, seq, n * size),
			&blocks[n], ret_chain))
		n++;
	return n;
}

/* The row of the block table that the next sequence to run has. */
static uint32_t *next_blocks(const struct scheduler *s)
{
	return s->block_table + (size_t)s->slots[s->n_slots - 1] * s->max_blocks;
}

/* Lets a waiting sequence run, with @n full blocks in next_blocks() that @chain ends, and more for
 * all its known tokens, which are free. */
static void run_waiting(struct scheduler *s, struct sched_seq *seq, unsigned n, uint64_t chain)
{
	unsigned needed = sched_blocks_for(s, seq->n_total);

	seq->n_matched = seq->n_computed = n * kv_block_size(s->kv);
	seq->n_committed = n;
	seq->chain = chain;
	seq->blocks = next_blocks(s);
	while (n < needed && kv_alloc(s->kv, &seq->blocks[n]))
		n++;
	seq->n_blocks = n;
	seq->slot = s->slots[--s->n_slots];
	seq->n_admissions++;
	seq->admission = ++s->admissions;
	if (seq->n_charged < seq->n_computed)
		seq->n_charged = seq->n_computed;
	sched_wait_remove(s, seq);
	s->running[s->n_running++] = seq;
	s->users[seq->user].running++;
}

/*
 * Takes what the cache holds of the sequence, then blocks for the rest of its known tokens. All or
 * nothing: false leaves it waiting.
 */
static bool admit(struct scheduler *s, struct sched_seq *seq)
{
	unsigned needed = sched_blocks_for(s, seq->n_total), n;
	uint32_t *blocks;
	uint64_t chain;

	if (!s->n_slots || !kv_free_blocks(s->kv))
		return false;
	blocks = next_blocks(s);
	n = match(s, seq, blocks, &chain);
	if (kv_free_blocks(s->kv) < needed - n + margin(s, s->n_running)) {
		kv_release(s->kv, blocks, n);
		return false;
	}
	run_waiting(s, seq, n, chain);
	return true;
}

bool scheduler_fork(struct scheduler *s, const struct sched_seq *parent, struct sched_seq *child)
{
	unsigned n = parent->n_computed / kv_block_size(s->kv);

	scheduler_add(s, child);
	if (!parent->blocks || parent->uid != child->uid || child->n_total <= parent->n_computed ||
	    !s->n_slots ||
	    kv_free_blocks(s->kv) <
		    sched_blocks_for(s, child->n_total) - n + margin(s, s->n_running))
		return false;
	kv_share(s->kv, parent->blocks, n);
	memcpy(next_blocks(s), parent->blocks, n * sizeof(*parent->blocks));
	child->level = parent->level;
	child->n_charged = parent->n_computed;
	child->forked = true;
	run_waiting(s, child, n, parent->chain);
	return true;
}

/* Its priority and what waiting has raised it by. */
static int64_t raised(const struct scheduler *s, const struct sched_seq *seq)
{
	return seq->priority + (int64_t)((s->step - seq->arrival_step) / SCHEDULER_AGING_STEPS);
}

/* The one that gives way for @seq to be admitted, of a user who runs at least two more; or NULL. */
static struct sched_seq *fair_victim(const struct scheduler *s, const struct sched_seq *seq)
{
	unsigned mine = s->users[seq->user].running;
	struct sched_seq *victim = NULL;
	int64_t level = raised(s, seq);

	for (unsigned i = 0; i < s->n_running; i++) {
		struct sched_seq *other = s->running[i];

		if (!other->yielding && other->level <= level &&
		    stays(s, other->user) >= mine + 2 &&
		    (!victim || yields_before(s, other, victim)))
			victim = other;
	}
	return victim;
}

/*
 * Whether @seq could be admitted if all gave way who have to in fairness. Nobody does before that
 * is known: what was computed would be lost for nothing, step after step.
 */
static bool fair_room(struct scheduler *s, const struct sched_seq *seq)
{
	uint32_t *blocks = s->block_table + (size_t)s->options.max_seqs * s->max_blocks;
	unsigned n_victims = 0, n, needed, have;
	struct sched_seq *victim;
	uint64_t chain;
	bool enough;

	if (!fair_victim(s, seq))
		return false;
	/* What is matched is held meanwhile, so that it does not count as a victim's own. */
	n = match(s, seq, blocks, &chain);
	needed = sched_blocks_for(s, seq->n_total) - n;
	have = kv_free_blocks(s->kv);
	for (;;) {
		enough = s->n_slots + n_victims &&
			 have >= needed + margin(s, s->n_running - n_victims);
		victim = enough ? NULL : fair_victim(s, seq);
		if (!victim)
			break;
		victim->yielding = true;
		s->users[victim->user].yielding++;
		have += kv_own_blocks(s->kv, victim->blocks, victim->n_blocks);
		n_victims++;
	}
	kv_release(s->kv, blocks, n);
	for (unsigned i = 0; i < s->n_running; i++) {
		s->running[i]->yielding = false;
		s->users[s->running[i]->user].yielding = 0;
	}
	return enough;
}

/* Admits a waiting sequence; where places or blocks lack, those of users who run more give way. */
static bool admit_fairly(struct scheduler *s, struct plan *plan, struct sched_seq *seq)
{
	struct sched_seq *victim;

	if (admit(s, seq))
		return true;
	if (!fair_room(s, seq))
		return false;
	do {
		victim = fair_victim(s, seq);
		if (!victim)
			return false;
		/* It stands where those stood in whose place it comes. */
		if (victim->level > seq->level)
			seq->level = victim->level;
		give_way(s, plan, victim);
	} while (!admit(s, seq));
	return true;
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

/* Lets proposals ride along with the decodes, which are all that is planned so far. */
static void plan_drafts(struct scheduler *s, struct plan *plan)
{
	for (unsigned i = 0; i < plan->n_items; i++) {
		struct sched_item *item = &plan->items[i];
		unsigned n = item->seq->n_draft;

		n = n < plan->tokens ? n : plan->tokens;
		n = n < plan->rows ? n : plan->rows;
		if (!n)
			continue;
		item->drafts = scheduler_reserve(s, item->seq, n);
		/* It is not the item any more that scheduler_begin() gave out. */
		plan->kept = plan->kept && !item->drafts;
		item->tokens += item->drafts;
		plan->tokens -= item->drafts;
		plan->rows -= item->drafts;
	}
}

static bool wants_chunk(const struct sched_seq *seq)
{
	return !seq->planned && seq->n_total - seq->n_computed > 1;
}

/* The virtual time of a priority level: the highest counter of those that were given chunks on it,
 * before these. */
static uint64_t *virtual_time(struct scheduler *s, int level)
{
	if (level > SCHEDULER_MAX_PRIORITY)
		level = SCHEDULER_MAX_PRIORITY;
	if (level < -SCHEDULER_MAX_PRIORITY)
		level = -SCHEDULER_MAX_PRIORITY;
	return &s->served[level + SCHEDULER_MAX_PRIORITY];
}

/*
 * What counts as served for a user: it cannot have saved up more than a few steps against others of
 * that level, not by waiting behind higher ones and not by decoding for long.
 */
static uint64_t served(struct scheduler *s, unsigned user, int level)
{
	uint64_t credit = (uint64_t)SCHEDULER_CREDIT_STEPS * s->options.max_tokens;
	uint64_t time = *virtual_time(s, level), least = time > credit ? time - credit : 0;

	return s->users[user].served > least ? s->users[user].served : least;
}

/* Of two whose users were served alike: that of the user who runs less, then the older one. */
static bool goes_before(const struct scheduler *s, const struct sched_seq *a,
			const struct sched_seq *b)
{
	unsigned of_a = s->users[a->user].running, of_b = s->users[b->user].running;

	return of_a != of_b ? of_a < of_b : sched_before(a, b);
}

/* Candidate @i: the running prefills, then each user's first waiting sequence; NULL: it is none. */
static struct sched_seq *candidate(const struct scheduler *s, unsigned i)
{
	if (i >= s->n_running)
		return s->plan.crowd_tokens || !sched_crowds(s, i - s->n_running)
			       ? s->users[i - s->n_running].first
			       : NULL;
	return wants_chunk(s->running[i]) && longest_chunk(s, s->running[i]) ? s->running[i] : NULL;
}

/* The highest priority of those that want chunks, which waiting does not raise others above. */
static int top_priority(const struct scheduler *s, bool waiting)
{
	int top = INT_MIN;

	for (unsigned i = 0; i < s->n_running + (waiting ? s->n_users : 0); i++) {
		const struct sched_seq *seq = candidate(s, i);
		int priority;

		if (!seq)
			continue;
		priority = i < s->n_running ? seq->priority : s->users[seq->user].top;
		top = priority > top ? priority : top;
	}
	return top;
}

/* The best of the running prefills and (if @waiting) the waiting ones; *ret_level: its level. */
static struct sched_seq *choose(struct scheduler *s, bool waiting, int *ret_level)
{
	unsigned n = s->n_running + (waiting ? s->n_users : 0);
	struct sched_seq *best = NULL, *seq;
	int top = top_priority(s, waiting), best_level = 0;

	for (unsigned i = 0; i < n; i++) {
		uint64_t mine, others;
		int level;

		seq = candidate(s, i);
		if (!seq)
			continue;
		level = raised(s, seq) < top ? (int)raised(s, seq) : top;
		mine = served(s, seq->user, level);
		others = best ? served(s, best->user, level) : 0;
		if (!best || level > best_level ||
		    (level == best_level &&
		     (mine < others || (mine == others && goes_before(s, seq, best))))) {
			best = seq;
			best_level = level;
		}
	}
	if (best && !best->blocks)
		best->level = best_level;
	*ret_level = best_level;
	return best;
}

/* Plans a chunk of a running sequence that was chosen at @level. */
static void plan_chunk(struct scheduler *s, struct plan *plan, struct sched_seq *seq,
		       unsigned tokens, int level)
{
	struct user *user = &s->users[seq->user];
	uint64_t *time = virtual_time(s, level);

	user->served = served(s, seq->user, level);
	if (user->served > *time)
		*time = user->served;
	plan_add(s, plan, seq, tokens);
	if (sched_crowds(s, seq->user))
		plan->crowd_tokens -= tokens;
}

static void plan_chunks(struct scheduler *s, struct plan *plan)
{
	bool waiting = !plan->preempted;
	struct sched_seq *seq;

	/* When all places are taken, who is admitted gets tokens and a row of who gives way. */
	while (plan->tokens || (waiting && s->n_waiting && !s->n_slots)) {
		unsigned tokens;
		int level;

		waiting = waiting && s->n_waiting && (plan->rows || !s->n_slots);
		seq = choose(s, waiting, &level);
		if (!seq)
			break;
		if (!seq->blocks && !admit_fairly(s, plan, seq)) {
			waiting = false;
			continue;
		}
		/* An admitted sequence may find rows for nothing left: then it begins with the next
		 * step. */
		tokens = longest_chunk(s, seq);
		if (!tokens)
			continue;
		plan_chunk(s, plan, seq, tokens, level);
	}
}

/* Whether an item computes the prompt of a first token. */
static bool is_first(const struct sched_item *item)
{
	return item->seq->n_total == item->seq->n_prompt && !item->seq->goes_on;
}

/* Whether an item is to make room for a first token in the plan. */
static bool makes_room(const struct scheduler *s, const struct plan *plan,
		       const struct sched_item *item)
{
	unsigned running = s->users[item->seq->user].running;

	for (unsigned i = 0; i < plan->n_items; i++) {
		const struct sched_seq *first = plan->items[i].seq;

		if (is_first(&plan->items[i]) && running >= s->users[first->user].running + 2 &&
		    item->seq->level <= first->level)
			return true;
	}
	return false;
}

/*
 * Leaves those who run more out of a step that brings a user nearer to a first token, unless their
 * priority is higher; not twice running.
 */
static void leave_out(struct scheduler *s, struct plan *plan)
{
	unsigned least = UINT_MAX, n = 0;
	bool few = false, crowded = false;

	for (unsigned i = 0; i < plan->n_items; i++) {
		const struct user *user = &s->users[plan->items[i].seq->user];

		if (!is_first(&plan->items[i]))
			continue;
		few = few || user->live <= SCHEDULER_FEW;
		least = user->running < least ? user->running : least;
	}
	if (least == UINT_MAX)
		return;
	for (unsigned i = 0; i < plan->n_items; i++) {
		struct sched_seq *seq = plan->items[i].seq;
		struct user *user = &s->users[seq->user];

		if (user->left_out != s->step - 1 && makes_room(s, plan, &plan->items[i]))
			seq->planned = 0;
		else
			crowded = crowded || user->running >= least + 2;
	}
	for (unsigned i = 0; i < plan->n_items; i++) {
		const struct sched_seq *seq = plan->items[i].seq;

		if (seq->planned)
			plan->items[n++] = plan->items[i];
		else
			s->users[seq->user].left_out = s->step;
	}
	plan->left_out = n < plan->n_items;
	plan->spared = few && plan->left_out && !crowded;
	plan->kept = plan->kept && !plan->left_out;
	plan->n_items = n;
}

static void plan_begin(struct scheduler *s, struct sched_item *items)
{
	s->plan = (struct plan){
		.items = items,
		.tokens = s->options.max_tokens,
		.rows = s->options.max_rows,
		.begun = true,
		.kept = true,
		.decodes = share_decodes(s),
	};
	for (unsigned i = 0; i < s->n_users; i++)
		s->users[i].decodes = 0;
	s->step++;
}

unsigned scheduler_begin(struct scheduler *s, struct sched_item *items)
{
	plan_begin(s, items);
	plan_decodes(s, &s->plan, false);
	return s->plan.n_items;
}

bool scheduler_kept(const struct scheduler *s)
{
	return s->plan.kept;
}

void scheduler_limit_chunks(struct scheduler *s, unsigned tokens)
{
	s->chunk_limit = tokens;
}

void scheduler_limit_crowd(struct scheduler *s, unsigned decodes, unsigned chunks)
{
	s->crowd_decodes = decodes;
	s->crowd_chunks = chunks;
}

bool scheduler_spared(const struct scheduler *s)
{
	return s->plan.spared;
}

bool scheduler_left_out(const struct scheduler *s)
{
	return s->plan.left_out;
}

bool scheduler_limited(const struct scheduler *s)
{
	return s->plan.limited;
}

/* What chunks of those who crowd may have: the part of their limit that decodes leave over. */
static unsigned crowd_tokens(const struct scheduler *s)
{
	unsigned decodes = s->plan.n_items < s->crowd_decodes ? s->plan.n_items : s->crowd_decodes;
	uint64_t tokens;

	if (!s->crowd_decodes)
		return UINT_MAX;
	tokens = (uint64_t)s->crowd_chunks * (s->crowd_decodes - decodes) / s->crowd_decodes;
	return tokens > SCHEDULER_CROWD_LEAST ? (unsigned)tokens : SCHEDULER_CROWD_LEAST;
}

static void end_plan(struct scheduler *s, struct plan *plan)
{
	/* Chunks went on as long as there was something for them. */
	plan->limited = s->crowd_decodes && !plan->crowd_tokens && plan->tokens;
	for (unsigned i = 0; i < s->n_running; i++) {
		struct sched_seq *seq = s->running[i];

		if (seq->planned)
			continue;
		/* Proposals are for this step or for none: behind the next one they may be of other
		 * tokens. */
		seq->n_draft = 0;
		if (plan->decodes != UINT_MAX && seq->n_total - seq->n_computed == 1 &&
		    s->users[seq->user].left_out != s->step)
			plan->limited = true;
	}
}

unsigned scheduler_plan(struct scheduler *s, struct sched_item *items)
{
	struct plan *plan = &s->plan;

	if (!plan->begun)
		plan_begin(s, items);
	plan_decodes(s, plan, true);
	if (!plan->preempted)
		plan_drafts(s, plan);
	if (plan->n_items && s->chunk_limit && plan->tokens > s->chunk_limit)
		plan->tokens = s->chunk_limit;
	plan->crowd_tokens = crowd_tokens(s);
	plan_chunks(s, plan);
	leave_out(s, plan);
	end_plan(s, plan);
	plan->begun = false;
	return plan->n_items;
}
