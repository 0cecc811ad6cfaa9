// SPDX-License-Identifier: MIT
/* How users share the time of steps. */
#include "scheduler_world.h"

/* Plans and carries out a step at a millisecond an item. */
static unsigned run_items(struct world *w)
{
	unsigned tokens = run(w);

	scheduler_measured(w->s, w->items, w->n_items, w->n_items * 1000000ull);
	return tokens;
}

/* How many of @seqs [n] are in the step. */
static unsigned n_planned(const struct world *w, const struct sched_seq *seqs, unsigned n)
{
	unsigned sum = 0;

	for (unsigned i = 0; i < n; i++)
		sum += planned(w, &seqs[i]) != 0;
	return sum;
}

/* Decodes of several users that take too long take turns, max-min fairly; nobody is left behind. */
TEST(long_decodes_take_turns)
{
	struct scheduler_options o = wide;
	struct sched_seq many[9], some[4], one, high[2];
	struct world w;

	o.max_decode_ns = 10000000;
	open_world(&w, o, 1000);
	add_all(&w, many, 9, 1, 0, 2);
	/* Whoever is alone has all rows, however long that takes. */
	for (unsigned i = 0; i < 5; i++)
		run_ms(&w, 20);
	assert_int_equal(w.n_items, 9);
	add_all(&w, some, 4, 2, 0, 2);
	add(&w, &one, 3, 0, 2);
	run(&w);
	/* Of ten rows one, four and five. */
	for (unsigned i = 0; i < 20; i++)
		run_items(&w);
	for (unsigned i = 0; i < 20; i++) {
		unsigned before[9], least = many[0].n_total, most = least;

		for (unsigned j = 0; j < 9; j++)
			before[j] = many[j].n_total;
		assert_int_equal(run_items(&w), 10);
		assert_int_equal(planned(&w, &one), 1);
		assert_int_equal(n_planned(&w, some, 4), 4);
		assert_int_equal(n_planned(&w, many, 9), 5);
		for (unsigned j = 0; j < 9; j++) {
			least = before[j] < least ? before[j] : least;
			most = before[j] > most ? before[j] : most;
		}
		assert_true(most - least <= 2);
	}
	/* Higher levels have theirs, and everybody one. */
	add_all(&w, high, 2, 4, 1, 2);
	run(&w);
	for (unsigned i = 0; i < 20; i++)
		run_ms(&w, 1000);
	assert_int_equal(n_planned(&w, high, 2), 2);
	assert_int_equal(planned(&w, &one), 1);
	assert_int_equal(n_planned(&w, some, 4), 1);
	assert_int_equal(n_planned(&w, many, 9), 1);
	/* Faster again. */
	for (unsigned i = 0; i < 20; i++)
		run_ms(&w, 1);
	assert_int_equal(w.n_items, 9 + 4 + 1 + 2);
	close_world(&w);
}

/* The same, at so much for the step and for each token. */
static void run_cost(struct world *w, unsigned step_us, unsigned token_us)
{
	unsigned tokens = run(w);

	scheduler_measured(w->s, w->items, w->n_items, (step_us + tokens * token_us) * 1000ull);
}

/* Beside a user with one sequence another's many have half of its time, in turns. */
TEST(heavy_decodes_spare_light_ones)
{
	struct scheduler_options o = wide;
	struct sched_seq many[12], one, other[3];
	unsigned steps = 0, sum = 0, least, most;
	struct world w;

	o.fair_time = true;
	o.max_context = 2000;
	open_world(&w, o, 8000);
	add_all(&w, many, 12, 1, 0, 2);
	/* Whoever is alone has all rows. */
	for (unsigned i = 0; i < 5; i++)
		run_cost(&w, 0, 1000);
	assert_int_equal(w.n_items, 12);
	add(&w, &one, 2, 0, 2);
	for (unsigned i = 0; i < 10; i++)
		run_cost(&w, 0, 1000);
	least = most = many[0].n_total;
	for (unsigned i = 1; i < 12; i++) {
		least = many[i].n_total < least ? many[i].n_total : least;
		most = many[i].n_total > most ? many[i].n_total : most;
	}
	assert_true(most - least <= 2);
	for (; steps < 48; steps++) {
		run_cost(&w, 0, 1000);
		assert_int_equal(planned(&w, &one), 1);
		sum += n_planned(&w, many, 12);
	}
	/* Every second step has one of theirs. */
	assert_int_equal(sum, 24);
	/* A third user has a step of two and a half. */
	add(&w, &other[0], 3, 0, 2);
	for (unsigned i = 0; i < 10; i++)
		run_cost(&w, 0, 1000);
	for (steps = sum = 0; steps < 48; steps++) {
		run_cost(&w, 0, 1000);
		assert_int_equal(planned(&w, &one) + planned(&w, &other[0]), 2);
		sum += n_planned(&w, many, 12);
	}
	assert_int_equal(sum, 24);
	/* Where a decode costs next to nothing all are in each step, soon after that is known. */
	for (unsigned i = 0; i < 300; i++)
		run_cost(&w, 20000, 20);
	assert_int_equal(w.n_items, 14);
	/* The light one has gone and may come back: steps stay efficient. */
	drop(&w, &one);
	drop(&w, &other[0]);
	for (unsigned i = 0; i < 10; i++)
		run_cost(&w, 20000, 20);
	assert_int_equal(w.n_items, 12);
	close_world(&w);
}

/* Prompts of a user with many requests have what the decodes of a light one leave them. */
TEST(heavy_prompts_spare_light_decodes)
{
	struct scheduler_options o = wide;
	struct sched_seq books[6], one;
	unsigned tokens = 0;
	struct world w;

	o.fair_time = true;
	o.max_context = 2000;
	open_world(&w, o, 8000);
	add(&w, &one, 2, 0, 2);
	for (unsigned i = 0; i < 5; i++)
		run_cost(&w, 1000, 0);
	add_all(&w, books, 6, 1, 0, 1900);
	/* A millisecond, and ten microseconds more a token. */
	for (unsigned i = 0; i < 60; i++) {
		unsigned n = run(&w);

		scheduler_measured(w.s, w.items, w.n_items, 1000000 + n * 10000);
		assert_int_equal(planned(&w, &one), 1);
		tokens = n - 1;
	}
	/* Half of the light user's own time. */
	assert_in_range(tokens, 40, 60);
	close_world(&w);
}

/* A first token does not wait for all that heavy users run, as long as the budget lasts. */
TEST(first_tokens_have_their_step)
{
	struct scheduler_options o = plain;
	struct sched_seq flood[4], light[5];
	struct world w;

	o.max_stall_ns = 10000000;
	open_world(&w, o, 64);
	add_all(&w, flood, 4, 1, 0, 4);
	run_steps(&w, 2);
	add(&w, &light[0], 2, 0, 8);
	/* It comes while a step is begun. */
	assert_int_equal(scheduler_begin(w.s, w.items), 4);
	assert_int_equal(run_ms(&w, 6), 8);
	assert_true(scheduler_stalls(w.s));
	assert_false(scheduler_kept(w.s));
	assert_int_equal(planned(&w, &light[0]), 8);
	/* 4 ms are left, so there is one more such step, which may take longer. */
	add(&w, &light[1], 3, 0, 8);
	assert_int_equal(run_ms(&w, 7), 8 + 1);
	assert_int_equal(planned(&w, &light[0]), 1);
	/* Used up: the next ones share their step with all, until 3 ms are saved up again. */
	add(&w, &light[2], 4, 0, 8);
	assert_int_equal(run_ms(&w, 30), 8 + 6);
	assert_false(scheduler_stalls(w.s));
	remove_all(&w, light, 3);
	run_ms(&w, 10);
	add(&w, &light[3], 2, 0, 8);
	assert_int_equal(run_ms(&w, 1), 8);
	/* Who runs about as much waits for nobody. */
	add(&w, &light[4], 4, 0, 8);
	drop(&w, &flood[2]);
	drop(&w, &flood[3]);
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(run_ms(&w, 100), i ? 4 : 8 + 3);
	close_world(&w);
}

/* However many light users come, heavy ones stand still for a tenth of the time at most. */
TEST(stalls_have_a_budget)
{
	struct scheduler_options o = wide;
	struct sched_seq flood[10], light;
	unsigned stalled = 0;
	struct world w;

	o.max_context = 2000;
	o.max_stall_ns = 50000000;
	open_world(&w, o, 8000);
	add_all(&w, flood, 10, 1, 0, 2);
	run(&w);
	for (unsigned i = 0; i < 1100; i++) {
		add(&w, &light, 2 + i, 0, 5);
		run_ms(&w, 10);
		stalled += scheduler_stalls(w.s);
		assert_int_equal(planned(&w, &light), 5);
		assert_int_equal(planned(&w, &flood[0]), !scheduler_stalls(w.s));
		drop(&w, &light);
	}
	/* Every 11th of 1100 steps, and those that were saved up. */
	assert_in_range(stalled, 100, 106);
	close_world(&w);
}

/* Nobody stands still for a first token of lower priority, nor for a part of a prompt. */
TEST(not_every_prompt_has_its_step)
{
	struct sched_seq high[4], flood[4], light, book;
	struct world w;

	open_world(&w, wide, 128);
	for (unsigned i = 0; i < 4; i++) {
		add(&w, &high[i], 1, 1, 4);
		add(&w, &flood[i], 3, 0, 4);
	}
	run(&w);
	add(&w, &light, 2, 0, 8);
	assert_int_equal(run(&w), 8 + 4);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(planned(&w, &high[i]), 1);
	run(&w);
	drop(&w, &light);
	add(&w, &book, 2, 2, 89);
	book.prompt_row = 50;
	assert_int_equal(run(&w), 8 + 50 + 8);
	assert_false(scheduler_stalls(w.s));
	close_world(&w);
}

/* A user who lowers the priority of one request does not free the others from sharing. */
TEST(low_priorities_free_nothing)
{
	struct scheduler_options o = wide;
	struct sched_seq many[12], one;
	struct world w;

	o.fair_time = true;
	o.max_context = 2000;
	open_world(&w, o, 8000);
	for (unsigned i = 0; i < 12; i++)
		add(&w, &many[i], 1, i ? 0 : -1, 2);
	for (unsigned i = 0; i < 5; i++)
		run_cost(&w, 0, 1000);
	assert_int_equal(w.n_items, 12);
	add(&w, &one, 2, 0, 2);
	for (unsigned i = 0; i < 10; i++)
		run_cost(&w, 0, 1000);
	for (unsigned i = 0; i < 48; i++) {
		run_cost(&w, 0, 1000);
		assert_int_equal(planned(&w, &one), 1);
		assert_true(n_planned(&w, many, 12) <= 1);
	}
	close_world(&w);
}

TEST_MAIN
