// SPDX-License-Identifier: MIT
/* Requests that go on from one prompt, and beam search: what they give, and what is computed. */
#include <errno.h>

#include "beam.h"
#include "engine_fixture.h"

#define N	4
#define MAX_NEW 24

static struct engine_request *choice(const int32_t *prompt, unsigned n, unsigned i,
				     bool constrained)
{
	struct engine_sampling s = greedy(MAX_NEW - 2 * (i == 1));
	struct engine_request *r;

	s.temperature = 1;
	s.seed = 100 + i;
	s.logprobs = 2;
	s.repetition_penalty = 1.1f;
	r = new_request(prompt, n, &s, true);
	if (constrained)
		constrain(r, i, 20 + i);
	return r;
}

static void expect_same(const struct engine_request *a, const struct engine_request *b)
{
	unsigned n = atomic_load(&a->n_tokens);

	expect_finish(b, atomic_load(&a->finish));
	assert_int_equal(atomic_load(&b->n_tokens), n);
	assert_memory_equal(b->tokens, a->tokens, n * sizeof(*a->tokens));
	assert_memory_equal(b->logprobs, a->logprobs, n * sizeof(*a->logprobs));
	assert_memory_equal(b->top, a->top, 2 * n * sizeof(*a->top));
	assert_memory_equal(b->prompt_lp + 1, a->prompt_lp + 1,
			    (a->n_prompt - 1) * sizeof(*a->prompt_lp));
	assert_memory_equal(b->prompt_top + 2, a->prompt_top + 2,
			    (a->n_prompt - 1) * 2 * sizeof(*a->prompt_top));
}

/* The choices of a prompt are what they are alone, and the prompt is computed once. */
TEST(forks_are_what_they_are_alone)
{
	const struct engine_options options[] = {
		{0},
		{.prefix_caching = true},
		{.max_kv_blocks = 24},
		{.max_num_seqs = 2},
		{.speculation = ENGINE_SPECULATE_MODEL, .draft_case_dir = "draft"},
	};

	for (unsigned round = 0; round < 10; round++) {
		struct engine_request *alone[N], *r[N];
		const struct engine_options *o = &options[round / 2];
		int32_t prompt[37];
		unsigned n = 30 + round % 4 * 2;
		struct engine_stats stats;
		struct engine *e;

		random_prompt(prompt, n);
		for (unsigned i = 0; i < N; i++) {
			e = open_engine(&(struct engine_options){0});
			alone[i] = choice(prompt, n, i, round % 2);
			run(e, alone[i]);
			close_engine(e);
			r[i] = choice(prompt, n, i, round % 2);
		}
		e = open_engine(o);
		for (unsigned i = N - 1; i > 0; i--) {
			r[i]->fork_next = r[0]->forks;
			r[0]->forks = r[i];
		}
		submit(e, r[0]);
		wait_finished(e, N);
		for (unsigned i = 0; i < N; i++)
			expect_same(alone[i], r[i]);
		close_engine_with_stats(e, &stats);
		assert_int_equal(stats.prompt_tokens, n);
	}
}

/* The chip has the prompt once, and of each fork the last block again at most. */
TEST(prompts_are_computed_once)
{
	struct engine *e = open_engine(&(struct engine_options){0});
	struct engine_sampling s = greedy(8);
	struct engine_request *r[N];
	int32_t prompt[90];
	unsigned before = atomic_load(&fake_model_launch_tokens);

	random_prompt(prompt, 90);
	for (unsigned i = 0; i < N; i++) {
		r[i] = new_request(prompt, 90, &s, false);
		if (i) {
			r[i]->fork_next = r[0]->forks;
			r[0]->forks = r[i];
		}
	}
	submit(e, r[0]);
	wait_finished(e, N);
	assert_in_range(atomic_load(&fake_model_launch_tokens) - before, 90 + N * 7,
			90 + N * 8 + (N - 1) * 3);
	for (unsigned i = 0; i < N; i++)
		expect_greedy(r[i]);
	close_engine(e);
}

/* Whoever ends while the others wait for its prompt, they go on; all or none are taken. */
TEST(leaders_may_end)
{
	struct engine_sampling s = greedy(8);
	int32_t prompt[] = {4, 5, 6};
	char err[256] = "";

	for (unsigned who = 0; who < 3; who++) {
		struct engine *e = open_engine(&(struct engine_options){.max_queue = 3});
		struct engine_request *r[4];

		for (unsigned i = 0; i < 4; i++)
			r[i] = new_request(prompt, 3, &s, false);
		for (unsigned i = 1; i < 4; i++)
			r[i]->fork_next = i < 3 ? r[i + 1] : NULL;
		r[0]->forks = r[1];
		assert_int_equal(engine_submit(e, r[0], err, sizeof(err)), -EAGAIN);
		r[2]->fork_next = NULL;
		engine_cancel(e, r[who]);
		engine_cancel(e, r[2]);
		submit(e, r[0]);
		wait_finished(e, 3);
		for (unsigned i = 0; i < 3; i++) {
			bool ended = i == who || i == 2;

			expect_finish(r[i], ended ? ENGINE_FINISH_CANCELLED : ENGINE_FINISH_LENGTH);
			if (!ended)
				expect_greedy(r[i]);
		}
		close_engine(e);
	}
}

/* ---- beams ----------------------------------------------------------------------------------- */

/* The search by requests of one token for each beam and round. */
static struct beam_search *search_by_requests(const struct beam_options *options,
					      const int32_t *prompt, unsigned n)
{
	struct engine *e = open_engine(&(struct engine_options){0});
	int32_t tokens[ENGINE_MAX_BEAMS][128], before[ENGINE_MAX_BEAMS][128];
	struct engine_sampling s = greedy(1);
	struct beam_search *b = NULL;

	s.logprobs = 2 * (int)options->width;
	assert_int_equal(beam_search_new(options, &b), 0);
	memcpy(tokens[0], prompt, n * sizeof(*prompt));
	while (beam_search_live(b)) {
		const struct engine_logprob *lists[ENGINE_MAX_BEAMS];
		struct engine_request *r[ENGINE_MAX_BEAMS];
		unsigned length = beam_search_length(b), live = beam_search_live(b);

		memcpy(before, tokens, sizeof(tokens));
		for (unsigned i = 0; i < live; i++) {
			if (length) {
				memcpy(tokens[i], before[beam_search_parent(b, i)],
				       sizeof(tokens[i]));
				tokens[i][n + length - 1] = beam_search_token(b, i);
			}
			assert_int_equal(
				engine_request_new(tokens[i], n + length, &s, false, &r[i]), 0);
			run(e, r[i]);
			lists[i] = r[i]->top;
		}
		assert_int_equal(beam_search_step(b, lists, 2 * options->width), 0);
		for (unsigned i = 0; i < live; i++)
			engine_request_unref(r[i]);
	}
	close_engine(e);
	return b;
}

static struct engine_request *new_beams(const int32_t *prompt, unsigned n,
					const struct beam_options *options)
{
	struct engine_request *r = NULL;

	assert_int_equal(engine_beam_new(prompt, n, options, &r), 0);
	drop_later(r);
	return r;
}

static void expect_same_beams(const struct beam_search *a, const struct beam_search *b)
{
	assert_int_equal(beam_search_results(a), beam_search_results(b));
	for (unsigned k = 0; k < beam_search_results(a); k++) {
		struct engine_logprob of_a[MAX_NEW], of_b[MAX_NEW], top_a[2 * MAX_NEW],
			top_b[2 * MAX_NEW];
		int32_t tokens_a[MAX_NEW], tokens_b[MAX_NEW];
		struct beam_result x, y;

		beam_search_result(a, k, &x);
		beam_search_result(b, k, &y);
		assert_int_equal(x.n, y.n);
		assert_true(x.score == y.score && x.stopped == y.stopped);
		beam_search_copy(a, k, tokens_a, of_a, top_a);
		beam_search_copy(b, k, tokens_b, of_b, top_b);
		assert_memory_equal(tokens_a, tokens_b, x.n * sizeof(*tokens_a));
		assert_memory_equal(of_a, of_b, x.n * sizeof(*of_a));
		assert_memory_equal(top_a, top_b, 2 * x.n * sizeof(*top_a));
	}
}

/* Beams give bit by bit what requests of one token give, whatever is beside them. */
TEST(beams_are_exact)
{
	const struct engine_options options[] = {
		{0},
		{.prefix_caching = true},
		{.max_kv_blocks = 24},
		{.max_num_seqs = 3},
		{.speculation = ENGINE_SPECULATE_MODEL, .draft_case_dir = "draft"},
		{.speculation = ENGINE_SPECULATE_MODEL, .draft_case_dir = "mtp"},
	};
	struct engine_sampling s = greedy(30);

	fake_model_config.states = true;
	for (unsigned round = 0; round < 12; round++) {
		struct beam_options o = {
			.width = 1 + round % 6,
			.max_tokens = MAX_NEW - round,
			.n_top = 2,
			.n_stops = 2,
			.stops = {3, 50},
			.length_penalty = 1,
			.stopping = round % 3,
		};
		struct engine_request *r, *other;
		struct engine_stats stats;
		struct beam_search *b;
		int32_t prompt[33];
		unsigned n = 3 + 3 * (round % 10);
		struct engine *e;

		random_prompt(prompt, n);
		b = search_by_requests(&o, prompt, n);
		e = open_engine(&options[round % 6]);
		other = submit_new(e, prompt, 2, &s);
		r = new_beams(prompt, n, &o);
		submit(e, r);
		wait_finished(e, 2);
		expect_finish(r, ENGINE_FINISH_COMPLETE);
		expect_same_beams(b, r->search);
		expect_greedy(other);
		beam_search_free(b);
		close_engine_with_stats(e, &stats);
		assert_int_equal(stats.prompt_tokens, n + 2);
	}
}

/* Searches of several users that take blocks and slots from each other, and are computed again. */
TEST(beams_beside_beams_are_exact)
{
	struct engine_sampling s = greedy(40);

	for (unsigned round = 0; round < 35; round++) {
		const struct engine_options options = {
			.prefix_caching = round % 2,
			.max_kv_blocks = 20 + round % 5 * 4,
			.max_num_seqs = 6 + round % 7,
			.max_num_batched_tokens = 6 + round % 7 + round / 7 % 5,
			.max_stall_ms = 1,
		};
		struct engine_request *r[4], *other[4];
		struct beam_search *b[4];
		struct engine *e;
		int32_t prompt[40];

		random_prompt(prompt, 40);
		for (unsigned i = 0; i < 4; i++) {
			struct beam_options o = {
				.width = 2 + (round + i) % 4,
				.max_tokens = MAX_NEW,
				.n_top = 2,
				.length_penalty = 1,
			};

			b[i] = search_by_requests(&o, prompt + i, 20 + i + round % 8);
			r[i] = new_beams(prompt + i, 20 + i + round % 8, &o);
			other[i] = new_request(prompt, 5 + 5 * i, &s, i % 2);
			r[i]->uid = i;
			other[i]->uid = i / 2;
		}
		e = open_engine(&options);
		for (unsigned i = 0; i < 4; i++) {
			submit(e, r[i]);
			submit(e, other[i]);
		}
		wait_finished(e, 8);
		for (unsigned i = 0; i < 4; i++) {
			expect_finish(r[i], ENGINE_FINISH_COMPLETE);
			expect_same_beams(b[i], r[i]->search);
			expect_greedy(other[i]);
			beam_search_free(b[i]);
		}
		close_engine(e);
	}
}

/* However many beams of a search wait, it is one request in the queue. */
TEST(beams_leave_the_queue_to_others)
{
	const struct beam_options o = {.width = 16, .max_tokens = 80, .length_penalty = 1};
	struct engine *e = open_engine(&(struct engine_options){.max_num_seqs = 3, .max_queue = 3});
	struct engine_sampling s = greedy(8);
	struct engine_request *search, *r[2];
	struct engine_stats stats;
	int32_t prompt[10];

	random_prompt(prompt, 10);
	search = new_beams(prompt, 10, &o);
	submit(e, search);
	do
		engine_stats(e, &stats);
	while (stats.running < 3 && !atomic_load(&search->finish));
	for (unsigned i = 0; i < 2; i++)
		r[i] = submit_new(e, prompt, 5 + i, &s);
	wait_finished(e, 3);
	for (unsigned i = 0; i < 2; i++)
		expect_greedy(r[i]);
	close_engine(e);
}

TEST(beams_may_end)
{
	struct beam_options o = {.width = 8, .max_tokens = 100, .length_penalty = 1};
	int32_t prompt[40];
	char err[256] = "";
	struct engine_request *r[4];
	struct engine *e;

	random_prompt(prompt, 40);
	e = open_engine(&(struct engine_options){0});
	r[0] = new_beams(prompt, 40, &o);
	assert_int_equal(engine_submit(e, r[0], err, sizeof(err)), -E2BIG);
	assert_says(err, "100");
	o.width = ENGINE_MAX_BEAMS + 1;
	assert_int_equal(engine_beam_new(prompt, 40, &o, &r[0]), -E2BIG);
	o.width = 0;
	assert_int_equal(engine_beam_new(prompt, 40, &o, &r[0]), -EINVAL);
	o.width = 8;
	for (unsigned i = 0; i < 4; i++) {
		r[i] = new_beams(prompt + i, 10, &o);
		submit(e, r[i]);
	}
	for (unsigned i = 0; i < 3; i++)
		engine_cancel(e, r[i]);
	wait_finished(e, 4);
	close_engine(e);
	for (unsigned i = 0; i < 4; i++)
		assert_int_not_equal(atomic_load(&r[i]->finish), ENGINE_RUNNING);
	/* The engine ends in the middle of them. */
	e = open_engine(&(struct engine_options){0});
	for (unsigned i = 0; i < 4; i++) {
		r[i] = new_beams(prompt + i, 10, &o);
		submit(e, r[i]);
	}
	engine_free(e);
	for (unsigned i = 0; i < 4; i++)
		assert_int_not_equal(atomic_load(&r[i]->finish), ENGINE_RUNNING);
	assert_int_equal(atomic_load(&fake_model_violations), 0);
}

TEST_MAIN_EACH(small_model, drop_requests)
