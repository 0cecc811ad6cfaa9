// SPDX-License-Identifier: MIT
/* Beam search against enumeration, over a model that is a table of random numbers. */

#include <errno.h>
#include <math.h>

#include "unit.h"
#include "beam.h"

#define VOCAB 5
#define STOP  4
#define DEPTH 4

static unsigned model_seed;

/* The log probabilities behind a beginning, best first. */
static void follow(const int32_t *tokens, unsigned n, struct engine_logprob *ret)
{
	uint64_t hash = model_seed * 0x9E3779B97F4A7C15ull + n;
	double sum = 0, weights[VOCAB];

	for (unsigned i = 0; i < n; i++)
		hash = (hash ^ (uint64_t)(tokens[i] + 1)) * 0x100000001B3ull;
	for (unsigned t = 0; t < VOCAB; t++) {
		hash ^= hash >> 29;
		hash *= 0xBF58476D1CE4E5B9ull;
		weights[t] = exp((double)(hash >> 40) / (1 << 24) * 4);
		sum += weights[t];
	}
	for (unsigned t = 0; t < VOCAB; t++) {
		struct engine_logprob lp = {(int32_t)t, (float)log(weights[t] / sum)};
		unsigned at = t;

		for (; at && ret[at - 1].logprob < lp.logprob; at--)
			ret[at] = ret[at - 1];
		ret[at] = lp;
	}
}

struct found {
	int32_t tokens[DEPTH];
	unsigned n;
	double score;
	bool stopped;
};

static struct found search(const struct beam_options *options, unsigned *ret_n, struct found *all)
{
	struct engine_logprob candidates[1024][VOCAB], logprobs[DEPTH], top[DEPTH * 2];
	int32_t tokens[1024][DEPTH], before[1024][DEPTH];
	const struct engine_logprob *lists[1024];
	struct beam_search *b = NULL;
	struct found best = {0};
	unsigned rounds = 0;

	assert_int_equal(beam_search_new(options, &b), 0);
	while (beam_search_live(b)) {
		assert_true(beam_search_live(b) <= options->width);
		assert_int_equal(beam_search_length(b), rounds);
		memcpy(before, tokens, sizeof(tokens));
		for (unsigned i = 0; i < beam_search_live(b); i++) {
			if (rounds) {
				memcpy(tokens[i], before[beam_search_parent(b, i)],
				       sizeof(tokens[i]));
				tokens[i][rounds - 1] = beam_search_token(b, i);
			}
			follow(tokens[i], rounds, candidates[i]);
			lists[i] = candidates[i];
		}
		rounds++;
		assert_int_equal(beam_search_step(b, lists, VOCAB), 0);
	}
	assert_true(rounds <= options->max_tokens);
	*ret_n = beam_search_results(b);
	for (unsigned k = 0; k < *ret_n; k++) {
		struct beam_result result;
		struct found one = {0};
		double sum = 0, length;

		beam_search_result(b, k, &result);
		beam_search_copy(b, k, one.tokens, logprobs, top);
		one.n = result.n;
		one.score = result.score;
		one.stopped = result.stopped;
		/* Its log probabilities are those of the model at each place. */
		for (unsigned i = 0; i < one.n; i++) {
			struct engine_logprob list[VOCAB];

			follow(one.tokens, i, list);
			assert_int_equal(logprobs[i].token, one.tokens[i]);
			for (unsigned t = 0; t < VOCAB; t++) {
				if (list[t].token == one.tokens[i])
					assert_true(list[t].logprob == logprobs[i].logprob);
			}
			for (unsigned t = 0; t < options->n_top; t++)
				assert_true(top[i * options->n_top + t].token == list[t].token);
			sum += logprobs[i].logprob;
		}
		length = one.n;
		if (one.stopped) {
			struct engine_logprob list[VOCAB];

			follow(one.tokens, one.n, list);
			for (unsigned t = 0; t < VOCAB; t++)
				sum += list[t].token == STOP ? list[t].logprob : 0;
			length++;
		}
		assert_true(fabs(one.score - sum / pow(length, options->length_penalty)) < 1e-5);
		if (k)
			assert_true(all[k - 1].score >= one.score);
		all[k] = one;
		if (!k)
			best = one;
	}
	beam_search_free(b);
	return best;
}

/* The best of all texts there are. */
static void enumerate(int32_t *tokens, unsigned n, double sum, double penalty, unsigned depth,
		      struct found *best)
{
	struct engine_logprob list[VOCAB];

	follow(tokens, n, list);
	for (unsigned t = 0; t < VOCAB; t++) {
		bool stops = list[t].token == STOP, ends = stops || n + 1 == depth;
		double score = (sum + list[t].logprob) / pow(n + 1, penalty);

		tokens[n] = list[t].token;
		if (ends && score > best->score) {
			best->score = score;
			best->n = stops ? n : n + 1;
			best->stopped = stops;
			memcpy(best->tokens, tokens, (n + 1) * sizeof(*tokens));
		}
		if (!ends)
			enumerate(tokens, n + 1, sum + list[t].logprob, penalty, depth, best);
	}
}

static struct beam_options options_of(unsigned width, double penalty, enum beam_stopping stopping)
{
	return (struct beam_options){
		.width = width,
		.max_tokens = DEPTH,
		.n_top = 2,
		.n_stops = 1,
		.stops = {STOP},
		.length_penalty = penalty,
		.stopping = stopping,
	};
}

TEST(wide_enough_it_is_exact)
{
	static struct found all[512];

	for (model_seed = 1; model_seed < 300; model_seed++) {
		struct beam_options o = options_of(256, model_seed % 3 * 0.5, BEAM_STOP_NEVER);
		struct found best, truth = {.score = -INFINITY};
		int32_t tokens[DEPTH];
		unsigned n;

		best = search(&o, &n, all);
		enumerate(tokens, 0, 0, o.length_penalty, DEPTH, &truth);
		assert_true(fabs(best.score - truth.score) < 1e-5);
		assert_int_equal(best.n, truth.n);
		assert_memory_equal(best.tokens, truth.tokens, best.n * sizeof(int32_t));
	}
}

TEST(one_beam_is_greedy)
{
	struct found all[4];

	for (model_seed = 1; model_seed < 100; model_seed++) {
		struct beam_options o = options_of(1, 1, BEAM_STOP_AT_WIDTH);
		struct engine_logprob list[VOCAB];
		struct found best;
		unsigned n;

		best = search(&o, &n, all);
		assert_int_equal(n, 1);
		for (unsigned i = 0; i < best.n; i++) {
			follow(best.tokens, i, list);
			assert_int_equal(best.tokens[i], list[0].token);
		}
		if (best.stopped) {
			follow(best.tokens, best.n, list);
			assert_int_equal(list[0].token, STOP);
		}
	}
}

/* More beams find nothing worse, as long as they look to the end. */
TEST(narrow_ones_find_enough)
{
	struct found all[16];
	unsigned as_good = 0, total = 0;

	for (model_seed = 1; model_seed < 400; model_seed++) {
		struct found truth = {.score = -INFINITY};
		int32_t tokens[DEPTH];

		enumerate(tokens, 0, 0, 1, DEPTH, &truth);
		for (int stopping = 0; stopping < 3; stopping++) {
			struct beam_options o = options_of(6, 1, (enum beam_stopping)stopping);
			unsigned n;
			struct found best = search(&o, &n, all);

			assert_true(n >= 1 && n <= 6);
			assert_true(best.score <= truth.score + 1e-5);
			as_good += fabs(best.score - truth.score) < 1e-5;
			total++;
		}
	}
	printf("%u of %u searches of width 6 found the best of all\n", as_good, total);
	assert_true(as_good > total / 2);
}

TEST(refuses_nothing_to_do)
{
	struct beam_options o = options_of(0, 1, BEAM_STOP_NEVER);
	struct beam_search *b = NULL;

	assert_int_equal(beam_search_new(&o, &b), -EINVAL);
	o = options_of(1, 1, BEAM_STOP_NEVER);
	o.max_tokens = 0;
	assert_int_equal(beam_search_new(&o, &b), -EINVAL);
	assert_null(b);
}

TEST_MAIN
