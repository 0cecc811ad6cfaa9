/* SPDX-License-Identifier: MIT */
/* Reads small files as a whole, with a size limit. */
#ifndef TXDA_TOOLS_FILES_H
#define TXDA_TOOLS_FILES_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "error.h"

/*
 * Opens @name below the directory @dirfd (or AT_FDCWD) for reading, as owned_open() does. Returns the
 * fd or -errno.
 */
int tool_open_file(int dirfd, const char *name, struct stat *ret_stat, struct tool_error *error);

/*
 * Reads the file as a whole; *ret is NUL-terminated after @ret_bytes, and the caller frees it.
 * -EFBIG: it is larger than @limit.
 */
int tool_read_file(int dirfd, const char *name, size_t limit, char **ret, size_t *ret_bytes,
		   struct tool_error *error);

/*
 * Identifies a file and its state: if two are equal, the file was not written in between. All
 * members have 64 bits, so there is no padding.
 */
struct file_identity {
	uint64_t dev, inode, owner, bytes, mtime_ns, ctime_ns;
};

struct file_identity tool_identity(const struct stat *st);

/* True for a plain file name: no slash, not empty, not "." or "..". */
int tool_plain_name(const char *name);

#endif /* TXDA_TOOLS_FILES_H */
