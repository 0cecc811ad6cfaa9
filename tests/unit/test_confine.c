// SPDX-License-Identifier: MIT
/*
 * The confinement of processes that parse what others wrote: a child confines itself, by the interface and as the
 * compiler does, then tries what it must not do. Each line of the table that it prints is a try and what came of it.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "test_dir.h"
#include "confine.h"
#include "confined.h"
#include "forbidden_calls.h"

static pid_t parent;
static char mine[80], given[80], secret[80], listener[80], swapped[80], moved[80];

static const char *const calls[] = {"openat", "newfstatat", "mkdirat", "unlinkat", "socket", NULL};

/* ---- tries: 0 or an errno ---------------------------------------------------------------------- */

static int try_open(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC, 0600);

	if (fd < 0)
		return errno;
	close(fd);
	return 0;
}

static int read_given(void)
{
	return try_open(in(given, "file"), O_RDONLY);
}

static int write_given(void)
{
	return try_open(in(given, "file"), O_RDWR);
}

static int write_mine(void)
{
	return try_open(in(mine, "file"), O_RDWR | O_CREAT | O_TRUNC);
}

static int read_secret(void)
{
	return try_open(secret, O_RDONLY);
}

static int read_moved(void)
{
	return try_open(moved, O_RDONLY);
}

static int read_swapped(void)
{
	return try_open(swapped, O_RDONLY);
}

static int create_beside(void)
{
	return try_open(at("new"), O_RDWR | O_CREAT);
}

static int open_device(void)
{
	return try_open("/dev/null", O_RDWR);
}

static int open_proc(void)
{
	return try_open("/proc/self/mem", O_RDWR);
}

static int open_parents(void)
{
	char path[80];

	snprintf(path, sizeof(path), "/proc/%d/mem", (int)parent);
	return try_open(path, O_RDWR);
}

static int make_link(void)
{
	return symlink(secret, in(mine, "link")) ? errno : 0;
}

static int connect_unix(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return errno;
	memcpy(address.sun_path, listener, strlen(listener));
	return connect(fd, (struct sockaddr *)&address, sizeof(address)) ? errno : 0;
}

static int start_process(void)
{
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	return pid < 0 ? errno : 0;
}

/* What is ready sends a signal, of any number, to who is said to own the descriptor. */
static int signal_by_descriptor(void)
{
	return fcntl(0, F_SETOWN, parent) ? errno : 0;
}

static int choose_signal(void)
{
	return fcntl(0, F_SETSIG, SIGKILL) ? errno : 0;
}

static int look_at_descriptor(void)
{
	return fcntl(0, F_GETFL) < 0 ? errno : 0;
}

static int run_memory(void)
{
	void *p = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? errno : 0;
}

static int make_memory_run(void)
{
	void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED || mprotect(p, 4096, PROT_READ | PROT_EXEC) ? errno : 0;
}

static int raise_limit(void)
{
	struct rlimit limit = {100, 100};

	return setrlimit(RLIMIT_NOFILE, &limit) ? errno : 0;
}

static int become_dumpable(void)
{
	return prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) ? errno : 0;
}

static void *end_thread(void *arg)
{
	return arg;
}

static int start_thread(void)
{
	pthread_t thread;
	int r = pthread_create(&thread, NULL, end_thread, NULL);

	return r ? r : pthread_join(thread, NULL);
}

static int take_memory(void)
{
	void *p = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? errno : 0;
}

static int share_memory(void)
{
	void *p = mmap(NULL, 4096, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? errno : 0;
}

static int take_too_much(void)
{
	void *p = mmap(NULL, 8ul << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? errno : 0;
}

static const struct attempt {
	const char *what;
	int (*try)(void);
	bool allowed;
	bool by_landlock; /* which a kernel may lack */
} attempts[] = {
	{"read a file of a readable directory", read_given, true, false},
	{"write a file of the writable directory", write_mine, true, false},
	{"read a file that was given and moved", read_moved, true, false},
	{"start a thread", start_thread, true, false},
	{"take memory", take_memory, true, false},
	{"write a file of a readable directory", write_given, false, true},
	{"read another file", read_secret, false, true},
	{"read what took a file's place", read_swapped, false, true},
	{"create a file elsewhere", create_beside, false, true},
	{"open a device", open_device, false, true},
	{"open its memory in /proc", open_proc, false, true},
	{"open its parent's memory in /proc", open_parents, false, true},
	{"make a link", make_link, false, false},
	{"connect", connect_unix, false, false},
	{"start a process", start_process, false, false},
	{"signal its parent by a descriptor", signal_by_descriptor, false, false},
	{"choose a descriptor's signal", choose_signal, false, false},
	{"look at a descriptor", look_at_descriptor, true, false},
	{"map memory to be run", run_memory, false, false},
	{"make memory run", make_memory_run, false, false},
	{"make memory that is shared", share_memory, false, false},
	{"raise a limit", raise_limit, false, false},
	{"become dumpable", become_dumpable, false, false},
	{"take more memory than the limit", take_too_much, false, false},
};

/* ---- the child --------------------------------------------------------------------------------- */

/* After a file was opened to be made readable, its owner puts a link to another one in its place. */
static int confine_plainly(char *err, size_t errlen)
{
	const int flags = O_PATH | O_CLOEXEC,
		  readable[] = {open(given, flags), open(swapped, flags), -1},
		  writable[] = {open(mine, flags), -1};
	const struct confinement c = {.readable = readable, .writable = writable, .calls = calls};

	if (rename(swapped, moved) || symlink(secret, swapped))
		return -errno;
	return confine_self(&c, err, errlen);
}

static int confine_compiler(char *err, size_t errlen)
{
	struct tool_error error = {{0}};
	const struct compile_paths paths = {.model = given, .output = in(mine, "case")};
	int r = compile_confine(&paths, &error);

	snprintf(err, errlen, "%s", error.text);
	return r;
}

/* As txda-decode does: nothing but what is open. */
static int confine_decoder(char *err, size_t errlen)
{
	return confine_self(&(struct confinement){0}, err, errlen);
}

/* How many tries did not end as they must; an error in confining counts as all. */
static int attempt_all(int (*confine)(char *err, size_t errlen), bool landlock)
{
	const struct confine_limits limits = {.memory = 4ull << 30, .descriptors = 64};
	bool bare = confine == confine_decoder, plain = confine == confine_plainly;
	int wrong = 0;
	char err[400];

	confine_limit(&limits);
	if (confine(err, sizeof(err))) {
		fprintf(stderr, "%s\n", err);
		return 100;
	}
	for (size_t i = 0; i < ARRAY_SIZE(attempts); i++) {
		const struct attempt *a = &attempts[i];
		bool is_file = a->try == read_given || a->try == write_mine || a->try == read_moved,
		     allowed = a->allowed && !(bare && is_file) && (plain || a->try != read_moved);
		int error = a->try();
		bool right = allowed ? !error : error || (a->by_landlock && !bare && !landlock);

		fprintf(stderr, "%-42s %-40s%s\n", a->what, error ? strerror(error) : "works",
			right ? "" : " WRONG");
		wrong += !right;
	}
	/* The one that is confined by the interface has sockets, to try to connect one. */
	return wrong + try_forbidden_calls(parent, plain ? SYS_socket : -1);
}

static void attempt_in_child(int (*confine)(char *err, size_t errlen))
{
	unsigned version = confine_landlock();
	int status;
	pid_t pid;

	if (!confine_works()) {
		print_message("a sanitizer's build is not confined\n");
		skip();
	}
	print_message("landlock version %u\n", version);
	fflush(stdout);
	parent = getpid();
	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		_exit(attempt_all(confine, version));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

TEST(confined)
{
	attempt_in_child(confine_plainly);
}

TEST(compiler)
{
	attempt_in_child(confine_compiler);
}

TEST(decoder)
{
	attempt_in_child(confine_decoder);
}

/* What is not open cannot be given, and the process hears of it. */
TEST(closed_file)
{
	const int readable[] = {1 << 20, -1};
	const struct confinement c = {.readable = readable};
	char err[400] = "";
	int status;
	pid_t pid;

	if (!confine_works() || !confine_landlock())
		skip();
	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		_exit(confine_self(&c, err, sizeof(err)) == -EBADF && strstr(err, "landlock"));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
}

static void write_score(const char *text)
{
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		_exit(2);
	close(fd);
}

/* In a child: sets its score, confines itself, and waits for the end of @fd. */
static void confine_with_score(int fd, const char *score)
{
	const struct confinement c = {.readable = NULL};
	char err[400];

	/* As the service does; a process that has just changed its uid is hidden. */
	if (!getuid() && (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534) ||
			  prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)))
		_exit(4);
	write_score(score);
	if (confine_self(&c, err, sizeof(err)) || write(fd, "x", 1) != 1)
		_exit(3);
	_exit(read(fd, err, 1) != 0);
}

static int score_of_confined(const char *before)
{
	char path[64], text[16] = "";
	int pair[2], fd, status;
	pid_t pid;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		close(pair[0]);
		confine_with_score(pair[1], before);
	}
	close(pair[1]);
	assert_int_equal(read(pair[0], text, 1), 1);
	snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_true(read(fd, text, sizeof(text) - 1) > 0);
	close(fd);
	close(pair[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	return atoi(text);
}

/* It goes before whom it serves, even if that is to go early itself. */
TEST(expendable)
{
	int fd = open("/proc/self/oom_score_adj", O_RDONLY | O_CLOEXEC);
	char own[16] = "";

	assert_true(fd >= 0);
	assert_true(read(fd, own, sizeof(own) - 1) > 0);
	close(fd);
	assert_int_equal(score_of_confined(own), atoi(own) > 500 ? atoi(own) : 500);
	if (atoi(own) < 900)
		snprintf(own, sizeof(own), "900");
	assert_int_equal(score_of_confined(own), atoi(own));
}

/* ---- files ------------------------------------------------------------------------------------- */

static int make_files(void **state)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(test_dir_make(state), 0);
	strcpy(mine, at("mine"));
	strcpy(given, at("given"));
	strcpy(secret, at("others/secret"));
	strcpy(listener, at("socket"));
	strcpy(swapped, at("swapped"));
	strcpy(moved, at("moved"));
	assert_int_equal(mkdir(mine, 0700) | mkdir(given, 0700) | mkdir(at("others"), 0700), 0);
	put("given/file", "", 0600);
	/* Files of that directory may be read, not what lies further below. */
	put("given/config.json", "{\"param_dir\": \"/\"}", 0600);
	put(secret, "", 0600);
	put(swapped, "", 0600);
	strcpy(address.sun_path, listener);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(fd, 1), 0);
	return 0;
}

TEST_MAIN_ALL(make_files, test_dir_remove)
