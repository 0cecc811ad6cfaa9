/* SPDX-License-Identifier: MIT */
/*
 * Files that a client names or passes, read with the client's permissions, not the daemon's.
 *
 * A named one must lie below a directory that the administrator lists. The walk there starts at /,
 * opens each name in the directory before it, follows no symbolic link and, below the listed
 * directory, enters no other file system, so that no user's FUSE can keep a reader waiting. At each
 * step the permission bits must let the client in; nothing is looked at by its path twice. The mode
 * says nothing of a file with an access control list, which only its owner may name.
 *
 * A passed one must be memory (a memfd or a file of a tmpfs): others can keep a reader waiting.
 *
 * Any thread; it may wait for a disk. Errors: -errno with words in err; -EINVAL, -E2BIG, -EACCES,
 * -ENOENT and the like are the client's fault, -ENOMEM is not.
 */
#ifndef TXDA_SERVER_CLIENT_FILE_H
#define TXDA_SERVER_CLIENT_FILE_H

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
/* The size of a passed one, which stays open. */
int client_file_check(int fd, uint64_t max_bytes, uint64_t *ret_bytes, char *err, size_t errlen);
/* Reads all of its @bytes. -EINVAL: it changed meanwhile. */
int client_file_read(int fd, void *to, uint64_t bytes, char *err, size_t errlen);

#endif
