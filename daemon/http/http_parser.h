/* SPDX-License-Identifier: MIT */
/*
 * An incremental parser of HTTP/1.1 requests from untrusted peers (RFC 9112).
 *
 * The parser accepts input in pieces of any size and owns what it has read. It does no I/O. It is
 * stricter than the RFC requires: lines must end in CRLF, a name must be followed directly by its
 * colon, and folded lines, control characters, and several or both of Content-Length and
 * Transfer-Encoding are refused. So every request has exactly one interpretation.
 *
 * Why not libevent's evhttp (evaluated with 2.1.12): it does not read while a request waits for its
 * answer, so that a disconnected client is noticed only by writing; its own errors are HTML and
 * cannot be replaced; and a header that arrives at a byte per second holds a connection forever.
 * All three are required here, and they are most of what an HTTP server for one socket consists of.
 *
 * Memory: at most max_head + max_body plus a constant; the body's buffer grows as bytes arrive, not
 * by Content-Length.
 *
 * Threads: none shared.
 */
#ifndef TXDA_HTTP_HTTP_PARSER_H
#define TXDA_HTTP_HTTP_PARSER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct http_limits {
	size_t max_head; /* bytes of the request line and all header lines (trailers likewise) */
	unsigned max_headers; /* header lines */
	uint64_t max_body;    /* bytes, chunked coding taken off */
};

struct http_header {
	const char *name,
		*value; /* terminated; value without surrounding blanks; may hold bytes >= 0x80 */
};

struct http_request {
	const char *method; /* "GET" */
	char *path;	    /* percent-decoded, starts with '/', holds no NUL */
	const char *query;  /* as sent, without '?'; "" if none */
	unsigned minor;	    /* of HTTP/1.x: 0 or 1 */
	const struct http_header *headers;
	unsigned n_headers;
	bool keep_alive;
	bool expect_continue; /* the client waits for "100 Continue" before it sends the body */
	bool has_length;      /* content_length was given */
	uint64_t content_length;
	bool chunked;
	const char *body; /* body_len bytes, then NUL; valid when HTTP_PARSE_DONE was returned */
	size_t body_len;
};

enum http_parse {
	HTTP_PARSE_MORE,  /* all input was consumed, the request is incomplete */
	HTTP_PARSE_HEAD,  /* the head is complete, http_parser_request() is valid but for its body;
			     feed on */
	HTTP_PARSE_DONE,  /* the request is complete; unconsumed input belongs to the next one */
	HTTP_PARSE_ERROR, /* see http_parser_status() and _error(); cannot go on */
};

struct http_parser;

struct http_parser *
http_parser_new(const struct http_limits *limits); /* NULL: out of memory. The limits are copied. */
void http_parser_free(struct http_parser *p);
void http_parser_reset(struct http_parser *p); /* for the next request; frees the body */

/* Consumes up to @len bytes; *ret_used is how many. */
enum http_parse http_parser_feed(struct http_parser *p, const char *data, size_t len,
				 size_t *ret_used);

/*
 * Whether any byte of a request has been seen since the last reset (blank lines before it do not
 * count).
 */
bool http_parser_started(const struct http_parser *p);
size_t http_parser_memory(const struct http_parser *p); /* bytes held for head and body */
const struct http_request *http_parser_request(const struct http_parser *p);
/*
 * Hands the body over: body_len + 1 bytes, NUL at the end, to be freed by the caller. NULL when
 * there is none.
 */
char *http_parser_take_body(struct http_parser *p, size_t *ret_len);

int http_parser_status(
	const struct http_parser *p); /* 400, 413, 414, 417, 431, 501, 505, 500 (out of memory) */
const char *http_parser_error(const struct http_parser *p); /* a message with value and limit */

/* The value of a header (name in any case; the first, if there are several), or NULL. */
const char *http_request_header(const struct http_request *r, const char *name);
/*
 * Whether a comma-separated list holds @token (in any case): the values of all headers of that name
 * together are the list.
 */
bool http_request_has_token(const struct http_request *r, const char *name, const char *token);

#endif
