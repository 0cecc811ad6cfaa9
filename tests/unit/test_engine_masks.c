// SPDX-License-Identifier: MIT
/* Constraints whose masks take long: whom they hold up, and that the tokens stay the same. */
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <time.h>

#include "clock.h"
#include "engine_fixture.h"
#include "mask_workers.h"

static atomic_uint n_waits; /* masks that began to wait */
static sem_t go_on;

static void wait_to_go_on(struct test_constraint *c)
{
	atomic_fetch_add(&n_waits, 1);
	sem_wait(&go_on);
}

/* A mask that never comes holds up its own sequence: the other one has all its steps meanwhile. */
TEST(late_masks_hold_up_nobody)
{
	struct engine_sampling s = greedy(50);
	int32_t prompt[] = {5, 3, 8};
	struct engine_request *late, *alone, *beside;
	struct engine *e;

	sem_init(&go_on, 0, 0);
	e = open_engine(&(struct engine_options){0});
	late = new_request(prompt, 3, &s, false);
	constrain(late, 1, 20)->wait = wait_to_go_on;
	submit(e, late);
	beside = run_new(e, prompt, 2, &s);
	assert_int_equal(atomic_load(&beside->n_tokens), 50);
	expect_greedy(beside);
	expect_finish(late, ENGINE_RUNNING);
	assert_int_equal(atomic_load(&late->n_tokens), 0);
	for (unsigned i = 0; i < 20; i++)
		sem_post(&go_on);
	wait_finished(e, 1);
	alone = new_request(prompt, 3, &s, false);
	constrain(alone, 1, 20);
	run(e, alone);
	assert_int_equal(atomic_load(&alone->n_tokens), 20);
	assert_int_equal(atomic_load(&late->n_tokens), 20);
	assert_memory_equal(late->tokens, alone->tokens, 20 * sizeof(*alone->tokens));
	expect_finish(late, ENGINE_FINISH_COMPLETE);
	close_engine(e);
	sem_destroy(&go_on);
}

static void wait_for_first(struct test_constraint *c)
{
	if (!c->n)
		wait_to_go_on(c);
}

/* The first mask comes late; there are proposals all the same, good ones by a @good model. */
static void expect_proposals(const struct engine_options *o, bool good)
{
	struct engine_sampling s = greedy(60);
	int32_t prompt[] = {5, 3, 8};
	struct engine_request *late;
	struct engine_stats before, after;
	struct engine *e;

	sem_init(&go_on, 0, 0);
	fake_model_config.delay_us = 1000;
	e = open_engine(o);
	late = new_request(prompt, 3, &s, false);
	constrain(late, 1, 60)->wait = wait_for_first;
	((struct test_constraint *)late->constraint)->free = true;
	submit(e, late);
	/* Its own row is there before another one's answer. */
	run_new(e, prompt, 2, &s);
	assert_int_equal(atomic_load(&late->n_tokens), 0);
	engine_stats(e, &before);
	sem_post(&go_on);
	wait_finished(e, 1);
	close_engine_with_stats(e, &after);
	assert_int_equal(atomic_load(&late->n_tokens), 60);
	assert_true(after.draft_tokens > before.draft_tokens);
	if (good)
		assert_true(after.accepted_tokens > before.accepted_tokens);
	expect_greedy(late);
	sem_destroy(&go_on);
}

/* A mask that was late once, as the first one of a grammar often is, ends no proposals for good. */
TEST(proposes_after_a_late_mask)
{
	expect_proposals(
		&(struct engine_options){.speculation = ENGINE_SPECULATE_NGRAM, .ngram_min = 1},
		false);
	expect_proposals(&(struct engine_options){.draft_case_dir = "draft",
						  .speculation = ENGINE_SPECULATE_MODEL},
			 false);
	fake_model_config.states = true;
	expect_proposals(&(struct engine_options){.case_dir = "step",
						  .draft_case_dir = "mtp",
						  .speculation = ENGINE_SPECULATE_MODEL},
			 true);
}

static void *free_engine(void *engine)
{
	engine_free(engine);
	return NULL;
}

/* A cancelled request, and an engine that ends, wait for no mask but the one at hand. */
TEST(ends_with_masks_to_come)
{
	struct engine_sampling s = greedy(50);
	struct engine_request *r[12];
	int32_t prompt[] = {5, 3, 8};
	pthread_t ending;
	struct engine *e;

	sem_init(&go_on, 0, 0);
	e = open_engine(&(struct engine_options){0});
	for (unsigned i = 0; i < 12; i++) {
		r[i] = new_request(prompt, 3, &s, false);
		constrain(r[i], i, 20)->wait = wait_to_go_on;
		submit(e, r[i]);
	}
	for (unsigned i = 0; i < 6; i++)
		engine_cancel(e, r[i]);
	wait_finished(e, 6);
	for (unsigned i = 0; i < 6; i++)
		expect_finish(r[i], ENGINE_FINISH_CANCELLED);
	/* Until the engine stops, each mask that comes lets its sequence ask for the next. */
	assert_int_equal(pthread_create(&ending, NULL, free_engine, e), 0);
	while (pthread_tryjoin_np(ending, NULL)) {
		sem_post(&go_on);
		sched_yield();
	}
	for (unsigned i = 0; i < 12; i++)
		assert_int_not_equal(atomic_load(&r[i]->finish), ENGINE_RUNNING);
	assert_int_equal(atomic_load(&fake_model_violations), 0);
	sem_destroy(&go_on);
}

/* A deadline passes while nothing runs and a mask is late. */
TEST(deadlines_wait_for_no_mask)
{
	struct engine_sampling s = greedy(50);
	int32_t prompt[] = {5, 3, 8};
	struct engine_request *r;
	struct engine *e;

	sem_init(&go_on, 0, 0);
	e = open_engine(&(struct engine_options){0});
	r = new_request(prompt, 3, &s, false);
	constrain(r, 1, 20)->wait = wait_to_go_on;
	r->deadline_ns = clock_ns() + 20000000;
	submit(e, r);
	wait_finished(e, 1);
	expect_finish(r, ENGINE_FINISH_TIMEOUT);
	assert_int_equal(atomic_load(&r->n_tokens), 0);
	sem_post(&go_on);
	close_engine(e);
	sem_destroy(&go_on);
}

/* Where a constraint allows everything, as it does while the model reasons, min_tokens holds. */
TEST(least_tokens_hold_beside_masks)
{
	struct engine_sampling s = greedy(40);
	int32_t prompt[] = {5, 3, 8};
	struct engine_request *alone, *r;
	struct engine *e = open_engine(&(struct engine_options){0});

	r = run_new(e, prompt, 3, &s);
	s.stop_tokens[s.n_stop_tokens++] = r->tokens[2];
	s.ignore_eos = false;
	s.min_tokens = 30;
	alone = run_new(e, prompt, 3, &s);
	r = new_request(prompt, 3, &s, false);
	constrain(r, 1, 100)->free = true;
	run(e, r);
	assert_in_range(atomic_load(&r->n_tokens), 30, 40);
	assert_int_equal(atomic_load(&r->n_tokens), atomic_load(&alone->n_tokens));
	assert_memory_equal(r->tokens, alone->tokens,
			    atomic_load(&r->n_tokens) * sizeof(*r->tokens));
	close_engine(e);
}

/* ---- the same tokens ------------------------------------------------------------------------- */

static struct engine_request *other; /* makes the model run until it ends */

/*
 * Waits until the model has run twice more, so that the row is there before the mask; not for long,
 * as the one sequence that makes it run may wait for blocks of those whose masks are late.
 */
static void wait_for_launches(struct test_constraint *c)
{
	unsigned before = atomic_load(&fake_model_launches);
	struct timespec t = {0, 10000};

	for (unsigned i = 0; i < 100 && (c->n + c->key) % 3 && !atomic_load(&other->finish) &&
			     atomic_load(&fake_model_launches) - before < 2;
	     i++)
		nanosleep(&t, NULL);
}

#define N_LATE 8

/* A mix of constrained requests; @late: their masks come late. tokens [N_LATE][40]. */
static void run_mix(const struct engine_options *options, bool late, int32_t (*tokens)[40],
		    unsigned *n_tokens)
{
	struct engine *e = open_engine(options);
	struct engine_sampling s = greedy(240);
	struct engine_request *r[N_LATE];
	int32_t prompt[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
	struct engine_stats stats;

	other = submit_new(e, prompt, 3, &s);
	for (unsigned i = 0; i < N_LATE; i++) {
		s = greedy(10 + 4 * i);
		s.temperature = (float)(i % 3);
		s.seed = i;
		r[i] = new_request(prompt + i / 2, 3 + i / 3, &s, false);
		constrain(r[i], i, i % 2 ? 20 : 10 + 4 * i)->wait = late ? wait_for_launches : NULL;
		submit(e, r[i]);
	}
	wait_finished(e, N_LATE + 1);
	expect_greedy(other);
	for (unsigned i = 0; i < N_LATE; i++) {
		assert_true(atomic_load(&r[i]->finish) == ENGINE_FINISH_LENGTH ||
			    atomic_load(&r[i]->finish) == ENGINE_FINISH_COMPLETE);
		n_tokens[i] = atomic_load(&r[i]->n_tokens);
		memcpy(tokens[i], r[i]->tokens, n_tokens[i] * sizeof(**tokens));
	}
	close_engine_with_stats(e, &stats);
	printf("%llu steps, %llu preemptions, %llu of %llu proposals stood, %llu bytes read\n",
	       (unsigned long long)stats.steps, (unsigned long long)stats.preemptions,
	       (unsigned long long)stats.accepted_tokens, (unsigned long long)stats.draft_tokens,
	       (unsigned long long)stats.bytes_read);
}

/* Late masks change no token, nor do preemptions and proposals beside them. */
TEST(late_masks_change_nothing)
{
	const struct engine_options options[] = {
		{0},
		{.prefix_caching = true, .max_kv_blocks = 62},
		{.speculation = ENGINE_SPECULATE_MODEL,
		 .draft_case_dir = "draft",
		 .max_kv_blocks = 62},
		{.speculation = ENGINE_SPECULATE_MODEL, .draft_case_dir = "mtp"},
	};
	int32_t alone[N_LATE][40], tokens[N_LATE][40];
	unsigned n_alone[N_LATE], n_tokens[N_LATE];

	fake_model_config.info.max_context = 256;
	fake_model_config.states = true;
	run_mix(&options[0], false, alone, n_alone);
	for (unsigned i = 0; i < 4; i++) {
		run_mix(&options[i], true, tokens, n_tokens);
		for (unsigned k = 0; k < N_LATE; k++) {
			assert_int_equal(n_tokens[k], n_alone[k]);
			assert_memory_equal(tokens[k], alone[k], n_tokens[k] * sizeof(**tokens));
		}
	}
}

/* ---- shares ---------------------------------------------------------------------------------- */

#define N_JOBS 20

static atomic_uint n_done;

static void count_done(void *arg)
{
	atomic_fetch_add(&n_done, 1);
}

static sem_t others_began;

static void tell_that_it_began(struct test_constraint *c)
{
	sem_post(&others_began);
}

/* However many jobs of one user wait, and however long they take, another's goes at once. */
TEST(users_share_workers)
{
	struct engine_sampling s = greedy(1);
	struct mask_job jobs[N_JOBS + 1] = {0};
	struct mask_workers *w;
	struct timespec limit;
	int32_t prompt = 1;

	sem_init(&go_on, 0, 0);
	sem_init(&others_began, 0, 0);
	atomic_store(&n_waits, 0);
	atomic_store(&n_done, 0);
	assert_int_equal(mask_workers_new(N_JOBS + 1, count_done, NULL, &w), 0);
	for (unsigned i = 0; i <= N_JOBS; i++) {
		struct engine_request *r = new_request(&prompt, 1, &s, false);

		r->uid = 1000 + i / N_JOBS;
		constrain(r, 0, 10)->wait = i < N_JOBS ? wait_to_go_on : tell_that_it_began;
		jobs[i].request = r;
		jobs[i].token = -1;
		mask_workers_submit(w, &jobs[i]);
	}
	clock_gettime(CLOCK_REALTIME, &limit);
	limit.tv_sec += 20;
	assert_int_equal(sem_timedwait(&others_began, &limit), 0);
	for (unsigned i = 0; i < N_JOBS; i++)
		sem_post(&go_on);
	for (unsigned i = 0; i <= N_JOBS; i++) {
		while (!mask_workers_wait(w, &jobs[i], 0))
			sched_yield();
		assert_int_equal(jobs[i].error, 0);
		assert_false(jobs[i].over);
		assert_int_not_equal(jobs[i].mask.n, 0);
		mask_workers_end(w, &jobs[i]);
	}
	mask_workers_free(w);
	assert_int_equal(atomic_load(&n_done), N_JOBS + 1);
	sem_destroy(&go_on);
	sem_destroy(&others_began);
}

TEST_MAIN_EACH(small_model, drop_requests)
