// SPDX-License-Identifier: MIT
/* Each user's share of the event loop's time (http.h has the rule). */
#include "http_internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include <event2/event.h>

#include "clock.h"

#define TURN_MS	 1     /* interval at which waiting connections are served */
#define TURN_MAX 32    /* connections served per iteration of the loop */
#define ALONE_MS 10000 /* a user alone for this long has all of the loop */
#define LOOK_NS	 1000000

/* The loop's processor time. */
static uint64_t spent_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/*
 * The loop's running time, without the time in which it waited for a processor: on a busy machine
 * an eighth of the total time could be all that the loop gets.
 */
static uint64_t loop_ns(struct http_server *s)
{
	unsigned long long ran, waited;
	uint64_t now = clock_ns();
	char text[96];
	ssize_t n;

	if (now - s->looked_ns < LOOK_NS)
		return now - s->delayed_ns;
	s->looked_ns = now;
	if (s->schedstat < 0)
		s->schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
	n = pread(s->schedstat, text, sizeof(text) - 1, 0);
	text[n > 0 ? n : 0] = '\0';
	if (sscanf(text, "%llu %llu", &ran, &waited) == 2 && waited < now)
		s->delayed_ns = waited;
	return now - s->delayed_ns;
}

void http_turn_begin(struct http_server *s, struct account *a)
{
	s->turn_since_ns = spent_ns();
	http_turn_of(s, a);
}

void http_turn_of(struct http_server *s, struct account *a)
{
	s->turn_of = account_ref(a);
	if (!a)
		return;
	if (a->uid != s->last_user) {
		s->last_user = a->uid;
		s->other_ms = s->last_ms;
	}
	s->last_ms = clock_ms();
}

void http_turn_charge(struct http_server *s)
{
	uint64_t now = spent_ns();

	account_charge_loop(s->turn_of, loop_ns(s), now - s->turn_since_ns);
	s->turn_since_ns = now;
}

void http_turn_end(struct http_server *s)
{
	http_turn_charge(s);
	account_unref(s->turn_of);
	s->turn_of = NULL;
}

/* A user who has been the only one for some time has all of the loop's time. */
bool http_turn_has_time(struct http_server *s, const struct account *a)
{
	return account_has_loop(a, loop_ns(s)) ||
	       (a->uid == s->last_user && clock_ms() - s->other_ms > ALONE_MS);
}

bool http_turn_over(const struct http_conn *c)
{
	return !http_turn_has_time(c->server, c->account);
}

void http_turn_wait(struct http_conn *c)
{
	const struct timeval tv = {.tv_usec = TURN_MS * 1000};
	struct account *a = c->account;

	if (c->waits)
		return;
	c->waits = true;
	c->reading = false;
	event_del(c->read_event);
	if (TAILQ_EMPTY(&a->waiting))
		TAILQ_INSERT_TAIL(&c->server->turns, a, turn);
	TAILQ_INSERT_TAIL(&a->waiting, c, wait_link);
	a->waits++;
	if (!event_pending(c->server->next_turn, EV_TIMEOUT, NULL))
		event_add(c->server->next_turn, &tv);
}

void http_turn_leave(struct http_conn *c)
{
	struct account *a = c->account;

	if (!c->waits)
		return;
	c->waits = false;
	TAILQ_REMOVE(&a->waiting, c, wait_link);
	if (TAILQ_EMPTY(&a->waiting))
		TAILQ_REMOVE(&c->server->turns, a, turn);
}

/* The connection that has waited for longest, of the user whose turn it is; NULL: none has time. */
static struct http_conn *next_waiting(struct http_server *s)
{
	struct account *a;

	TAILQ_FOREACH(a, &s->turns, turn) {
		if (!http_turn_has_time(s, a))
			continue;
		TAILQ_REMOVE(&s->turns, a, turn);
		TAILQ_INSERT_TAIL(&s->turns, a, turn);
		return TAILQ_FIRST(&a->waiting);
	}
	return NULL;
}

void http_turn_next(evutil_socket_t fd, short what, void *arg)
{
	struct http_server *s = arg;
	const struct timeval tv = {.tv_usec = TURN_MS * 1000};
	struct http_conn *c;

	(void)fd;
	(void)what;
	for (unsigned i = 0; i < TURN_MAX && (c = next_waiting(s)); i++) {
		http_turn_leave(c);
		http_conn_resume(c);
	}
	if (!TAILQ_EMPTY(&s->turns))
		event_add(s->next_turn, &tv);
}
