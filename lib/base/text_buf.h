/* SPDX-License-Identifier: MIT */
/* Two growing arrays: bytes, and token ids. Zeroed structs are empty; free() their data. */
#ifndef TXDA_BASE_TEXT_BUF_H
#define TXDA_BASE_TEXT_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "array.h"

struct text_buf {
	char *data;
	size_t len;
	size_t cap;
};

/* Makes room for @more bytes and the NUL of text_buf_end(); false: out of memory. */
static inline bool text_buf_reserve(struct text_buf *buf, size_t more)
{
	return more < buf->cap - buf->len ||
	       (more < SIZE_MAX - buf->len &&
		array_grow(&buf->data, &buf->cap, buf->len + more + 1, 1));
}

static inline bool text_buf_add(struct text_buf *buf, const void *bytes, size_t len)
{
	if (!text_buf_reserve(buf, len))
		return false;
	if (len)
		memcpy(buf->data + buf->len, bytes, len);
	buf->len += len;
	return true;
}

static inline bool text_buf_add_string(struct text_buf *buf, const char *string)
{
	return text_buf_add(buf, string, strlen(string));
}

/* Appends a NUL that does not count as data. */
static inline bool text_buf_end(struct text_buf *buf)
{
	if (!text_buf_reserve(buf, 0))
		return false;
	buf->data[buf->len] = '\0';
	return true;
}

struct id_vec {
	uint32_t *data;
	size_t len;
	size_t cap;
};

/* Makes room for @more ids. */
static inline bool id_vec_reserve(struct id_vec *vec, size_t more)
{
	return more <= vec->cap - vec->len ||
	       (more <= SIZE_MAX - vec->len &&
		array_grow(&vec->data, &vec->cap, vec->len + more, sizeof(*vec->data)));
}

static inline bool id_vec_push(struct id_vec *vec, uint32_t id)
{
	if (!id_vec_reserve(vec, 1))
		return false;
	vec->data[vec->len++] = id;
	return true;
}

#endif
