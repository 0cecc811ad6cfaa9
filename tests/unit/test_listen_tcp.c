// SPDX-License-Identifier: MIT
/* Addresses to listen on: what a host stands for, and who reaches it. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <unistd.h>

#include "unit.h"
#include "listen_tcp.h"

static char err[512];

static void expect(const char *host, unsigned port, const char *text, bool loopback)
{
	struct listen_address a[LISTEN_TCP_MAX];
	char got[LISTEN_TCP_TEXT];
	unsigned n = 0;

	if (listen_tcp_resolve(host, port, a, &n, err, sizeof(err)))
		fail_msg("%s", err);
	assert_int_equal(n, 1);
	listen_tcp_format(&a[0].address, got, sizeof(got));
	assert_string_equal(got, text);
	assert_int_equal(listen_tcp_is_loopback(&a[0].address), loopback);
}

static void refuse(const char *host, const char *words)
{
	struct listen_address a[LISTEN_TCP_MAX];
	unsigned n = 77;

	assert_int_equal(listen_tcp_resolve(host, 80, a, &n, err, sizeof(err)), -ENOENT);
	assert_int_equal(n, 77);
	assert_says(err, words);
}

TEST(test_addresses)
{
	expect("127.0.0.1", 8000, "127.0.0.1:8000", true);
	expect("127.255.255.254", 1, "127.255.255.254:1", true);
	expect("0.0.0.0", 65535, "0.0.0.0:65535", false);
	expect("128.0.0.1", 80, "128.0.0.1:80", false);
	expect("192.0.2.7", 80, "192.0.2.7:80", false);
	expect("::1", 80, "[::1]:80", true);
	expect("[::1]", 80, "[::1]:80", true);
	expect("::", 80, "[::]:80", false);
	expect("2001:db8::1", 80, "[2001:db8::1]:80", false);
	expect("::ffff:127.0.0.1", 80, "[::ffff:127.0.0.1]:80", true);
	expect("::ffff:192.0.2.7", 80, "[::ffff:192.0.2.7]:80", false);
	expect("::2", 80, "[::2]:80", false);
}

TEST(test_default)
{
	struct listen_address a[LISTEN_TCP_MAX];
	unsigned n;

	assert_int_equal(listen_tcp_resolve(NULL, 8000, a, &n, err, sizeof(err)), 0);
	assert_int_equal(n, 2);
	assert_int_equal(a[0].address.ss_family, AF_INET);
	assert_int_equal(a[1].address.ss_family, AF_INET6);
	assert_true(listen_tcp_is_loopback(&a[0].address));
	assert_true(listen_tcp_is_loopback(&a[1].address));
}

TEST(test_hostile)
{
	static char name[300];
	struct sockaddr_storage none = {.ss_family = AF_UNIX};
	char text[LISTEN_TCP_TEXT];

	refuse("", "a host's name has 0 characters");
	memset(name, 'x', sizeof(name) - 1);
	refuse(name, "a host's name has 299 characters; it must have 1 to 255");
	refuse("[]", "cannot find the address of host []");
	refuse("[::1", "cannot find the address of host [::1");
	refuse("127.0.0.1:80", "cannot find the address of host 127.0.0.1:80");
	refuse("256.0.0.1.", "cannot find the address of host 256.0.0.1.");
	refuse("no such host", "cannot find the address of host no such host");
	assert_false(listen_tcp_is_loopback(&none));
	listen_tcp_format(&none, text, sizeof(text));
	assert_string_equal(text, "?");
}

TEST(test_open)
{
	struct sockaddr_storage bound = {0}, again;
	struct listen_address a[LISTEN_TCP_MAX];
	socklen_t len = sizeof(bound);
	int fd, other, udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	char text[LISTEN_TCP_TEXT];
	unsigned n;

	assert_int_equal(listen_tcp_resolve("127.0.0.1", 0, a, &n, err, sizeof(err)), 0);
	assert_int_equal(listen_tcp_open(&a[0], &fd, err, sizeof(err)), 0);
	assert_int_equal(listen_tcp_adopt(fd, &bound, err, sizeof(err)), 0);
	assert_true(listen_tcp_is_loopback(&bound));
	/* Somebody listens there. */
	memcpy(&a[0].address, &bound, sizeof(bound));
	assert_int_equal(listen_tcp_open(&a[0], &other, err, sizeof(err)), -EADDRINUSE);
	listen_tcp_format(&bound, text, sizeof(text));
	assert_says(err, text);
	/* Of no machine (RFC 5737). */
	assert_int_equal(listen_tcp_resolve("192.0.2.7", 0, a, &n, err, sizeof(err)), 0);
	assert_int_equal(listen_tcp_open(&a[0], &other, err, sizeof(err)), -EADDRNOTAVAIL);
	assert_says(err, "cannot listen on 192.0.2.7:0: ");
	close(fd);
	/* What is not a listening TCP socket. */
	assert_int_equal(listen_tcp_adopt(udp, &again, err, sizeof(err)), -EINVAL);
	assert_int_equal(listen_tcp_adopt(STDERR_FILENO, &again, err, sizeof(err)), -EINVAL);
	close(udp);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(listen_tcp_adopt(fd, &again, err, sizeof(err)), -EINVAL);
	assert_says(err, "is not a listening TCP socket");
	assert_int_equal(getsockname(fd, (struct sockaddr *)&bound, &len), 0);
	close(fd);
}

TEST_MAIN
