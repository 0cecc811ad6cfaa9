// SPDX-License-Identifier: MIT
/* Loads: the compiler, those who wait, the end of the table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "residency_fixture.h"

/* ---- tests ----------------------------------------------------------------------------------- */

static void adds(void **state)
{
	struct residency *r = open_residency(0);
	struct residency_info info[4];
	char err[256] = "";

	(void)state;
	make_case("ready");
	make_hf("raw", "");
	make_case("spoilt");
	put("spoilt/broken", "", 0644);
	assert_int_equal(mkdir(at("empty"), 0755), 0);
	add(r, "ready");
	add(r, "raw");
	assert_int_equal(residency_add(r, "raw", at("raw"), 0, NULL, err, sizeof(err)), -EEXIST);
	assert_int_equal(residency_add(r, "none", at("none"), 0, NULL, err, sizeof(err)), -ENOENT);
	assert_int_equal(residency_add(r, "file", at("compiler"), 0, NULL, err, sizeof(err)),
			 -ENOTDIR);
	assert_int_equal(residency_add(r, "empty", at("empty"), 0, NULL, err, sizeof(err)),
			 -EINVAL);
	assert_non_null(strstr(err, "neither"));
	assert_int_equal(residency_add(r, "spoilt", at("spoilt"), 0, NULL, err, sizeof(err)),
			 -EINVAL);
	assert_int_equal(residency_add(r, "two", at("ready"), 2, NULL, err, sizeof(err)), -EINVAL);
	assert_non_null(strstr(err, "for 1 chip, not 2"));
	assert_int_equal(residency_add(r, "", at("ready"), 0, NULL, err, sizeof(err)), -EINVAL);
	assert_int_equal(residency_add(r, "nine", at("raw"), 9, NULL, err, sizeof(err)), -EINVAL);
	assert_int_equal(residency_list(r, info, 1), 2);
	assert_int_equal(residency_list(r, info, 4), 2);
	assert_string_equal(info[0].name, "ready");
	assert_int_equal(info[0].state, RESIDENCY_PLANNED);
	assert_int_equal(info[0].weight_bytes, 100 << 20);
	assert_int_equal(info[1].state, RESIDENCY_COLD);
	assert_string_equal(residency_state_name(info[1].state), "cold");
	assert_int_equal(residency_find(r, "none", info), -ENOENT);
	residency_free(r);
	residency_free(NULL);
}

static void loads_once_for_many(void **state)
{
	struct residency *r = open_residency(0);
	struct residency_model *model = NULL;
	struct residency_info info;
	struct outcome o[3] = {{0}}, again;
	char err[256] = "", text[4096];

	(void)state;
	make_hf("raw", "slow");
	assert_int_equal(residency_add(r, "raw", at("raw"), 1, "w8", err, sizeof(err)), 0);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(
			residency_acquire(r, "raw", on_ready, &o[i], &model, err, sizeof(err)),
			-EINPROGRESS);
	assert_int_equal(state_of(r, "raw"), RESIDENCY_LOADING);
	for (unsigned i = 0; i < 2000; i++) {
		assert_int_equal(residency_find(r, "raw", &info), 0);
		if (!strcmp(info.phase, "compiling") && info.progress == 0.5)
			break;
		usleep(1000);
	}
	assert_true(info.progress == 0.5);
	assert_int_equal(residency_call_off(r, &o[2]), 1);
	for (unsigned i = 0; i < 2; i++) {
		wait_call(r, &o[i]);
		assert_int_equal(o[i].error, 0);
		assert_ptr_equal(o[i].model, o[0].model);
	}
	residency_dispatch(r);
	assert_int_equal(o[2].calls, 0);
	assert_int_equal(runs("raw"), 1);
	assert_int_equal(residency_find(r, "raw", &info), 0);
	assert_int_equal(info.state, RESIDENCY_RESIDENT);
	assert_int_equal(info.holders, 2);
	assert_true(info.progress == 1 && info.load_ns > 0 && info.max_context == 128 &&
		    info.kv_bytes == 512 * 64);
	assert_non_null(strstr(residency_case_dir(o[0].model), "/cache/key"));
	assert_string_equal(residency_name(o[0].model), "raw");
	run_request(residency_engine(o[0].model));
	assert_int_equal(acquire(r, "raw", &again), 0);
	residency_release(r, again.model);
	residency_release(r, o[0].model);
	residency_release(r, o[1].model);

	/* What the compiler was given: its options, no descriptors, no environment of ours. */
	get("raw/arguments", text, sizeof(text));
	assert_non_null(strstr(text, "--progress plain --tp 1 --weights w8"));
	get("raw/environment", text, sizeof(text));
	assert_null(strstr(text, "TXDA_SECRET"));
	get("raw/core", text, sizeof(text));
	assert_string_equal(text, "0\n");
	get("raw/fds", text, sizeof(text));
	assert_true(!strncmp(text, "0\n", 2));
	for (char *p = text; *p; p++)
		assert_true(*p == '\n' || (*p >= '0' && *p <= '9'));
	residency_free(r);

	/* The next daemon finds it in the cache. */
	r = open_residency(0);
	assert_int_equal(residency_add(r, "raw", at("raw"), 1, "w8", err, sizeof(err)), 0);
	assert_int_equal(acquire(r, "raw", &again), 0);
	assert_int_equal(runs("raw"), 1);
	residency_release(r, again.model);
	residency_free(r);
}

/* Whatever the compiler does wrong is told to those who wait, and the next one may try again. */
static void reports_the_compilers_failures(void **state)
{
	static const struct {
		const char *behave, *text;
		int error;
	} cases[] = {
		{"fail", "tensor a.b is missing", -EIO},
		{"silent", "ended with status 3", -EIO},
		{"crash", "killed by signal 11", -EIO},
		{"hang", "did not end within 4 seconds", -ETIMEDOUT},
		{"nothing", "made no", -EIO},
	};
	struct residency *r = open_residency(4);
	struct residency_info info;
	struct outcome o;

	(void)state;
	make_hf("raw", "");
	add(r, "raw");
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		put("raw/behave", cases[i].behave, 0644);
		assert_int_equal(acquire(r, "raw", &o), cases[i].error);
		assert_non_null(strstr(o.text, cases[i].text));
		assert_int_equal(residency_find(r, "raw", &info), 0);
		assert_int_equal(info.state, RESIDENCY_COLD);
		assert_string_equal(info.error, o.text);
	}
	put("raw/no_key", "", 0644);
	assert_int_equal(acquire(r, "raw", &o), -EIO);
	assert_non_null(strstr(o.text, "no such family"));
	unlink(at("raw/no_key"));
	put("raw/behave", "", 0644);
	assert_int_equal(acquire(r, "raw", &o), 0);
	residency_release(r, o.model);
	assert_int_equal(residency_find(r, "raw", &info), 0);
	assert_string_equal(info.error, "");
	unlink(at("compiler"));
	make_hf("late", "");
	add(r, "late");
	assert_true(acquire(r, "late", &o) < 0);
	assert_non_null(strstr(o.text, "cannot run"));
	assert_int_equal(acquire(r, "unknown", &o), -ENOENT);
	residency_free(r);
}

static void reports_a_failed_load(void **state)
{
	struct residency *r = open_residency(0);
	struct outcome o;

	(void)state;
	make_case("ready");
	add(r, "ready");
	fake_model_load_error = -ENOSPC;
	assert_int_equal(acquire(r, "ready", &o), -ENOSPC);
	assert_int_equal(state_of(r, "ready"), RESIDENCY_PLANNED);
	fake_model_load_error = 0;
	assert_int_equal(acquire(r, "ready", &o), 0);
	residency_release(r, o.model);
	residency_free(r);
}

/* A case dir of the cache that does not read well is compiled again. */
static void repairs_the_cache(void **state)
{
	struct residency *r = open_residency(0);
	char broken[1200], err[256] = "";
	struct outcome o;
	int fd;

	(void)state;
	make_hf("raw", "");
	add(r, "raw");
	assert_int_equal(acquire(r, "raw", &o), 0);
	snprintf(broken, sizeof(broken), "%s/broken", residency_case_dir(o.model));
	fd = open(broken, O_WRONLY | O_CREAT, 0644);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(residency_unload(r, "raw", err, sizeof(err)), 0);
	residency_release(r, o.model);
	wait_state(r, "raw", RESIDENCY_PLANNED);
	assert_int_equal(acquire(r, "raw", &o), 0);
	assert_int_equal(runs("raw"), 2);
	residency_release(r, o.model);
	residency_free(r);
}

/* No compiler runs for a checkpoint that names its case dir; the tokeniser is beside config.json, or
 * where the case is. */
static void serves_what_param_dir_names(void **state)
{
	struct residency_model_options int8 = {.kv_int8 = true}, plain = {0};
	struct residency *r = open_residency(0);
	struct residency_info info;
	char err[512] = "";
	struct outcome o;

	(void)state;
	make_hf("raw", "");
	make_case("raw/case");
	put("raw/config.json", "{\"param_dir\": \"case\"}", 0644);
	assert_int_equal(residency_add(r, "w", at("raw"), 0, "w8", err, sizeof(err)), -EINVAL);
	assert_non_null(strstr(err, "(unknown), not w8"));
	assert_int_equal(residency_add(r, "tp", at("raw"), 2, NULL, err, sizeof(err)), -EINVAL);
	assert_non_null(strstr(err, "raw/case was compiled for 1 chip, not 2"));
	add(r, "raw");
	assert_int_equal(residency_find(r, "raw", &info), 0);
	assert_int_equal(info.state, RESIDENCY_PLANNED);
	assert_string_equal(info.path, at("raw"));
	assert_string_equal(info.case_dir, at("raw/case"));
	assert_int_equal(residency_set_options(r, "raw", &int8, err, sizeof(err)), -EINVAL);
	assert_int_equal(residency_set_options(r, "raw", &plain, err, sizeof(err)), 0);
	assert_int_equal(residency_set_draft(r, "raw", "mtp", err, sizeof(err)), -EINVAL);
	assert_int_equal(acquire(r, "raw", &o), 0);
	assert_string_equal(residency_case_dir(o.model), at("raw/case"));
	assert_string_equal(residency_text_dir(o.model), at("raw/case"));
	run_request(residency_engine(o.model));
	assert_int_equal(residency_unload(r, "raw", err, sizeof(err)), 0);
	residency_release(r, o.model);
	wait_state(r, "raw", RESIDENCY_PLANNED);

	/* It is looked at anew with each load. */
	assert_int_equal(chmod(at("raw/case"), 0777), 0);
	assert_int_equal(acquire(r, "raw", &o), -EPERM);
	assert_non_null(strstr(o.text, "written by everybody"));
	assert_int_equal(chmod(at("raw/case"), 0755), 0);
	put("raw/tokenizer.json", "{}", 0644);
	assert_int_equal(acquire(r, "raw", &o), 0);
	assert_string_equal(residency_text_dir(o.model), at("raw"));
	assert_int_equal(runs("raw"), 0);
	residency_release(r, o.model);
	residency_free(r);
}

static void shuts_down(void **state)
{
	struct residency *r = open_residency(0);
	struct residency_model *model;
	struct outcome held, compiling = {0}, queued = {0};
	struct timespec start, end;
	char err[256] = "";

	(void)state;
	make_case("ready");
	make_hf("raw", "hang");
	make_hf("next", "");
	add(r, "ready");
	add(r, "raw");
	add(r, "next");
	assert_int_equal(acquire(r, "ready", &held), 0);
	assert_int_equal(
		residency_acquire(r, "raw", on_ready, &compiling, &model, err, sizeof(err)),
		-EINPROGRESS);
	assert_int_equal(residency_acquire(r, "next", on_ready, &queued, &model, err, sizeof(err)),
			 -EINPROGRESS);
	while (!runs("raw"))
		usleep(1000);
	clock_gettime(CLOCK_MONOTONIC, &start);
	residency_shutdown(r);
	wait_call(r, &queued);
	assert_int_equal(queued.error, -ESHUTDOWN);
	wait_call(r, &compiling);
	assert_int_equal(compiling.error, -ECANCELED);
	clock_gettime(CLOCK_MONOTONIC, &end);
	assert_true(end.tv_sec - start.tv_sec < 5);
	assert_int_equal(residency_acquire(r, "ready", on_ready, &queued, &model, err, sizeof(err)),
			 -ESHUTDOWN);
	assert_false(residency_idle(r));
	residency_release(r, held.model);
	for (unsigned i = 0; i < 5000 && !residency_idle(r); i++)
		usleep(1000);
	assert_true(residency_idle(r));
	residency_free(r);
}

/* Freed while a compiler runs and others wait. */
static void frees_in_the_middle(void **state)
{
	struct residency *r = open_residency(0);
	struct residency_model *model;
	struct outcome o = {0};
	char err[256] = "";

	(void)state;
	make_hf("raw", "hang");
	make_case("ready");
	add(r, "raw");
	add(r, "ready");
	assert_int_equal(residency_acquire(r, "raw", on_ready, &o, &model, err, sizeof(err)),
			 -EINPROGRESS);
	assert_int_equal(residency_acquire(r, "ready", on_ready, &o, &model, err, sizeof(err)),
			 -EINPROGRESS);
	while (!runs("raw"))
		usleep(1000);
	residency_free(r);
	assert_int_equal(o.calls, 0);
}

/* A load that is called off tells its waiters, stops the compiler, and can begin again at once. */
static void calls_off_a_load(void **state)
{
	struct residency *r = open_residency(0);
	struct residency_model *model;
	struct outcome first = {0}, queued = {0}, again;
	char err[256] = "";

	(void)state;
	make_hf("raw", "hang");
	make_case("ready");
	add(r, "raw");
	add(r, "ready");
	assert_int_equal(residency_acquire(r, "raw", on_ready, &first, &model, err, sizeof(err)),
			 -EINPROGRESS);
	assert_int_equal(residency_acquire(r, "ready", on_ready, &queued, &model, err, sizeof(err)),
			 -EINPROGRESS);
	while (!runs("raw"))
		usleep(1000);
	assert_int_equal(residency_unload(r, "ready", err, sizeof(err)), 0);
	wait_call(r, &queued);
	assert_int_equal(queued.error, -ECANCELED);
	assert_int_equal(state_of(r, "ready"), RESIDENCY_PLANNED);
	put("raw/behave", "", 0644);
	assert_int_equal(residency_unload(r, "raw", err, sizeof(err)), 0);
	wait_call(r, &first);
	assert_int_equal(first.error, -ECANCELED);
	/* While the compiler is still on its way out. */
	assert_int_equal(acquire(r, "raw", &again), 0);
	assert_int_equal(runs("raw"), 2);
	run_request(residency_engine(again.model));
	residency_release(r, again.model);
	residency_free(r);
}

/* A plan is made without a load; who wants the model meanwhile gets it. */
static void prepares_a_plan(void **state)
{
	struct residency *r = open_residency(0);
	struct residency_plan plan;
	struct outcome planned = {0}, both = {0}, loaded, none = {0};
	char err[512] = "";

	(void)state;
	make_hf("raw", "");
	make_hf("two", "slow");
	make_hf("bad", "fail");
	add(r, "raw");
	add(r, "two");
	add(r, "bad");
	assert_int_equal(residency_make_room(r, "raw", NULL, 0, &plan, err, sizeof(err)), 0);
	assert_false(plan.exact);
	assert_int_equal(residency_prepare(r, "raw", on_ready, &planned, err, sizeof(err)),
			 -EINPROGRESS);
	wait_call(r, &planned);
	assert_int_equal(planned.error, 0);
	assert_int_equal(state_of(r, "raw"), RESIDENCY_PLANNED);
	assert_int_equal(atomic_load(&fake_model_loaded), 0);
	assert_int_equal(residency_prepare(r, "raw", on_ready, &none, err, sizeof(err)), 0);
	assert_int_equal(residency_make_room(r, "raw", NULL, 0, &plan, err, sizeof(err)), 0);
	assert_true(plan.exact);
	assert_true(residency_idle(r));

	assert_int_equal(residency_prepare(r, "two", on_ready, &both, err, sizeof(err)),
			 -EINPROGRESS);
	while (!runs("two"))
		usleep(1000);
	assert_int_equal(acquire(r, "two", &loaded), 0);
	assert_int_equal(both.calls, 1);
	run_request(residency_engine(loaded.model));
	residency_release(r, loaded.model);
	assert_true(residency_idle(r));

	assert_int_equal(residency_prepare(r, "bad", on_ready, &none, err, sizeof(err)),
			 -EINPROGRESS);
	wait_call(r, &none);
	assert_int_equal(none.error, -EIO);
	assert_int_equal(residency_prepare(r, "none", on_ready, &none, err, sizeof(err)), -ENOENT);
	residency_free(r);
}

static void *list_often(void *arg)
{
	struct residency_info info[4];

	for (unsigned i = 0; i < 300; i++) {
		residency_list(arg, info, 4);
		usleep(100);
	}
	return NULL;
}

/* Lists, loads, unloads from several threads. */
static void works_with_threads(void **state)
{
	struct residency *r = open_residency(0);
	pthread_t thread;
	struct outcome o;
	char err[256] = "";

	(void)state;
	make_case("a");
	make_case("b");
	add(r, "a");
	add(r, "b");
	assert_int_equal(pthread_create(&thread, NULL, list_often, r), 0);
	for (unsigned i = 0; i < 20; i++) {
		const char *name = i % 2 ? "a" : "b";
		int error = acquire(r, name, &o);

		if (error == -EBUSY)
			continue;
		assert_int_equal(error, 0);
		run_request(residency_engine(o.model));
		if (i % 3)
			assert_int_equal(residency_unload(r, name, err, sizeof(err)), 0);
		residency_release(r, o.model);
	}
	pthread_join(thread, NULL);
	residency_free(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(adds),
		CASE(loads_once_for_many),
		CASE(reports_the_compilers_failures),
		CASE(reports_a_failed_load),
		CASE(repairs_the_cache),
		CASE(serves_what_param_dir_names),
		CASE(shuts_down),
		CASE(frees_in_the_middle),
		CASE(calls_off_a_load),
		CASE(prepares_a_plan),
		CASE(works_with_threads),
	};

	setenv("TXDA_SECRET", "1", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
