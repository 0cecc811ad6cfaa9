// SPDX-License-Identifier: MIT
/*
 * What a model's text process can do while it reads the model, when it has, and in a lane: children
 * shut themselves in as it does and try, also all of forbidden_calls.h. Each line of the table that
 * is printed is a try, and what came of it in each of the three.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "test_dir.h"
#include "confine.h"
#include "forbidden_calls.h"
#include "text_confine.h"

enum state { READER, SERVER, LANE, N_STATES };

static char model[80], inside[80], other[80];
static pid_t self;

static long open_path(const char *path, int flags)
{
	return open(path, flags, 0600);
}

static long try_inside(void)
{
	return open_path(inside, O_RDONLY);
}

static long try_other(void)
{
	return open_path(other, O_RDONLY);
}

static long try_write(void)
{
	return open_path(inside, O_WRONLY);
}

static long try_create(void)
{
	char path[100];

	snprintf(path, sizeof(path), "%s/new", model);
	return open_path(path, O_WRONLY | O_CREAT);
}

static long try_device(void)
{
	return open_path("/dev/zero", O_RDONLY);
}

static long try_proc(void)
{
	return open_path("/proc/self/mem", O_RDWR);
}

static long try_code(void)
{
	void *at = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return at == MAP_FAILED ? -1 : 0;
}

static long try_process(void)
{
	long pid = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0);

	if (!pid)
		_exit(0);
	if (pid > 0)
		waitpid((pid_t)pid, NULL, 0);
	return pid;
}

static long try_owner(void)
{
	return fcntl(1, F_SETOWN, self);
}

static long try_heap(void)
{
	void *at = malloc(1 << 20);

	free(at);
	return at ? 0 : -1;
}

static long try_pipe(void)
{
	return write(1, "", 0);
}

static const struct {
	const char *what;
	long (*call)(void);
	bool may[N_STATES];
	bool by_landlock; /* without which it can be done */
} tries[] = {
	{"a file of the model", try_inside, {true, false, false}, false},
	{"another file", try_other, {false}, true},
	{"to write a file of the model", try_write, {false}, true},
	{"to make a file", try_create, {false}, true},
	{"a device", try_device, {false}, true},
	{"/proc", try_proc, {false}, true},
	{"a signal by a descriptor", try_owner, {false}, false},
	{"memory that is run", try_code, {false}, false},
	{"a process", try_process, {true, true, false}, false},
	{"memory", try_heap, {true, true, true}, false},
	{"what is open", try_pipe, {true, true, true}, false},
};

#define N_TRIES (ARRAY_SIZE(tries))

/* In a child: how many tries did not end as they must. */
static int try_all(enum state state)
{
	char err[400];
	int wrong = 0;

	if (text_confine_reader(model, err, sizeof(err)) ||
	    (state >= SERVER && text_confine_server(err, sizeof(err))) ||
	    (state >= LANE && text_confine_lane(err, sizeof(err)))) {
		fprintf(stderr, "%s\n", err);
		return 100;
	}
	for (size_t i = 0; i < N_TRIES; i++) {
		bool can = tries[i].call() >= 0;
		int error = errno;

		if (can != tries[i].may[state] &&
		    (confine_landlock() || !tries[i].by_landlock || state != READER)) {
			fprintf(stderr, "state %d: %s: %s\n", state, tries[i].what,
				can ? "can be done" : strerror(error));
			wrong++;
		}
		if (!can && error != EPERM && error != EACCES)
			wrong++;
		printf("%-30s %s\n", tries[i].what, can ? "yes" : strerror(error));
	}
	fflush(stdout);
	return wrong + try_forbidden_calls(self, -1);
}

TEST(confined)
{
	static const char *const names[] = {"while it reads", "when it has read", "in a lane"};
	int status;
	pid_t pid;

	if (!confine_works()) {
		print_message("a sanitizer's build is not confined\n");
		skip();
	}
	self = getpid();
	for (unsigned i = READER; i < N_STATES; i++) {
		printf("---- %s\n", names[i]);
		fflush(stdout);
		pid = fork();
		assert_true(pid >= 0);
		if (!pid)
			_exit(try_all((enum state)i));
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 0);
	}
}

static int set_up(void **state)
{
	if (test_dir_make(state))
		return 1;
	strcpy(model, at("model"));
	strcpy(inside, at("model/config.json"));
	strcpy(other, at("other"));
	if (mkdir(model, 0755))
		return 1;
	put(inside, "", 0644);
	put(other, "", 0644);
	/* Links to more than the model's owner may show are no files of the model. */
	if (symlink("/", at("model/chat_template.jinja")))
		return 1;
	return !geteuid() &&
	       (chown(other, 1234, 1234) || symlink(other, at("model/tokenizer.model")));
}

TEST_MAIN_ALL(set_up, test_dir_remove)
