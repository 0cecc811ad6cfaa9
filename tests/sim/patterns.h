/* SPDX-License-Identifier: MIT */
/* Arrival patterns for the simulator's program and test. */
#ifndef TXDA_TESTS_SIM_PATTERNS_H
#define TXDA_TESTS_SIM_PATTERNS_H

#include "sim.h"

struct sim_pattern {
	const char *name, *about;
	struct sim_options options; /* but the cost model */
};

extern const struct sim_pattern sim_patterns[];
extern const unsigned sim_n_patterns;

extern const struct sim_cost *const sim_costs[];
extern const unsigned sim_n_costs;

/* NULL: there is no such pattern. */
const struct sim_pattern *sim_find_pattern(const char *name);

#endif
