/* SPDX-License-Identifier: MIT */
/*
 * Reads files of a directory that may belong to another user, similar to sshd's StrictModes. The
 * directory's owner decides what is read from it with the rights of the reading process, so a file
 * is accepted only if it belongs to that owner, or to root and is readable by everybody. Symbolic
 * links are followed, as checkpoint caches consist of them, but their targets must be such files.
 * Devices, FIFOs and sockets are refused without being opened, so none can block.
 */
#ifndef TXDA_BASE_OWNED_H
#define TXDA_BASE_OWNED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

/*
 * Whether the file described by @st may be read on behalf of @owner; @what names it in @err. Root's
 * directories may also contain files of this process's user. -EPERM
 */
int owned_check(const struct stat *st, uid_t owner, const char *what, char *err, size_t errlen);

/*
 * Opens the regular file @name below the directory @dirfd for reading; with AT_FDCWD any owner is
 * accepted. Returns a descriptor and *ret_stat, or -errno: those of open(2), -EINVAL if it is not a
 * regular file or only a Git LFS pointer to one, -EPERM if the owner is not acceptable. @err does
 * not name the directory.
 */
int owned_open(int dirfd, const char *name, struct stat *ret_stat, char *err, size_t errlen);
/*
 * Opens such a file and reads all of it; *ret is NUL-terminated after @ret_bytes, and the caller
 * frees it. -EFBIG: it has more than @limit bytes. -EIO: it was truncated meanwhile.
 */
int owned_read(int dirfd, const char *name, size_t limit, char **ret, size_t *ret_bytes,
	       struct stat *ret_stat, char *err, size_t errlen);
/* The same for a path, checked against the owner of its directory; @err names the path. */
int owned_read_path(const char *path, size_t limit, char **ret, size_t *ret_bytes, char *err,
		    size_t errlen);

/*
 * From now on the contents of files read by these functions are also added to *@h, each preceded by
 * its length; NULL ends this. For single-threaded processes.
 */
struct sha256;
void owned_watch(struct sha256 *h);

/*
 * Whether @dir has a file of that name: 1 if it can be read, 0 if there is none. A file that cannot
 * be read, or a link to none, is an error: -errno, and @err names it.
 */
int owned_find(const char *dir, const char *name, char *err, size_t errlen);

/*
 * Whether every symbolic link on @path, including links in their targets, belongs to @owner, the
 * owner of the final target, or to root: otherwise the owner of a link could present another user's
 * model as theirs. -EPERM, or the error of resolving the path.
 */
int owned_links(const char *path, uid_t owner, char *err, size_t errlen);

#endif
