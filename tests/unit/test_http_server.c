// SPDX-License-Identifier: MIT
/* Connections: deadlines, limits, disconnects, slow readers. The server's loop runs in a thread of
 * its own, the test is the client. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "clock.h"
#include "http_fixture.h"

#define STREAM_BYTES (4u << 20)
#define BIG_BYTES    (1u << 20)

static struct {
	struct http_fixture http;
	atomic_uint gone, drained, made, uid, waiting;
	atomic_size_t held;
	struct http_conn *streaming;
} t;

/* /echo answers with the body, /never does not answer, /stream makes more as it is read, /big is
 * answered at once with more than a socket takes, /drain begins the server's end. */
static void make_stream(void)
{
	char block[8192];

	memset(block, 's', sizeof(block));
	while (t.streaming && atomic_load(&t.made) < STREAM_BYTES &&
	       !http_conn_congested(t.streaming)) {
		http_stream_write(t.streaming, block, sizeof(block));
		atomic_fetch_add(&t.made, sizeof(block));
	}
	if (t.streaming && atomic_load(&t.made) >= STREAM_BYTES) {
		struct http_conn *c = t.streaming;

		t.streaming = NULL;
		http_stream_end(c);
	}
	atomic_store(&t.held, t.http.budget.used);
}

static void on_request(void *arg, struct http_conn *c, const struct http_request *r)
{
	atomic_store(&t.uid, http_conn_peer(c)->uid);
	if (!strcmp(r->path, "/never")) {
		http_conn_set_user(c, &t);
		atomic_fetch_add(&t.waiting, 1);
	} else if (!strcmp(r->path, "/stream")) {
		http_conn_set_user(c, &t);
		t.streaming = c;
		atomic_store(&t.made, 0);
		http_stream_begin(c, 200, "text/plain", NULL);
		make_stream();
	} else if (!strcmp(r->path, "/big")) {
		static char big[BIG_BYTES];

		http_reply(c, 200, "text/plain", NULL, big, sizeof(big));
		atomic_fetch_add(&t.made, 1);
	} else {
		if (!strcmp(r->path, "/drain"))
			http_server_drain(t.http.server);
		http_reply(c, 200, "text/plain", NULL, r->body, r->body_len);
	}
}

static void on_gone(void *arg, void *user)
{
	assert_ptr_equal(user, &t);
	t.streaming = NULL;
	atomic_fetch_add(&t.gone, 1);
}

static void on_drained(void *arg, void *user)
{
	atomic_fetch_add(&t.drained, 1);
	make_stream();
}

static int setup(void **state)
{
	struct http_options options = {
		.limits = {.max_head = 1024, .max_headers = 20, .max_body = 1 << 20},
		.max_connections = 5,
		.head_seconds = 1,
		.body_seconds = 1,
		.idle_seconds = 2,
		.stall_seconds = 1,
		.congested_bytes = 64 << 10,
	};
	struct http_callbacks callbacks = {
		.on_request = on_request,
		.error_body = http_fixture_error_body,
		.on_gone = on_gone,
		.on_drained = on_drained,
	};

	memset(&t, 0, sizeof(t));
	http_fixture_init(&t.http, options, &callbacks);
	http_fixture_run(&t.http);
	return 0;
}

static int teardown(void **state)
{
	http_fixture_fini(&t.http);
	return 0;
}

static int dial(void)
{
	return http_fixture_dial(&t.http);
}

/* Reads until the end of file (true) or until nothing comes for @ms (false); the beginning is in
 * @buf. */
static bool hear(int fd, char *buf, size_t size, int ms, size_t *ret_len)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	static char sink[65536];
	size_t len = 0, total = 0;
	bool end = false;

	while (!end && poll(&p, 1, ms) > 0) {
		ssize_t n = read(fd, sink, sizeof(sink));

		end = n <= 0;
		if (n > 0) {
			size_t keep = (size_t)n < size - 1 - len ? (size_t)n : size - 1 - len;

			memcpy(buf + len, sink, keep);
			len += keep;
			total += (size_t)n;
		}
	}
	buf[len] = 0;
	if (ret_len)
		*ret_len = total;
	return end;
}

/* Waits until *@what is at least @n. */
static bool reaches(atomic_uint *what, unsigned n, double seconds)
{
	for (double end = clock_s() + seconds; clock_s() < end; usleep(2000))
		if (atomic_load(what) >= n)
			return true;
	return false;
}

TEST(test_pipeline)
{
	char buf[2048];
	int fd = dial();

	http_fixture_send(fd,
			  "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\noneGET /a "
			  "HTTP/1.1\r\nHost: x\r\n\r\n"
			  "POST /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: "
			  "3\r\n\r\ntwo");
	assert_true(hear(fd, buf, sizeof(buf), 3000, NULL));
	assert_says(buf, "\r\n\r\noneHTTP/1.1 200 OK\r\n");
	assert_says(buf, "Connection: close\r\n\r\ntwo");
	assert_int_equal(atomic_load(&t.uid), getuid());
	close(fd);
}

TEST(test_half_close)
{
	char buf[2048];
	int fd = dial();

	http_fixture_send(fd, "GET /a HTTP/1.1\r\nHost: x\r\n\r\nPOST /echo HTTP/1.1\r\nHost: "
			      "x\r\nContent-Length: 3\r\n\r\nend");
	shutdown(fd, SHUT_WR);
	assert_true(hear(fd, buf, sizeof(buf), 3000, NULL));
	assert_says(buf, "\r\n\r\nend");
	close(fd);
	/* One that waits, shut down its side, and then leaves. */
	fd = dial();
	http_fixture_send(fd, "GET /never HTTP/1.1\r\nHost: x\r\n\r\n");
	shutdown(fd, SHUT_WR);
	assert_false(hear(fd, buf, sizeof(buf), 300, NULL));
	assert_int_equal(atomic_load(&t.gone), 0);
	close(fd);
	assert_true(reaches(&t.gone, 1, 1));
}

/* No request of these has a limit, so only the end of the connection can be what is noticed. */
TEST(test_gone)
{
	static char flood[40000];
	int fd = dial();

	http_fixture_send(fd, "GET /never HTTP/1.1\r\nHost: x\r\n\r\n");
	assert_true(reaches(&t.waiting, 1, 30));
	close(fd);
	assert_true(reaches(&t.gone, 1, 30));
	/* Also one that has sent more than is read ahead. */
	memset(flood, 'x', sizeof(flood) - 1);
	fd = dial();
	http_fixture_send(fd, "GET /never HTTP/1.1\r\nHost: x\r\n\r\n");
	assert_true(reaches(&t.waiting, 2, 30));
	http_fixture_send(fd, flood);
	close(fd);
	assert_true(reaches(&t.gone, 2, 30));
}

TEST(test_deadlines)
{
	char buf[2048];
	int slow_head = dial(), slow_body = dial(), idle = dial();
	double start = clock_s();

	/* A byte now and then does not help. */
	http_fixture_send(slow_head, "GET / HTTP/1.1\r\n");
	http_fixture_send(slow_body, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n");
	for (unsigned i = 0; i < 8; i++) {
		usleep(100000);
		http_fixture_send(slow_head, "X");
		http_fixture_send(slow_body, "Y");
	}
	assert_true(hear(slow_head, buf, sizeof(buf), 30000, NULL));
	assert_says(buf, "HTTP/1.1 408 ");
	assert_says(buf, "the head of the request did not arrive within 1 s");
	assert_true(hear(slow_body, buf, sizeof(buf), 30000, NULL));
	assert_says(buf, "the body of the request did not arrive within 1 s");
	assert_true(hear(idle, buf, sizeof(buf), 30000, NULL));
	assert_string_equal(buf, "");
	assert_true(clock_s() - start > 1.8);
	close(slow_head);
	close(slow_body);
	close(idle);
}

TEST(test_too_many)
{
	int fds[5];
	char buf[2048];

	for (unsigned i = 0; i < 4; i++) {
		fds[i] = dial();
		http_fixture_send(fds[i], "GET /never HTTP/1.1\r\nHost: x\r\n\r\n");
	}
	assert_true(reaches(&t.waiting, 4, 3));
	fds[4] = dial();
	assert_true(hear(fds[4], buf, sizeof(buf), 4000, NULL));
	assert_says(buf, "HTTP/1.1 503 ");
	assert_says(buf, "Retry-After: 1\r\n");
	assert_non_null(strstr(buf, "the user has 4; the limit is 5 for all users"));
	close(fds[4]);
	for (unsigned i = 0; i < 4; i++)
		close(fds[i]);
	assert_true(reaches(&t.gone, 4, 1));
	/* Idle ones make room, the oldest first. */
	for (unsigned i = 0; i < 5; i++) {
		fds[i] = dial();
		usleep(20000);
	}
	assert_true(hear(fds[0], buf, sizeof(buf), 1000, NULL));
	http_fixture_send(fds[4], "GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
	assert_true(hear(fds[4], buf, sizeof(buf), 1000, NULL));
	assert_says(buf, "200 OK");
	for (unsigned i = 0; i < 5; i++)
		close(fds[i]);
}

TEST(test_slow_reader)
{
	char buf[256];
	size_t total;
	int fd = dial();

	http_fixture_send(fd, "GET /stream HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
	usleep(300000);
	/* What the kernel holds for it, and what is held here: far from all. */
	assert_true(atomic_load(&t.made) < STREAM_BYTES / 4);
	assert_true(atomic_load(&t.held) < 128 << 10);
	assert_true(hear(fd, buf, sizeof(buf), 3000, &total));
	assert_true(total > STREAM_BYTES);
	assert_true(atomic_load(&t.drained) > 0);
	assert_int_equal(atomic_load(&t.gone), 0);
	close(fd);
	/* One that reads nothing is given up. */
	fd = dial();
	http_fixture_send(fd, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
	assert_true(reaches(&t.gone, 1, 4));
	close(fd);
}

TEST(test_expect_and_budget)
{
	char buf[2048];
	int fd = dial(), other = dial();

	http_fixture_send(fd, "POST /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: "
			      "100-continue\r\nContent-Length: 4\r\n\r\n");
	assert_false(hear(fd, buf, sizeof(buf), 300, NULL));
	assert_string_equal(buf, "HTTP/1.1 100 Continue\r\n\r\n");
	http_fixture_send(fd, "body");
	assert_true(hear(fd, buf, sizeof(buf), 1000, NULL));
	assert_says(buf, "\r\n\r\nbody");
	close(fd);
	/* Too large: no invitation to send it. */
	http_fixture_send(
		other, "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: "
		       "2000000\r\n\r\n");
	assert_true(hear(other, buf, sizeof(buf), 5000, NULL));
	assert_says(buf, "HTTP/1.1 413 ");
	assert_null(strstr(buf, "100 Continue"));
	close(other);
}

/* Who holds more than its share may send no body, but ask how that is, in however many pieces. */
TEST(test_beyond_share)
{
	static char body[64 << 10];
	int holder = dial(), fd = dial(), other = dial(), chunked = dial();
	char buf[2048];

	memset(body, 'b', sizeof(body) - 1);
	http_fixture_send(holder,
			  "POST /never HTTP/1.1\r\nHost: x\r\nContent-Length: 65535\r\n\r\n");
	http_fixture_send(holder, body);
	assert_true(reaches(&t.waiting, 1, 10));
	atomic_fetch_add(&t.http.budget.used, t.http.budget.limit);
	http_fixture_send(fd, "GET /a HTTP/1.1\r\nHost: x\r\n");
	assert_false(hear(fd, buf, sizeof(buf), 100, NULL));
	http_fixture_send(fd, "Connection: close\r\n\r\n");
	assert_true(hear(fd, buf, sizeof(buf), 10000, NULL));
	assert_says(buf, "200 OK");
	http_fixture_send(other, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n");
	assert_true(hear(other, buf, sizeof(buf), 10000, NULL));
	assert_says(buf, "HTTP/1.1 429 ");
	assert_says(buf, "the body has 4 bytes");
	/* Its length is not known before. */
	http_fixture_send(
		chunked,
		"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nb");
	assert_true(hear(chunked, buf, sizeof(buf), 10000, NULL));
	assert_says(buf, "HTTP/1.1 429 ");
	assert_says(buf, "more than the share of the limit of 4194304");
	atomic_fetch_sub(&t.http.budget.used, t.http.budget.limit);
	close(fd);
	close(other);
	close(chunked);
	close(holder);
	assert_true(reaches(&t.gone, 1, 10));
}

/* A refused body is read and thrown away for a while, so that the client gets to read why. */
TEST(test_answer_survives_body)
{
	static char block[65536];
	char buf[2048];
	size_t sent = 0;
	int fd = dial();

	http_fixture_send(fd, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 8000000\r\n\r\n");
	while (sent < 8000000) {
		ssize_t n = send(fd, block, sizeof(block), MSG_NOSIGNAL);

		assert_true(n > 0);
		sent += (size_t)n;
	}
	shutdown(fd, SHUT_WR);
	assert_true(hear(fd, buf, sizeof(buf), 3000, NULL));
	assert_non_null(strstr(buf, "the body has 8000000 bytes; the limit is 1048576"));
	close(fd);
	/* Also if sending takes longer than a client without anything to send is waited for. */
	fd = dial();
	http_fixture_send(fd, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 8000000\r\n\r\n");
	for (unsigned i = 0; i < 45; i++) {
		assert_true(send(fd, block, 1000, MSG_NOSIGNAL) > 0);
		usleep(100000);
	}
	assert_true(hear(fd, buf, sizeof(buf), 10000, NULL));
	assert_non_null(strstr(buf, "the body has 8000000 bytes; the limit is 1048576"));
	close(fd);
}

TEST(test_pipelined_answers_unread)
{
	static char many[100 * 32 + 1];
	struct pollfd p;
	int fd = dial();

	/* Requests without end whose answers nobody reads fill the socket, not the server. */
	for (unsigned i = 0; i < 100; i++)
		strcat(many, "GET /a HTTP/1.1\r\nHost: x\r\n\r\n");
	for (unsigned i = 0; i < 10000; i++) {
		p = (struct pollfd){.fd = fd, .events = POLLOUT};
		if (poll(&p, 1, 300) <= 0)
			break;
		if (send(fd, many, strlen(many), MSG_NOSIGNAL | MSG_DONTWAIT) < 0 &&
		    errno != EAGAIN)
			break;
		assert_true(i < 9999);
	}
	close(fd);
}

/* An answer that still goes out is cut off neither for a new client nor at the server's end. */
TEST(test_unread_answer_stays)
{
	int big = dial(), others[3], fd;
	char buf[2048];
	size_t total;

	http_fixture_send(big, "GET /big HTTP/1.1\r\nHost: x\r\n\r\n");
	assert_true(reaches(&t.made, 1, 3));
	for (unsigned i = 0; i < 3; i++)
		others[i] = dial();
	fd = dial();
	http_fixture_send(fd, "GET /drain HTTP/1.1\r\nHost: x\r\n\r\n");
	assert_true(hear(fd, buf, sizeof(buf), 3000, NULL));
	assert_says(buf, "200 OK");
	assert_true(hear(big, buf, sizeof(buf), 3000, &total));
	assert_true(total > BIG_BYTES);
	for (unsigned i = 0; i < 3; i++)
		close(others[i]);
	close(fd);
	close(big);
}

int main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	choose_unit_tests(argc > 1 ? argv[1] : NULL);
	return run_unit_tests(argv[0], setup, teardown);
}
