// SPDX-License-Identifier: MIT
/* Vectors from the engine, over a model without a chip. */
#include <errno.h>
#include <math.h>

#include "engine_fixture.h"

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
	expect_finish(r, ENGINE_FINISH_COMPLETE);
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
	drop_later(r);
	return r;
}

TEST(embeds)
{
	enum { LENGTHS = 12, VECTORS = 3 * LENGTHS };
	static const unsigned lengths[LENGTHS] = {1, 2, 3, 4, 5, 8, 31, 32, 33, 64, 99, 100};
	struct engine_request *alone[VECTORS], *r[VECTORS], *beside[LENGTHS];
	struct engine_sampling s = greedy(20);
	struct engine_stats stats;
	struct engine_limits limits;
	int32_t prompt[100];
	struct engine *e;

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
	}
	for (unsigned i = 0; i < LENGTHS; i++)
		expect_greedy(beside[i]);
	close_engine(e);
}

TEST(refuses_bad_embeddings)
{
	int32_t prompt[] = {1, 2, 3};
	struct engine_request *r = new_embedding(prompt, 3, ENGINE_POOL_LAST, HIDDEN, true);
	struct engine *e = open_engine(&(struct engine_options){0});
	char err[256] = "";

	assert_int_equal(engine_submit(e, r, err, sizeof(err)), -EOPNOTSUPP);
	close_engine(e);
	fake_model_config.hidden = HIDDEN;
	e = open_engine(&(struct engine_options){0});
	r = new_embedding(prompt, 3, ENGINE_POOL_LAST, HIDDEN + 1, true);
	assert_int_equal(engine_submit(e, r, err, sizeof(err)), -EINVAL);
	assert_says(err, "8");
	assert_int_equal(engine_embedding_new(prompt, 3, &(struct engine_pooling){0}, &r), -EINVAL);
	close_engine(e);
}

TEST_MAIN_EACH(small_model, drop_requests)
