// SPDX-License-Identifier: MIT
/*
 * What a model's text process can do while it reads the model, when it has, and in a lane: children
 * shut themselves in as it does and try. Each line of the table that is printed is a try, and what
 * came of it in each of the three.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "confine.h"
#include "forbidden_calls.h"
#include "text_confine.h"

enum state { READER, SERVER, LANE, N_STATES };

static char top[] = "/tmp/txda-text-XXXXXX", model[64], inside[80], other[80];
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

static long try_socket(void)
{
	return socket(AF_UNIX, SOCK_STREAM, 0);
}

static long try_connect(void)
{
	const struct sockaddr_un nowhere = {.sun_family = AF_UNIX, .sun_path = "/run/nowhere"};

	return connect(0, (const struct sockaddr *)&nowhere, sizeof(nowhere));
}

static long try_exec(void)
{
	return execl("/bin/true", "true", NULL);
}

static long try_ptrace(void)
{
	return ptrace(PTRACE_ATTACH, self, NULL, NULL);
}

static long try_memory(void)
{
	char byte;
	struct iovec here = {&byte, 1}, there = {&self, 1};

	return process_vm_readv(self, &here, 1, &there, 1, 0);
}

static long try_kill(void)
{
	return kill(self, 0);
}

static long try_pidfd(void)
{
	return syscall(SYS_pidfd_open, self, 0);
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

static long try_namespace(void)
{
	long pid = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, 0);

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
	{"a socket", try_socket, {false}, false},
	{"to connect", try_connect, {false}, false},
	{"to run a program", try_exec, {false}, false},
	{"ptrace", try_ptrace, {false}, false},
	{"another's memory", try_memory, {false}, false},
	{"a signal to another", try_kill, {false}, false},
	{"a signal by a descriptor", try_owner, {false}, false},
	{"a descriptor of another", try_pidfd, {false}, false},
	{"memory that is run", try_code, {false}, false},
	{"a process", try_process, {true, true, false}, false},
	{"a process in its own namespace", try_namespace, {false}, false},
	{"memory", try_heap, {true, true, true}, false},
	{"what is open", try_pipe, {true, true, true}, false},
};

#define N_TRIES (sizeof(tries) / sizeof(tries[0]))

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
	return wrong + try_forbidden_calls(self);
}

static void confined(void **unused)
{
	static const char *const names[] = {"while it reads", "when it has read", "in a lane"};
	int status;
	pid_t pid;

	(void)unused;
	if (!confine_works()) {
		print_message("a sanitizer's build is not confined\n");
		skip();
	}
	self = getpid();
	for (unsigned state = READER; state < N_STATES; state++) {
		printf("---- %s\n", names[state]);
		fflush(stdout);
		pid = fork();
		assert_true(pid >= 0);
		if (!pid)
			_exit(try_all((enum state)state));
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 0);
	}
}

static void put(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);

	assert_true(fd >= 0);
	close(fd);
}

static int set_up(void **unused)
{
	char link[100];

	(void)unused;
	if (!mkdtemp(top))
		return 1;
	snprintf(model, sizeof(model), "%s/model", top);
	snprintf(inside, sizeof(inside), "%s/config.json", model);
	snprintf(other, sizeof(other), "%s/other", top);
	if (mkdir(model, 0755))
		return 1;
	put(inside);
	put(other);
	/* Links to more than the model's owner may show are no files of the model. */
	snprintf(link, sizeof(link), "%s/chat_template.jinja", model);
	if (symlink("/", link))
		return 1;
	snprintf(link, sizeof(link), "%s/tokenizer.model", model);
	if (!geteuid() && (chown(other, 1234, 1234) || symlink(other, link)))
		return 1;
	return 0;
}

static int tear_down(void **unused)
{
	static const char *const links[] = {"chat_template.jinja", "tokenizer.model"};
	char link[100];

	(void)unused;
	for (unsigned i = 0; i < 2; i++) {
		snprintf(link, sizeof(link), "%s/%s", model, links[i]);
		unlink(link);
	}
	unlink(inside);
	unlink(other);
	rmdir(model);
	return rmdir(top);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(confined)};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
