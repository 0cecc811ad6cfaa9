/* SPDX-License-Identifier: MIT */
/* Helpers of the tests of GGUF files: making one in memory, value by value, and opening it. */
#ifndef TXDA_TESTS_GGUF_TEST_H
#define TXDA_TESTS_GGUF_TEST_H

#include "unit.h"
#include "../memory_file.h"
#include "ggml.h"
#include "gguf_model.h"

static struct tool_error error;

/* ---- files, value by value ---- */

struct bytes {
	uint8_t at[1 << 14];
	size_t n;
};

static inline void put(struct bytes *b, const void *data, size_t n)
{
	assert_true(b->n + n <= sizeof(b->at));
	if (n)
		memcpy(b->at + b->n, data, n);
	b->n += n;
}

static inline void put_u32(struct bytes *b, uint32_t v)
{
	put(b, &v, 4);
}

static inline void put_u64(struct bytes *b, uint64_t v)
{
	put(b, &v, 8);
}

static inline void put_text(struct bytes *b, const char *s)
{
	put_u64(b, strlen(s));
	put(b, s, strlen(s));
}

struct file {
	struct bytes keys, tensors, data;
	uint32_t n_keys, n_tensors;
	/* What a lying header says instead; 0: the truth. */
	uint64_t says_keys, says_tensors;
	uint32_t magic, version;
	size_t cut; /* bytes that its end lacks */
};

static inline void key(struct file *f, const char *name, uint32_t type)
{
	put_text(&f->keys, name);
	put_u32(&f->keys, type);
	f->n_keys++;
}

static inline void key_u32(struct file *f, const char *name, uint32_t v)
{
	key(f, name, GGUF_U32);
	put_u32(&f->keys, v);
}

static inline void key_f32(struct file *f, const char *name, float v)
{
	key(f, name, GGUF_F32);
	put(&f->keys, &v, 4);
}

static inline void key_text(struct file *f, const char *name, const char *v)
{
	key(f, name, GGUF_STRING);
	put_text(&f->keys, v);
}

static inline void key_array(struct file *f, const char *name, uint32_t type, uint64_t n)
{
	key(f, name, GGUF_ARRAY);
	put_u32(&f->keys, type);
	put_u64(&f->keys, n);
}

static inline void key_texts(struct file *f, const char *name, const char *const *v, uint64_t n)
{
	key_array(f, name, GGUF_STRING, n);
	for (uint64_t i = 0; i < n; i++)
		put_text(&f->keys, v[i]);
}

/* As it is said, with @bytes of data. */
static inline void tensor(struct file *f, const char *name, uint32_t type, const uint64_t *dim,
			  uint32_t ndim, size_t bytes)
{
	put_text(&f->tensors, name);
	put_u32(&f->tensors, ndim);
	put(&f->tensors, dim, ndim * sizeof(*dim));
	put_u32(&f->tensors, type);
	put_u64(&f->tensors, f->data.n);
	for (size_t i = 0; i < (bytes + 31) / 32 * 32; i++)
		put(&f->data, &(uint8_t){(uint8_t)i}, 1);
	f->n_tensors++;
}

static inline void matrix(struct file *f, const char *name, uint64_t cols, uint64_t rows)
{
	tensor(f, name, GGML_F32, (const uint64_t[]){cols, rows}, rows ? 2 : 1,
	       (size_t)(cols * (rows ? rows : 1) * 4));
}

static inline const struct bytes *whole(const struct file *f)
{
	static struct bytes b;
	static const uint8_t zeros[32];

	b.n = 0;
	put_u32(&b, f->magic ? f->magic : 0x46554747);
	put_u32(&b, f->version ? f->version : 3);
	put_u64(&b, f->says_tensors ? f->says_tensors : f->n_tensors);
	put_u64(&b, f->says_keys ? f->says_keys : f->n_keys);
	put(&b, f->keys.at, f->keys.n);
	put(&b, f->tensors.at, f->tensors.n);
	put(&b, zeros, (32 - b.n % 32) % 32);
	put(&b, f->data.at, f->data.n);
	memset(&error, 0, sizeof(error));
	return &b;
}

static inline int open_file(const struct file *f, struct gguf **ret)
{
	const struct bytes *b = whole(f);

	return gguf_open_fd(memory_file(b->at, b->n - f->cut), "test.gguf", ret, &error);
}

static inline void expect_words(const char *what)
{
	if (!strstr(error.text, what))
		fail_msg("\"%s\" does not say \"%s\"", error.text, what);
}

#endif
