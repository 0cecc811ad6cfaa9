// SPDX-License-Identifier: MIT
/* Descriptors of clients: to which request they belong, how many there may be, that none stays
 * open; and memory that is reached through them, whatever becomes of it. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <dirent.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "unit.h"
#include "client_memory.h"
#include "descriptors.h"
#include "http_fds.h"

#define LIMIT 40
#define USER  0 /* who sends, and others */
#define OTHER 1

static struct {
	struct descriptors *descriptors;
	struct http_fds fds;
	int server, client;
	unsigned open_before;
} t;

/* Those whose close() does not end until they are taken off: as of a file system that hangs. */
static atomic_int stuck[9] = {-1, -1, -1, -1, -1, -1, -1, -1, -1};

static bool is_stuck(int fd)
{
	for (unsigned i = 0; i < 9; i++)
		if (atomic_load(&stuck[i]) == fd)
			return true;
	return false;
}

static _Atomic pthread_t last_closer;

int close(int fd)
{
	atomic_store(&last_closer, pthread_self());
	while (fd >= 0 && is_stuck(fd))
		usleep(1000);
	return (int)syscall(SYS_close, fd);
}

static unsigned count_open(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static int setup(void **state)
{
	int pair[2];

	memset(&t, 0, sizeof(t));
	t.open_before = count_open();
	assert_int_equal(descriptors_new(LIMIT, &t.descriptors), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	t.server = pair[0];
	t.client = pair[1];
	t.fds.owner = t.descriptors;
	t.fds.uid = USER;
	return 0;
}

static int teardown(void **state)
{
	http_fds_drop(&t.fds, UINT64_MAX);
	close(t.server);
	close(t.client);
	/* Waits for its thread. */
	descriptors_unref(t.descriptors);
	assert_int_equal(count_open(), t.open_before);
	return 0;
}

/* Sends the text and @n descriptors. */
static void say(const char *text, unsigned n)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(253 * sizeof(int))];
	} control = {0};
	struct iovec iov = {.iov_base = (char *)text, .iov_len = strlen(text)};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *c = &control.align;

	if (n) {
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n * sizeof(int));
		for (unsigned i = 0; i < n; i++)
			memcpy(CMSG_DATA(c) + i * sizeof(int), &t.client, sizeof(int));
		msg.msg_control = control.bytes;
		msg.msg_controllen = CMSG_SPACE(n * sizeof(int));
	}
	assert_int_equal(sendmsg(t.client, &msg, 0), strlen(text));
}

static void receive(size_t bytes)
{
	uint64_t until = t.fds.received + bytes;
	char buf[64];

	while (t.fds.received < until)
		assert_true(http_fds_recv(&t.fds, t.server, buf, sizeof(buf)) > 0);
}

static int take(uint64_t end, unsigned *ret_n)
{
	struct descriptor_set *set = NULL;
	int r = http_fds_take(&t.fds, end, &set);

	if (!r)
		*ret_n = set ? set->n_fds : 0;
	descriptors_discard(set);
	return r;
}

/* Waits until no more than @n are held. */
static void wait_held(unsigned n)
{
	for (unsigned i = 0; i < 5000 && descriptors_held(t.descriptors) > n; i++)
		usleep(1000);
	assert_true(descriptors_held(t.descriptors) <= n);
}

TEST(belong_to_their_request)
{
	unsigned n = 99;

	/* Three requests of ten bytes, read in one go as far as the kernel allows. */
	say("request 1.", 0);
	say("requ", 2);
	say("est 2.", 3);
	say("request 3.", 1);
	receive(30);
	assert_int_equal(descriptors_held(t.descriptors), 6);
	assert_int_equal(take(10, &n), 0);
	assert_int_equal(n, 0);
	assert_int_equal(take(20, &n), 0);
	assert_int_equal(n, 5);
	/* Not taken: closed. */
	http_fds_drop(&t.fds, 30);
	wait_held(0);
	assert_int_equal(take(30, &n), 0);
	assert_int_equal(n, 0);
}

TEST(are_limited)
{
	unsigned n = 99;

	/* Of a request; the next one has its own. */
	say("aaaaa", 12);
	say("bbbbb", 5);
	say("ccccc", 2);
	receive(15);
	assert_int_equal(take(10, &n), -E2BIG);
	wait_held(0);
	/* What came when there was no room is lost, too. */
	assert_int_equal(take(15, &n), -E2BIG);
	say("ddddd", 16);
	receive(5);
	assert_int_equal(take(20, &n), 0);
	assert_int_equal(n, 16);
	wait_held(0);
	say("eeeee", 253);
	receive(5);
	assert_int_equal(take(25, &n), -E2BIG);
	wait_held(0);
}

/* There is no room: what comes with descriptors stays in the socket. */
static void expect_full(void)
{
	uint64_t received = t.fds.received;
	char buf[64];

	assert_int_equal(http_fds_recv(&t.fds, t.server, buf, sizeof(buf)), -1);
	assert_int_equal(errno, EAGAIN);
	assert_true(t.fds.full);
	assert_int_equal(t.fds.received, received);
}

TEST(each_user_has_a_share)
{
	assert_int_equal(descriptors_room(t.descriptors, USER), 30);
	descriptors_take(t.descriptors, USER, 30);
	assert_int_equal(descriptors_room(t.descriptors, USER), 0);
	assert_int_equal(descriptors_room(t.descriptors, OTHER), 8);
	descriptors_take(t.descriptors, OTHER, 10);
	assert_int_equal(descriptors_room(t.descriptors, OTHER), 0);
	assert_int_equal(descriptors_connections(t.descriptors), 0);
}

/* The limit of all clients together, and that of the process. */
TEST(run_out)
{
	struct http_fds other = {.owner = t.descriptors, .uid = USER};
	struct descriptor_set *set = NULL;
	struct rlimit limit, low;
	char buf[64];
	unsigned n = 99;

	descriptors_take(t.descriptors, OTHER, LIMIT - 4);
	say("aaaaa", 5);
	assert_int_equal(http_fds_recv(&other, t.server, buf, sizeof(buf)), 5);
	wait_held(LIMIT - 1);
	say("bb", 0);
	receive(2);
	say("bbb", 3);
	expect_full();
	expect_full();
	assert_int_equal(http_fds_take(&other, 5, &set), -EMFILE);
	wait_held(LIMIT - 4);
	receive(3);
	assert_false(t.fds.full);
	assert_int_equal(take(5, &n), 0);
	assert_int_equal(n, 3);
	wait_held(LIMIT - 4);
	getrlimit(RLIMIT_NOFILE, &limit);
	low = (struct rlimit){.rlim_cur = 3, .rlim_max = limit.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	say("ccccc", 3);
	expect_full();
	setrlimit(RLIMIT_NOFILE, &limit);
	receive(5);
	assert_int_equal(take(10, &n), 0);
	assert_int_equal(n, 3);
	wait_held(LIMIT - 4);
}

/* Two that cannot be closed keep nothing else from being closed. */
TEST(hang)
{
	struct descriptor_set *set;

	descriptors_take(t.descriptors, USER, 6);
	for (unsigned i = 0; i < 6; i++) {
		set = descriptors_set(t.descriptors, USER);
		assert_non_null(set);
		set->fds[set->n_fds++] = dup(t.client);
		if (i % 3 == 0)
			atomic_store(&stuck[i / 3], set->fds[0]);
		descriptors_discard(set);
	}
	wait_held(2);
	assert_int_equal(descriptors_held(t.descriptors), 2);
	atomic_store(&stuck[0], -1);
	wait_held(1);
	atomic_store(&stuck[1], -1);
	wait_held(0);
}

/* As many as there are threads, which cannot be closed, keep those of another user from nothing. */
TEST(hang_alone)
{
	struct descriptor_set *set;

	descriptors_take(t.descriptors, USER, 9);
	descriptors_take(t.descriptors, OTHER, 1);
	for (unsigned i = 0; i < 10; i++) {
		set = descriptors_set(t.descriptors, i < 9 ? USER : OTHER);
		assert_non_null(set);
		set->fds[set->n_fds++] = dup(t.client);
		if (i < 9)
			atomic_store(&stuck[i], set->fds[0]);
		descriptors_discard(set);
	}
	wait_held(9);
	assert_int_equal(descriptors_held(t.descriptors), 9);
	for (unsigned i = 0; i < 9; i++)
		atomic_store(&stuck[i], -1);
	wait_held(0);
}

/* What nobody has read goes with the connection; the peer need not wait for that. */
TEST(go_with_the_connection)
{
	char byte;

	say("aaaaa", 200);
	say("bbbbb", 0);
	say("ccccc", 7);
	descriptors_close(t.descriptors, USER, t.server);
	t.server = -1;
	assert_int_equal(read(t.client, &byte, 1), 0);
	wait_held(0);
	assert_int_equal(descriptors_connections(t.descriptors), 0);
}

/* Unread bytes alone cannot delay a close: no thread is woken for them. */
TEST(bytes_go_at_once)
{
	char byte;

	say("aaaaa", 0);
	say("bbbbb", 0);
	descriptors_close(t.descriptors, USER, t.server);
	t.server = -1;
	assert_true(pthread_equal(atomic_load(&last_closer), pthread_self()));
	assert_int_equal(descriptors_held(t.descriptors), 0);
	assert_int_equal(read(t.client, &byte, 1), 0);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static int memory(size_t size, unsigned flags)
{
	int fd = memfd_create("test", MFD_CLOEXEC | flags);

	if (fd >= 0 && size)
		assert_int_equal(posix_fallocate(fd, 0, (off_t)size), 0);
	return fd;
}

static void discard(struct client_memory *m)
{
	struct descriptor_set *set = descriptors_set(t.descriptors, USER);

	client_memory_end(m);
	set->maps[0].ptr = m->map;
	set->maps[0].len = m->map_len;
	set->n_maps = 1;
	set->fds[set->n_fds++] = m->fd;
	descriptors_take(t.descriptors, USER, 1);
	descriptors_discard(set);
}

TEST(memory_is_read_and_written)
{
	static unsigned char from[100000], to[100000];
	struct client_memory in, out;
	char err[256] = "";
	int fd = memory(300000, 0), copy = dup(fd);

	for (unsigned i = 0; i < sizeof(from); i++)
		from[i] = (unsigned char)(i * 7 >> 3);
	assert_int_equal(client_memory_open(fd, 4100, 200000, true, &out, err, sizeof(err)), 0);
	assert_int_equal(client_memory_open(copy, 54100, 100000, false, &in, err, sizeof(err)), 0);
	assert_true(client_memory_overlap(&in, &out));
	assert_int_equal(client_memory_write(&out, 50000, from, sizeof(from)), 0);
	assert_int_equal(client_memory_read(&in, 0, to, sizeof(to)), 0);
	assert_memory_equal(from, to, sizeof(to));
	discard(&in);
	discard(&out);
}

/* No signal, whatever the client does to it. */
TEST(memory_goes_away)
{
	static char bytes[64 << 10];
	struct client_memory m;
	char err[256] = "";
	int fd = memory(1 << 20, 0);

	assert_int_equal(client_memory_open(fd, 0, 1 << 20, true, &m, err, sizeof(err)), 0);
	assert_int_equal(ftruncate(fd, 128 << 10), 0);
	assert_int_equal(client_memory_write(&m, 64 << 10, bytes, sizeof(bytes)), 0);
	assert_int_equal(client_memory_write(&m, 65 << 10, bytes, sizeof(bytes)), -EFAULT);
	assert_int_equal(client_memory_read(&m, 1 << 19, bytes, sizeof(bytes)), -EFAULT);
	assert_int_equal(ftruncate(fd, 0), 0);
	assert_int_equal(client_memory_write(&m, 0, bytes, 1), -EFAULT);
	assert_int_equal(ftruncate(fd, 1 << 20), 0);
	assert_int_equal(client_memory_write(&m, 0, bytes, sizeof(bytes)), 0);
	discard(&m);
}

static void expect_refused(int fd, uint64_t offset, uint64_t len, bool writable, const char *words)
{
	struct client_memory m;
	char err[256] = "";

	assert_int_equal(client_memory_open(fd, offset, len, writable, &m, err, sizeof(err)),
			 -EINVAL);
	assert_says(err, words);
}

TEST(other_memory_is_refused)
{
	int fd = memory(8192, MFD_ALLOW_SEALING), huge = memory(0, MFD_HUGETLB), pipes[2];
	int sparse = memory(8192, 0);
	struct client_memory m;
	char err[256];

	expect_refused(fd, 1, 8192, true, "offset 1 and 8192 bytes");
	expect_refused(fd, UINT64_MAX - 4, 8192, true, "memory of 8192 bytes");
	expect_refused(fd, 8, UINT64_MAX - 4, true, "memory of 8192 bytes");
	/* Input may have holes. */
	assert_int_equal(ftruncate(sparse, 100000), 0);
	expect_refused(sparse, 8, 8192, true,
		       "8192 bytes of the memory are allocated, and those "
		       "up to 8200 are to be written: fallocate()");
	assert_int_equal(client_memory_open(sparse, 8, 8192, false, &m, err, sizeof(err)), 0);
	munmap(m.map, m.map_len);
	close(sparse);
	assert_int_equal(pipe(pipes), 0);
	expect_refused(pipes[0], 0, 4, false, "is not memory that can be used");
	expect_refused(pipes[1], 0, 4, false, "open for writing only");
	expect_refused(t.client, 0, 4, true, "is not memory that can be used");
	expect_refused(-1, 0, 4, true, "no access");
	if (huge >= 0)
		expect_refused(huge, 0, 4, true, "without huge pages");
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
	expect_refused(fd, 0, 4, true, "sealed against writing");
	close(fd);
	close(huge);
	close(pipes[0]);
	close(pipes[1]);
}

TEST_MAIN_EACH(setup, teardown)
