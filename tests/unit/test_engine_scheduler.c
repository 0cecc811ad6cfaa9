// SPDX-License-Identifier: MIT
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>

#include "scheduler.h"

#define BLOCK	  4
#define MAX_ITEMS 64

static int32_t zeros[4096];

struct world {
	struct scheduler_options options;
	struct kv *kv;
	struct scheduler *s;
	struct sched_item items[MAX_ITEMS];
	unsigned n_items;
};

static void open_world(struct world *w, struct scheduler_options options, unsigned n_blocks)
{
	memset(w, 0, sizeof(*w));
	w->options = options;
	assert_int_equal(kv_new(n_blocks, BLOCK, false, &w->kv), 0);
	assert_int_equal(scheduler_new(&options, w->kv, &w->s), 0);
}

static void close_world(struct world *w)
{
	assert_int_equal(kv_free_blocks(w->kv), kv_blocks(w->kv));
	assert_true(kv_check(w->kv));
	scheduler_free(w->s);
	kv_free(w->kv);
}

static void add(struct world *w, struct sched_seq *seq, uid_t uid, int priority, unsigned n_prompt)
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
}

/* Plans a step, checks its limits, carries it out: each sampled sequence grows by a token. */
static unsigned run(struct world *w)
{
	unsigned tokens = 0, rows = 0;

	w->n_items = scheduler_plan(w->s, w->items);
	for (unsigned i = 0; i < w->n_items; i++) {
		const struct sched_item *item = &w->items[i];
		const struct sched_seq *seq = item->seq;

		assert_true(item->tokens >= 1 && seq->n_computed + item->tokens <= seq->n_total);
		assert_true((seq->n_computed + item->tokens + BLOCK - 1) / BLOCK <= seq->n_blocks);
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

static unsigned planned(const struct world *w, const struct sched_seq *seq)
{
	for (unsigned i = 0; i < w->n_items; i++) {
		if (w->items[i].seq == seq)
			return w->items[i].tokens;
	}
	return 0;
}

static const struct scheduler_options plain = {
	.max_seqs = 8,
	.max_live = 32,
	.max_tokens = 16,
	.max_rows = 8,
	.max_context = 64,
};

static void refuses_nonsense(void **state)
{
	struct scheduler_options o = plain;
	struct scheduler *s = NULL;
	struct kv *kv;

	(void)state;
	assert_int_equal(kv_new(4, BLOCK, false, &kv), 0);
	assert_int_equal(scheduler_new(&o, kv, &s), -EINVAL); /* 64 tokens do not fit 4 blocks */
	o.max_context = 16;
	o.max_tokens = 7;
	assert_int_equal(scheduler_new(&o, kv, &s), -EINVAL);
	o.max_tokens = 8;
	o.max_rows = 7;
	assert_int_equal(scheduler_new(&o, kv, &s), -EINVAL);
	o.max_rows = 8;
	o.max_live = 7;
	assert_int_equal(scheduler_new(&o, kv, &s), -EINVAL);
	assert_null(s);
	scheduler_free(NULL);
	kv_free(kv);
}

/* A prompt is computed in chunks while decodes go on beside it. */
static void decodes_first(void **state)
{
	struct sched_seq chat, book;
	struct world w;

	(void)state;
	open_world(&w, plain, 64);
	add(&w, &chat, 1, 0, 3);
	run(&w);
	assert_int_equal(planned(&w, &chat), 3);
	add(&w, &book, 2, 0, 40);
	run(&w);
	assert_int_equal(planned(&w, &chat), 1);
	assert_int_equal(planned(&w, &book), 15);
	run(&w);
	run(&w);
	assert_int_equal(planned(&w, &chat), 1);
	assert_int_equal(planned(&w, &book), 10);
	assert_int_equal(book.n_total, 41);
	run(&w);
	assert_int_equal(planned(&w, &book), 1);
	scheduler_remove(w.s, &chat);
	scheduler_remove(w.s, &book);
	assert_int_equal(run(&w), 0);
	close_world(&w);
}

static void first_come_first_served_within_priority(void **state)
{
	struct scheduler_options o = plain;
	struct sched_seq seqs[4];
	struct world w;

	(void)state;
	o.max_seqs = 1;
	open_world(&w, o, 64);
	add(&w, &seqs[0], 1, 0, 4);
	add(&w, &seqs[1], 1, 0, 4);
	add(&w, &seqs[2], 1, 5, 4);
	add(&w, &seqs[3], 1, 5, 4);
	for (unsigned i = 0; i < 4; i++) {
		static const unsigned order[] = {2, 3, 0, 1};

		run(&w);
		assert_int_equal(planned(&w, &seqs[order[i]]), 4);
		scheduler_remove(w.s, &seqs[order[i]]);
	}
	close_world(&w);
}

/* Rows for prompt logprobs limit the chunk, and no row is planned twice or left out. */
static void respects_rows(void **state)
{
	struct sched_seq echo, other;
	unsigned next = 0, steps = 0;
	struct world w;

	(void)state;
	open_world(&w, plain, 64);
	add(&w, &other, 1, 0, 2);
	run(&w);
	add(&w, &echo, 2, 0, 30);
	echo.prompt_row = 0;
	while (echo.n_total == 30) {
		run(&w);
		steps++;
		for (unsigned i = 0; i < w.n_items; i++) {
			if (w.items[i].seq != &echo)
				continue;
			assert_true(!w.items[i].rows || w.items[i].first_row == next);
			next += w.items[i].rows;
			echo.prompt_row = next;
		}
		assert_int_equal(planned(&w, &other), 1);
	}
	assert_int_equal(next, 29);
	assert_int_equal(steps,
			 5); /* 7 rows a step beside the decode's; the last one samples too */
	scheduler_remove(w.s, &echo);
	scheduler_remove(w.s, &other);
	close_world(&w);
}

/* The youngest of the lowest priority gives way, the oldest always progresses, all end. */
static void preempts_the_youngest(void **state)
{
	struct scheduler_options o = plain;
	struct sched_seq seqs[3];
	bool live[3] = {true, true, true};
	unsigned left = 3, steps = 0;
	struct world w;

	(void)state;
	o.max_context = 40;
	open_world(&w, o, 12);
	add(&w, &seqs[0], 1, 0, 8);
	add(&w, &seqs[1], 1, 0, 8);
	add(&w, &seqs[2], 1, 1, 8);
	while (left) {
		run(&w);
		assert_true(++steps < 500);
		if (live[2])
			assert_int_equal(seqs[2].n_admissions, 1);
		for (unsigned i = 0; i < 3; i++) {
			if (live[i] && seqs[i].n_total == 40) {
				scheduler_remove(w.s, &seqs[i]);
				live[i] = false;
				left--;
			}
		}
	}
	assert_true(scheduler_preemptions(w.s) >= 1);
	assert_int_equal(seqs[0].n_admissions, 2);
	assert_true(seqs[1].n_admissions >= 2);
	close_world(&w);
}

/* A user with a hundred requests and one with a few get the same number of tokens while both want
 * some. */
static void shares_tokens_between_users(void **state)
{
	enum { MANY = 24, FEW = 4 };
	struct scheduler_options o = plain;
	struct sched_seq many[MANY], few[FEW];
	unsigned served[2] = {0, 0};
	struct world w;

	(void)state;
	o.max_seqs = 2;
	o.max_tokens = 8;
	open_world(&w, o, 64);
	for (unsigned i = 0; i < MANY; i++)
		add(&w, &many[i], 1, 0, 32);
	for (unsigned i = 0; i < FEW; i++)
		add(&w, &few[i], 2, 0, 32);
	for (unsigned steps = 0; scheduler_running(w.s) + scheduler_waiting(w.s) > MANY - FEW;
	     steps++) {
		assert_true(steps < 200);
		run(&w);
		for (unsigned i = 0; i < w.n_items; i++) {
			struct sched_item *item = &w.items[i];

			served[item->seq->uid - 1] += item->tokens;
			if (item->sample)
				scheduler_remove(w.s, item->seq);
		}
		assert_true(served[0] <= served[1] + 40 && served[1] <= served[0] + 40);
	}
	for (unsigned i = 0; i < MANY; i++) {
		if (many[i].n_total == 32)
			scheduler_remove(w.s, &many[i]);
	}
	for (unsigned i = 0; i < FEW; i++)
		assert_int_equal(few[i].n_total, 33);
	close_world(&w);
}

/* A newcomer neither has credit for the time that it was idle nor waits for what others got before.
 */
static void newcomers_start_level(void **state)
{
	struct scheduler_options o = plain;
	struct sched_seq old[2], new[2];
	struct world w;

	(void)state;
	o.max_seqs = 2;
	o.max_tokens = 8;
	open_world(&w, o, 64);
	add(&w, &old[0], 1, 0, 60);
	for (unsigned i = 0; i < 6; i++)
		run(&w);
	add(&w, &new[0], 2, 0, 16);
	add(&w, &old[1], 1, 0, 16);
	run(&w); /* level: who runs less goes first */
	assert_int_equal(planned(&w, &new[0]), 8);
	run(&w);
	assert_int_equal(planned(&w, &new[0]), 8 - planned(&w, &old[0]));
	assert_true(planned(&w, &old[0]) >= 4);
	add(&w, &new[1], 2, 0, 16);
	scheduler_remove(w.s, &old[0]);
	scheduler_remove(w.s, &old[1]);
	scheduler_remove(w.s, &new[0]);
	scheduler_remove(w.s, &new[1]);
	close_world(&w);
}

/* Who holds all places, or all blocks, gives way to who has none, down to equal parts. */
static void users_share_places(void **state)
{
	struct scheduler_options o = plain;
	struct sched_seq flood[8], light[3], low;
	struct world w;
	unsigned runs = 0;

	(void)state;
	o.max_seqs = 4;
	/* The decodes of all places leave no row. */
	o.max_rows = 4;
	open_world(&w, o, 64);
	for (unsigned i = 0; i < 8; i++)
		add(&w, &flood[i], 1, 0, 8);
	for (unsigned i = 0; i < 4; i++)
		run(&w);
	assert_int_equal(scheduler_running(w.s), 4);
	/* One of lower priority takes nobody's place. */
	add(&w, &low, 3, -1, 8);
	run(&w);
	assert_null(low.blocks);
	assert_int_equal(scheduler_preemptions(w.s), 0);
	scheduler_remove(w.s, &low);
	/* The youngest of the flood gives way in the very next step; the others decode behind it.
	 */
	add(&w, &light[0], 2, 0, 8);
	run(&w);
	assert_int_equal(planned(&w, &light[0]), 8);
	assert_null(flood[3].blocks);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(planned(&w, &flood[i]), 0);
	run(&w);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(planned(&w, &flood[i]), 1);
	/* Two each, and no more. */
	add(&w, &light[1], 2, 0, 8);
	add(&w, &light[2], 2, 0, 8);
	for (; runs < 20; runs++)
		run(&w);
	assert_non_null(light[1].blocks);
	assert_null(light[2].blocks);
	assert_non_null(flood[0].blocks);
	assert_non_null(flood[1].blocks);
	assert_int_equal(scheduler_preemptions(w.s), 2);
	/* Who gave way comes back in its turn, before who never ran. */
	for (unsigned i = 0; i < 3; i++)
		scheduler_remove(w.s, &light[i]);
	for (runs = 0; runs < 4; runs++)
		run(&w);
	assert_non_null(flood[2].blocks);
	assert_non_null(flood[3].blocks);
	assert_null(flood[4].blocks);
	for (unsigned i = 0; i < 8; i++)
		scheduler_remove(w.s, &flood[i]);
	close_world(&w);
	/* Nor a token. */
	o.max_tokens = 4;
	open_world(&w, o, 64);
	for (unsigned i = 0; i < 5; i++)
		add(&w, &flood[i], 1, 0, 4);
	for (unsigned i = 0; i < 8; i++)
		run(&w);
	assert_int_equal(scheduler_running(w.s), 4);
	add(&w, &light[0], 2, 0, 4);
	for (runs = 0; runs < 6; runs++)
		run(&w);
	assert_int_equal(light[0].n_total, 4 + 3);
	for (unsigned i = 0; i < 5; i++)
		scheduler_remove(w.s, &flood[i]);
	scheduler_remove(w.s, &light[0]);
	close_world(&w);
	/* Blocks: 16 of them, all in the hands of one user. */
	open_world(&w, plain, 16);
	for (unsigned i = 0; i < 4; i++)
		add(&w, &flood[i], 1, 0, 12);
	for (unsigned i = 0; i < 4; i++)
		run(&w);
	assert_int_equal(scheduler_running(w.s), 4);
	add(&w, &light[0], 2, 0, 15);
	for (runs = 0; runs < 3 && !light[0].blocks; runs++)
		run(&w);
	assert_non_null(light[0].blocks);
	assert_non_null(flood[0].blocks);
	for (unsigned i = 0; i < 4; i++)
		scheduler_remove(w.s, &flood[i]);
	scheduler_remove(w.s, &light[0]);
	close_world(&w);
}

/* A first token does not wait for all that others run, and they do not wait twice. */
static void first_tokens_have_their_step(void **state)
{
	struct sched_seq flood[4], light[3];
	struct world w;

	(void)state;
	open_world(&w, plain, 64);
	for (unsigned i = 0; i < 4; i++)
		add(&w, &flood[i], 1, 0, 4);
	for (unsigned i = 0; i < 2; i++)
		run(&w);
	add(&w, &light[0], 2, 0, 8);
	/* It comes while a step is begun. */
	assert_int_equal(scheduler_begin(w.s, w.items), 4);
	assert_int_equal(run(&w), 8);
	assert_false(scheduler_kept(w.s));
	assert_int_equal(planned(&w, &light[0]), 8);
	/* The next one shares its step with them. */
	add(&w, &light[1], 3, 0, 8);
	assert_int_equal(run(&w), 8 + 5);
	/* Who runs about as much waits for nobody. */
	add(&w, &light[2], 4, 0, 8);
	scheduler_remove(w.s, &flood[2]);
	scheduler_remove(w.s, &flood[3]);
	assert_int_equal(run(&w), 8 + 4);
	for (unsigned i = 0; i < 2; i++)
		scheduler_remove(w.s, &flood[i]);
	for (unsigned i = 0; i < 3; i++)
		scheduler_remove(w.s, &light[i]);
	close_world(&w);
}

/* While there is company a step has few sequences of those who run many, and all have their turn.
 */
static void crowds_have_short_steps(void **state)
{
	struct sched_seq flood[10], light, prompt;
	unsigned turns[6] = {0};
	struct world w;

	(void)state;
	open_world(&w, plain, 64);
	for (unsigned i = 0; i < 6; i++)
		add(&w, &flood[i], 1, 0, 2);
	assert_int_equal(run(&w), 12);
	add(&w, &light, 2, 0, 3);
	assert_int_equal(run(&w), 3);
	assert_true(scheduler_spared(w.s));
	scheduler_limit_crowd(w.s, 3, 0);
	for (unsigned i = 0; i < 12; i++) {
		/* One place is the light user's. */
		assert_int_equal(scheduler_begin(w.s, w.items), 3);
		assert_int_equal(run(&w), 3);
		assert_false(scheduler_spared(w.s));
		assert_int_equal(planned(&w, &light), 1);
		for (unsigned k = 0; k < 6; k++)
			turns[k] += planned(&w, &flood[k]);
	}
	for (unsigned k = 0; k < 6; k++)
		assert_int_equal(turns[k], 4);
	/* Without it, all places are theirs; one that ends is nobody's turn. */
	scheduler_remove(w.s, &light);
	scheduler_remove(w.s, &flood[2]);
	memset(turns, 0, sizeof(turns));
	for (unsigned i = 0; i < 5; i++) {
		assert_int_equal(run(&w), 3);
		for (unsigned k = 0; k < 6; k++)
			turns[k] += planned(&w, &flood[k]);
	}
	for (unsigned k = 0; k < 6; k++)
		assert_int_equal(turns[k], k == 2 ? 0 : 3);
	scheduler_limit_crowd(w.s, 0, 0);
	assert_int_equal(run(&w), 5);
	for (unsigned k = 0; k < 6; k++)
		if (k != 2)
			scheduler_remove(w.s, &flood[k]);
	close_world(&w);
	/* Their prompts have a part of each step, that of another user all. */
	open_world(&w,
		   (struct scheduler_options){.max_seqs = 16,
					      .max_live = 16,
					      .max_tokens = 100,
					      .max_rows = 16,
					      .max_context = 90},
		   64);
	scheduler_limit_crowd(w.s, 2, 30);
	for (unsigned i = 0; i < 10; i++)
		add(&w, &flood[i], 1, 0, 50);
	assert_int_equal(run(&w), 30);
	add(&w, &prompt, 2, 0, 60);
	assert_int_equal(run(&w), 60 + 30);
	assert_int_equal(planned(&w, &prompt), 60);
	assert_int_equal(run(&w), 2 + SCHEDULER_CROWD_LEAST);
	for (unsigned i = 0; i < 10; i++)
		scheduler_remove(w.s, &flood[i]);
	scheduler_remove(w.s, &prompt);
	/* Who has few has all of its prompt, also when it is the first to come. */
	add(&w, &prompt, 2, 0, 60);
	assert_int_equal(run(&w), 60);
	scheduler_remove(w.s, &prompt);
	close_world(&w);
}

/* Places of those who end while the step is prepared are for others. */
static void places_are_given_back(void **state)
{
	struct sched_seq flood[8], ended;
	struct world w;

	(void)state;
	open_world(&w, plain, 64);
	for (unsigned i = 0; i < 8; i++)
		add(&w, &flood[i], 1, 0, 2);
	assert_int_equal(run(&w), 16);
	scheduler_limit_crowd(w.s, 3, 0);
	assert_int_equal(scheduler_begin(w.s, w.items), 3);
	for (unsigned i = 0; i < 3; i++)
		scheduler_remove(w.s, &flood[i]);
	assert_int_equal(run(&w), 3);
	/* A prompt's last token is nobody's turn. */
	for (unsigned i = 0; i < 3; i++)
		add(&w, &flood[i], 1, 0, 2);
	scheduler_limit_crowd(w.s, 0, 0);
	run(&w);
	scheduler_limit_crowd(w.s, 2, 0);
	for (unsigned i = 0; i < 8; i++) {
		/* By admission: 0 1, 2 3, 4 5, 6 7. */
		unsigned due = 2 * i % 8;

		add(&w, &ended, 1, 0, 1);
		run(&w);
		assert_int_equal(planned(&w, &flood[due]) + planned(&w, &flood[due + 1]), 2);
		scheduler_remove(w.s, &ended);
	}
	for (unsigned i = 0; i < 8; i++)
		scheduler_remove(w.s, &flood[i]);
	close_world(&w);
}

/* Proposals are for the next step; a sequence that it goes without needs others. */
static void proposals_do_not_wait(void **state)
{
	struct sched_seq flood[3], light;
	struct world w;

	(void)state;
	open_world(&w, plain, 64);
	for (unsigned i = 0; i < 3; i++)
		add(&w, &flood[i], 1, 0, 2);
	run(&w);
	for (unsigned i = 0; i < 3; i++) {
		flood[i].draft = zeros;
		flood[i].n_draft = 1;
	}
	add(&w, &light, 2, 0, 3);
	assert_int_equal(run(&w), 3);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(flood[i].n_draft, 0);
	/* An item that gets proposals is not the one that was begun. */
	assert_int_equal(scheduler_begin(w.s, w.items), 4);
	flood[1].n_draft = 2;
	assert_int_equal(scheduler_plan(w.s, w.items), 4);
	assert_false(scheduler_kept(w.s));
	scheduler_done(w.s, w.items, 4);
	for (unsigned i = 0; i < 3; i++)
		scheduler_remove(w.s, &flood[i]);
	scheduler_remove(w.s, &light);
	close_world(&w);
}

/* Nobody gives way for one who would find too little room all the same. */
static void nobody_yields_in_vain(void **state)
{
	struct sched_seq large, small[2], big;
	struct world w;

	(void)state;
	open_world(&w, plain, 16);
	add(&w, &large, 1, 0, 9 * BLOCK - 3);
	add(&w, &small[0], 1, 0, 2 * BLOCK - 3);
	add(&w, &small[1], 1, 0, 2 * BLOCK - 3);
	for (unsigned i = 0; i < 3; i++)
		run(&w);
	assert_int_equal(scheduler_running(w.s), 3);
	/* It wants eight blocks and one to grow; seven are those that the oldest one leaves. */
	add(&w, &big, 2, 0, 8 * BLOCK - 2);
	for (unsigned i = 0; i < 3; i++) {
		run(&w);
		assert_null(big.blocks);
		assert_int_equal(planned(&w, &small[0]), 1);
		assert_int_equal(planned(&w, &small[1]), 1);
	}
	assert_int_equal(scheduler_preemptions(w.s), 0);
	scheduler_remove(w.s, &large);
	run(&w);
	assert_non_null(big.blocks);
	assert_int_equal(scheduler_preemptions(w.s), 0);
	scheduler_remove(w.s, &small[0]);
	scheduler_remove(w.s, &small[1]);
	scheduler_remove(w.s, &big);
	close_world(&w);
}

/* A stream of high-priority requests does not keep a low one waiting for ever. */
static void priorities_do_not_starve(void **state)
{
	struct scheduler_options o = plain;
	struct sched_seq low, high[2];
	unsigned steps = 0;
	struct world w;

	(void)state;
	o.max_seqs = 1;
	open_world(&w, o, 64);
	add(&w, &high[0], 1, 3, 4);
	add(&w, &low, 2, 0, 4);
	add(&w, &high[1], 1, 3, 4);
	for (; low.n_total == 4; steps++) {
		assert_true(steps < 4 * SCHEDULER_AGING_STEPS);
		run(&w);
		for (unsigned i = 0; i < 2; i++) {
			if (high[i].n_total > 4) {
				scheduler_remove(w.s, &high[i]);
				add(&w, &high[i], 1, 3, 4);
			}
		}
	}
	assert_true(steps > 2 * SCHEDULER_AGING_STEPS);
	scheduler_remove(w.s, &low);
	scheduler_remove(w.s, &high[0]);
	scheduler_remove(w.s, &high[1]);
	close_world(&w);
}

/* A long prompt is waited for, though shorter ones of others would fit. */
static void long_prompts_do_not_starve(void **state)
{
	struct scheduler_options o = plain;
	struct sched_seq big, small[8];
	unsigned steps = 0;
	struct world w;

	(void)state;
	o.max_tokens = 64;
	open_world(&w, o, 16);
	for (unsigned i = 0; i < 4; i++)
		add(&w, &small[i], 1, 0, 12);
	run(&w);
	add(&w, &big, 2, 0, 60);
	for (unsigned i = 4; i < 8; i++)
		add(&w, &small[i], 1, 0, 12);
	for (; big.n_total == 60; steps++) {
		assert_true(steps < 100);
		run(&w);
		for (unsigned i = 0; i < 8; i++) {
			if (small[i].n_total > 14) {
				scheduler_remove(w.s, &small[i]);
				add(&w, &small[i], 1, 0, 12);
			}
		}
	}
	scheduler_remove(w.s, &big);
	for (unsigned i = 0; i < 8; i++)
		scheduler_remove(w.s, &small[i]);
	close_world(&w);
}

/* Entries of users who left are used again; the waiting list passes each sequence once. */
static void many_users(void **state)
{
	struct sched_seq seqs[32], *seq, *next;
	struct world w;

	(void)state;
	open_world(&w, plain, 64);
	for (unsigned round = 0; round < 50; round++) {
		unsigned n = 0;

		for (unsigned i = 0; i < 32; i++)
			add(&w, &seqs[i], 1000 + round * 7 + i / 2, (int)i % 3, 4);
		for (seq = scheduler_next_waiting(w.s, NULL); seq; seq = next) {
			next = scheduler_next_waiting(w.s, seq);
			scheduler_remove(w.s, seq);
			n++;
		}
		assert_int_equal(n, 32);
		assert_int_equal(scheduler_waiting(w.s), 0);
	}
	close_world(&w);
}

/* Random loads under pressure: limits hold (checked in run()), all sequences end, nothing leaks. */
static void random_loads(void **state)
{
	enum { LIVE = 24 };
	unsigned long preemptions = 0;

	(void)state;
	srand(11);
	for (unsigned round = 0; round < 60; round++) {
		struct scheduler_options o = {
			.max_seqs = 1 + (unsigned)rand() % 8,
			.max_live = LIVE,
			.max_context = 40,
		};
		struct sched_seq seqs[LIVE];
		unsigned ends[LIVE], left = 0, steps = 0;
		struct world w;

		o.max_tokens = o.max_seqs + (unsigned)rand() % 20;
		o.max_rows = o.max_seqs + (unsigned)rand() % 3;
		open_world(&w, o, 10 + (unsigned)rand() % 20);
		for (unsigned i = 0; i < LIVE; i++) {
			unsigned n_prompt = 1 + (unsigned)rand() % 30;

			add(&w, &seqs[i], (uid_t)rand() % 4, rand() % 2, n_prompt);
			if (rand() % 4 == 0)
				seqs[i].prompt_row = 0;
			ends[i] = n_prompt + 1 + (unsigned)rand() % (40 - n_prompt);
			left++;
		}
		while (left) {
			if (round % 2 && rand() % 8 == 0)
				scheduler_limit_crowd(w.s, (unsigned)rand() % 5,
						      (unsigned)rand() % 30);
			/* Some end while the step is prepared. */
			for (unsigned n = scheduler_begin(w.s, w.items);
			     n && left > 1 && rand() % 3 == 0; n--) {
				unsigned i = (unsigned)(w.items[0].seq - seqs);

				scheduler_remove(w.s, &seqs[i]);
				ends[i] = 0;
				left--;
			}
			assert_true(run(&w) > 0);
			assert_true(++steps < 20000);
			for (unsigned i = 0; i < w.n_items; i++)
				if (w.items[i].rows)
					w.items[i].seq->prompt_row =
						w.items[i].first_row + w.items[i].rows;
			for (unsigned i = 0; i < LIVE; i++) {
				if (ends[i] && (seqs[i].n_total >= ends[i] || rand() % 500 == 0)) {
					scheduler_remove(w.s, &seqs[i]);
					ends[i] = 0;
					left--;
				}
			}
		}
		preemptions += scheduler_preemptions(w.s);
		close_world(&w);
	}
	assert_true(preemptions > 10);
}

/* The next step is begun before the tokens of the one that runs are known. */
static void begins_before_the_end(void **state)
{
	struct sched_seq seqs[3], late;
	struct world w;

	(void)state;
	open_world(&w, plain, 64);
	for (unsigned i = 0; i < 3; i++)
		add(&w, &seqs[i], 1, 0, 3 + i);
	assert_int_equal(scheduler_plan(w.s, w.items), 3);
	for (unsigned i = 0; i < 3; i++)
		seqs[i].n_total += i < 2; /* the last one ends with this step */
	scheduler_done(w.s, w.items, 3);
	assert_int_equal(scheduler_begin(w.s, w.items), 2);
	assert_ptr_equal(w.items[0].seq, &seqs[0]);
	assert_int_equal(w.items[0].first, 3);
	assert_true(w.items[0].sample);
	scheduler_remove(w.s, &seqs[2]);
	assert_true(scheduler_kept(w.s));
	/* Who came while the step ran is in the next one. */
	add(&w, &late, 2, 0, 40);
	w.n_items = scheduler_plan(w.s, w.items);
	assert_int_equal(w.n_items, 3);
	assert_true(scheduler_kept(w.s));
	assert_ptr_equal(w.items[2].seq, &late);
	assert_int_equal(planned(&w, &late), 14);
	seqs[0].n_total++;
	seqs[1].n_total++;
	scheduler_done(w.s, w.items, w.n_items);
	/* One that turns out to have ended is taken out again. */
	assert_int_equal(scheduler_begin(w.s, w.items), 2);
	scheduler_remove(w.s, &seqs[0]);
	assert_false(scheduler_kept(w.s));
	w.n_items = scheduler_plan(w.s, w.items);
	assert_int_equal(w.n_items, 2);
	assert_ptr_equal(w.items[0].seq, &seqs[1]);
	assert_int_equal(planned(&w, &late), 15);
	scheduler_done(w.s, w.items, w.n_items);
	scheduler_remove(w.s, &seqs[1]);
	scheduler_remove(w.s, &late);
	close_world(&w);
}

/* While a step runs nobody gives blocks back; when it has ended who is youngest does. */
static void preempts_after_the_end_only(void **state)
{
	struct scheduler_options o = plain;
	struct sched_seq old, young;
	struct world w;

	(void)state;
	o.max_tokens = 64;
	open_world(&w, o, 16);
	add(&w, &old, 1, 0, 32);
	add(&w, &young, 1, 0, 16);
	for (unsigned i = 0; i < 8; i++)
		run(&w);
	assert_int_equal(old.n_total, 40);
	assert_int_equal(young.n_total, 24);
	assert_int_equal(kv_free_blocks(w.kv), 0);
	w.n_items = scheduler_plan(w.s, w.items);
	assert_int_equal(w.n_items, 2);
	old.n_total++;
	young.n_total++;
	scheduler_done(w.s, w.items, w.n_items);
	assert_int_equal(scheduler_begin(w.s, w.items), 0);
	assert_int_equal(scheduler_preemptions(w.s), 0);
	w.n_items = scheduler_plan(w.s, w.items);
	assert_int_equal(scheduler_preemptions(w.s), 1);
	assert_int_equal(planned(&w, &old), 1);
	assert_int_equal(planned(&w, &young), 0);
	scheduler_done(w.s, w.items, w.n_items);
	scheduler_remove(w.s, &old);
	scheduler_remove(w.s, &young);
	close_world(&w);
}

static void limits_chunks_beside_decodes(void **state)
{
	struct sched_seq chat, book;
	struct world w;

	(void)state;
	open_world(&w, plain, 64);
	scheduler_limit_chunks(w.s, 5);
	add(&w, &book, 2, 0, 40);
	run(&w);
	assert_int_equal(planned(&w, &book), 16);
	add(&w, &chat, 1, 1, 3);
	run(&w);
	/* Nothing decodes yet. */
	assert_int_equal(planned(&w, &chat), 3);
	assert_int_equal(planned(&w, &book), 13);
	run(&w);
	assert_int_equal(planned(&w, &chat), 1);
	assert_int_equal(planned(&w, &book), 5);
	scheduler_limit_chunks(w.s, 0);
	run(&w);
	assert_int_equal(planned(&w, &book), 6);
	scheduler_remove(w.s, &chat);
	scheduler_remove(w.s, &book);
	close_world(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(refuses_nonsense),
		cmocka_unit_test(decodes_first),
		cmocka_unit_test(first_come_first_served_within_priority),
		cmocka_unit_test(respects_rows),
		cmocka_unit_test(preempts_the_youngest),
		cmocka_unit_test(shares_tokens_between_users),
		cmocka_unit_test(newcomers_start_level),
		cmocka_unit_test(users_share_places),
		cmocka_unit_test(nobody_yields_in_vain),
		cmocka_unit_test(first_tokens_have_their_step),
		cmocka_unit_test(crowds_have_short_steps),
		cmocka_unit_test(places_are_given_back),
		cmocka_unit_test(proposals_do_not_wait),
		cmocka_unit_test(priorities_do_not_starve),
		cmocka_unit_test(long_prompts_do_not_starve),
		cmocka_unit_test(many_users),
		cmocka_unit_test(random_loads),
		cmocka_unit_test(begins_before_the_end),
		cmocka_unit_test(preempts_after_the_end_only),
		cmocka_unit_test(limits_chunks_beside_decodes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
