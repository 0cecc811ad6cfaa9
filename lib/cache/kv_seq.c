// SPDX-License-Identifier: MIT
#include "kv_seq.h"

#include <string.h>

static unsigned blocks_for(const struct kv_layout *l, unsigned tokens)
{
	return tokens / l->block_size + (tokens % l->block_size != 0);
}

size_t kv_seq_entries(const struct kv *kv)
{
	const struct kv_layout *l = kv_layout(kv);

	return (size_t)l->n_groups * l->max_blocks + 3 * (size_t)l->state_blocks;
}

/* Sets up the tables in a sequence's memory. */
static void place(const struct kv *kv, struct kv_seq *seq, uint32_t *entries)
{
	const struct kv_layout *l = kv_layout(kv);
	uint32_t *states = entries + (size_t)l->n_groups * l->max_blocks;

	for (unsigned g = 0; g < l->n_groups; g++)
		seq->blocks[g] = entries + (size_t)g * l->max_blocks;
	seq->live.blocks = states;
	seq->snapshot.blocks = states + l->state_blocks;
	seq->next.blocks = states + 2 * (size_t)l->state_blocks;
}

void kv_seq_init(const struct kv *kv, struct kv_seq *seq, uint32_t *entries)
{
	*seq = (struct kv_seq){0};
	place(kv, seq, entries);
	memset(seq->live.blocks, 0, 3 * kv_layout(kv)->state_blocks * sizeof(*entries));
}

void kv_seq_move(const struct kv *kv, struct kv_seq *seq, const struct kv_seq *from,
		 uint32_t *entries)
{
	const struct kv_layout *l = kv_layout(kv);

	*seq = *from;
	place(kv, seq, entries);
	memcpy(seq->live.blocks, from->live.blocks, l->state_blocks * sizeof(*entries));
	memcpy(seq->snapshot.blocks, from->snapshot.blocks, l->state_blocks * sizeof(*entries));
	memcpy(seq->next.blocks, from->next.blocks, l->state_blocks * sizeof(*entries));
	for (unsigned g = 0; g < l->n_groups; g++)
		memcpy(seq->blocks[g] + from->first[g], from->blocks[g] + from->first[g],
		       (from->end[g] - from->first[g]) * sizeof(**seq->blocks));
}

/* The end of the group's blocks if the sequence continues up to @tokens. */
static unsigned wanted_end(const struct kv_layout *l, const struct kv_seq *seq, unsigned group,
			   unsigned tokens)
{
	unsigned window = kv_layout_window(l, group), end = blocks_for(l, tokens);

	return window && end > seq->first[group] + window ? seq->first[group] + window : end;
}

unsigned kv_seq_lacks(const struct kv *kv, const struct kv_seq *seq, unsigned tokens)
{
	const struct kv_layout *l = kv_layout(kv);
	unsigned n = seq->live.held ? 0 : l->state_blocks;

	for (unsigned g = 0; g < l->n_groups; g++) {
		unsigned end = wanted_end(l, seq, g, tokens);

		n += end > seq->end[g] ? end - seq->end[g] : 0;
	}
	return n;
}

/* Allocates blocks for a state, unless fewer than @leave would remain free. */
static bool take_state(struct kv *kv, struct kv_state *state, unsigned leave)
{
	const struct kv_layout *l = kv_layout(kv);

	if (kv_free_blocks(kv) < (uint64_t)l->state_blocks + leave)
		return false;
	for (unsigned i = 0; i < l->state_blocks; i++)
		kv_alloc(kv, l->n_groups, &state->blocks[i]);
	state->held = true;
	state->at = 0;
	return true;
}

static void drop_state(struct kv *kv, struct kv_state *state, bool again)
{
	if (state->held)
		kv_release(kv, state->blocks, kv_layout(kv)->state_blocks, again);
	state->held = false;
	state->at = 0;
}

bool kv_seq_grow(struct kv *kv, struct kv_seq *seq, unsigned tokens)
{
	const struct kv_layout *l = kv_layout(kv);

	for (unsigned g = 0; g < l->n_groups; g++) {
		unsigned end = wanted_end(l, seq, g, tokens);

		for (; seq->end[g] < end; seq->end[g]++) {
			if (!kv_alloc(kv, g, &seq->blocks[g][seq->end[g]]))
				return false;
		}
	}
	return seq->live.held || take_state(kv, &seq->live, 0);
}

unsigned kv_seq_own(const struct kv *kv, const struct kv_seq *seq)
{
	unsigned own = 0;

	for (unsigned g = 0; g < kv_layout(kv)->n_groups; g++)
		own += kv_own_blocks(kv, seq->blocks[g] + seq->first[g],
				     seq->end[g] - seq->first[g]);
	for (unsigned i = 0; i < 3; i++) {
		const struct kv_state *state = i == 0	? &seq->live
					       : i == 1 ? &seq->snapshot
							: &seq->next;

		if (state->held)
			own += kv_own_blocks(kv, state->blocks, kv_layout(kv)->state_blocks);
	}
	return own;
}

/* Releases the group's blocks before @to. */
static void drop_before(struct kv *kv, struct kv_seq *seq, unsigned group, unsigned to, bool again)
{
	if (to <= seq->first[group])
		return;
	kv_release(kv, seq->blocks[group] + seq->first[group], to - seq->first[group], again);
	seq->first[group] = to;
}

void kv_seq_drop(struct kv *kv, struct kv_seq *seq, bool again)
{
	for (unsigned g = 0; g < kv_layout(kv)->n_groups; g++)
		drop_before(kv, seq, g, seq->end[g], again);
	drop_state(kv, &seq->live, false);
	drop_state(kv, &seq->snapshot, again);
	drop_state(kv, &seq->next, false);
	*seq = (struct kv_seq){0};
}

/* ---- windows --------------------------------------------------------------------------------- */

/* The first block of the group that is read by tokens after the first @blocks blocks. */
static unsigned first_seen(const struct kv_layout *l, unsigned group, unsigned blocks)
{
	uint64_t position = (uint64_t)blocks * l->block_size;

	if (!l->reach[group] || position < l->reach[group])
		return 0;
	return (unsigned)((position - l->reach[group] + 1) / l->block_size);
}

static void leave_behind(struct kv *kv, struct kv_seq *seq, bool again)
{
	const struct kv_layout *l = kv_layout(kv);

	for (unsigned g = 0; g < l->n_groups; g++)
		drop_before(kv, seq, g, first_seen(l, g, seq->n_committed), again);
}

/* ---- states ---------------------------------------------------------------------------------- */

unsigned kv_seq_limit(const struct kv *kv, const struct kv_seq *seq, unsigned first)
{
	const struct kv_layout *l = kv_layout(kv);
	uint64_t every = (uint64_t)l->state_blocks * l->block_size,
		 branch = (uint64_t)seq->branch * l->block_size, limit;

	if (!every)
		return UINT32_MAX;
	limit = (first / every + 1) * every;
	limit = branch > first && branch < limit ? branch : limit;
	return limit < UINT32_MAX ? (unsigned)limit : UINT32_MAX;
}

void kv_seq_plan(struct kv *kv, struct kv_seq *seq, unsigned first, unsigned end, unsigned leave)
{
	const struct kv_layout *l = kv_layout(kv);
	unsigned border = end / l->block_size;

	seq->next.at = 0;
	if (l->state_blocks && border > first / l->block_size &&
	    (seq->next.held || take_state(kv, &seq->next, leave)))
		seq->next.at = border;
}

void kv_seq_states(const struct kv *kv, const struct kv_seq *seq, int32_t *row)
{
	const struct kv_layout *l = kv_layout(kv);
	const size_t n = l->state_blocks, bytes = n * sizeof(*row);

	row[0] = (int32_t)(seq->next.at * l->block_size);
	memcpy(row + 1, seq->live.at ? seq->live.blocks : seq->snapshot.blocks, bytes);
	memcpy(row + 1 + n, seq->live.blocks, bytes);
	memcpy(row + 1 + 2 * n, seq->next.blocks, bytes);
}

void kv_seq_moved(struct kv_seq *seq)
{
	seq->live.at = 1;
}

/*
 * Attaches the blocks [@n] of the group, or if the committed one has such already, with the same
 * contents, holds these instead.
 */
static void join(struct kv *kv, uint32_t committed, unsigned group, uint32_t *blocks, unsigned n)
{
	uint32_t first;

	if (!kv_attached(kv, committed, group, &first, 1)) {
		kv_attach(kv, committed, group, blocks, n);
	} else if (first != blocks[0]) {
		kv_release(kv, blocks, n, false);
		kv_attached(kv, committed, group, blocks, n);
		for (unsigned i = 0; i < n; i++)
			kv_take(kv, blocks[i]);
	}
}

/* The snapshot of the step that filled the last block replaces the previous one. */
static void keep_snapshot(struct kv *kv, struct kv_seq *seq)
{
	const struct kv_layout *l = kv_layout(kv);
	struct kv_state old = seq->snapshot;

	if (!seq->next.at || seq->next.at != seq->n_committed)
		return;
	join(kv, seq->chain.block, l->n_groups, seq->next.blocks, l->state_blocks);
	seq->snapshot = seq->next;
	seq->snapshot_chain = seq->chain;
	seq->next = (struct kv_state){.blocks = old.blocks};
	drop_state(kv, &old, old.at % l->state_blocks == 0 || old.at == seq->branch);
}

/* ---- prefixes -------------------------------------------------------------------------------- */

bool kv_seq_match(struct kv *kv, struct kv_seq *seq, uint64_t owner, uint64_t hash,
		  const int32_t *key)
{
	if (!kv_match(kv, owner, &seq->chain, hash, key, &seq->blocks[0][seq->n_committed]))
		return false;
	seq->end[0] = ++seq->n_committed;
	return true;
}

/* The last boundary, at most n_committed, after which all blocks that are read are available. */
static unsigned last_border(const struct kv *kv, const struct kv_seq *seq)
{
	const struct kv_layout *l = kv_layout(kv);
	unsigned missing[KV_MAX_GROUPS] = {0}, border = 0;

	for (unsigned n = 1; n <= seq->n_committed; n++) {
		bool usable = true;

		for (unsigned g = 1; g < l->n_groups; g++) {
			if (!kv_attached(kv, seq->blocks[0][n - 1], g, NULL, 0))
				missing[g] = n; /* number of blocks up to it */
			usable = usable && missing[g] <= first_seen(l, g, n);
		}
		if (usable && l->state_blocks)
			usable = kv_attached(kv, seq->blocks[0][n - 1], l->n_groups, NULL, 0);
		border = usable ? n : border;
	}
	return border;
}

unsigned kv_seq_settle(struct kv *kv, struct kv_seq *seq)
{
	const struct kv_layout *l = kv_layout(kv);
	unsigned n = last_border(kv, seq);

	for (unsigned g = 1; g < l->n_groups; g++) {
		seq->first[g] = first_seen(l, g, n);
		seq->end[g] = n;
		for (unsigned i = seq->first[g]; i < n; i++) {
			kv_attached(kv, seq->blocks[0][i], g, &seq->blocks[g][i], 1);
			kv_take(kv, seq->blocks[g][i]);
		}
	}
	if (n && l->state_blocks) {
		kv_attached(kv, seq->blocks[0][n - 1], l->n_groups, seq->snapshot.blocks,
			    l->state_blocks);
		for (unsigned i = 0; i < l->state_blocks; i++)
			kv_take(kv, seq->snapshot.blocks[i]);
		seq->snapshot.held = true;
		seq->snapshot.at = n;
	}
	kv_release(kv, seq->blocks[0] + n, seq->n_committed - n, true);
	seq->branch = l->state_blocks && seq->n_committed > n ? seq->n_committed : 0;
	seq->end[0] = seq->n_committed = n;
	seq->chain = n ? kv_chain_at(kv, seq->blocks[0][n - 1]) : (struct kv_chain){0};
	seq->snapshot_chain = seq->chain;
	leave_behind(kv, seq, true);
	return n;
}

void kv_seq_commit(struct kv *kv, struct kv_seq *seq, uint64_t owner, const int32_t *key,
		   bool again)
{
	const struct kv_layout *l = kv_layout(kv);
	unsigned n = seq->n_committed++;

	seq->blocks[0][n] = kv_commit(kv, seq->blocks[0][n], owner, &seq->chain, key);
	for (unsigned g = 1; g < l->n_groups; g++)
		join(kv, seq->chain.block, g, &seq->blocks[g][n], 1);
	keep_snapshot(kv, seq);
	leave_behind(kv, seq, again);
}

void kv_seq_fork(struct kv *kv, struct kv_seq *child, const struct kv_seq *parent)
{
	const unsigned states = kv_layout(kv)->state_blocks;
	unsigned n = states ? parent->snapshot.at : parent->n_committed;

	for (unsigned g = 0; g < kv_layout(kv)->n_groups; g++) {
		unsigned first = parent->first[g];

		memcpy(child->blocks[g] + first, parent->blocks[g] + first,
		       (n - first) * sizeof(**child->blocks));
		kv_share(kv, parent->blocks[g] + first, n - first);
		child->first[g] = first;
		child->end[g] = n;
	}
	child->n_committed = n;
	child->chain = states ? parent->snapshot_chain : parent->chain;
	if (!states || !n)
		return;
	memcpy(child->snapshot.blocks, parent->snapshot.blocks,
	       states * sizeof(*child->snapshot.blocks));
	kv_share(kv, child->snapshot.blocks, states);
	child->snapshot.held = true;
	child->snapshot.at = n;
	child->snapshot_chain = parent->snapshot_chain;
}
