// SPDX-License-Identifier: MIT
/* Rows of a prompt's outputs for a sink, over a model without a chip (fake_model.h): alone, among
 * others, in pieces, preempted, from the prefix cache; and sinks that fail. */
#include <errno.h>
#include <sched.h>

#include "engine_fixture.h"

#define VOCAB  97
#define HIDDEN 7

struct test_sink {
	struct engine_sink base;
	unsigned n, fail_at; /* the call after so many fails; UINT32_MAX: none */
	unsigned rows[128];
	float logits[128][VOCAB], hidden[128][HIDDEN];
	bool hang;		   /* the next step shall hang */
	unsigned launches, tokens; /* of the model, when the last row came */
};
static atomic_uint sinks;

static int sink_row(struct engine_sink *base, unsigned i, const float *logits, const float *hidden)
{
	struct test_sink *s = (struct test_sink *)base;

	/* In order, none twice. */
	assert_int_equal(i, s->n);
	assert_int_equal(!!hidden, !!base->hidden);
	if (s->n == s->fail_at)
		return -EFAULT;
	memcpy(s->logits[i], logits, sizeof(s->logits[i]));
	if (hidden)
		memcpy(s->hidden[i], hidden, sizeof(s->hidden[i]));
	s->n++;
	s->launches = atomic_load(&fake_model_launches);
	s->tokens = atomic_load(&fake_model_launch_tokens);
	if (s->hang)
		atomic_store(&fake_model_hang, true);
	return 0;
}

static const char *sink_error(struct engine_sink *s)
{
	return "the sink is full";
}

static void sink_free(struct engine_sink *s)
{
	free(s);
	atomic_fetch_sub(&sinks, 1);
}

static const struct engine_sink_ops ops = {sink_row, sink_error, sink_free};

/* Wants every @step-th row of those that end with the prompt, at most @most. */
static struct test_sink *new_sink(unsigned n_prompt, unsigned step, unsigned most)
{
	struct test_sink *s = calloc(1, sizeof(*s));
	unsigned n = (n_prompt - 1) / step + 1;

	assert_non_null(s);
	n = n < most ? n : most;
	for (unsigned i = 0; i < n; i++)
		s->rows[i] = n_prompt - 1 - (n - 1 - i) * step;
	s->base = (struct engine_sink){
		.ops = &ops, .rows = s->rows, .n_rows = n, .vocab = VOCAB, .hidden = HIDDEN};
	s->fail_at = UINT32_MAX;
	atomic_fetch_add(&sinks, 1);
	return s;
}

static struct engine_request *new_forward(const int32_t *prompt, unsigned n, struct test_sink *s)
{
	struct engine_request *r = NULL;

	assert_int_equal(engine_forward_new(prompt, n, &s->base, &r), 0);
	drop_later(r);
	return r;
}

/* What the model says behind each of the rows' positions. */
static void expect_rows(const struct engine_request *r)
{
	const struct test_sink *s = (const struct test_sink *)r->sink;
	float logits[VOCAB], hidden[HIDDEN];

	expect_finish(r, ENGINE_FINISH_COMPLETE);
	assert_int_equal(atomic_load(&r->n_tokens), 0);
	assert_int_equal(s->n, s->base.n_rows);
	for (unsigned i = 0; i < s->n; i++) {
		fake_model_logits(r->prompt, s->rows[i] + 1, logits);
		assert_memory_equal(s->logits[i], logits, sizeof(logits));
		fake_model_hidden(r->prompt, s->rows[i] + 1, hidden);
		assert_memory_equal(s->hidden[i], hidden, sizeof(hidden));
	}
}

static int drop_sinks(void **state)
{
	int r = drop_requests(state);

	assert_int_equal(atomic_load(&sinks), 0);
	return r;
}

static int hidden_model(void **state)
{
	small_model(state);
	fake_model_config.hidden = HIDDEN;
	return 0;
}

TEST(gives_rows)
{
	static const unsigned lengths[] = {1, 2, 4, 5, 31, 33, 100, 128};
	struct engine *e = open_engine(&(struct engine_options){.prefix_caching = true});
	int32_t prompt[128];

	random_prompt(prompt, 128);
	for (unsigned i = 0; i < 8; i++) {
		for (unsigned step = 1; step < 10; step += 4) {
			struct engine_request *r = new_forward(
				prompt, lengths[i], new_sink(lengths[i], step, UINT32_MAX));

			run(e, r);
			expect_rows(r);
		}
	}
	close_engine(e);
}

TEST(uses_the_prefix_up_to_the_first_row)
{
	struct engine *e = open_engine(&(struct engine_options){.prefix_caching = true});
	int32_t prompt[100];

	random_prompt(prompt, 100);
	for (unsigned i = 0; i < 4; i++) {
		static const unsigned rows[] = {100, 1, 33, 100}, cached[] = {0, 96, 64, 0};
		struct engine_request *r = new_forward(prompt, 100, new_sink(100, 1, rows[i]));

		run(e, r);
		expect_rows(r);
		assert_int_equal(r->cached_tokens, cached[i]);
	}
	close_engine(e);
}

/* Many at once with little room: in pieces, beside others, preempted. */
TEST(company_changes_nothing)
{
	enum { N = 24 };
	const struct engine_sampling sampling = greedy(20);
	struct engine_request *r[N];
	struct engine_stats stats;
	struct engine *e;
	int32_t prompt[128];

	random_prompt(prompt, 128);
	e = open_engine(&(struct engine_options){.prefix_caching = true,
						 .max_num_batched_tokens = 24,
						 .max_num_seqs = 8,
						 .max_kv_blocks = 40});
	atomic_store(&fake_model_hang, true);
	for (unsigned i = 0; i < N; i++) {
		unsigned n = i ? 1 + (i * 37) % 100 : 128; /* all of the context */

		r[i] = new_forward(prompt, n, new_sink(n, 1 + i % 3, i % 4 == 1 ? 2 : UINT32_MAX));
		submit(e, r[i]);
		submit_new(e, prompt, n < 100 ? n : 100, &sampling);
	}
	atomic_store(&fake_model_hang, false);
	wait_finished(e, 2 * N);
	engine_stats(e, &stats);
	assert_true(stats.preemptions > 0);
	for (unsigned i = 0; i < N; i++)
		expect_rows(r[i]);
	close_engine(e);
}

/*
 * Beside a user with many requests, more of which wait, another one's prompt is the next step behind
 * the one that runs, alone in it: what it waits for is one step of theirs and its own.
 */
TEST(light_users_come_next)
{
	enum { HEAVY = 20, PROMPT = 30 };
	struct engine *e = open_engine(&(struct engine_options){.max_num_seqs = 8});
	struct engine_sampling s = greedy(100);
	struct engine_request *heavy[HEAVY], *mark, *light;
	struct test_sink *marks = new_sink(3, 1, 1), *rows = new_sink(PROMPT, 1, 1);
	unsigned before = atomic_load(&fake_model_launches), tokens;
	int32_t prompt[PROMPT];

	random_prompt(prompt, PROMPT);
	for (unsigned i = 0; i < HEAVY; i++) {
		heavy[i] = new_request(prompt, 3, &s, false);
		heavy[i]->uid = 1;
	}
	mark = new_forward(prompt, 3, marks);
	mark->uid = 1;
	marks->hang = true;
	light = new_forward(prompt, PROMPT, rows);
	light->uid = 2;
	/* The first step is of one, the second of eight; behind it the mark lets the third hang. */
	atomic_store(&fake_model_hang, true);
	submit(e, heavy[0]);
	while (atomic_load(&fake_model_launches) != before + 1)
		sched_yield();
	submit(e, mark);
	for (unsigned i = 1; i < HEAVY; i++)
		submit(e, heavy[i]);
	atomic_store(&fake_model_hang, false);
	while (atomic_load(&fake_model_launches) != before + 3)
		sched_yield();
	tokens = atomic_load(&fake_model_launch_tokens);
	submit(e, light);
	atomic_store(&fake_model_hang, false);
	while (!atomic_load(&light->finish))
		sched_yield();
	assert_int_equal(marks->launches, before + 2);
	assert_int_equal(rows->launches, before + 4);
	assert_int_equal(rows->tokens, tokens + PROMPT);
	expect_rows(light);
	for (unsigned i = 0; i < HEAVY; i++)
		engine_cancel(e, heavy[i]);
	close_engine(e);
}

TEST(ends_with_a_failed_sink)
{
	static const unsigned fail_at[] = {0, 1, 40, 99};
	struct engine *e = open_engine(&(struct engine_options){.max_num_batched_tokens = 32});
	int32_t prompt[100];

	random_prompt(prompt, 100);
	for (unsigned i = 0; i < 4; i++) {
		struct test_sink *s = new_sink(100, 1, UINT32_MAX);
		struct engine_request *r = new_forward(prompt, 100, s);

		s->fail_at = fail_at[i];
		run(e, r);
		expect_finish(r, ENGINE_FINISH_ERROR);
		assert_int_equal(r->error, -EFAULT);
		assert_string_equal(r->error_text, "the sink is full");
		assert_int_equal(s->n, fail_at[i]);
	}
	close_engine(e);
}

TEST(refuses_wrong_rows)
{
	struct engine *e = open_engine(&(struct engine_options){0});
	int32_t prompt[4] = {1, 2, 3, 4};
	struct test_sink *s = new_sink(4, 1, UINT32_MAX);
	struct engine_request *r = NULL;
	char err[256] = "";

	assert_int_equal(engine_forward_new(prompt, 3, &s->base, &r), -EINVAL);
	assert_int_equal(engine_forward_new(prompt, 0, &s->base, &r), -EINVAL);
	s->rows[1] = s->rows[2];
	assert_int_equal(engine_forward_new(prompt, 4, &s->base, &r), -EINVAL);
	assert_null(r);
	s->rows[1] = 1;
	s->base.hidden = HIDDEN + 1;
	r = new_forward(prompt, 4, s);
	assert_int_equal(engine_submit(e, r, err, sizeof(err)), -EOPNOTSUPP);
	assert_says(err, "97 logits and 8 hidden");
	/* A sink goes with its request, also when that was never computed. */
	r = new_forward(prompt, 4, new_sink(4, 1, 1));
	atomic_store(&fake_model_hang, true);
	submit(e, r);
	engine_cancel(e, r);
	atomic_store(&fake_model_hang, false);
	close_engine(e);
}

TEST_MAIN_EACH(hidden_model, drop_sinks)
