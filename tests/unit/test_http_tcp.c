// SPDX-License-Identifier: MIT
/*
 * Connections over TCP: who is let in, and how many there may be of whom. The server's loop runs in a
 * thread of its own, the test is the client. "Key" is a header that names a user; 16 connections in
 * all make 2 for unknown peers and 6 for users.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <time.h>

#include "http_fixture.h"
#include "listen_tcp.h"

#define MAX	    16
#define MAX_UNKNOWN 2
#define PATIENCE    20000 /* ms, for what comes; the tests expect no times */

static struct {
	struct http_fixture http;
	struct sockaddr_storage address;
	int tcp;
	atomic_uint gone, uid, waiting;
	atomic_uint surplus; /* connections closed without an answer, when forgiven */
} t;

static bool on_head(void *arg, const struct http_conn *c, const struct http_request *r,
		    struct identity *ret, struct http_refusal *refusal)
{
	const char *key = http_request_header(r, "Key");

	assert_true(http_conn_peer(c)->tcp);
	assert_int_equal(strncmp(http_conn_peer(c)->address, "127.0.0.1:", 10), 0);
	if (!key) {
		refusal->status = 401;
		refusal->headers = "WWW-Authenticate: Test\r\n";
		strcpy(refusal->message, "no key");
		return false;
	}
	*ret = (struct identity){.uid = (uid_t)atoi(key), .gid = (gid_t)-1};
	snprintf(ret->name, sizeof(ret->name), "u%s", key);
	return true;
}

static void on_request(void *arg, struct http_conn *c, const struct http_request *r)
{
	atomic_store(&t.uid, http_conn_peer(c)->uid);
	if (!strcmp(r->path, "/greedy"))
		http_conn_account(c)->loop_paid_ns = UINT64_MAX / 2;
	if (!strcmp(r->path, "/forgive")) {
		unsigned surplus = 0;
		struct account *a;

		TAILQ_FOREACH(a, &t.http.budget.accounts, link) {
			a->loop_paid_ns = 0;
			surplus += (unsigned)a->surplus;
		}
		atomic_store(&t.surplus, surplus);
	}
	if (!strcmp(r->path, "/never")) {
		http_conn_set_user(c, &t);
		atomic_fetch_add(&t.waiting, 1);
	} else {
		http_reply(c, 200, "text/plain", NULL, "yes", 3);
	}
}

static void on_gone(void *arg, void *user)
{
	assert_ptr_equal(user, &t);
	atomic_fetch_add(&t.gone, 1);
}

static void on_drained(void *arg, void *user)
{
}

static int setup(void **state)
{
	struct http_options options = {
		.limits = {.max_head = 1024, .max_headers = 20, .max_body = 1 << 20},
		.max_connections = MAX,
		.head_seconds = 1,
		.body_seconds = 60,
		.idle_seconds = 60,
		.stall_seconds = 60,
		.congested_bytes = 64 << 10,
	};
	struct http_callbacks callbacks = {
		.on_head = on_head,
		.on_request = on_request,
		.error_body = http_fixture_error_body,
		.on_gone = on_gone,
		.on_drained = on_drained,
	};
	struct listen_address addresses[LISTEN_TCP_MAX];
	char err[256];
	unsigned n;

	memset(&t, 0, sizeof(t));
	http_fixture_init(&t.http, options, &callbacks);
	assert_int_equal(listen_tcp_resolve("127.0.0.1", 0, addresses, &n, err, sizeof(err)), 0);
	assert_int_equal(listen_tcp_open(&addresses[0], &t.tcp, err, sizeof(err)), 0);
	assert_int_equal(listen_tcp_adopt(t.tcp, &t.address, err, sizeof(err)), 0);
	assert_int_equal(http_server_listen(t.http.server, t.tcp), 0);
	http_fixture_run(&t.http);
	return 0;
}

static int teardown(void **state)
{
	http_fixture_fini(&t.http);
	close(t.tcp);
	return 0;
}

static int dial(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&t.address, sizeof(struct sockaddr_in)), 0);
	return fd;
}

/* Reads until the text holds @until, or to the end of the stream (NULL); false: that came first, or
 * nothing came for PATIENCE. */
static bool hear(int fd, char *buf, size_t size, const char *until)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	size_t len = 0;

	*buf = 0;
	while (poll(&p, 1, PATIENCE) > 0 && len < size - 1) {
		ssize_t n = read(fd, buf + len, size - 1 - len);

		/* A reset is an end, too. */
		if (n <= 0)
			return !until;
		len += (size_t)n;
		buf[len] = 0;
		if (until && strstr(buf, until))
			return true;
	}
	return false;
}

static bool is_open(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN | POLLRDHUP};

	return !poll(&p, 1, 0);
}

/* Waits until *@what is @n. */
static bool reaches(atomic_uint *what, unsigned n)
{
	for (unsigned ms = 0; ms < PATIENCE; ms += 2) {
		if (atomic_load(what) == n)
			return true;
		usleep(2000);
	}
	return false;
}

/* A connection of that user, on which a request waits for ever. */
static int occupy(unsigned uid)
{
	unsigned waiting = atomic_load(&t.waiting);
	char head[96];
	int fd = dial();

	snprintf(head, sizeof(head), "GET /never HTTP/1.1\r\nHost: x\r\nKey: %u\r\n\r\n", uid);
	http_fixture_send(fd, head);
	assert_true(reaches(&t.waiting, waiting + 1));
	return fd;
}

TEST(test_let_in)
{
	char buf[2048];
	int fd = dial();

	http_fixture_send(fd, "GET / HTTP/1.1\r\nHost: x\r\nKey: 7\r\n\r\n");
	assert_true(hear(fd, buf, sizeof(buf), "\r\n\r\nyes"));
	assert_int_equal(atomic_load(&t.uid), 7);
	/* Each request anew: another user, and nobody. */
	http_fixture_send(fd, "GET / HTTP/1.1\r\nHost: x\r\nKey: 8\r\n\r\n");
	assert_true(hear(fd, buf, sizeof(buf), "\r\n\r\nyes"));
	assert_int_equal(atomic_load(&t.uid), 8);
	http_fixture_send(
		fd, "GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\nKey: 7\r\n\r\n");
	assert_true(hear(fd, buf, sizeof(buf), NULL));
	assert_int_equal(strncmp(buf, "HTTP/1.1 401 Unauthorized\r\n", 27), 0);
	assert_says(buf, "\r\nWWW-Authenticate: Test\r\n");
	assert_says(buf, "\r\n\r\n{401 no key}");
	assert_null(strstr(buf, "yes"));
	assert_int_equal(atomic_load(&t.uid), 8);
	close(fd);
}

/* The answer comes before the body, which nobody asks for. */
TEST(test_no_body_of_strangers)
{
	char buf[2048];
	int fd = dial();

	http_fixture_send(
		fd,
		"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 99\r\n\r\n");
	assert_true(hear(fd, buf, sizeof(buf), "{401 no key}"));
	assert_null(strstr(buf, "100 Continue"));
	close(fd);
	fd = dial();
	http_fixture_send(fd, "HEAD / HTTP/1.1\r\nHost: x\r\n\r\n");
	assert_true(hear(fd, buf, sizeof(buf), NULL));
	assert_says(buf, "HTTP/1.1 401 ");
	assert_null(strstr(buf, "{401"));
	close(fd);
}

/* Strangers who say nothing, and who never get to the end of a head. */
TEST(test_deadlines)
{
	char buf[2048];
	int silent = dial(), slow = dial();

	http_fixture_send(slow, "GET / HTTP/1.1\r\n");
	assert_true(hear(silent, buf, sizeof(buf), NULL));
	assert_string_equal(buf, "");
	assert_true(hear(slow, buf, sizeof(buf), NULL));
	assert_says(buf, "HTTP/1.1 408 ");
	close(silent);
	close(slow);
}

TEST(test_strangers_make_room)
{
	enum { N = 200 };
	int fds[N], user = occupy(7), unix_fd;
	unsigned open = 0;
	char buf[2048];

	for (unsigned i = 0; i < N; i++) {
		fds[i] = dial();
		/* Half of them begin a head. */
		if (i % 2)
			send(fds[i], "GET / HT", 8, MSG_NOSIGNAL);
	}
	/* A new one is served: the oldest have gone. */
	close(fds[N - 1]);
	fds[N - 1] = dial();
	http_fixture_send(fds[N - 1], "GET / HTTP/1.1\r\nHost: x\r\nKey: 8\r\n\r\n");
	assert_true(hear(fds[N - 1], buf, sizeof(buf), "\r\n\r\nyes"));
	for (unsigned i = 0; i < N - 1; i++)
		open += is_open(fds[i]);
	assert_true(open <= MAX_UNKNOWN);
	/* Neither who is known nor the Unix socket has felt it. */
	assert_true(is_open(user));
	unix_fd = http_fixture_dial(&t.http);
	http_fixture_send(unix_fd, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
	assert_true(hear(unix_fd, buf, sizeof(buf), "\r\n\r\nyes"));
	assert_int_equal(atomic_load(&t.uid), getuid());
	assert_int_equal(atomic_load(&t.gone), 0);
	close(unix_fd);
	close(user);
	for (unsigned i = 0; i < N; i++)
		close(fds[i]);
}

/* A user may have three times as many connections as are left; what idles makes room. */
TEST(test_shares)
{
	int heavy[5], light[2], idle, fd;
	char buf[2048];

	idle = dial();
	http_fixture_send(idle, "GET / HTTP/1.1\r\nHost: x\r\nKey: 7\r\n\r\n");
	assert_true(hear(idle, buf, sizeof(buf), "\r\n\r\nyes"));
	/* 4 of 6, and 2 are left for others: the fifth takes the place of the one that idles. */
	for (unsigned i = 0; i < 5; i++)
		heavy[i] = occupy(7);
	assert_true(hear(idle, buf, sizeof(buf), NULL));
	close(idle);
	fd = dial();
	http_fixture_send(fd, "GET /never HTTP/1.1\r\nHost: x\r\nKey: 7\r\n\r\n");
	assert_true(hear(fd, buf, sizeof(buf), NULL));
	assert_says(buf, "HTTP/1.1 503 ");
	assert_non_null(strstr(
		buf, "{503 user u7 has 5 connections over TCP, all users 5; the limit is 6"));
	close(fd);
	light[0] = occupy(8);
	for (unsigned i = 0; i < 5; i++)
		assert_true(is_open(heavy[i]));
	/* What one leaves another can have. */
	close(heavy[0]);
	assert_true(reaches(&t.gone, 1));
	light[1] = occupy(9);
	for (unsigned i = 1; i < 5; i++)
		close(heavy[i]);
	close(light[0]);
	close(light[1]);
	assert_true(reaches(&t.gone, 7));
}

/* Also while nothing is written, and with more on the way than is read ahead. */
TEST(test_gone)
{
	static char flood[40000];
	int fd = occupy(7);

	close(fd);
	assert_true(reaches(&t.gone, 1));
	fd = occupy(7);
	memset(flood, 'x', sizeof(flood) - 1);
	http_fixture_send(fd, flood);
	close(fd);
	assert_true(reaches(&t.gone, 2));
}

static void ask(int fd, const char *path, unsigned uid)
{
	char head[96], buf[2048];

	snprintf(head, sizeof(head), "GET %s HTTP/1.1\r\nHost: x\r\nKey: %u\r\n\r\n", path, uid);
	http_fixture_send(fd, head);
	assert_true(hear(fd, buf, sizeof(buf), "\r\n\r\nyes"));
}

/* Who has used up its share of the loop's time waits, and others do not wait for it. */
TEST(test_turns)
{
	int heavy = dial(), light = dial();
	char buf[2048];

	ask(light, "/", 8);
	/* Also what came with the request that used it up. */
	http_fixture_send(heavy, "GET /greedy HTTP/1.1\r\nHost: x\r\nKey: 7\r\n\r\n"
				 "GET /never HTTP/1.1\r\nHost: x\r\nKey: 7\r\n\r\n");
	assert_true(hear(heavy, buf, sizeof(buf), "\r\n\r\nyes"));
	for (unsigned i = 0; i < 10; i++)
		ask(light, "/", 8);
	assert_int_equal(atomic_load(&t.waiting), 0);
	ask(light, "/forgive", 8);
	assert_true(reaches(&t.waiting, 1));
	close(heavy);
	assert_true(reaches(&t.gone, 1));
	close(light);
}

/* Those that wait keep their order; those for which there is no place are closed without an answer. */
TEST(test_turns_of_connections)
{
	enum { N = 40 };
	int fds[N], light = dial(), first = http_fixture_dial(&t.http);
	unsigned served = 0;
	char buf[2048];

	ask(light, "/", 8);
	ask(first, "/greedy", 0);
	for (unsigned i = 0; i < N; i++) {
		fds[i] = http_fixture_dial(&t.http);
		send(fds[i], "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL);
	}
	ask(light, "/", 8);
	assert_true(hear(fds[N - 1], buf, sizeof(buf), NULL));
	assert_string_equal(buf, "");
	assert_true(is_open(fds[0]));
	ask(light, "/forgive", 8);
	for (unsigned i = 0; i < N - 1; i++) {
		assert_true(hear(fds[i], buf, sizeof(buf), NULL));
		assert_true(!*buf || strstr(buf, "\r\n\r\nyes"));
		served += *buf != 0;
	}
	assert_in_range(served, 1, MAX);
	/* The thread that accepts meanwhile (http_storm.h) has its count told when it is quiet. */
	for (unsigned i = 0; i < 1000 && atomic_load(&t.surplus) != N - served; i++) {
		ask(light, "/forgive", 8);
		poll(NULL, 0, 10);
	}
	assert_int_equal(atomic_load(&t.surplus), N - served);
	for (unsigned i = 0; i < N; i++)
		close(fds[i]);
	close(first);
	close(light);
}

/* Nobody waits for a share when there are no others. */
TEST(test_alone)
{
	int fd = http_fixture_dial(&t.http);

	ask(fd, "/greedy", 0);
	ask(fd, "/", 0);
	close(fd);
}

TEST_MAIN_EACH(setup, teardown)
