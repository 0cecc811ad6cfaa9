// SPDX-License-Identifier: MIT
/* Replies in every format, whole and byte by byte: the same must come out, and calls in order. */
#include "fuzz.h"
#include "reply_parser.h"
#include "text_buf.h"

struct result {
	struct text_buf parts[3];
	unsigned calls;
};

static int put(struct text_buf *buf, const char *text, size_t len)
{
	if (!len || !text_buf_add(buf, text, len))
		abort();
	return 0;
}

static int on_reasoning(void *arg, const char *text, size_t len)
{
	return put(&((struct result *)arg)->parts[0], text, len);
}

static int on_content(void *arg, const char *text, size_t len)
{
	return put(&((struct result *)arg)->parts[1], text, len);
}

static int on_call(void *arg, const struct reply_call *call)
{
	struct result *r = arg;

	if (call->index != r->calls++ || !call->name_len || call->name_len > REPLY_MAX_NAME)
		abort();
	put(&r->parts[2], "|", 1);
	return put(&r->parts[2], call->name, call->name_len);
}

static int on_arguments(void *arg, unsigned index, const char *text, size_t len)
{
	struct result *r = arg;

	if (index + 1 != r->calls)
		abort();
	return put(&r->parts[2], text, len);
}

static void parse(const struct reply_options *o, const char *text, size_t size, size_t piece,
		  struct result *r)
{
	const struct reply_sink sink = {on_reasoning, on_content, on_call, on_arguments, r};
	struct reply_parser *p = reply_parser_new(o, &sink);

	if (!p)
		abort();
	for (size_t at = 0; at < size; at += piece) {
		if (reply_parser_feed(p, text + at, size - at < piece ? size - at : piece))
			abort();
	}
	if (reply_parser_flush(p))
		abort();
	reply_parser_free(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	for (unsigned k = 0; k < 2 * REPLY_TOOLS_COUNT; k++) {
		const struct reply_options o = {
			.tools = k / 2,
			.reasoning = k % 4 == 1 ? REPLY_THINK : REPLY_NO_REASONING,
			.in_reasoning = k % 8 == 1,
		};
		struct result whole = {0}, pieces = {0};

		parse(&o, (const char *)data, size, size ? size : 1, &whole);
		parse(&o, (const char *)data, size, 1 + k % 3, &pieces);
		for (unsigned i = 0; i < 3; i++) {
			if (whole.parts[i].len != pieces.parts[i].len ||
			    (whole.parts[i].len &&
			     memcmp(whole.parts[i].data, pieces.parts[i].data, whole.parts[i].len)))
				abort();
			free(whole.parts[i].data);
			free(pieces.parts[i].data);
		}
	}
	return 0;
}
