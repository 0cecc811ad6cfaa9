// SPDX-License-Identifier: MIT
/* The thread that accepts in the loop's place: whose connections it closes, and when it ends. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <event2/event.h>

#include "unit.h"
#include "clock.h"
#include "http_storm.h"
#include "listen.h"

#define CLIENTS 200

static struct {
	struct event_base *base;
	struct listen_socket socket;
	struct http_storm *storm;
	char dir[64], path[96];
	unsigned taken, closed, over;
	bool name_again;
	atomic_bool full;
} t;

static bool has_to_wait(void *arg)
{
	return atomic_load(&t.full);
}

static void on_take(void *arg, int fd, const struct http_peer *peer)
{
	assert_int_equal(peer->uid, getuid());
	assert_int_equal(peer->pid, getpid());
	t.taken++;
	close(fd);
	if (t.name_again)
		http_storm_block(t.storm, peer->uid, &t.socket.fd, 1);
}

static void on_closed(void *arg, user_id uid, unsigned n)
{
	assert_int_equal(uid, getuid());
	t.closed += n;
}

static void on_over(void *arg)
{
	t.over++;
}

static int setup(void **state)
{
	struct http_storm_options options = {
		.has_to_wait = has_to_wait,
		.take = on_take,
		.closed = on_closed,
		.over = on_over,
	};
	char err[256];

	memset(&t, 0, sizeof(t));
	strcpy(t.dir, "/tmp/txda-storm-XXXXXX");
	assert_non_null(mkdtemp(t.dir));
	snprintf(t.path, sizeof(t.path), "%s/s", t.dir);
	assert_int_equal(listen_socket_open(t.path, 0600, NULL, &t.socket, err, sizeof(err)), 0);
	t.base = event_base_new();
	options.base = t.base;
	assert_int_equal(http_storm_new(&options, &t.storm), 0);
	return 0;
}

static int teardown(void **state)
{
	char lock[112];

	http_storm_free(t.storm);
	event_base_free(t.base);
	listen_socket_close(&t.socket);
	snprintf(lock, sizeof(lock), "%s.lock", t.path);
	unlink(lock);
	rmdir(t.dir);
	return 0;
}

/* -1: the kernel's queue is full. */
static int try_dial(int flags)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);

	strcpy(address.sun_path, t.path);
	if (!connect(fd, (struct sockaddr *)&address, sizeof(address)))
		return fd;
	assert_int_equal(errno, EAGAIN);
	close(fd);
	return -1;
}

static int dial(void)
{
	return try_dial(0);
}

/* Whether the connection is closed soon; the loop runs meanwhile. */
static bool is_closed(int fd, unsigned ms)
{
	struct pollfd ready = {.fd = fd, .events = POLLIN};
	uint64_t end = clock_ms() + ms;
	char byte;

	do {
		event_base_loop(t.base, EVLOOP_NONBLOCK);
		if (poll(&ready, 1, 1) == 1)
			return read(fd, &byte, 1) <= 0;
	} while (clock_ms() < end);
	return false;
}

/* Runs the loop until *value has reached @wanted. */
static void wait_for(const unsigned *value, unsigned wanted)
{
	uint64_t end = clock_ms() + 60000;

	while (*value < wanted && clock_ms() < end) {
		event_base_loop(t.base, EVLOOP_NONBLOCK);
		poll(NULL, 0, 1);
	}
	assert_int_equal(*value, wanted);
}

/* The loop sees one of a user's connections from time to time, and is told of the others. */
/* Whether a process with that uid is a user of its own. */
static bool is_apart(uid_t uid)
{
	struct http_peer peer;
	int pair[2], status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid) {
		/* The kernel remembers who made the pair. */
		if (setresuid(uid, uid, uid) || socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
			_exit(2);
		http_storm_peer(pair[0], &peer);
		_exit(peer.uid == uid && peer.uid < IDENTITY_OWN_UIDS && peer.pid == getpid());
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) < 2);
	return WEXITSTATUS(status);
}

/* All uids that there are, up to the last: none is taken for another, nor for a key's user. */
TEST(test_users)
{
	static const uid_t uids[] = {1, 65534, (1u << 31) - 1, 1u << 31, (1u << 31) + 1, (uid_t)-2};

	if (getuid())
		skip();
	for (unsigned i = 0; i < ARRAY_SIZE(uids); i++) {
		if (!is_apart(uids[i]))
			fail_msg("uid %u", uids[i]);
	}
}

TEST(surplus_is_closed)
{
	t.name_again = true;
	http_storm_block(t.storm, getuid(), &t.socket.fd, 1);
	assert_true(http_storm_is_active(t.storm));
	for (unsigned i = 0; i < CLIENTS; i++) {
		int fd = dial();

		assert_true(is_closed(fd, 60000));
		close(fd);
	}
	/* It ends by itself when no more come, and then nothing is accepted. */
	wait_for(&t.over, 1);
	assert_false(http_storm_is_active(t.storm));
	assert_int_equal(t.taken + t.closed, CLIENTS);
	assert_true(t.closed > 0);
	int fd = dial();

	assert_false(is_closed(fd, 2 * STORM_QUIET_MS));
	close(fd);
	close(accept(t.socket.fd, NULL, NULL));
	/* And begins again. */
	http_storm_block(t.storm, getuid(), &t.socket.fd, 1);
	fd = dial();
	assert_true(is_closed(fd, 60000));
	close(fd);
}

TEST(others_are_handed_on)
{
	for (unsigned i = 0; i < CLIENTS; i++) {
		int fd;

		/* More users than it knows at a time. */
		http_storm_block(t.storm, getuid() + 1 + i, &t.socket.fd, 1);
		fd = dial();
		assert_true(is_closed(fd, 60000));
		close(fd);
	}
	assert_int_equal(t.taken, CLIENTS);
	assert_int_equal(t.closed, 0);
}

/* Whoever ends it has the listener for itself at once, also while many connect. */
TEST(it_can_be_ended)
{
	int fds[2 * STORM_BACKLOG];

	for (unsigned round = 0; round < 20; round++) {
		unsigned n = 0, before;

		http_storm_block(t.storm, getuid() + 1, &t.socket.fd, 1);
		for (; n < STORM_BACKLOG / 2; n++)
			fds[n] = dial();
		http_storm_end(t.storm);
		assert_false(http_storm_is_active(t.storm));
		/* The queue is as long as before. */
		for (; n < 2 * STORM_BACKLOG; n++)
			fds[n] = dial();
		while (accept4(t.socket.fd, NULL, NULL, SOCK_CLOEXEC) >= 0 &&
		       poll(&(struct pollfd){.fd = t.socket.fd, .events = POLLIN}, 1, 0) == 1)
			;
		for (before = 0; before < 20; before++) {
			event_base_loop(t.base, EVLOOP_NONBLOCK);
			poll(NULL, 0, 1);
		}
		while (n)
			close(fds[--n]);
	}
	assert_int_equal(t.over, 0);
	/* With connections that nobody has taken yet. */
	http_storm_block(t.storm, getuid() + 1, &t.socket.fd, 1);
	fds[0] = dial();
	poll(NULL, 0, 20);
	http_storm_free(t.storm);
	t.storm = NULL;
	assert_true(is_closed(fds[0], 1000));
	close(fds[0]);
}

TEST(nothing_is_accepted_while_too_many_are_closed)
{
	int fd;

	atomic_store(&t.full, true);
	http_storm_block(t.storm, getuid(), &t.socket.fd, 1);
	fd = dial();
	assert_false(is_closed(fd, 2 * STORM_QUIET_MS));
	/* The loop waits for the same, if it still does. */
	wait_for(&t.over, 1);
	atomic_store(&t.full, false);
	http_storm_block(t.storm, getuid(), &t.socket.fd, 1);
	assert_true(is_closed(fd, 60000));
	close(fd);
}

/* How many connections the kernel queues, up to @most. */
static unsigned queued(unsigned most)
{
	int fds[2 * LISTEN_BACKLOG];
	unsigned n = 0;

	while (n < most && (fds[n] = try_dial(SOCK_NONBLOCK)) >= 0)
		n++;
	for (unsigned i = 0; i < n; i++) {
		close(accept(t.socket.fd, NULL, NULL));
		close(fds[i]);
	}
	return n;
}

/* A socket of systemd's queues as many as the daemon's own, before and after. */
TEST(the_queue_is_as_long_as_before)
{
	unsigned own = queued(2 * LISTEN_BACKLOG);
	struct listen_socket adopted;
	char err[256];

	assert_int_equal(listen(t.socket.fd, 2 * LISTEN_BACKLOG), 0);
	assert_int_equal(listen_socket_adopt(t.socket.fd, &adopted, err, sizeof(err)), 0);
	assert_int_equal(queued(2 * LISTEN_BACKLOG), own);
	http_storm_block(t.storm, getuid(), &t.socket.fd, 1);
	http_storm_end(t.storm);
	assert_int_equal(queued(2 * LISTEN_BACKLOG), own);
}

TEST(without_descriptors_nothing_begins)
{
	struct rlimit before, none;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = (struct rlimit){(rlim_t)dup(0), before.rlim_max};
	close((int)none.rlim_cur);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	http_storm_block(t.storm, getuid(), &t.socket.fd, 1);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_false(http_storm_is_active(t.storm));
	/* The loop goes on, with its own queue. */
	assert_int_equal(queued(2 * STORM_BACKLOG), 2 * STORM_BACKLOG);
}

TEST_MAIN_EACH(setup, teardown)
