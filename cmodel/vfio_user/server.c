// SPDX-License-Identifier: MIT
#include "clock.h"
#include "server.h"
#include "log.h"
#include "session.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define MAX_CONTROLLERS 8
#define LINE_BYTES	1024
#define ACCEPT_REST_NS	100000000ull

/*
 * One chip's socket and session. Used by the server's thread alone; @done is set by the session's.
 */
struct door {
	struct vu_device *device;
	struct sockaddr_un address;
	int listener; /* -1: closed */
	int sock;     /* of the session; -1: none */
	pthread_t thread;
	_Atomic bool done; /* the session is over: the thread can be joined */
};

struct controller {
	int sock; /* -1: free */
	size_t have;
	char line[LINE_BYTES];
};

struct vu_server {
	struct vu_machine *machine;
	struct door *door; /* [n_devices] */
	struct sockaddr_un control_address;
	int control;
	int event; /* eventfd: stop, or check the chips */
	_Atomic bool stop;
	uint64_t look_ns;   /* when to check the chips next */
	uint64_t accept_ns; /* no connection is accepted before */
	struct controller controller[MAX_CONTROLLERS];
};

static void wake(void *arg)
{
	struct vu_server *s = arg;
	static const uint64_t one = 1;

	/* A full counter is a wake-up too. */
	if (write(s->event, &one, sizeof(one)) < 0)
		return;
}

/* ---- sockets --------------------------------------------------------------------------------- */

static int listen_at(const struct sockaddr_un *address, int *ret)
{
	int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), err;

	if (sock < 0)
		return -errno;
	/* Refuses a socket on which a server listens; replaces one left by a dead server. */
	if (!connect(sock, (const struct sockaddr *)address, sizeof(*address))) {
		close(sock);
		return -EADDRINUSE;
	}
	if (errno == ECONNREFUSED)
		unlink(address->sun_path);
	if (bind(sock, (const struct sockaddr *)address, sizeof(*address)) || listen(sock, 8)) {
		err = -errno;
		close(sock);
		return err;
	}
	*ret = sock;
	return 0;
}

static int set_address(struct sockaddr_un *address, const char *format, const char *dir, unsigned n)
{
	int len;

	address->sun_family = AF_UNIX;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	len = snprintf(address->sun_path, sizeof(address->sun_path), format, dir, n);
#pragma GCC diagnostic pop
	return len < 0 || (size_t)len >= sizeof(address->sun_path) ? -ENAMETOOLONG : 0;
}

/* Without descriptors left the connection stays, and poll() would return at once, again and again. */
static int accept_from(struct vu_server *s, int listener, int flags)
{
	int sock = accept4(listener, NULL, NULL, SOCK_CLOEXEC | flags);

	if (sock < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM))
		s->accept_ns = clock_ns() + ACCEPT_REST_NS;
	return sock;
}

static void stop_listening(int *sock, const struct sockaddr_un *address)
{
	if (*sock < 0)
		return;
	close(*sock);
	*sock = -1;
	unlink(address->sun_path);
}

/* ---- sessions -------------------------------------------------------------------------------- */

static void *session_main(void *arg)
{
	struct door *door = arg;
	int err = vu_session_run(door->device, door->sock);

	if (err)
		vu_log(VU_LOG_WARNING, (int)door->device->index, "connection closed: %s",
		       strerror(-err));
	else
		vu_log(VU_LOG_INFO, (int)door->device->index, "disconnected");
	/* Disconnects the client now; the descriptor is closed when the thread is joined. */
	shutdown(door->sock, SHUT_RDWR);
	atomic_store(&door->done, true);
	return NULL;
}

/* Ends the session, if there is one. */
static void end_session(struct door *door)
{
	if (door->sock < 0)
		return;
	shutdown(door->sock, SHUT_RDWR);
	pthread_join(door->thread, NULL);
	close(door->sock);
	door->sock = -1;
}

/* Whether the client has disconnected, even if its thread has not noticed yet. */
static bool has_left(const struct door *door)
{
	struct pollfd p = {.fd = door->sock, .events = POLLRDHUP};

	return atomic_load(&door->done) ||
	       (poll(&p, 1, 0) == 1 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR)));
}

static void accept_client(struct vu_server *s, struct door *door)
{
	int sock = accept_from(s, door->listener, 0), err;

	if (sock < 0)
		return;
	if (door->sock >= 0 && !has_left(door)) {
		vu_log(VU_LOG_WARNING, (int)door->device->index, "rejected a second client");
		close(sock);
		return;
	}
	end_session(door);
	door->sock = sock;
	atomic_store(&door->done, false);
	err = pthread_create(&door->thread, NULL, session_main, door);
	if (err) {
		vu_log(VU_LOG_ERROR, (int)door->device->index,
		       "cannot create a thread for a client: %s", strerror(err));
		close(sock);
		door->sock = -1;
		return;
	}
	pthread_setname_np(door->thread, "txda-session");
	vu_log(VU_LOG_INFO, (int)door->device->index, "connected");
}

/* ---- commands -------------------------------------------------------------------------------- */

struct vu_machine *vu_server_machine(struct vu_server *s)
{
	return s->machine;
}

void vu_server_poll(struct vu_server *s)
{
	uint64_t lost;

	s->look_ns = vu_machine_poll(s->machine, &lost);
}

int vu_server_disappear(struct vu_server *s, unsigned chip)
{
	struct door *door;

	if (chip >= s->machine->n_devices)
		return -ENODEV;
	door = &s->door[chip];
	/* The order matters: no new clients, the chip is gone, the client is disconnected. */
	stop_listening(&door->listener, &door->address);
	pthread_mutex_lock(&door->device->op_lock);
	vu_device_vanish(door->device);
	pthread_mutex_unlock(&door->device->op_lock);
	end_session(door);
	vu_server_poll(s);
	return 0;
}

int vu_server_appear(struct vu_server *s, unsigned chip)
{
	struct door *door;
	int err;

	if (chip >= s->machine->n_devices)
		return -ENODEV;
	door = &s->door[chip];
	if (!atomic_load(&door->device->gone))
		return -EALREADY;
	pthread_mutex_lock(&door->device->op_lock);
	vu_device_appear(door->device);
	pthread_mutex_unlock(&door->device->op_lock);
	err = door->listener < 0 ? listen_at(&door->address, &door->listener) : 0;
	vu_server_poll(s);
	return err;
}

/* ---- the control socket -----------------------------------------------------------------------
 */

static void close_controller(struct controller *c)
{
	close(c->sock);
	*c = (struct controller){.sock = -1};
}

static void accept_controller(struct vu_server *s)
{
	int sock = accept_from(s, s->control, SOCK_NONBLOCK);

	if (sock < 0)
		return;
	for (unsigned i = 0; i < MAX_CONTROLLERS; i++) {
		if (s->controller[i].sock < 0) {
			s->controller[i] = (struct controller){.sock = sock};
			return;
		}
	}
	close(sock);
}

/* Executes one line and replies; false: the peer does not read. */
static bool run_command(struct vu_server *s, struct controller *c, const char *line)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&text, &bytes);
	bool ok = false;

	if (out) {
		vu_control_run(s, line, out);
		if (!fclose(out))
			/*
			 * A reply fits the socket's buffer; a peer that lets it fill up is
			 * disconnected.
			 */
			ok = send(c->sock, text, bytes, MSG_NOSIGNAL) == (ssize_t)bytes;
	}
	free(text);
	return ok;
}

static void read_controller(struct vu_server *s, struct controller *c)
{
	ssize_t n = recv(c->sock, c->line + c->have, sizeof(c->line) - c->have, 0);
	char *end;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		close_controller(c);
		return;
	}
	c->have += (size_t)n;
	while ((end = memchr(c->line, '\n', c->have))) {
		size_t used = (size_t)(end - c->line) + 1;

		*end = '\0';
		if (!run_command(s, c, c->line)) {
			close_controller(c);
			return;
		}
		c->have -= used;
		memmove(c->line, c->line + used, c->have);
	}
	if (c->have == sizeof(c->line))
		close_controller(c);
}

/* ---- the loop -------------------------------------------------------------------------------- */

static int timeout_ms(const struct vu_server *s)
{
	uint64_t now = clock_ns(), until = s->look_ns, ms;

	if (s->accept_ns > now && s->accept_ns < until)
		until = s->accept_ns;
	if (until == UINT64_MAX)
		return -1;
	ms = until > now ? (until - now) / 1000000 + 1 : 0;
	return ms > 60000 ? 60000 : (int)ms;
}

int vu_server_run(struct vu_server *s)
{
	unsigned doors = s->machine->n_devices;
	struct pollfd p[2 + MAX_CONTROLLERS + CM_MAX_CHIPS];

	while (!atomic_load(&s->stop)) {
		bool accepts = clock_ns() >= s->accept_ns;
		uint64_t count;

		p[0] = (struct pollfd){.fd = s->event, .events = POLLIN};
		p[1] = (struct pollfd){.fd = accepts ? s->control : -1, .events = POLLIN};
		for (unsigned i = 0; i < MAX_CONTROLLERS; i++)
			p[2 + i] = (struct pollfd){.fd = s->controller[i].sock, .events = POLLIN};
		for (unsigned i = 0; i < doors; i++)
			p[2 + MAX_CONTROLLERS + i] = (struct pollfd){
				.fd = accepts ? s->door[i].listener : -1, .events = POLLIN};
		if (poll(p, 2 + MAX_CONTROLLERS + doors, timeout_ms(s)) < 0 && errno != EINTR)
			return -errno;
		if (p[0].revents && read(s->event, &count, sizeof(count)) < 0 && errno != EAGAIN)
			return -errno;
		if (p[0].revents || clock_ns() >= s->look_ns)
			vu_server_poll(s);
		if (p[1].revents)
			accept_controller(s);
		for (unsigned i = 0; i < MAX_CONTROLLERS; i++) {
			if (p[2 + i].revents)
				read_controller(s, &s->controller[i]);
		}
		for (unsigned i = 0; i < doors; i++) {
			if (p[2 + MAX_CONTROLLERS + i].revents && s->door[i].listener >= 0)
				accept_client(s, &s->door[i]);
		}
	}
	return 0;
}

void vu_server_stop(struct vu_server *s)
{
	atomic_store(&s->stop, true);
	wake(s);
}

/* ---- life ------------------------------------------------------------------------------------ */

static int server_init(struct vu_server *s, const struct vu_server_options *opt)
{
	struct vu_machine_options machine = opt->machine;
	int err;

	s->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (s->event < 0)
		return -errno;
	err = opt->control
		      ? set_address(&s->control_address, "%s", opt->control, 0)
		      : set_address(&s->control_address, "%s/control.sock", opt->socket_dir, 0);
	if (err)
		return err;
	machine.changed = wake;
	machine.arg = s;
	err = vu_machine_new(&machine, &s->machine);
	if (err)
		return err;
	s->door = calloc(s->machine->n_devices, sizeof(*s->door));
	if (!s->door)
		return -ENOMEM;
	for (unsigned i = 0; i < s->machine->n_devices; i++) {
		s->door[i].device = &s->machine->device[i];
		s->door[i].listener = s->door[i].sock = -1;
	}
	for (unsigned i = 0; i < s->machine->n_devices && !err; i++) {
		struct door *door = &s->door[i];

		err = set_address(&door->address, "%s/chip%u.sock", opt->socket_dir, i);
		if (!err)
			err = listen_at(&door->address, &door->listener);
	}
	/* Last: once the control socket exists, the chips' sockets exist as well. */
	return err ? err : listen_at(&s->control_address, &s->control);
}

int vu_server_new(const struct vu_server_options *opt, struct vu_server **ret)
{
	struct vu_server *s = calloc(1, sizeof(*s));
	int err;

	if (!s)
		return -ENOMEM;
	s->control = s->event = -1;
	s->look_ns = UINT64_MAX;
	for (unsigned i = 0; i < MAX_CONTROLLERS; i++)
		s->controller[i].sock = -1;
	err = server_init(s, opt);
	if (err) {
		vu_server_free(s);
		return err;
	}
	*ret = s;
	return 0;
}

void vu_server_free(struct vu_server *s)
{
	if (!s)
		return;
	for (unsigned i = 0; s->door && i < s->machine->n_devices; i++) {
		stop_listening(&s->door[i].listener, &s->door[i].address);
		end_session(&s->door[i]);
	}
	stop_listening(&s->control, &s->control_address);
	for (unsigned i = 0; i < MAX_CONTROLLERS; i++) {
		if (s->controller[i].sock >= 0)
			close_controller(&s->controller[i]);
	}
	vu_machine_free(s->machine);
	if (s->event >= 0)
		close(s->event);
	free(s->door);
	free(s);
}
