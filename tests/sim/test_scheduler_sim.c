// SPDX-License-Identifier: MIT
/* What the scheduler's policies come to, in simulated time: figures are exact on every machine. */
#include <math.h>

#include "../unit/unit.h"
#include "patterns.h"

/* What comes of a pattern; each is simulated once. */
static void run(const char *name, const struct sim_cost *cost, struct sim_result *ret)
{
	static struct sim_result known[16][4];
	const struct sim_pattern *pattern = sim_find_pattern(name);
	struct sim_options options;
	struct sim_result *result;
	unsigned c = 0;

	assert_non_null(pattern);
	while (sim_costs[c] != cost)
		c++;
	assert_true(sim_n_patterns <= 16 && sim_n_costs <= 4);
	result = &known[pattern - sim_patterns][c];
	if (!result->steps) {
		options = pattern->options;
		options.cost = cost;
		sim_run(&options, result);
	}
	*ret = *result;
}

TEST(same_input_same_figures)
{
	struct sim_options options = sim_find_pattern("users")->options;
	struct sim_result results[2];

	options.cost = &sim_weight_bound;
	for (unsigned i = 0; i < 2; i++)
		sim_run(&options, &results[i]);
	assert_memory_equal(&results[0], &results[1], sizeof(results[0]));
}

/* A user alone has every slot: a step takes longer than 256 decodes do, as prompts are in it. */
TEST(alone_has_all)
{
	struct sim_result result;

	for (unsigned c = 0; c < sim_n_costs; c++) {
		const struct sim_cost *cost = sim_costs[c];
		double decodes = (cost->step_us + 256 * cost->token_us) / 1e6;

		run("alone", cost, &result);
		assert_true(result.step.mean > decodes);
		assert_true(result.tokens_per_s > 0.95 * 256 / result.step.mean);
		assert_int_equal(result.preemptions, 0);
	}
}

/* Whoever asks is answered, under every pattern and cost model. */
TEST(nobody_starves)
{
	struct sim_result result;

	for (unsigned i = 0; i < sim_n_patterns; i++) {
		const struct sim_pattern *pattern = &sim_patterns[i];

		for (unsigned c = 0; c < sim_n_costs; c++) {
			run(pattern->name, sim_costs[c], &result);
			for (unsigned g = 0; g < pattern->options.n_groups; g++)
				assert_true(result.groups[g].tokens_per_s > 0);
		}
	}
}

/*
 * Beside 1000 requests of one user, another's first token comes within a step of these and its own
 * prefill, times 1.5, whatever steps cost, and the heavy user keeps 90% of what it has alone.
 */
TEST(light_beside_heavy)
{
	for (unsigned c = 0; c < sim_n_costs; c++) {
		struct sim_result alone, both;
		double limit;

		run("alone", sim_costs[c], &alone);
		run("heavy", sim_costs[c], &both);
		limit = 1.5 * (alone.step.mean + sim_prefill_s(sim_costs[c], 16));
		printf("%s: first token %.1f ms at most, %.1f allowed; heavy user %.0f of %.0f "
		       "tok/s\n",
		       sim_costs[c]->name, both.groups[1].ttft.max * 1e3, limit * 1e3,
		       both.groups[0].tokens_per_s, alone.tokens_per_s);
		assert_true(both.groups[1].requests >= 55);
		assert_true(both.groups[1].ttft.max <= limit);
		assert_true(both.groups[0].tokens_per_s >= 0.9 * alone.tokens_per_s);
	}
}

/* The same with few slots and with many, for short prompts and long ones: as fairness.py asks. */
TEST(light_beside_heavy_in_all_settings)
{
	static const unsigned slots[] = {16, 256}, prompts[] = {16, 400};

	for (unsigned i = 0; i < 4 * sim_n_costs; i++) {
		const struct sim_cost *cost = sim_costs[i / 4];
		unsigned prompt = prompts[i % 2];
		struct sim_options options = {
			.cost = cost,
			.seconds = 40,
			.warm_s = 10,
			.max_seqs = slots[i / 2 % 2],
			.n_groups = 1,
			.groups = {{"heavy", .in_flight = 1000, .prompt = {16, 16},
				    .output = {1500, 1500}},
				   {"light", .from_s = 0.5, .every_s = 1,
				    .prompt = {prompt, prompt}, .output = {12, 12}}},
		};
		struct sim_result alone, both;

		sim_run(&options, &alone);
		options.n_groups = 2;
		sim_run(&options, &both);
		assert_true(both.groups[1].requests >= 25);
		assert_true(both.groups[1].ttft.max <=
			    1.5 * (alone.step.mean + sim_prefill_s(cost, prompt)));
		assert_true(both.groups[0].tokens_per_s >= 0.9 * alone.tokens_per_s);
	}
}

/* Many users who come and go do not cost the chips more than the stalls' tenth. */
TEST(many_users_keep_the_throughput)
{
	for (unsigned c = 0; c < sim_n_costs; c++) {
		struct sim_result alone, both;

		run("alone", sim_costs[c], &alone);
		run("users", sim_costs[c], &both);
		assert_true(both.tokens_per_s >= 0.9 * alone.tokens_per_s);
		assert_true(both.groups[1].ttft.max < 4 * alone.step.mean);
	}
}

/*
 * Without a prefix cache, too, a user who asks back to back costs the heavy one the slot that it
 * holds, and not what is computed already: a preempted sequence finds its blocks again.
 */
TEST(turns_are_not_computed_again)
{
	for (unsigned c = 0; c < sim_n_costs; c++) {
		struct sim_result alone, both;

		run("slots", sim_costs[c], &alone);
		run("exchange", sim_costs[c], &both);
		assert_true(both.preemptions > 100);
		assert_true(both.tokens_per_s >= 0.95 * alone.tokens_per_s);
	}
}

/* Streams stand still for about max_stall_ms at most beside the longest prompts. */
TEST(long_prompts_beside_streams)
{
	struct sim_result result;

	for (unsigned c = 0; c < sim_n_costs; c++) {
		run("long", sim_costs[c], &result);
		assert_true(result.groups[1].longest_gap_s < 1.5 * 0.2);
	}
}

TEST(priorities_go_first)
{
	struct sim_result result;

	for (unsigned c = 0; c < sim_n_costs; c++) {
		run("priorities", sim_costs[c], &result);
		assert_true(result.groups[0].ttft.max < 0.2);
		assert_true(result.groups[1].ttft.p50 > 1);
		assert_true(result.groups[2].tokens_per_s > 0.9 * result.groups[1].tokens_per_s);
	}
}

/*
 * Beside 64 answers that one user generates another's stream has its tokens within about the time
 * that decodes may take, where a step of few rows takes less, and all have as many tokens a second
 * as before where rows cost what they cost in any company.
 */
TEST(streams_take_turns)
{
	struct sim_options options = {
		.seconds = 30,
		.warm_s = 5,
		.n_groups = 2,
		.groups =
			{
				{"many", .in_flight = 1, .choices = 64, .prompt = {16, 16},
				 .output = {4000, 4000}},
				{"stream", .from_s = 1, .in_flight = 1, .prompt = {16, 16},
				 .output = {10000, 10000}},
			},
	};
	struct sim_result all, turns;

	options.cost = &sim_flat;
	options.no_fair_time = true;
	sim_run(&options, &all);
	options.max_decode_ms = 2;
	sim_run(&options, &turns);
	assert_true(all.groups[1].longest_gap_s > 0.006);
	/* A step with the prompt of the next 64 is longer. */
	assert_true(turns.groups[1].longest_gap_s < 0.004);
	/* 64 answers have 19 rows of a step in turns, and behind these come the next 64. */
	assert_true(turns.groups[0].longest_gap_s < 8 * 0.002);
	assert_true(turns.tokens_per_s >= 0.98 * all.tokens_per_s);
	assert_true(turns.groups[0].tokens_per_s >= 0.9 * all.groups[0].tokens_per_s);
	/* What a step takes at least is no reason to leave any out. */
	options.cost = &sim_weight_bound;
	options.max_decode_ms = 0;
	sim_run(&options, &all);
	options.max_decode_ms = 25;
	sim_run(&options, &turns);
	assert_true(turns.tokens_per_s >= 0.99 * all.tokens_per_s);
}

/*
 * Beside 64 answers of another user a stream's tokens take one and a half times as long as alone at
 * most, without any option, whatever steps cost. Each prompt of the next 64 delays one of them
 * further, by its prefill.
 */
TEST(a_stream_beside_64_answers)
{
	for (unsigned c = 0; c < sim_n_costs; c++) {
		struct sim_options options = {
			.cost = sim_costs[c],
			.seconds = 10,
			.warm_s = 3,
			.n_groups = 1,
			.groups = {{"stream", .from_s = 1, .in_flight = 1, .prompt = {16, 16},
				    .output = {4000, 4000}},
				   {"many", .in_flight = 1, .choices = 64, .prompt = {16, 16},
				    .output = {400, 400}}},
		};
		const double seconds = options.seconds - options.warm_s;
		double tokens, prompts;
		struct sim_result alone, both;

		sim_run(&options, &alone);
		options.n_groups = 2;
		sim_run(&options, &both);
		tokens = both.groups[0].tokens_per_s * seconds;
		prompts = ceil(both.groups[1].tokens_per_s * seconds / (64 * 400));
		printf("%s: a token every %.4f ms, %.4f alone\n", options.cost->name,
		       both.groups[0].gap_s * 1e3, alone.groups[0].gap_s * 1e3);
		assert_true(both.groups[0].gap_s * tokens <=
			    1.5 * alone.groups[0].gap_s * tokens +
				    prompts * sim_prefill_s(sim_costs[c], 16));
	}
}

/*
 * Beside a heavy user who generates, who has only prompts, or who does both, a light user's tokens
 * take at most 1.7 times as long as they do alone, whatever steps cost. The heavy user keeps at least
 * two fifths of its throughput while such a stream never ends, and all of it where decodes cost next
 * to nothing.
 */
TEST(streams_keep_their_pace)
{
	static const char *const names[] = {"stream", "chat", "vectors", "takes-all"};

	for (unsigned i = 0; i < 4 * sim_n_costs; i++) {
		const struct sim_cost *cost = sim_costs[i / 4];
		const char *name = names[i % 4];
		const struct sim_group_result *light;
		struct sim_result alone, both;

		run("alone", cost, &alone);
		run(name, cost, &both);
		light = &both.groups[sim_find_pattern(name)->options.n_groups - 1];
		printf("%s, %s: a token every %.2f ms; heavy user %.0f of %.0f tok/s\n", cost->name,
		       name, light->gap_s * 1e3, both.groups[0].tokens_per_s, alone.tokens_per_s);
		assert_true(light->gap_s <= 1.7 * sim_prefill_s(cost, 1));
		if (i % 4 < 2)
			assert_true(both.groups[0].tokens_per_s >= 0.4 * alone.tokens_per_s);
		if (i % 4 < 2 && cost == &sim_weight_bound)
			assert_true(both.groups[0].tokens_per_s >= 0.97 * alone.tokens_per_s);
	}
}

/* Of a request with many choices the prompt is computed once, but for its last block. */
TEST(choices_share_the_prompt)
{
	struct sim_options options = {
		.cost = &sim_flat,
		.seconds = 60,
		.n_groups = 1,
		.groups = {{"one", .every_s = 100, .choices = 64, .prompt = {1003, 1003},
			    .output = {50, 50}}},
	};
	struct sim_result result;

	sim_run(&options, &result);
	/* 1003 tokens are 62 blocks of 16 and 11 tokens; the last token of an answer is no input. */
	assert_int_equal(result.groups[0].computed, 1003 + 63 * 11 + 64 * 49);
}

TEST_MAIN
