/* SPDX-License-Identifier: MIT */
/*
 * Files that a client names or passes, read with the client's permissions, not the daemon's.
 *
 * A named file must lie below a directory that the administrator lists. The path is walked from /,
 * each component relative to the one before it, without following symbolic links and, below the
 * listed directory, without crossing into another file system, so that no user's FUSE file system
 * can block a reader. At each step the permission bits must grant the client access; no path is
 * looked up twice. The mode bits do not describe a file with an access control list, so only its
 * owner may name such a file.
 *
 * A passed file must be memory (a memfd or a file on a tmpfs): others can block a reader.
 *
 * Any thread; may block on disk I/O. Errors: -errno with the message in err; -EINVAL, -E2BIG,
 * -EACCES, -ENOENT and the like are the client's fault, -ENOMEM is not.
 */
#ifndef TXDA_REQUEST_CLIENT_FILE_H
#define TXDA_REQUEST_CLIENT_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "identity.h"

/*
 * Opens the regular file @path, absolute, below one of @dirs. *ret_bytes: its size, @max_bytes at
 * most, at least 1.
 */
int client_file_open(char *const *dirs, unsigned n_dirs, const char *path,
		     const struct identity *who, uint64_t max_bytes, int *ret_fd,
		     uint64_t *ret_bytes, char *err, size_t errlen);
/* The size of a passed file, which stays open. */
int client_file_check(int fd, uint64_t max_bytes, uint64_t *ret_bytes, char *err, size_t errlen);
/* Reads all @bytes of it. -EINVAL: it changed meanwhile. */
int client_file_read(int fd, void *to, uint64_t bytes, char *err, size_t errlen);

#endif
