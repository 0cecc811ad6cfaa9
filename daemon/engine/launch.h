/* SPDX-License-Identifier: MIT */
/* How long the engine waits for what it has launched: steps, images, steps of a draft model. */
#ifndef TXDA_ENGINE_LAUNCH_H
#define TXDA_ENGINE_LAUNCH_H

#include <stdatomic.h>
#include <stdint.h>

struct txda_model;

struct launch_limits {
	uint64_t most_ns;	     /* a launch that takes longer hangs */
	const atomic_bool *stopping; /* the engine is to end: a launch has some seconds more */
};

/*
 * Waits for the model's launch that began at @start_ns (CLOCK_MONOTONIC) and ends with @fence.
 * -ETIMEDOUT: it has reached a limit. Other errors: the chips failed.
 */
int launch_wait(struct txda_model *model, uint64_t fence, uint64_t start_ns,
		const struct launch_limits *limits);

#endif
