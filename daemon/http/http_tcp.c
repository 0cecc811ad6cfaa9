// SPDX-License-Identifier: MIT
/* Limits on connections over TCP, by user (http.h has the rules). */
#include "http.h"
#include "http_internal.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "clock.h"
#include "listen_tcp.h"

#define GRACE_MS 20 /* time for a connection's head before others may displace it */

_Static_assert(HTTP_ADDRESS == LISTEN_TCP_TEXT, "an address has room");

static unsigned max_unknown(const struct http_server *s)
{
	unsigned n = s->options.max_connections / 8;

	return n ? n : 1;
}

/* Of all authenticated users together. */
static unsigned max_known(const struct http_server *s)
{
	unsigned half = s->options.max_connections / 2, unknown = max_unknown(s);

	return half > unknown ? half - unknown : 1;
}

static bool is_unknown(const struct http_conn *c)
{
	return c->peer.tcp && !c->peer.key;
}

unsigned http_server_unknown(const struct http_server *s)
{
	unsigned n = 0;

	for (const struct http_conn *c = s->conns; c; c = c->next)
		n += is_unknown(c);
	return n;
}

uint64_t http_server_evicted(const struct http_server *s)
{
	return s->evicted;
}

static struct http_conn *oldest_unknown(const struct http_server *s)
{
	struct http_conn *oldest = NULL;

	/* New ones are inserted in front. */
	for (struct http_conn *c = s->conns; c; c = c->next)
		oldest = is_unknown(c) ? c : oldest;
	return oldest;
}

/*
 * A client that authenticates sends its head at once, often before the connection is accepted. It
 * is given a moment nevertheless, or in a flood the next thousand connections would displace it
 * first.
 */
unsigned http_tcp_wait_ms(const struct http_server *s)
{
	uint64_t age;

	if (http_server_unknown(s) < max_unknown(s))
		return 0;
	age = clock_ms() - oldest_unknown(s)->since;
	return age < GRACE_MS ? (unsigned)(GRACE_MS - age) : 0;
}

/* Closes the oldest unauthenticated connections until there is room for one. */
static void make_room_for_unknown(struct http_server *s)
{
	for (unsigned n = http_server_unknown(s); n >= max_unknown(s); n--) {
		http_conn_free(oldest_unknown(s));
		s->evicted++;
	}
}

static void set_option(int fd, int level, int name, int value)
{
	setsockopt(fd, level, name, &value, sizeof(value));
}

void http_tcp_accepted(struct http_server *s, int fd, const struct sockaddr_storage *address,
		       struct http_peer *ret)
{
	*ret = (struct http_peer){.uid = USER_UNKNOWN, .gid = (gid_t)-1, .tcp = true};
	listen_tcp_format(address, ret->address, sizeof(ret->address));
	/*
	 * TCP_NODELAY: tokens are sent as they come. Keepalive: a vanished host is noticed while
	 * its answer is generated.
	 */
	set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 60);
	set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 15);
	set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 4);
	make_room_for_unknown(s);
}

/*
 * Whether the user may have another connection besides @except; an idle one of his is closed to
 * make room.
 */
static bool find_share(const struct http_conn *except, const struct identity *user,
		       struct http_refusal *refusal)
{
	const struct http_server *s = except->server;
	struct http_conn *idle = NULL;
	unsigned own = 0, known = 0, max = max_known(s);

	for (struct http_conn *c = s->conns; c; c = c->next) {
		if (c == except || !c->peer.key)
			continue;
		known++;
		if (c->peer.uid != user->uid)
			continue;
		own++;
		if (http_conn_idle(c) && (!idle || c->since < idle->since))
			idle = c;
	}
	if (known < max && own < 3 * (max - known))
		return true;
	if (idle) {
		http_conn_free(idle);
		return true;
	}
	refusal->status = 503;
	refusal->headers = "Retry-After: 1\r\n";
	snprintf(refusal->message, sizeof(refusal->message),
		 "user %s has %u connections over TCP, all users %u; the limit is %u, and three "
		 "times what is left for one user",
		 user->name, own, known, max);
	return false;
}

void http_server_drop(struct http_server *s, bool (*stays)(const void *arg, user_id uid),
		      const void *arg)
{
	struct http_conn *c, *next;

	for (c = s->conns; c; c = next) {
		next = c->next;
		if (c->peer.key && !stays(arg, c->peer.uid))
			http_conn_lost(c);
	}
}

/* From now on its memory is charged to the user. */
static bool take_account(struct http_conn *c, const struct identity *key,
			 struct http_refusal *refusal)
{
	if (http_conn_set_account(c, key->uid, key->uid >= IDENTITY_OWN_UIDS ? key->name : ""))
		return true;
	refusal->status = 500;
	snprintf(refusal->message, sizeof(refusal->message), "out of memory");
	return false;
}

bool http_tcp_authorise(struct http_conn *c, const struct http_request *r)
{
	const struct http_callbacks *callbacks = &c->server->callbacks;
	struct http_refusal refusal = {.status = 403};
	struct identity key;

	if (!callbacks->on_head(callbacks->arg, c, r, &key, &refusal) ||
	    ((!c->peer.key || c->peer.uid != key.uid) &&
	     (!find_share(c, &key, &refusal) || !take_account(c, &key, &refusal)))) {
		/* A connection authenticated by another key before loses that identity. */
		c->peer.key = NULL;
		c->peer.uid = USER_UNKNOWN;
		http_conn_refuse_with(c, refusal.status, refusal.headers, refusal.message);
		return false;
	}
	c->key = key;
	c->peer.key = &c->key;
	c->peer.uid = key.uid;
	c->peer.gid = key.gid;
	return true;
}
