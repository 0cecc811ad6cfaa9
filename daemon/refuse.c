// SPDX-License-Identifier: MIT
#include "refuse.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "sockets.h"

#define REFUSE_NS   1000000000ull
#define MAX_CLIENTS 64 /* at a time; the others wait */

static const char body[] =
	"{\"error\":{\"message\":\"the daemon cannot start, as its settings are wrong; its log "
	"says "
	"which one\",\"type\":\"service_unavailable_error\",\"param\":null,\"code\":null}}";

/* True: the client has its answer. It may still be sending, so the connection stays open. */
static bool answer(int fd)
{
	char text[512];
	int n = snprintf(text, sizeof(text),
			 "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
			 "Content-Length: %zu\r\nRetry-After: 5\r\nConnection: close\r\n\r\n%s",
			 sizeof(body) - 1, body);

	return send(fd, text, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT) == n &&
	       !shutdown(fd, SHUT_WR);
}

/* Reads what a client has sent. False: it has gone. */
static bool discard(int fd)
{
	char buffer[4096];

	return recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT) > 0;
}

void refuse_clients(const int *listeners, unsigned n)
{
	struct pollfd p[SOCKETS_MAX + MAX_CLIENTS];
	bool answered[MAX_CLIENTS];
	unsigned n_clients = 0, waiting = 0; /* for their answers */
	const uint64_t end = clock_ns() + REFUSE_NS;
	uint64_t now;

	n = n < SOCKETS_MAX ? n : SOCKETS_MAX;
	for (unsigned i = 0; i < n; i++) {
		p[i] = (struct pollfd){.fd = listeners[i], .events = POLLIN};
		fcntl(listeners[i], F_SETFL, fcntl(listeners[i], F_GETFL) | O_NONBLOCK);
	}
	if (poll(p, n, 0) <= 0)
		return;
	/* Who was accepted and has asked nothing yet has as much time again. */
	while ((now = clock_ns()) < end || (waiting && now < end + REFUSE_NS)) {
		/* When no other client is accepted the listening sockets are left out. */
		unsigned skip = n_clients == MAX_CLIENTS || now >= end ? n : 0;
		uint64_t until = now < end ? end : end + REFUSE_NS;

		if (poll(p + skip, n + n_clients - skip, (int)((until - now) / 1000000) + 1) <= 0)
			continue;
		for (unsigned i = n_clients; i-- > 0;) {
			struct pollfd *client = &p[n + i];

			if (!client->revents)
				continue;
			waiting -= !answered[i];
			if (discard(client->fd) && (answered[i] || answer(client->fd))) {
				answered[i] = true;
				continue;
			}
			close(client->fd);
			n_clients--;
			*client = p[n + n_clients];
			answered[i] = answered[n_clients];
		}
		for (unsigned i = 0; !skip && i < n && n_clients < MAX_CLIENTS; i++) {
			int fd = p[i].revents ? accept4(p[i].fd, NULL, NULL, SOCK_CLOEXEC) : -1;

			if (fd >= 0) {
				answered[n_clients] = false;
				waiting++;
				p[n + n_clients++] = (struct pollfd){.fd = fd, .events = POLLIN};
			} else if (p[i].revents && errno != EAGAIN && errno != EINTR &&
				   errno != ECONNABORTED) {
				p[i].fd = -1; /* no socket that listens, or no descriptor is free */
			}
		}
	}
	for (unsigned i = 0; i < n_clients; i++)
		close(p[n + i].fd);
}
