// SPDX-License-Identifier: MIT
/* What requests give among others is what they give alone; with proposals, too. */
#include <errno.h>
#include <unistd.h>

#include "engine_fixture.h"

static struct engine_sampling random_sampling(void)
{
	static const float temperatures[] = {0, 1, 0.8f, 1.5f};
	static struct engine_bias biases[2];
	struct engine_sampling s = greedy(1 + (unsigned)rand() % 40);

	s.temperature = temperatures[rand() % 4];
	s.top_k = rand() % 2 ? rand() % 20 : 0;
	s.top_p = rand() % 2 ? 0.9f : 1;
	s.min_p = rand() % 4 ? 0 : 0.05f;
	s.seed = (uint64_t)rand();
	s.logprobs = rand() % 4 - 1;
	s.n_stop_tokens = (unsigned)rand() % 2;
	s.stop_tokens[0] = rand() % 97;
	s.min_tokens = (unsigned)rand() % 10;
	if (rand() % 3 == 0) {
		s.repetition_penalty = rand() % 2 ? 1.3f : 1;
		s.presence_penalty = rand() % 2 ? 0.5f : 0;
		s.frequency_penalty = rand() % 2 ? 0.25f : -0.1f;
	}
	if (rand() % 3 == 0) {
		biases[0] = (struct engine_bias){rand() % 48, (float)(rand() % 8) - 4};
		biases[1] = (struct engine_bias){48 + rand() % 49, (float)(rand() % 8) - 4};
		s.biases = biases;
		s.n_biases = 2;
	}
	return s;
}

static void assert_same(const struct engine_request *r, const struct engine_request *alone)
{
	unsigned n = atomic_load(&r->n_tokens);

	if (atomic_load(&r->finish) == ENGINE_FINISH_CANCELLED) {
		assert_true(n <= atomic_load(&alone->n_tokens));
	} else {
		expect_finish(r, atomic_load(&alone->finish));
		assert_int_equal(n, atomic_load(&alone->n_tokens));
		if (r->prompt_lp)
			assert_memory_equal(r->prompt_lp + 1, alone->prompt_lp + 1,
					    (r->n_prompt - 1) * sizeof(float));
	}
	assert_memory_equal(r->tokens, alone->tokens, n * sizeof(int32_t));
	if (r->logprobs)
		assert_memory_equal(r->logprobs, alone->logprobs, n * sizeof(*r->logprobs));
	if (r->top)
		assert_memory_equal(r->top, alone->top,
				    n * (unsigned)r->sampling.logprobs * sizeof(*r->top));
}

static struct engine_options random_options(unsigned round)
{
	static const unsigned budgets[] = {1, 7, 64, 256};

	return (struct engine_options){
		.max_num_batched_tokens = budgets[round / 4 % 4],
		.max_num_seqs = 1 + (unsigned)rand() % 20,
		.max_kv_blocks = 32 + (unsigned)rand() % 40 + (round % 4 ? 0 : 200),
		.prefix_caching = round % 3 != 0,
		.max_stall_ms = round % 5 == 0,
		.max_decode_ms = round == 3,
		.fair_time = round % 2 == 0,
		.speculation = round % 2   ? ENGINE_SPECULATE_NOT
			       : round % 4 ? ENGINE_SPECULATE_NGRAM
					   : ENGINE_SPECULATE_MODEL,
		.draft_case_dir = round % 4 ? NULL : "draft",
		.speculative_tokens = 1 + round % 5,
		.speculative_max_seqs = 64,
	};
}

/* Two equal requests, one of them to run alone. */
static void random_pair(int32_t prompts[4][MAX_PROMPT], struct engine_request **alone,
			struct engine_request **shared)
{
	struct engine_sampling s = random_sampling();
	int32_t *prompt = prompts[rand() % 4], last;
	unsigned n = 1 + (unsigned)rand() % MAX_PROMPT;
	bool prompt_lp = rand() % 5 == 0;

	last = prompt[n - 1];
	prompt[n - 1] = rand() % 97;
	*alone = new_request(prompt, n, &s, prompt_lp);
	*shared = new_request(prompt, n, &s, prompt_lp);
	prompt[n - 1] = last;
	if (rand() % 3 == 0) {
		unsigned key = (unsigned)rand() % 100, length = (unsigned)rand() % 30;

		constrain(*alone, key, length);
		constrain(*shared, key, length);
	}
	/* One has many. */
	(*shared)->uid = rand() % 6 ? 0 : (uid_t)rand() % 3;
	(*shared)->priority = rand() % 3;
}

/*
 * Random requests under KV pressure, with shared prefixes, priorities, users, chunks of all sizes
 * and random cancellations: each gives what it gives alone. Limits of step and cache change with
 * each round.
 */
TEST(company_changes_nothing)
{
	enum { REQUESTS = 60 };
	static int32_t prompts[4][MAX_PROMPT];
	struct engine_request *alone[REQUESTS], *shared[REQUESTS];
	uint64_t preemptions = 0, hits = 0, cancelled = 0, limited = 0, accepted = 0;

	srand(13);
	for (unsigned i = 0; i < 4; i++)
		random_prompt(prompts[i], MAX_PROMPT);
	for (unsigned round = 0; round < 24; round++) {
		struct engine_options options = random_options(round);
		struct engine *e = open_engine(&(struct engine_options){.max_num_seqs = 1});
		struct engine_stats stats;

		for (unsigned i = 0; i < REQUESTS; i++) {
			random_pair(prompts, &alone[i], &shared[i]);
			run(e, alone[i]);
		}
		close_engine(e);
		/* Decodes that take too long take turns. */
		fake_model_config.delay_us = options.max_decode_ms ? 1010 : 0;
		e = open_engine(&options);
		fake_model_config.delay_us = 0;
		for (unsigned i = 0; i < REQUESTS; i++) {
			submit(e, shared[i]);
			if (rand() % 8 == 0)
				engine_cancel(e, shared[(unsigned)rand() % (i + 1)]);
			if (rand() % 4 == 0)
				usleep((unsigned)rand() % 300);
		}
		wait_finished(e, REQUESTS);
		for (unsigned i = 0; i < REQUESTS; i++)
			assert_same(shared[i], alone[i]);
		engine_stats(e, &stats);
		preemptions += stats.preemptions;
		hits += stats.prefix_hits;
		cancelled += stats.finished[ENGINE_FINISH_CANCELLED];
		limited += stats.limited_steps;
		accepted += stats.accepted_tokens;
		close_engine(e);
	}
	printf("%llu preemptions, %llu cached tokens, %llu cancelled, %llu limited steps, %llu "
	       "proposals stood\n",
	       (unsigned long long)preemptions, (unsigned long long)hits,
	       (unsigned long long)cancelled, (unsigned long long)limited,
	       (unsigned long long)accepted);
	assert_true(preemptions > 20 && hits > 100 && cancelled > 10 && limited > 0 &&
		    accepted > 20);
}

/* ---- the model's own layer proposes ---------------------------------------------------------- */

/* What it proposes is what the model says, so everything stands, whatever happens around it. */
TEST(predicts_further_tokens)
{
	enum { REQUESTS = 24 };
	struct engine_options o = {
		.case_dir = "step",
		.draft_case_dir = "mtp",
		.speculation = ENGINE_SPECULATE_MODEL,
		.speculative_tokens = 3,
		.speculative_max_seqs = 64,
		.max_num_batched_tokens = 24,
		.max_num_seqs = 8,
		.max_kv_blocks = 30,
		.prefix_caching = true,
	};
	struct engine_request *alone[REQUESTS], *r[REQUESTS];
	struct engine_stats stats;
	struct engine_sampling s;
	int32_t prompt[MAX_PROMPT];
	struct engine *e;

	random_prompt(prompt, MAX_PROMPT);
	fake_model_config.states = true;
	e = open_engine(&(struct engine_options){.case_dir = "step"});
	for (unsigned i = 0; i < REQUESTS; i++) {
		s = greedy(1 + i);
		s.temperature = i % 3 ? 1 : 0;
		s.seed = i;
		alone[i] = run_new(e, prompt, 1 + i * 4 % 90, &s);
	}
	close_engine(e);
	e = open_engine(&o);
	for (unsigned i = 0; i < REQUESTS; i++)
		r[i] = submit_new(e, prompt, alone[i]->n_prompt, &alone[i]->sampling);
	wait_finished(e, REQUESTS);
	for (unsigned i = 0; i < REQUESTS; i++) {
		assert_int_equal(atomic_load(&r[i]->n_tokens), 1 + i);
		assert_memory_equal(r[i]->tokens, alone[i]->tokens, (1 + i) * sizeof(int32_t));
	}
	close_engine_with_stats(e, &stats);
	printf("%llu proposals, %llu stood, %llu preemptions\n",
	       (unsigned long long)stats.draft_tokens, (unsigned long long)stats.accepted_tokens,
	       (unsigned long long)stats.preemptions);
	assert_true(stats.draft_tokens > 80);
	assert_int_equal(stats.accepted_tokens, stats.draft_tokens);
}

/* While too many run, nothing is proposed; whom that left behind goes on without. */
TEST(proposes_again_after_a_flood)
{
	struct engine_options o = {
		.case_dir = "step",
		.draft_case_dir = "mtp",
		.speculation = ENGINE_SPECULATE_MODEL,
		.speculative_max_seqs = 2,
	};
	struct engine_sampling s = greedy(40);
	struct engine_request *r[6];
	struct engine_stats flooded, stats;
	int32_t prompt[20];
	struct engine *e;

	fake_model_config.states = true;
	random_prompt(prompt, 20);
	e = open_engine(&o);
	for (unsigned i = 0; i < 6; i++)
		r[i] = submit_new(e, prompt, 5 + i, &s);
	wait_finished(e, 6);
	engine_stats(e, &flooded);
	for (unsigned i = 0; i < 6; i++)
		expect_greedy(r[i]);
	r[0] = run_new(e, prompt, 20, &s);
	expect_greedy(r[0]);
	close_engine_with_stats(e, &stats);
	assert_true(stats.accepted_tokens - flooded.accepted_tokens > 20);
	assert_int_equal(stats.accepted_tokens, stats.draft_tokens);
}

TEST(refuses_a_layer_alone)
{
	struct engine_options o = {.case_dir = "mtp"};
	char err[256] = "";
	struct engine *e;

	assert_int_equal(engine_new(fake_group(0), &o, &e, err, sizeof(err)), -EINVAL);
	assert_says(err, "--mtp");
	o = (struct engine_options){
		.case_dir = "step", .draft_case_dir = "mtp", .speculation = ENGINE_SPECULATE_MODEL};
	assert_int_equal(engine_new(fake_group(0), &o, &e, err, sizeof(err)), -EINVAL);
	assert_says(err, "--states");
	assert_int_equal(atomic_load(&fake_model_loaded), 0);
}

TEST_MAIN_EACH(small_model, drop_requests)
