// SPDX-License-Identifier: MIT
#include "http.h"
#include "http_internal.h"
#include "http_storm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <event2/event.h>

#include "clock.h"
#include "descriptors.h"
#include "log.h"

#define TICK_MS	     500
#define FAST_TICK_MS 50 /* while there are peers from which nothing is read */
#define ACCEPT_BATCH 32
#define PAUSE_MS     100

void http_date(char *buf, size_t len)
{
	time_t now = time(NULL);
	struct tm tm;

	gmtime_r(&now, &tm);
	/* The daemon never calls setlocale(), so names are English. */
	strftime(buf, len, "%a, %d %b %Y %H:%M:%S GMT", &tm);
}

const char *http_reason(int status)
{
	static const struct {
		int status;
		const char *reason;
	} reasons[] = {
		{200, "OK"},
		{400, "Bad Request"},
		{401, "Unauthorized"},
		{403, "Forbidden"},
		{404, "Not Found"},
		{405, "Method Not Allowed"},
		{408, "Request Timeout"},
		{409, "Conflict"},
		{413, "Content Too Large"},
		{414, "URI Too Long"},
		{415, "Unsupported Media Type"},
		{417, "Expectation Failed"},
		{429, "Too Many Requests"},
		{431, "Request Header Fields Too Large"},
		{500, "Internal Server Error"},
		{501, "Not Implemented"},
		{503, "Service Unavailable"},
		{504, "Gateway Timeout"},
		{505, "HTTP Version Not Supported"},
	};

	for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
		if (reasons[i].status == status)
			return reasons[i].reason;
	return "Unknown";
}

void http_close(struct http_server *s, const struct http_peer *peer, int fd)
{
	/* TCP has no descriptors in flight, which are what can delay the close of a Unix socket. */
	descriptors_close(peer->tcp ? NULL : s->options.descriptors, peer->uid, fd);
}

static void set_tick(struct http_server *s)
{
	int ms = s->tick_fast ? FAST_TICK_MS : TICK_MS;
	struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};

	event_add(s->tick, &tv);
}

/* Makes sure that the timer runs, at a short interval if @fast. */
void http_server_retick(struct http_server *s, bool fast)
{
	if (event_pending(s->tick, EV_TIMEOUT, NULL) && (s->tick_fast || !fast))
		return;
	s->tick_fast = s->tick_fast || fast;
	set_tick(s);
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
	struct http_server *s = arg;
	struct http_conn *c, *next;
	uint64_t now = clock_ms();

	(void)fd;
	(void)what;
	for (c = s->conns; c; c = next) {
		next = c->next;
		http_conn_tick(c, now);
	}
	s->tick_fast = false;
	for (c = s->conns; c; c = c->next)
		s->tick_fast = s->tick_fast || !c->reading;
	if (s->n_conns)
		set_tick(s);
}

/*
 * Frees the connection that has been idle for longest: of @account, or (NULL) of the user with the
 * most connections, if those are more than @least. False: there is none.
 */
static bool evict_idle(struct http_server *s, const struct account *account, unsigned least)
{
	struct http_conn *victim = NULL;

	for (struct http_conn *c = s->conns; c; c = c->next) {
		unsigned has = c->account->connections,
			 most = victim ? victim->account->connections : 0;

		if (!http_conn_idle(c) || !c->admitted ||
		    (account ? c->account != account : has <= least))
			continue;
		if (!victim || has > most || (has == most && c->since < victim->since))
			victim = c;
	}
	if (victim)
		http_conn_free(victim);
	return victim;
}

static void pause_accepting(struct http_server *s, bool only_tcp, unsigned ms)
{
	struct timeval tv = {.tv_usec = ms * 1000};

	for (unsigned i = 0; i < s->n_listeners; i++)
		if (!only_tcp || s->is_tcp[i])
			event_del(s->listeners[i]);
	event_add(s->resume, &tv);
}

static void on_resume(evutil_socket_t fd, short what, void *arg)
{
	struct http_server *s = arg;

	(void)fd;
	(void)what;
	for (unsigned i = 0; !s->draining && i < s->n_listeners; i++)
		if (s->is_tcp[i] || !http_storm_is_active(s->storm))
			event_add(s->listeners[i], NULL);
}

/* Number of open connections, and of those that are not closed yet. */
static unsigned count_all(const struct http_server *s)
{
	return s->n_conns + descriptors_connections(s->options.descriptors);
}

/* Whether accepting must wait for connections to be closed. Any thread. */
static bool has_to_wait(void *arg)
{
	const struct http_server *s = arg;
	unsigned max = s->options.max_connections;

	return descriptors_connections(s->options.descriptors) && count_all(s) >= max + max / 4;
}

/*
 * Whether a new connection is allowed, after closing an idle one if necessary. TCP has its own
 * limits (http_tcp.c).
 */
static bool find_place(struct http_server *s, const struct http_conn *c)
{
	unsigned max = s->options.max_connections, kept = max / 16;
	unsigned all = s->n_admitted + descriptors_connections(s->options.descriptors);
	unsigned own =
		c->account->connections + descriptors_closing(s->options.descriptors, c->peer.uid);
	unsigned left = all < max - kept ? max - kept - all : 0;

	if (c->peer.tcp ? left : own < 3 * left)
		return true;
	if (!c->peer.tcp && all < max && s->callbacks.is_admin &&
	    s->callbacks.is_admin(s->callbacks.arg, c))
		return true;
	/* Searching for an idle one takes loop time, of which the user has none left. */
	if (c->waits)
		return false;
	if (!c->peer.tcp && evict_idle(s, c->account, 0))
		return true;
	return !left && evict_idle(s, NULL, c->peer.tcp ? 0 : own);
}

static bool is_tcp(const struct http_server *s, int listener)
{
	for (unsigned i = 0; i < s->n_listeners; i++)
		if (event_get_fd(s->listeners[i]) == listener)
			return s->is_tcp[i];
	return false;
}

static void refuse_connection(struct http_server *s, struct http_conn *c)
{
	char message[192] = "too many connections";

	/* Unauthenticated peers get no numbers. */
	if (!c->peer.tcp)
		snprintf(
			message, sizeof(message),
			"too many connections: the user has %u; the limit is %u for all users, and "
			"three times what is left for one of them",
			c->account->connections, s->options.max_connections);
	http_conn_refuse(c, 503, message);
}

/* Counts a new connection as admitted, or refuses it. May free @c. */
static void admit(struct http_server *s, struct http_conn *c)
{
	unsigned max = s->options.max_connections;

	c->admitted = find_place(s, c);
	c->account->connections += c->admitted;
	s->n_admitted += c->admitted;
	/*
	 * No slot is free and the user has no loop time left for an answer; or too many refused
	 * connections are open, since their clients do not read the answers. Half of that room is
	 * for connections being closed, so that not all have to wait.
	 */
	if (!c->admitted && (c->waits || count_all(s) > max + (max + 7) / 8)) {
		c->account->surplus++;
		http_conn_free(c);
	} else if (!c->admitted) {
		refuse_connection(s, c);
	}
}

/* ---- storms ---------------------------------------------------------------------------------- */

/* Makes the thread of http_storm.h accept; the loop has just closed a connection of that user. */
static void begin_storm(struct http_server *s, user_id uid)
{
	int listeners[HTTP_MAX_LISTENERS];
	unsigned n = 0;

	for (unsigned i = 0; i < s->n_listeners; i++)
		if (!s->is_tcp[i])
			listeners[n++] = event_get_fd(s->listeners[i]);
	if (s->draining)
		return;
	http_storm_block(s->storm, uid, listeners, n);
	for (unsigned i = 0; i < s->n_listeners && http_storm_is_active(s->storm); i++)
		if (!s->is_tcp[i])
			event_del(s->listeners[i]);
}

static void on_storm_closed(void *arg, user_id uid, unsigned n)
{
	struct http_server *s = arg;
	struct account *a = account_get(s->options.budget, uid, "");

	if (a)
		a->surplus += n;
	account_unref(a);
}

static void on_storm_over(void *arg)
{
	on_resume(-1, 0, arg);
}

/*
 * Whether there is no slot for a connection of a Unix socket, and the user has no loop time left:
 * then it is closed immediately, without allocating anything for it.
 */
static bool is_surplus(struct http_server *s, int fd, const struct http_peer *peer)
{
	struct account *a = account_get(s->options.budget, peer->uid, "");
	const struct http_conn c = {
		.server = s, .fd = fd, .peer = *peer, .account = a, .waits = true};
	bool surplus = a && !http_turn_has_time(s, a) && !find_place(s, &c);

	if (surplus) {
		a->surplus++;
		http_turn_of(s, a);
		http_close(s, peer, fd);
		http_turn_end(s);
		begin_storm(s, peer->uid);
	}
	account_unref(a);
	return surplus;
}

/* Creates a connection for an accepted socket, or closes it. */
static void take(struct http_server *s, int fd, const struct http_peer *peer)
{
	struct http_conn *c;

	if (!peer->tcp && is_surplus(s, fd, peer))
		return;
	c = http_conn_new(s, fd, peer);
	if (!c)
		return;
	http_turn_of(s, c->account);
	admit(s, c);
	http_turn_end(s);
}

static void on_storm_take(void *arg, int fd, const struct http_peer *peer)
{
	struct http_server *s = arg;

	if (s->draining) {
		http_close(s, peer, fd);
		return;
	}
	http_turn_begin(s, NULL);
	take(s, fd, peer);
}

static void on_accept(evutil_socket_t listener, short what, void *arg)
{
	struct http_server *s = arg;
	unsigned wait;
	bool tcp = is_tcp(s, listener);
	int fd = -1;

	(void)what;
	for (unsigned i = 0; i < ACCEPT_BATCH; i++) {
		struct sockaddr_storage address = {0};
		socklen_t len = sizeof(address);
		struct http_peer peer;

		if (has_to_wait(s)) {
			pause_accepting(s, false, PAUSE_MS);
			return;
		}
		wait = tcp ? http_tcp_wait_ms(s) : 0;
		if (wait) {
			pause_accepting(s, true, wait);
			return;
		}
		http_turn_begin(s, NULL);
		fd = accept4(listener, (struct sockaddr *)&address, &len,
			     SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0)
			break;
		if (address.ss_family == AF_UNIX)
			http_storm_peer(fd, &peer);
		else
			http_tcp_accepted(s, fd, &address, &peer);
		take(s, fd, &peer);
		if (!tcp && http_storm_is_active(s->storm))
			return;
	}
	if (fd < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
		log_warning("cannot accept connections: %s", strerrordesc_np(errno));
		if (errno != EMFILE || !evict_idle(s, NULL, 0))
			pause_accepting(s, false, PAUSE_MS);
	}
}

int http_server_new(struct event_base *base, const struct http_options *options,
		    const struct http_callbacks *callbacks, struct http_server **ret)
{
	struct http_server *s = calloc(1, sizeof(*s));
	const struct http_storm_options storm = {
		.base = base,
		.descriptors = options->descriptors,
		.has_to_wait = has_to_wait,
		.take = on_storm_take,
		.closed = on_storm_closed,
		.over = on_storm_over,
		.arg = s,
	};

	if (!s)
		return -ENOMEM;
	s->base = base;
	s->options = *options;
	s->callbacks = *callbacks;
	s->tick = evtimer_new(base, on_tick, s);
	s->resume = evtimer_new(base, on_resume, s);
	s->next_turn = evtimer_new(base, http_turn_next, s);
	s->schedstat = -1;
	TAILQ_INIT(&s->turns);
	if (!s->tick || !s->resume || !s->next_turn || http_storm_new(&storm, &s->storm)) {
		http_server_free(s);
		return -ENOMEM;
	}
	*ret = s;
	return 0;
}

void http_server_free(struct http_server *s)
{
	if (!s)
		return;
	while (s->conns)
		http_conn_free(s->conns);
	http_storm_free(s->storm);
	for (unsigned i = 0; i < s->n_listeners; i++)
		event_free(s->listeners[i]);
	if (s->tick)
		event_free(s->tick);
	if (s->resume)
		event_free(s->resume);
	if (s->next_turn)
		event_free(s->next_turn);
	if (s->schedstat >= 0)
		close(s->schedstat);
	free(s);
}

int http_server_listen(struct http_server *s, int fd)
{
	struct sockaddr_storage address = {0};
	socklen_t len = sizeof(address);
	struct event *e;

	if (s->n_listeners == HTTP_MAX_LISTENERS)
		return -ENOSPC;
	e = event_new(s->base, fd, EV_READ | EV_PERSIST, on_accept, s);
	if (!e)
		return -ENOMEM;
	if (getsockname(fd, (struct sockaddr *)&address, &len))
		address.ss_family = AF_UNIX;
	s->is_tcp[s->n_listeners] = address.ss_family != AF_UNIX;
	s->listeners[s->n_listeners++] = e;
	event_add(e, NULL);
	return 0;
}

void http_server_drain(struct http_server *s)
{
	struct http_conn *c, *next;

	s->draining = true;
	http_storm_end(s->storm);
	for (unsigned i = 0; i < s->n_listeners; i++)
		event_del(s->listeners[i]);
	for (c = s->conns; c; c = next) {
		next = c->next;
		if (http_conn_between(c))
			http_conn_free(c);
	}
}

unsigned http_server_connections(const struct http_server *s)
{
	return s->n_conns;
}
