// SPDX-License-Identifier: MIT
#include "launch.h"

#include <errno.h>

#include "clock.h"
#include "txda.h"

#define SLICE_NS (NS_PER_S / 2)	 /* interval of checks for the engine's end */
#define GRACE_NS (10 * NS_PER_S) /* how long the engine's end waits for a launch */

int launch_wait(struct txda_model *model, uint64_t fence, uint64_t start_ns,
		const struct launch_limits *limits)
{
	uint64_t now = start_ns, stop_at = UINT64_MAX;

	do {
		int error = txda_model_sync(model, fence, now + SLICE_NS);

		if (error != -ETIMEDOUT)
			return error;
		now = clock_ns();
		if (stop_at == UINT64_MAX && atomic_load(limits->stopping))
			stop_at = now + GRACE_NS;
	} while (now - start_ns < limits->most_ns && now < stop_at);
	return -ETIMEDOUT;
}
