// SPDX-License-Identifier: MIT

#include <errno.h>

#include "scheduler_world.h"

TEST(refuses_nonsense)
{
	const struct kv_layout layout = {.block_size = BLOCK, .key_words = BLOCK, .max_blocks = 16};
	struct scheduler_options o = plain;
	struct scheduler *s = NULL;
	struct kv *kv;

	assert_int_equal(kv_new(4, &layout, &kv), 0);
	assert_int_equal(scheduler_new(&o, kv, &s), -EINVAL); /* 64 tokens do not fit 4 blocks */
	o.max_context = 16;
	o.max_tokens = 7;
	assert_int_equal(scheduler_new(&o, kv, &s), -EINVAL);
	o.max_tokens = 8;
	o.max_rows = 7;
	assert_int_equal(scheduler_new(&o, kv, &s), -EINVAL);
	o.max_rows = 8;
	o.max_users = 0;
	assert_int_equal(scheduler_new(&o, kv, &s), -EINVAL);
	assert_null(s);
	scheduler_free(NULL);
	kv_free(kv);
}

/* A prompt is computed in chunks while decodes go on beside it. */
TEST(decodes_first)
{
	struct sched_seq chat, book;
	struct world w;

	open_world(&w, plain, 64);
	add(&w, &chat, 1, 0, 3);
	run(&w);
	assert_int_equal(planned(&w, &chat), 3);
	add(&w, &book, 2, 0, 40);
	run(&w);
	assert_int_equal(planned(&w, &chat), 1);
	assert_int_equal(planned(&w, &book), 15);
	run_steps(&w, 2);
	assert_int_equal(planned(&w, &chat), 1);
	assert_int_equal(planned(&w, &book), 10);
	assert_int_equal(book.n_total, 41);
	run(&w);
	assert_int_equal(planned(&w, &book), 1);
	drop(&w, &chat);
	drop(&w, &book);
	assert_int_equal(run(&w), 0);
	close_world(&w);
}

TEST(first_come_first_served_within_priority)
{
	struct scheduler_options o = plain;
	struct sched_seq seqs[4];
	struct world w;

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
		drop(&w, &seqs[order[i]]);
	}
	close_world(&w);
}

/* Rows for prompt logprobs limit the chunk, and no row is planned twice or left out. */
TEST(respects_rows)
{
	struct sched_seq echo, other;
	unsigned next = 0, steps = 0;
	struct world w;

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
	close_world(&w);
}

/* The youngest of the lowest priority gives way, the oldest always progresses, all end. */
TEST(preempts_the_youngest)
{
	struct scheduler_options o = plain;
	struct sched_seq seqs[3];
	bool live[3] = {true, true, true};
	unsigned left = 3, steps = 0;
	struct world w;

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
				drop(&w, &seqs[i]);
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

/* Proposals are for the next step; a sequence that it goes without needs others. */
TEST(proposals_do_not_wait)
{
	struct sched_seq flood[3], light;
	struct world w;

	open_world(&w, plain, 64);
	add_all(&w, flood, 3, 1, 0, 2);
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
	close_world(&w);
}

/* Entries of users who left are used again. */
TEST(many_users)
{
	struct sched_seq seqs[32];
	struct world w;

	open_world(&w, plain, 64);
	for (unsigned round = 0; round < 50; round++) {
		for (unsigned i = 0; i < 32; i++)
			add(&w, &seqs[i], 1000 + round * 7 + i / 2, (int)i % 3, 4);
		remove_all(&w, seqs, 32);
		assert_int_equal(scheduler_plan(w.s, w.items), 0);
		scheduler_done(w.s, w.items, 0);
	}
	close_world(&w);
}

/*
 * Random loads under pressure: limits hold (checked in run()), all sequences end, nothing leaks, and
 * a plan that is kept has what was begun where it was begun.
 */
TEST(random_loads)
{
	enum { LIVE = 24 };
	unsigned long preemptions = 0;

	srand(11);
	for (unsigned round = 0; round < 60; round++) {
		struct scheduler_options o = {
			.max_seqs = 1 + (unsigned)rand() % 8,
			.max_users = LIVE,
			.max_context = 40,
			.fair_time = round % 3 == 0,
			.max_decode_ns = round % 4 == 1 ? RAND_MAX * 5ull : 0,
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
			struct sched_item begun[MAX_ITEMS];
			unsigned n_begun;

			if (round % 2 && rand() % 8 == 0)
				scheduler_measured(w.s, w.items, w.n_items, (uint64_t)rand() * 10);
			/* Some end while the step is prepared. */
			n_begun = scheduler_begin(w.s, w.items);
			memcpy(begun, w.items, n_begun * sizeof(*begun));
			for (unsigned n = n_begun; n && left > 1 && rand() % 3 == 0; n--) {
				unsigned i = (unsigned)(w.items[0].seq - seqs);

				drop(&w, &seqs[i]);
				ends[i] = 0;
				left--;
			}
			assert_true(run(&w) > 0);
			assert_true(++steps < 20000);
			for (unsigned i = 0; scheduler_kept(w.s) && i < n_begun; i++)
				assert_ptr_equal(w.items[i].seq, begun[i].seq);
			for (unsigned i = 0; i < w.n_items; i++)
				if (w.items[i].rows)
					w.items[i].seq->prompt_row =
						w.items[i].first_row + w.items[i].rows;
			for (unsigned i = 0; i < LIVE; i++) {
				if (ends[i] && (seqs[i].n_total >= ends[i] || rand() % 500 == 0)) {
					drop(&w, &seqs[i]);
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
TEST(begins_before_the_end)
{
	struct sched_seq seqs[3], late;
	struct world w;

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
	drop(&w, &seqs[2]);
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
	drop(&w, &seqs[0]);
	assert_false(scheduler_kept(w.s));
	w.n_items = scheduler_plan(w.s, w.items);
	assert_int_equal(w.n_items, 2);
	assert_ptr_equal(w.items[0].seq, &seqs[1]);
	assert_int_equal(planned(&w, &late), 15);
	scheduler_done(w.s, w.items, w.n_items);
	close_world(&w);
}

/* While a step runs nobody gives blocks back; when it has ended who is youngest does. */
TEST(preempts_after_the_end_only)
{
	struct scheduler_options o = plain;
	struct sched_seq old, young;
	struct world w;

	o.max_tokens = 64;
	open_world(&w, o, 16);
	add(&w, &old, 1, 0, 32);
	add(&w, &young, 1, 0, 16);
	run_steps(&w, 8);
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
	close_world(&w);
}

/* Carries out steps until @book's chunks have settled; the tokens of the last one. */
static unsigned settle(struct world *w, struct sched_seq *book, uint64_t step_ns, uint64_t token_ns)
{
	unsigned tokens = 0, n = 0;

	for (unsigned i = 0; i < 20; i++) {
		if (book->n_total - book->n_computed < 200) {
			drop(w, book);
			add(w, book, 2, 0, 2000);
		}
		tokens = run(w);
		n = planned(w, book);
		scheduler_measured(w->s, w->items, w->n_items, step_ns + tokens * token_ns);
	}
	return n;
}

/* Chunks beside decodes come to what fits into the longest stall, whatever tokens cost. */
TEST(limits_chunks_beside_decodes)
{
	const struct scheduler_options o = {
		.max_seqs = 40,
		.max_users = 64,
		.max_tokens = 1000,
		.max_rows = 40,
		.max_context = 2500,
		.max_stall_ns = 100000,
	};
	struct sched_seq chats[30], book;
	struct world w;

	open_world(&w, o, 2000);
	add_all(&w, chats, 30, 2, 0, 1);
	run(&w);
	add(&w, &book, 2, 0, 2000);
	/* 970 is all that fits beside 30 decodes. */
	assert_int_equal(settle(&w, &book, 0, 10), 970);
	/* Of 100 microseconds 20 are the step's and the rest are for tokens, 30 of them decodes. */
	assert_in_range(settle(&w, &book, 20000, 200), 360, 375);
	assert_in_range(settle(&w, &book, 0, 1000), 60, 72);
	/* A step that took far too long is made good again. */
	scheduler_measured(w.s, w.items, w.n_items, 1000000000);
	assert_in_range(settle(&w, &book, 0, 1000), 60, 72);
	/* Prompts get on beside decodes that take longer than that. */
	assert_int_equal(settle(&w, &book, 5000000, 1000), 30);
	/* No clock's time makes it more or less. */
	scheduler_measured(w.s, w.items, w.n_items, 0);
	assert_in_range(settle(&w, &book, UINT64_MAX / 2, 0), 30, 60);
	assert_int_equal(settle(&w, &book, 0, 0), 970);
	/* While nothing decodes there is no limit. */
	remove_all(&w, chats, 30);
	scheduler_measured(w.s, w.items, w.n_items, 5000000);
	assert_int_equal(settle(&w, &book, 5000000, 1000), 1000);
	close_world(&w);
}

/* Counts blocks that the scheduler has hashed (the linker puts this in its place). */
static unsigned n_hashed;
uint64_t __real_kv_hash(const struct kv *kv, uint64_t owner, uint64_t before,
			const int32_t *tokens);
uint64_t __wrap_kv_hash(const struct kv *kv, uint64_t owner, uint64_t before,
			const int32_t *tokens);

uint64_t __wrap_kv_hash(const struct kv *kv, uint64_t owner, uint64_t before, const int32_t *tokens)
{
	n_hashed++;
	return __real_kv_hash(kv, owner, before, tokens);
}

/* A prompt that waits for room is hashed once, not in every step. */
TEST(waiting_prompts_are_hashed_once)
{
	struct scheduler_options o = plain;
	struct sched_seq first, second;
	uint32_t held[2];
	struct world w;

	o.max_tokens = 64;
	o.max_context = 40;
	o.prefix_caching = true;
	open_world(&w, o, 12);
	add(&w, &first, 1, 0, 30);
	run(&w);
	/* Of ten blocks seven are the first one's, too, and two are free. */
	assert_true(kv_alloc(w.kv, 0, &held[0]) && kv_alloc(w.kv, 0, &held[1]));
	add(&w, &second, 1, 0, 40);
	n_hashed = 0;
	for (unsigned i = 0; i < 5; i++) {
		run(&w);
		assert_null(second.cache.blocks[0]);
	}
	/* One more was filled meanwhile, and the one behind it asked for. */
	assert_in_range(n_hashed, 8, 9);
	kv_release(w.kv, held, 2, false);
	run(&w);
	assert_non_null(second.cache.blocks[0]);
	assert_int_equal(second.n_matched, 8 * BLOCK);
	assert_in_range(n_hashed, 8, 9);
	close_world(&w);
}

/* A copy of @parent that ends in a token of its own. */
static bool fork_seq(struct world *w, const struct sched_seq *parent, struct sched_seq *child)
{
	*child = (struct sched_seq){
		.uid = parent->uid,
		.priority = parent->priority,
		.prompt = zeros,
		.generated = zeros,
		.n_prompt = parent->n_prompt,
		.n_total = parent->n_computed + 1,
		.prompt_row = parent->n_prompt,
	};
	w->live[w->n_live++] = child;
	return scheduler_fork(w->s, parent, child);
}

/* Forks share what is computed but for the last block, and go on beside each other. */
TEST(forks_share_blocks)
{
	struct sched_seq parent, children[3];
	struct world w;

	open_world(&w, plain, 64);
	add(&w, &parent, 1, 0, 10);
	assert_int_equal(run(&w), 10);
	assert_int_equal(kv_free_blocks(w.kv), 64 - 3);
	for (unsigned i = 0; i < 3; i++) {
		assert_true(fork_seq(&w, &parent, &children[i]));
		assert_memory_equal(children[i].cache.blocks[0], parent.cache.blocks[0],
				    2 * sizeof(uint32_t));
		assert_int_not_equal(children[i].cache.blocks[0][2], parent.cache.blocks[0][2]);
		assert_int_equal(children[i].n_matched, 8);
	}
	assert_int_equal(kv_free_blocks(w.kv), 64 - 3 - 3);
	/* Two tokens of the third block and the new one; then one each. */
	assert_int_equal(run(&w), 1 + 3 * 3);
	assert_int_equal(run(&w), 4);
	/* Who is left keeps what was shared, whoever it came from. */
	drop(&w, &parent);
	drop(&w, &children[1]);
	/* They computed the same third block: one of them is there. */
	assert_int_equal(kv_free_blocks(w.kv), 64 - 2 - 1);
	assert_true(kv_check(w.kv));
	assert_int_equal(run(&w), 2);
	/* A fork of a fork, at the border of a block: nothing is computed again. */
	while (children[0].n_computed != 16)
		run(&w);
	assert_true(fork_seq(&w, &children[0], &parent));
	assert_int_equal(run(&w), 3);
	assert_int_equal(scheduler_preemptions(w.s), 0);
	close_world(&w);
}

/* Forks are decodes: no prompt goes before them, and they leave others their token. */
TEST(forks_decode_at_once)
{
	struct sched_seq parent, children[6], book;
	struct world w;

	open_world(&w, plain, 64);
	add(&w, &parent, 1, 0, 7);
	run(&w);
	for (unsigned i = 0; i < 6; i++)
		assert_true(fork_seq(&w, &parent, &children[i]));
	add(&w, &book, 1, 5, 40);
	/* Of 16 tokens one is the parent's, and two of the children have to wait with theirs. */
	assert_int_equal(scheduler_begin(w.s, w.items), 1);
	assert_int_equal(run(&w), 16);
	assert_int_equal(planned(&w, &parent), 1);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(planned(&w, &children[i]), 4);
	assert_int_equal(planned(&w, &book), 3);
	close_world(&w);
}

/*
 * Without a prefix cache a preempted sequence finds its own blocks again and goes on as a decode;
 * nobody else finds them, though all tokens are equal, and those of an ended one are taken first.
 */
TEST(preempted_ones_find_their_blocks)
{
	struct scheduler_options o = plain;
	struct sched_seq heavy[2], light, late;
	struct world w;

	o.max_seqs = 2;
	open_world(&w, o, 24);
	add(&w, &heavy[0], 1, 0, 6);
	add(&w, &heavy[1], 1, 0, 6);
	while (heavy[1].n_total < 30)
		run(&w);
	add(&w, &light, 2, 0, 2);
	run(&w);
	assert_non_null(light.cache.blocks[0]);
	assert_null(heavy[1].cache.blocks[0]);
	run(&w);
	drop(&w, &light);
	run(&w);
	assert_int_equal(heavy[1].n_admissions, 2);
	assert_int_equal(heavy[1].n_matched, 28);
	assert_in_range(planned(&w, &heavy[1]), 1, BLOCK);
	run(&w);
	assert_int_equal(planned(&w, &heavy[1]), 1);
	/* So does one that was taken out to be added again, but no new one. */
	scheduler_park(w.s, &heavy[1]);
	add(&w, &late, 1, 0, 20);
	run(&w);
	assert_int_equal(late.n_matched, 0);
	drop(&w, &late);
	scheduler_add(w.s, &heavy[1]);
	run(&w);
	assert_int_equal(heavy[1].n_matched, 28);
	close_world(&w);
}

/* Without a slot or blocks, or of another user's, a fork waits like any other sequence. */
TEST(forks_may_wait)
{
	struct scheduler_options o = plain;
	struct sched_seq parent, child, other;
	uint32_t blocks[8], n_blocks = 0;
	struct world w;

	o.max_seqs = 2;
	o.max_context = 32;
	open_world(&w, o, 8);
	add(&w, &parent, 1, 0, 18);
	while (parent.n_total == 18)
		run(&w);
	other = (struct sched_seq){
		.uid = 2,
		.prompt = zeros,
		.generated = zeros,
		.n_prompt = 18,
		.n_total = 19,
		.prompt_row = 18,
	};
	assert_false(scheduler_fork(w.s, &parent, &other));
	assert_null(other.cache.blocks[0]);
	drop(&w, &other);
	/* No slot. */
	add(&w, &other, 1, 0, 3);
	run(&w);
	assert_non_null(other.cache.blocks[0]);
	assert_false(fork_seq(&w, &parent, &child));
	assert_null(child.cache.blocks[0]);
	drop(&w, &other);
	run(&w);
	/* What waited finds the parent's blocks. */
	assert_int_equal(child.n_matched, 16);
	assert_in_range(planned(&w, &child), 1, BLOCK);
	drop(&w, &child);
	/* No block. */
	while (kv_alloc(w.kv, 0, &blocks[n_blocks]))
		n_blocks++;
	assert_false(fork_seq(&w, &parent, &child));
	drop(&w, &child);
	/* A parent that has given its blocks back has nothing to share. */
	while (parent.cache.blocks[0])
		run(&w);
	kv_release(w.kv, blocks, n_blocks, false);
	assert_false(fork_seq(&w, &parent, &child));
	close_world(&w);
}

/* Random forks, preemptions and ends: blocks are counted right all the time. */
TEST(random_forks)
{
	enum { LIVE = 16 };
	unsigned long forks = 0, preemptions = 0;

	srand(12);
	for (unsigned round = 0; round < 40; round++) {
		struct scheduler_options o = plain;
		struct sched_seq seqs[LIVE];
		bool live[LIVE] = {false};
		struct world w;

		o.max_context = 40;
		open_world(&w, o, 12 + (unsigned)rand() % 30);
		for (unsigned step = 0; step < 400; step++) {
			unsigned i = (unsigned)rand() % LIVE, parent = (unsigned)rand() % LIVE;

			if (!live[i] && live[parent] && seqs[parent].n_computed) {
				forks += fork_seq(&w, &seqs[parent], &seqs[i]);
				live[i] = true;
			} else if (!live[i]) {
				add(&w, &seqs[i], (uid_t)rand() % 3, rand() % 2,
				    1 + (unsigned)rand() % 30);
				live[i] = true;
			} else if (rand() % 8 == 0) {
				drop(&w, &seqs[i]);
				live[i] = false;
			}
			run(&w);
			assert_true(kv_check(w.kv));
			for (i = 0; i < LIVE; i++) {
				if (live[i] && seqs[i].n_total >= 40) {
					drop(&w, &seqs[i]);
					live[i] = false;
				}
			}
		}
		preemptions += scheduler_preemptions(w.s);
		close_world(&w);
	}
	assert_true(forks > 100 && preemptions > 100);
}

TEST_MAIN
