// SPDX-License-Identifier: MIT
#include "http_parser.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define HEADERS_HARD_LIMIT 128
#define CHUNK_LINE_LIMIT   256
#define BLANK_LINES_LIMIT  8
#define TLS_HANDSHAKE	   0x16 /* first byte of a TLS connection */

enum state {
	STATE_HEAD,
	STATE_BODY, /* left: bytes of the body that remain */
	STATE_CHUNK_LINE,
	STATE_CHUNK_DATA,
	STATE_CHUNK_END, /* the CRLF after a chunk's data */
	STATE_TRAILER,
	STATE_DONE,
	STATE_ERROR,
};

struct http_parser {
	struct http_limits limits;
	enum state state;
	struct http_request request;
	struct http_header headers[HEADERS_HARD_LIMIT];
	char *head; /* request line and headers, split in place once complete */
	size_t head_len, head_cap;
	unsigned line_len; /* bytes in the current line of the head, without its end */
	unsigned blank_lines;
	bool seen_cr;
	char *body;
	size_t body_len, body_cap;
	uint64_t left;
	char line[CHUNK_LINE_LIMIT];
	unsigned line_used;
	size_t trailer_bytes;
	int status;
	char error[200];
};

struct http_parser *http_parser_new(const struct http_limits *limits)
{
	struct http_parser *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->limits = *limits;
	if (p->limits.max_headers > HEADERS_HARD_LIMIT)
		p->limits.max_headers = HEADERS_HARD_LIMIT;
	return p;
}

void http_parser_free(struct http_parser *p)
{
	if (!p)
		return;
	free(p->head);
	free(p->body);
	free(p);
}

void http_parser_reset(struct http_parser *p)
{
	struct http_limits limits = p->limits;

	free(p->head);
	free(p->body);
	memset(p, 0, sizeof(*p));
	p->limits = limits;
}

bool http_parser_started(const struct http_parser *p)
{
	return p->head_len || p->state != STATE_HEAD;
}

size_t http_parser_memory(const struct http_parser *p)
{
	return p->head_cap + p->body_cap;
}

const struct http_request *http_parser_request(const struct http_parser *p)
{
	return &p->request;
}

char *http_parser_take_body(struct http_parser *p, size_t *ret_len)
{
	char *body = p->body;

	*ret_len = p->body_len;
	p->body = NULL;
	p->body_len = p->body_cap = 0;
	p->request.body = "";
	p->request.body_len = 0;
	return body;
}

int http_parser_status(const struct http_parser *p)
{
	return p->status;
}

const char *http_parser_error(const struct http_parser *p)
{
	return p->error;
}

__attribute__((format(printf, 3, 4))) static enum http_parse fail(struct http_parser *p, int status,
								  const char *format, ...)
{
	va_list args;

	p->state = STATE_ERROR;
	p->status = status;
	va_start(args, format);
	vsnprintf(p->error, sizeof(p->error), format, args);
	va_end(args);
	return HTTP_PARSE_ERROR;
}

static bool is_token_char(unsigned char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       (c && strchr("!#$%&'*+-.^_`|~", c));
}

static int hex_value(unsigned char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

const char *http_request_header(const struct http_request *r, const char *name)
{
	for (unsigned i = 0; i < r->n_headers; i++)
		if (!strcasecmp(r->headers[i].name, name))
			return r->headers[i].value;
	return NULL;
}

static bool has_token(const char *value, const char *token)
{
	size_t len = strlen(token);

	while (*value) {
		size_t n, item;

		value += strspn(value, " \t,");
		n = strcspn(value, ",");
		for (item = n; item && strchr(" \t", value[item - 1]); item--)
			;
		if (item == len && !strncasecmp(value, token, len))
			return true;
		value += n;
	}
	return false;
}

bool http_request_has_token(const struct http_request *r, const char *name, const char *token)
{
	for (unsigned i = 0; i < r->n_headers; i++)
		if (!strcasecmp(r->headers[i].name, name) && has_token(r->headers[i].value, token))
			return true;
	return false;
}

/* Decodes %XX in place; false for a bad escape or an encoded NUL. */
static bool percent_decode(char *s)
{
	char *out = s;

	for (; *s; s++) {
		if (*s == '%') {
			int high = hex_value((unsigned char)s[1]);
			int low = high < 0 ? -1 : hex_value((unsigned char)s[2]);

			if (low < 0 || !(high | low))
				return false;
			*out++ = (char)(high << 4 | low);
			s += 2;
		} else {
			*out++ = *s;
		}
	}
	*out = 0;
	return true;
}

/*
 * The path and query of a target in absolute form, as sent to proxies: the authority has no meaning
 * on a Unix socket. Others are returned as they are.
 */
static char *skip_authority(char *target)
{
	size_t scheme = !strncasecmp(target, "http://", 7)    ? 7
			: !strncasecmp(target, "https://", 8) ? 8
							      : 0;
	char *rest = target + scheme;

	if (!scheme)
		return target;
	rest += strcspn(rest, "/?");
	/* The path may be missing, and is "/" then: the byte before has been read already. */
	if (*rest != '/')
		*--rest = '/';
	return rest;
}

static enum http_parse parse_request_line(struct http_parser *p, char *line)
{
	struct http_request *r = &p->request;
	char *target, *version, *question;

	target = strchr(line, ' ');
	if (!target || target == line || target - line > 31)
		return fail(p, 400, "malformed request line: no method");
	*target++ = 0;
	for (char *c = line; *c; c++)
		if (!is_token_char((unsigned char)*c))
			return fail(p, 400, "malformed request line: bad character in the method");
	version = strchr(target, ' ');
	if (!version)
		return fail(p, 400, "malformed request line: no HTTP version");
	*version++ = 0;
	if (strncmp(version, "HTTP/", 5) || strlen(version) != 8 || version[6] != '.')
		return fail(p, 400, "malformed request line: no HTTP version");
	if (version[5] != '1' || (version[7] != '0' && version[7] != '1'))
		return fail(p, 505, "%s is not supported, use HTTP/1.1", version);
	r->minor = (unsigned)(version[7] - '0');
	r->method = line;
	target = skip_authority(target);
	if (*target != '/' && strcmp(target, "*"))
		return fail(p, 400, "the request target must begin with '/'");
	question = strchr(target, '?');
	r->query = "";
	if (question) {
		*question = 0;
		r->query = question + 1;
	}
	r->path = target;
	if (!percent_decode(target))
		return fail(p, 400, "bad percent escape in the request target");
	return HTTP_PARSE_MORE;
}

/* Splits "name: value" in place. */
static enum http_parse parse_header(struct http_parser *p, char *line)
{
	struct http_request *r = &p->request;
	char *colon, *value, *end;

	if (*line == ' ' || *line == '\t')
		return fail(p, 400, "folded header lines are not allowed");
	colon = strchr(line, ':');
	if (!colon || colon == line)
		return fail(p, 400, "malformed header line: no name and colon");
	*colon = 0;
	for (char *c = line; *c; c++)
		if (!is_token_char((unsigned char)*c))
			return fail(p, 400, "bad character in a header name");
	value = colon + 1;
	value += strspn(value, " \t");
	for (end = value + strlen(value); end > value && (end[-1] == ' ' || end[-1] == '\t'); end--)
		;
	*end = 0;
	for (char *c = value; *c; c++)
		if (((unsigned char)*c < 0x20 && *c != '\t') || *c == 0x7F)
			return fail(p, 400, "control character in header %.64s", line);
	if (r->n_headers == p->limits.max_headers)
		return fail(p, 431, "the request has more than %u header lines",
			    p->limits.max_headers);
	p->headers[r->n_headers].name = line;
	p->headers[r->n_headers].value = value;
	r->n_headers++;
	return HTTP_PARSE_MORE;
}

static unsigned count_header(const struct http_request *r, const char *name)
{
	unsigned n = 0;

	for (unsigned i = 0; i < r->n_headers; i++)
		n += !strcasecmp(r->headers[i].name, name);
	return n;
}

static enum http_parse parse_content_length(struct http_parser *p, const char *value)
{
	struct http_request *r = &p->request;
	uint64_t n = 0;

	if (!*value)
		return fail(p, 400, "Content-Length is empty");
	for (const char *c = value; *c; c++) {
		if (*c < '0' || *c > '9')
			return fail(p, 400, "Content-Length is not a number: %.40s", value);
		if (n > (UINT64_MAX - 9) / 10)
			n = UINT64_MAX / 10 - 1;
		n = n * 10 + (uint64_t)(*c - '0');
	}
	r->has_length = true;
	r->content_length = n;
	if (n > p->limits.max_body)
		return fail(p, 413, "the body has %.40s bytes; the limit is %llu", value,
			    (unsigned long long)p->limits.max_body);
	return HTTP_PARSE_MORE;
}

static enum http_parse interpret_headers(struct http_parser *p)
{
	struct http_request *r = &p->request;
	const char *encoding = http_request_header(r, "Transfer-Encoding");
	const char *length = http_request_header(r, "Content-Length");
	const char *expect = http_request_header(r, "Expect");
	unsigned hosts = count_header(r, "Host");

	if (hosts > 1 || (!hosts && r->minor))
		return fail(p, 400, "HTTP/1.1 wants exactly one Host header, here are %u", hosts);
	r->keep_alive = !http_request_has_token(r, "Connection", "close") &&
			(r->minor || http_request_has_token(r, "Connection", "keep-alive"));
	if (encoding) {
		if (length || count_header(r, "Transfer-Encoding") > 1 || !r->minor)
			return fail(p, 400,
				    "ambiguous length of the body: Transfer-Encoding with %s",
				    length     ? "Content-Length"
				    : r->minor ? "another one"
					       : "HTTP/1.0");
		if (strcasecmp(encoding, "chunked"))
			return fail(p, 501,
				    "Transfer-Encoding %.64s is not supported, only chunked is",
				    encoding);
		r->chunked = true;
	} else if (length) {
		if (count_header(r, "Content-Length") > 1)
			return fail(p, 400, "more than one Content-Length");
		if (parse_content_length(p, length) == HTTP_PARSE_ERROR)
			return HTTP_PARSE_ERROR;
	}
	if (expect && r->minor) {
		if (strcasecmp(expect, "100-continue"))
			return fail(p, 417, "Expect: %.64s is not supported", expect);
		r->expect_continue = r->chunked || r->content_length;
	}
	return HTTP_PARSE_MORE;
}

/* The head is complete in p->head, lines ended by CRLF, the last of them empty. */
static enum http_parse parse_head(struct http_parser *p)
{
	struct http_request *r = &p->request;
	char *line = p->head, *end;

	r->body = "";
	r->headers = p->headers;
	for (bool first = true;; first = false, line = end + 2) {
		enum http_parse result;

		end = memchr(line, '\r', p->head_len - (size_t)(line - p->head));
		*end = 0;
		if (!first && end == line)
			break;
		result = first ? parse_request_line(p, line) : parse_header(p, line);
		if (result == HTTP_PARSE_ERROR)
			return result;
	}
	if (interpret_headers(p) == HTTP_PARSE_ERROR)
		return HTTP_PARSE_ERROR;
	if (r->chunked) {
		p->state = STATE_CHUNK_LINE;
	} else if (r->content_length) {
		p->left = r->content_length;
		p->state = STATE_BODY;
	} else {
		p->state = STATE_DONE;
	}
	return HTTP_PARSE_HEAD;
}

static int head_put(struct http_parser *p, char c)
{
	if (p->head_len == p->head_cap) {
		size_t cap = p->head_cap ? p->head_cap * 2 : 512;
		char *head = realloc(p->head, cap);

		if (!head)
			return -1;
		p->head = head;
		p->head_cap = cap;
	}
	p->head[p->head_len++] = c;
	return 0;
}

/* Checks line ends as bytes arrive, so that parse_head() sees only whole lines without NULs. */
static enum http_parse feed_head(struct http_parser *p, const char *data, size_t len,
				 size_t *ret_used)
{
	size_t at = 0;

	while (at < len) {
		char c = data[at++];

		*ret_used = at;
		if (c == TLS_HANDSHAKE && !p->head_len)
			return fail(p, 400, "this is TLS; only plain HTTP is supported");
		if (p->seen_cr && c != '\n')
			return fail(p, 400, "a carriage return without a line feed in the head");
		if (!p->seen_cr && c == '\n')
			return fail(p, 400, "a line feed without a carriage return in the head");
		if (!c)
			return fail(p, 400, "a NUL byte in the head");
		if (p->head_len >= p->limits.max_head) {
			bool in_line = !memchr(p->head, '\n', p->head_len);

			return fail(p, in_line ? 414 : 431, "the %s longer than %zu bytes",
				    in_line ? "request line is" : "header lines are",
				    p->limits.max_head);
		}
		if (head_put(p, c))
			return fail(p, 500, "out of memory");
		if (c == '\r') {
			p->seen_cr = true;
		} else if (c != '\n') {
			p->line_len++;
		} else {
			p->seen_cr = false;
			if (p->line_len) {
				p->line_len = 0;
			} else if (p->head_len == 2) {
				/*
				 * A blank line before the request line, which some clients send
				 * after a body.
				 */
				p->head_len = 0;
				if (++p->blank_lines > BLANK_LINES_LIMIT)
					return fail(p, 400, "blank lines instead of a request");
			} else {
				return parse_head(p);
			}
		}
	}
	return HTTP_PARSE_MORE;
}

static enum http_parse body_put(struct http_parser *p, const char *data, size_t len)
{
	if (len >= p->body_cap - p->body_len || !p->body) {
		size_t cap = p->body_cap ? p->body_cap * 2 : 4096;
		char *body;

		while (cap - p->body_len <= len)
			cap *= 2;
		/*
		 * No more than announced, so that the last doubling does not waste memory.
		 */
		if (p->request.has_length && cap > p->request.content_length + 1)
			cap = p->request.content_length + 1;
		body = realloc(p->body, cap);
		if (!body)
			return fail(p, 500, "out of memory");
		p->body = body;
		p->body_cap = cap;
	}
	memcpy(p->body + p->body_len, data, len);
	p->body_len += len;
	p->body[p->body_len] = 0;
	return HTTP_PARSE_MORE;
}

static enum http_parse done(struct http_parser *p)
{
	p->state = STATE_DONE;
	p->request.body = p->body ? p->body : "";
	p->request.body_len = p->body_len;
	return HTTP_PARSE_DONE;
}

/* "1a;extension": hexadecimal digits, then nothing or blanks and an extension, which is ignored. */
static enum http_parse parse_chunk_line(struct http_parser *p)
{
	uint64_t size = 0;
	unsigned i;

	for (i = 0; i < p->line_used && hex_value((unsigned char)p->line[i]) >= 0; i++) {
		if (i == 15)
			return fail(p, 400, "a chunk size of more than 15 digits");
		size = size << 4 | (unsigned)hex_value((unsigned char)p->line[i]);
	}
	if (!i)
		return fail(p, 400, "a chunk without a size");
	while (i < p->line_used && (p->line[i] == ' ' || p->line[i] == '\t'))
		i++;
	if (i < p->line_used && p->line[i] != ';')
		return fail(p, 400, "a malformed chunk size");
	if (size > p->limits.max_body - p->body_len)
		return fail(p, 413, "the body has at least %llu bytes; the limit is %llu",
			    (unsigned long long)(p->body_len + size),
			    (unsigned long long)p->limits.max_body);
	p->line_used = 0;
	p->left = size;
	p->state = size ? STATE_CHUNK_DATA : STATE_TRAILER;
	return HTTP_PARSE_MORE;
}

/* Collects a line of the chunked framing in p->line; *ret_whole when it is complete. */
static enum http_parse feed_line(struct http_parser *p, char c, bool *ret_whole)
{
	*ret_whole = false;
	if (p->seen_cr) {
		if (c != '\n')
			return fail(p, 400,
				    "a carriage return without a line feed in the chunked body");
		p->seen_cr = false;
		*ret_whole = true;
	} else if (c == '\r') {
		p->seen_cr = true;
	} else if ((unsigned char)c < 0x20 && c != '\t') {
		return fail(p, 400, "a control character in the framing of the chunked body");
	} else if (p->state != STATE_TRAILER && p->line_used == CHUNK_LINE_LIMIT) {
		return fail(p, 400, "a chunk-size line longer than %d bytes", CHUNK_LINE_LIMIT);
	} else if (p->line_used < CHUNK_LINE_LIMIT) {
		p->line[p->line_used++] = c;
	}
	return HTTP_PARSE_MORE;
}

/* One byte of framing: a chunk-size line, the end of a chunk, or a trailer. */
static enum http_parse feed_framing(struct http_parser *p, char c)
{
	bool whole;

	if (p->state == STATE_TRAILER && ++p->trailer_bytes > p->limits.max_head)
		return fail(p, 431, "the trailers are longer than %zu bytes", p->limits.max_head);
	if (feed_line(p, c, &whole) == HTTP_PARSE_ERROR)
		return HTTP_PARSE_ERROR;
	if (!whole) {
		if (p->state == STATE_CHUNK_END && p->line_used)
			return fail(p, 400, "a chunk is longer than its size says");
		return HTTP_PARSE_MORE;
	}
	switch (p->state) {
	case STATE_CHUNK_LINE: return parse_chunk_line(p);
	case STATE_CHUNK_END: p->state = STATE_CHUNK_LINE; return HTTP_PARSE_MORE;
	default:
		/* Trailers are read and dropped; they are not used here. */
		if (!p->line_used)
			return done(p);
		p->line_used = 0;
		return HTTP_PARSE_MORE;
	}
}

static enum http_parse feed_body(struct http_parser *p, const char *data, size_t len,
				 size_t *ret_used)
{
	size_t at = 0;

	while (at < len) {
		enum http_parse result;

		if (p->state == STATE_BODY || p->state == STATE_CHUNK_DATA) {
			size_t n = len - at < p->left ? len - at : (size_t)p->left;

			result = body_put(p, data + at, n);
			at += n;
			p->left -= n;
			if (!p->left && result != HTTP_PARSE_ERROR) {
				if (p->state == STATE_BODY)
					result = done(p);
				else
					p->state = STATE_CHUNK_END;
			}
		} else {
			result = feed_framing(p, data[at++]);
		}
		*ret_used = at;
		if (result != HTTP_PARSE_MORE)
			return result;
	}
	return HTTP_PARSE_MORE;
}

enum http_parse http_parser_feed(struct http_parser *p, const char *data, size_t len,
				 size_t *ret_used)
{
	*ret_used = 0;
	switch (p->state) {
	case STATE_ERROR: return HTTP_PARSE_ERROR;
	case STATE_DONE: return done(p);
	case STATE_HEAD: return feed_head(p, data, len, ret_used);
	default: return feed_body(p, data, len, ret_used);
	}
}
