/* SPDX-License-Identifier: MIT */
/*
 * Listening TCP sockets: the addresses of a name, and whether other machines can reach them.
 *
 * Errors: -errno, with a message that contains the address in err. Called at start only: name
 * look-ups block.
 */
#ifndef TXDA_HTTP_LISTEN_TCP_H
#define TXDA_HTTP_LISTEN_TCP_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#define LISTEN_TCP_MAX	8  /* addresses of a host */
#define LISTEN_TCP_TEXT 80 /* bytes of an address as text, including the NUL */

struct listen_address {
	struct sockaddr_storage address;
	socklen_t len;
};

/*
 * The addresses of @host: an IPv4 or IPv6 address (also in brackets), or a name, with all its
 * addresses; NULL: the loopback addresses. *ret_n is at most LISTEN_TCP_MAX. -ENOENT: there are
 * none.
 */
int listen_tcp_resolve(const char *host, unsigned port, struct listen_address ret[LISTEN_TCP_MAX],
		       unsigned *ret_n, char *err, size_t errlen);
/* Whether it can be reached from this machine only. */
bool listen_tcp_is_loopback(const struct sockaddr_storage *a);
/* "127.0.0.1:8000", "[::1]:8000"; "?" if it is not an IP address. */
void listen_tcp_format(const struct sockaddr_storage *a, char *text, size_t len);
/*
 * -EADDRNOTAVAIL, -EAFNOSUPPORT: this machine does not have that address; others of the host may
 * work.
 */
int listen_tcp_open(const struct listen_address *a, int *ret_fd, char *err, size_t errlen);
/*
 * The address of an inherited listening TCP socket; -EINVAL: it is not one. Makes it non-blocking.
 */
int listen_tcp_adopt(int fd, struct sockaddr_storage *ret, char *err, size_t errlen);

#endif
