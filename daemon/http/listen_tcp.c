// SPDX-License-Identifier: MIT
#include "listen_tcp.h"
#include "listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool has(const struct listen_address *list, unsigned n, const struct addrinfo *a)
{
	for (unsigned i = 0; i < n; i++)
		if (list[i].len == a->ai_addrlen &&
		    !memcmp(&list[i].address, a->ai_addr, list[i].len))
			return true;
	return false;
}

static int resolve(const char *host, const char *port, struct listen_address *ret, unsigned *n,
		   char *err, size_t errlen)
{
	const struct addrinfo hints = {
		.ai_socktype = SOCK_STREAM,
		.ai_protocol = IPPROTO_TCP,
		.ai_flags = AI_PASSIVE | AI_NUMERICSERV,
	};
	struct addrinfo *list, *a;
	int r = getaddrinfo(host, port, &hints, &list), error = 0;

	if (r) {
		snprintf(err, errlen, "cannot find the address of host %s: %s", host,
			 r == EAI_SYSTEM ? strerror(errno) : gai_strerror(r));
		return -ENOENT;
	}
	for (a = list; a && !error; a = a->ai_next) {
		if ((a->ai_family != AF_INET && a->ai_family != AF_INET6) || has(ret, *n, a))
			continue;
		if (*n == LISTEN_TCP_MAX) {
			snprintf(err, errlen, "host %s has more than %d addresses", host,
				 LISTEN_TCP_MAX);
			error = -E2BIG;
			break;
		}
		memcpy(&ret[*n].address, a->ai_addr, a->ai_addrlen);
		ret[(*n)++].len = a->ai_addrlen;
	}
	freeaddrinfo(list);
	return error;
}

int listen_tcp_resolve(const char *host, unsigned port, struct listen_address ret[LISTEN_TCP_MAX],
		       unsigned *ret_n, char *err, size_t errlen)
{
	size_t len = host ? strlen(host) : 0;
	char text[256], service[16];
	unsigned n = 0;
	int r;

	memset(ret, 0, LISTEN_TCP_MAX * sizeof(*ret));
	snprintf(service, sizeof(service), "%u", port);
	if (!host) {
		r = resolve("127.0.0.1", service, ret, &n, err, errlen);
		if (!r)
			r = resolve("::1", service, ret, &n, err, errlen);
	} else if (!len || len >= sizeof(text)) {
		snprintf(err, errlen, "a host's name has %zu characters; it must have 1 to %zu",
			 len, sizeof(text) - 1);
		return -ENOENT;
	} else {
		bool brackets = len > 2 && *host == '[' && host[len - 1] == ']';

		snprintf(text, sizeof(text), "%.*s", (int)(len - (brackets ? 2 : 0)),
			 host + brackets);
		r = resolve(text, service, ret, &n, err, errlen);
	}
	if (!r && !n) {
		snprintf(err, errlen, "host %s has no IP address", host ? host : "");
		r = -ENOENT;
	}
	if (!r)
		*ret_n = n;
	return r;
}

bool listen_tcp_is_loopback(const struct sockaddr_storage *a)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)a;
	const struct in6_addr *v6 = &((const struct sockaddr_in6 *)a)->sin6_addr;

	if (a->ss_family == AF_INET)
		return ntohl(v4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
	return a->ss_family == AF_INET6 &&
	       (IN6_IS_ADDR_LOOPBACK(v6) ||
		(IN6_IS_ADDR_V4MAPPED(v6) && v6->s6_addr[12] == IN_LOOPBACKNET));
}

void listen_tcp_format(const struct sockaddr_storage *a, char *text, size_t len)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)a;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)a;
	char host[INET6_ADDRSTRLEN] = "";

	if (a->ss_family == AF_INET && inet_ntop(AF_INET, &v4->sin_addr, host, sizeof(host)))
		snprintf(text, len, "%s:%u", host, ntohs(v4->sin_port));
	else if (a->ss_family == AF_INET6 &&
		 inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof(host)))
		snprintf(text, len, "[%s]:%u", host, ntohs(v6->sin6_port));
	else
		snprintf(text, len, "?");
}

int listen_tcp_open(const struct listen_address *a, int *ret_fd, char *err, size_t errlen)
{
	int on = 1, family = a->address.ss_family, fd, error = 0;
	char text[LISTEN_TCP_TEXT];

	fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
	/*
	 * SO_REUSEADDR: a restarted daemon need not wait for old connections to expire.
	 * IPV6_V6ONLY: IPv4 addresses have sockets of their own.
	 */
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
	    (family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on))) ||
	    bind(fd, (const struct sockaddr *)&a->address, a->len) || listen(fd, LISTEN_BACKLOG))
		error = errno;
	if (!error) {
		*ret_fd = fd;
		return 0;
	}
	if (fd >= 0)
		close(fd);
	listen_tcp_format(&a->address, text, sizeof(text));
	snprintf(err, errlen, "cannot listen on %s: %s", text, strerror(error));
	return -error;
}

static int socket_option(int fd, int name)
{
	int value = -1;
	socklen_t len = sizeof(value);

	return getsockopt(fd, SOL_SOCKET, name, &value, &len) ? -1 : value;
}

int listen_tcp_adopt(int fd, struct sockaddr_storage *ret, char *err, size_t errlen)
{
	int family = socket_option(fd, SO_DOMAIN);
	struct sockaddr_storage a = {0};
	socklen_t len = sizeof(a);

	if ((family != AF_INET && family != AF_INET6) ||
	    socket_option(fd, SO_PROTOCOL) != IPPROTO_TCP ||
	    socket_option(fd, SO_ACCEPTCONN) != 1 || getsockname(fd, (struct sockaddr *)&a, &len)) {
		snprintf(err, errlen, "the inherited descriptor %d is not a listening TCP socket",
			 fd);
		return -EINVAL;
	}
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	*ret = a;
	return 0;
}
