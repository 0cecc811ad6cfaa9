// SPDX-License-Identifier: MIT
/* How users and priorities share steps, places and blocks. */
#include "scheduler_world.h"

/* A user with a hundred requests and one with a few get the same number of tokens while both want
 * some. */
TEST(shares_tokens_between_users)
{
	enum { MANY = 24, FEW = 4 };
	struct scheduler_options o = plain;
	struct sched_seq many[MANY], few[FEW];
	unsigned served[2] = {0, 0};
	struct world w;

	o.max_seqs = 2;
	o.max_tokens = 8;
	open_world(&w, o, 64);
	add_all(&w, many, MANY, 1, 0, 32);
	add_all(&w, few, FEW, 2, 0, 32);
	for (unsigned steps = 0, ended = 0; ended < 2 * FEW; steps++) {
		assert_true(steps < 200);
		run(&w);
		for (unsigned i = 0; i < w.n_items; i++) {
			struct sched_item *item = &w.items[i];

			served[item->seq->uid - 1] += item->tokens;
			if (item->sample) {
				drop(&w, item->seq);
				ended++;
			}
		}
		assert_true(served[0] <= served[1] + 40 && served[1] <= served[0] + 40);
	}
	for (unsigned i = 0; i < MANY; i++) {
		if (many[i].n_total == 32)
			drop(&w, &many[i]);
	}
	for (unsigned i = 0; i < FEW; i++)
		assert_int_equal(few[i].n_total, 33);
	close_world(&w);
}

/* A newcomer neither has credit for the time that it was idle nor waits for what others got before.
 */
TEST(newcomers_start_level)
{
	struct scheduler_options o = plain;
	struct sched_seq old[2], new[2];
	struct world w;

	o.max_seqs = 2;
	o.max_tokens = 8;
	open_world(&w, o, 64);
	add(&w, &old[0], 1, 0, 60);
	run_steps(&w, 6);
	add(&w, &new[0], 2, 0, 16);
	add(&w, &old[1], 1, 0, 16);
	run(&w); /* level: who runs less goes first */
	assert_int_equal(planned(&w, &new[0]), 8);
	run(&w);
	assert_int_equal(planned(&w, &new[0]), 8 - planned(&w, &old[0]));
	assert_true(planned(&w, &old[0]) >= 4);
	add(&w, &new[1], 2, 0, 16);
	close_world(&w);
}

/* Two users share what a higher priority leaves them, whatever that one has. */
TEST(lower_priorities_share_the_rest)
{
	struct scheduler_options o = wide;
	struct sched_seq high, low[2], decodes[3];
	uint64_t served[2] = {0, 0};
	struct world w;

	o.max_context = 512;
	o.max_users = 16;
	open_world(&w, o, 1024);
	add_all(&w, decodes, 3, 2, 0, 4);
	run(&w);
	add(&w, &high, 3, 1, 70);
	for (unsigned i = 0; i < 2; i++)
		add(&w, &low[i], 1 + i, 0, 400);
	/* Not as long as priorities take to be caught up with. */
	for (unsigned step = 0; step < 200; step++) {
		/* The first one uses the budget for stalls up. */
		run_ms(&w, step ? 1 : 100000);
		for (unsigned i = 0; i < 2; i++) {
			served[i] += planned(&w, &low[i]);
			if (low[i].n_total > 400) {
				drop(&w, &low[i]);
				add(&w, &low[i], 1 + i, 0, 400);
			}
		}
		renew(&w, &high, 1, 70);
	}
	/* One also decodes, three tokens a step, which count twice. */
	assert_in_range(served[0], served[1] + 6 * 200 - 500, served[1] + 6 * 200 + 500);
	close_world(&w);
}

/* Neither a long answer nor waiting behind others is credit for a flood of prompts. */
TEST(nobody_saves_up)
{
	enum { FLOOD = 16 };
	struct scheduler_options o = plain;
	struct sched_seq writer, low, busy, flood[2][FLOOD];
	unsigned before = 0;
	struct world w;

	o.max_seqs = 3;
	o.max_users = 64;
	o.max_context = 1024;
	open_world(&w, o, 1024);
	add(&w, &writer, 1, 0, 4);
	run(&w);
	add(&w, &low, 1, -30, 15);
	add(&w, &busy, 2, 0, 15);
	for (unsigned steps = 0; steps < 200; steps++) {
		run(&w);
		assert_int_equal(low.n_total, 15);
		assert_int_equal(busy.n_total, 16);
		drop(&w, &busy);
		add(&w, &busy, 2, 0, 15);
	}
	for (unsigned i = 0; i < FLOOD; i++) {
		add(&w, &flood[0][i], 1, 0, 15);
		add(&w, &flood[1][i], 2, 0, 15);
	}
	for (; busy.n_total == 15; before++) {
		assert_true(before < 2 * SCHEDULER_CREDIT_STEPS);
		run(&w);
		for (unsigned i = 0; i < FLOOD; i++) {
			if (flood[0][i].n_total == 16) {
				drop(&w, &flood[0][i]);
				add(&w, &flood[0][i], 1, 0, 15);
			}
		}
	}
	close_world(&w);
}

/* Who holds all places, or all blocks, gives way to who has none, down to equal parts. */
TEST(users_share_places)
{
	struct scheduler_options o = plain;
	struct sched_seq flood[8], light[3], low;
	struct world w;
	unsigned runs = 0;

	o.max_seqs = 4;
	/* The decodes of all places leave no row. */
	o.max_rows = 4;
	open_world(&w, o, 64);
	add_all(&w, flood, 8, 1, 0, 8);
	run_steps(&w, 4);
	assert_int_equal(scheduler_running(w.s), 4);
	/* One of lower priority takes nobody's place. */
	add(&w, &low, 3, -1, 8);
	run(&w);
	assert_null(low.cache.blocks[0]);
	assert_int_equal(scheduler_preemptions(w.s), 0);
	drop(&w, &low);
	/* The youngest of the flood gives way in the very next step; the others decode behind it.
	 */
	add(&w, &light[0], 2, 0, 8);
	run(&w);
	assert_int_equal(planned(&w, &light[0]), 8);
	assert_null(flood[3].cache.blocks[0]);
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
	assert_non_null(light[1].cache.blocks[0]);
	assert_null(light[2].cache.blocks[0]);
	assert_non_null(flood[0].cache.blocks[0]);
	assert_non_null(flood[1].cache.blocks[0]);
	assert_int_equal(scheduler_preemptions(w.s), 2);
	/* Who gave way comes back in its turn, before who never ran. */
	remove_all(&w, light, 3);
	for (runs = 0; runs < 4; runs++)
		run(&w);
	assert_non_null(flood[2].cache.blocks[0]);
	assert_non_null(flood[3].cache.blocks[0]);
	assert_null(flood[4].cache.blocks[0]);
	close_world(&w);
	/* Nor a token. */
	o.max_tokens = 4;
	open_world(&w, o, 64);
	add_all(&w, flood, 5, 1, 0, 4);
	run_steps(&w, 8);
	assert_int_equal(scheduler_running(w.s), 4);
	add(&w, &light[0], 2, 0, 4);
	for (runs = 0; runs < 6; runs++)
		run(&w);
	assert_int_equal(light[0].n_total, 4 + 3);
	close_world(&w);
}

/* Blocks: 16 of them, all in the hands of one user. */
TEST(users_share_blocks)
{
	struct sched_seq flood[4], light;
	struct world w;

	open_world(&w, plain, 16);
	add_all(&w, flood, 4, 1, 0, 12);
	run_steps(&w, 4);
	assert_int_equal(scheduler_running(w.s), 4);
	add(&w, &light, 2, 0, 15);
	for (unsigned i = 0; i < 3 && !light.cache.blocks[0]; i++)
		run(&w);
	assert_non_null(light.cache.blocks[0]);
	assert_non_null(flood[0].cache.blocks[0]);
	close_world(&w);
}

/* Nobody gives way for one who would find too little room all the same. */
TEST(nobody_yields_in_vain)
{
	struct sched_seq large, small[2], big;
	struct world w;

	open_world(&w, plain, 16);
	add(&w, &large, 1, 0, 9 * BLOCK - 3);
	add(&w, &small[0], 1, 0, 2 * BLOCK - 3);
	add(&w, &small[1], 1, 0, 2 * BLOCK - 3);
	run_steps(&w, 3);
	assert_int_equal(scheduler_running(w.s), 3);
	/* It wants eight blocks and one to grow; seven are those that the oldest one leaves. */
	add(&w, &big, 2, 0, 8 * BLOCK - 2);
	for (unsigned i = 0; i < 3; i++) {
		run(&w);
		assert_null(big.cache.blocks[0]);
		assert_int_equal(planned(&w, &small[0]), 1);
		assert_int_equal(planned(&w, &small[1]), 1);
	}
	assert_int_equal(scheduler_preemptions(w.s), 0);
	drop(&w, &large);
	run(&w);
	assert_non_null(big.cache.blocks[0]);
	assert_int_equal(scheduler_preemptions(w.s), 0);
	close_world(&w);
}

/* Of two first tokens the lower one has nobody's room who is above it. */
TEST(room_is_made_by_level)
{
	struct sched_seq many[3], five[5], prompt, low;
	struct world w;

	open_world(&w, wide, 128);
	add_all(&w, many, 3, 1, 3, 4);
	add_all(&w, five, 5, 2, 5, 4);
	run(&w);
	add(&w, &prompt, 2, 5, 8);
	add(&w, &low, 3, 0, 8);
	assert_int_equal(run(&w), 3 + 5 + 8 + 8);
	assert_false(scheduler_stalls(w.s));
	close_world(&w);
}

/* A generated token counts for two of a prompt. */
TEST(outputs_weigh_more)
{
	struct scheduler_options o = plain;
	struct sched_seq writer, reader, books[2];
	unsigned read[2] = {0, 0};
	struct world w;

	o.max_context = 1024;
	open_world(&w, o, 1024);
	add(&w, &writer, 1, 0, 4);
	add(&w, &reader, 2, 0, 4);
	drop(&w, &reader);
	for (unsigned i = 0; i < 2; i++)
		add(&w, &books[i], 1 + i, 0, 900);
	/* Of 15 tokens a step one user has 2 for its answer, so the other reads so many more. */
	for (unsigned i = 0; i < 100; i++) {
		run(&w);
		for (unsigned k = 0; k < 2; k++)
			read[k] += planned(&w, &books[k]);
	}
	assert_in_range(read[1] - read[0], 2 * 100 - 16, 2 * 100 + 16);
	close_world(&w);
}

/* Who runs as many as its share of the slots waits for who runs fewer, whoever has had less. */
TEST(admission_is_capped)
{
	struct scheduler_options o = plain;
	struct sched_seq flood[6], book, light[4];
	struct world w;

	o.max_seqs = 4;
	open_world(&w, o, 64);
	add(&w, &flood[0], 1, 0, 2);
	add(&w, &book, 2, 0, 60);
	run_steps(&w, 6);
	/* The flood has had less, and has half of the slots. */
	for (unsigned i = 1; i < 6; i++)
		add(&w, &flood[i], 1, 0, 2);
	add_all(&w, light, 4, 2, 0, 2);
	run(&w);
	assert_non_null(flood[1].cache.blocks[0]);
	assert_null(flood[2].cache.blocks[0]);
	assert_non_null(light[0].cache.blocks[0]);
	assert_null(light[1].cache.blocks[0]);
	assert_int_equal(scheduler_preemptions(w.s), 0);
	/* A slot that the others do not want is anybody's. */
	remove_all(&w, light, 4);
	run(&w);
	assert_non_null(flood[2].cache.blocks[0]);
	assert_null(flood[3].cache.blocks[0]);
	close_world(&w);
}

/* A stream of high-priority requests does not keep a low one waiting for ever. */
static void expect_no_starving(uid_t of_low)
{
	struct scheduler_options o = plain;
	struct sched_seq low, high[2];
	unsigned steps = 0;
	struct world w;

	o.max_seqs = 1;
	open_world(&w, o, 64);
	add(&w, &high[0], 1, 3, 4);
	add(&w, &low, of_low, 0, 4);
	add(&w, &high[1], 1, 3, 4);
	for (; low.n_total == 4; steps++) {
		assert_true(steps < 4 * SCHEDULER_AGING_STEPS);
		run(&w);
		renew(&w, high, 2, 4);
	}
	assert_true(steps > 2 * SCHEDULER_AGING_STEPS);
	close_world(&w);
}

/* Neither another user's nor one's own. */
TEST(priorities_do_not_starve)
{
	expect_no_starving(2);
	expect_no_starving(1);
}

/* Who has waited long enough has places of those who hold many, as others of that priority have,
 * keeps them, and stands in nobody's way. */
TEST(who_waited_has_a_place)
{
	struct scheduler_options o = plain;
	struct sched_seq flood[4], low[2], late, light;
	unsigned steps = 0;
	struct world w;

	o.max_seqs = 4;
	o.max_context = 1024;
	open_world(&w, o, 1024);
	add_all(&w, flood, 4, 1, 0, 4);
	run(&w);
	add(&w, &low[0], 2, -1, 4);
	add(&w, &low[1], 2, -1, 4);
	for (; !low[0].cache.blocks[0]; steps++) {
		assert_true(steps < SCHEDULER_AGING_STEPS + 2);
		run(&w);
	}
	assert_true(steps >= SCHEDULER_AGING_STEPS - 1);
	run(&w);
	assert_non_null(low[1].cache.blocks[0]);
	assert_null(flood[2].cache.blocks[0]);
	assert_null(flood[3].cache.blocks[0]);
	/* What has not waited takes no place of theirs; another of the flood's priority does. */
	drop(&w, &flood[2]);
	drop(&w, &flood[3]);
	add(&w, &late, 4, -1, 4);
	run_steps(&w, 20);
	assert_null(late.cache.blocks[0]);
	add(&w, &light, 3, 0, 4);
	run(&w);
	assert_non_null(light.cache.blocks[0]);
	assert_int_equal(scheduler_preemptions(w.s), 3);
	close_world(&w);
}

/* When an urgent request is over, those who waited beside it have no more of that than it had. */
TEST(urgency_ends)
{
	enum { BACKLOG = 120 };
	static struct sched_seq backlog[BACKLOG];
	struct scheduler_options o = plain;
	struct sched_seq urgent, light;
	unsigned waited = 0;
	struct world w;

	o.max_users = 256;
	open_world(&w, o, 128);
	add_all(&w, backlog, BACKLOG, 1, 0, 4);
	for (unsigned step = 0; step < 8 * SCHEDULER_AGING_STEPS; step++) {
		run(&w);
		renew(&w, backlog, BACKLOG, 50);
		if (step == 6 * SCHEDULER_AGING_STEPS)
			add(&w, &urgent, 3, 5, 4);
		if (step == 6 * SCHEDULER_AGING_STEPS + 60)
			drop(&w, &urgent);
	}
	add(&w, &light, 2, 0, 4);
	for (; !light.cache.blocks[0]; waited++) {
		assert_true(waited < 2);
		run(&w);
	}
	close_world(&w);
}

/* One's own urgent request may be behind older ones that waiting has raised as far. Then these go
 * before others' requests as it would. */
TEST(urgency_raises_those_before)
{
	enum { BACKLOG = 1200 };
	static struct sched_seq backlog[BACKLOG];
	struct scheduler_options o = plain;
	struct sched_seq urgent, stream;
	unsigned next = 0, streamed = 0;
	struct world w;

	o.max_seqs = 1;
	o.max_users = BACKLOG + 2;
	open_world(&w, o, 64);
	add(&w, &stream, 2, 3, 4);
	add_all(&w, backlog, BACKLOG, 1, 0, 4);
	for (unsigned step = 0; step < 6 * SCHEDULER_AGING_STEPS; step++) {
		run(&w);
		renew(&w, &stream, 1, 4);
		if (backlog[next].n_total > 4)
			drop(&w, &backlog[next++]);
	}
	assert_true(next > 0 && next < BACKLOG - 10);
	add(&w, &urgent, 1, 5, 4);
	while (urgent.n_total == 4) {
		run(&w);
		if (stream.n_total > 4) {
			/* It may have the place when the urgent one comes. */
			assert_true(streamed++ == 0);
			drop(&w, &stream);
			add(&w, &stream, 2, 3, 4);
		}
		if (next < BACKLOG && backlog[next].n_total > 4)
			drop(&w, &backlog[next++]);
	}
	assert_int_equal(next, BACKLOG);
	close_world(&w);
}

/* A long prompt is waited for, though shorter ones of others would fit. */
TEST(long_prompts_do_not_starve)
{
	struct scheduler_options o = plain;
	struct sched_seq big, small[8];
	unsigned steps = 0;
	struct world w;

	o.max_tokens = 64;
	open_world(&w, o, 16);
	add_all(&w, small, 4, 1, 0, 12);
	run(&w);
	add(&w, &big, 2, 0, 60);
	for (unsigned i = 4; i < 8; i++)
		add(&w, &small[i], 1, 0, 12);
	for (; big.n_total == 60; steps++) {
		assert_true(steps < 100);
		run(&w);
		renew(&w, small, 8, 14);
	}
	close_world(&w);
}

TEST_MAIN
