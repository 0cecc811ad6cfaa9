/* SPDX-License-Identifier: MIT */
/*
 * Shared by the tests of connections: an HTTP server on a Unix socket in a directory of its own,
 * whose event loop runs in a thread, so that the test can be the client.
 */
#ifndef HTTP_FIXTURE_H
#define HTTP_FIXTURE_H

#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <event2/event.h>

#include "unit.h"
#include "http.h"
#include "listen.h"

struct http_fixture {
	pthread_t thread;
	struct event_base *base;
	struct http_server *server;
	struct listen_socket socket;
	struct budget budget;
	int stop_fd;
	char dir[64], path[96];
};

/* The callback error_body. */
static inline char *http_fixture_error_body(void *arg, int status, const char *message)
{
	char *text;

	return asprintf(&text, "{%d %s}", status, message) < 0 ? NULL : text;
}

/* Creates the server, which uses the fixture's budget; http_fixture_run() starts the loop. */
static inline void http_fixture_init(struct http_fixture *f, struct http_options options,
				     const struct http_callbacks *callbacks)
{
	char err[256];

	strcpy(f->dir, "/tmp/txda-http-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	snprintf(f->path, sizeof(f->path), "%s/s", f->dir);
	budget_init(&f->budget, 4 << 20);
	options.budget = &f->budget;
	f->stop_fd = eventfd(0, EFD_CLOEXEC);
	f->base = event_base_new();
	assert_int_equal(listen_socket_open(f->path, 0600, NULL, &f->socket, err, sizeof(err)), 0);
	assert_int_equal(http_server_new(f->base, &options, callbacks, &f->server), 0);
	assert_int_equal(http_server_listen(f->server, f->socket.fd), 0);
}

static inline void http_fixture_on_stop(evutil_socket_t fd, short what, void *arg)
{
	event_base_loopbreak(arg);
}

static inline void *http_fixture_loop(void *arg)
{
	struct http_fixture *f = arg;
	struct event *stop = event_new(f->base, f->stop_fd, EV_READ, http_fixture_on_stop, f->base);

	event_add(stop, NULL);
	event_base_dispatch(f->base);
	event_free(stop);
	return NULL;
}

static inline void http_fixture_run(struct http_fixture *f)
{
	assert_int_equal(pthread_create(&f->thread, NULL, http_fixture_loop, f), 0);
}

/* Stops the loop and frees everything; all memory must have been returned to the budget. */
static inline void http_fixture_fini(struct http_fixture *f)
{
	const uint64_t one = 1;
	char lock[112];

	assert_int_equal(write(f->stop_fd, &one, sizeof(one)), sizeof(one));
	pthread_join(f->thread, NULL);
	http_server_free(f->server);
	assert_int_equal(f->budget.used, 0);
	budget_clear(&f->budget);
	event_base_free(f->base);
	listen_socket_close(&f->socket);
	close(f->stop_fd);
	snprintf(lock, sizeof(lock), "%s.lock", f->path);
	unlink(lock);
	rmdir(f->dir);
}

/* Connects to the Unix socket. */
static inline int http_fixture_dial(const struct http_fixture *f)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	strcpy(address.sun_path, f->path);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

static inline void http_fixture_send(int fd, const char *text)
{
	assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

#endif /* HTTP_FIXTURE_H */
