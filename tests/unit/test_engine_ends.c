// SPDX-License-Identifier: MIT
/* How requests and engines end: cancellations, deadlines, failures. */
#include <errno.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include "engine_fixture.h"
#include "clock.h"

TEST(cancels)
{
	struct engine *e;
	struct engine_sampling s = greedy(100);
	int32_t prompt[] = {1, 2, 3};
	struct engine_request *r[6];

	fake_model_config.delay_us = 2000;
	e = open_engine(&(struct engine_options){.max_num_seqs = 2});
	for (unsigned i = 0; i < 6; i++)
		r[i] = submit_new(e, prompt, 3, &s);
	for (unsigned i = 5; i > 0; i--) {
		engine_cancel(e, r[i]);
		engine_cancel(e, r[i]);
		usleep(3000);
	}
	wait_finished(e, 6);
	expect_finish(r[0], ENGINE_FINISH_LENGTH);
	engine_cancel(e, r[0]);
	for (unsigned i = 0; i < 6; i++) {
		if (i)
			expect_finish(r[i], ENGINE_FINISH_CANCELLED);
		assert_true(i < 2 || atomic_load(&r[i]->n_tokens) == 0);
		expect_greedy(r[i]);
	}
	close_engine(e);
	fake_model_config.delay_us = 0;
}

TEST(bounds_the_queue)
{
	struct engine *e;
	struct engine_sampling s = greedy(50);
	int32_t prompt[] = {1, 2, 3};
	struct engine_request *r[6];
	unsigned launches;
	char err[256] = "";

	e = open_engine(&(struct engine_options){.max_num_seqs = 2, .max_queue = 2});
	for (unsigned i = 0; i < 6; i++)
		r[i] = new_request(prompt, 3, &s, false);
	/* The first one's step lasts until all are there, however slow this thread is. */
	atomic_store(&fake_model_hang, true);
	launches = atomic_load(&fake_model_launches);
	submit(e, r[0]);
	while (atomic_load(&fake_model_launches) == launches)
		sched_yield();
	submit(e, r[1]);
	submit(e, r[2]);
	assert_int_equal(engine_submit(e, r[3], err, sizeof(err)), -EAGAIN);
	assert_says(err, "limit is 2");
	/* What goes on with work that was done finds a place, but not without end. */
	for (unsigned i = 3; i < 6; i++)
		r[i]->beyond_queue = true;
	submit(e, r[3]);
	submit(e, r[4]);
	assert_int_equal(engine_submit(e, r[5], err, sizeof(err)), -EAGAIN);
	assert_says(err, "limit is 4");
	atomic_store(&fake_model_hang, false);
	wait_finished(e, 5);
	close_engine(e);
}

/* Freed in the middle of work, everything ends and nothing leaks. */
TEST(frees_in_the_middle)
{
	struct engine_sampling s = greedy(100);
	int32_t prompt[] = {1, 2, 3};
	struct engine_request *r[8];
	struct engine *e;

	fake_model_config.delay_us = 1000;
	e = open_engine(&(struct engine_options){.max_num_seqs = 2});
	for (unsigned i = 0; i < 8; i++)
		r[i] = submit_new(e, prompt, 3, &s);
	usleep(5000);
	engine_free(e);
	for (unsigned i = 0; i < 8; i++)
		expect_finish(r[i], ENGINE_FINISH_CANCELLED);
	assert_int_equal(atomic_load(&fake_model_loaded), 0);
	engine_free(NULL);
	fake_model_config.delay_us = 0;
}

TEST(survives_a_lost_chip)
{
	struct engine_options options = {.max_num_seqs = 2};
	struct engine_sampling s = greedy(100);
	int32_t prompt[] = {1, 2, 3};
	struct engine *e = open_engine(&options), *other = NULL;
	struct engine_request *r[5], *good;
	struct engine_stats stats;
	char err[256] = "";

	assert_int_equal(engine_new(fake_group(1), &options, &other, err, sizeof(err)), 0);
	fake_model_fail_group = fake_group(0);
	atomic_store(&fake_model_fail_after, 10);
	/* All are there before the chip is gone, however slow this thread is. */
	atomic_store(&fake_model_hang, true);
	good = submit_new(other, prompt, 3, &s);
	for (unsigned i = 0; i < 4; i++)
		r[i] = submit_new(e, prompt, 3, &s);
	atomic_store(&fake_model_hang, false);
	wait_finished(e, 4);
	for (unsigned i = 0; i < 4; i++) {
		expect_finish(r[i], ENGINE_FINISH_ERROR);
		assert_int_equal(r[i]->error, -EIO);
		assert_says(r[i]->error_text, "fell off the bus");
		expect_greedy(r[i]);
	}
	engine_stats(e, &stats);
	assert_true(stats.lost);
	assert_says(stats.error, "fell off the bus");
	r[4] = new_request(prompt, 3, &s, false);
	assert_int_equal(engine_submit(e, r[4], err, sizeof(err)), -EIO);
	assert_says(err, "fell off the bus");
	wait_finished(other, 1);
	expect_finish(good, ENGINE_FINISH_LENGTH);
	expect_greedy(good);
	engine_free(e);
	close_engine(other);
}

TEST(gives_a_hung_step_up)
{
	struct engine *e = open_engine(&(struct engine_options){.step_seconds = 1});
	struct engine_sampling s = greedy(10);
	int32_t prompt[] = {1, 2, 3};
	struct engine_request *r = new_request(prompt, 3, &s, false);

	atomic_store(&fake_model_hang, true);
	run(e, r);
	atomic_store(&fake_model_hang, false);
	expect_finish(r, ENGINE_FINISH_ERROR);
	assert_says(r->error_text, "did not end within");
	close_engine(e);
}

TEST(reports_a_failed_load)
{
	struct engine *e = NULL;
	char err[256] = "";

	fake_model_load_error = -ENOSPC;
	assert_int_equal(engine_new(fake_group(0), &(struct engine_options){.case_dir = "/x"}, &e,
				    err, sizeof(err)),
			 -ENOSPC);
	fake_model_load_error = 0;
	assert_null(e);
	assert_says(err, "/x");
}

/* Waits until the engine has launched a step more than @before, which does not end. */
static void wait_launch(unsigned before)
{
	while (atomic_load(&fake_model_launches) == before)
		sched_yield();
}

/* Those that end while a step runs are not in the next one, which is prepared by then. */
TEST(cancels_while_the_next_step_is_ready)
{
	struct engine_sampling s = greedy(60);
	struct engine_request *r[4];
	struct engine *e;
	int32_t prompt[5];

	random_prompt(prompt, 5);
	fake_model_config.delay_us = 1000;
	e = open_engine(&(struct engine_options){0});
	for (unsigned i = 0; i < 4; i++)
		r[i] = submit_new(e, prompt, 2 + i, &s);
	while (atomic_load(&r[0]->n_tokens) < 3)
		usleep(500);
	engine_cancel(e, r[0]);
	engine_cancel(e, r[2]);
	wait_finished(e, 4);
	for (unsigned i = 0; i < 4; i++) {
		bool ends = atomic_load(&r[i]->finish) == ENGINE_FINISH_CANCELLED;

		/* On a slow machine it may have come to its end before. */
		assert_true(i % 2 ? !ends : ends || atomic_load(&r[i]->n_tokens) == 60);
		assert_true(ends || atomic_load(&r[i]->n_tokens) == 60);
		expect_greedy(r[i]);
	}
	close_engine(e);
}

/* A stop token that nobody knew of ends a sequence that the next step was to go on with: no token
 * is computed behind it. */
TEST(computes_nothing_behind_the_end)
{
	struct engine *e = open_engine(&(struct engine_options){0});
	struct engine_sampling s = greedy(30);
	struct engine_request *r[3], *probe;
	unsigned before, expected = 0;
	int32_t prompt[8];

	random_prompt(prompt, 8);
	for (unsigned i = 0; i < 3; i++) {
		s = greedy(30);
		probe = run_new(e, prompt, 6 + i, &s);
		s.n_stop_tokens = 1;
		s.stop_tokens[0] = probe->tokens[5 * i];
		r[i] = new_request(prompt, 6 + i, &s, false);
	}
	before = atomic_load(&fake_model_launch_tokens);
	for (unsigned i = 0; i < 3; i++)
		submit(e, r[i]);
	wait_finished(e, 3);
	for (unsigned i = 0; i < 3; i++) {
		expect_finish(r[i], ENGINE_FINISH_STOP);
		expected += r[i]->n_prompt + atomic_load(&r[i]->n_tokens) - 1;
		expect_greedy(r[i]);
	}
	assert_int_equal(atomic_load(&fake_model_launch_tokens) - before, expected);
	close_engine(e);
}

/* The chip goes while a step runs and the next one is prepared. */
TEST(loses_the_chip_with_a_step_ready)
{
	struct engine *e = open_engine(&(struct engine_options){.max_num_seqs = 3});
	struct engine_sampling s = greedy(100);
	struct engine_request *r[6];
	int32_t prompt[8];

	random_prompt(prompt, 8);
	fake_model_fail_group = fake_group(0);
	atomic_store(&fake_model_hang, true);
	atomic_store(&fake_model_fail_after, 7);
	for (unsigned i = 0; i < 6; i++)
		r[i] = submit_new(e, prompt, 3 + i, &s);
	atomic_store(&fake_model_hang, false);
	wait_finished(e, 6);
	for (unsigned i = 0; i < 6; i++) {
		expect_finish(r[i], ENGINE_FINISH_ERROR);
		assert_int_equal(r[i]->error, -EIO);
		assert_true(atomic_load(&r[i]->n_tokens) < 8);
		expect_greedy(r[i]);
	}
	engine_free(e);
	assert_int_equal(atomic_load(&fake_model_loaded), 0);
	assert_int_equal(atomic_load(&fake_model_violations), 0);
}

/* Who waits and who runs ends when its time is over; others do not. */
TEST(keeps_deadlines)
{
	struct engine *e = open_engine(&(struct engine_options){.max_num_seqs = 2});
	struct engine_sampling s = greedy(50);
	int32_t prompt[] = {1, 2, 3};
	unsigned before = atomic_load(&fake_model_launches);
	struct engine_request *r[5];
	struct engine_stats stats;
	uint64_t deadline;

	atomic_store(&fake_model_hang, true);
	for (unsigned i = 0; i < 5; i++)
		r[i] = new_request(prompt, 3, &s, false);
	submit(e, r[0]);
	wait_launch(before);
	/* All but the first two find no place; of these, too, one has a deadline. */
	deadline = clock_ns() + 20000000;
	r[1]->deadline_ns = r[2]->deadline_ns = deadline;
	r[3]->deadline_ns = clock_ns() + 3600000000000ull;
	for (unsigned i = 1; i < 5; i++)
		submit(e, r[i]);
	while (clock_ns() < deadline)
		usleep(1000);
	atomic_store(&fake_model_hang, false);
	wait_finished(e, 5);
	for (unsigned i = 0; i < 5; i++) {
		bool late = i == 1 || i == 2;

		expect_finish(r[i], late ? ENGINE_FINISH_TIMEOUT : ENGINE_FINISH_LENGTH);
		assert_int_equal(r[i]->error, late ? -ETIMEDOUT : 0);
		assert_int_equal(atomic_load(&r[i]->n_tokens), late ? 0 : 50);
		expect_greedy(r[i]);
	}
	close_engine_with_stats(e, &stats);
	assert_int_equal(stats.finished[ENGINE_FINISH_TIMEOUT], 2);
}

/* One that runs keeps what it has said. */
TEST(ends_late_while_it_runs)
{
	struct engine *e = open_engine(&(struct engine_options){0});
	struct engine_sampling s = greedy(100);
	int32_t prompt[] = {1, 2, 3};
	unsigned before = atomic_load(&fake_model_launches);
	struct engine_request *r = new_request(prompt, 3, &s, false);

	atomic_store(&fake_model_hang, true);
	r->deadline_ns = clock_ns() + 100000000;
	submit(e, r);
	while (atomic_load(&fake_model_launches) == before && !atomic_load(&r->finish))
		sched_yield();
	while (clock_ns() < r->deadline_ns)
		usleep(1000);
	atomic_store(&fake_model_hang, false);
	wait_finished(e, 1);
	expect_finish(r, ENGINE_FINISH_TIMEOUT);
	assert_int_equal(r->error, -ETIMEDOUT);
	assert_true(atomic_load(&r->n_tokens) <= 1);
	expect_greedy(r);
	close_engine(e);
}

TEST_MAIN_EACH(small_model, drop_requests)
