/* SPDX-License-Identifier: MIT */
/*
 * GGUF files: metadata (keys with typed values), tensors in blocks (ggml.h), in one file.
 *
 * Everything is checked when a file is opened: its version, counts, lengths of names and arrays
 * against the file's size, known types, shapes and their products, the alignment and order of
 * tensors and that they end within the file, duplicate names. Errors name the value and the limit.
 *
 * The header (everything but the tensors' data) is a private copy; data is mapped and can change at
 * any time, or raise SIGBUS if the file is truncated: callers must be separate processes that may
 * die.
 *
 * Threads: a handle may be read by any number of threads.
 */
#ifndef TXDA_COMPILE_GGUF_H
#define TXDA_COMPILE_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "files.h"

#define GGUF_MAX_DIMS	 4
#define GGUF_MAX_HEADER	 (128u << 20)
#define GGUF_MAX_KEYS	 65536u
#define GGUF_MAX_TENSORS 65536u
#define GGUF_MAX_NAME	 256u

enum gguf_type {
	GGUF_U8,
	GGUF_I8,
	GGUF_U16,
	GGUF_I16,
	GGUF_U32,
	GGUF_I32,
	GGUF_F32,
	GGUF_BOOL,
	GGUF_STRING,
	GGUF_ARRAY,
	GGUF_U64,
	GGUF_I64,
	GGUF_F64,
	GGUF_TYPES
};

struct gguf_tensor {
	char *name;
	uint32_t type; /* of ggml.h, a known one */
	/* Fastest-varying dimension first; 1 beyond the tensor's own dimensions. */
	uint64_t dim[GGUF_MAX_DIMS];
	uint64_t offset, bytes; /* relative to the start of data */
	const uint8_t *data;	/* mapped */
};

struct gguf_value {
	enum gguf_type type; /* of each element, for an array */
	bool array;
	uint64_t n;	   /* elements; 1 if it is not an array */
	const uint8_t *at; /* in the private copy */
};

struct gguf_text {
	const char *text; /* not NUL-terminated */
	uint64_t bytes;
};

struct gguf;

/* Below the directory @dirfd, with the checks of owned_open(). */
int gguf_open(int dirfd, const char *name, struct gguf **ret, struct tool_error *error);
/* The open file @fd, which belongs to the handle, and is closed on errors; they do not name it. */
int gguf_open_fd(int fd, const char *name, struct gguf **ret, struct tool_error *error);
void gguf_close(struct gguf *g);

/* In the file's order, NULL after the last one. */
const struct gguf_tensor *gguf_at(const struct gguf *g, size_t index);

/* NULL: there is no such key. */
const struct gguf_value *gguf_get(const struct gguf *g, const char *key);
/* A number or a boolean as a double: element @index of @v, which is of such a type. */
double gguf_number(const struct gguf_value *v, uint64_t index);
/* Returns the first string of a value of strings and removes it from the value. */
struct gguf_text gguf_next_text(struct gguf_value *v);
/*
 * The string value of @key, valid UTF-8 without NUL inside, for free(); NULL if there is no such
 * key.
 */
int gguf_string(const struct gguf *g, const char *key, char **ret, struct tool_error *error);
/* Whether all of it is UTF-8 without NUL, as required in JSON. */
bool gguf_is_text(struct gguf_text text);

/* As passed when it was opened. */
const char *gguf_name(const struct gguf *g);
/* The file's identity when it was opened, and its header. */
const struct file_identity *gguf_identity(const struct gguf *g);
const void *gguf_header(const struct gguf *g, size_t *ret_bytes);
/* The whole file as it is now. */
const void *gguf_map(const struct gguf *g, uint64_t *ret_bytes);
/* -ESTALE: the file's size or times have changed since. */
int gguf_unchanged(const struct gguf *g, struct tool_error *error);

#endif /* TXDA_COMPILE_GGUF_H */
