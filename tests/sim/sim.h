/* SPDX-License-Identifier: MIT */
/*
 * A simulator of the scheduler: the real scheduler and KV blocks plan every step, a cost model says
 * how long it takes, arrival patterns say who asks when. No chips, no threads, no wall clock: the
 * same input gives the same figures on every machine.
 *
 * Time moves from step to step as in the engine: requests that arrive while a step runs are seen at
 * its end, and the next step is begun before the tokens of the running one are known.
 */
#ifndef TXDA_TESTS_SIM_H
#define TXDA_TESTS_SIM_H

#include <stdbool.h>
#include <stdint.h>

#define SIM_MAX_GROUPS 4

/* Microseconds that a step takes. */
struct sim_cost {
	const char *name;
	double step_us;	   /* of every step: weights are read once */
	double token_us;   /* of each token in it */
	double context_us; /* of each earlier token that a token attends to */
};

extern const struct sim_cost sim_flat; /* a processor: tokens cost the same in any company */
extern const struct sim_cost sim_weight_bound; /* a chip that decodes: weights dominate */
extern const struct sim_cost sim_compute_bound;

/* Users who ask alike. */
struct sim_group {
	const char *name;
	unsigned users; /* 0: one */
	bool joins;	/* the requests are those of the user of the group before */
	int priority;
	double from_s;	    /* the first request */
	unsigned in_flight; /* requests that each user keeps in flight, or: */
	double pause_s;	    /* one request, and another one so long after it, or: */
	double every_s;	    /* a burst of requests so often, a tenth of it more or less */
	unsigned burst;	    /* 0: one */
	unsigned prompt[2], output[2]; /* tokens: between these */
	unsigned choices;	       /* answers to a request, forked from the first; 0: one */
	unsigned shared;	       /* of the prompt, equal in all requests of a user */
};

struct sim_options {
	const struct sim_cost *cost;
	double seconds;				 /* simulated */
	double warm_s;				 /* requests and steps before it are not counted */
	unsigned max_seqs, max_tokens, n_blocks; /* 0: 256, 2048, 32768 */
	unsigned max_stall_ms;			 /* 0: 200 */
	unsigned max_decode_ms;			 /* 0: no limit */
	bool no_prefix_caching, no_fair_time;
	unsigned n_groups;
	struct sim_group groups[SIM_MAX_GROUPS];
};

struct sim_times { /* seconds */
	double mean, p50, p99, max;
};

struct sim_group_result {
	unsigned requests; /* whose first token came */
	struct sim_times ttft;
	double longest_gap_s; /* between two tokens of a request */
	double gap_s;	      /* the same, in the mean */
	double tokens_per_s;  /* generated */
	uint64_t computed;    /* tokens, prompts among them */
	double share;	      /* of all computed tokens */
};

struct sim_result {
	struct sim_group_result groups[SIM_MAX_GROUPS];
	struct sim_times step;
	double tokens_per_s; /* generated, of all */
	uint64_t steps, preemptions;
};

void sim_run(const struct sim_options *options, struct sim_result *ret);

/* What a step takes that computes a prompt of @tokens alone, in seconds. */
double sim_prefill_s(const struct sim_cost *cost, unsigned tokens);

#endif
