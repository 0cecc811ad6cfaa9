// SPDX-License-Identifier: MIT
/*
 * The model table over chips and models without a chip (fake_context.h, fake_model.h) and a
 * compiler that is a shell script: it does as the file "behave" in the model's directory says.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fake_context.h"
#include "fake_model.h"
#include "residency.h"

static char root[64];

static const char script[] =
	"#!/bin/sh\n"
	"if [ \"$1\" = --key ]; then\n"
	"	[ -f \"$2/no_key\" ] && { echo 'txda-compile: no such family' >&2; exit 1; }\n"
	"	sum=$(cksum < \"$2/config.json\")\n"
	"	echo \"key${sum%% *}x$(echo \"$2$3$4\" | cksum | cut -d' ' -f1)\"\n"
	"	exit 0\n"
	"fi\n"
	"echo run >> \"$1/runs\"\n"
	"echo \"$@\" > \"$1/arguments\"\n"
	"env > \"$1/environment\"\n"
	"ls /proc/$$/fd > \"$1/fds\"\n"
	"ulimit -c > \"$1/core\"\n"
	"echo 'progress 50 100' >&2\n"
	"case \"$(cat \"$1/behave\" 2>/dev/null)\" in\n"
	"fail) echo 'note: first' >&2; echo 'txda-compile: tensor a.b is missing' >&2; exit 1;;\n"
	"silent) exit 3;;\n"
	"crash) kill -SEGV $$;;\n"
	"hang) sleep 1000;;\n"
	"nothing) exit 0;;\n"
	"slow) sleep 0.3;;\n"
	"esac\n"
	"rm -rf \"$3\"; mkdir \"$3\" && echo '{}' > \"$3/model_info.json\"\n";

/* ---- directories ----------------------------------------------------------------------------- */

static char *at(const char *name)
{
	static char paths[8][256];
	static unsigned next;
	char *path = paths[next++ % 8];

	snprintf(path, sizeof(paths[0]), "%s/%s", root, name);
	return path;
}

static void put(const char *name, const char *text, mode_t mode)
{
	int fd = open(at(name), O_WRONLY | O_CREAT | O_TRUNC, mode);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

static void get(const char *name, char *text, size_t len)
{
	int fd = open(at(name), O_RDONLY);
	ssize_t n;

	assert_true(fd >= 0);
	n = read(fd, text, len - 1);
	assert_true(n >= 0);
	text[n] = '\0';
	close(fd);
}

static void make_hf(const char *name, const char *behave)
{
	char path[128];

	assert_int_equal(mkdir(at(name), 0755), 0);
	snprintf(path, sizeof(path), "%s/config.json", name);
	put(path, "{}", 0644);
	snprintf(path, sizeof(path), "%s/behave", name);
	put(path, behave, 0644);
}

static void make_case(const char *name)
{
	char path[128];

	assert_int_equal(mkdir(at(name), 0755), 0);
	snprintf(path, sizeof(path), "%s/model_info.json", name);
	put(path, "{}", 0644);
}

static void remove_all(const char *path)
{
	char inner[512];
	struct dirent *entry;
	DIR *dir = opendir(path);

	while (dir && (entry = readdir(dir))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		snprintf(inner, sizeof(inner), "%s/%s", path, entry->d_name);
		if (unlink(inner))
			remove_all(inner);
	}
	if (dir)
		closedir(dir);
	rmdir(path);
}

static unsigned runs(const char *name)
{
	char path[128], text[512];

	snprintf(path, sizeof(path), "%s/runs", name);
	if (access(at(path), F_OK))
		return 0;
	get(path, text, sizeof(text));
	return (unsigned)strlen(text) / 4;
}

static int set_up(void **state)
{
	(void)state;
	snprintf(root, sizeof(root), "/tmp/test_residency.XXXXXX");
	if (!mkdtemp(root))
		return -1;
	put("compiler", script, 0755);
	fake_model_config = fake_model_small();
	fake_model_config.info.tp = 1;
	fake_plan.tp = 1;
	fake_model_load_error = 0;
	fake_model_fail_group = NULL;
	memset(fake_chip_lost, 0, sizeof(fake_chip_lost));
	memset(fake_chip_used, 0, sizeof(fake_chip_used));
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	remove_all(root);
	return atomic_load(&fake_groups) || atomic_load(&fake_model_loaded) ||
	       atomic_load(&fake_model_violations);
}

/* ---- waiting --------------------------------------------------------------------------------- */

static struct residency *open_residency(unsigned compile_seconds)
{
	const struct residency_options options = {
		.context = fake_context,
		.cache_dir = at("cache"),
		.compiler = at("compiler"),
		.compile_seconds = compile_seconds,
	};
	struct residency *r = NULL;
	char err[256] = "";

	assert_int_equal(residency_new(&options, &r, err, sizeof(err)), 0);
	return r;
}

static void add(struct residency *r, const char *name)
{
	char err[256] = "";

	assert_int_equal(residency_add(r, name, at(name), 0, NULL, err, sizeof(err)), 0);
}

struct outcome {
	unsigned calls;
	int error;
	char text[512];
	struct residency_model *model;
};

static void on_ready(void *arg, int error, const char *text, struct residency_model *model)
{
	struct outcome *o = arg;

	o->calls++;
	o->error = error;
	snprintf(o->text, sizeof(o->text), "%s", text);
	o->model = model;
}

static void wait_call(struct residency *r, struct outcome *o)
{
	struct pollfd fd = {.fd = residency_fd(r), .events = POLLIN};

	while (!o->calls) {
		assert_int_equal(poll(&fd, 1, 20000), 1);
		residency_dispatch(r);
	}
	assert_int_equal(o->calls, 1);
}

/* Acquires, waiting for the load if need be. */
static int acquire(struct residency *r, const char *name, struct outcome *o)
{
	int error;

	*o = (struct outcome){0};
	error = residency_acquire(r, name, on_ready, o, &o->model, o->text, sizeof(o->text));
	if (error != -EINPROGRESS)
		return error;
	wait_call(r, o);
	return o->error;
}

static enum residency_state state_of(struct residency *r, const char *name)
{
	struct residency_info info;

	assert_int_equal(residency_find(r, name, &info), 0);
	return info.state;
}

static void wait_state(struct residency *r, const char *name, enum residency_state state)
{
	for (unsigned i = 0; i < 5000 && state_of(r, name) != state; i++)
		usleep(1000);
	assert_int_equal(state_of(r, name), state);
}

static struct engine_request *new_request(unsigned max_tokens)
{
	const struct engine_sampling s = {.top_p = 1, .logprobs = -1, .max_tokens = max_tokens};
	int32_t prompt[] = {1, 2, 3};
	struct engine_request *r = NULL;

	assert_int_equal(engine_request_new(prompt, 3, &s, false, &r), 0);
	return r;
}

static void run_request(struct engine *e)
{
	struct engine_request *r = new_request(5);
	char err[128] = "";

	assert_int_equal(engine_submit(e, r, err, sizeof(err)), 0);
	while (!atomic_load(&r->finish))
		usleep(200);
	assert_int_equal(atomic_load(&r->finish), ENGINE_FINISH_LENGTH);
	engine_request_unref(r);
}

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
	assert_non_null(strstr(err, "for 1 chips, not 2"));
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

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(adds),
		CASE(loads_once_for_many),
		CASE(reports_the_compilers_failures),
		CASE(reports_a_failed_load),
		CASE(repairs_the_cache),
		CASE(places_models),
		CASE(avoids_used_and_lost_chips),
		CASE(unloads_when_released),
		CASE(comes_back_after_a_loss),
		CASE(shuts_down),
		CASE(frees_in_the_middle),
		CASE(calls_off_a_load),
		CASE(sleeps),
		CASE(removes),
		CASE(makes_room),
		CASE(prepares_a_plan),
		CASE(keeps_replicas_apart),
		CASE(works_with_threads),
	};

	setenv("TXDA_SECRET", "1", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
