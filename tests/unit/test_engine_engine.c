// SPDX-License-Identifier: MIT
/* The engine over a model without a chip (fake_model.h): what requests give. */
#include <errno.h>
#include <math.h>

#include "engine_fixture.h"

/* ---- results --------------------------------------------------------------------------------- */

TEST(stops)
{
	struct engine *e = open_engine(&(struct engine_options){0});
	struct engine_sampling s = greedy(20);
	int32_t prompt[] = {5, 6, 7, 8, 9};
	struct engine_request *r = run_new(e, prompt, 5, &s), *again;

	expect_finish(r, ENGINE_FINISH_LENGTH);
	assert_int_equal(atomic_load(&r->n_tokens), 20);
	expect_greedy(r);
	assert_true(r->queued_ns <= r->started_ns && r->started_ns < r->first_token_ns &&
		    r->first_token_ns < r->last_token_ns);
	s.n_stop_tokens = 1;
	s.stop_tokens[0] = r->tokens[4];
	again = run_new(e, prompt, 5, &s);
	expect_finish(again, ENGINE_FINISH_STOP);
	assert_true(atomic_load(&again->n_tokens) <= 5);
	assert_int_equal(again->tokens[atomic_load(&again->n_tokens) - 1], r->tokens[4]);

	s.ignore_eos = true;
	again = run_new(e, prompt, 5, &s);
	expect_finish(again, ENGINE_FINISH_LENGTH);
	assert_memory_equal(again->tokens, r->tokens, 20 * sizeof(int32_t));

	s.ignore_eos = false;
	s.min_tokens = 10;
	again = run_new(e, prompt, 5, &s);
	for (unsigned i = 0; i < 10; i++)
		assert_int_not_equal(again->tokens[i], r->tokens[4]);
	close_engine(e);
}

TEST(ends_at_the_context)
{
	struct engine *e = open_engine(&(struct engine_options){0});
	struct engine_sampling s = greedy(1000);
	struct engine_limits limits;
	int32_t prompt[200];
	char err[256] = "";
	struct engine_request *r;

	random_prompt(prompt, 129);
	engine_limits(e, &limits);
	assert_int_equal(limits.max_context, 128);
	for (unsigned n = 100; n <= 128; n += 14) {
		r = run_new(e, prompt, n, &s);
		expect_finish(r, ENGINE_FINISH_LENGTH);
		assert_int_equal(atomic_load(&r->n_tokens), n < 128 ? 128 - n : 1);
		expect_greedy(r);
	}
	r = new_request(prompt, 129, &s, false);
	assert_int_equal(engine_submit(e, r, err, sizeof(err)), -E2BIG);
	assert_says(err, "129");
	assert_says(err, "128");
	close_engine(e);

	/* The whole cache is a limit of the context, too. */
	e = open_engine(&(struct engine_options){.max_kv_blocks = 5});
	engine_limits(e, &limits);
	assert_int_equal(limits.max_context, 20);
	r = run_new(e, prompt, 7, &s);
	assert_int_equal(atomic_load(&r->n_tokens), 13);
	expect_greedy(r);
	close_engine(e);
}

/*
 * A long sequence makes the block table wide. The model refuses a launch for which more of it was
 * written than the sequences use.
 */
TEST(writes_used_blocks_alone)
{
	struct engine_sampling s = greedy(20);
	struct engine_request *r[16];
	int32_t prompt[1000];
	struct engine *e;

	fake_model_config.info.max_context = 1024;
	e = open_engine(&(struct engine_options){0});
	random_prompt(prompt, 1000);
	for (unsigned i = 0; i < 16; i++)
		r[i] = submit_new(e, prompt + i, i ? 1 + i : 1000, &s);
	wait_finished(e, 16);
	for (unsigned i = 0; i < 16; i++) {
		expect_finish(r[i], ENGINE_FINISH_LENGTH);
		if (i)
			expect_greedy(r[i]);
	}
	close_engine(e);
}

/* Bytes of outputs that a request of ten tokens has read from the chip. */
static uint64_t bytes_read(const struct engine_sampling *s, bool prompt_logprobs)
{
	struct engine *e = open_engine(&(struct engine_options){0});
	int32_t prompt[] = {5, 3, 8};
	struct engine_request *r = new_request(prompt, 3, s, prompt_logprobs);
	struct engine_stats stats;

	run(e, r);
	assert_int_equal(atomic_load(&r->n_tokens), 10);
	close_engine_with_stats(e, &stats);
	return stats.bytes_read;
}

/* Rows of logits stay on the chip unless a request cannot do without. */
TEST(reads_candidates_alone)
{
	const struct engine_bias bias[] = {{7, 1}, {9, -1}};
	uint64_t candidates = 8 * 8 + 4, row = 97 * 4;
	struct engine_sampling s = greedy(10);

	assert_int_equal(bytes_read(&s, false), 10 * candidates);
	s.logprobs = 8; /* as many as there are candidates */
	assert_int_equal(bytes_read(&s, false), 10 * candidates);
	s.logprobs = 9;
	assert_int_equal(bytes_read(&s, false), 10 * (candidates + row));
	s = greedy(10);
	s.temperature = 1;
	s.top_k = 5;
	assert_int_equal(bytes_read(&s, false), 10 * candidates);
	s = greedy(10);
	s.biases = bias;
	s.n_biases = 2;
	assert_int_equal(bytes_read(&s, false), 10 * (candidates + 2 * 4));
	/* Two rows of the prompt, each for one logprob. */
	s = greedy(10);
	assert_in_range(bytes_read(&s, true), 12 * candidates, 12 * candidates + 2 * 4);
	/* The draw may be any token. */
	s.temperature = 100;
	assert_in_range(bytes_read(&s, false), 10 * candidates + row, 10 * (candidates + row));
}

TEST(refuses_bad_requests)
{
	struct engine *e = open_engine(&(struct engine_options){0});
	struct engine_sampling s = greedy(4);
	int32_t prompt[] = {1, 97, 2};
	struct engine_request *r;

	expect_refusal(e, new_request(prompt, 0, &s, true), -EINVAL, "");
	expect_refusal(e, new_request(prompt, 3, &s, false), -EINVAL, "97");
	s.top_p = 2;
	expect_refusal(e, new_request(prompt, 1, &s, false), -EINVAL, "");
	s = greedy(UINT32_MAX);
	s.logprobs = 20;
	assert_int_equal(engine_request_new(prompt, 1, &s, false, &r), -E2BIG);
	close_engine(e);
}

TEST(gives_logprobs)
{
	struct engine *e = open_engine(&(struct engine_options){.prefix_caching = true});
	struct engine_sampling s = greedy(6);
	int32_t prompt[70], all[80];
	float logits[97];
	struct engine_request *r, *beside;

	random_prompt(prompt, 70);
	s.logprobs = 12; /* more than the device's list */
	for (unsigned pass = 0; pass < 2; pass++) {
		r = new_request(prompt, 70, &s, true);
		s.logprobs = -1;
		beside = new_request(prompt, 9, &s, false);
		s.logprobs = 12;
		submit(e, beside);
		submit(e, r);
		wait_finished(e, 2);
		assert_int_equal(r->cached_tokens, 0); /* rows of all its tokens are wanted */
		memcpy(all, prompt, sizeof(prompt));
		memcpy(all + 70, r->tokens, 6 * sizeof(*all));
		assert_true(isnan(r->prompt_lp[0]));
		for (unsigned i = 1; i < 76; i++) {
			double sum = 0;
			float logprob = i < 70 ? r->prompt_lp[i] : r->logprobs[i - 70].logprob;

			fake_model_logits(all, i, logits);
			for (unsigned t = 0; t < 97; t++)
				sum += exp((double)logits[t]);
			assert_true(fabs(logits[all[i]] - log(sum) - logprob) < 1e-5);
			if (i < 70) {
				const struct engine_logprob *top = &r->prompt_top[i * 12];

				for (unsigned j = 0; j < 12; j++)
					assert_true(fabs(logits[top[j].token] - log(sum) -
							 top[j].logprob) < 1e-5 &&
						    top[j].logprob <= top[j - (j > 0)].logprob);
				for (unsigned t = 0; t < 97; t++)
					assert_true(logits[t] <= logits[top[0].token]);
				continue;
			}
			assert_int_equal(r->logprobs[i - 70].token, all[i]);
			assert_int_equal(r->top[(i - 70) * 12].token, all[i]);
			for (unsigned j = 1; j < 12; j++)
				assert_true(r->top[(i - 70) * 12 + j].logprob <=
					    r->top[(i - 70) * 12 + j - 1].logprob);
		}
	}
	close_engine(e);
}

TEST(reuses_prefixes)
{
	struct engine *e = open_engine(&(struct engine_options){.prefix_caching = true});
	struct engine_sampling s = greedy(10);
	struct engine_request *r;
	struct engine_stats stats;
	int32_t prompt[40];

	random_prompt(prompt, 40);
	for (unsigned pass = 0; pass < 4; pass++) {
		/* A whole number of blocks, so that the last one has to be computed again. */
		r = new_request(prompt, 40, &s, false);
		r->uid = pass == 2 ? 1001 : 1000;
		if (pass == 3)
			prompt[17] ^= 1;
		run(e, r);
		expect_greedy(r);
		assert_int_equal(r->cached_tokens, pass == 1 || pass == 3 ? 36 : 0);
	}
	r = new_request(prompt, 40, &s, false);
	r->uid = 1000;
	run(e, r);
	expect_greedy(r);
	assert_int_equal(r->cached_tokens, 16);
	/* With a salt the user finds what it asked with this salt, and nothing else. */
	for (unsigned pass = 0; pass < 4; pass++) {
		r = new_request(prompt, 40, &s, false);
		r->uid = 1000;
		r->salt = pass < 2 ? 5 : pass < 3 ? 7 : 0;
		run(e, r);
		expect_greedy(r);
		assert_int_equal(r->cached_tokens, pass == 1 || pass == 3 ? 36 : 0);
	}
	close_engine(e);
	e = open_engine(&(struct engine_options){.prefix_caching = false});
	for (unsigned pass = 0; pass < 2; pass++) {
		r = run_new(e, prompt, 40, &s);
		assert_int_equal(r->cached_tokens, 0);
	}
	engine_stats(e, &stats);
	assert_int_equal(stats.prefix_queries, 0);
	close_engine(e);
}

TEST(keeps_to_constraints)
{
	struct engine *e = open_engine(&(struct engine_options){0});
	struct engine_sampling s = greedy(20);
	int32_t prompt[] = {5, 6, 7, 8, 9};
	struct engine_request *r;

	s.temperature = 1;
	for (unsigned key = 0; key < 20; key++) {
		s.seed = key;
		s.min_tokens = key % 4;
		r = new_request(prompt, 5, &s, false);
		constrain(r, key, key < 10 ? 6 : 100);
		run(e, r);
		expect_finish(r, key < 10 ? ENGINE_FINISH_COMPLETE : ENGINE_FINISH_LENGTH);
		assert_int_equal(atomic_load(&r->n_tokens), key < 10 ? 6 : 20);
	}
	/* Stop tokens come where the form may end, and nowhere else. */
	s.n_stop_tokens = 1;
	for (unsigned key = 0; key < 20; key++) {
		struct engine_bias bias = {3, 50};
		unsigned n;

		s.seed = key;
		s.min_tokens = 0;
		s.stop_tokens[0] = 3;
		s.biases = &bias;
		s.n_biases = 1;
		r = new_request(prompt, 5, &s, false);
		constrain(r, key, 100)->list = key % 3;
		run(e, r);
		n = atomic_load(&r->n_tokens);
		expect_finish(r, ENGINE_FINISH_STOP);
		assert_int_equal(r->tokens[n - 1], 3);
		assert_true(n == 4 || ((unsigned)3 * 7 + (n - 1) * 5 + key) % 3 != 0);
	}
	/* What goes wrong ends the request with words. */
	s = greedy(20);
	for (unsigned i = 0; i < 2; i++) {
		struct test_constraint *c;

		r = new_request(prompt, 5, &s, false);
		c = constrain(r, 1, 100);
		c->fail_mask_at = i ? 0 : 3;
		c->fail_accept_at = i ? 3 : 0;
		run(e, r);
		expect_finish(r, ENGINE_FINISH_ERROR);
		assert_int_equal(r->error, -EPROTO);
		assert_string_equal(r->error_text, "the test's constraint fails");
	}
	close_engine(e);
}

/* A penalty and a bias have the effect they are for. */
TEST(penalties_and_biases_work)
{
	struct engine *e = open_engine(&(struct engine_options){0});
	struct engine_sampling s = greedy(40);
	struct engine_bias biases[2] = {{50, 100}, {51, -100}};
	int32_t prompt[] = {5, 6, 7, 8, 9};
	unsigned seen[97] = {0};
	struct engine_request *r;

	s.biases = biases;
	s.n_biases = 2;
	r = run_new(e, prompt, 5, &s);
	for (unsigned i = 0; i < 40; i++)
		assert_int_equal(r->tokens[i], 50);
	/* Whoever came does not come again. */
	s.n_biases = 0;
	s.presence_penalty = 100;
	r = run_new(e, prompt, 5, &s);
	for (unsigned i = 0; i < 40; i++)
		assert_int_equal(seen[r->tokens[i]]++, 0);
	/* Nor does what the prompt had. */
	s.presence_penalty = 0;
	s.repetition_penalty = 1000;
	r = run_new(e, prompt, 5, &s);
	for (unsigned i = 0; i < 40; i++)
		assert_true(r->tokens[i] < 5 || r->tokens[i] > 9);
	close_engine(e);
}

TEST_MAIN_EACH(small_model, drop_requests)
