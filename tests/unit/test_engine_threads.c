// SPDX-License-Identifier: MIT
/* The engine among threads, and what it costs. */
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "engine_fixture.h"

struct sender {
	struct engine *e;
	struct engine_request *requests[40];
};

static void *send_all(void *arg)
{
	struct sender *sender = arg;
	char err[256];

	for (unsigned i = 0; i < 40; i++) {
		if (engine_submit(sender->e, sender->requests[i], err, sizeof(err)))
			return arg;
		if (i % 5 == 4)
			engine_cancel(sender->e, sender->requests[i - 2]);
		if (i % 8 == 0)
			usleep(200);
	}
	return NULL;
}

static void *read_stats(void *arg)
{
	struct engine_stats stats = {0};
	uint64_t finished = 0, steps = 0;

	while (finished < 120) {
		engine_stats(arg, &stats);
		finished = 0;
		for (unsigned i = 0; i < 5; i++)
			finished += stats.finished[i];
		if (stats.steps < steps)
			break;
		steps = stats.steps;
		usleep(100);
	}
	return NULL;
}

/* Several threads submit and cancel while one takes the news, token by token, and another reads the
 * counters. */
TEST(works_with_threads)
{
	struct engine *e = open_engine(&(struct engine_options){.prefix_caching = true});
	struct sender senders[3];
	pthread_t threads[3], reader;
	void *failed;

	for (unsigned i = 0; i < 3; i++) {
		senders[i].e = e;
		for (unsigned j = 0; j < 40; j++) {
			struct engine_sampling s = greedy(1 + (i + j) % 30);
			int32_t prompt[20];

			random_prompt(prompt, 20);
			senders[i].requests[j] = new_request(prompt, 1 + j % 20, &s, false);
			senders[i].requests[j]->uid = i;
		}
		assert_int_equal(pthread_create(&threads[i], NULL, send_all, &senders[i]), 0);
	}
	assert_int_equal(pthread_create(&reader, NULL, read_stats, e), 0);
	wait_finished(e, 120);
	assert_int_equal(pthread_join(reader, NULL), 0);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(pthread_join(threads[i], &failed), 0);
		assert_null(failed);
		for (unsigned j = 0; j < 40; j++) {
			struct engine_request *r = senders[i].requests[j];

			if (atomic_load(&r->finish) != ENGINE_FINISH_CANCELLED)
				assert_int_equal(atomic_load(&r->n_tokens), r->sampling.max_tokens);
			expect_greedy(r);
		}
	}
	close_engine(e);
}

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

TEST(idles_for_free)
{
	struct engine *e = open_engine(&(struct engine_options){0});
	uint64_t start;

	usleep(20000);
	start = cpu_ns();
	usleep(300000);
	assert_true(cpu_ns() - start < 5000000);
	close_engine(e);
}

/* Host time a step while @n sequences decode, and that none of it allocates. */
static void measure(unsigned n)
{
	struct engine_sampling s = greedy(400);
	struct engine_request *r[64];
	struct engine_stats stats;
	struct engine *e;
	int32_t prompt[32];
	unsigned before;

	fake_model_config.info.max_seqs = fake_model_config.info.max_rows = 64;
	fake_model_config.info.max_context = 4096;
	fake_model_config.info.block_size = 32;
	fake_model_config.info.kv_blocks = 4096;
	fake_model_config.info.vocab = 4096;
	fake_model_config.info.topk = 64;
	fake_model_config.info.tp = 1;
	fake_model_config.cheap = true;
	e = open_engine(&(struct engine_options){.prefix_caching = true});
	random_prompt(prompt, 32);
	/* Half of them sample. */
	for (unsigned i = 0; i < n; i++) {
		s.temperature = i % 2 ? 0.8f : 0;
		s.top_k = i % 4 == 1 ? 20 : 0;
		s.seed = i;
		s.ignore_eos = true;
		r[i] = new_request(prompt, 32, &s, false);
	}
	for (unsigned i = 0; i < n; i++)
		submit(e, r[i]);
	before = atomic_load(&engine_allocations);
	wait_finished(e, n);
	assert_int_equal(atomic_load(&engine_allocations), before);
	usleep(2000);
	engine_stats(e, &stats);
	printf("%2u sequences: %.2f us of host time a step (%llu steps)\n", n,
	       (double)stats.host_ns / 1000 / (double)stats.steps, (unsigned long long)stats.steps);
	close_engine(e);
}

TEST(costs_little)
{
	measure(1);
	measure(16);
	measure(64);
}

TEST_MAIN_EACH(small_model, drop_requests)
