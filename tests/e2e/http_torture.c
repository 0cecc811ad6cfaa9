// SPDX-License-Identifier: MIT
/*
 * Sends random and broken requests to a txdad: http_torture SOCKET COUNT [SEED]
 *
 * Each is one of a few sound requests, changed in some bytes, cut short, sent in pieces, or left
 * without reading the answer. Each answer that is read must be HTTP with a known status, and one
 * with an error must be JSON in OpenAI's shape. At the end /health must say 200. Exit status 0, or
 * 1 with a word on what was wrong.
 */
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define MAX_REQUEST 65536
#define WAIT_MS	    5000

static const char *const seeds[] = {
	"GET /health HTTP/1.1\r\nHost: x\r\n\r\n",
	"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
	"HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\nGET /version HTTP/1.1\r\nHost: x\r\n\r\n",
	"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: "
	"application/json\r\nContent-Length: 123\r\n\r\n"
	"{\"model\":\"demo\",\"messages\":[{\"role\":\"user\",\"content\":\"Hello \\u00fc "
	"fox\"}],\"max_tokens\":2,\"seed\":7,\"logprobs\":true,   \"x\":1}",
	"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 97\r\n\r\n"
	"{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"max_tokens\":3,\"stream\":true,"
	"\"stop\":[\"a\",\"bcd\"]    }",
	"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
	"20\r\n{\"prompt\":[[1,2,3],[4,5]],\"n\":2,\r\n1d\r\n\"max_tokens\":2,\"echo\":true } "
	"\r\n0\r\n\r\n",
	("POST /v1/completions HTTP/1.0\r\nContent-Length: 42\r\nExpect: 100-continue\r\n\r\n"
	 "{\"prompt\":[\"a\",\"b\"],\"max_tokens\":1,\"n\":1 }"),
};

static uint64_t state;

static uint64_t next_random(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static size_t below(size_t n)
{
	return n ? (size_t)(next_random() % n) : 0;
}

static int connect_to(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (strlen(path) >= sizeof(address.sun_path) || fd < 0)
		return -1;
	strcpy(address.sun_path, path);
	for (unsigned tries = 0; connect(fd, (struct sockaddr *)&address, sizeof(address));
	     tries++) {
		if (errno != EAGAIN || tries == 100) {
			close(fd);
			return -1;
		}
		usleep(10000);
	}
	return fd;
}

static size_t change(char *buf, size_t len)
{
	static const char spice[] = "{}[]\":,\\\r\n 0123456789e-%\xff\x00\x80;";
	unsigned changes = (unsigned)below(6);

	while (changes-- && len) {
		size_t at = below(len), n = 1 + below(8);

		switch (below(6)) {
		case 0: buf[at] ^= (char)(1 << below(8)); break;
		case 1: buf[at] = (char)next_random(); break;
		case 2: buf[at] = spice[below(sizeof(spice) - 1)]; break;
		case 3:
			if (n > len - at)
				n = len - at;
			memmove(buf + at, buf + at + n, len - at - n);
			len -= n;
			break;
		case 4:
			if (len + n <= MAX_REQUEST) {
				memmove(buf + at + n, buf + at, len - at);
				len += n;
			}
			break;
		default: len = at; break;
		}
	}
	return len;
}

/* Many large ones, so that a leak shows: a long header, a long body, or noise. */
static size_t large(char *buf)
{
	size_t n = 1000 + below(MAX_REQUEST - 2000), len;

	switch (below(3)) {
	case 0: len = (size_t)sprintf(buf, "GET / HTTP/1.1\r\nX: "); break;
	case 1:
		len = (size_t)sprintf(buf,
				      "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: "
				      "%zu\r\n\r\n{\"prompt\":\"",
				      n);
		break;
	default: len = 0; break;
	}
	for (size_t i = 0; i < n; i++)
		buf[len + i] = len ? 'a' : (char)next_random();
	return len + n;
}

static void send_pieces(int fd, const char *buf, size_t len)
{
	while (len) {
		size_t n = below(4) ? len : 1 + below(len);
		ssize_t sent = send(fd, buf, n, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (sent < 0)
			return;
		buf += sent;
		len -= (size_t)sent;
	}
}

/* Reads until the end or until nothing comes; the beginning is kept in @buf. */
static size_t receive(int fd, char *buf, size_t size, int wait_ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	char sink[4096];
	size_t len = 0;

	while (poll(&p, 1, wait_ms) > 0) {
		ssize_t n = len + 1 < size ? read(fd, buf + len, size - len - 1)
					   : read(fd, sink, sizeof(sink));

		if (n <= 0)
			break;
		if (len + 1 < size)
			len += (size_t)n;
	}
	buf[len] = 0;
	return len;
}

static bool check_answer(const char *answer, bool head)
{
	static const int known[] = {100, 200, 400, 404, 405, 408, 413, 414,
				    415, 417, 429, 431, 501, 503, 505};
	int status = 0;

	if (!*answer)
		return true;
	if (sscanf(answer, "HTTP/1.1 %3d ", &status) != 1) {
		fprintf(stderr, "no HTTP: %.200s\n", answer);
		return false;
	}
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (status == known[i])
			return status < 400 || head ||
			       strstr(answer, "{\"error\":{\"message\":\"") ||
			       strstr(answer, "\"status\":");
	fprintf(stderr, "status %d: %.200s\n", status, answer);
	return false;
}

static bool torture(const char *path)
{
	static char buf[MAX_REQUEST * 2], answer[16384];
	int fd = connect_to(path), how = (int)below(8);
	bool ok = true;
	size_t len;

	if (fd < 0) {
		perror(path);
		return false;
	}
	if (below(10)) {
		const char *seed = seeds[below(sizeof(seeds) / sizeof(seeds[0]))];

		len = strlen(seed);
		memcpy(buf, seed, len);
		len = change(buf, len);
	} else {
		len = large(buf);
	}
	send_pieces(fd, buf, len);
	if (how < 5) {
		/* The end of what comes makes the server answer at once, whole request or not. */
		shutdown(fd, SHUT_WR);
		receive(fd, answer, sizeof(answer), WAIT_MS);
		ok = check_answer(answer, !strncmp(buf, "HEAD", 4));
		if (!ok)
			fprintf(stderr, "request: %.*s\n", (int)len, buf);
	} else if (how == 5) {
		receive(fd, answer, 2, (int)below(3));
	}
	close(fd);
	return ok;
}

int main(int argc, char **argv)
{
	static const char health[] = "GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
	char answer[4096];
	long count;
	int fd;

	if (argc < 3) {
		fprintf(stderr, "usage: http_torture SOCKET COUNT [SEED]\n");
		return 2;
	}
	count = strtol(argv[2], NULL, 10);
	state = 0x9E3779B97F4A7C15ull ^ (argc > 3 ? strtoull(argv[3], NULL, 10) : 0);
	for (long i = 0; i < count; i++) {
		if (!torture(argv[1])) {
			fprintf(stderr, "at request %ld\n", i);
			return 1;
		}
	}
	fd = connect_to(argv[1]);
	if (fd < 0) {
		perror(argv[1]);
		return 1;
	}
	send_pieces(fd, health, sizeof(health) - 1);
	receive(fd, answer, sizeof(answer), WAIT_MS);
	close(fd);
	if (strncmp(answer, "HTTP/1.1 200 ", 13)) {
		fprintf(stderr, "health: %.300s\n", answer);
		return 1;
	}
	printf("%ld requests, and it is healthy\n", count);
	return 0;
}
