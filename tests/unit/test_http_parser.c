// SPDX-License-Identifier: MIT
/* The HTTP parser: what it takes, what it refuses with which status, and that the cut into pieces
 * makes no difference. */

#include "unit.h"
#include "http_parser.h"

static const struct http_limits limits = {.max_head = 512, .max_headers = 8, .max_body = 64};

/* Feeds @text in pieces of @piece bytes up to the end of the request; *ret_rest is what was not
 * used. */
static enum http_parse feed(struct http_parser *p, const char *text, size_t len, size_t piece,
			    size_t *ret_rest)
{
	enum http_parse result = HTTP_PARSE_MORE;
	size_t at = 0;

	while (at < len || result == HTTP_PARSE_HEAD) {
		size_t n = len - at < piece ? len - at : piece, used;

		result = http_parser_feed(p, text + at, n, &used);
		assert_true(used <= n);
		at += used;
		if (result == HTTP_PARSE_DONE || result == HTTP_PARSE_ERROR)
			break;
		if (result == HTTP_PARSE_MORE)
			assert_int_equal(used, n);
	}
	*ret_rest = len - at;
	return result;
}

struct accepted {
	const char *text, *method, *path, *query, *body;
	bool keep_alive;
	size_t rest;
};

static const struct accepted accepted[] = {
	{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "GET", "/", "", "", true, 0},
	{"GET /a%20b?q=1%20 HTTP/1.1\r\nHost:\r\n\r\n", "GET", "/a b", "q=1%20", "", true, 0},
	{"\r\n\r\nGET /x HTTP/1.0\r\n\r\n", "GET", "/x", "", "", false, 0},
	{"GET /x HTTP/1.0\r\nConnection: foo, Keep-Alive\r\n\r\n", "GET", "/x", "", "", true, 0},
	{"GET /x HTTP/1.1\r\nhost: y\r\nconnection: CLOSE\r\n\r\n", "GET", "/x", "", "", false, 0},
	{"GET /x HTTP/1.1\r\nHost: y\r\nConnection: a,  Close ,b\r\n\r\n", "GET", "/x", "", "",
	 false, 0},
	{"GET /x HTTP/1.1\r\nHost: y\r\nConnection: closed\r\nConnection:\r\n\r\n", "GET", "/x", "",
	 "", true, 0},
	{"GET /x HTTP/1.1\r\nHost: y\r\nConnection: x\r\nA: b\r\nConnection: close\r\n\r\n", "GET",
	 "/x", "", "", false, 0},
	{"GET /x HTTP/1.0\r\nConnection: x\r\nConnection: keep-alive\r\n\r\n", "GET", "/x", "", "",
	 true, 0},
	{"GET /x HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n", "GET", "/x", "", "", false, 0},
	{"GET http://h:1/p?z HTTP/1.1\r\nHost: h\r\n\r\n", "GET", "/p", "z", "", true, 0},
	{"GET HTTPS://h:1/p/q HTTP/1.1\r\nHost: h\r\n\r\n", "GET", "/p/q", "", "", true, 0},
	{"GET http://h HTTP/1.1\r\nHost: h\r\n\r\n", "GET", "/", "", "", true, 0},
	{"GET http://h?a=/b HTTP/1.1\r\nHost: h\r\n\r\n", "GET", "/", "a=/b", "", true, 0},
	{"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhelloGET", "POST", "/p", "",
	 "hello", true, 3},
	{"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\nG", "POST", "/p", "", "", true,
	 1},
	{"POST /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
	 "Chunked\r\n\r\n3\r\nabc\r\n02;x=\"y\"\r\nde\r\n0\r\n\r\nrest",
	 "POST", "/p", "", "abcde", true, 4},
	{"POST /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nTrailer: "
	 "1\r\nOther: 2\r\n\r\n",
	 "POST", "/p", "", "", true, 0},
};

TEST(test_accepted)
{
	for (size_t i = 0; i < ARRAY_SIZE(accepted); i++) {
		const struct accepted *a = &accepted[i];

		for (size_t piece = 1; piece < 200; piece += piece < 8 ? 1 : 61) {
			struct http_parser *p = http_parser_new(&limits);
			const struct http_request *r = http_parser_request(p);
			size_t rest;

			assert_int_equal(feed(p, a->text, strlen(a->text), piece, &rest),
					 HTTP_PARSE_DONE);
			assert_int_equal(rest, a->rest);
			assert_string_equal(r->method, a->method);
			assert_string_equal(r->path, a->path);
			assert_string_equal(r->query, a->query);
			assert_int_equal(r->body_len, strlen(a->body));
			assert_string_equal(r->body, a->body);
			assert_int_equal(r->keep_alive, a->keep_alive);
			http_parser_free(p);
		}
	}
}

struct refused {
	const char *text;
	int status;
	const char *words;
};

#define HEAD "POST /p HTTP/1.1\r\nHost: h\r\n"

static const struct refused refused[] = {
	{"GET / HTTP/1.1\n", 400, "line feed"},
	{"GET / HTTP/1.1\rX", 400, "carriage return"},
	{"GET\r\n\r\n", 400, "no method"},
	{"\x16\x03\x01\x02", 400, "this is TLS"},
	{" / HTTP/1.1\r\n\r\n", 400, "no method"},
	{"G@T / HTTP/1.1\r\n\r\n", 400, "method"},
	{"GET /\r\n\r\n", 400, "version"},
	{"GET /  HTTP/1.1\r\n\r\n", 400, "version"},
	{"GET / HTTP/2.0\r\n\r\n", 505, "HTTP/2.0"},
	{"GET / HTTP/1.7\r\n\r\n", 505, "HTTP/1.7"},
	{"GET x HTTP/1.1\r\n\r\n", 400, "begin with"},
	{"GET /%zz HTTP/1.1\r\n\r\n", 400, "percent"},
	{"GET /%00 HTTP/1.1\r\n\r\n", 400, "percent"},
	{"GET /% HTTP/1.1\r\n\r\n", 400, "percent"},
	{"GET / HTTP/1.1\r\n\r\n", 400, "Host"},
	{"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400, "Host"},
	{HEAD "X : y\r\n\r\n", 400, "header name"},
	{HEAD "X y\r\n\r\n", 400, "colon"},
	{HEAD ": y\r\n\r\n", 400, "colon"},
	{HEAD "X: y\r\n z\r\n\r\n", 400, "folded"},
	{HEAD "X: y\001\r\n\r\n", 400, "control character"},
	{HEAD "1:\r\n2:\r\n3:\r\n4:\r\n5:\r\n6:\r\n7:\r\n8:\r\n\r\n", 431, "more than 8"},
	{HEAD "Content-Length: 5x\r\n\r\n", 400, "not a number: 5x"},
	{HEAD "Content-Length: -5\r\n\r\n", 400, "not a number"},
	{HEAD "Content-Length: \r\n\r\n", 400, "empty"},
	{HEAD "Content-Length: 5\r\nContent-Length: 5\r\n\r\n", 400, "more than one"},
	{HEAD "Content-Length: 65\r\n\r\n", 413, "65 bytes; the limit is 64"},
	{HEAD "Content-Length: 99999999999999999999999999\r\n\r\n", 413, "limit is 64"},
	{HEAD "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "ambiguous"},
	{HEAD "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "ambiguous"},
	{"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "ambiguous"},
	{HEAD "Transfer-Encoding: gzip, chunked\r\n\r\n", 501, "gzip"},
	{HEAD "Expect: fun\r\n\r\n", 417, "fun"},
	{HEAD "Transfer-Encoding: chunked\r\n\r\nx\r\n", 400, "without a size"},
	{HEAD "Transfer-Encoding: chunked\r\n\r\n3 x\r\n", 400, "chunk size"},
	{HEAD "Transfer-Encoding: chunked\r\n\r\n41\r\n", 413, "65 bytes; the limit is 64"},
	{HEAD "Transfer-Encoding: chunked\r\n\r\nfffffffffffffff\r\n", 413, "limit"},
	{HEAD "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff0\r\n", 400, "digits"},
	{HEAD "Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n", 400, "longer than its size"},
	{HEAD "Transfer-Encoding: chunked\r\n\r\n1\n", 400, "control character"},
	{"\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\n", 400, "blank lines"},
};

TEST(test_refused)
{
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
		for (size_t piece = 1; piece < 400; piece += 57) {
			struct http_parser *p = http_parser_new(&limits);
			size_t rest, used;

			if (feed(p, refused[i].text, strlen(refused[i].text), piece, &rest) !=
			    HTTP_PARSE_ERROR)
				fail_msg("accepted: %s", refused[i].text);
			if (http_parser_status(p) != refused[i].status ||
			    !strstr(http_parser_error(p), refused[i].words))
				fail_msg("%s: %d %s", refused[i].text, http_parser_status(p),
					 http_parser_error(p));
			assert_int_equal(http_parser_feed(p, "x", 1, &used), HTTP_PARSE_ERROR);
			http_parser_free(p);
		}
	}
}

/* The longest head that is taken, and one byte more. */
TEST(test_longest_head)
{
	struct http_parser *p = http_parser_new(&limits);

	for (size_t len = 512; len <= 513; len++) {
		char text[513];
		size_t rest;

		memset(text, 'a', sizeof(text));
		memcpy(text, "GET / HTTP/1.1\r\nHost: ", 22);
		memcpy(text + len - 4, "\r\n\r\n", 4);
		assert_int_equal(feed(p, text, len, 100, &rest),
				 len == 512 ? HTTP_PARSE_DONE : HTTP_PARSE_ERROR);
		http_parser_reset(p);
	}
	http_parser_free(p);
}

TEST(test_long_heads)
{
	struct http_parser *p = http_parser_new(&limits);
	char text[1024];
	size_t rest;

	memset(text, 'a', sizeof(text));
	memcpy(text, "GET /", 5);
	assert_int_equal(feed(p, text, sizeof(text), 100, &rest), HTTP_PARSE_ERROR);
	assert_int_equal(http_parser_status(p), 414);
	http_parser_reset(p);
	memcpy(text, "GET / HTTP/1.1\r\nHost: ", 22);
	assert_int_equal(feed(p, text, sizeof(text), 100, &rest), HTTP_PARSE_ERROR);
	assert_int_equal(http_parser_status(p), 431);
	assert_says(http_parser_error(p), "512");
	http_parser_reset(p);
	assert_int_equal(feed(p, "G\0T /", 5, 5, &rest), HTTP_PARSE_ERROR);
	assert_int_equal(http_parser_status(p), 400);
	http_parser_free(p);
}

TEST(test_body_memory)
{
	struct http_limits large = {.max_head = 512, .max_headers = 8, .max_body = 1ull << 40};
	struct http_parser *p = http_parser_new(&large);
	const char *text = HEAD "Content-Length: 1000000000000\r\nExpect: 100-continue\r\n\r\nabc";
	size_t rest, len;
	char *body;

	/* A promise of a body takes no memory. */
	assert_int_equal(feed(p, text, strlen(text), 1000, &rest), HTTP_PARSE_MORE);
	assert_true(http_parser_request(p)->expect_continue);
	assert_true(http_parser_memory(p) < 16384);
	http_parser_reset(p);
	assert_false(http_parser_started(p));
	text = HEAD "Content-Length: 3\r\n\r\nabc";
	assert_int_equal(feed(p, text, strlen(text), 1000, &rest), HTTP_PARSE_DONE);
	body = http_parser_take_body(p, &len);
	assert_int_equal(len, 3);
	assert_string_equal(body, "abc");
	free(body);
	http_parser_free(p);
}

TEST_MAIN
