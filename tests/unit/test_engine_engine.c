// SPDX-License-Identifier: MIT
/* The engine over a model without a chip (fake_model.h): its results, limits, failures and costs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include "engine.h"
#include "fake_model.h"

#define MAX_PROMPT 100

/* Counts allocations (the build wraps these calls). */
void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *ptr, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *ptr, size_t size);

static atomic_uint allocations;

void *__wrap_malloc(size_t size)
{
	atomic_fetch_add(&allocations, 1);
	return __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
	atomic_fetch_add(&allocations, 1);
	return __real_calloc(n, size);
}

void *__wrap_realloc(void *ptr, size_t size)
{
	atomic_fetch_add(&allocations, 1);
	return __real_realloc(ptr, size);
}

static struct engine *open_engine(const struct engine_options *options)
{
	struct engine *e = NULL;
	char err[256] = "";

	assert_int_equal(engine_new(fake_group(0), options, &e, err, sizeof(err)), 0);
	return e;
}

static struct engine_sampling greedy(unsigned max_tokens)
{
	return (struct engine_sampling){.top_p = 1, .logprobs = -1, .max_tokens = max_tokens};
}

static struct engine_request *new_request(const int32_t *prompt, unsigned n,
					  const struct engine_sampling *s, bool prompt_lp)
{
	struct engine_request *r = NULL;

	assert_int_equal(engine_request_new(prompt, n, s, prompt_lp, &r), 0);
	return r;
}

static void submit(struct engine *e, struct engine_request *r)
{
	char err[256] = "";

	assert_int_equal(engine_submit(e, r, err, sizeof(err)), 0);
}

/* Takes news until @n more requests have finished. */
static void wait_finished(struct engine *e, unsigned n)
{
	struct pollfd fd = {.fd = engine_ready_fd(e), .events = POLLIN};

	while (n) {
		struct engine_request *r, *next;

		assert_int_equal(poll(&fd, 1, 20000), 1);
		for (r = engine_take_ready(e); r; r = next) {
			next = r->ready_next;
			/* A finished one may come once more with news from before. */
			if (atomic_load(&r->finish) && !r->client) {
				r->client = r;
				n--;
			}
			engine_request_unref(r);
		}
	}
}

static void run(struct engine *e, struct engine_request *r)
{
	submit(e, r);
	wait_finished(e, 1);
}

static void random_prompt(int32_t *prompt, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		prompt[i] = rand() % 97;
}

/* What greedy decoding gives, straight from the model. */
static void expect_greedy(const struct engine_request *r)
{
	int32_t all[256];
	float logits[97];
	unsigned n = r->n_prompt;

	memcpy(all, r->prompt, n * sizeof(*all));
	for (unsigned i = 0; i < atomic_load(&r->n_tokens); i++) {
		unsigned best = 0;

		fake_model_logits(all, n, logits);
		for (unsigned t = 1; t < 97; t++)
			best = logits[t] > logits[best] ? t : best;
		assert_int_equal(r->tokens[i], best);
		all[n++] = r->tokens[i];
	}
}

static void close_engine_with_stats(struct engine *e, struct engine_stats *ret)
{
	struct engine_stats stats;
	struct timespec t = {0, 1000000};

	/* It publishes after it has told the client. */
	for (unsigned i = 0; i < 1000; i++) {
		engine_stats(e, &stats);
		if (!stats.running && !stats.waiting && stats.kv_usage == 0)
			break;
		nanosleep(&t, NULL);
	}
	assert_int_equal(stats.running, 0);
	assert_int_equal(stats.waiting, 0);
	assert_true(stats.kv_usage == 0);
	engine_free(e);
	assert_int_equal(atomic_load(&fake_model_loaded), 0);
	assert_int_equal(atomic_load(&fake_model_violations), 0);
	*ret = stats;
}

static void close_engine(struct engine *e)
{
	struct engine_stats stats;

	close_engine_with_stats(e, &stats);
}

/* ---- results --------------------------------------------------------------------------------- */

static void decodes_greedily(void **state)
{
	struct engine *e = open_engine(&(struct engine_options){0});
	struct engine_sampling s = greedy(20);
	int32_t prompt[] = {5, 6, 7, 8, 9};
	struct engine_request *r = new_request(prompt, 5, &s, false);
	struct engine_stats stats;

	(void)state;
	run(e, r);
	assert_int_equal(atomic_load(&r->finish), ENGINE_FINISH_LENGTH);
	assert_int_equal(atomic_load(&r->n_tokens), 20);
	expect_greedy(r);
	assert_true(r->queued_ns <= r->started_ns && r->started_ns < r->first_token_ns &&
		    r->first_token_ns < r->last_token_ns);
	engine_request_unref(r);
	engine_drain(e);
	engine_stats(e, &stats);
	close_engine(e);
}

static void stops(void **state)
{
	struct engine *e = open_engine(&(struct engine_options){0});
	struct engine_sampling s = greedy(20);
	int32_t prompt[] = {5, 6, 7, 8, 9};
	struct engine_request *r = new_request(prompt, 5, &s, false), *again;

	(void)state;
	run(e, r);
	s.n_stop_tokens = 1;
	s.stop_tokens[0] = r->tokens[4];
	again = new_request(prompt, 5, &s, false);
	run(e, again);
	assert_int_equal(atomic_load(&again->finish), ENGINE_FINISH_STOP);
	assert_true(atomic_load(&again->n_tokens) <= 5);
	assert_int_equal(again->tokens[atomic_load(&again->n_tokens) - 1], r->tokens[4]);
	engine_request_unref(again);

	s.ignore_eos = true;
	again = new_request(prompt, 5, &s, false);
	run(e, again);
	assert_int_equal(atomic_load(&again->finish), ENGINE_FINISH_LENGTH);
	assert_memory_equal(again->tokens, r->tokens, 20 * sizeof(int32_t));
	engine_request_unref(again);

	s.ignore_eos = false;
	s.min_tokens = 10;
	again = new_request(prompt, 5, &s, false);
	run(e, again);
	for (unsigned i = 0; i < 10; i++)
		assert_int_not_equal(again->tokens[i], r->tokens[4]);
	engine_request_unref(again);
	engine_request_unref(r);
	close_engine(e);
}

static void ends_at_the_context(void **state)
{
	struct engine *e = open_engine(&(struct engine_options){0});
	struct engine_sampling s = greedy(1000);
	struct engine_limits limits;
	int32_t prompt[200];
	char err[256] = "";
	struct engine_request *r;

	(void)state;
	random_prompt(prompt, 129);
	engine_limits(e, &limits);
	assert_int_equal(limits.max_context, 128);
	for (unsigned n = 100; n <= 128; n += 14) {
		r = new_request(prompt, n, &s, false);
		run(e, r);
		assert_int_equal(atomic_load(&r->finish), ENGINE_FINISH_LENGTH);
		assert_int_equal(atomic_load(&r->n_tokens), n < 128 ? 128 - n : 1);
		expect_greedy(r);
		engine_request_unref(r);
	}
	r = new_request(prompt, 129, &s, false);
	assert_int_equal(engine_submit(e, r, err, sizeof(err)), -E2BIG);
	assert_non_null(strstr(err, "129"));
	assert_non_null(strstr(err, "128"));
	engine_request_unref(r);
	close_engine(e);

	/* The whole cache is a limit of the context, too. */
	e = open_engine(&(struct engine_options){.max_kv_blocks = 5});
	engine_limits(e, &limits);
	assert_int_equal(limits.max_context, 20);
	r = new_request(prompt, 7, &s, false);
	run(e, r);
	assert_int_equal(atomic_load(&r->n_tokens), 13);
	expect_greedy(r);
	engine_request_unref(r);
	close_engine(e);
}

static void refuses_bad_requests(void **state)
{
	struct engine *e = open_engine(&(struct engine_options){0});
	struct engine_sampling s = greedy(4);
	int32_t prompt[] = {1, 97, 2};
	char err[256] = "";
	struct engine_request *r;

	(void)state;
	r = new_request(prompt, 0, &s, true);
	assert_int_equal(engine_submit(e, r, err, sizeof(err)), -EINVAL);
	engine_request_unref(r);
	r = new_request(prompt, 3, &s, false);
	assert_int_equal(engine_submit(e, r, err, sizeof(err)), -EINVAL);
	assert_non_null(strstr(err, "97"));
	engine_request_unref(r);
	s.top_p = 2;
	r = new_request(prompt, 1, &s, false);
	assert_int_equal(engine_submit(e, r, err, sizeof(err)), -EINVAL);
	engine_request_unref(r);
	s = greedy(UINT32_MAX);
	s.logprobs = 20;
	assert_int_equal(engine_request_new(prompt, 1, &s, false, &r), -E2BIG);
	s = greedy(1);
	r = new_request(prompt, 1, &s, false);
	engine_drain(e);
	assert_int_equal(engine_submit(e, r, err, sizeof(err)), -ESHUTDOWN);
	engine_request_unref(r);
	close_engine(e);
}

static void gives_logprobs(void **state)
{
	struct engine *e = open_engine(&(struct engine_options){.prefix_caching = true});
	struct engine_sampling s = greedy(6);
	int32_t prompt[70], all[80];
	float logits[97];
	struct engine_request *r, *beside;

	(void)state;
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
			if (i < 70)
				continue;
			assert_int_equal(r->logprobs[i - 70].token, all[i]);
			assert_int_equal(r->top[(i - 70) * 12].token, all[i]);
			for (unsigned j = 1; j < 12; j++)
				assert_true(r->top[(i - 70) * 12 + j].logprob <=
					    r->top[(i - 70) * 12 + j - 1].logprob);
		}
		engine_request_unref(r);
		engine_request_unref(beside);
	}
	close_engine(e);
}

/* ---- embeddings ------------------------------------------------------------------------------ */

#define HIDDEN 7

/* What the model's states make, straight from it. */
static void expect_vector(const struct engine_request *r)
{
	const struct engine_pooling *p = &r->pooling;
	double sum[HIDDEN] = {0}, square = 0, length;
	float hidden[HIDDEN];
	unsigned first = p->how == ENGINE_POOL_LAST ? r->n_prompt : 1;
	unsigned last = p->how == ENGINE_POOL_CLS ? 1 : r->n_prompt;

	for (unsigned n = first; n <= last; n++) {
		fake_model_hidden(r->prompt, n, hidden);
		for (unsigned i = 0; i < p->dimensions; i++)
			sum[i] += hidden[i];
	}
	for (unsigned i = 0; i < p->dimensions; i++)
		square += sum[i] * sum[i];
	length = p->normalize ? sqrt(square) : last - first + 1;
	assert_int_equal(atomic_load(&r->finish), ENGINE_FINISH_COMPLETE);
	assert_int_equal(atomic_load(&r->n_tokens), 0);
	for (unsigned i = 0; i < p->dimensions; i++)
		assert_true(fabs(r->embedding[i] - sum[i] / length) < 1e-6);
}

static struct engine_request *new_embedding(const int32_t *prompt, unsigned n,
					    enum engine_pooling_how how, unsigned dimensions,
					    bool normalize)
{
	struct engine_request *r = NULL;

	assert_int_equal(engine_embedding_new(prompt, n,
					      &(struct engine_pooling){how, dimensions, normalize},
					      &r),
			 0);
	return r;
}

static void embeds(void **state)
{
	enum { LENGTHS = 12, VECTORS = 3 * LENGTHS };
	static const unsigned lengths[LENGTHS] = {1, 2, 3, 4, 5, 8, 31, 32, 33, 64, 99, 100};
	struct engine_request *alone[VECTORS], *r[VECTORS], *beside[LENGTHS];
	struct engine_sampling s = greedy(20);
	struct engine_stats stats;
	struct engine_limits limits;
	int32_t prompt[100];
	struct engine *e;

	(void)state;
	fake_model_config.hidden = HIDDEN;
	strcpy(fake_model_config.info.pooling, "mean");
	random_prompt(prompt, 100);
	e = open_engine(&(struct engine_options){.prefix_caching = true});
	engine_limits(e, &limits);
	assert_int_equal(limits.hidden, HIDDEN);
	assert_int_equal(limits.pooling.how, ENGINE_POOL_MEAN);
	assert_false(limits.pooling.normalize);
	for (unsigned i = 0; i < VECTORS; i++) {
		enum engine_pooling_how how = (enum engine_pooling_how)(ENGINE_POOL_LAST + i % 3);
		unsigned dimensions = i % 2 ? HIDDEN : 3;

		alone[i] = new_embedding(prompt, lengths[i / 3], how, dimensions, i % 4 < 2);
		run(e, alone[i]);
		expect_vector(alone[i]);
		/* A mean needs the states of all tokens. */
		if (how == ENGINE_POOL_MEAN)
			assert_int_equal(alone[i]->cached_tokens, 0);
		else if (how == ENGINE_POOL_LAST && lengths[i / 3] == 100)
			assert_int_equal(alone[i]->cached_tokens, 96);
	}
	close_engine(e);

	/* Among others, in pieces, with blocks for a few only. */
	e = open_engine(&(struct engine_options){.prefix_caching = true,
						 .max_num_batched_tokens = 24,
						 .max_num_seqs = 8,
						 .max_kv_blocks = 40});
	/* All are there when the first step ends. */
	atomic_store(&fake_model_hang, true);
	for (unsigned i = 0; i < VECTORS; i++) {
		r[i] = new_embedding(prompt, lengths[i / 3], alone[i]->pooling.how,
				     alone[i]->pooling.dimensions, alone[i]->pooling.normalize);
		submit(e, r[i]);
		if (i % 3)
			continue;
		beside[i / 3] = new_request(prompt, lengths[i / 3], &s, false);
		submit(e, beside[i / 3]);
	}
	atomic_store(&fake_model_hang, false);
	wait_finished(e, VECTORS + LENGTHS);
	engine_stats(e, &stats);
	assert_true(stats.preemptions > 0);
	for (unsigned i = 0; i < VECTORS; i++) {
		assert_memory_equal(r[i]->embedding, alone[i]->embedding,
				    alone[i]->pooling.dimensions * sizeof(float));
		engine_request_unref(r[i]);
		engine_request_unref(alone[i]);
	}
	for (unsigned i = 0; i < LENGTHS; i++) {
		expect_greedy(beside[i]);
		engine_request_unref(beside[i]);
	}
	close_engine(e);
}

static void refuses_bad_embeddings(void **state)
{
	int32_t prompt[] = {1, 2, 3};
	struct engine_request *r = new_embedding(prompt, 3, ENGINE_POOL_LAST, HIDDEN, true);
	struct engine *e = open_engine(&(struct engine_options){0});
	char err[256] = "";

	(void)state;
	assert_int_equal(engine_submit(e, r, err, sizeof(err)), -EOPNOTSUPP);
	close_engine(e);
	engine_request_unref(r);
	fake_model_config.hidden = HIDDEN;
	e = open_engine(&(struct engine_options){0});
	r = new_embedding(prompt, 3, ENGINE_POOL_LAST, HIDDEN + 1, true);
	assert_int_equal(engine_submit(e, r, err, sizeof(err)), -EINVAL);
	assert_non_null(strstr(err, "8"));
	engine_request_unref(r);
	assert_int_equal(engine_embedding_new(prompt, 3, &(struct engine_pooling){0}, &r), -EINVAL);
	close_engine(e);
}

static void reuses_prefixes(void **state)
{
	struct engine *e = open_engine(&(struct engine_options){.prefix_caching = true});
	struct engine_sampling s = greedy(10);
	struct engine_request *r;
	struct engine_stats stats;
	int32_t prompt[40];

	(void)state;
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
		engine_request_unref(r);
	}
	r = new_request(prompt, 40, &s, false);
	r->uid = 1000;
	run(e, r);
	expect_greedy(r);
	assert_int_equal(r->cached_tokens, 16);
	engine_request_unref(r);
	close_engine(e);
	e = open_engine(&(struct engine_options){.prefix_caching = false});
	for (unsigned pass = 0; pass < 2; pass++) {
		r = new_request(prompt, 40, &s, false);
		run(e, r);
		assert_int_equal(r->cached_tokens, 0);
		engine_request_unref(r);
	}
	engine_stats(e, &stats);
	assert_int_equal(stats.prefix_queries, 0);
	close_engine(e);
}

/*
 * A constraint for tests: of tokens whose number and place say so, as bits or as a list, up to a
 * length. It fails where it is told to.
 */
struct test_constraint {
	struct engine_constraint base;
	unsigned n, key, length, fail_mask_at, fail_accept_at;
	bool list;
	uint32_t bits[4];
	int32_t tokens[97];
};
static atomic_int n_constraints;

static bool constraint_allows(const struct test_constraint *c, int32_t token)
{
	return ((unsigned)token * 7 + c->n * 5 + c->key) % 3 != 0;
}

static int constraint_mask(struct engine_constraint *base, struct engine_mask *ret)
{
	struct test_constraint *c = (struct test_constraint *)base;

	if (c->fail_mask_at && c->n >= c->fail_mask_at)
		return -E2BIG;
	*ret = (struct engine_mask){.end = c->n % 4 == 3};
	memset(c->bits, 0, sizeof(c->bits));
	for (int32_t t = 0; t < 97; t++) {
		if (!constraint_allows(c, t))
			continue;
		c->bits[t / 32] |= 1u << (t % 32);
		c->tokens[ret->n++] = t;
	}
	if (c->list)
		ret->list = c->tokens;
	else
		ret->bits = c->bits;
	return 0;
}

static int constraint_accept(struct engine_constraint *base, int32_t token)
{
	struct test_constraint *c = (struct test_constraint *)base;

	if (c->fail_accept_at && c->n >= c->fail_accept_at)
		return -EINVAL;
	if (!constraint_allows(c, token))
		abort();
	return ++c->n == c->length;
}

static const char *constraint_error(struct engine_constraint *c)
{
	(void)c;
	return "the test's constraint fails";
}

static void constraint_free(struct engine_constraint *c)
{
	atomic_fetch_sub(&n_constraints, 1);
	free(c);
}

static struct test_constraint *constrain(struct engine_request *r, unsigned key, unsigned length)
{
	static const struct engine_constraint_ops ops = {
		.mask = constraint_mask,
		.accept = constraint_accept,
		.error = constraint_error,
		.free = constraint_free,
	};
	struct test_constraint *c = calloc(1, sizeof(*c));

	assert_non_null(c);
	c->base.ops = &ops;
	c->key = key;
	c->list = key % 2;
	c->length = length;
	r->constraint = &c->base;
	atomic_fetch_add(&n_constraints, 1);
	return c;
}

static void keeps_to_constraints(void **state)
{
	struct engine *e = open_engine(&(struct engine_options){0});
	struct engine_sampling s = greedy(20);
	int32_t prompt[] = {5, 6, 7, 8, 9};
	struct engine_request *r;

	(void)state;
	s.temperature = 1;
	for (unsigned key = 0; key < 20; key++) {
		s.seed = key;
		s.min_tokens = key % 4;
		r = new_request(prompt, 5, &s, false);
		constrain(r, key, key < 10 ? 6 : 100);
		run(e, r);
		assert_int_equal(atomic_load(&r->finish),
				 key < 10 ? ENGINE_FINISH_COMPLETE : ENGINE_FINISH_LENGTH);
		assert_int_equal(atomic_load(&r->n_tokens), key < 10 ? 6 : 20);
		engine_request_unref(r);
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
		assert_int_equal(atomic_load(&r->finish), ENGINE_FINISH_STOP);
		assert_int_equal(r->tokens[n - 1], 3);
		assert_true(n == 4 || ((unsigned)3 * 7 + (n - 1) * 5 + key) % 3 != 0);
		engine_request_unref(r);
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
		assert_int_equal(atomic_load(&r->finish), ENGINE_FINISH_ERROR);
		assert_int_equal(r->error, -EPROTO);
		assert_string_equal(r->error_text, "the test's constraint fails");
		engine_request_unref(r);
	}
	close_engine(e);
	assert_int_equal(atomic_load(&n_constraints), 0);
}

/* A penalty and a bias have the effect they are for. */
static void penalties_and_biases_work(void **state)
{
	struct engine *e = open_engine(&(struct engine_options){0});
	struct engine_sampling s = greedy(40);
	struct engine_bias biases[2] = {{50, 100}, {51, -100}};
	int32_t prompt[] = {5, 6, 7, 8, 9};
	unsigned seen[97] = {0};
	struct engine_request *r;

	(void)state;
	s.biases = biases;
	s.n_biases = 2;
	r = new_request(prompt, 5, &s, false);
	run(e, r);
	for (unsigned i = 0; i < 40; i++)
		assert_int_equal(r->tokens[i], 50);
	engine_request_unref(r);
	/* Whoever came does not come again. */
	s.n_biases = 0;
	s.presence_penalty = 100;
	r = new_request(prompt, 5, &s, false);
	run(e, r);
	for (unsigned i = 0; i < 40; i++)
		assert_int_equal(seen[r->tokens[i]]++, 0);
	engine_request_unref(r);
	/* Nor does what the prompt had. */
	s.presence_penalty = 0;
	s.repetition_penalty = 1000;
	r = new_request(prompt, 5, &s, false);
	run(e, r);
	for (unsigned i = 0; i < 40; i++)
		assert_true(r->tokens[i] < 5 || r->tokens[i] > 9);
	engine_request_unref(r);
	close_engine(e);
}

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
		assert_int_equal(atomic_load(&r->finish), atomic_load(&alone->finish));
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

/*
 * Random requests under KV pressure, with shared prefixes, priorities, users, chunks of all sizes
 * and random cancellations: each gives what it gives alone. Limits of step and cache change with
 * each round.
 */
static void company_changes_nothing(void **state)
{
	enum { REQUESTS = 60 };
	static int32_t prompts[4][MAX_PROMPT];
	struct engine_request *alone[REQUESTS], *crowd[REQUESTS];
	uint64_t preemptions = 0, hits = 0, cancelled = 0;

	(void)state;
	srand(13);
	for (unsigned i = 0; i < 4; i++)
		random_prompt(prompts[i], MAX_PROMPT);
	for (unsigned round = 0; round < 12; round++) {
		static const unsigned budgets[] = {1, 7, 64, 256};
		struct engine_options options = {
			.max_num_batched_tokens = budgets[round % 4],
			.max_num_seqs = 1 + (unsigned)rand() % 20,
			.max_kv_blocks = 32 + (unsigned)rand() % 40,
			.prefix_caching = round % 3 != 0,
		};
		struct engine *e = open_engine(&(struct engine_options){.max_num_seqs = 1});
		struct engine_stats stats;

		for (unsigned i = 0; i < REQUESTS; i++) {
			struct engine_sampling s = random_sampling();
			int32_t *prompt = prompts[rand() % 4], last;
			unsigned n = 1 + (unsigned)rand() % MAX_PROMPT;
			bool prompt_lp = rand() % 5 == 0;

			last = prompt[n - 1];
			prompt[n - 1] = rand() % 97;
			alone[i] = new_request(prompt, n, &s, prompt_lp);
			crowd[i] = new_request(prompt, n, &s, prompt_lp);
			prompt[n - 1] = last;
			if (rand() % 3 == 0) {
				unsigned key = (unsigned)rand() % 100,
					 length = (unsigned)rand() % 30;

				constrain(alone[i], key, length);
				constrain(crowd[i], key, length);
			}
			crowd[i]->uid = (uid_t)rand() % 3;
			crowd[i]->priority = rand() % 3;
			run(e, alone[i]);
		}
		close_engine(e);
		e = open_engine(&options);
		for (unsigned i = 0; i < REQUESTS; i++) {
			submit(e, crowd[i]);
			if (rand() % 8 == 0)
				engine_cancel(e, crowd[(unsigned)rand() % (i + 1)]);
			if (rand() % 4 == 0)
				usleep((unsigned)rand() % 300);
		}
		wait_finished(e, REQUESTS);
		for (unsigned i = 0; i < REQUESTS; i++) {
			assert_same(crowd[i], alone[i]);
			engine_request_unref(crowd[i]);
			engine_request_unref(alone[i]);
		}
		engine_stats(e, &stats);
		preemptions += stats.preemptions;
		hits += stats.prefix_hits;
		cancelled += stats.finished[ENGINE_FINISH_CANCELLED];
		close_engine(e);
	}
	printf("%llu preemptions, %llu cached tokens, %llu cancelled\n",
	       (unsigned long long)preemptions, (unsigned long long)hits,
	       (unsigned long long)cancelled);
	assert_true(preemptions > 20 && hits > 100 && cancelled > 10);
}

/* ---- leaving, failing ------------------------------------------------------------------------ */

/* ---- the model's own layer proposes ---------------------------------------------------------- */

/* What it proposes is what the model says, so everything stands, whatever happens around it. */
static void predicts_further_tokens(void **state)
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

	(void)state;
	random_prompt(prompt, MAX_PROMPT);
	fake_model_config.states = true;
	e = open_engine(&(struct engine_options){.case_dir = "step"});
	for (unsigned i = 0; i < REQUESTS; i++) {
		s = greedy(1 + i);
		s.temperature = i % 3 ? 1 : 0;
		s.seed = i;
		alone[i] = new_request(prompt, 1 + i * 4 % 90, &s, false);
		run(e, alone[i]);
	}
	close_engine(e);
	e = open_engine(&o);
	for (unsigned i = 0; i < REQUESTS; i++) {
		r[i] = new_request(prompt, alone[i]->n_prompt, &alone[i]->sampling, false);
		submit(e, r[i]);
	}
	wait_finished(e, REQUESTS);
	for (unsigned i = 0; i < REQUESTS; i++) {
		assert_int_equal(atomic_load(&r[i]->n_tokens), 1 + i);
		assert_memory_equal(r[i]->tokens, alone[i]->tokens, (1 + i) * sizeof(int32_t));
		engine_request_unref(r[i]);
		engine_request_unref(alone[i]);
	}
	close_engine_with_stats(e, &stats);
	printf("%llu proposals, %llu stood, %llu preemptions\n",
	       (unsigned long long)stats.draft_tokens, (unsigned long long)stats.accepted_tokens,
	       (unsigned long long)stats.preemptions);
	assert_true(stats.draft_tokens > 80);
	assert_int_equal(stats.accepted_tokens, stats.draft_tokens);
}

/* While too many run, nothing is proposed; whom that left behind goes on without. */
static void proposes_again_after_a_flood(void **state)
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

	(void)state;
	fake_model_config.states = true;
	random_prompt(prompt, 20);
	e = open_engine(&o);
	for (unsigned i = 0; i < 6; i++) {
		r[i] = new_request(prompt, 5 + i, &s, false);
		submit(e, r[i]);
	}
	wait_finished(e, 6);
	engine_stats(e, &flooded);
	for (unsigned i = 0; i < 6; i++) {
		expect_greedy(r[i]);
		engine_request_unref(r[i]);
	}
	r[0] = new_request(prompt, 20, &s, false);
	run(e, r[0]);
	expect_greedy(r[0]);
	engine_request_unref(r[0]);
	close_engine_with_stats(e, &stats);
	assert_true(stats.accepted_tokens - flooded.accepted_tokens > 20);
	assert_int_equal(stats.accepted_tokens, stats.draft_tokens);
}

static void refuses_a_layer_alone(void **state)
{
	struct engine_options o = {.case_dir = "mtp"};
	char err[256] = "";
	struct engine *e;

	(void)state;
	assert_int_equal(engine_new(fake_group(0), &o, &e, err, sizeof(err)), -EINVAL);
	assert_non_null(strstr(err, "--mtp"));
	o = (struct engine_options){
		.case_dir = "step", .draft_case_dir = "mtp", .speculation = ENGINE_SPECULATE_MODEL};
	assert_int_equal(engine_new(fake_group(0), &o, &e, err, sizeof(err)), -EINVAL);
	assert_non_null(strstr(err, "--states"));
	assert_int_equal(atomic_load(&fake_model_loaded), 0);
}

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

/* ---- threads and costs ----------------------------------------------------------------------- */

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
static void works_with_threads(void **state)
{
	struct engine *e = open_engine(&(struct engine_options){.prefix_caching = true});
	struct sender senders[3];
	pthread_t threads[3], reader;
	void *failed;

	(void)state;
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
			engine_request_unref(r);
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

static void idles_for_free(void **state)
{
	struct engine *e = open_engine(&(struct engine_options){0});
	uint64_t start;

	(void)state;
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
	before = atomic_load(&allocations);
	wait_finished(e, n);
	assert_int_equal(atomic_load(&allocations), before);
	usleep(2000);
	engine_stats(e, &stats);
	printf("%2u sequences: %.2f us of host time a step (%llu steps)\n", n,
	       (double)stats.host_ns / 1000 / (double)stats.steps, (unsigned long long)stats.steps);
	for (unsigned i = 0; i < n; i++)
		engine_request_unref(r[i]);
	close_engine(e);
}

static void costs_little(void **state)
{
	(void)state;
	measure(1);
	measure(16);
	measure(64);
}

static int small_model(void **state)
{
	(void)state;
	fake_model_config = fake_model_small();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(decodes_greedily, small_model),
		cmocka_unit_test_setup(stops, small_model),
		cmocka_unit_test_setup(ends_at_the_context, small_model),
		cmocka_unit_test_setup(refuses_bad_requests, small_model),
		cmocka_unit_test_setup(gives_logprobs, small_model),
		cmocka_unit_test_setup(embeds, small_model),
		cmocka_unit_test_setup(refuses_bad_embeddings, small_model),
		cmocka_unit_test_setup(reuses_prefixes, small_model),
		cmocka_unit_test_setup(keeps_to_constraints, small_model),
		cmocka_unit_test_setup(penalties_and_biases_work, small_model),
		cmocka_unit_test_setup(company_changes_nothing, small_model),
		cmocka_unit_test_setup(predicts_further_tokens, small_model),
		cmocka_unit_test_setup(proposes_again_after_a_flood, small_model),
		cmocka_unit_test_setup(refuses_a_layer_alone, small_model),
		cmocka_unit_test_setup(cancels, small_model),
		cmocka_unit_test_setup(bounds_the_queue, small_model),
		cmocka_unit_test_setup(frees_in_the_middle, small_model),
		cmocka_unit_test_setup(survives_a_lost_chip, small_model),
		cmocka_unit_test_setup(gives_a_hung_step_up, small_model),
		cmocka_unit_test_setup(reports_a_failed_load, small_model),
		cmocka_unit_test_setup(works_with_threads, small_model),
		cmocka_unit_test_setup(idles_for_free, small_model),
		cmocka_unit_test_setup(costs_little, small_model),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
