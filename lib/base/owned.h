/* SPDX-License-Identifier: MIT */
/*
 * Files of a directory that somebody else may have written, as sshd's StrictModes has it: whoever
 * owns the directory decides what is read from it, with the rights of the process that reads, so a
 * file counts only if it is the owner's own, or root's and for everybody to read. Links are
 * followed, as checkpoint caches are made of them, but what they lead to must be such a file.
 * Devices, FIFOs and sockets are refused; none is opened, and none blocks.
 */
#ifndef TXDA_BASE_OWNED_H
#define TXDA_BASE_OWNED_H

#include <stddef.h>
#include <sys/stat.h>

/*
 * Whether what @st describes may be read on behalf of @owner; @what names it in @err. Root's
 * directories may also hold what belongs to the user of this process. -EPERM
 */
int owned_check(const struct stat *st, uid_t owner, const char *what, char *err, size_t errlen);

/*
 * Opens the regular file @name below the directory @dirfd for reading; with AT_FDCWD whoever owns
 * it. A descriptor and *ret_stat, or -errno: those of open(2), -EINVAL if it is not a regular file,
 * -EPERM if it is another's. @err has no name of the directory.
 */
int owned_open(int dirfd, const char *name, struct stat *ret_stat, char *err, size_t errlen);
/*
 * Opens such a file and reads it whole; *ret is NUL-terminated beyond @ret_bytes and the caller frees
 * it. -EFBIG: it has more than @limit bytes. -EIO: it became shorter.
 */
int owned_read(int dirfd, const char *name, size_t limit, char **ret, size_t *ret_bytes,
	       struct stat *ret_stat, char *err, size_t errlen);
/* The same of a path, whose directory's owner counts; @err names the path. */
int owned_read_path(const char *path, size_t limit, char **ret, size_t *ret_bytes, char *err,
		    size_t errlen);

/*
 * From now on whatever is read whole goes into *@h, too, each with its length in front; NULL: no
 * more. For processes of one thread.
 */
struct sha256;
void owned_watch(struct sha256 *h);

/*
 * Whether every link on the way @path, however it leads on, may stand there on behalf of @owner, who
 * owns what is at its end: else whoever owns a link shows another's model as his own. -EPERM, or why
 * the way cannot be gone.
 */
int owned_links(const char *path, uid_t owner, char *err, size_t errlen);

#endif
