// SPDX-License-Identifier: MIT
/* Where models go, who goes for them, and how they leave. */

#include <unistd.h>

#include "hostcopy.h"
#include "models_fixture.h"

static unsigned chip_of_last(void)
{
	struct txda_device_info info = TXDA_INIT(struct txda_device_info);

	txda_device_info(txda_group_device(fake_model_last_group, 0), &info);
	return info.index;
}

/* Models spread over the chips; those that are to come keep their share of the memory. */
TEST(places_models)
{
	struct models *t = open_table(0);
	struct served_model *m[6];
	char name[16];

	for (unsigned i = 0; i < 6; i++) {
		snprintf(name, sizeof(name), "m%u", i);
		make_case(name);
		m[i] = add(t, name);
	}
	for (unsigned i = 0; i < 6; i++) {
		unsigned others = (5 - i) / FAKE_CHIPS;
		uint64_t fixed = 102 << 20, left = fake_chip_bytes - fixed;

		assert_int_equal(load(m[i]), MODEL_READY);
		assert_int_equal(chip_of_last(), i % FAKE_CHIPS);
		assert_int_equal(replica_chip(&m[i]->replicas[0], 0), i % FAKE_CHIPS);
		assert_int_equal(fake_model_last_reserve, others ? fixed + (left - fixed) / 2 : 0);
	}
	assert_int_equal(atomic_load(&fake_groups), 6);
}

TEST(avoids_used_and_lost_chips)
{
	struct models *t = open_table(0);
	struct served_model *a, *b, *c;

	fake_plan.tp = fake_model_config.info.tp = 2;
	a = add_case(t, "a");
	b = add_case(t, "b");
	c = add_case(t, "c");
	assert_int_equal(load(a), MODEL_READY);
	assert_int_equal(chip_of_last(), 0);
	assert_int_equal(load(b), MODEL_READY);
	assert_int_equal(chip_of_last(), 2);
	model_unload(a, false, MODEL_BY_ADMIN);
	wait_loader(t);
	fake_chip_lost[1] = true;
	assert_int_equal(load(c), MODEL_READY);
	assert_int_equal(chip_of_last(), 2);
	fake_chip_lost[3] = true;
	assert_int_equal(load(a), MODEL_FAILED);
	assert_says(a->error, "with lost chips");
}

/* Running requests end first; who asks meanwhile waits, and gets it again. */
TEST(drains)
{
	struct models *t = open_table(0);
	struct served_model *m;
	struct test_request r, other;
	struct outcome o;

	m = add_case(t, "ready");
	model_unload(m, false, MODEL_BY_ADMIN);
	assert_int_equal(m->state, MODEL_UNLOADED);
	assert_int_equal(load(m), MODEL_READY);
	assert_int_equal(begin_request(m, &r, 50), 0);
	model_unload(m, false, MODEL_BY_ADMIN);
	assert_int_equal(m->state, MODEL_DRAINING);
	assert_int_equal(m->metrics.unloads[MODEL_BY_ADMIN], 1);
	assert_false(model_is_ready(m));
	assert_int_equal(atomic_load(&fake_model_loaded), 1);
	assert_int_equal(end_request(&r), ENGINE_FINISH_LENGTH);
	wait_state(m, MODEL_UNLOADED);
	wait_loader(t);
	assert_int_equal(atomic_load(&fake_model_loaded), 0);
	/* No chips have it: that is no full queue. */
	assert_int_equal(begin_request(m, &other, 5), -EIO);
	engine_request_unref(other.request);

	assert_int_equal(load(m), MODEL_READY);
	assert_int_equal(begin_request(m, &r, 50), 0);
	model_unload(m, false, MODEL_BY_ADMIN);
	begin_wait(m, &o);
	assert_int_equal(end_request(&r), ENGINE_FINISH_LENGTH);
	assert_int_equal(end_wait(&o), MODEL_WAKE_READY);
	run_request(m);
}

/* A lost model refuses, then is loaded anew. Others go on. */
TEST(comes_back_after_a_loss)
{
	struct models *t = open_table(0);
	struct served_model *a, *b;
	struct test_request r;
	struct outcome o;

	a = add_case(t, "a");
	b = add_case(t, "b");
	assert_int_equal(load(a), MODEL_READY);
	fake_model_fail_group = fake_model_last_group;
	assert_int_equal(load(b), MODEL_READY);
	atomic_store(&fake_model_fail_after, 2);
	assert_int_equal(begin_request(a, &r, 20), 0);
	assert_int_equal(end_request(&r), ENGINE_FINISH_ERROR);
	model_check(a);
	assert_int_equal(a->state, MODEL_LOST);
	assert_says(a->error, "fell off the bus");
	assert_false(model_may_be_awaited(a));
	assert_int_equal(begin_request(a, &r, 5), -EIO);
	engine_request_unref(r.request);
	run_request(b);
	fake_model_fail_group = NULL;
	/* Lost until it has chips again; a load that fails is tried again. */
	fake_model_load_error = -EINVAL;
	models_pump(t);
	wait_loader(t);
	model_demand(a);
	assert_int_equal(a->state, MODEL_LOST);
	wait_loader(t);
	assert_int_equal(a->state, MODEL_LOST);
	fake_model_load_error = 0;
	/* So it is while the chips that are left are full, whatever would have to go for it. */
	b->pinned = true;
	for (unsigned i = 0; i < FAKE_CHIPS; i++)
		fake_chip_used[i] = fake_chip_bytes;
	model_demand(a);
	wait_loader(t);
	assert_int_equal(a->state, MODEL_LOST);
	memset(fake_chip_used, 0, sizeof(fake_chip_used));
	model_demand(a);
	wait_state(a, MODEL_READY);
	run_request(a);
	begin_wait(a, &o);
	model_unpark(a, &o.waiter);
}

/* Asleep: off the chip, its weights in host memory; it wakes with the next demand. */
TEST(sleeps)
{
	struct models *t = open_table(0);
	struct served_model *m;
	struct test_request r;

	make_case("ready");
	assert_int_equal(mkdir(at("ready/chip0"), 0755), 0);
	put("ready/chip0/param.bin", "weights", 0644);
	m = add(t, "ready");
	model_unload(m, true, MODEL_BY_ADMIN);
	assert_int_equal(m->state, MODEL_UNLOADED);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(load(m), MODEL_READY);
		assert_null(m->replicas[0].copy);
		assert_int_equal(begin_request(m, &r, 20), 0);
		model_unload(m, true, MODEL_BY_ADMIN);
		assert_int_equal(m->state, MODEL_DRAINING);
		assert_int_equal(end_request(&r), ENGINE_FINISH_LENGTH);
		wait_state(m, MODEL_ASLEEP);
		wait_loader(t);
		assert_int_equal(atomic_load(&fake_model_loaded), 0);
		assert_non_null(m->replicas[0].copy);
		assert_int_equal(hostcopy_bytes(m->replicas[0].copy), 7);
		model_unload(m, true, MODEL_BY_ADMIN);
		assert_int_equal(m->state, MODEL_ASLEEP);
	}
	/* A load that fails leaves it asleep, with its copy. */
	fake_model_load_error = -EIO;
	assert_int_equal(load(m), MODEL_ASLEEP);
	assert_non_null(m->replicas[0].copy);
	fake_model_load_error = 0;
	model_unload(m, false, MODEL_BY_ADMIN);
	assert_int_equal(m->state, MODEL_UNLOADED);
	assert_null(m->replicas[0].copy);
	/* Asked for while the copy is made. */
	assert_int_equal(load(m), MODEL_READY);
	model_unload(m, true, MODEL_BY_ADMIN);
	assert_int_equal(load(m), MODEL_READY);
	assert_null(m->replicas[0].copy);
}

/* An administrator's keep_alive ends when the model is unloaded, unless it comes with the next load. */
TEST(keeps_alive_as_asked)
{
	struct models *t = open_table(0);
	struct served_model *m;
	struct test_request r;

	m = add_case(t, "ready");
	assert_int_equal(load(m), MODEL_READY);
	m->keep_alive = 30;
	assert_int_equal(begin_request(m, &r, 20), 0);
	model_unload(m, false, MODEL_BY_ADMIN);
	assert_int_equal(m->state, MODEL_DRAINING);
	assert_int_equal(m->keep_alive, -1);
	m->keep_alive = 60;
	model_demand(m);
	assert_int_equal(end_request(&r), ENGINE_FINISH_LENGTH);
	wait_state(m, MODEL_READY);
	assert_int_equal(m->keep_alive, 60);
	model_unload(m, false, MODEL_BY_ADMIN);
	assert_int_equal(m->state, MODEL_UNLOADED);
	assert_int_equal(m->keep_alive, -1);
}

/* Idle for long enough it goes; one that is pinned stays. */
TEST(idles)
{
	struct models *t = open_table(0);
	struct served_model *m;

	m = add_case(t, "ready");
	assert_int_equal(load(m), MODEL_READY);
	m->keep_alive = 0;
	m->pinned = true;
	models_check(t);
	assert_int_equal(m->state, MODEL_READY);
	m->pinned = false;
	m->expected = 1;
	models_check(t);
	assert_int_equal(m->state, MODEL_READY);
	/* Who has been answered by the engine, and only reads on, does not keep it. */
	m->expected = 0;
	m->users = 1;
	models_check(t);
	assert_int_equal(m->state, MODEL_UNLOADED);
	assert_int_equal(m->metrics.unloads[MODEL_BY_IDLING], 1);
	m->users = 0;
}

/* A name leaves the table at once, what it stands for when nobody uses it any more. */
TEST(retires)
{
	struct models *t = open_table(0);
	struct served_model *a, *again, *raw;
	struct test_request r;
	struct outcome o;

	a = add_case(t, "a");
	raw = add_hf(t, "raw", "hang");
	assert_int_equal(load(a), MODEL_READY);
	assert_int_equal(begin_request(a, &r, 50), 0);
	model_use(a);
	/* Who waits until it comes back learns at once that it does not. */
	model_unload(a, false, MODEL_BY_ADMIN);
	begin_wait(a, &o);
	assert_int_equal(o.calls, 0);
	model_retire(a);
	assert_int_equal(o.calls, 1);
	assert_int_equal(o.why, MODEL_WAKE_REFUSED);
	assert_null(models_find(t, "a"));
	again = add(t, "a");
	assert_ptr_equal(models_find(t, "a"), again);
	assert_int_equal(load(again), MODEL_READY);
	assert_int_equal(end_request(&r), ENGINE_FINISH_LENGTH);
	wait_loader(t);
	models_check(t);
	assert_int_equal(t->n, 3);
	model_unuse(a);
	models_check(t);
	assert_int_equal(t->n, 2);
	assert_int_equal(atomic_load(&fake_model_loaded), 1);
	/* And one that is being loaded. */
	begin_wait(raw, &o);
	while (!runs("raw"))
		turn_loop();
	model_retire(raw);
	assert_int_equal(end_wait(&o), MODEL_WAKE_REFUSED);
	assert_null(models_find(t, "raw"));
	wait_loader(t);
	models_check(t);
	assert_int_equal(t->n, 1);
}

/* Fills chip @i but for @left bytes, whoever has them. */
static void fill_chip(unsigned i, uint64_t left)
{
	fake_chip_used[i] = fake_chip_bytes - left;
}

/* What does not fit is refused with value and limit, and with who would have to go. */
TEST(makes_room)
{
	const uint64_t fixed = 102 << 20, need = fixed + (64 << 16) + (8 << 20);
	struct models *t = open_table(0);
	struct served_model *m[5];
	struct model_fit fit;
	char err[512] = "", name[16];

	for (unsigned i = 0; i < 5; i++) {
		struct config_model *c;

		snprintf(name, sizeof(name), "m%u", i);
		make_case(name);
		c = new_config(name, at(name));
		/* 4 blocks suffice to the second one, the others take all. */
		c->kv_memory = i == 1 ? 4 << 16 : 0;
		m[i] = add_config(t, c);
	}
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(load(m[i]), MODEL_READY);
	assert_int_equal(models_fit(m[4], NULL, FIT_NOBODY, &fit, err, sizeof(err)), 0);
	assert_true(fit.exact && fit.fits && !fit.resident);
	assert_string_equal(err, "");
	assert_int_equal(fit.tp, 1);
	assert_int_equal(fit.need_bytes, need);
	assert_int_equal(fit.weight_bytes, 100 << 20);
	assert_int_equal(fit.n_groups, FAKE_CHIPS);
	assert_int_equal(fit.groups[2].chips[0], 2);
	assert_int_equal(fit.groups[2].free_bytes, fake_chip_bytes);

	for (unsigned i = 0; i < FAKE_CHIPS; i++)
		fill_chip(i, need - 1);
	assert_int_equal(models_fit(m[4], NULL, FIT_NOBODY, &fit, err, sizeof(err)), -ENOSPC);
	assert_non_null(
		strstr(err, "the model needs 114.0 MiB of a chip at least; 114.0 MiB are free"));
	/* Any of them makes room: the one that was idle for longest, never a pinned one. */
	assert_int_equal(models_fit(m[4], NULL, FIT_IDLE, &fit, err, sizeof(err)), 0);
	assert_false(fit.fits);
	assert_int_equal(fit.n_victims, 1);
	assert_ptr_equal(fit.victims[0], m[0]);
	m[0]->pinned = true;
	assert_int_equal(models_fit(m[4], NULL, FIT_IDLE, &fit, err, sizeof(err)), 0);
	assert_ptr_equal(fit.victims[0], m[1]);
	/* A chip so full that the small one on it is not enough. */
	fill_chip(1, 1 << 20);
	m[2]->pinned = m[3]->pinned = true;
	assert_int_equal(models_fit(m[4], NULL, FIT_IDLE, &fit, err, sizeof(err)), -ENOSPC);
	assert_int_equal(models_fit(m[3], NULL, FIT_NOBODY, &fit, err, sizeof(err)), 0);
	assert_true(fit.resident);
	/* Nobody may go, so it is left for later. */
	assert_int_equal(load(m[4]), MODEL_UNLOADED);
	assert_says(m[4]->error, "needs 114.0 MiB");
	/* Others' memory is no lost chip; a lost chip is no room. */
	for (unsigned i = 0; i < FAKE_CHIPS; i++)
		fake_chip_lost[i] = true;
	assert_int_equal(models_fit(m[4], NULL, FIT_IDLE, &fit, err, sizeof(err)), -EIO);
}

/* Weights that several models have are on a chip once: who is evicted gives back what is its own, the
 * last one the weights, too. */
TEST(shares_weights)
{
	const uint64_t weights = 100 << 20, own = 2 << 20, overhead = 8 << 20, block = 1 << 16;
	struct models *t = open_table(0);
	const char *const names[] = {"a", "b", "other"};
	struct served_model *m[3];
	struct model_fit fit;
	char err[512] = "";

	make_case("shared");
	make_case("other");
	fake_plan.tp = FAKE_CHIPS;
	fake_model_config.info.tp = FAKE_CHIPS;
	for (unsigned i = 0; i < 3; i++) {
		struct config_model *c = new_config(names[i], at(i < 2 ? "shared" : "other"));

		c->kv_memory = 4 * block;
		m[i] = add_config(t, c);
	}
	/* What is left to those who come: one's all, of the other all but the weights. */
	assert_int_equal(load(m[0]), MODEL_READY);
	assert_int_equal(fake_model_last_reserve,
			 (weights + 2 * own) +
				 (fake_chip_bytes - 2 * (weights + own) - own) / 3 * 2);
	assert_int_equal(models_fit(m[1], NULL, FIT_NOBODY, &fit, err, sizeof(err)), 0);
	assert_int_equal(fit.groups[0].there_bytes, weights);
	assert_int_equal(fit.groups[0].need_bytes, own + overhead + 4 * block);
	assert_int_equal(load(m[1]), MODEL_READY);

	for (unsigned i = 0; i < FAKE_CHIPS; i++)
		fill_chip(i, 0);
	/* Neither alone has the room that the third needs; both do not have the weights twice. */
	assert_int_equal(models_fit(m[2], NULL, FIT_IDLE, &fit, err, sizeof(err)), -ENOSPC);
	for (unsigned i = 0; i < FAKE_CHIPS; i++)
		fill_chip(i, overhead);
	assert_int_equal(models_fit(m[2], NULL, FIT_IDLE, &fit, err, sizeof(err)), 0);
	assert_int_equal(fit.n_victims, 2);
	/* Who has the same weights does not make them anew. */
	model_unload(m[1], false, MODEL_BY_ADMIN);
	wait_loader(t);
	for (unsigned i = 0; i < FAKE_CHIPS; i++)
		fill_chip(i, 0);
	assert_int_equal(models_fit(m[1], NULL, FIT_IDLE, &fit, err, sizeof(err)), -ENOSPC);
}

/* A load that was asked for waits for a busy model and takes its place; one of the start waits only
 * for what leaves anyway. */
TEST(waits_for_room)
{
	struct models *t = open_table(0);
	struct served_model *a, *b, *next;
	struct config_model *c;
	struct test_request r;

	a = add_case(t, "a");
	b = add_case(t, "b");
	assert_int_equal(load(a), MODEL_READY);
	for (unsigned i = 0; i < FAKE_CHIPS; i++)
		fill_chip(i, 1 << 20);
	atomic_store(&fake_model_hang, true);
	assert_int_equal(begin_request(a, &r, 100), 0);
	model_demand(b);
	wait_loader(t);
	assert_int_equal(b->state, MODEL_LOADING);
	/* The wait for room begins when its compile has ended, however long that took. */
	b->demand_ns = 0;
	models_pump(t);
	assert_int_equal(b->state, MODEL_LOADING);
	assert_int_equal(a->state, MODEL_READY);
	atomic_store(&fake_model_hang, false);
	assert_int_equal(end_request(&r), ENGINE_FINISH_LENGTH);
	/* Idle, it stays for the time that its load gives it. */
	a->replicas[0].load_ns = UINT64_MAX / 8;
	models_pump(t);
	assert_int_equal(a->state, MODEL_READY);
	a->replicas[0].load_ns = 0;
	models_pump(t);
	assert_int_equal(a->state, MODEL_UNLOADED);
	assert_int_equal(a->metrics.unloads[MODEL_BY_EVICTION], 1);
	fill_chip(0, fake_chip_bytes);
	wait_state(b, MODEL_READY);

	/* Loaded anew while it works. */
	fill_chip(0, 1 << 20);
	atomic_store(&fake_model_hang, true);
	assert_int_equal(begin_request(b, &r, 100), 0);
	model_retire(b);
	assert_int_equal(b->state, MODEL_DRAINING);
	c = new_config("b", at("b"));
	c->on_demand = 0;
	next = add_config(t, c);
	wait_loader(t);
	models_check(t);
	assert_int_equal(next->state, MODEL_LOADING);
	atomic_store(&fake_model_hang, false);
	fill_chip(0, fake_chip_bytes);
	assert_int_equal(end_request(&r), ENGINE_FINISH_LENGTH);
	wait_state(next, MODEL_READY);
	/* Beside one that stays it does not wait. */
	for (unsigned i = 0; i < FAKE_CHIPS; i++)
		fill_chip(i, 1 << 20);
	c = new_config("a2", at("a"));
	c->on_demand = 0;
	a = add_config(t, c);
	wait_loader(t);
	assert_int_equal(a->state, MODEL_UNLOADED);
}

/* Replicas do not share a group. */
TEST(keeps_replicas_apart)
{
	struct config_model *c;
	struct models *t = open_table(0);
	struct served_model *m;
	struct model_fit fit;
	struct test_request r[2];
	char err[512] = "";

	fake_plan.tp = fake_model_config.info.tp = 2;
	make_case("a");
	c = new_config("a", at("a"));
	c->data_parallel = 3;
	m = add_config(t, c);
	assert_int_equal(load(m), MODEL_READY);
	wait_loader(t);
	assert_int_equal(m->replicas[0].state, MODEL_READY);
	assert_int_equal(m->replicas[1].state, MODEL_READY);
	assert_int_equal(chip_of_last(), 2);
	assert_int_equal(m->replicas[2].state, MODEL_FAILED);
	assert_int_equal(models_fit(m, NULL, FIT_IDLE, &fit, err, sizeof(err)), -ENODEV);
	assert_says(err, "2 with a replica");
	/* Requests go to both; the model drains until both are through. */
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(begin_request(m, &r[i], 50 + 40 * i), 0);
	assert_ptr_not_equal(r[0].client.replica, r[1].client.replica);
	model_unload(m, false, MODEL_BY_ADMIN);
	assert_int_equal(m->state, MODEL_DRAINING);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(end_request(&r[i]), ENGINE_FINISH_LENGTH);
	wait_state(m, MODEL_UNLOADED);
}

static void wait_replica(struct replica *r, enum model_state state)
{
	for (unsigned i = 0; i < 40000 && r->state != state; i++)
		turn_loop();
	assert_int_equal(r->state, state);
}

/* A replica that comes back after its checkpoint has changed computes with the others' weights. */
TEST(replicas_are_alike)
{
	struct models *t = open_table(0);
	struct test_request r[2];
	struct served_model *m;
	struct config_model *c;
	char first[SOURCE_PATH];

	make_hf("raw", "");
	c = new_config("raw", at("raw"));
	c->data_parallel = 2;
	m = add_config(t, c);
	assert_int_equal(load(m), MODEL_READY);
	wait_replica(&m->replicas[1], MODEL_READY);
	memcpy(first, m->found.case_dir, sizeof(first));
	put("raw/config.json", "{\"changed\": 1}", 0644);
	fake_model_fail_group = fake_model_last_group;
	atomic_store(&fake_model_fail_after, 2);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(begin_request(m, &r[i], 50), 0);
	for (unsigned i = 0; i < 2; i++) {
		bool fails = r[i].client.replica == &m->replicas[1];

		assert_int_equal(end_request(&r[i]),
				 fails ? ENGINE_FINISH_ERROR : ENGINE_FINISH_LENGTH);
	}
	model_check(m);
	assert_int_equal(m->replicas[1].state, MODEL_LOST);
	fake_model_fail_group = NULL;
	m->replicas[1].retry_ns = 0;
	models_check(t);
	wait_replica(&m->replicas[1], MODEL_READY);
	assert_string_equal(m->found.case_dir, first);
	assert_int_equal(runs("raw"), 1);
	/* When all have left they come back with the new ones. */
	model_unload(m, false, MODEL_BY_ADMIN);
	assert_int_equal(load(m), MODEL_READY);
	assert_string_not_equal(m->found.case_dir, first);
	assert_int_equal(runs("raw"), 2);
}

/* The KV memory of a chip does not grow with the replicas, and does not depend on the first one. */
TEST(kv_memory_is_of_a_chip)
{
	struct models *t = open_table(0);
	struct engine_stats one, all;
	struct test_request r[2];
	struct served_model *m;
	struct config_model *c;
	uint64_t bytes;

	make_case("a");
	c = new_config("a", at("a"));
	c->data_parallel = 2;
	m = add_config(t, c);
	assert_int_equal(load(m), MODEL_READY);
	wait_replica(&m->replicas[1], MODEL_READY);
	bytes = model_kv_bytes(m);
	assert_int_equal(bytes, 512 * 64);
	atomic_store(&fake_model_hang, true);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(begin_request(m, &r[i], 50), 0);
	for (unsigned i = 0; i < 2; i++) {
		one.kv_keys_bytes = 0;
		for (unsigned k = 0; k < 40000 && !one.kv_keys_bytes; k++) {
			turn_loop();
			engine_stats(m->replicas[i].on_chip.engine, &one);
		}
	}
	assert_true(one.kv_keys_bytes > 0);
	assert_true(model_stats(m, &all));
	assert_int_equal(all.running, 2);
	assert_int_equal(all.kv_keys_bytes, one.kv_keys_bytes);
	/* The first replica loses its chip. */
	fake_model_fail_group = m->replicas[0].on_chip.group;
	atomic_store(&fake_model_fail_after, 1);
	atomic_store(&fake_model_hang, false);
	for (unsigned i = 0; i < 2; i++)
		end_request(&r[i]);
	model_check(m);
	wait_replica(&m->replicas[0], MODEL_LOST);
	for (unsigned k = 0; k < 40000 && m->replicas[0].on_chip.engine; k++) {
		turn_loop();
		model_check(m);
	}
	assert_null(m->replicas[0].on_chip.engine);
	assert_int_equal(m->state, MODEL_READY);
	assert_int_equal(model_kv_bytes(m), bytes);
	fake_model_fail_group = NULL;
}

/* A plan says of each group which chips it has, also lost ones, and whether a replica is there. */
TEST(plans_name_chips)
{
	struct models *t = open_table(0);
	struct served_model *m;
	struct config_model *c;
	struct model_fit fit;
	char err[512] = "";

	make_case("a");
	c = new_config("a", at("a"));
	c->data_parallel = 2;
	m = add_config(t, c);
	assert_int_equal(load(m), MODEL_READY);
	wait_replica(&m->replicas[1], MODEL_READY);
	fake_chip_lost[3] = true;
	assert_int_equal(models_fit(m, NULL, FIT_IDLE, &fit, err, sizeof(err)), 0);
	fake_chip_lost[3] = false;
	assert_true(fit.resident && fit.n_groups == 4);
	for (unsigned i = 0; i < 4; i++) {
		assert_int_equal(fit.groups[i].n_chips, 1);
		assert_int_equal(fit.groups[i].chips[0], i);
		assert_int_equal(fit.groups[i].lost, i == 3);
	}
	assert_int_equal(fit.groups[0].taken + fit.groups[1].taken + fit.groups[2].taken, 2);
}

/* What a model may use is all that is looked at, in the order in which it is said. */
TEST(stays_on_its_chips)
{
	const struct config_devices chips = {.chips = {2, 3, 0}, .n = 3};
	struct models *t = open_table(0);
	struct served_model *m[3];
	struct model_fit fit;
	const uint64_t fixed = 102 << 20;
	char err[512] = "";

	fake_plan.tp = fake_model_config.info.tp = 2;
	for (unsigned i = 0; i < 3; i++) {
		const char *const names[] = {"a", "b", "c"};
		struct config_model *c;

		make_case(names[i]);
		c = new_config(names[i], at(names[i]));
		if (i < 2)
			c->devices = chips;
		m[i] = add_config(t, c);
	}
	assert_int_equal(models_fit(m[0], NULL, FIT_NOBODY, &fit, err, sizeof(err)), 0);
	assert_int_equal(fit.n_groups, 1);
	assert_int_equal(fit.groups[0].chips[0], 2);
	/* The one that has to join it there has its share of the chips, the third has others. */
	assert_int_equal(load(m[0]), MODEL_READY);
	assert_int_equal(chip_of_last(), 2);
	assert_int_equal(fake_model_last_reserve, fixed + (fake_chip_bytes - 2 * fixed) / 2);
	assert_int_equal(load(m[1]), MODEL_READY);
	assert_int_equal(chip_of_last(), 2);
	assert_int_equal(fake_model_last_reserve, 0);
	m[2]->config->devices = (struct config_devices){.chips = {2}, .n = 1};
	assert_int_equal(models_fit(m[2], NULL, FIT_NOBODY, &fit, err, sizeof(err)), -ENODEV);
	assert_says(err, "the model may use 1 chips, in 0 groups");
	assert_int_equal(load(m[2]), MODEL_FAILED);
	assert_says(m[2]->error, "the model may use 1 chips, in 0 groups");
}

TEST_MAIN_EACH(set_up, tear_down)
