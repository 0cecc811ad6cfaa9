/* SPDX-License-Identifier: MIT */
/* A scheduler with its KV blocks, for tests: sequences are added, steps planned, checked, carried
 * out. */
#ifndef TXDA_SCHEDULER_WORLD_H
#define TXDA_SCHEDULER_WORLD_H

#include "unit.h"
#include "kv_check.h"
#include "scheduler.h"

#define BLOCK	  4
#define MAX_ITEMS 64

static int32_t zeros[4096]; /* every token of every sequence */

struct world {
	struct scheduler_options options;
	struct kv *kv;
	struct scheduler *s;
	struct sched_item items[MAX_ITEMS];
	unsigned n_items;
	struct sched_seq *live[2048]; /* added and not dropped */
	unsigned n_live;
};

static inline void open_world(struct world *w, struct scheduler_options options, unsigned n_blocks)
{
	const struct kv_layout layout = {
		.block_size = BLOCK, .key_words = BLOCK, .max_blocks = n_blocks};

	memset(w, 0, sizeof(*w));
	w->options = options;
	assert_int_equal(kv_new(n_blocks, &layout, &w->kv), 0);
	assert_int_equal(scheduler_new(&options, w->kv, &w->s), 0);
}

static inline void drop(struct world *w, struct sched_seq *seq)
{
	scheduler_remove(w->s, seq);
	for (unsigned i = w->n_live; i--;) {
		if (w->live[i] == seq) {
			w->live[i] = w->live[--w->n_live];
			break;
		}
	}
}

static inline void remove_all(struct world *w, struct sched_seq *seqs, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		drop(w, &seqs[i]);
}

/* Drops what is left; all blocks must have come back. */
static inline void close_world(struct world *w)
{
	while (w->n_live)
		drop(w, w->live[w->n_live - 1]);
	assert_int_equal(kv_free_blocks(w->kv), kv_blocks(w->kv));
	assert_true(kv_check(w->kv));
	scheduler_free(w->s);
	kv_free(w->kv);
}

static inline void add(struct world *w, struct sched_seq *seq, user_id uid, int priority,
		       unsigned n_prompt)
{
	*seq = (struct sched_seq){
		.uid = uid,
		.priority = priority,
		.prompt = zeros,
		.generated = zeros,
		.n_prompt = n_prompt,
		.n_total = n_prompt,
		.prompt_row = n_prompt,
	};
	scheduler_add(w->s, seq);
	w->live[w->n_live++] = seq;
}

static inline void add_all(struct world *w, struct sched_seq *seqs, unsigned n, user_id uid,
			   int priority, unsigned n_prompt)
{
	for (unsigned i = 0; i < n; i++)
		add(w, &seqs[i], uid, priority, n_prompt);
}

/* Those that have more than so many tokens end, and begin anew. */
static inline void renew(struct world *w, struct sched_seq *seqs, unsigned n, unsigned tokens)
{
	for (unsigned i = 0; i < n; i++) {
		if (seqs[i].n_total > tokens) {
			drop(w, &seqs[i]);
			add(w, &seqs[i], seqs[i].uid, seqs[i].priority, seqs[i].n_prompt);
		}
	}
}

/* Plans a step, checks its limits, carries it out: each sampled sequence grows by a token. */
static inline unsigned run(struct world *w)
{
	unsigned tokens = 0, rows = 0;

	w->n_items = scheduler_plan(w->s, w->items);
	for (unsigned i = 0; i < w->n_items; i++) {
		const struct sched_item *item = &w->items[i];
		const struct sched_seq *seq = item->seq;

		assert_true(item->tokens >= 1 && seq->n_computed + item->tokens <= seq->n_total);
		assert_true((seq->n_computed + item->tokens + BLOCK - 1) / BLOCK <=
			    seq->cache.end[0]);
		assert_int_equal(item->sample, seq->n_computed + item->tokens == seq->n_total);
		tokens += item->tokens;
		rows += item->rows + item->sample;
		for (unsigned j = 0; j < i; j++)
			assert_ptr_not_equal(w->items[j].seq, seq);
	}
	assert_true(tokens <= w->options.max_tokens);
	assert_true(rows <= w->options.max_rows);
	assert_true(w->n_items <= w->options.max_seqs);
	scheduler_done(w->s, w->items, w->n_items);
	for (unsigned i = 0; i < w->n_items; i++) {
		if (w->items[i].sample)
			w->items[i].seq->n_total++;
	}
	return tokens;
}

static inline void run_steps(struct world *w, unsigned n)
{
	while (n--)
		run(w);
}

static inline unsigned planned(const struct world *w, const struct sched_seq *seq)
{
	for (unsigned i = 0; i < w->n_items; i++) {
		if (w->items[i].seq == seq)
			return w->items[i].tokens;
	}
	return 0;
}

static const struct scheduler_options plain = {
	.max_seqs = 8,
	.max_users = 32,
	.max_tokens = 16,
	.max_rows = 8,
	.max_context = 64,
};

static const struct scheduler_options wide = {
	.max_seqs = 16,
	.max_users = 32,
	.max_tokens = 100,
	.max_rows = 16,
	.max_context = 90,
};

/* Plans and carries out a step that takes so many milliseconds. */
static inline unsigned run_ms(struct world *w, unsigned ms)
{
	unsigned tokens = run(w);

	scheduler_measured(w->s, w->items, w->n_items, ms * 1000000ull);
	return tokens;
}

#endif
