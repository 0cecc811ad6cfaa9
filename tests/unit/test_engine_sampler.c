// SPDX-License-Identifier: MIT

#include <errno.h>
#include <math.h>

#include "unit.h"
#include "sampler_internal.h"
#include "token_counts.h"

#define VOCAB 512
#define K     16

static float logits[VOCAB], topk_logits[VOCAB];
static int32_t topk_ids[VOCAB];
static struct sampler_row row;
static struct sampler *sampler;

static int by_logit(const void *a, const void *b)
{
	int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

	if (logits[x] != logits[y])
		return logits[x] > logits[y] ? -1 : 1;
	return x < y ? -1 : 1;
}

/* Makes the list and lse as the device does, from logits[]. */
static void finish_row(unsigned k)
{
	double sum = 0;

	for (int32_t t = 0; t < VOCAB; t++) {
		topk_ids[t] = t;
		sum += exp((double)logits[t]);
	}
	qsort(topk_ids, VOCAB, sizeof(topk_ids[0]), by_logit);
	for (unsigned i = 0; i < VOCAB; i++)
		topk_logits[i] = logits[topk_ids[i]];
	row = (struct sampler_row){
		.logits = logits,
		.topk_ids = topk_ids,
		.topk_logits = topk_logits,
		.lse = (float)log(sum),
		.vocab = VOCAB,
		.k = k,
	};
}

/* The row as the chip gives it: nothing of it was fetched. */
static struct sampler_row *fresh(void)
{
	static struct sampler_row copy;

	copy = row;
	return &copy;
}

static void random_row(float spread)
{
	for (unsigned t = 0; t < VOCAB; t++)
		logits[t] = spread *
			    ((float)rand() / (float)RAND_MAX + (float)rand() / (float)RAND_MAX);
	finish_row(K);
}

static struct engine_sampling plain(void)
{
	return (struct engine_sampling){
		.temperature = 1, .top_p = 1, .logprobs = -1, .max_tokens = 1};
}

/* What holds for a choice in the tests besides the sampling. */
static struct engine_mask mask;
static uint32_t mask_bits[VOCAB / 32];
static int32_t mask_list[VOCAB];
static struct engine_bias biases[4];
static struct token_counts *seen;
static char seen_memory[1 << 14];
static struct sampler_rules rules;

static bool is_stop(const struct engine_sampling *p, int32_t token)
{
	for (unsigned j = 0; j < p->n_stop_tokens; j++) {
		if (p->stop_tokens[j] == token)
			return true;
	}
	return false;
}

static bool may_come(const struct engine_sampling *p, int32_t token)
{
	if (rules.mask_stops && is_stop(p, token))
		return false;
	if (!rules.mask)
		return true;
	return (mask_bits[token / 32] >> (token % 32) & 1) || (mask.end && is_stop(p, token));
}

/* A token's logit with bias and penalties, by the book. */
static float adjusted(const struct engine_sampling *p, int32_t token)
{
	float logit = logits[token];

	for (unsigned i = 0; i < p->n_biases; i++)
		logit += p->biases[i].token == token ? p->biases[i].bias : 0;
	for (unsigned i = 0; rules.counts && i < seen->n; i++) {
		uint32_t generated = seen->entries[i].generated;

		if (seen->entries[i].token != token)
			continue;
		if (p->repetition_penalty > 0)
			logit = logit > 0 ? logit / p->repetition_penalty
					  : logit * p->repetition_penalty;
		if (generated)
			logit -= p->frequency_penalty * (float)generated + p->presence_penalty;
	}
	return logit;
}

struct entry {
	int32_t token;
	float logit;
};

static int by_entry(const void *x, const void *y)
{
	const struct entry *a = x, *b = y;

	if (a->logit != b->logit)
		return a->logit > b->logit ? -1 : 1;
	return a->token < b->token ? -1 : 1;
}

/* The definition, by the book, over all tokens sorted, in double: the probability of each token. */
static void by_the_book(const struct engine_sampling *p, double *prob)
{
	struct entry entries[VOCAB];
	double sum = 0, cumulative = 0, weight[VOCAB];
	unsigned n = 0;

	memset(prob, 0, VOCAB * sizeof(*prob));
	for (int32_t t = 0; t < VOCAB; t++) {
		if (may_come(p, t))
			entries[n++] = (struct entry){t, adjusted(p, t)};
	}
	qsort(entries, n, sizeof(entries[0]), by_entry);
	if (p->top_k && n > (unsigned)p->top_k)
		n = (unsigned)p->top_k;
	for (unsigned i = 0; i < n; i++) {
		weight[i] = exp(((double)entries[i].logit - entries[0].logit) / p->temperature);
		sum += weight[i];
	}
	for (unsigned i = 0; i < n; i++) {
		double before = cumulative;

		cumulative += weight[i];
		if ((p->top_p < 1 && before >= p->top_p * sum) || weight[i] < p->min_p)
			weight[i] = 0;
	}
	sum = 0;
	for (unsigned i = 0; i < n; i++)
		sum += weight[i];
	for (unsigned i = 0; i < n; i++)
		prob[entries[i].token] = weight[i] / sum;
}

/* Sets the rules at random: stops, a mask of some density, as bits or as a list, tokens seen. */
static void random_rules(struct engine_sampling *p)
{
	unsigned density = 1 + (unsigned)rand() % 100;

	p->n_stop_tokens = 2;
	p->stop_tokens[0] = topk_ids[rand() % 20];
	p->stop_tokens[1] = rand() % 2 ? p->stop_tokens[0] : topk_ids[rand() % VOCAB];
	rules = (struct sampler_rules){.mask_stops = rand() % 4 == 0};
	if (rand() % 2) {
		memset(mask_bits, 0, sizeof(mask_bits));
		mask = (struct engine_mask){.end = rand() % 2};
		for (int32_t t = 0; t < VOCAB; t++) {
			if ((unsigned)rand() % 100 >= density || is_stop(p, t))
				continue;
			mask_bits[t / 32] |= 1u << (t % 32);
			mask_list[mask.n++] = t;
		}
		if (!mask.n) {
			mask_bits[0] |= 1;
			mask_list[mask.n++] = 0;
		}
		if (rand() % 2)
			mask.bits = mask_bits;
		else
			mask.list = mask_list;
		rules.mask = &mask;
	}
	if (rand() % 2) {
		for (unsigned i = 0; i < 4; i++)
			biases[i] =
				(struct engine_bias){(int32_t)(i * 100 + (unsigned)rand() % 100),
						     (float)(rand() % 100 - 50) / 4};
		p->biases = biases;
		p->n_biases = 1 + (unsigned)rand() % 4;
	}
	seen = token_counts_init(seen_memory, 200);
	if (rand() % 2) {
		unsigned n = (unsigned)rand() % 40;

		for (unsigned i = 0; i < n; i++)
			token_counts_add(seen, topk_ids[rand() % (rand() % 2 ? 30 : VOCAB)],
					 rand() % 2);
		rules.counts = seen;
		p->repetition_penalty = rand() % 2 ? 1 : (float)(rand() % 300) / 100 + 0.01f;
		p->presence_penalty = rand() % 2 ? 0 : (float)(rand() % 400 - 200) / 100;
		p->frequency_penalty = rand() % 2 ? 0 : (float)(rand() % 400 - 200) / 100;
	}
}

TEST(random_numbers_are_uniform_and_fixed)
{
	unsigned counts[16] = {0};
	double chi = 0, last = -1;

	for (uint64_t seed = 0; seed < 200; seed++) {
		for (uint64_t position = 0; position < 200; position++) {
			double u = sampler_uniform(seed, position);

			assert_true(u >= 0 && u < 1 && u != last);
			last = u;
			counts[(unsigned)(u * 16)]++;
		}
	}
	for (unsigned i = 0; i < 16; i++)
		chi += pow(counts[i] - 2500.0, 2) / 2500;
	assert_true(chi < 40); /* 15 degrees of freedom: exceeded once in 2000 */
	assert_true(sampler_uniform(42, 7) == sampler_uniform(42, 7));
	/* Part of the contract: a seed gives the same text with every version. */
	assert_int_equal((int64_t)(sampler_uniform(42, 7) * 1e12), 922445615997);
}

/* Greedy, in both ways to ask for it, with adjustments and masks: the best by the book. */
TEST(greedy_takes_the_best_that_may_come)
{
	srand(17);
	for (unsigned round = 0; round < 5000; round++) {
		struct engine_sampling p = plain();
		float best = -INFINITY;
		int32_t token;

		if (round % 20 == 0)
			random_row((float)(1 + rand() % 12));
		row.k = (unsigned)(rand() % 3 ? K : rand() % 3);
		random_rules(&p);
		p.temperature = round % 3 ? 0 : 2;
		p.top_k = round % 3 ? 0 : 1;
		for (int32_t t = 0; t < VOCAB; t++) {
			if (may_come(&p, t) && adjusted(&p, t) > best)
				best = adjusted(&p, t);
		}
		assert_int_equal(sampler_choose(sampler, fresh(), &p, 0, &rules, &token), 0);
		assert_true(may_come(&p, token));
		assert_true(adjusted(&p, token) == best);
	}
}

TEST(nothing_may_come)
{
	struct engine_sampling p = plain();
	int32_t token;

	random_row(4);
	memset(mask_bits, 0, sizeof(mask_bits));
	for (unsigned i = 0; i < 4; i++) {
		mask = (struct engine_mask){0};
		if (i & 1)
			mask.bits = mask_bits;
		else
			mask.list = mask_list;
		rules = (struct sampler_rules){.mask = &mask};
		p.temperature = i & 2 ? 0 : 1;
		assert_int_equal(sampler_choose(sampler, fresh(), &p, 0, &rules, &token), -ENOENT);
	}
}

static struct engine_sampling random_sampling(void)
{
	static const float temperatures[] = {1, 1, 0.7f, 0.2f, 1.3f, 5, 100};
	struct engine_sampling p = plain();

	p.temperature = temperatures[rand() % 7];
	p.top_k = rand() % 2 ? 0 : 1 + rand() % 40;
	p.top_p = rand() % 2 ? 1 : (float)(1 + rand() % 999) / 1000;
	p.min_p = rand() % 2 ? 0 : (float)(rand() % 1000) / 3000;
	p.seed = (uint64_t)rand();
	return p;
}

/* As sampler_choose(), but always through the full row. */
static int choose_by_row(struct sampler_row *of, const struct engine_sampling *p, uint64_t position,
			 int32_t *ret_token)
{
	int error;

	sampler->row = of;
	sampler->p = p;
	sampler->rules = rules;
	error = sampler_make_list(sampler);
	if (!error) {
		sampler_weigh_list(sampler);
		error = sampler_choose_from_row(sampler, sampler_uniform(p->seed, position),
						ret_token);
	}
	sampler_drop_list(sampler);
	return error;
}

/* What the list decides is what the full row decides, in every combination of settings. */
TEST(list_agrees_with_row)
{
	unsigned by_list = 0, rounds = 20000;

	srand(3);
	for (unsigned round = 0; round < rounds; round++) {
		struct engine_sampling p = random_sampling();
		uint64_t before = sampler_bytes_read(sampler);
		int32_t a, b;

		if (round % 50 == 0)
			random_row((float)(rand() % 12));
		random_rules(&p);
		assert_int_equal(sampler_choose(sampler, fresh(), &p, round, &rules, &a), 0);
		by_list += sampler_bytes_read(sampler) - before < sizeof(logits);
		assert_int_equal(choose_by_row(fresh(), &p, round, &b), 0);
		assert_int_equal(a, b);
		assert_true(may_come(&p, a));
	}
	printf("%u of %u choices by the list\n", by_list, rounds);
	assert_true(by_list > rounds / 4);
}

/* Frequencies of many draws are the probabilities by the book. */
TEST(draws_follow_the_definition)
{
	enum { DRAWS = 2000 };
	double prob[VOCAB];

	srand(5);
	for (unsigned round = 0; round < 240; round++) {
		struct engine_sampling p = random_sampling();
		unsigned drawn[VOCAB] = {0}, cells = 0;
		double chi = 0, rest = 0;
		unsigned rest_count = 0;

		random_row((float)(1 + rand() % 8));
		row.k = rand() % 2 ? K : 1;
		random_rules(&p);
		by_the_book(&p, prob);
		for (unsigned i = 0; i < DRAWS; i++) {
			int32_t token;

			assert_int_equal(sampler_choose(sampler, fresh(), &p, i, &rules, &token),
					 0);
			drawn[token]++;
		}
		for (unsigned t = 0; t < VOCAB; t++) {
			unsigned count = drawn[t];

			if (prob[t] == 0 && count)
				fail_msg("round %u: token %u drawn %u times, T %g k %d p %g min_p "
					 "%g",
					 round, t, count, (double)p.temperature, p.top_k,
					 (double)p.top_p, (double)p.min_p);
			if (prob[t] * DRAWS >= 10) {
				chi += pow(count - prob[t] * DRAWS, 2) / (prob[t] * DRAWS);
				cells++;
			} else {
				rest += prob[t];
				rest_count += count;
			}
		}
		if (rest * DRAWS >= 10) {
			chi += pow(rest_count - rest * DRAWS, 2) / (rest * DRAWS);
			cells++;
		}
		/* Mean cells - 1, deviation sqrt(2 (cells - 1)); 6 deviations and room for few
		 * cells. */
		assert_true(chi < cells + 6 * sqrt(2.0 * cells) + 12);
	}
}

/* The same row, seed and position give the same token whatever was chosen before. */
TEST(choices_do_not_depend_on_company)
{
	struct engine_sampling p = plain(), other = plain();
	int32_t alone[64], token;

	p.seed = 9;
	p.top_p = 0.95f;
	p.temperature = 0.8f;
	other.temperature = 100;
	for (unsigned pass = 0; pass < 2; pass++) {
		srand(21);
		for (unsigned i = 0; i < 64; i++) {
			random_row(4);
			if (pass)
				assert_int_equal(
					sampler_choose(sampler, fresh(), &other, i, NULL, &token),
					0);
			assert_int_equal(sampler_choose(sampler, fresh(), &p, i, NULL, &token), 0);
			if (pass)
				assert_int_equal(token, alone[i]);
			alone[i] = token;
		}
	}
}

TEST(logprobs_are_the_models)
{
	struct engine_logprob top[ENGINE_MAX_LOGPROBS];
	double sum = 0;

	random_row(6);
	for (unsigned t = 0; t < VOCAB; t++)
		sum += exp((double)sampler_logprob(sampler, fresh(), (int32_t)t));
	assert_true(fabs(sum - 1) < 1e-5);
	for (unsigned k = 4; k <= K; k += 12) {
		row.k = k;
		sampler_top(sampler, fresh(), ENGINE_MAX_LOGPROBS, top);
		for (unsigned i = 0; i < ENGINE_MAX_LOGPROBS; i++) {
			assert_int_equal(top[i].token, topk_ids[i]);
			assert_true(top[i].logprob ==
				    sampler_logprob(sampler, fresh(), top[i].token));
		}
	}
}

/* What a broken model or chip may deliver is an error or a token, never more. */
TEST(survives_nonsense)
{
	struct engine_sampling p = plain();
	int32_t token;

	random_row(4);
	row.lse = NAN;
	assert_int_equal(sampler_choose(sampler, fresh(), &p, 0, NULL, &token), -EDOM);
	row.lse = INFINITY;
	assert_int_equal(sampler_choose(sampler, fresh(), &p, 0, NULL, &token), -EDOM);
	random_row(4);
	topk_ids[3] = VOCAB;
	assert_int_equal(sampler_choose(sampler, fresh(), &p, 0, NULL, &token), -EDOM);
	topk_ids[3] = -1;
	assert_int_equal(sampler_choose(sampler, fresh(), &p, 0, NULL, &token), -EDOM);
	random_row(4);
	topk_logits[0] = NAN;
	assert_int_equal(sampler_choose(sampler, fresh(), &p, 0, NULL, &token), -EDOM);
	for (unsigned round = 0; round < 2000; round++) {
		p = random_sampling();
		random_row(4);
		for (unsigned i = 0; i < 8; i++)
			logits[rand() % VOCAB] = rand() % 2   ? NAN
						 : rand() % 2 ? INFINITY
							      : -INFINITY;
		row.lse = (float)(rand() % 1000) - 500;
		if (rand() % 2)
			row.k = (unsigned)rand() % 3;
		random_rules(&p);
		token = -1;
		if (!sampler_choose(sampler, fresh(), &p, round, &rules, &token))
			assert_true(token >= 0 && token < VOCAB);
	}
}

#define CHECK_PARAMETER(member, value, words)                                                      \
	do {                                                                                       \
		struct engine_sampling p = plain();                                                \
		char err[128] = "";                                                                \
                                                                                                   \
		p.biases = biases;                                                                 \
		assert_int_equal(sampler_check(&p, err, sizeof(err)), 0);                          \
		p.member = value;                                                                  \
		assert_int_equal(sampler_check(&p, err, sizeof(err)), -EINVAL);                    \
		assert_says(err, words);                                                           \
	} while (0)

TEST(checks_parameters)
{
	biases[0] = (struct engine_bias){1, INFINITY};
	CHECK_PARAMETER(temperature, NAN, "");
	CHECK_PARAMETER(top_p, 0, "top_p 0");
	CHECK_PARAMETER(min_p, 1.5f, "");
	CHECK_PARAMETER(top_k, -2, "");
	CHECK_PARAMETER(max_tokens, 0, "");
	CHECK_PARAMETER(n_stop_tokens, ENGINE_MAX_STOP_TOKENS + 1, "");
	CHECK_PARAMETER(repetition_penalty, -1, "repetition_penalty -1");
	CHECK_PARAMETER(frequency_penalty, NAN, "");
	CHECK_PARAMETER(n_biases, 1, "");
}

static int open_sampler(void **state)
{
	return sampler_new(VOCAB, VOCAB, &sampler);
}

static int close_sampler(void **state)
{
	sampler_free(sampler);
	return 0;
}

TEST_MAIN_ALL(open_sampler, close_sampler)
