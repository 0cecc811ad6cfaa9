// SPDX-License-Identifier: MIT
#include "serve_stream.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_LINE (16u << 20)

/* Position in the chunked coding. */
enum { CHUNK_SIZE = 0, CHUNK_SIZE_REST, CHUNK_DATA, CHUNK_END };

void stream_open(struct stream *s, int fd, bool keep_answer)
{
	s->fd = fd;
	s->status = 0;
	s->done = s->chunked = false;
	s->in_head = true;
	s->keep_answer = keep_answer;
	s->prompt_tokens = s->cached_tokens = s->output_tokens = 0;
	s->chunk_left = 0;
	s->chunk_state = CHUNK_SIZE;
	s->n_line = s->n_answer = 0;
	s->body[0] = 0;
}

void stream_close(struct stream *s)
{
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
}

void stream_free(struct stream *s)
{
	free(s->line);
	free(s->answer);
}

const char *stream_answer(const struct stream *s)
{
	return s->n_answer ? s->answer : "";
}

const char *stream_body(const struct stream *s)
{
	return s->body;
}

/* Appends, NUL-terminated; what does not fit into memory is dropped. */
static void append(char **text, size_t *n, size_t *cap, const char *from, size_t bytes)
{
	if (*n + bytes + 1 > *cap) {
		size_t bigger = (*n + bytes + 1) * 2;
		char *p = bigger <= MAX_LINE ? realloc(*text, bigger) : NULL;

		if (!p)
			return;
		*text = p;
		*cap = bigger;
	}
	memcpy(*text + *n, from, bytes);
	*n += bytes;
	(*text)[*n] = 0;
}

static unsigned count_after(const char *text, const char *key)
{
	const char *at = strstr(text, key);

	return at ? (unsigned)strtoul(at + strlen(key), NULL, 10) : 0;
}

/* Parses an event's JSON; true if it has text. */
static bool take_event(struct stream *s, const char *json)
{
	const char *text = strstr(json, "\"text\":\""), *use = strstr(json, "\"usage\":{"), *end;

	if (!strcmp(json, "[DONE]")) {
		s->done = true;
		return false;
	}
	if (use) {
		s->prompt_tokens = count_after(use, "\"prompt_tokens\":");
		s->output_tokens = count_after(use, "\"completion_tokens\":");
		s->cached_tokens = count_after(use, "\"cached_tokens\":");
	}
	if (!text || text[8] == '"')
		return false;
	if (s->keep_answer) {
		for (end = text + 8; *end && *end != '"'; end += *end == '\\' && end[1] ? 2 : 1)
			;
		append(&s->answer, &s->n_answer, &s->cap_answer, text + 8,
		       (size_t)(end - text - 8));
	}
	return true;
}

static void take_head_line(struct stream *s, const char *line)
{
	if (!s->status) {
		const char *space = strchr(line, ' ');

		s->status = space ? atoi(space) : -1;
	} else if (!strncasecmp(line, "transfer-encoding:", 18)) {
		s->chunked = strstr(line, "chunked") != NULL;
	} else if (!*line) {
		s->in_head = false;
	}
}

/* A whole line; true when it is an event with text. */
static bool take_line(struct stream *s)
{
	const char *line = s->n_line ? s->line : "";
	bool text = false;

	if (s->n_line && s->line[s->n_line - 1] == '\r')
		s->line[--s->n_line] = 0;
	if (s->in_head)
		take_head_line(s, line);
	else if (!strncmp(line, "data: ", 6))
		text = take_event(s, line + 6);
	else if (*line && !*s->body)
		snprintf(s->body, sizeof(s->body), "%s", line);
	s->n_line = 0;
	return text;
}

/* Bytes without the chunked coding; returns how many were taken, up to the end of the head. */
static size_t take_text(struct stream *s, const char *data, size_t n, unsigned *events)
{
	bool head = s->in_head;
	size_t at = 0;

	while (at < n && s->in_head == head) {
		const char *newline = memchr(data + at, '\n', n - at);
		size_t end = newline ? (size_t)(newline - data) : n;

		append(&s->line, &s->n_line, &s->cap_line, data + at, end - at);
		at = end;
		if (newline) {
			at++;
			*events += take_line(s);
		}
	}
	return at;
}

static size_t take_chunked(struct stream *s, const char *data, size_t n, unsigned *events)
{
	size_t take;
	char c = *data;

	switch (s->chunk_state) {
	case CHUNK_SIZE:
		if ((c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'f')) {
			s->chunk_left = s->chunk_left * 16 +
					(size_t)(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
			return 1;
		}
		s->chunk_state = CHUNK_SIZE_REST;
		return 0;
	case CHUNK_SIZE_REST:
		if (c == '\n')
			s->chunk_state = s->chunk_left ? CHUNK_DATA : CHUNK_END;
		return 1;
	case CHUNK_DATA:
		take = n < s->chunk_left ? n : s->chunk_left;
		take_text(s, data, take, events);
		s->chunk_left -= take;
		if (!s->chunk_left)
			s->chunk_state = CHUNK_END;
		return take;
	default:
		if (c == '\n')
			s->chunk_state = CHUNK_SIZE;
		return 1;
	}
}

bool stream_read(struct stream *s, unsigned *ret_events)
{
	char buf[65536];
	ssize_t n = recv(s->fd, buf, sizeof(buf), MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	if (n <= 0) {
		if (s->n_line)
			*ret_events += take_line(s);
		return false;
	}
	for (size_t at = 0; at < (size_t)n;) {
		size_t left = (size_t)n - at;

		at += !s->in_head && s->chunked ? take_chunked(s, buf + at, left, ret_events)
						: take_text(s, buf + at, left, ret_events);
	}
	return !s->done;
}
