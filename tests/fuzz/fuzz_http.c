// SPDX-License-Identifier: MIT
/* The HTTP parser on arbitrary bytes, cut into pieces; whatever it says, it must say the same for
 * the uncut bytes. */
#include <stdbool.h>

#include "fuzz.h"
#include "http_parser.h"

static enum http_parse feed(struct http_parser *p, const char *data, size_t size, size_t piece)
{
	enum http_parse result = HTTP_PARSE_MORE;
	size_t at = 0;

	while (at < size || result == HTTP_PARSE_HEAD) {
		size_t n = size - at < piece ? size - at : piece, used;
		char *exact = malloc(n ? n : 1);

		if (!exact)
			abort();
		memcpy(exact, data + at, n);
		result = http_parser_feed(p, exact, n, &used);
		free(exact);
		if (used > n)
			abort();
		at += used;
		if (result == HTTP_PARSE_DONE || result == HTTP_PARSE_ERROR)
			break;
	}
	return result;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct http_limits limits = {
		.max_head = 1024, .max_headers = 16, .max_body = 4096};
	struct http_parser *whole = http_parser_new(&limits), *cut = http_parser_new(&limits);
	size_t piece = size ? 1 + data[size - 1] % 16 : 1;
	enum http_parse a, b;

	if (!whole || !cut)
		abort();
	a = feed(whole, (const char *)data, size, size ? size : 1);
	b = feed(cut, (const char *)data, size, piece);
	if (a != b || http_parser_status(whole) != http_parser_status(cut))
		abort();
	if (a == HTTP_PARSE_DONE) {
		const struct http_request *r = http_parser_request(whole),
					  *q = http_parser_request(cut);

		if (r->body_len > limits.max_body || r->body_len != q->body_len ||
		    memcmp(r->body, q->body, r->body_len) || strcmp(r->path, q->path) ||
		    strlen(r->body) > r->body_len)
			abort();
	}
	http_parser_free(whole);
	http_parser_free(cut);
	return 0;
}
