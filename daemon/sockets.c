// SPDX-License-Identifier: MIT
#include "sockets.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "log.h"
#include "listen_tcp.h"

#define DEFAULT_PORT 8000

static int add(struct sockets *s, const struct listen_socket *one, bool tcp)
{
	if (s->n == SOCKETS_MAX) {
		struct listen_socket surplus = *one;

		log_error("more than %d sockets to listen on", SOCKETS_MAX);
		listen_socket_close(&surplus);
		return -E2BIG;
	}
	s->all[s->n++] = *one;
	s->n_unix += !tcp;
	s->tcp = s->tcp || tcp;
	return 0;
}

/* Whether TCP may be opened at @a. */
static int check_keys(const struct config *c, const struct sockaddr_storage *a)
{
	char text[LISTEN_TCP_TEXT];

	listen_tcp_format(a, text, sizeof(text));
	if (c->api_key_file)
		return 0;
	if (c->api_key)
		log_error("%s is not opened without API keys: set --api-key-file "
			  "(on loopback alone, --no-api-key will do)",
			  text);
	else if (!listen_tcp_is_loopback(a))
		log_error("%s is not opened without API keys, as other machines reach it: "
			  "--api-key-file names their file",
			  text);
	else
		return 0;
	return -EINVAL;
}

static int add_tcp(struct sockets *s, int fd)
{
	const struct listen_socket one = {.fd = fd, .lock_fd = -1};
	struct sockaddr_storage a = {0};
	socklen_t len = sizeof(a);
	char text[LISTEN_TCP_TEXT];

	/* If the port was 0, the kernel has chosen one. */
	getsockname(fd, (struct sockaddr *)&a, &len);
	listen_tcp_format(&a, text, sizeof(text));
	log_info("listening on http://%s", text);
	return add(s, &one, true);
}

static int adopt(struct sockets *s, const struct config *c, int fd)
{
	struct listen_socket one = {.fd = fd, .lock_fd = -1};
	struct sockaddr_storage a = {0};
	socklen_t len = sizeof(a);
	char err[256];
	bool tcp = !getsockname(fd, (struct sockaddr *)&a, &len) && a.ss_family != AF_UNIX;
	int r = tcp ? listen_tcp_adopt(fd, &a, err, sizeof(err))
		    : listen_socket_adopt(fd, &one, err, sizeof(err));

	if (r) {
		log_error("%s", err);
		return r;
	}
	if (!tcp)
		return add(s, &one, false);
	r = check_keys(c, &a);
	return r ? r : add_tcp(s, fd);
}

/* Two hosts may have an address in common, such as 127.0.0.1 and localhost. */
static bool is_open(const struct sockets *s, const struct sockaddr_storage *a)
{
	char wanted[LISTEN_TCP_TEXT], text[LISTEN_TCP_TEXT];

	listen_tcp_format(a, wanted, sizeof(wanted));
	for (unsigned i = 0; i < s->n; i++) {
		struct sockaddr_storage own = {0};
		socklen_t len = sizeof(own);

		getsockname(s->all[i].fd, (struct sockaddr *)&own, &len);
		listen_tcp_format(&own, text, sizeof(text));
		if (!strcmp(text, wanted))
			return true;
	}
	return false;
}

/*
 * Listens on all addresses of a host. One that this machine does not have is an error only if no
 * other works.
 */
static int open_host(struct sockets *s, const struct config *c, const char *host)
{
	struct listen_address addresses[LISTEN_TCP_MAX];
	unsigned n, opened = 0;
	char err[512];
	int fd, r;

	r = listen_tcp_resolve(host, c->port.given ? c->port.number : DEFAULT_PORT, addresses, &n,
			       err, sizeof(err));
	if (r)
		log_error("%s", err);
	for (unsigned i = 0; i < n && !r; i++)
		r = check_keys(c, &addresses[i].address);
	for (unsigned i = 0; i < n && !r; i++) {
		if (is_open(s, &addresses[i].address)) {
			opened++;
			continue;
		}
		r = listen_tcp_open(&addresses[i], &fd, err, sizeof(err));
		if (!r) {
			opened++;
			r = add_tcp(s, fd);
		} else if ((r == -EADDRNOTAVAIL || r == -EAFNOSUPPORT) && (opened || i + 1 < n)) {
			log_info("%s", err);
			r = 0;
		} else {
			log_error("%s", err);
		}
	}
	return r;
}

static int open_tcp(struct sockets *s, const struct config *c)
{
	int r = 0;

	if (!c->port.given && !c->hosts.n)
		return 0;
	if (s->tcp) {
		log_info("--host and --port are ignored: systemd handed over TCP sockets");
		return 0;
	}
	if (!c->hosts.n)
		return open_host(s, c, NULL);
	for (unsigned i = 0; i < c->hosts.n && !r; i++)
		r = open_host(s, c, c->hosts.names[i]);
	return r;
}

int sockets_open(struct sockets *s, const struct config *c, const int *inherited,
		 unsigned n_inherited)
{
	struct listen_socket own;
	char err[512];
	int r = 0;

	*s = (struct sockets){0};
	for (unsigned i = 0; i < n_inherited && !r; i++)
		r = adopt(s, c, inherited[i]);
	if (!r && !s->n_unix && !c->socket) {
		log_error("this user has no default socket, as XDG_RUNTIME_DIR is not set: "
			  "--socket PATH");
		r = -EINVAL;
	}
	if (!r && !s->n_unix) {
		r = listen_socket_open(c->socket, c->socket_mode, c->socket_group, &own, err,
				       sizeof(err));
		if (r)
			log_error("%s", err);
		else
			r = add(s, &own, false);
	}
	return r ? r : open_tcp(s, c);
}

void sockets_close(struct sockets *s)
{
	for (unsigned i = 0; i < s->n; i++)
		listen_socket_close(&s->all[i]);
	s->n = 0;
}
