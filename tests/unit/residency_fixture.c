// SPDX-License-Identifier: MIT
#include "residency_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

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

char *at(const char *name)
{
	static char paths[8][256];
	static unsigned next;
	char *path = paths[next++ % 8];

	snprintf(path, sizeof(paths[0]), "%s/%s", root, name);
	return path;
}

void put(const char *name, const char *text, mode_t mode)
{
	int fd = open(at(name), O_WRONLY | O_CREAT | O_TRUNC, mode);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

void get(const char *name, char *text, size_t len)
{
	int fd = open(at(name), O_RDONLY);
	ssize_t n;

	assert_true(fd >= 0);
	n = read(fd, text, len - 1);
	assert_true(n >= 0);
	text[n] = '\0';
	close(fd);
}

void make_hf(const char *name, const char *behave)
{
	char path[128];

	assert_int_equal(mkdir(at(name), 0755), 0);
	snprintf(path, sizeof(path), "%s/config.json", name);
	put(path, "{}", 0644);
	snprintf(path, sizeof(path), "%s/behave", name);
	put(path, behave, 0644);
}

void make_case(const char *name)
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

unsigned runs(const char *name)
{
	char path[128], text[512];

	snprintf(path, sizeof(path), "%s/runs", name);
	if (access(at(path), F_OK))
		return 0;
	get(path, text, sizeof(text));
	return (unsigned)strlen(text) / 4;
}

int set_up(void **state)
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

int tear_down(void **state)
{
	(void)state;
	remove_all(root);
	return atomic_load(&fake_groups) || atomic_load(&fake_model_loaded) ||
	       atomic_load(&fake_model_violations);
}

/* ---- waiting --------------------------------------------------------------------------------- */

struct residency *open_residency(unsigned compile_seconds)
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

void add(struct residency *r, const char *name)
{
	char err[256] = "";

	assert_int_equal(residency_add(r, name, at(name), 0, NULL, err, sizeof(err)), 0);
}

void on_ready(void *arg, int error, const char *text, struct residency_model *model)
{
	struct outcome *o = arg;

	o->calls++;
	o->error = error;
	snprintf(o->text, sizeof(o->text), "%s", text);
	o->model = model;
}

void wait_call(struct residency *r, struct outcome *o)
{
	struct pollfd fd = {.fd = residency_fd(r), .events = POLLIN};

	while (!o->calls) {
		assert_int_equal(poll(&fd, 1, 20000), 1);
		residency_dispatch(r);
	}
	assert_int_equal(o->calls, 1);
}

/* Acquires, waiting for the load if need be. */
int acquire(struct residency *r, const char *name, struct outcome *o)
{
	int error;

	*o = (struct outcome){0};
	error = residency_acquire(r, name, on_ready, o, &o->model, o->text, sizeof(o->text));
	if (error != -EINPROGRESS)
		return error;
	wait_call(r, o);
	return o->error;
}

enum residency_state state_of(struct residency *r, const char *name)
{
	struct residency_info info;

	assert_int_equal(residency_find(r, name, &info), 0);
	return info.state;
}

void wait_state(struct residency *r, const char *name, enum residency_state state)
{
	for (unsigned i = 0; i < 5000 && state_of(r, name) != state; i++)
		usleep(1000);
	assert_int_equal(state_of(r, name), state);
}

struct engine_request *new_request(unsigned max_tokens)
{
	const struct engine_sampling s = {.top_p = 1, .logprobs = -1, .max_tokens = max_tokens};
	int32_t prompt[] = {1, 2, 3};
	struct engine_request *r = NULL;

	assert_int_equal(engine_request_new(prompt, 3, &s, false, &r), 0);
	return r;
}

void run_request(struct engine *e)
{
	struct engine_request *r = new_request(5);
	char err[128] = "";

	assert_int_equal(engine_submit(e, r, err, sizeof(err)), 0);
	while (!atomic_load(&r->finish))
		usleep(200);
	assert_int_equal(atomic_load(&r->finish), ENGINE_FINISH_LENGTH);
	engine_request_unref(r);
}
