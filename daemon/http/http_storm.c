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

#define HANDED	 64  /* connections on their way to the loop */
#define BATCH	 64  /* accepted under one lock */
#define PAUSE_MS 100 /* when no descriptors are free, or too many wait to be closed */

struct handed {
	int fd;
	struct http_peer peer;
};

struct named {
	uid_t uid;
	uint64_t until_ms;
	unsigned closed; /* not reported yet */
};

struct http_storm {
	struct http_storm_options options;
	struct event *event;
	int wake_fd; /* tells the thread that something has changed */
	int loop_fd; /* tells the loop that there are connections, or that it is quiet */
	pthread_t thread;
	bool started; /* the thread; the loop's */
	bool goes_on; /* likewise */
	int listeners[STORM_LISTENERS];
	unsigned n_listeners;

	pthread_mutex_t lock;
	/* Under lock. */
	bool active, quiet, stops;
	struct handed handed[HANDED];
	unsigned n_handed;
	struct named named[STORM_USERS];
	unsigned n_named;
	uint64_t last_ms; /* when the last surplus connection came */
};

void http_storm_peer(int fd, struct http_peer *ret)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	*ret = (struct http_peer){.uid = (uid_t)-1, .gid = (gid_t)-1};
	if (!getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) && len == sizeof(cred))
		*ret = (struct http_peer){.uid = cred.uid, .gid = cred.gid, .pid = cred.pid};
	/* These ids belong to the users of keys; no process has them as its uid. */
	if (ret->uid >= IDENTITY_OWN_UIDS)
		ret->uid = (uid_t)-1;
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

/* The user's entry, if it is named now. */
static struct named *find_named(struct http_storm *s, uid_t uid, uint64_t now_ms)
{
	for (unsigned i = 0; i < s->n_named; i++) {
		if (s->named[i].uid == uid && now_ms < s->named[i].until_ms)
			return &s->named[i];
	}
	return NULL;
}

/* The lock is held. False: nothing waits, or accepting has failed (*ret_failed). */
static bool accept_one(struct http_storm *s, int listener, bool *ret_failed)
{
	int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	struct named *user;
	struct http_peer peer;

	*ret_failed = fd < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED;
	if (fd < 0)
		return false;
	http_storm_peer(fd, &peer);
	user = find_named(s, peer.uid, clock_ms());
	if (!user) {
		s->handed[s->n_handed++] = (struct handed){fd, peer};
		return true;
	}
	s->last_ms = clock_ms();
	user->closed++;
	descriptors_close(s->options.descriptors, peer.uid, fd);
	return true;
}

/* Accepts what waits; returns how long to wait then, in milliseconds; -1: until it is woken. */
static int work(struct http_storm *s)
{
	bool failed = false;
	int wait = STORM_QUIET_MS;

	pthread_mutex_lock(&s->lock);
	for (unsigned i = 0; s->active && i < s->n_listeners && !failed; i++) {
		for (unsigned k = 0; k < BATCH && s->n_handed < HANDED; k++) {
			if (!accept_one(s, s->listeners[i], &failed))
				break;
		}
	}
	if (s->active && clock_ms() - s->last_ms >= STORM_QUIET_MS) {
		s->active = false;
		s->quiet = true;
	}
	if (s->n_handed || s->quiet)
		signal_fd(s->loop_fd);
	if (!s->active)
		wait = -1;
	else if (failed ||
		 (s->options.descriptors &&
		  descriptors_connections(s->options.descriptors) > s->options.max_closing))
		wait = PAUSE_MS;
	else if (s->n_handed == HANDED)
		wait = 1;
	else
		wait = 0;
	pthread_mutex_unlock(&s->lock);
	return wait;
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
		fds[0].fd = s->wake_fd;
		/* Not while it pauses. */
		for (unsigned i = 0; s->active && !wait && i < s->n_listeners; i++)
			fds[n++] = (struct pollfd){.fd = s->listeners[i], .events = POLLIN};
		pthread_mutex_unlock(&s->lock);
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
	while (s->n_listeners) {
		int copy = s->listeners[--s->n_listeners];

		listen(copy, LISTEN_BACKLOG);
		close(copy);
	}
}

/* Tells how many connections were closed. */
static void report(struct http_storm *s)
{
	struct named named[STORM_USERS];
	unsigned n;

	pthread_mutex_lock(&s->lock);
	n = s->n_named;
	memcpy(named, s->named, sizeof(named));
	for (unsigned i = 0; i < n; i++)
		s->named[i].closed = 0;
	pthread_mutex_unlock(&s->lock);
	for (unsigned i = 0; i < n; i++)
		if (named[i].closed)
			s->options.closed(s->options.arg, named[i].uid, named[i].closed);
}

static void on_news(evutil_socket_t fd, short what, void *arg)
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
	/* It may have been named anew since. */
	quiet = s->quiet && !s->active;
	s->quiet = false;
	pthread_mutex_unlock(&s->lock);
	report(s);
	for (unsigned i = 0; i < n; i++)
		s->options.take(s->options.arg, handed[i].fd, &handed[i].peer);
	if (!quiet || !s->goes_on)
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
	pthread_mutex_init(&s->lock, NULL);
	s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	s->loop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	s->event = event_new(options->base, s->loop_fd, EV_READ | EV_PERSIST, on_news, s);
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
	while (s->n_handed)
		close(s->handed[--s->n_handed].fd);
	close_listeners(s);
	if (s->event)
		event_free(s->event);
	if (s->wake_fd >= 0)
		close(s->wake_fd);
	if (s->loop_fd >= 0)
		close(s->loop_fd);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

/* The lock is held. The entry of that user, or one that is not used. NULL: all are. */
static struct named *entry_for(struct http_storm *s, uid_t uid, uint64_t now_ms)
{
	struct named *old = NULL;

	for (unsigned i = 0; i < s->n_named; i++) {
		if (s->named[i].uid == uid)
			return &s->named[i];
		if (now_ms >= s->named[i].until_ms && !s->named[i].closed)
			old = &s->named[i];
	}
	return s->n_named < STORM_USERS ? &s->named[s->n_named++] : old;
}

/* Signals are for the loop. */
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

/* Takes copies of the listeners: the caller may close its own at any time. */
static void begin(struct http_storm *s, const int *listeners, unsigned n)
{
	for (unsigned i = 0; i < n && i < STORM_LISTENERS; i++) {
		int copy = fcntl(listeners[i], F_DUPFD_CLOEXEC, 0);

		if (copy >= 0)
			s->listeners[s->n_listeners++] = copy;
		/* A short queue: nobody waits behind hundreds that are closed at once. */
		listen(listeners[i], STORM_BACKLOG);
	}
	s->goes_on = s->n_listeners == n && (s->started || start_thread(s));
	s->started = s->started || s->goes_on;
	if (!s->goes_on)
		close_listeners(s);
}

void http_storm_name(struct http_storm *s, uid_t uid, const int *listeners, unsigned n)
{
	uint64_t now = clock_ms();
	struct named *entry;

	pthread_mutex_lock(&s->lock);
	if (!s->goes_on)
		begin(s, listeners, n);
	entry = s->goes_on ? entry_for(s, uid, now) : NULL;
	if (entry) {
		unsigned closed = entry->uid == uid ? entry->closed : 0;

		*entry = (struct named){uid, now + STORM_NAMED_MS, closed};
	}
	s->last_ms = now;
	s->active = s->goes_on;
	pthread_mutex_unlock(&s->lock);
	if (s->goes_on)
		signal_fd(s->wake_fd);
}

bool http_storm_goes_on(const struct http_storm *s)
{
	return s->goes_on;
}

void http_storm_end(struct http_storm *s)
{
	pthread_mutex_lock(&s->lock);
	s->active = s->quiet = false;
	close_listeners(s);
	pthread_mutex_unlock(&s->lock);
	s->goes_on = false;
}
