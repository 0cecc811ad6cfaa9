// SPDX-License-Identifier: MIT
/* How requests and engines end: cancellations, deadlines, failures. */
#include <errno.h>
#include <sched.h>
#include <unistd.h>

#include "engine_fixture.h"

static void cancels(void **state)
{
	struct engine *e;
	struct engine_sampling s = greedy(100);
	int32_t prompt[] = {1, 2, 3};
	struct engine_request *r[6];

	(void)state;
	fake_model_config.delay_us = 2000;
	e = open_engine(&(struct engine_options){.max_num_seqs = 2});
	for (unsigned i = 0; i < 6; i++) {
		r[i] = new_request(prompt, 3, &s, false);
		submit(e, r[i]);
	}
	for (unsigned i = 5; i > 0; i--) {
		engine_cancel(e, r[i]);
		engine_cancel(e, r[i]);
		usleep(3000);
	}
	wait_finished(e, 6);
	for (unsigned i = 1; i < 6; i++) {
		assert_int_equal(atomic_load(&r[i]->finish), ENGINE_FINISH_CANCELLED);
		assert_true(i < 2 || atomic_load(&r[i]->n_tokens) == 0);
		engine_request_unref(r[i]);
	}
	assert_int_equal(atomic_load(&r[0]->finish), ENGINE_FINISH_LENGTH);
	engine_cancel(e, r[0]);
	engine_request_unref(r[0]);
	close_engine(e);
	fake_model_config.delay_us = 0;
}

static void bounds_the_queue(void **state)
{
	struct engine *e;
	struct engine_sampling s = greedy(50);
	int32_t prompt[] = {1, 2, 3};
	struct engine_request *r[4];
	unsigned launches;
	char err[256] = "";

	(void)state;
	e = open_engine(&(struct engine_options){.max_num_seqs = 2, .max_queue = 2});
	for (unsigned i = 0; i < 4; i++)
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
	assert_non_null(strstr(err, "limit is 2"));
	atomic_store(&fake_model_hang, false);
	wait_finished(e, 3);
	for (unsigned i = 0; i < 4; i++)
		engine_request_unref(r[i]);
	close_engine(e);
}

/* Freed in the middle of work, everything ends and nothing leaks. */
static void frees_in_the_middle(void **state)
{
	struct engine_sampling s = greedy(100);
	int32_t prompt[] = {1, 2, 3};
	struct engine_request *r[8];
	struct engine *e;

	(void)state;
	fake_model_config.delay_us = 1000;
	e = open_engine(&(struct engine_options){.max_num_seqs = 2});
	for (unsigned i = 0; i < 8; i++) {
		r[i] = new_request(prompt, 3, &s, false);
		submit(e, r[i]);
	}
	usleep(5000);
	engine_free(e);
	for (unsigned i = 0; i < 8; i++) {
		assert_int_equal(atomic_load(&r[i]->finish), ENGINE_FINISH_CANCELLED);
		engine_request_unref(r[i]);
	}
	assert_int_equal(atomic_load(&fake_model_loaded), 0);
	engine_free(NULL);
	fake_model_config.delay_us = 0;
}

static void survives_a_lost_chip(void **state)
{
	struct engine_options options = {.max_num_seqs = 2};
	struct engine_sampling s = greedy(100);
	int32_t prompt[] = {1, 2, 3};
	struct engine *e = open_engine(&options), *other = NULL;
	struct engine_request *r[5], *good;
	struct engine_stats stats;
	char err[256] = "";

	(void)state;
	assert_int_equal(engine_new(fake_group(1), &options, &other, err, sizeof(err)), 0);
	fake_model_fail_group = fake_group(0);
	atomic_store(&fake_model_fail_after, 10);
	/* All are there before the chip is gone, however slow this thread is. */
	atomic_store(&fake_model_hang, true);
	good = new_request(prompt, 3, &s, false);
	submit(other, good);
	for (unsigned i = 0; i < 4; i++) {
		r[i] = new_request(prompt, 3, &s, false);
		submit(e, r[i]);
	}
	atomic_store(&fake_model_hang, false);
	wait_finished(e, 4);
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(atomic_load(&r[i]->finish), ENGINE_FINISH_ERROR);
		assert_int_equal(r[i]->error, -EIO);
		assert_non_null(strstr(r[i]->error_text, "fell off the bus"));
		expect_greedy(r[i]);
		engine_request_unref(r[i]);
	}
	engine_stats(e, &stats);
	assert_true(stats.lost);
	assert_non_null(strstr(stats.error, "fell off the bus"));
	r[4] = new_request(prompt, 3, &s, false);
	assert_int_equal(engine_submit(e, r[4], err, sizeof(err)), -EIO);
	assert_non_null(strstr(err, "fell off the bus"));
	engine_request_unref(r[4]);
	wait_finished(other, 1);
	assert_int_equal(atomic_load(&good->finish), ENGINE_FINISH_LENGTH);
	expect_greedy(good);
	engine_request_unref(good);
	engine_free(e);
	close_engine(other);
}

static void gives_a_hung_step_up(void **state)
{
	struct engine *e = open_engine(&(struct engine_options){.step_seconds = 1});
	struct engine_sampling s = greedy(10);
	int32_t prompt[] = {1, 2, 3};
	struct engine_request *r = new_request(prompt, 3, &s, false);

	(void)state;
	atomic_store(&fake_model_hang, true);
	run(e, r);
	atomic_store(&fake_model_hang, false);
	assert_int_equal(atomic_load(&r->finish), ENGINE_FINISH_ERROR);
	assert_non_null(strstr(r->error_text, "did not end within"));
	engine_request_unref(r);
	close_engine(e);
}

static void reports_a_failed_load(void **state)
{
	struct engine *e = NULL;
	char err[256] = "";

	(void)state;
	fake_model_load_error = -ENOSPC;
	assert_int_equal(engine_new(fake_group(0), &(struct engine_options){.case_dir = "/x"}, &e,
				    err, sizeof(err)),
			 -ENOSPC);
	fake_model_load_error = 0;
	assert_null(e);
	assert_non_null(strstr(err, "/x"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(cancels, small_model),
		cmocka_unit_test_setup(bounds_the_queue, small_model),
		cmocka_unit_test_setup(frees_in_the_middle, small_model),
		cmocka_unit_test_setup(survives_a_lost_chip, small_model),
		cmocka_unit_test_setup(gives_a_hung_step_up, small_model),
		cmocka_unit_test_setup(reports_a_failed_load, small_model),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
