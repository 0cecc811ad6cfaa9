// SPDX-License-Identifier: MIT
/*
 * A dma-buf that a device begins to use after poll(2) has said that none does: the sync ioctl waits
 * for it, in text workers of that client's user alone. The kernel's side is the test's own: a memfd
 * that says it were a dma-buf.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <linux/dma-buf.h>

#include "unit.h"
#include "client_memory.h"
#include "textpool.h"

#define BYTES	  4096
#define OWNER	  1
#define OTHER	  2
#define N_BLOCKED 6

/* The build lets calls of NAME be calls of __wrap_NAME. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

int __real_fcntl64(int fd, int command, ...);
int __real_ioctl(int fd, unsigned long request, ...);
int __real_open64(const char *path, int flags, ...);
int __real_poll(struct pollfd *fds, nfds_t n, int ms);
ssize_t __real_process_vm_readv(pid_t pid, const struct iovec *local, unsigned long n_local,
				const struct iovec *remote, unsigned long n_remote,
				unsigned long flags);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
/* Under lock. */
static int buf = -1;	/* the dma-buf */
static bool busy_early; /* poll() says that a device uses it */
static bool fence;	/* one does */
static bool signalled;	/* a signal interrupts the wait, once */
static unsigned n_waiting, most_waiting, n_started, n_ended;
static uint64_t ended_flags;

static bool copy_forbidden;

ssize_t __wrap_process_vm_readv(pid_t pid, const struct iovec *local, unsigned long n_local,
				const struct iovec *remote, unsigned long n_remote,
				unsigned long flags)
{
	if (!copy_forbidden)
		return __real_process_vm_readv(pid, local, n_local, remote, n_remote, flags);
	errno = ENOSYS;
	return -1;
}

int __wrap_fcntl64(int fd, int command, ...)
{
	va_list args;
	long value;

	va_start(args, command);
	value = va_arg(args, long);
	va_end(args);
	if (fd == buf && command == F_GET_SEALS) {
		errno = EINVAL;
		return -1;
	}
	return __real_fcntl64(fd, command, value);
}

int __wrap_open64(const char *path, int flags, ...)
{
	static const char text[] = "pos:\t0\nsize:\t4096\ncount:\t1\nexp_name:\ttest\n";
	char name[64];
	int fd;

	snprintf(name, sizeof(name), "/proc/self/fdinfo/%d", buf);
	if (strcmp(path, name))
		return __real_open64(path, flags);
	fd = memfd_create("fdinfo", MFD_CLOEXEC);
	assert_int_equal(pwrite(fd, text, sizeof(text) - 1, 0), sizeof(text) - 1);
	return fd;
}

int __wrap_poll(struct pollfd *fds, nfds_t n, int ms)
{
	if (n != 1 || fds->fd != buf)
		return __real_poll(fds, n, ms);
	return busy_early ? 0 : 1;
}

/* As dma_fence_wait(): interruptible, without a limit of time. */
int __wrap_ioctl(int fd, unsigned long request, ...)
{
	const struct dma_buf_sync *sync;
	va_list args;
	void *arg;
	int r = 0;

	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);
	if (fd != buf || request != DMA_BUF_IOCTL_SYNC)
		return __real_ioctl(fd, request, arg);
	sync = arg;
	pthread_mutex_lock(&lock);
	if (sync->flags & DMA_BUF_SYNC_END) {
		n_ended++;
		ended_flags = sync->flags;
	} else if (signalled) {
		signalled = false;
		errno = EINTR;
		r = -1;
	} else {
		n_waiting++;
		if (n_waiting > most_waiting)
			most_waiting = n_waiting;
		pthread_cond_broadcast(&changed);
		while (fence)
			pthread_cond_wait(&changed, &lock);
		n_waiting--;
		n_started++;
	}
	pthread_mutex_unlock(&lock);
	return r;
}

static void await_waiting(unsigned n)
{
	pthread_mutex_lock(&lock);
	while (n_waiting < n)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

static void end_fence(void)
{
	pthread_mutex_lock(&lock);
	fence = false;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

static int make_memory(void)
{
	int fd = memfd_create("memory", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(fallocate(fd, 0, 0, BYTES), 0);
	return fd;
}

static int setup(void **state)
{
	buf = make_memory();
	busy_early = signalled = false;
	fence = true;
	n_waiting = most_waiting = n_started = n_ended = 0;
	return 0;
}

static int teardown(void **state)
{
	close(buf);
	buf = -1;
	return 0;
}

static void leave(struct client_memory *m)
{
	client_memory_end(m);
	munmap(m->map, m->map_len);
}

struct opening {
	struct textpool_job job; /* first */
	int fd, result;
	struct client_memory memory;
};

static void open_memory(struct textpool_job *job)
{
	struct opening *o = (struct opening *)job;
	char err[256];

	o->result = client_memory_open(o->fd, 0, BYTES, true, &o->memory, err, sizeof(err));
	if (!o->result)
		leave(&o->memory);
}

static void *open_in_thread(void *arg)
{
	open_memory(arg);
	return NULL;
}

TEST(test_refused)
{
	struct client_memory m;
	char err[256];

	busy_early = true;
	assert_int_equal(client_memory_open(buf, 0, BYTES, true, &m, err, sizeof(err)), -EINVAL);
	assert_says(err, "poll()");
	assert_int_equal(n_started + n_ended, 0);
}

/* It waits, also after a signal; nothing else has to wait for it; access ends as it began. */
TEST(test_waits)
{
	struct opening late = {.fd = buf}, other = {.fd = make_memory()};
	pthread_t thread;

	signalled = true;
	assert_int_equal(pthread_create(&thread, NULL, open_in_thread, &late), 0);
	await_waiting(1);
	assert_false(signalled);
	open_memory(&other.job);
	assert_int_equal(other.result, 0);
	assert_int_equal(n_started, 0);
	end_fence();
	pthread_join(thread, NULL);
	assert_int_equal(late.result, 0);
	assert_int_equal(n_started, 1);
	assert_int_equal(n_ended, 1);
	assert_int_equal(ended_flags, DMA_BUF_SYNC_END | DMA_BUF_SYNC_RW);
	close(other.fd);
}

static unsigned n_back;

static void count_back(struct textpool_job *job)
{
	n_back++;
}

static void await_back(struct textpool *pool, unsigned n)
{
	struct pollfd p = {.fd = textpool_fd(pool), .events = POLLIN};

	while (n_back < n) {
		assert_int_equal(poll(&p, 1, -1), 1);
		textpool_dispatch(pool);
	}
}

/* However many such requests a user has: others' are served, and all end with the fence. */
TEST(test_others_go_on)
{
	struct opening blocked[N_BLOCKED], others[8];
	struct textpool *pool;

	n_back = 0;
	assert_int_equal(textpool_new(4, 16, 64, &pool), 0);
	for (unsigned i = 0; i < N_BLOCKED; i++) {
		blocked[i] = (struct opening){
			.job = {.user = OWNER, .run = open_memory, .done = count_back}, .fd = buf};
		assert_int_equal(textpool_add(pool, &blocked[i].job), 0);
	}
	await_waiting(1);
	for (unsigned i = 0; i < 8; i++) {
		others[i] = (struct opening){
			.job = {.user = OTHER, .run = open_memory, .done = count_back},
			.fd = make_memory(),
		};
		others[i].job.brief = i % 2;
		textpool_again(pool, &others[i].job);
	}
	textpool_kick(pool);
	await_back(pool, 8);
	for (unsigned i = 0; i < 8; i++) {
		assert_int_equal(others[i].result, 0);
		close(others[i].fd);
	}
	pthread_mutex_lock(&lock);
	assert_int_equal(n_started, 0);
	assert_in_range(most_waiting, 1, 2);
	pthread_mutex_unlock(&lock);
	end_fence();
	await_back(pool, 8 + N_BLOCKED);
	for (unsigned i = 0; i < N_BLOCKED; i++)
		assert_int_equal(blocked[i].result, 0);
	assert_int_equal(n_ended, N_BLOCKED);
	textpool_free(pool);
}

/* Without process_vm_readv(2) only memory that is read works, and the others' error says why. */
TEST(test_copy_forbidden)
{
	int fd = make_memory();
	struct client_memory m;
	char err[256], byte;

	copy_forbidden = true;
	client_memory_start();
	assert_int_equal(client_memory_open(fd, 0, BYTES, true, &m, err, sizeof(err)), -ENOTSUP);
	assert_says(err, "process_vm_readv(2) here (Function not implemented)");
	assert_int_equal(client_memory_open(buf, 0, BYTES, false, &m, err, sizeof(err)), -ENOTSUP);
	assert_int_equal(n_started + n_ended, 0);
	assert_int_equal(client_memory_open(fd, 0, BYTES, false, &m, err, sizeof(err)), 0);
	assert_int_equal(client_memory_read(&m, 1, &byte, 1), 0);
	leave(&m);

	copy_forbidden = false;
	client_memory_start();
	assert_int_equal(client_memory_open(fd, 0, BYTES, true, &m, err, sizeof(err)), 0);
	assert_int_equal(client_memory_write(&m, 0, "x", 1), 0);
	leave(&m);
	close(fd);
}

TEST_MAIN_EACH(setup, teardown)
