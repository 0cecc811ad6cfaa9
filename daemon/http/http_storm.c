// SPDX-License-Identifier: MIT
#include "http_storm.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>

#include "clock.h"
#include "descriptors.h"
#include "listen.h"

#define HANDED	 64  /* accepted connections that the loop has not taken yet */
#define BATCH	 64  /* accepted at a time */
#define PAUSE_MS 100 /* when no descriptors are free, or too many are waiting to be closed */

struct handed {
	int fd;
	struct http_peer peer;
};

struct blocked {
	user_id uid;
	uint64_t until_ms;
	unsigned closed; /* not reported yet */
};

struct http_storm {
	struct http_storm_options options;
	struct event *event;
	int wake_fd; /* wakes the thread */
	int loop_fd; /* wakes the loop for accepted connections, or at the end */
	pthread_t thread;
	bool started;	/* the thread exists; used by the loop only */
	bool is_active; /* likewise */
	unsigned turn;	/* the listener to start with; used by the thread only */

	/* Held while the thread accepts; the loop takes it only to start and to stop. */
	pthread_mutex_t accepting;
	int listeners[STORM_LISTENERS];
	unsigned n_listeners;

	/* Held briefly: neither side handles connections while it holds it. */
	pthread_mutex_t lock;
	/* Under lock. */
	bool active, quiet, stops;
	struct handed handed[HANDED];
	unsigned n_handed;
	struct blocked blocked[STORM_USERS];
	unsigned n_blocked;
	uint64_t last_ms; /* time of the last connection of a blocked user */
};

void http_storm_peer(int fd, struct http_peer *ret)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	*ret = (struct http_peer){.uid = USER_UNKNOWN, .gid = (gid_t)-1};
	if (!getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) && len == sizeof(cred) &&
	    cred.uid != (uid_t)-1)
		*ret = (struct http_peer){.uid = cred.uid, .gid = cred.gid, .pid = cred.pid};
}

static void signal_fd(int fd)
{
	const uint64_t one = 1;

	while (write(fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

static void drain_fd(int fd)
{
	uint64_t count;

	while (read(fd, &count, sizeof(count)) < 0 && errno == EINTR)
		;
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* The user's entry, if it is blocked now. */
static struct blocked *find_blocked(struct http_storm *s, user_id uid, uint64_t now_ms)
{
	for (unsigned i = 0; i < s->n_blocked; i++) {
		if (s->blocked[i].uid == uid && now_ms < s->blocked[i].until_ms)
			return &s->blocked[i];
	}
	return NULL;
}

/*
 * Accepts up to @most connections, beginning with a different listener each time, and returns their
 * number. *ret_failed: accept4() has failed.
 */
static unsigned accept_some(struct http_storm *s, struct handed *ret, unsigned most,
			    bool *ret_failed)
{
	unsigned n = 0;

	*ret_failed = false;
	pthread_mutex_lock(&s->accepting);
	s->turn++;
	for (unsigned i = 0; i < s->n_listeners && n < most && !*ret_failed; i++) {
		int listener = s->listeners[(s->turn + i) % s->n_listeners], fd = 0;

		while (n < most && fd >= 0) {
			fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
			if (fd >= 0)
				ret[n++].fd = fd;
		}
		*ret_failed = fd < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED;
	}
	pthread_mutex_unlock(&s->accepting);
	for (unsigned i = 0; i < n; i++)
		http_storm_peer(ret[i].fd, &ret[i].peer);
	return n;
}

/*
 * The lock is held. Passes connections to the loop, except those of blocked users: these are moved
 * to the front of @fresh, for the caller to close. Returns their number.
 */
static unsigned pass_on(struct http_storm *s, struct handed *fresh, unsigned n)
{
	uint64_t now = clock_ms();
	unsigned n_surplus = 0;

	for (unsigned i = 0; i < n; i++) {
		struct blocked *user = find_blocked(s, fresh[i].peer.uid, now);

		if (user) {
			user->closed++;
			s->last_ms = now;
			fresh[n_surplus++] = fresh[i];
		} else {
			s->handed[s->n_handed++] = fresh[i];
		}
	}
	return n_surplus;
}

/*
 * Accepts pending connections. Returns how long to wait then, in milliseconds; -1: until it is
 * woken.
 */
static int work(struct http_storm *s)
{
	struct handed fresh[BATCH];
	bool has_to_wait = s->options.has_to_wait(s->options.arg), failed, active, full, signal;
	unsigned n, n_surplus;

	pthread_mutex_lock(&s->lock);
	/* Only this thread adds entries. */
	n = s->active && !has_to_wait ? HANDED - s->n_handed : 0;
	pthread_mutex_unlock(&s->lock);
	n = accept_some(s, fresh, n < BATCH ? n : BATCH, &failed);
	pthread_mutex_lock(&s->lock);
	n_surplus = pass_on(s, fresh, n);
	if (s->active && clock_ms() - s->last_ms >= STORM_QUIET_MS) {
		s->active = false;
		s->quiet = true;
	}
	signal = s->n_handed || s->quiet;
	active = s->active;
	full = s->n_handed == HANDED;
	pthread_mutex_unlock(&s->lock);
	if (signal)
		signal_fd(s->loop_fd);
	for (unsigned i = 0; i < n_surplus; i++)
		descriptors_close(s->options.descriptors, fresh[i].peer.uid, fresh[i].fd);
	if (!active)
		return -1;
	if (failed || has_to_wait)
		return PAUSE_MS;
	return full ? 1 : 0;
}

static void *run(void *arg)
{
	struct pollfd fds[1 + STORM_LISTENERS] = {{.events = POLLIN}};
	struct http_storm *s = arg;

	pthread_setname_np(pthread_self(), "txda-accept");
	for (;;) {
		unsigned n = 1;
		bool stops;
		int wait = work(s);

		pthread_mutex_lock(&s->lock);
		stops = s->stops;
		pthread_mutex_unlock(&s->lock);
		fds[0].fd = s->wake_fd;
		/*
		 * Not while it pauses. A listener that is closed meanwhile causes at most one
		 * spurious wake-up.
		 */
		pthread_mutex_lock(&s->accepting);
		for (unsigned i = 0; !wait && i < s->n_listeners; i++)
			fds[n++] = (struct pollfd){.fd = s->listeners[i], .events = POLLIN};
		pthread_mutex_unlock(&s->accepting);
		if (stops)
			return NULL;
		poll(fds, n, wait ? wait : STORM_QUIET_MS);
		if (fds[0].revents)
			drain_fd(s->wake_fd);
	}
}

/* ---- the loop -------------------------------------------------------------------------------- */

static void close_listeners(struct http_storm *s)
{
	pthread_mutex_lock(&s->accepting);
	while (s->n_listeners) {
		int copy = s->listeners[--s->n_listeners];

		listen(copy, LISTEN_BACKLOG);
		close(copy);
	}
	pthread_mutex_unlock(&s->accepting);
}

/* Reports how many connections were closed. */
static void report(struct http_storm *s)
{
	struct blocked blocked[STORM_USERS];
	unsigned n;

	pthread_mutex_lock(&s->lock);
	n = s->n_blocked;
	memcpy(blocked, s->blocked, sizeof(blocked));
	for (unsigned i = 0; i < n; i++)
		s->blocked[i].closed = 0;
	pthread_mutex_unlock(&s->lock);
	for (unsigned i = 0; i < n; i++)
		if (blocked[i].closed)
			s->options.closed(s->options.arg, blocked[i].uid, blocked[i].closed);
}

static void on_signal(evutil_socket_t fd, short what, void *arg)
{
	struct http_storm *s = arg;
	struct handed handed[HANDED];
	bool quiet;
	unsigned n;

	(void)what;
	drain_fd(fd);
	pthread_mutex_lock(&s->lock);
	n = s->n_handed;
	memcpy(handed, s->handed, n * sizeof(handed[0]));
	s->n_handed = 0;
	/* A user may have been blocked since. */
	quiet = s->quiet && !s->active;
	s->quiet = false;
	pthread_mutex_unlock(&s->lock);
	report(s);
	for (unsigned i = 0; i < n; i++)
		s->options.take(s->options.arg, handed[i].fd, &handed[i].peer);
	if (!quiet || !s->is_active)
		return;
	http_storm_end(s);
	s->options.over(s->options.arg);
}

int http_storm_new(const struct http_storm_options *options, struct http_storm **ret)
{
	struct http_storm *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->options = *options;
	pthread_mutex_init(&s->accepting, NULL);
	pthread_mutex_init(&s->lock, NULL);
	s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	s->loop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	s->event = event_new(options->base, s->loop_fd, EV_READ | EV_PERSIST, on_signal, s);
	if (s->wake_fd < 0 || s->loop_fd < 0 || !s->event || event_add(s->event, NULL)) {
		http_storm_free(s);
		return -ENOMEM;
	}
	*ret = s;
	return 0;
}

void http_storm_free(struct http_storm *s)
{
	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	s->stops = true;
	s->active = false;
	pthread_mutex_unlock(&s->lock);
	if (s->started) {
		signal_fd(s->wake_fd);
		pthread_join(s->thread, NULL);
	}
	while (s->n_handed) {
		const struct handed *h = &s->handed[--s->n_handed];

		descriptors_close(s->options.descriptors, h->peer.uid, h->fd);
	}
	close_listeners(s);
	if (s->event)
		event_free(s->event);
	if (s->wake_fd >= 0)
		close(s->wake_fd);
	if (s->loop_fd >= 0)
		close(s->loop_fd);
	pthread_mutex_destroy(&s->accepting);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

/* The lock is held. The entry of that user, or an unused one; NULL: there is none. */
static struct blocked *entry_for(struct http_storm *s, user_id uid, uint64_t now_ms)
{
	struct blocked *old = NULL;

	for (unsigned i = 0; i < s->n_blocked; i++) {
		if (s->blocked[i].uid == uid)
			return &s->blocked[i];
		if (now_ms >= s->blocked[i].until_ms && !s->blocked[i].closed)
			old = &s->blocked[i];
	}
	return s->n_blocked < STORM_USERS ? &s->blocked[s->n_blocked++] : old;
}

/* Signals are handled by the loop. */
static bool start_thread(struct http_storm *s)
{
	sigset_t all, before;
	int error;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&s->thread, NULL, run, s);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return !error;
}

/* Duplicates the listeners, since the caller may close its own at any time. */
static void begin(struct http_storm *s, const int *listeners, unsigned n)
{
	pthread_mutex_lock(&s->accepting);
	for (unsigned i = 0; i < n && i < STORM_LISTENERS; i++) {
		int copy = fcntl(listeners[i], F_DUPFD_CLOEXEC, 0);

		if (copy < 0)
			break;
		s->listeners[s->n_listeners++] = copy;
		/*
		 * A short backlog, so that clients do not wait behind hundreds of connections that
		 * are closed at once.
		 */
		listen(listeners[i], STORM_BACKLOG);
	}
	s->is_active = s->n_listeners == n;
	pthread_mutex_unlock(&s->accepting);
	s->is_active = s->is_active && (s->started || start_thread(s));
	s->started = s->started || s->is_active;
	if (!s->is_active)
		close_listeners(s);
}

void http_storm_block(struct http_storm *s, user_id uid, const int *listeners, unsigned n)
{
	uint64_t now = clock_ms();
	struct blocked *entry;

	if (!s->is_active)
		begin(s, listeners, n);
	pthread_mutex_lock(&s->lock);
	entry = s->is_active ? entry_for(s, uid, now) : NULL;
	if (entry) {
		unsigned closed = entry->uid == uid ? entry->closed : 0;

		*entry = (struct blocked){uid, now + STORM_BLOCK_MS, closed};
	}
	s->last_ms = now;
	s->active = s->is_active;
	pthread_mutex_unlock(&s->lock);
	if (s->is_active)
		signal_fd(s->wake_fd);
}

bool http_storm_is_active(const struct http_storm *s)
{
	return s->is_active;
}

void http_storm_end(struct http_storm *s)
{
	pthread_mutex_lock(&s->lock);
	s->active = s->quiet = false;
	pthread_mutex_unlock(&s->lock);
	close_listeners(s);
	s->is_active = false;
}
