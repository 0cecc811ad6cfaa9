// SPDX-License-Identifier: MIT
#include "clock.h"
#include "http.h"
#include "http_internal.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/buffer.h>
#include <event2/event.h>

#define LOOKAHEAD ((size_t)16 << 10) /* bytes read ahead while a request is being answered */
#define LINGER_BYTES                                                                               \
	((size_t)64 << 20)  /* discarded after an error, so that the client sees the answer */
#define LINGER_MS     3000  /* without input */
#define LINGER_MAX_MS 30000 /* in all; LINGER_MS without a valid key, and at the server's end */
#define FLUSH_BYTES   ((size_t)256 << 10) /* per connection and loop iteration, about */

static void conn_account(struct http_conn *c)
{
	uint64_t now = http_parser_memory(c->parser) + evbuffer_get_length(c->in) +
		       evbuffer_get_length(c->out);

	if (now > c->accounted)
		budget_add(c->account, now - c->accounted);
	else
		budget_release(c->account, c->accounted - now);
	c->accounted = now;
}

/* Unlinks the connection and frees it. The owner must have been told. */
void http_conn_free(struct http_conn *c)
{
	struct http_server *s = c->server;

	if (c->prev)
		c->prev->next = c->next;
	else
		s->conns = c->next;
	if (c->next)
		c->next->prev = c->prev;
	s->n_conns--;
	if (!s->n_conns)
		event_del(s->tick);
	if (c->account) {
		http_turn_leave(c);
		budget_release(c->account, c->accounted);
		c->account->connections -= c->admitted;
		account_unref(c->account);
	}
	s->n_admitted -= c->admitted;
	if (c->read_event)
		event_free(c->read_event);
	if (c->write_event)
		event_free(c->write_event);
	if (c->work_event)
		event_free(c->work_event);
	if (c->in)
		evbuffer_free(c->in);
	if (c->out)
		evbuffer_free(c->out);
	http_parser_free(c->parser);
	http_fds_drop(&c->fds, UINT64_MAX);
	http_close(s, &c->peer, c->fd);
	free(c);
}

/* Reports that the answer to the current request is complete, or never will be. */
static void report_answer(struct http_conn *c, int status)
{
	const struct http_callbacks *callbacks = &c->server->callbacks;
	const struct http_answer answer = {
		.status = status,
		.bytes = c->answer_bytes,
		.ms = c->asked ? clock_ms() - c->asked : 0,
		.note = c->note,
	};

	if (callbacks->on_answered)
		callbacks->on_answered(callbacks->arg, c,
				       c->asked ? http_parser_request(c->parser) : NULL, &answer);
	c->asked = 0;
	c->answer_bytes = 0;
	c->note[0] = 0;
}

/* The peer is gone: informs the owner if it has the request, and frees the connection. */
void http_conn_lost(struct http_conn *c)
{
	bool owned = c->state == CONN_BUSY || c->state == CONN_STREAMING;
	void *user = c->user;
	struct http_server *s = c->server;

	if (owned)
		report_answer(c, 499);
	http_conn_free(c);
	if (owned && user)
		s->callbacks.on_gone(s->callbacks.arg, user);
}

static void enter(struct http_conn *c, enum conn_state state)
{
	c->state = state;
	c->since = clock_ms();
}

/*
 * Writes what the socket accepts, up to a limit, so that a fast reader does not starve other
 * connections. False when the peer is gone (nothing is freed).
 */
static bool flush(struct http_conn *c)
{
	size_t written = 0;

	while (evbuffer_get_length(c->out) && written < FLUSH_BYTES) {
		int n = evbuffer_write(c->out, c->fd);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			break;
		if (n <= 0)
			return false;
		written += (size_t)n;
		c->progress = clock_ms();
	}
	if (evbuffer_get_length(c->out))
		event_add(c->write_event, NULL);
	else
		event_del(c->write_event);
	return true;
}

/*
 * Schedules another loop iteration for this connection; the caller may be deep in the owner's code.
 */
static void wake(struct http_conn *c)
{
	event_active(c->work_event, EV_TIMEOUT, 1);
}

static void send_now(struct http_conn *c)
{
	if (!c->broken && !flush(c))
		c->broken = true;
	if (c->broken) {
		evbuffer_drain(c->out, evbuffer_get_length(c->out));
		wake(c);
	}
	conn_account(c);
}

static void after_answer(struct http_conn *c)
{
	bool close_after = !c->keep_alive || c->server->draining;

	c->user = NULL;
	report_answer(c, c->status);
	http_parser_reset(c->parser);
	enter(c, close_after ? CONN_CLOSING : CONN_READING);
	wake(c);
}

static void put_head(struct http_conn *c, int status, const char *type, const char *headers,
		     const char *framing)
{
	char date[64], time[64] = "";

	http_date(date, sizeof(date));
	if (c->asked)
		snprintf(time, sizeof(time), "Openai-Processing-Ms: %llu\r\n",
			 (unsigned long long)(clock_ms() - c->asked));
	c->status = status;
	evbuffer_add_printf(
		c->out, "HTTP/1.1 %d %s\r\nDate: %s\r\nContent-Type: %s\r\n%s%s%s%s\r\n", status,
		http_reason(status), date, type, headers ? headers : "", time, framing,
		c->keep_alive && !c->server->draining
			? (c->minor ? "" : "Connection: keep-alive\r\n")
			: "Connection: close\r\n");
}

static void put_reply_head(struct http_conn *c, int status, const char *type, const char *headers,
			   size_t len)
{
	char framing[48];

	snprintf(framing, sizeof(framing), "Content-Length: %zu\r\n", len);
	put_head(c, status, type, headers, framing);
	c->answer_bytes = c->head_only ? 0 : len;
}

void http_reply(struct http_conn *c, int status, const char *type, const char *headers,
		const char *body, size_t len)
{
	if (c->state != CONN_BUSY)
		return;
	put_reply_head(c, status, type, headers, len);
	if (!c->head_only)
		evbuffer_add(c->out, body, len);
	after_answer(c);
	send_now(c);
}

void http_reply_buffer(struct http_conn *c, int status, const char *type, const char *headers,
		       struct evbuffer *body)
{
	if (c->state != CONN_BUSY)
		return;
	put_reply_head(c, status, type, headers, evbuffer_get_length(body));
	if (!c->head_only)
		evbuffer_add_buffer(c->out, body);
	after_answer(c);
	send_now(c);
}

void http_stream_begin(struct http_conn *c, int status, const char *type, const char *headers)
{
	if (c->state != CONN_BUSY)
		return;
	c->chunked = c->minor > 0;
	if (!c->chunked)
		c->keep_alive = false;
	put_head(c, status, type, headers, c->chunked ? "Transfer-Encoding: chunked\r\n" : "");
	c->progress = clock_ms();
	enter(c, CONN_STREAMING);
	send_now(c);
}

void http_stream_write(struct http_conn *c, const char *data, size_t len)
{
	if (c->state != CONN_STREAMING || !len)
		return;
	if (!evbuffer_get_length(c->out))
		c->progress = clock_ms();
	c->answer_bytes += len;
	if (c->chunked)
		evbuffer_add_printf(c->out, "%zx\r\n", len);
	evbuffer_add(c->out, data, len);
	if (c->chunked)
		evbuffer_add(c->out, "\r\n", 2);
	send_now(c);
}

void http_stream_end(struct http_conn *c)
{
	if (c->state != CONN_STREAMING)
		return;
	if (c->chunked)
		evbuffer_add(c->out, "0\r\n\r\n", 5);
	after_answer(c);
	send_now(c);
}

bool http_conn_congested(struct http_conn *c)
{
	if (evbuffer_get_length(c->out) > c->server->options.congested_bytes)
		c->congested = true;
	return c->congested;
}

void http_conn_refuse_with(struct http_conn *c, int status, const char *headers,
			   const char *message)
{
	struct http_server *s = c->server;
	char *body = s->callbacks.error_body(s->callbacks.arg, status, message);

	http_fds_drop(&c->fds, UINT64_MAX);
	http_conn_set_note(c, "%s", message);
	c->keep_alive = false;
	if (!c->head_done)
		c->head_only = false;
	enter(c, CONN_BUSY);
	http_reply(c, status, "application/json", headers, body ? body : "",
		   body ? strlen(body) : 0);
	free(body);
	c->linger = true;
}

static void refuse(struct http_conn *c, int status, const char *message)
{
	http_conn_refuse_with(
		c, status, status == 429 || status == 503 ? "Retry-After: 1\r\n" : NULL, message);
}

static void head_complete(struct http_conn *c)
{
	const struct http_request *r = http_parser_request(c->parser);
	char message[160];

	c->minor = r->minor;
	c->head_only = !strcmp(r->method, "HEAD");
	c->head_done = true;
	c->since = clock_ms();
	/* Before a byte of the body is requested or stored. */
	if (c->peer.tcp && !http_tcp_authorise(c, r))
		return;
	if (r->content_length && !budget_fits(c->account, r->content_length)) {
		snprintf(message, sizeof(message),
			 "too much is queued: the body has %llu bytes, %llu are held for the user; "
			 "the share of the limit of %llu has room for %llu",
			 (unsigned long long)r->content_length,
			 (unsigned long long)c->account->held,
			 (unsigned long long)c->server->options.budget->limit,
			 (unsigned long long)budget_room(c->account));
		refuse(c, 429, message);
		return;
	}
	if (r->expect_continue && !evbuffer_get_length(c->in)) {
		evbuffer_add_printf(c->out, "HTTP/1.1 100 Continue\r\n\r\n");
		send_now(c);
	}
}

/* The position in the byte stream up to which it was parsed. */
static uint64_t parsed_bytes(const struct http_conn *c)
{
	return c->fds.received - evbuffer_get_length(c->in);
}

static void request_complete(struct http_conn *c)
{
	const struct http_request *r = http_parser_request(c->parser);
	uint64_t end = parsed_bytes(c);

	c->keep_alive = r->keep_alive;
	enter(c, CONN_BUSY);
	c->congested = false;
	c->asked = clock_ms();
	c->server->callbacks.on_request(c->server->callbacks.arg, c, r);
	http_fds_drop(&c->fds, end);
}

/* The body, as far as it has arrived, is more than the user's share has room for. */
static void refuse_rest(struct http_conn *c)
{
	char message[160];

	snprintf(
		message, sizeof(message),
		"too much is queued: %llu bytes are held for the user, this body included; that is "
		"more than the share of the limit of %llu",
		(unsigned long long)c->account->held,
		(unsigned long long)c->server->options.budget->limit);
	refuse(c, 429, message);
}

/*
 * Feeds the received data to the parser, as long as the connection is between requests or in one.
 */
static void parse(struct http_conn *c)
{
	while (c->state == CONN_READING && !c->waits &&
	       evbuffer_get_length(c->out) <= c->server->options.congested_bytes / 4) {
		struct evbuffer_iovec piece = {.iov_base = (void *)"", .iov_len = 0};
		bool started = http_parser_started(c->parser);
		enum http_parse result;
		size_t used;

		evbuffer_peek(c->in, -1, NULL, &piece, 1);
		if (!piece.iov_len && !c->head_done)
			return;
		result = http_parser_feed(c->parser, piece.iov_base, piece.iov_len, &used);
		evbuffer_drain(c->in, used);
		if (!started && http_parser_started(c->parser))
			c->since = clock_ms();
		conn_account(c);
		switch (result) {
		case HTTP_PARSE_HEAD: head_complete(c); break;
		case HTTP_PARSE_DONE:
			c->head_done = false;
			request_complete(c);
			http_turn_charge(c->server);
			if (http_turn_over(c))
				http_turn_wait(c);
			break;
		case HTTP_PARSE_ERROR:
			refuse(c, http_parser_status(c->parser), http_parser_error(c->parser));
			break;
		case HTTP_PARSE_MORE:
			if (!piece.iov_len)
				return;
			/* A request head is small, and may be a query about exactly this limit. */
			if (c->head_done && !budget_fits(c->account, 0)) {
				refuse_rest(c);
				return;
			}
			break;
		}
	}
}

static bool want_read(const struct http_conn *c)
{
	if (c->half_closed || c->fds.full)
		return false;
	if (c->state == CONN_CLOSING || c->state == CONN_LINGERING)
		return true;
	/* Bytes that cannot be parsed yet: no more of them than the read-ahead limit. */
	return evbuffer_get_length(c->in) < LOOKAHEAD;
}

static void update_reading(struct http_conn *c)
{
	bool want = want_read(c) && !c->waits;

	if (want != c->reading) {
		c->reading = want;
		if (want)
			event_add(c->read_event, NULL);
		else
			event_del(c->read_event);
	}
	http_server_retick(c->server, !want);
}

/*
 * After any event: continues parsing, closes if needed. Must be the last use of @c in a callback
 * from the loop.
 */
static void settle(struct http_conn *c)
{
	if (c->broken) {
		http_conn_lost(c);
		return;
	}
	parse(c);
	if (c->broken) {
		http_conn_lost(c);
		return;
	}
	/*
	 * Nothing in progress, and nothing more will arrive or is wanted. An incomplete request
	 * counts as nothing.
	 */
	if (c->state == CONN_READING && !evbuffer_get_length(c->in) &&
	    !evbuffer_get_length(c->out) &&
	    (c->half_closed || (c->server->draining && !http_parser_started(c->parser)))) {
		http_conn_free(c);
		return;
	}
	if (c->state == CONN_CLOSING && !evbuffer_get_length(c->out)) {
		if (c->half_closed || (!c->linger && !evbuffer_get_length(c->in))) {
			http_conn_free(c);
			return;
		}
		shutdown(c->fd, SHUT_WR);
		enter(c, CONN_LINGERING);
	}
	/* Blank lines do not start a request. */
	if (c->state == CONN_READING && !http_parser_started(c->parser))
		http_fds_drop(&c->fds, parsed_bytes(c));
	update_reading(c);
	conn_account(c);
}

/* Whether the connection waits for its user's turn, from now on or already. */
static bool must_wait(struct http_conn *c)
{
	/* Behind other waiting connections of the user, which came first. */
	if (!c->waits && (!TAILQ_EMPTY(&c->account->waiting) || http_turn_over(c)))
		http_turn_wait(c);
	return c->waits;
}

static void on_work(evutil_socket_t fd, short what, void *arg)
{
	struct http_conn *c = arg;
	struct http_server *s = c->server;

	(void)fd;
	(void)what;
	if (!c->broken && must_wait(c))
		return;
	http_turn_begin(s, c->account);
	settle(c);
	http_turn_end(s);
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
	struct http_conn *c = arg;
	struct http_server *s = c->server;

	(void)fd;
	(void)what;
	http_turn_begin(s, c->account);
	if (!flush(c)) {
		http_conn_lost(c);
		http_turn_end(s);
		return;
	}
	if (c->congested && evbuffer_get_length(c->out) <= s->options.congested_bytes / 4) {
		c->congested = false;
		if (c->state == CONN_STREAMING && c->user)
			s->callbacks.on_drained(s->callbacks.arg, c->user);
	}
	settle(c);
	http_turn_end(s);
}

/* End of file: the peer closed, or only shut down its writing side and waits for the answer. */
static bool peer_gone(struct http_conn *c)
{
	bool owned = c->state == CONN_BUSY || c->state == CONN_STREAMING;
	/* A TCP client that has closed is noticed only when something is written to it. */
	short end = c->peer.tcp && owned ? POLLRDHUP : 0;
	struct pollfd p = {.fd = c->fd, .events = end};

	return poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR | end));
}

/* Reads once and handles what came; may free @c. */
static void receive(struct http_conn *c)
{
	char buf[65536];
	size_t room =
		c->state == CONN_READING || c->state >= CONN_CLOSING ? sizeof(buf) : LOOKAHEAD;
	ssize_t n = http_fds_recv(&c->fds, c->fd, buf, room);

	if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
		settle(c);
		return;
	}
	if (n <= 0) {
		if (n < 0 || peer_gone(c)) {
			http_conn_lost(c);
			return;
		}
		c->half_closed = true;
	} else if (c->state == CONN_CLOSING || c->state == CONN_LINGERING) {
		c->thrown_away += (size_t)n;
		c->heard = clock_ms();
		http_fds_drop(&c->fds, UINT64_MAX);
		if (c->thrown_away > LINGER_BYTES) {
			http_conn_free(c);
			return;
		}
	} else {
		evbuffer_add(c->in, buf, (size_t)n);
	}
	if (c->half_closed && c->state == CONN_LINGERING) {
		http_conn_free(c);
		return;
	}
	settle(c);
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct http_conn *c = arg;

	(void)fd;
	(void)what;
	if (!must_wait(c))
		http_conn_resume(c);
}

void http_conn_resume(struct http_conn *c)
{
	struct http_server *s = c->server;

	http_turn_begin(s, c->account);
	if (want_read(c))
		receive(c);
	else
		settle(c);
	http_turn_end(s);
}

/*
 * A client that is still sending a refused body is to read the answer afterwards, which a reset
 * connection would take from it.
 */
static bool is_lingered(const struct http_conn *c, uint64_t now)
{
	bool brief = c->server->draining || (c->peer.tcp && !c->peer.key);

	return now - (c->heard > c->since ? c->heard : c->since) > LINGER_MS ||
	       now - c->since > (brief ? LINGER_MS : LINGER_MAX_MS);
}

/*
 * Checks deadlines, and peers whose end of file goes unnoticed because nothing is read from them.
 * May free @c.
 */
void http_conn_tick(struct http_conn *c, uint64_t now)
{
	const struct http_options *o = &c->server->options;
	uint64_t age = now - c->since;

	/* Time in which the daemon does not read from it does not count against the client. */
	if (c->waits)
		return;
	if (!c->reading && peer_gone(c)) {
		http_conn_lost(c);
		return;
	}
	/* There may be room for its descriptors now. */
	if (c->fds.full) {
		c->fds.full = false;
		update_reading(c);
	}
	if (evbuffer_get_length(c->out)) {
		if (now - c->progress > o->stall_seconds * 1000ull &&
		    now - c->since > o->stall_seconds * 1000ull)
			http_conn_lost(c);
		return;
	}
	if (c->state == CONN_LINGERING && is_lingered(c, now)) {
		http_conn_free(c);
		return;
	}
	if (c->state != CONN_READING)
		return;
	if (!http_parser_started(c->parser)) {
		unsigned seconds = c->peer.tcp && !c->peer.key ? o->head_seconds : o->idle_seconds;

		if (age > seconds * 1000ull)
			http_conn_free(c);
	} else if (age > (c->head_done ? o->body_seconds : o->head_seconds) * 1000ull) {
		char message[96];

		snprintf(message, sizeof(message),
			 "the %s of the request did not arrive within %u s",
			 c->head_done ? "body" : "head",
			 c->head_done ? o->body_seconds : o->head_seconds);
		refuse(c, 408, message);
	}
}

struct http_conn *http_conn_new(struct http_server *s, int fd, const struct http_peer *peer)
{
	struct http_conn *c = calloc(1, sizeof(*c));
	int inline_bytes = 1;

	/* Disabled, since the kernel would skip urgent data and close descriptors sent with it. */
	setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &inline_bytes, sizeof(inline_bytes));
	if (!c) {
		http_close(s, peer, fd);
		return NULL;
	}
	c->server = s;
	c->fd = fd;
	c->peer = *peer;
	c->account = account_get(s->options.budget, peer->uid, "");
	c->fds.owner = peer->tcp ? NULL : s->options.descriptors;
	c->fds.uid = peer->uid;
	c->next = s->conns;
	if (c->next)
		c->next->prev = c;
	s->conns = c;
	s->n_conns++;
	c->in = evbuffer_new();
	c->out = evbuffer_new();
	c->parser = http_parser_new(&s->options.limits);
	c->read_event = event_new(s->base, fd, EV_READ | EV_PERSIST, on_readable, c);
	c->write_event = event_new(s->base, fd, EV_WRITE | EV_PERSIST, on_writable, c);
	c->work_event = event_new(s->base, -1, 0, on_work, c);
	if (!c->account || !c->in || !c->out || !c->parser || !c->read_event || !c->write_event ||
	    !c->work_event) {
		http_conn_free(c);
		return NULL;
	}
	enter(c, CONN_READING);
	c->progress = c->since;
	if (!must_wait(c))
		update_reading(c);
	http_server_retick(s, false);
	return c;
}

void http_conn_refuse(struct http_conn *c, int status, const char *message)
{
	refuse(c, status, message);
}

bool http_conn_set_account(struct http_conn *c, user_id uid, const char *name)
{
	struct account *a = account_get(c->server->options.budget, uid, name);

	if (!a)
		return false;
	budget_add(a, c->accounted);
	a->connections += c->admitted;
	budget_release(c->account, c->accounted);
	c->account->connections -= c->admitted;
	account_unref(c->account);
	c->account = a;
	return true;
}

struct account *http_conn_account(const struct http_conn *c)
{
	return c->account;
}

const struct http_peer *http_conn_peer(const struct http_conn *c)
{
	return &c->peer;
}

int http_conn_groups(const struct http_conn *c, gid_t *groups, unsigned max)
{
	socklen_t len = max * sizeof(*groups);

	if (c->peer.tcp)
		return 0;
	/* ERANGE: there are more than @max; a partial list is not available. */
	if (getsockopt(c->fd, SOL_SOCKET, SO_PEERGROUPS, groups, &len))
		return -1;
	return (int)(len / sizeof(*groups));
}

void http_conn_set_note(struct http_conn *c, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(c->note, sizeof(c->note), format, args);
	va_end(args);
}

void http_conn_set_user(struct http_conn *c, void *user)
{
	c->user = user;
}

char *http_conn_take_body(struct http_conn *c, size_t *ret_len)
{
	char *body = http_parser_take_body(c->parser, ret_len);

	conn_account(c);
	return body;
}

int http_conn_take_fds(struct http_conn *c, struct descriptor_set **ret)
{
	return http_fds_take(&c->fds, parsed_bytes(c), ret);
}
