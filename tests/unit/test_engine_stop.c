// SPDX-License-Identifier: MIT
/* The engine's end while a chip hangs: after some seconds, however long a step may take. */
#include <sched.h>

#include "engine_fixture.h"

/* Frees the engine while its @launches-th launch hangs. */
static void stop_hung(const struct engine_options *options, unsigned launches)
{
	struct engine_sampling s = greedy(40);
	int32_t prompt[] = {1, 2, 3, 4, 5};
	struct engine *e = open_engine(options);
	unsigned before = atomic_load(&fake_model_launches);
	struct engine_request *r = submit_new(e, prompt, 5, &s);

	while (atomic_load(&fake_model_launches) < before + launches)
		sched_yield();
	engine_free(e);
	expect_finish(r, ENGINE_FINISH_CANCELLED);
	assert_int_equal(atomic_load(&fake_model_loaded), 0);
}

TEST(ends_beside_a_hung_step)
{
	atomic_store(&fake_model_hang, true);
	stop_hung(&(struct engine_options){.step_seconds = 600}, 1);
	atomic_store(&fake_model_hang, false);
}

TEST(ends_beside_a_hung_draft)
{
	fake_model_config.states = true;
	atomic_store(&fake_model_hang_mtp, true);
	stop_hung(&(struct engine_options){.case_dir = "step",
					   .draft_case_dir = "mtp",
					   .speculation = ENGINE_SPECULATE_MODEL,
					   .step_seconds = 600},
		  2);
	atomic_store(&fake_model_hang_mtp, false);
}

TEST_MAIN_EACH(small_model, drop_requests)
