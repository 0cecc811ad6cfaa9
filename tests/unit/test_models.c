// SPDX-License-Identifier: MIT
/* Loads: the compiler, those who wait, slow files, the end of the table. */

#include <seccomp.h>
#include <sys/wait.h>
#include <unistd.h>

#include "case_reply.h"
#include "hostcopy.h"
#include "models_fixture.h"
#include "program.h"

static int look(const char *path, unsigned tp, const char *weights, char *err, size_t errlen)
{
	struct model_spec spec = {.tp = tp};
	struct model_found found;

	snprintf(spec.path, sizeof(spec.path), "%s", path);
	snprintf(spec.weights, sizeof(spec.weights), "%s", weights);
	return source_look(fake_context, &spec, &found, err, errlen);
}

TEST(looks_at_directories)
{
	struct models *t = open_table(0);
	struct served_model *m;
	char err[512] = "";

	make_case("ready");
	make_case("spoilt");
	put("spoilt/broken", "", 0644);
	assert_int_equal(mkdir(at("empty"), 0755), 0);
	assert_int_equal(look(at("none"), 0, "", err, sizeof(err)), -ENOENT);
	assert_int_equal(look(at("compiler"), 0, "", err, sizeof(err)), -ENOTDIR);
	assert_int_equal(look(at("empty"), 0, "", err, sizeof(err)), -EINVAL);
	assert_says(err, "neither");
	assert_int_equal(look(at("spoilt"), 0, "", err, sizeof(err)), -EINVAL);
	assert_int_equal(look(at("ready"), 2, "", err, sizeof(err)), -EINVAL);
	assert_says(err, "for 1 chip, not 2");

	m = add(t, "ready");
	assert_int_equal(m->state, MODEL_UNLOADED);
	assert_true(m->found.planned);
	assert_int_equal(m->found.plan.weight_bytes, 100 << 20);
	assert_false(add_hf(t, "raw", "")->found.planned);
	assert_ptr_equal(models_find(t, "ready"), m);
	assert_ptr_equal(models_find(t, NULL), m);
	assert_null(models_find(t, "none"));
	/* One that cannot be served is there, fails alone, and comes when it is mended. */
	m = add(t, "late");
	assert_int_equal(m->state, MODEL_FAILED);
	assert_says(m->error, "No such file");
	assert_false(model_may_be_awaited(m));
	assert_int_equal(load(m), MODEL_FAILED);
	make_case("late");
	assert_int_equal(load(m), MODEL_READY);
	assert_string_equal(m->error, "");
	close_table();
	models_free(NULL);
}

/* What is there and cannot be read is named, not taken for missing. */
TEST(names_what_it_cannot_read)
{
	static const char *const names[] = {"model_info.json", "config.json", "model.gguf"};
	char err[512] = "", path[64], words[128];
	pid_t pid;
	int status;

	assert_int_equal(mkdir(at("hub"), 0755), 0);
	assert_int_equal(mkdir(at("hub/snapshots"), 0755), 0);
	assert_int_equal(look(at("hub"), 0, "", err, sizeof(err)), -EINVAL);
	assert_says(err, "nor a GGUF file; a Hugging Face cache has its models in snapshots/");
	for (unsigned i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(path, sizeof(path), "hub/%s", names[i]);
		snprintf(words, sizeof(words), "/%s is a link to a file that does not exist", path);
		assert_int_equal(symlink("../blobs/gone", at(path)), 0);
		assert_int_equal(look(at("hub"), 0, "", err, sizeof(err)), -ENOENT);
		assert_says(err, words);
		assert_int_equal(unlink(at(path)), 0);
	}
	make_hf("text", "");
	make_case("text/case");
	put("text/config.json", "{\"param_dir\": \"case\"}", 0644);
	assert_int_equal(symlink("gone", at("text/tokenizer.model")), 0);
	assert_int_equal(look(at("text"), 0, "", err, sizeof(err)), -ENOENT);
	assert_says(err, "/text/tokenizer.model is a link to a file that does not exist");
	if (geteuid())
		skip();

	make_hf("closed", "");
	make_hf("config", "");
	assert_int_equal(mkdir(at("unlisted"), 0711), 0);
	assert_int_equal(chmod(at("closed"), 0700), 0);
	assert_int_equal(chmod(at("config/config.json"), 0600), 0);
	assert_int_equal(chmod(at("."), 0755), 0);
	pid = fork();
	if (!pid) {
		assert_int_equal(setuid(4321), 0);
		assert_int_equal(look(at("closed"), 0, "", err, sizeof(err)), -EACCES);
		assert_says(err, "/closed/model_info.json: Permission denied");
		assert_int_equal(look(at("config"), 0, "", err, sizeof(err)), -EACCES);
		assert_says(err, "/config/config.json: Permission denied");
		assert_int_equal(look(at("unlisted"), 0, "", err, sizeof(err)), -EACCES);
		assert_says(err, "/unlisted: Permission denied");
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* All or nothing, and which line it is. */
TEST(validates_a_configuration)
{
	static struct model_found found[CONFIG_MAX_MODELS];
	static struct config c;
	char err[512] = "";

	make_case("a");
	for (unsigned i = 0; i < 2; i++) {
		struct config_model *m = new_config(i ? "b" : "a", at(i ? "b" : "a"));

		snprintf(m->where, sizeof(m->where), "conf, line %u: ", i + 1);
		c.models[c.n_models++] = *m;
		free(m);
	}
	assert_false(models_validate(fake_context, &c, found, err, sizeof(err)));
	assert_says(err, "conf, line 2: model b: ");
	make_case("b");
	assert_true(models_validate(fake_context, &c, found, err, sizeof(err)));
	assert_true(found[1].planned);
	config_free(&c);
}

TEST(loads_once_for_many)
{
	struct config_model *c = new_config("raw", at("raw"));
	struct models *t = open_table(0);
	struct served_model *m;
	struct outcome o[3];
	char text[4096];
	double progress = 0;

	make_hf("raw", "slow");
	c->engine.tp_size = 1;
	c->engine.weights = 2;
	m = add_config(t, c);
	for (unsigned i = 0; i < 3; i++)
		begin_wait(m, &o[i]);
	assert_int_equal(m->state, MODEL_COMPILING);
	for (unsigned i = 0; i < 20000 && progress != 0.5; i++) {
		turn_loop();
		assert_string_equal(model_phase(m, &progress), "compiling");
	}
	assert_true(progress == 0.5);
	model_unpark(m, &o[2].waiter);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(end_wait(&o[i]), MODEL_WAKE_READY);
	assert_int_equal(o[2].calls, 0);
	assert_int_equal(runs("raw"), 1);
	assert_int_equal(m->state, MODEL_READY);
	assert_true(m->replicas[0].load_ns > 0 && m->limits.max_context == 128);
	assert_int_equal(model_kv_bytes(m), 512 * 64);
	assert_says(m->found.case_dir, "/cache/");
	assert_int_equal(m->metrics.loads, 1);
	run_request(m);

	/* What the compiler was given: its options, no descriptors, no environment of ours. */
	get("raw/arguments", text, sizeof(text));
	assert_says(text, "--progress plain --tp 1 --weights ");
	get("raw/environment", text, sizeof(text));
	assert_null(strstr(text, "TXDA_SECRET"));
	get("raw/core", text, sizeof(text));
	assert_string_equal(text, "0\n");
	get("raw/fds", text, sizeof(text));
	assert_true(!strncmp(text, "0\n", 2));
	close_table();

	/* The next daemon finds it in the cache. */
	t = open_table(0);
	c = new_config("raw", at("raw"));
	c->engine.tp_size = 1;
	c->engine.weights = 2;
	assert_int_equal(load(add_config(t, c)), MODEL_READY);
	assert_int_equal(runs("raw"), 1);
}

/* Whatever the compiler does wrong is told, and the next one may try again. */
TEST(reports_the_compilers_failures)
{
	static const struct {
		const char *behave, *text;
	} cases[] = {
		{"fail", "tensor a.b is missing"},
		{"silent", "exited with status 3"},
		{"crash", "killed by signal 11"},
		{"hang", "did not end within 4 seconds"},
		{"nothing", "made no"},
	};
	struct models *t = open_table(4);
	struct served_model *m;
	struct outcome o;

	m = add_hf(t, "raw", "");
	for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
		put("raw/behave", cases[i].behave, 0644);
		begin_wait(m, &o);
		assert_int_equal(end_wait(&o), MODEL_WAKE_REFUSED);
		assert_int_equal(m->state, MODEL_FAILED);
		assert_says(m->error, cases[i].text);
	}
	put("raw/no_key", "", 0644);
	assert_int_equal(load(m), MODEL_FAILED);
	assert_says(m->error, "no such family");
	unlink(at("raw/no_key"));
	put("raw/behave", "", 0644);
	assert_int_equal(load(m), MODEL_READY);
	assert_string_equal(m->error, "");
	unlink(at("compiler"));
	m = add_hf(t, "late", "");
	assert_int_equal(load(m), MODEL_FAILED);
	assert_says(m->error, "cannot run");
}

/* In a process of its own: what the compiler is told where priorities cannot be set. */
static bool compiles_with_jobs(void)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
	struct models *t;
	char text[4096];

	if (!filter || seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(setpriority), 0) ||
	    seccomp_load(filter))
		return false;
	seccomp_release(filter);
	t = open_table(0);
	if (load(add(t, "raw")) != MODEL_READY)
		return false;
	close_table();
	get("raw/arguments", text, sizeof(text));
	return strstr(text, " --jobs ");
}

/* As in the systemd unit: then it leaves processors to serving. */
TEST(leaves_processors)
{
	int status;
	pid_t pid;

	make_hf("raw", "");
	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		_exit(!compiles_with_jobs());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

TEST(reports_a_failed_load)
{
	struct models *t = open_table(0);
	struct served_model *m, *speechless;

	m = add_case(t, "ready");
	speechless = add_case(t, "speechless");
	/* No room where there was some: tried again, and left for later. */
	fake_model_load_error = -ENOSPC;
	assert_int_equal(load(m), MODEL_UNLOADED);
	assert_true(model_may_be_awaited(m));
	/* Chips that are lost under the load, and come back. */
	fake_model_load_error = -ENODEV;
	assert_int_equal(load(m), MODEL_LOST);
	fake_model_load_error = 0;
	model_demand(m);
	wait_state(m, MODEL_READY);
	model_unload(m, false, MODEL_BY_ADMIN);
	fake_model_load_error = -EINVAL;
	assert_int_equal(load(m), MODEL_FAILED);
	fake_model_load_error = 0;
	assert_int_equal(load(m), MODEL_READY);
	assert_int_equal(load(speechless), MODEL_FAILED);
	assert_string_equal(speechless->error, "there is no tokeniser");
	wait_loader(t);
	assert_int_equal(atomic_load(&fake_model_loaded), 1);
}

/* What a program that is run instead of txdad-text does; @path is the search path without it. */
static void run_instead(const char *path, const char *program, size_t size)
{
	char script[512], search[8192];

	snprintf(script, sizeof(script), "#!/bin/sh\nSIZE=%zu\n%s\n", size, program);
	put("bin/txdad-text", script, 0755);
	snprintf(search, sizeof(search), "%s:%s", at("bin"), path);
	setenv("PATH", search, 1);
}

/* A confined process reads config.json and model_info.json, of which the daemon parses none; what it
 * says is checked, and its failure is an error. */
TEST(has_files_read_apart)
{
	static const struct {
		const char *program, *words;
		int config, info; /* results of either */
	} cases[] = {
		{"echo no; exit 3", "cannot be read in a confined process: ", -EIO, -EIO},
		{"echo what is wrong >&2; exit 3", "confined process: what is wrong", -EIO, -EIO},
		{"kill -9 $$", "was killed by signal 9", -EIO, -EIO},
		{"head -c 100 /dev/zero", "confined process: ", -EPROTO, -EPROTO},
		{"head -c $((SIZE + 1)) /dev/zero", "confined process: ", -EPROTO, -EPROTO},
		{"head -c 1000000 /dev/zero", "confined process: ", -EPROTO, -EPROTO},
		/* A path without an end that leads nowhere is a checkpoint to be compiled; in the
		 * other file an error without an end, and one that is no error number. */
		{"head -c $SIZE /dev/zero | tr '\\000' '\\377'", "", 0, -EINVAL},
		{"head -c $SIZE /dev/zero", "", 0, 0},
	};
	char *before = strdup(getenv("PATH")), err[512];

	make_hf("apart", "");
	make_case("apart/case");
	put("apart/config.json", "{\"param_dir\": \"case\"}", 0644);
	make_case("case");
	assert_int_equal(mkdir(at("bin"), 0755), 0);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		*err = '\0';
		run_instead(before, cases[i].program, sizeof(struct config_facts));
		assert_int_equal(look(at("apart"), 0, "", err, sizeof(err)), cases[i].config);
		assert_says(err, cases[i].words);
		*err = '\0';
		run_instead(before, cases[i].program, sizeof(struct case_reply));
		/* Another version of the file each time. */
		put("case/model_info.json", &"       {}"[7 - i], 0644);
		assert_int_equal(look(at("case"), 0, "", err, sizeof(err)), cases[i].info);
		assert_says(err, cases[i].words);
	}
	/* Without the letters there is nothing to be read. */
	run_instead(before, "exit 3", 0);
	put("apart/config.json", "{\"model_type\": \"qwen3\"}", 0644);
	assert_int_equal(look(at("apart"), 0, "", err, sizeof(err)), 0);
	setenv("PATH", before, 1);
	free(before);
}

/* One process reads a file for a plan and a load; a file that was written again is read again. */
TEST(reads_model_info_once)
{
	char *before = strdup(getenv("PATH")), path[256], program[256], text[64], err[512];
	struct models *t = open_table(0);
	struct served_model *m;

	assert_int_equal(mkdir(at("bin"), 0755), 0);
	assert_int_equal(program_find("txdad-text", path, sizeof(path)), 0);
	snprintf(program, sizeof(program), "echo run >>%s\nexec %.200s \"$@\"", at("count"), path);
	run_instead(before, program, 0);
	m = add_case(t, "case");
	assert_int_equal(load(m), MODEL_READY);
	get("count", text, sizeof(text));
	assert_string_equal(text, "run\n");
	model_unload(m, false, MODEL_BY_ADMIN);

	put("case/model_info.json", "{", 0644);
	assert_int_equal(look(at("case"), 0, "", err, sizeof(err)), -EINVAL);
	assert_says(err, "case: model_info.json is not JSON: line 1, column 2");
	put("case/model_info.json", "[]", 0644);
	assert_int_equal(look(at("case"), 0, "", err, sizeof(err)), -EINVAL);
	assert_says(err, "case: model_info.json is not a JSON object");
	get("count", text, sizeof(text));
	assert_string_equal(text, "run\nrun\nrun\n");
	/* Too large a one is not even passed on. */
	assert_int_equal(truncate(at("case/model_info.json"), 100 << 20), 0);
	assert_int_equal(look(at("case"), 0, "", err, sizeof(err)), -EFBIG);
	assert_non_null(strstr(err, "model_info.json has 104857600 bytes; the limit is 1048576"));
	get("count", text, sizeof(text));
	assert_string_equal(text, "run\nrun\nrun\n");
	close_table();
	setenv("PATH", before, 1);
	free(before);
}

/* No compiler runs for a checkpoint that names its case dir; the tokeniser is beside config.json, or
 * where the case is. */
TEST(serves_what_param_dir_names)
{
	struct config_model *c = new_config("draft", at("raw"));
	struct models *t = open_table(0);
	struct served_model *m;
	char err[512] = "";

	make_hf("raw", "");
	make_case("raw/case");
	put("raw/config.json", "{\"param_dir\": \"case\"}", 0644);
	assert_int_equal(look(at("raw"), 0, "w8", err, sizeof(err)), -EINVAL);
	assert_says(err, "(unknown), not w8");
	assert_int_equal(look(at("raw"), 2, "", err, sizeof(err)), -EINVAL);
	assert_says(err, "raw/case was compiled for 1 chip, not 2");
	c->draft = strdup("mtp");
	m = add_config(t, c);
	assert_int_equal(m->state, MODEL_FAILED);
	assert_says(m->error, "is compiled: of its layer");
	m = add(t, "raw");
	assert_true(m->found.planned);
	assert_string_equal(m->found.path, at("raw"));
	assert_string_equal(m->found.case_dir, at("raw/case"));
	assert_int_equal(load(m), MODEL_READY);
	assert_string_equal(m->text_of, at("raw/case"));
	run_request(m);
	model_unload(m, false, MODEL_BY_ADMIN);

	/* It is looked at anew with each load. */
	assert_int_equal(chmod(at("raw/case"), 0777), 0);
	assert_int_equal(load(m), MODEL_FAILED);
	assert_says(m->error, "written by everybody");
	assert_int_equal(chmod(at("raw/case"), 0755), 0);
	put("raw/tokenizer.json", "{}", 0644);
	assert_int_equal(load(m), MODEL_READY);
	assert_string_equal(m->text_of, at("raw"));
	/* Nobody refers to the text before. */
	assert_int_equal(m->n_old, 0);
	assert_int_equal(runs("raw"), 0);
}

TEST(shuts_down)
{
	struct models *t = open_table(0);
	struct served_model *ready, *raw, *next;
	struct outcome compiling, queued;
	struct test_request r;

	ready = add_case(t, "ready");
	raw = add_hf(t, "raw", "hang");
	next = add_hf(t, "next", "");
	assert_int_equal(load(ready), MODEL_READY);
	begin_wait(raw, &compiling);
	begin_wait(next, &queued);
	while (!runs("raw"))
		turn_loop();
	models_shutdown(t);
	assert_int_equal(compiling.why, MODEL_WAKE_SHUTDOWN);
	assert_int_equal(queued.why, MODEL_WAKE_SHUTDOWN);
	/* What runs may have more to submit. */
	assert_int_equal(begin_request(ready, &r, 5), 0);
	assert_int_equal(end_request(&r), ENGINE_FINISH_LENGTH);
	wait_loader(t);
	assert_int_equal(runs("next"), 0);
}

/* Freed while a compiler runs and others wait. */
TEST(frees_in_the_middle)
{
	struct models *t = open_table(0);
	struct outcome o[2];

	begin_wait(add_hf(t, "raw", "hang"), &o[0]);
	begin_wait(add_case(t, "ready"), &o[1]);
	while (!runs("raw"))
		turn_loop();
	close_table();
	assert_int_equal(o[0].calls + o[1].calls, 0);
}

/* A load that is called off tells who waits, stops the compiler, and can begin again at once. */
TEST(calls_off_a_load)
{
	struct models *t = open_table(0);
	struct served_model *raw, *ready;
	struct outcome first, queued;

	raw = add_hf(t, "raw", "hang");
	ready = add_case(t, "ready");
	begin_wait(raw, &first);
	begin_wait(ready, &queued);
	while (!runs("raw"))
		turn_loop();
	model_unload(ready, false, MODEL_BY_ADMIN);
	assert_int_equal(end_wait(&queued), MODEL_WAKE_REFUSED);
	assert_int_equal(ready->state, MODEL_UNLOADED);
	put("raw/behave", "", 0644);
	model_unload(raw, false, MODEL_BY_ADMIN);
	assert_int_equal(end_wait(&first), MODEL_WAKE_REFUSED);
	/* While the compiler is still on its way out. */
	assert_int_equal(load(raw), MODEL_READY);
	assert_int_equal(runs("raw"), 2);
	run_request(raw);
}

/* A compile that does not end delays its owner's models only. */
TEST(goes_on_beside_a_compile)
{
	enum { MANY = 3 };
	static const char *const names[MANY] = {"raw0", "raw1", "raw2"};
	struct served_model *raw[MANY], *same, *other, *ready;
	struct models *t = open_table(0);
	struct outcome endless[MANY], waits;
	double progress;

	if (geteuid())
		skip(); /* owners take root */
	make_case("same");
	give_to("same", 60000);
	for (unsigned i = 0; i < MANY; i++) {
		make_hf(names[i], "hang");
		give_to(names[i], 60000 + i);
		raw[i] = add(t, names[i]);
		begin_wait(raw[i], &endless[i]);
	}
	same = add(t, "same");
	begin_wait(same, &waits);
	for (unsigned i = 0; i < MANY; i++)
		while (!runs(names[i]))
			turn_loop();
	other = add_hf(t, "other", "");
	ready = add_case(t, "ready");
	assert_int_equal(load(other), MODEL_READY);
	assert_int_equal(load(ready), MODEL_READY);
	run_request(other);
	model_unload(other, false, MODEL_BY_ADMIN);
	wait_state(other, MODEL_UNLOADED);
	/* What it had is freed meanwhile. */
	while (t->departures || loader_current(t->loaders[0]))
		turn_loop();
	assert_string_equal(model_phase(raw[0], &progress), "compiling");
	assert_string_equal(model_phase(same, &progress), "queued");
	assert_int_equal(same->state, MODEL_COMPILING);
	model_unload(raw[0], false, MODEL_BY_ADMIN);
	assert_int_equal(end_wait(&endless[0]), MODEL_WAKE_REFUSED);
	assert_int_equal(end_wait(&waits), MODEL_WAKE_READY);
	close_table();
}

/* A plan is made without a load; who wants the model meanwhile gets it. */
TEST(prepares_a_plan)
{
	struct models *t = open_table(0);
	struct served_model *raw, *two, *bad;
	struct model_fit fit;
	char err[512] = "";

	raw = add_hf(t, "raw", "");
	two = add_hf(t, "two", "slow");
	bad = add_hf(t, "bad", "fail");
	assert_int_equal(models_fit(raw, NULL, FIT_IDLE, &fit, err, sizeof(err)), 0);
	assert_false(fit.exact);
	model_want_plan(raw);
	while (raw->plan_wanted)
		turn_loop();
	assert_string_equal(raw->plan_error, "");
	assert_int_equal(raw->state, MODEL_UNLOADED);
	assert_int_equal(atomic_load(&fake_model_loaded), 0);
	assert_int_equal(models_fit(raw, NULL, FIT_IDLE, &fit, err, sizeof(err)), 0);
	assert_true(fit.exact);

	model_want_plan(two);
	while (!runs("two"))
		turn_loop();
	assert_int_equal(load(two), MODEL_READY);
	assert_false(two->plan_wanted);
	assert_int_equal(runs("two"), 1);
	run_request(two);

	model_want_plan(bad);
	while (bad->plan_wanted)
		turn_loop();
	assert_says(bad->plan_error, "tensor a.b is missing");
	assert_int_equal(bad->state, MODEL_UNLOADED);
}

/* Files that do not come keep the loader waiting and nobody else: the loop runs requests, looks
 * after the models, plans, unloads, and lets go of who has waited for long enough. */
TEST(goes_on_beside_slow_files)
{
	struct models *t = open_table(0);
	struct served_model *a, *b, *slow;
	struct model_fit fit;
	struct outcome o;
	char err[512] = "";

	a = add_case(t, "a");
	b = add_case(t, "b");
	slow = add_case(t, "slow");
	assert_int_equal(load(a), MODEL_READY);
	assert_int_equal(load(b), MODEL_READY);
	atomic_store(&fake_plan_blocks, true);
	begin_wait(slow, &o);
	while (!atomic_load(&fake_plan_waits))
		turn_loop();
	run_request(a);
	models_check(t);
	assert_int_equal(models_fit(slow, NULL, FIT_IDLE, &fit, err, sizeof(err)), 0);
	assert_true(fit.fits);
	model_unload(b, true, MODEL_BY_ADMIN);
	assert_int_equal(b->state, MODEL_ASLEEP);
	model_unload(b, false, MODEL_BY_ADMIN);
	assert_int_equal(b->state, MODEL_UNLOADED);
	o.waiter.deadline_ns = 1;
	models_check(t);
	assert_int_equal(o.why, MODEL_WAKE_DEADLINE);
	run_request(a);
	assert_true(atomic_load(&fake_plan_waits));
	atomic_store(&fake_plan_blocks, false);
	wait_state(slow, MODEL_READY);
}

/* Weights that sleep: of a FIFO in their place an open would wait for ever, and a file that has grown
 * would fill the memory. */
TEST(copies_files_alone)
{
	struct hostcopy *copy;

	assert_int_equal(mkdir(at("held"), 0700), 0);
	assert_int_equal(mkdir(at("held/chip0"), 0700), 0);
	assert_int_equal(mkfifo(at("held/chip0/param.bin"), 0600), 0);
	assert_int_equal(hostcopy_new(at("held"), 1, 7, &copy), -EINVAL);
	assert_int_equal(hostcopy_new(at("none"), 1, 7, &copy), -ENOENT);
	assert_int_equal(unlink(at("held/chip0/param.bin")), 0);
	put("held/chip0/param.bin", "weights", 0644);
	assert_int_equal(hostcopy_new(at("held"), 1, 6, &copy), -EFBIG);
	assert_int_equal(hostcopy_new(at("held"), 1, 7, &copy), 0);
	hostcopy_free(copy);
}

int main(int argc, char **argv)
{
	setenv("TXDA_SECRET", "1", 1);
	choose_unit_tests(argc > 1 ? argv[1] : NULL);
	return run_unit_tests(argv[0], set_up, tear_down);
}
