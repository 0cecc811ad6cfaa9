// SPDX-License-Identifier: MIT
/* scheduler_sim [PATTERN...] - prints what the scheduler makes of arrival patterns (default: all),
 * under each cost model. */
#include <err.h>
#include <stdio.h>

#include "patterns.h"

static void print_pattern(const struct sim_pattern *pattern)
{
	struct sim_options options = pattern->options;
	struct sim_result result;

	printf("%s: %s\n", pattern->name, pattern->about);
	printf("  %-14s %-11s %8s %9s %9s %9s %9s %7s %9s %9s\n", "cost", "users", "requests",
	       "TTFT p50", "p99", "max", "tok/s", "share", "gap mean", "max");
	for (unsigned c = 0; c < sim_n_costs; c++) {
		options.cost = sim_costs[c];
		sim_run(&options, &result);
		for (unsigned g = 0; g < options.n_groups; g++) {
			const struct sim_group_result *r = &result.groups[g];

			printf("  %-14s %-11s %8u %7.0fms %7.0fms %7.0fms %9.0f %6.1f%% %7.2fms "
			       "%7.0fms\n",
			       g ? "" : options.cost->name, options.groups[g].name, r->requests,
			       r->ttft.p50 * 1e3, r->ttft.p99 * 1e3, r->ttft.max * 1e3,
			       r->tokens_per_s, r->share * 100, r->gap_s * 1e3,
			       r->longest_gap_s * 1e3);
		}
		printf("  %-14s %.0f tok/s, a step %.1f ms in the mean, %.1f at most; "
		       "%llu preemptions\n",
		       "", result.tokens_per_s, result.step.mean * 1e3, result.step.max * 1e3,
		       (unsigned long long)result.preemptions);
	}
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		const struct sim_pattern *pattern = sim_find_pattern(argv[i]);

		if (!pattern)
			errx(2, "there is no pattern '%s'", argv[i]);
		print_pattern(pattern);
	}
	for (unsigned i = 0; argc == 1 && i < sim_n_patterns; i++)
		print_pattern(&sim_patterns[i]);
	return 0;
}
