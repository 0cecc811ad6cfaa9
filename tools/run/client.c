// SPDX-License-Identifier: MIT
#include "client.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "clock.h"
#include "interrupt.h"
#include "peer.h"

#define MAX_LINE   4096
#define BACKLOG_MS 20
#define MAX_JSON   ((size_t)16 << 20)

const char *client_default_socket(void)
{
	static char path[512];
	const char *env = getenv("TXDA_SOCKET"), *dir = getenv("XDG_RUNTIME_DIR");

	if (env && *env)
		return env;
	if (dir && *dir) {
		snprintf(path, sizeof(path), "%s/txda.sock", dir);
		if (!access(path, F_OK))
			return path;
	}
	return "/run/txda/txda.sock";
}

/* As interrupt_poll(), at most @ms (-1: no limit) and within the connection's time. */
static int wait_for(const struct client *c, int fd, short events, int ms)
{
	uint64_t now = clock_ms();

	if (c->deadline_ms && now >= c->deadline_ms)
		return -ETIMEDOUT;
	if (c->deadline_ms && (ms < 0 || (uint64_t)ms > c->deadline_ms - now))
		ms = (int)(c->deadline_ms - now);
	return interrupt_poll(fd, events, ms);
}

int client_open(struct client *c, const char *socket_path, enum client_limit limit)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int r;

	c->fd = -1;
	c->deadline_ms = limit ? clock_ms() + limit : 0;
	if (strlen(socket_path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	strcpy(address.sun_path, socket_path);
	c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (c->fd < 0)
		return -errno;
	while (connect(c->fd, (struct sockaddr *)&address, sizeof(address))) {
		int error = errno;

		/* The backlog is full; there is no notification when that changes. */
		if (error == EAGAIN)
			error = -wait_for(c, -1, 0, BACKLOG_MS);
		if (error) {
			client_close(c);
			return -error;
		}
	}
	r = peer_check(c->fd, socket_path);
	if (r)
		client_close(c);
	return r;
}

void client_close(struct client *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
}

void client_report(const char *program, const char *path, int error)
{
	fprintf(stderr, "%s: ", program);
	if (error == -ENOENT || error == -ECONNREFUSED)
		fprintf(stderr, "no daemon listens on %s\n", path);
	else if (error == -ETIMEDOUT)
		fprintf(stderr, "the daemon on %s does not answer\n", path);
	else if (error == -EPERM)
		fprintf(stderr,
			"another user listens on %s, in a directory that everybody can write to; "
			"nothing was sent\n",
			path);
	else if (error == -EACCES)
		fprintf(stderr,
			"no permission to use %s; only its owner and group may (see: ls -l %s)\n",
			path, path);
	else
		fprintf(stderr, "cannot communicate with the daemon on %s: %s\n", path,
			strerror(-error));
}

static int send_all(struct client *c, const char *data, size_t len)
{
	while (len) {
		int r = wait_for(c, c->fd, POLLOUT, -1);
		ssize_t n;

		if (r < 0)
			return r;
		n = send(c->fd, data, len, MSG_NOSIGNAL);
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		/* A server that refuses a body answers and closes before it has read all of it. */
		if (n < 0 && errno == EPIPE)
			return 0;
		if (n < 0)
			return -errno;
		data += n;
		len -= (size_t)n;
	}
	return 0;
}

/* Makes sure that buf is not empty: 1, 0 at the end of file, or -errno. */
static int fill(struct client *c)
{
	if (c->at < c->len)
		return 1;
	for (;;) {
		int r = wait_for(c, c->fd, POLLIN, -1);
		ssize_t n;

		if (r < 0)
			return r;
		n = read(c->fd, c->buf, sizeof(c->buf));
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n < 0)
			return -errno;
		c->at = 0;
		c->len = (size_t)n;
		return n > 0;
	}
}

/* Reads a line without its end; -EPROTO if it is too long or the connection ends in it. */
static int read_line(struct client *c, char *line, size_t size)
{
	size_t at = 0;

	for (;;) {
		int r = fill(c);
		char ch;

		if (r <= 0)
			return r ? r : -EPROTO;
		ch = (char)c->buf[c->at++];
		if (ch == '\n') {
			if (at && line[at - 1] == '\r')
				at--;
			line[at] = 0;
			return 0;
		}
		if (at + 1 >= size)
			return -EPROTO;
		line[at++] = ch;
	}
}

static int read_head(struct client *c)
{
	char line[MAX_LINE];
	int r = read_line(c, line, sizeof(line));

	if (r)
		return r;
	if (sscanf(line, "HTTP/1.%*1[01] %3d", &c->status) != 1)
		return -EPROTO;
	c->until_close = 1;
	for (;;) {
		r = read_line(c, line, sizeof(line));
		if (r)
			return r;
		if (!*line)
			return 0;
		if (!strncasecmp(line, "Content-Length:", 15)) {
			c->left = strtoull(line + 15, NULL, 10);
			c->until_close = 0;
			c->ended = !c->left;
		} else if (!strcasecmp(line, "Transfer-Encoding: chunked")) {
			c->chunked = 1;
			c->until_close = 0;
		}
	}
}

int client_request(struct client *c, const char *path, const char *body, size_t len)
{
	char head[512];
	int n = snprintf(head, sizeof(head),
			 "%s %s HTTP/1.1\r\nHost: localhost\r\nUser-Agent: txda-run\r\nConnection: "
			 "close\r\n",
			 body ? "POST" : "GET", path);
	int r;

	if (body)
		n += snprintf(head + n, sizeof(head) - (size_t)n,
			      "Content-Type: application/json\r\nContent-Length: %zu\r\n", len);
	n += snprintf(head + n, sizeof(head) - (size_t)n, "\r\n");
	c->at = c->len = 0;
	c->status = c->chunked = c->ended = 0;
	c->left = 0;
	r = send_all(c, head, (size_t)n);
	if (!r && body)
		r = send_all(c, body, len);
	return r ? r : read_head(c);
}

/* The next chunk's size, after the end of the previous one. */
static int next_chunk(struct client *c)
{
	char line[MAX_LINE], *end;
	int r = read_line(c, line, sizeof(line));

	if (!r && !*line)
		r = read_line(c, line, sizeof(line));
	if (r)
		return r;
	c->left = strtoull(line, &end, 16);
	if (end == line)
		return -EPROTO;
	c->ended = !c->left;
	return 0;
}

long client_read(struct client *c, char *buf, size_t len)
{
	int r;

	if (c->chunked && !c->left && !c->ended) {
		r = next_chunk(c);
		if (r)
			return r == -EPROTO ? -EPIPE : r;
	}
	if (c->ended)
		return 0;
	r = fill(c);
	if (r <= 0)
		return r || c->until_close ? r : -EPIPE;
	if (len > c->len - c->at)
		len = c->len - c->at;
	if (!c->until_close && len > c->left)
		len = (size_t)c->left;
	memcpy(buf, c->buf + c->at, len);
	c->at += len;
	if (!c->until_close) {
		c->left -= len;
		c->ended = !c->left && !c->chunked;
	}
	return (long)len;
}

int client_read_all(struct client *c, size_t max, struct text_buf *text)
{
	long n;

	do {
		if (text->len >= max)
			return -EFBIG;
		if (!text_buf_reserve(text, sizeof(c->buf)))
			return -ENOMEM;
		n = client_read(c, text->data + text->len, sizeof(c->buf));
		text->len += n > 0 ? (size_t)n : 0;
	} while (n > 0);
	if (n < 0)
		return (int)n;
	return text_buf_end(text) ? 0 : -ENOMEM;
}

cJSON *client_read_json(struct client *c)
{
	struct text_buf text = {0};
	cJSON *json = NULL;

	if (!client_read_all(c, MAX_JSON, &text))
		json = cJSON_ParseWithLength(text.data, text.len);
	free(text.data);
	return json;
}
