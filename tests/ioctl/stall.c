// SPDX-License-Identifier: MIT
#include "stall.h"
#include "args.h"

#include <linux/fuse.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* What the child and the server know of each other. */
struct stall_shared {
	atomic_uint beats; /* how often mmap_lock was taken for writing */
	atomic_int beater; /* the thread that does so; 0: none yet */
	atomic_bool held, done;
};

/* ---- The child ------------------------------------------------------------------------------ */

/* Shows whether mmap_lock can be had. */
static void *beat(void *arg)
{
	struct stall_shared *shared = arg;

	atomic_store(&shared->beater, (int)syscall(SYS_gettid));
	for (;; usleep(1000)) {
		void *at = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		check(at != MAP_FAILED && !munmap(at, PAGE));
		atomic_fetch_add(&shared->beats, 1);
	}
	return NULL;
}

static void *touch(void *word)
{
	(void)*(const volatile char *)word;
	return NULL;
}

__attribute__((noreturn)) static void
stall_child(const struct stall *stall, void (*before)(void *arg), void (*run)(void *arg), void *arg)
{
	struct stall_shared *shared = stall->shared;
	int fd = open(stall->path, O_RDONLY | O_CLOEXEC);
	pthread_t beater, toucher;
	struct stat st;
	void *at;

	/* The kernel asks for the size now. */
	check(fd >= 0 && !fstat(fd, &st));
	at = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
	check(at != MAP_FAILED);
	before(arg);
	check(!pthread_create(&beater, NULL, beat, shared));
	while (!atomic_load(&shared->beater))
		usleep(1000);
	check(!pthread_create(&toucher, NULL, touch, at));
	while (!atomic_load(&shared->held))
		usleep(1000);
	run(arg);
	atomic_store(&shared->done, true);
	for (;;)
		pause();
}

/* ---- The server ----------------------------------------------------------------------------- */

/* Whether the lock is held while the server does not answer: nobody else can take it. */
static bool is_held(const struct stall *stall)
{
	struct stall_shared *shared = stall->shared;
	unsigned int beats = atomic_load(&shared->beats);

	for (;; usleep(1000)) {
		if (atomic_load(&shared->beats) - beats > 1)
			return false;
		if (atomic_load(&shared->beater) &&
		    state_of(stall->pid, atomic_load(&shared->beater)) == 'D')
			return true;
	}
}

static void answer(const struct stall *stall, uint64_t unique, int err, const void *data,
		   size_t bytes)
{
	char out[sizeof(struct fuse_out_header) + 256];
	struct fuse_out_header header = {.len = sizeof(header), .error = err, .unique = unique};

	header.len += bytes;
	check(header.len <= sizeof(out));
	memcpy(out, &header, sizeof(header));
	if (bytes)
		memcpy(out + sizeof(header), data, bytes);
	check(write(stall->server, out, header.len) == header.len);
}

/* Serves one request; true: it is a read, which stays without an answer. */
static bool serve(const struct stall *stall)
{
	static char in[FUSE_MIN_READ_BUFFER * 2];
	const struct fuse_init_out init = {
		.major = FUSE_KERNEL_VERSION,
		.minor = FUSE_KERNEL_MINOR_VERSION,
		.max_write = PAGE,
	};
	const struct fuse_attr_out attr = {
		.attr_valid = 3600,
		.attr = {.ino = FUSE_ROOT_ID, .size = PAGE, .mode = S_IFREG | 0600, .nlink = 1},
	};
	const struct fuse_open_out file = {0};
	struct fuse_in_header header;
	struct pollfd poller = {.fd = stall->server, .events = POLLIN};

	if (poll(&poller, 1, (int)(PATIENCE / 1000000)) != 1)
		fail("no fault holds mmap_lock");
	check(read(stall->server, in, sizeof(in)) >= (ssize_t)sizeof(header));
	memcpy(&header, in, sizeof(header));
	switch (header.opcode) {
	case FUSE_INIT: answer(stall, header.unique, 0, &init, sizeof(init)); break;
	case FUSE_GETATTR: answer(stall, header.unique, 0, &attr, sizeof(attr)); break;
	case FUSE_OPEN: answer(stall, header.unique, 0, &file, sizeof(file)); break;
	case FUSE_READ:
		/* A fault lets go of the lock the first time, and holds it when it is repeated. */
		if (is_held(stall))
			return true;
		answer(stall, header.unique, -EIO, NULL, 0);
		break;
	default: answer(stall, header.unique, -ENOSYS, NULL, 0);
	}
	return false;
}

struct stall must_stall(void (*before)(void *arg), void (*run)(void *arg), void *arg)
{
	struct stall stall = {.path = "/tmp/txda-stall-XXXXXX"};
	char options[128];
	int file;

	if (geteuid())
		skip("only root mounts a file system");
	stall.server = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (stall.server < 0)
		skip("there is no /dev/fuse");
	file = mkstemp(stall.path);
	check(file >= 0);
	close(file);
	/* Its root is the file. */
	snprintf(options, sizeof(options), "fd=%d,rootmode=100000,user_id=0,group_id=0",
		 stall.server);
	must(mount("stall", stall.path, "fuse", MS_NOSUID | MS_NODEV, options) ? -errno : 0);
	stall.shared = mmap(NULL, sizeof(*stall.shared), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(stall.shared != MAP_FAILED);
	stall.pid = must_fork();
	if (!stall.pid) {
		/* The fault ends with the server. */
		close(stall.server);
		stall_child(&stall, before, run, arg);
	}
	while (!serve(&stall))
		;
	atomic_store(&stall.shared->held, true);
	return stall;
}

bool stall_is_done(const struct stall *stall)
{
	return atomic_load(&stall->shared->done);
}

void stall_end(struct stall *stall)
{
	close(stall->server);
	must_kill(stall->pid);
	must(umount2(stall->path, MNT_DETACH) ? -errno : 0);
	must(unlink(stall->path) ? -errno : 0);
	munmap(stall->shared, sizeof(*stall->shared));
}
