/* SPDX-License-Identifier: MIT */
/* Two growing arrays: bytes, and token ids. Zeroed structs are empty; free() their data. */
#ifndef TXDA_BASE_TEXT_BUF_H
#define TXDA_BASE_TEXT_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct text_buf {
	char *data;
	size_t len;
	size_t cap;
};

/* Makes room for @more bytes and the NUL of text_buf_end(); false: out of memory. */
static inline bool text_buf_reserve(struct text_buf *buf, size_t more)
{
	size_t cap = buf->cap ? buf->cap : 64;
	char *data;

	if (more < buf->cap - buf->len)
		return true;
	if (more > SIZE_MAX / 4 - buf->len)
		return false;
	while (cap <= buf->len + more)
		cap *= 2;
	data = realloc(buf->data, cap);
	if (!data)
		return false;
	buf->data = data;
	buf->cap = cap;
	return true;
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

bool id_vec_grow(struct id_vec *vec, size_t more);

static inline bool id_vec_push(struct id_vec *vec, uint32_t id)
{
	if (vec->len == vec->cap && !id_vec_grow(vec, 1))
		return false;
	vec->data[vec->len++] = id;
	return true;
}

#endif
