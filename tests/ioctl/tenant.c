// SPDX-License-Identifier: MIT
/*
 * ioctl_tenant [HARM...] - a user who takes all that the ioctls let it take, until SIGTERM, and then
 * until each has come to its end once (at most 2 minutes), in a process for each harm:
 *
 *   interrupts  fills of 64 GiB, each ended by SIGINT in the middle of its packet
 *   spaces      address spaces with a buffer mapped in each, until there are none left
 *   memory      device memory, until there is none left
 *   binds       asynchronous binds, until the driver takes no more
 *
 * Prints how often each of them has come to that and begun anew. Exit status 1 when one never has,
 * or got an error that is not a limit's.
 */
#include "common.h"

#include <stdatomic.h>
#include <sys/prctl.h>

#define MANY	4096u
#define CHUNK	(16 * MIB)
#define BINDS	64u
#define VA	(1ull << 31)
#define FILL_MS 600000
#define LAST_S	120

static bool is_limit(int err)
{
	return err == -ENOSPC || err == -EDQUOT || err == -ENOMEM || err == -EBUSY;
}

/* Ends with its parent. */
static pid_t must_fork_bound(void)
{
	pid_t parent = getpid(), pid = must_fork();

	if (!pid) {
		must(prctl(PR_SET_PDEATHSIG, SIGKILL) ? -errno : 0);
		if (getppid() != parent)
			_exit(1);
	}
	return pid;
}

/* In the middle of a fill it writes a byte, unless others have the memory that it fills. */
static void fill(int ready)
{
	int fd = must_open(0);
	uint32_t vm = must_vm(fd), queue;
	struct stream s;

	must(queue_create_as(fd, vm, DRM_TXDA_QUEUE_COMPUTE, 0, FILL_MS, &queue));
	s = must_long_fill(fd, vm);
	must(submit(fd, queue, s.mem.va, s.bytes, NULL, 0));
	while (!must_state(fd, queue).progress)
		;
	check(write(ready, "", 1) == 1);
	for (;;)
		pause();
}

static bool interrupts(void)
{
	bool began;
	int ready[2];
	char byte;
	pid_t pid;

	must(pipe(ready) ? -errno : 0);
	pid = must_fork_bound();
	if (!pid) {
		signal(SIGINT, SIG_DFL);
		fill(ready[1]);
	}
	close(ready[1]);
	began = read(ready[0], &byte, 1) == 1;
	close(ready[0]);
	kill(pid, SIGINT);
	check(waitpid(pid, NULL, 0) == pid);
	return began;
}

static bool spaces(void)
{
	int fd = must_open(0), err = 0;
	uint32_t handle, vm;

	must(bo_create(fd, MIB, DRM_TXDA_PLACE_HOST, 0, 0, &handle));
	for (uint32_t i = 0; !err && i < MANY; i++) {
		err = vm_create(fd, &vm);
		if (!err)
			err = bind_one(fd, vm, DRM_TXDA_BIND_MAP, handle, 0, VA, MIB);
	}
	close(fd);
	if (!is_limit(err))
		fail("address spaces end with %s", strerror_of(err));
	/* The others need some, too. */
	usleep(10000);
	return true;
}

static bool memory(void)
{
	int fd = must_open(0), err = 0;
	uint32_t handle;

	for (uint32_t i = 0; !err && i < MANY; i++)
		err = bo_create(fd, CHUNK, DRM_TXDA_PLACE_DEVICE, 0, 0, &handle);
	close(fd);
	if (!is_limit(err))
		fail("device memory ends with %s", strerror_of(err));
	usleep(10000);
	return true;
}

static bool binds(void)
{
	struct drm_txda_bind_op ops[BINDS];
	int fd = must_open(0), err;
	struct drm_txda_vm_bind arg = {
		.flags = DRM_TXDA_VM_BIND_ASYNC,
		.ops = array_of(ops, BINDS, sizeof(ops[0])),
	};
	uint32_t handle;

	err = vm_create(fd, &arg.vm_id);
	if (err) {
		close(fd);
		check(is_limit(err));
		return false;
	}
	must(bo_create(fd, MIB, DRM_TXDA_PLACE_HOST, 0, 0, &handle));
	for (uint32_t i = 0; i < BINDS; i++)
		ops[i] = (struct drm_txda_bind_op){
			.flags = i & 1 ? DRM_TXDA_BIND_UNMAP : DRM_TXDA_BIND_MAP,
			.bo = i & 1 ? 0 : handle,
			.va = VA,
			.size = MIB,
		};
	for (uint32_t i = 0; !err && i < MANY; i++)
		err = call(fd, DRM_IOCTL_TXDA_VM_BIND, &arg);
	close(fd);
	if (!is_limit(err))
		fail("binds end with %s", strerror_of(err));
	return true;
}

static const struct harm {
	const char *name;
	/* Whether it came to its end; false: the others have what it needs. */
	bool (*run)(void);
} harms[] = {
	{"interrupts", interrupts},
	{"spaces", spaces},
	{"memory", memory},
	{"binds", binds},
};

static bool is_wanted(const char *name, int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], name))
			return true;
	}
	return argc == 1;
}

/* A slow machine may not have come to the end of each when the time is over. */
static bool await_each(const atomic_ulong *tally, const pid_t *pids, const sigset_t *ends)
{
	const struct timespec tenth = {0, 100000000};
	bool all = false;

	for (unsigned i = 0; !all && i < 10 * LAST_S; i++) {
		all = true;
		for (size_t k = 0; k < ARRAY_SIZE(harms); k++)
			all = all && (!pids[k] || tally[k]);
		if (!all && sigtimedwait(ends, NULL, &tenth) == SIGCHLD)
			return false;
	}
	return all;
}

int main(int argc, char **argv)
{
	atomic_ulong *tally =
		mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pids[ARRAY_SIZE(harms)] = {0};
	bool all;
	int reason;
	sigset_t ends;

	if (!node_count()) {
		fprintf(stderr, "no node of txda\n");
		return 77;
	}
	check(tally != MAP_FAILED);
	sigemptyset(&ends);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGCHLD);
	sigprocmask(SIG_BLOCK, &ends, NULL);
	for (size_t i = 0; i < ARRAY_SIZE(harms); i++) {
		if (!is_wanted(harms[i].name, argc, argv))
			continue;
		pids[i] = must_fork_bound();
		while (!pids[i])
			tally[i] += harms[i].run();
	}
	check(!sigwait(&ends, &reason));
	all = reason == SIGTERM && await_each(tally, pids, &ends);
	for (size_t i = 0; i < ARRAY_SIZE(harms); i++) {
		if (!pids[i])
			continue;
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
		printf("%s %lu ", harms[i].name, tally[i]);
	}
	putchar('\n');
	return all ? 0 : 1;
}
