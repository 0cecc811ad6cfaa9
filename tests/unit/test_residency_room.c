// SPDX-License-Identifier: MIT
/* Where models go, and who goes for them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <time.h>
#include <unistd.h>

#include "residency_fixture.h"

static unsigned chip_of_last(void)
{
	struct txda_device_info info = TXDA_INIT(struct txda_device_info);

	txda_device_info(txda_group_device(fake_model_last_group, 0), &info);
	return info.index;
}

/* Models spread over the chips; those that are to come keep their share of the memory. */
static void places_models(void **state)
{
	struct residency *r = open_residency(0);
	struct outcome o[6];
	char name[16];

	(void)state;
	for (unsigned i = 0; i < 6; i++) {
		snprintf(name, sizeof(name), "m%u", i);
		make_case(name);
		add(r, name);
	}
	for (unsigned i = 0; i < 6; i++) {
		unsigned others = (5 - i) / FAKE_CHIPS;
		uint64_t fixed = 102 << 20, left = fake_chip_bytes - fixed;

		snprintf(name, sizeof(name), "m%u", i);
		assert_int_equal(acquire(r, name, &o[i]), 0);
		assert_int_equal(chip_of_last(), i % FAKE_CHIPS);
		assert_int_equal(fake_model_last_reserve, others ? fixed + (left - fixed) / 2 : 0);
	}
	assert_int_equal(atomic_load(&fake_groups), 6);
	for (unsigned i = 0; i < 6; i++)
		residency_release(r, o[i].model);
	residency_free(r);
}

static void avoids_used_and_lost_chips(void **state)
{
	struct residency *r = open_residency(0);
	struct outcome o[3];
	char err[256] = "";

	(void)state;
	fake_plan.tp = fake_model_config.info.tp = 2;
	make_case("a");
	make_case("b");
	make_case("c");
	add(r, "a");
	add(r, "b");
	add(r, "c");
	assert_int_equal(acquire(r, "a", &o[0]), 0);
	assert_int_equal(chip_of_last(), 0);
	assert_int_equal(acquire(r, "b", &o[1]), 0);
	assert_int_equal(chip_of_last(), 2);
	assert_int_equal(residency_unload(r, "a", err, sizeof(err)), 0);
	residency_release(r, o[0].model);
	wait_state(r, "a", RESIDENCY_PLANNED);
	fake_chip_lost[1] = true;
	assert_int_equal(acquire(r, "c", &o[2]), 0);
	assert_int_equal(chip_of_last(), 2);
	fake_chip_lost[3] = true;
	assert_int_equal(acquire(r, "a", &o[0]), -EIO);
	assert_non_null(strstr(o[0].text, "lost"));
	residency_release(r, o[1].model);
	residency_release(r, o[2].model);
	residency_free(r);
}

static void unloads_when_released(void **state)
{
	struct residency *r = open_residency(0);
	struct outcome o, other;
	char err[256] = "";

	(void)state;
	make_case("ready");
	add(r, "ready");
	assert_int_equal(residency_unload(r, "ready", err, sizeof(err)), 0);
	assert_int_equal(acquire(r, "ready", &o), 0);
	assert_int_equal(residency_unload(r, "ready", err, sizeof(err)), 0);
	assert_int_equal(state_of(r, "ready"), RESIDENCY_DRAINING);
	assert_int_equal(acquire(r, "ready", &other), -EBUSY);
	assert_int_equal(atomic_load(&fake_model_loaded), 1);
	residency_release(r, o.model);
	wait_state(r, "ready", RESIDENCY_PLANNED);
	assert_int_equal(atomic_load(&fake_model_loaded), 0);
	assert_int_equal(residency_load(r, "ready", err, sizeof(err)), 0);
	wait_state(r, "ready", RESIDENCY_RESIDENT);
	assert_int_equal(residency_load(r, "ready", err, sizeof(err)), 0);
	assert_int_equal(residency_load(r, "none", err, sizeof(err)), -ENOENT);
	residency_free(r);
}

/* A lost model refuses while it is held, then loads anew. Others go on. */
static void comes_back_after_a_loss(void **state)
{
	struct residency *r = open_residency(0);
	struct engine_request *request;
	struct outcome o, other, again;
	struct residency_info info;
	char err[256] = "";

	(void)state;
	make_case("a");
	make_case("b");
	add(r, "a");
	add(r, "b");
	assert_int_equal(acquire(r, "a", &o), 0);
	fake_model_fail_group = fake_model_last_group;
	assert_int_equal(acquire(r, "b", &other), 0);
	atomic_store(&fake_model_fail_after, 2);
	request = new_request(20);
	assert_int_equal(engine_submit(residency_engine(o.model), request, err, sizeof(err)), 0);
	while (!atomic_load(&request->finish))
		usleep(200);
	assert_int_equal(atomic_load(&request->finish), ENGINE_FINISH_ERROR);
	engine_request_unref(request);
	assert_int_equal(residency_find(r, "a", &info), 0);
	assert_int_equal(info.state, RESIDENCY_LOST);
	assert_non_null(strstr(info.error, "fell off the bus"));
	assert_int_equal(acquire(r, "a", &again), -EIO);
	run_request(residency_engine(other.model));
	fake_model_fail_group = NULL;
	residency_release(r, o.model);
	assert_int_equal(acquire(r, "a", &again), 0);
	run_request(residency_engine(again.model));
	residency_release(r, again.model);
	residency_release(r, other.model);
	residency_free(r);
}

/* Asleep: off the chip, its weights in host memory; it wakes with the next acquire. */
static void sleeps(void **state)
{
	struct residency *r = open_residency(0);
	struct residency_info info;
	struct outcome o;
	char err[256] = "";

	(void)state;
	make_case("ready");
	assert_int_equal(mkdir(at("ready/chip0"), 0755), 0);
	put("ready/chip0/param.bin", "weights", 0644);
	add(r, "ready");
	assert_int_equal(residency_sleep(r, "ready", err, sizeof(err)), -EINVAL);
	assert_non_null(strstr(err, "is planned, not resident"));
	assert_int_equal(residency_sleep(r, "none", err, sizeof(err)), -ENOENT);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(acquire(r, "ready", &o), 0);
		run_request(residency_engine(o.model));
		assert_int_equal(residency_find(r, "ready", &info), 0);
		assert_int_equal(info.host_bytes, 0);
		assert_int_equal(info.n_chips, 1);
		assert_int_equal(residency_sleep(r, "ready", err, sizeof(err)), 0);
		residency_release(r, o.model);
		wait_state(r, "ready", RESIDENCY_ASLEEP);
		assert_int_equal(atomic_load(&fake_model_loaded), 0);
		assert_int_equal(residency_find(r, "ready", &info), 0);
		assert_int_equal(info.host_bytes, 7);
		assert_int_equal(residency_sleep(r, "ready", err, sizeof(err)), 0);
	}
	fake_model_load_error = -EIO;
	assert_int_equal(acquire(r, "ready", &o), -EIO);
	assert_int_equal(state_of(r, "ready"), RESIDENCY_ASLEEP);
	fake_model_load_error = 0;
	assert_int_equal(residency_unload(r, "ready", err, sizeof(err)), 0);
	assert_int_equal(state_of(r, "ready"), RESIDENCY_PLANNED);
	residency_free(r);
}

/* A name leaves the table at once, what it stands for when nobody holds it any more. */
static void removes(void **state)
{
	struct residency *r = open_residency(0);
	struct residency_info info;
	struct residency_model *model;
	struct outcome o, again, waiting = {0};
	char err[256] = "";

	(void)state;
	make_case("a");
	make_hf("raw", "hang");
	add(r, "a");
	add(r, "raw");
	assert_int_equal(residency_remove(r, "none", err, sizeof(err)), -ENOENT);
	assert_int_equal(acquire(r, "a", &o), 0);
	assert_int_equal(residency_remove(r, "a", err, sizeof(err)), 0);
	assert_int_equal(residency_find(r, "a", &info), -ENOENT);
	assert_int_equal(acquire(r, "a", &again), -ENOENT);
	assert_int_equal(residency_list(r, &info, 1), 1);
	assert_int_equal(atomic_load(&fake_model_loaded), 1);
	add(r, "a");
	assert_int_equal(acquire(r, "a", &again), 0);
	assert_ptr_not_equal(again.model, o.model);
	assert_int_equal(atomic_load(&fake_model_loaded), 2);
	residency_release(r, o.model);
	for (unsigned i = 0; i < 5000 && atomic_load(&fake_model_loaded) > 1; i++)
		usleep(1000);
	assert_int_equal(atomic_load(&fake_model_loaded), 1);
	/* And one that is being loaded. */
	assert_int_equal(residency_acquire(r, "raw", on_ready, &waiting, &model, err, sizeof(err)),
			 -EINPROGRESS);
	while (!runs("raw"))
		usleep(1000);
	assert_int_equal(residency_remove(r, "raw", err, sizeof(err)), 0);
	wait_call(r, &waiting);
	assert_int_equal(waiting.error, -ECANCELED);
	assert_int_equal(residency_find(r, "raw", &info), -ENOENT);
	residency_release(r, again.model);
	residency_free(r);
}

/* Fills chip @i but for @left bytes, whoever has them. */
static void fill_chip(unsigned i, uint64_t left)
{
	fake_chip_used[i] = fake_chip_bytes - left;
}

/* What does not fit is refused with value and limit, and with who would have to go. */
static void makes_room(void **state)
{
	static const char *const idle[] = {"m0", "m1", "m2", "m3"};
	const uint64_t fixed = 102 << 20, need = fixed + (64 << 16) + (8 << 20);
	struct residency *r = open_residency(0);
	struct residency_plan plan;
	struct outcome o[4], late;
	char err[512] = "", name[16];

	(void)state;
	for (unsigned i = 0; i < 5; i++) {
		snprintf(name, sizeof(name), "m%u", i);
		make_case(name);
		add(r, name);
		/* 4 blocks suffice to the second one, the others take all. */
		assert_int_equal(
			residency_set_limits(r, name, i == 1 ? 4 << 16 : 0, NULL, err, sizeof(err)),
			0);
	}
	assert_int_equal(residency_set_limits(r, "none", 0, NULL, err, sizeof(err)), -ENOENT);
	for (unsigned i = 0; i < 4; i++) {
		snprintf(name, sizeof(name), "m%u", i);
		assert_int_equal(acquire(r, name, &o[i]), 0);
	}
	assert_int_equal(residency_make_room(r, "m4", NULL, 0, &plan, err, sizeof(err)), 0);
	assert_true(plan.exact && plan.fits && !plan.resident);
	assert_int_equal(plan.tp, 1);
	assert_int_equal(plan.need_bytes, need);
	assert_int_equal(plan.weight_bytes, 100 << 20);
	assert_int_equal(plan.n_groups, FAKE_CHIPS);
	assert_int_equal(plan.groups[2].chips[0], 2);
	assert_int_equal(plan.groups[2].free_bytes, fake_chip_bytes);

	for (unsigned i = 0; i < FAKE_CHIPS; i++)
		fill_chip(i, need - 1);
	assert_int_equal(residency_make_room(r, "m4", NULL, 0, &plan, err, sizeof(err)), -ENOSPC);
	assert_non_null(
		strstr(err, "needs 119537664 bytes of a chip at least; 119537663 are free"));
	assert_int_equal(acquire(r, "m4", &late), -ENOSPC);
	assert_non_null(strstr(late.text, "119537663 are free on the best group"));
	assert_int_equal(state_of(r, "m4"), RESIDENCY_PLANNED);
	/* Any of them makes room: the one that was idle for longest. */
	assert_int_equal(residency_make_room(r, "m4", idle, 4, &plan, err, sizeof(err)), 0);
	assert_false(plan.fits);
	assert_int_equal(plan.n_victims, 1);
	assert_int_equal(plan.victims[0], 0);
	assert_int_equal(residency_make_room(r, "m4", idle + 1, 1, &plan, err, sizeof(err)), 0);
	assert_int_equal(plan.n_victims, 1);
	/* A chip so full that the small one on it is not enough. */
	fill_chip(1, 1 << 20);
	assert_int_equal(residency_make_room(r, "m4", idle + 1, 1, &plan, err, sizeof(err)),
			 -ENOSPC);
	assert_int_equal(residency_make_room(r, "m3", NULL, 0, &plan, err, sizeof(err)), 0);
	assert_true(plan.resident);
	assert_int_equal(residency_make_room(r, "none", idle, 4, &plan, err, sizeof(err)), -ENOENT);
	/* Others' memory is no lost chip; a lost chip is no room. */
	for (unsigned i = 0; i < FAKE_CHIPS; i++)
		fake_chip_lost[i] = true;
	assert_int_equal(residency_make_room(r, "m4", idle, 4, &plan, err, sizeof(err)), -EIO);
	for (unsigned i = 0; i < 4; i++)
		residency_release(r, o[i].model);
	residency_free(r);
}

/* Replicas do not share a group. */
static void keeps_replicas_apart(void **state)
{
	struct residency *r = open_residency(0);
	struct residency_plan plan;
	struct outcome o[3];
	char err[512] = "", name[16];

	(void)state;
	fake_plan.tp = fake_model_config.info.tp = 2;
	make_case("a");
	for (unsigned i = 0; i < 3; i++) {
		snprintf(name, sizeof(name), "a#%u", i);
		assert_int_equal(residency_add(r, name, at("a"), 0, NULL, err, sizeof(err)), 0);
		assert_int_equal(residency_set_limits(r, name, 0, "a", err, sizeof(err)), 0);
	}
	assert_int_equal(acquire(r, "a#0", &o[0]), 0);
	assert_int_equal(acquire(r, "a#1", &o[1]), 0);
	assert_int_equal(chip_of_last(), 2);
	assert_int_equal(acquire(r, "a#2", &o[2]), -ENODEV);
	assert_non_null(strstr(o[2].text, "each of 2 has one"));
	assert_int_equal(residency_make_room(r, "a#2", NULL, 0, &plan, err, sizeof(err)), -ENOSPC);
	assert_non_null(strstr(err, "2 with a replica"));
	residency_release(r, o[0].model);
	residency_release(r, o[1].model);
	residency_free(r);
}

/* What a model may use is all that is looked at, in the order in which it is said. */
static void stays_on_its_chips(void **state)
{
	struct residency_chips chips = {.devices = {2, 3, 0}, .n_devices = 3};
	struct residency *r = open_residency(0);
	struct residency_plan plan;
	struct outcome o[3];
	const uint64_t fixed = 102 << 20;
	char err[512] = "";

	(void)state;
	fake_plan.tp = fake_model_config.info.tp = 2;
	for (unsigned i = 0; i < 3; i++) {
		const char *const names[] = {"a", "b", "c"};

		make_case(names[i]);
		add(r, names[i]);
	}
	assert_int_equal(residency_set_chips(r, "none", &chips, err, sizeof(err)), -ENOENT);
	assert_int_equal(residency_set_chips(r, "a", &chips, err, sizeof(err)), 0);
	assert_int_equal(residency_set_chips(r, "b", &chips, err, sizeof(err)), 0);
	assert_int_equal(residency_make_room(r, "a", NULL, 0, &plan, err, sizeof(err)), 0);
	assert_int_equal(plan.n_groups, 1);
	assert_int_equal(plan.groups[0].chips[0], 2);
	/* The one that has to join it there has its share of the chips, the third has others. */
	assert_int_equal(acquire(r, "a", &o[0]), 0);
	assert_int_equal(chip_of_last(), 2);
	assert_int_equal(fake_model_last_reserve, fixed + (fake_chip_bytes - 2 * fixed) / 2);
	assert_int_equal(acquire(r, "b", &o[1]), 0);
	assert_int_equal(chip_of_last(), 2);
	assert_int_equal(fake_model_last_reserve, 0);
	chips.n_devices = 1;
	assert_int_equal(residency_set_chips(r, "c", &chips, err, sizeof(err)), 0);
	assert_int_equal(residency_make_room(r, "c", NULL, 0, &plan, err, sizeof(err)), -ENOSPC);
	assert_non_null(strstr(err, "the model may use 1 chips, which are 0 groups"));
	assert_int_equal(acquire(r, "c", &o[2]), -ENODEV);
	assert_non_null(strstr(o[2].text, "the model may use 1 chips, which are 0 groups"));
	residency_release(r, o[0].model);
	residency_release(r, o[1].model);
	residency_free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(places_models),
		CASE(avoids_used_and_lost_chips),
		CASE(unloads_when_released),
		CASE(comes_back_after_a_loss),
		CASE(sleeps),
		CASE(removes),
		CASE(makes_room),
		CASE(keeps_replicas_apart),
		CASE(stays_on_its_chips),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
