// SPDX-License-Identifier: MIT
#include "confine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <sched.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
	__has_feature(memory_sanitizer)
#define SANITIZED true
#endif
#endif
#ifndef SANITIZED
#define SANITIZED false
#endif

/* ---- limits ---------------------------------------------------------------------------------- */

static void lower(__rlimit_resource_t what, uint64_t value)
{
	struct rlimit limit;

	if (getrlimit(what, &limit))
		return;
	if (limit.rlim_max > value)
		limit.rlim_max = value;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(what, &limit);
}

void confine_limit(const struct confine_limits *limits)
{
	lower(RLIMIT_CORE, 0);
	if (limits->memory)
		lower(RLIMIT_DATA, limits->memory);
	if (limits->file_size)
		lower(RLIMIT_FSIZE, limits->file_size);
	if (limits->cpu_seconds)
		lower(RLIMIT_CPU, limits->cpu_seconds);
	if (limits->processes)
		lower(RLIMIT_NPROC, limits->processes);
	if (limits->descriptors)
		lower(RLIMIT_NOFILE, limits->descriptors);
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Definitions that the headers of older kernels lack. */
enum {
	FS_TRUNCATE = 1 << 14,	/* since version 3 */
	FS_IOCTL_DEV = 1 << 15, /* since version 5 */
	NET_TCP = 3,		/* to bind and to connect; since version 4 */
	SCOPE_ALL = 3,		/* abstract sockets and signals; since version 6 */
};

struct ruleset {
	uint64_t fs, net, scope;
};

#define READ  (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define FILES (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | FS_TRUNCATE)
/* No special files, sockets or links. */
#define WRITE                                                                                      \
	(READ | LANDLOCK_ACCESS_FS_WRITE_FILE | FS_TRUNCATE | LANDLOCK_ACCESS_FS_MAKE_DIR |        \
	 LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_REMOVE_DIR |                             \
	 LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_REFER)

unsigned confine_landlock(void)
{
	long version =
		syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

	return version > 0 ? (unsigned)version : 0;
}

bool confine_works(void)
{
	return !SANITIZED;
}

static struct ruleset all_rights(unsigned version)
{
	struct ruleset all = {.fs = (1 << 13) - 1};

	if (version >= 2)
		all.fs |= LANDLOCK_ACCESS_FS_REFER;
	if (version >= 3)
		all.fs |= FS_TRUNCATE;
	if (version >= 4)
		all.net = NET_TCP;
	if (version >= 5)
		all.fs |= FS_IOCTL_DEV;
	if (version >= 6)
		all.scope = SCOPE_ALL;
	return all;
}

static int allow_file(int ruleset, int fd, uint64_t rights)
{
	struct landlock_path_beneath_attr rule = {.allowed_access = rights, .parent_fd = fd};
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	if (!S_ISDIR(st.st_mode))
		rule.allowed_access &= FILES;
	return syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0)
		       ? -errno
		       : 0;
}

static int allow_files(int ruleset, const int *fds, uint64_t rights)
{
	int r = 0;

	for (; fds && *fds >= 0 && !r; fds++)
		r = allow_file(ruleset, *fds, rights);
	return r;
}

static int restrict_files(const struct confinement *c, char *err, size_t errlen)
{
	unsigned version = confine_landlock();
	struct ruleset all = all_rights(version);
	/* Older kernels know only the first members. */
	size_t size = version >= 6 ? sizeof(all) : version >= 4 ? 16 : 8;
	int ruleset, r;

	if (!version)
		return 0;
	ruleset = (int)syscall(SYS_landlock_create_ruleset, &all, size, 0);
	r = ruleset < 0 ? -errno : allow_files(ruleset, c->readable, READ);
	if (!r)
		r = allow_files(ruleset, c->listable, LANDLOCK_ACCESS_FS_READ_DIR);
	if (!r)
		r = allow_files(ruleset, c->writable, WRITE & all.fs);
	if (!r && syscall(SYS_landlock_restrict_self, ruleset, 0))
		r = -errno;
	if (ruleset >= 0)
		close(ruleset);
	if (r)
		snprintf(err, errlen, "landlock: %s", strerror(-r));
	return r;
}

/* ---- system calls ---------------------------------------------------------------------------- */

/* Calls that a C program with threads makes implicitly, and that can do no harm. */
static const char *const basic_calls[] = {
	"brk",
	"clock_getres",
	"clock_gettime",
	"clock_nanosleep",
	"close",
	"dup",
	"exit",
	"exit_group",
	"fstat",
	"futex",
	"getegid",
	"geteuid",
	"getgid",
	"getpid",
	"getrandom",
	"gettid",
	"gettimeofday",
	"getuid",
	"lseek",
	"madvise",
	"membarrier",
	"mremap",
	"munmap",
	"nanosleep",
	"poll",
	"ppoll",
	"pread64",
	"preadv",
	"pwrite64",
	"read",
	"readv",
	"restart_syscall",
	"rseq",
	"rt_sigaction",
	"rt_sigpending",
	"rt_sigprocmask",
	"rt_sigreturn",
	"rt_sigtimedwait",
	"sched_getaffinity",
	"sched_yield",
	"set_robust_list",
	"sigaltstack",
	"sysinfo",
	"write",
	"writev",
	NULL,
};

/* A process in its own user namespace has all privileges there. */
#define NAMESPACES                                                                                 \
	(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |             \
	 CLONE_NEWPID | CLONE_NEWNET)

static int allow_calls(scmp_filter_ctx filter, const char *const *names)
{
	int r = 0;

	for (; names && *names && !r; names++) {
		int call = seccomp_syscall_resolve_name(*names);

		/* Not every architecture has every call; calls that are not allowed fail. */
		if (call == SCMP_SYS(clone))
			r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, call, 1,
					     SCMP_A0(SCMP_CMP_MASKED_EQ, NAMESPACES, 0));
		else if (call != __NR_SCMP_ERROR)
			r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, call, 0);
		if (r == -EDOM)
			r = 0;
	}
	return r;
}

/* Descriptor flags. F_SETOWN and F_SETSIG could send any signal to any process of the user. */
static int allow_fcntl(scmp_filter_ctx filter)
{
	static const scmp_datum_t commands[] = {F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD,
						F_SETFD, F_GETFL,	  F_SETFL};
	int r = 0;

	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]) && !r; i++)
		r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(fcntl), 1,
				     SCMP_A1(SCMP_CMP_EQ, commands[i]));
	return r;
}

/* Calls that are harmless only with certain arguments. */
static int allow_some(scmp_filter_ctx filter)
{
	/* Shared memory does not count against any limit. */
	int r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(mmap), 2,
				 SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0),
				 SCMP_A3(SCMP_CMP_MASKED_EQ, MAP_TYPE, MAP_PRIVATE));

	if (!r)
		r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(mprotect), 1,
				     SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
	/*
	 * Threads, but no processes. clone3() hides its flags from the filter: the library falls
	 * back to clone().
	 */
	if (!r)
		r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1,
				     SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD));
	if (!r)
		r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
	/* abort() */
	if (!r)
		r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 1,
				     SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)getpid()));
	/* Reading its own limits. */
	if (!r)
		r = seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(prlimit64), 2,
				     SCMP_A0(SCMP_CMP_EQ, 0), SCMP_A2(SCMP_CMP_EQ, 0));
	return r;
}

static int restrict_calls(const struct confinement *c, char *err, size_t errlen)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	int r = filter ? 0 : -ENOMEM;

	if (!r)
		r = allow_calls(filter, basic_calls);
	if (!r)
		r = allow_some(filter);
	if (!r)
		r = allow_fcntl(filter);
	if (!r)
		r = allow_calls(filter, c->calls);
	if (!r)
		r = seccomp_load(filter);
	if (filter)
		seccomp_release(filter);
	if (r)
		snprintf(err, errlen, "seccomp: %s", strerror(-r));
	return r;
}

/*
 * While /proc can be opened and the file is the user's: those of a hidden process are root's. A
 * higher score is kept.
 */
static void raise_oom_score(void)
{
	int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
	char score[16] = "";

	if (fd < 0)
		return;
	if (read(fd, score, sizeof(score) - 1) > 0 && strtol(score, NULL, 10) < 500 &&
	    pwrite(fd, "500", 3, 0) < 0)
		errno = 0; /* then it keeps its score */
	close(fd);
}

int confine_hide(void)
{
	return confine_works() && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) ? -errno : 0;
}

int confine_self(const struct confinement *c, char *err, size_t errlen)
{
	int r;

	raise_oom_score();
	if (!confine_works())
		return 0;
	r = confine_hide();
	if (!r && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		r = -errno;
	if (r) {
		snprintf(err, errlen, "prctl: %s", strerror(-r));
		return r;
	}
	r = restrict_files(c, err, errlen);
	return r ? r : restrict_calls(c, err, errlen);
}
