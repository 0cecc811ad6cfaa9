// SPDX-License-Identifier: MIT
/* The cache of compiled models: its limit, whose entries make room, what is compiled again. */

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include "models_fixture.h"

/* A case dir of the cache that does not read well is compiled again. */
TEST(repairs_the_cache)
{
	static const char weights[] =
		"{\"chips\":[{\"param\":\"chip0/param.bin\",\"param_bytes\":7}]}";
	struct models *t = open_table(0);
	struct served_model *m;
	char broken[1200];
	int fd;

	m = add_hf(t, "raw", "");
	assert_int_equal(load(m), MODEL_READY);
	snprintf(broken, sizeof(broken), "%s/broken", m->found.case_dir);
	fd = open(broken, O_WRONLY | O_CREAT, 0644);
	assert_true(fd >= 0);
	close(fd);
	model_unload(m, false, MODEL_BY_ADMIN);
	assert_int_equal(m->state, MODEL_UNLOADED);
	assert_int_equal(load(m), MODEL_READY);
	assert_int_equal(runs("raw"), 2);
	/* A plan does not read the weights: they are missing. */
	model_unload(m, false, MODEL_BY_ADMIN);
	snprintf(broken, sizeof(broken), "%s/model_info.json", m->found.case_dir);
	fd = open(broken, O_WRONLY | O_TRUNC);
	assert_true(write(fd, weights, strlen(weights)) == (ssize_t)strlen(weights));
	close(fd);
	assert_int_equal(load(m), MODEL_READY);
	assert_int_equal(runs("raw"), 3);
}

/* Weights that the chip does not get as they were written are compiled again, but not for ever. */
TEST(compiles_damaged_weights_again)
{
	struct models *t = open_table(0);
	struct served_model *m;

	m = add_hf(t, "raw", "");
	fake_model_load_error = -EBADMSG;
	assert_int_equal(load(m), MODEL_FAILED);
	assert_int_equal(runs("raw"), 2);
	assert_int_equal(load(m), MODEL_FAILED);
	assert_int_equal(runs("raw"), 3);
	fake_model_load_error = 0;
	assert_int_equal(load(m), MODEL_READY);
	assert_int_equal(runs("raw"), 3);
	/* What is not in the cache stays as it is. */
	m = add_case(t, "ready");
	fake_model_load_error = -EBADMSG;
	assert_int_equal(load(m), MODEL_FAILED);
	fake_model_load_error = 0;
}

/* Bytes of the cache that a compiled model takes. */
static uint64_t entry_bytes(void)
{
	struct stat st;

	make_case("size");
	assert_int_equal(stat(at("size/model_info.json"), &st), 0);
	assert_true(st.st_blocks > 0);
	return (uint64_t)st.st_blocks * 512;
}

/* Until the cache has no room for @m, which waits for some. */
static void await_no_room(struct served_model *m)
{
	while (!m->error[0])
		turn_loop();
	assert_says(m->error, "has no room");
	assert_int_equal(m->state, MODEL_COMPILING);
}

/* What another model's plan holds in the cache may be released: a model waits for that. */
TEST(waits_for_others_plans)
{
	struct config_model *config;
	struct served_model *first, *second;
	struct outcome called_off, waits;
	struct models *t;

	if (geteuid())
		skip(); /* owners take root */
	test_cache_size = entry_bytes();
	t = open_table(0);
	make_hf("first", "");
	make_hf("draft", "hang");
	give_to("first", 60000);
	give_to("draft", 60000);
	config = new_config("first", at("first"));
	config->draft = strdup(at("draft"));
	first = add_config(t, config);
	begin_wait(first, &called_off);
	while (!runs("draft"))
		turn_loop();
	second = add_hf(t, "second", "");
	begin_wait(second, &waits);
	await_no_room(second);
	model_unload(first, false, MODEL_BY_ADMIN);
	assert_int_equal(end_wait(&called_off), MODEL_WAKE_REFUSED);
	assert_int_equal(load(second), MODEL_READY);
	assert_int_equal(end_wait(&waits), MODEL_WAKE_READY);
	assert_int_equal(runs("second"), 1);
}

/* The cache has room for two of three models, which are the first two. */
struct three {
	struct models *t;
	struct served_model *first, *second, *comes;
	struct outcome waits; /* of the third */
};

static void open_three(struct three *m)
{
	test_cache_size = 2 * entry_bytes();
	m->t = open_table(0);
	make_hf("first", "");
	make_hf("second", "");
	make_hf("comes", "");
	m->first = add(m->t, "first");
	m->second = add(m->t, "second");
	m->comes = add(m->t, "comes");
	assert_int_equal(load(m->first), MODEL_READY);
	assert_int_equal(load(m->second), MODEL_READY);
}

/* The third one waits for room, for which nobody has gone. */
static void begin_third(struct three *m)
{
	begin_wait(m->comes, &m->waits);
	await_no_room(m->comes);
	assert_int_equal(m->first->state, MODEL_READY);
}

static void end_third(struct three *m)
{
	assert_int_equal(load(m->comes), MODEL_READY);
	assert_int_equal(end_wait(&m->waits), MODEL_WAKE_READY);
}

/* Who leaves makes room in the cache: nobody else has to. */
TEST(waits_for_who_leaves)
{
	struct test_request r;
	struct three m;

	open_three(&m);
	m.first->replicas[0].load_ns = 0;
	atomic_store(&fake_model_hang, true);
	assert_int_equal(begin_request(m.second, &r, 100), 0);
	model_unload(m.second, false, MODEL_BY_ADMIN);
	assert_int_equal(m.second->state, MODEL_DRAINING);
	begin_third(&m);
	atomic_store(&fake_model_hang, false);
	assert_int_equal(end_request(&r), ENGINE_FINISH_LENGTH);
	end_third(&m);
	assert_int_equal(m.first->state, MODEL_READY);
}

/* The least recently used one goes, even if another has stayed long enough before. */
TEST(waits_for_the_oldest)
{
	struct three m;

	open_three(&m);
	m.first->replicas[0].load_ns = UINT64_MAX / 8;
	m.second->replicas[0].load_ns = 0;
	begin_third(&m);
	assert_int_equal(m.second->state, MODEL_READY);
	m.first->replicas[0].load_ns = 0;
	end_third(&m);
	assert_int_equal(m.first->state, MODEL_UNLOADED);
	assert_int_equal(m.second->state, MODEL_READY);
}

/* A checkpoint with weights of that size, none of which take room. */
static void make_large(const char *name, const char *behave, off_t bytes, uid_t owner)
{
	char path[64];
	int fd;

	make_hf(name, behave);
	snprintf(path, sizeof(path), "%s/model.safetensors", name);
	fd = open(at(path), O_WRONLY | O_CREAT, 0644);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, bytes), 0);
	close(fd);
	give_to(name, owner);
}

/* A compile that runs has its room, although it has written nothing yet. */
TEST(counts_what_compiles_will_write)
{
	struct served_model *runs_long, *large, *small, *floods, *huge;
	struct outcome called_off, waits;
	struct models *t;

	if (geteuid())
		skip(); /* owners take root */
	test_cache_size = 10 << 20;
	t = open_table(0);
	make_large("runs_long", "hang", 6 << 20, 60000);
	make_large("large", "", 5 << 20, 60001);
	make_large("small", "", 3 << 20, 60002);
	make_large("huge", "", 11 << 20, 60003);
	make_large("floods", "floods", 0, 60004);
	runs_long = add(t, "runs_long");
	begin_wait(runs_long, &called_off);
	while (!runs("runs_long"))
		turn_loop();
	large = add(t, "large");
	begin_wait(large, &waits);
	await_no_room(large);
	assert_int_equal(runs("large"), 0);
	/* Others that fit go on. Who writes more than there may be, or needs more, is refused. */
	small = add(t, "small");
	assert_int_equal(load(small), MODEL_READY);
	floods = add(t, "floods");
	assert_int_equal(load(floods), MODEL_FAILED);
	assert_says(floods->error, "was stopped: its files have more than 10.5 MB");
	huge = add(t, "huge");
	assert_int_equal(load(huge), MODEL_FAILED);
	assert_int_equal(runs("huge"), 0);
	model_unload(runs_long, false, MODEL_BY_ADMIN);
	assert_int_equal(end_wait(&called_off), MODEL_WAKE_REFUSED);
	assert_int_equal(load(large), MODEL_READY);
	assert_int_equal(end_wait(&waits), MODEL_WAKE_READY);
	assert_int_equal(runs("large"), 1);
}

/* What a compiler makes that a checkpoint has taken over: no entry, and it leaves nothing. */
TEST(removes_what_is_no_case)
{
	static const char *const names[] = {"hides", "buries", "crowds"};
	struct served_model *m;
	struct dirent *entry;
	struct models *t;
	DIR *dir;

	test_cache_size = 10 << 20;
	t = open_table(0);
	for (unsigned i = 0; i < 3; i++) {
		make_hf(names[i], names[i]);
		m = add(t, names[i]);
		assert_int_equal(load(m), MODEL_FAILED);
		assert_says(m->error, "its files ");
	}
	close_table();
	dir = opendir(at("cache"));
	assert_non_null(dir);
	while ((entry = readdir(dir)))
		assert_true(!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."));
	closedir(dir);
}

/* A file system of that size for the cache, which ends with this process; false: no right to it. */
static bool mount_cache(const char *options)
{
	assert_int_equal(mkdir(at("cache"), 0755), 0);
	return !unshare(CLONE_NEWNS) && !mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
	       !mount("none", at("cache"), "tmpfs", 0, options);
}

/* A compile may use the room that was made for it on a full file system. */
TEST(makes_room_on_a_full_disk)
{
	struct served_model *first, *second;
	struct models *t;

	if (!mount_cache("size=10m"))
		skip();
	t = open_table(0);
	make_hf("second", "large");
	/* Beside the first one there is no room for the estimate, nor for the 6 MB that it takes. */
	put("second/model.safetensors", "", 0644);
	assert_int_equal(truncate(at("second/model.safetensors"), 8 << 20), 0);
	first = add_hf(t, "first", "large");
	assert_int_equal(load(first), MODEL_READY);
	model_unload(first, false, MODEL_BY_ADMIN);
	wait_loader(t);
	second = add(t, "second");
	assert_int_equal(load(second), MODEL_READY);
	close_table();
	assert_int_equal(umount(at("cache")), 0);
}

TEST_MAIN_EACH(set_up, tear_down)
