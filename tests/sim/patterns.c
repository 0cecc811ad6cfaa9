// SPDX-License-Identifier: MIT
#include "patterns.h"

#include <string.h>

#define CHAT .prompt = {50, 150}, .output = {100, 300}
#define LONG .prompt = {16, 16}, .output = {1500, 1500}
#define ASKS .prompt = {16, 16}, .output = {10, 30}

/* @options: WITH(...) */
#define PATTERN(name, about, options, ...)                                                         \
	{                                                                                          \
		name, about,                                                                       \
		{                                                                                  \
			options, .groups = {__VA_ARGS__},                                          \
				 .n_groups = sizeof((struct sim_group[]){__VA_ARGS__}) /           \
					     sizeof(struct sim_group),                             \
		}                                                                                  \
	}
#define WITH(seconds_, warm_, ...) .seconds = seconds_, .warm_s = warm_, ##__VA_ARGS__

#define HEAVY                                                                                      \
	{                                                                                          \
		"heavy", .in_flight = 1000, CHAT                                                   \
	}
#define LIGHT                                                                                      \
	{                                                                                          \
		"light", .from_s = 0.5, .every_s = 1, ASKS                                         \
	}
#define CHATTER                                                                                    \
	{                                                                                          \
		"chat", .from_s = 0.5, .pause_s = 0.05, .prompt = {16, 16}, .output = {60, 60},    \
	}
#define VECTORS .in_flight = 200, .prompt = {8, 500}, .output = {1, 1}

const struct sim_pattern sim_patterns[] = {
	PATTERN("alone", "one user with 1000 requests in flight", WITH(90, 30), HEAVY),
	PATTERN("heavy", "the same, beside a user who asks once a second", WITH(90, 30), HEAVY,
		LIGHT),
	PATTERN("stream",
		"one user with 1000 requests in flight, beside one who reads one long answer after "
		"the other",
		WITH(30, 10), HEAVY,
		{"stream", .from_s = 0.5, .pause_s = 0.01, .prompt = {16, 16},
		 .output = {500, 500}}),
	PATTERN("chat",
		"the same, beside one who chats: answers of 60 tokens, 50 ms after each other",
		WITH(30, 10), HEAVY, CHATTER),
	PATTERN("vectors",
		"one user with 200 prompts in flight of which no token is wanted but one, beside "
		"such a chat",
		WITH(30, 10), {"vectors", VECTORS}, CHATTER),
	PATTERN("takes-all",
		"one user with 64 endless answers and 200 prompts of which one token is wanted, "
		"beside such a chat",
		WITH(30, 10), {"answers", .in_flight = 64, LONG},
		{"vectors", .joins = true, VECTORS}, CHATTER),
	PATTERN("bursts", "500 requests of one user every 20 s, beside one who asks once a second",
		WITH(100, 0), {"bursts", .from_s = 5, .every_s = 20, .burst = 500, CHAT},
		{"light", .every_s = 1, ASKS}),
	PATTERN("users", "60 users who ask every 10 s, beside one with 1000 requests in flight",
		WITH(90, 30), HEAVY, {"many", .users = 60, .every_s = 10, CHAT}),
	PATTERN("long", "two users with prompts of 8000 tokens, eight who chat", WITH(90, 10),
		{"books", .users = 2, .in_flight = 2, .prompt = {8000, 8000}, .output = {100, 300}},
		{"chats", .users = 8, .in_flight = 1, CHAT}),
	PATTERN("choices", "requests for 8 choices, beside a user who asks once a second",
		WITH(60, 10),
		{"choices", .in_flight = 8, .choices = 8, .prompt = {900, 1100},
		 .output = {100, 300}},
		LIGHT),
	PATTERN("priorities",
		"three users with 300 requests in flight, one above and one below the normal",
		WITH(90, 10), {"urgent", .priority = 1, .every_s = 1, .burst = 4, CHAT},
		{"normal", .in_flight = 300, CHAT},
		{"background", .priority = -1, .in_flight = 300, CHAT}),
	PATTERN("slots", "one user with 100 long requests for 16 slots, without a prefix cache",
		WITH(60, 10, .max_seqs = 16, .no_prefix_caching = true),
		{"heavy", .in_flight = 100, LONG}),
	PATTERN("exchange", "the same, beside a user who asks back to back",
		WITH(60, 10, .max_seqs = 16, .no_prefix_caching = true),
		{"heavy", .in_flight = 100, LONG}, {"light", .pause_s = 0.05, ASKS}),
};
const unsigned sim_n_patterns = sizeof(sim_patterns) / sizeof(sim_patterns[0]);

const struct sim_cost *const sim_costs[] = {&sim_flat, &sim_weight_bound, &sim_compute_bound};
const unsigned sim_n_costs = sizeof(sim_costs) / sizeof(sim_costs[0]);

const struct sim_pattern *sim_find_pattern(const char *name)
{
	for (unsigned i = 0; i < sim_n_patterns; i++) {
		if (!strcmp(sim_patterns[i].name, name))
			return &sim_patterns[i];
	}
	return NULL;
}
