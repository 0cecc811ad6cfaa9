/* SPDX-License-Identifier: MIT */
/*
 * One streamed answer of the server: HTTP head, chunked coding, server-sent events. Of an event
 * only whether it has text is used, and of the last one the counts.
 */
#ifndef TXDA_BENCH_SERVE_STREAM_H
#define TXDA_BENCH_SERVE_STREAM_H

#include <stdbool.h>
#include <stddef.h>

struct stream {
	int fd;
	int status;					      /* of HTTP, 0: not read yet */
	bool done;					      /* [DONE] was seen */
	unsigned prompt_tokens, cached_tokens, output_tokens; /* 0 until the server reports it */

	/* its own */
	bool keep_answer, chunked, in_head;
	size_t chunk_left; /* bytes of the chunk that is being read */
	int chunk_state;   /* see serve_stream.c */
	char *line;	   /* the line that is being read */
	size_t n_line, cap_line;
	char *answer; /* escaped as in JSON */
	size_t n_answer, cap_answer;
	char body[256]; /* the beginning of what is not an event, for messages */
};

/* Takes over @fd (below 0: the request failed). Buffers of the previous answer are reused. */
void stream_open(struct stream *s, int fd, bool keep_answer);
void stream_close(struct stream *s);
void stream_free(struct stream *s);

/*
 * Reads available data; *ret_events: the number of events with text. False: the answer has ended.
 */
bool stream_read(struct stream *s, unsigned *ret_events);
const char *stream_answer(const struct stream *s);
const char *stream_body(const struct stream *s);

#endif
