/* SPDX-License-Identifier: MIT */
/*
 * Checkpoints in the safetensors format, mapped read-only.
 *
 * A file is a 64-bit little-endian length, that many bytes of JSON ({name: {dtype, shape,
 * data_offsets}}, optional "__metadata__"), then the data. A directory holds model.safetensors or,
 * without that, shards named by model.safetensors.index.json.
 *
 * Everything is checked when it is opened: the header's length and form, known types, shape
 * products, tensors that follow each other without holes or overlaps and fill the file to its end,
 * duplicate names, shards of the index that exist and hold what it says. Errors name the file and
 * the tensor.
 *
 * Headers are private copies. Tensors are mapped, so what lies in them can change at any time: what a
 * caller checks before it relies on it has to be a copy (safetensors_copy()). If somebody truncates
 * a file meanwhile, reading it raises SIGBUS: callers run as processes of their own that may die.
 * The data pointers are valid until safetensors_close() and need not be aligned.
 *
 * Threads: a handle may be read by any number of threads once it is open, copies are made and
 * tensors are marked as used.
 */
#ifndef TXDA_TOOLS_SAFETENSORS_H
#define TXDA_TOOLS_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "files.h"

#define SAFETENSORS_MAX_DIMS   8
#define SAFETENSORS_MAX_HEADER (16u << 20)
#define SAFETENSORS_MAX_FILES  4096

enum safetensors_dtype {
	SAFETENSORS_BOOL,
	SAFETENSORS_U8,
	SAFETENSORS_I8,
	SAFETENSORS_F8_E4M3,
	SAFETENSORS_F8_E5M2,
	SAFETENSORS_F8_E8M0,
	SAFETENSORS_I16,
	SAFETENSORS_U16,
	SAFETENSORS_F16,
	SAFETENSORS_BF16,
	SAFETENSORS_I32,
	SAFETENSORS_U32,
	SAFETENSORS_F32,
	SAFETENSORS_I64,
	SAFETENSORS_U64,
	SAFETENSORS_F64,
	SAFETENSORS_C64,
	SAFETENSORS_DTYPE_COUNT
};

struct safetensors_tensor {
	char *name;
	enum safetensors_dtype dtype;
	unsigned ndim; /* 0: a scalar */
	uint64_t dim[SAFETENSORS_MAX_DIMS];
	uint64_t bytes;
	const void *data; /* mapped */
	void *copy;	  /* NULL: none was requested */
	unsigned file;	  /* index for safetensors_file() */
	bool used;	  /* safetensors_use() or safetensors_copy() returned its data */
};

struct safetensors_file {
	char *name; /* within its directory */
	uint64_t bytes;
	struct file_identity identity; /* when it was opened */
	char *header;		       /* the JSON, a copy */
	uint64_t header_bytes;
	void *map;
	int fd;
};

struct safetensors;

/* Opens the checkpoint in the directory @path. */
int safetensors_open_dir(const char *path, struct safetensors **ret, struct tool_error *error);
int safetensors_open_file(const char *path, struct safetensors **ret, struct tool_error *error);
/* The open file @fd, which belongs to the handle, and is closed on errors; they do not name it. */
int safetensors_open_fd(int fd, const char *name, struct safetensors **ret,
			struct tool_error *error);
void safetensors_close(struct safetensors *st);

const struct safetensors_tensor *safetensors_find(const struct safetensors *st, const char *name);
/* The tensors by name; NULL after the last one. */
const struct safetensors_tensor *safetensors_tensor(const struct safetensors *st, size_t index);
/* The tensor's data, which counts as used then. */
const void *safetensors_use(struct safetensors *st, const struct safetensors_tensor *t);
/* Likewise a private copy of it, made at the first call, owned by the handle. */
int safetensors_copy(struct safetensors *st, const struct safetensors_tensor *t, const void **ret,
		     struct tool_error *error);
/* -ESTALE: the size or times of a file, which is named, have changed since it was opened. */
int safetensors_unchanged(const struct safetensors *st, struct tool_error *error);
unsigned safetensors_files(const struct safetensors *st);
const struct safetensors_file *safetensors_file(const struct safetensors *st, unsigned index);
/* A value of the first file's "__metadata__", or NULL. */
const char *safetensors_metadata(const struct safetensors *st, const char *key);

const char *safetensors_dtype_name(enum safetensors_dtype dtype);
unsigned safetensors_dtype_bytes(enum safetensors_dtype dtype);
/* "[512, 96]" in @buf. Returns buf. */
char *safetensors_shape(unsigned ndim, const uint64_t *dim, char *buf, size_t len);

#endif /* TXDA_TOOLS_SAFETENSORS_H */
