/* SPDX-License-Identifier: MIT */
/*
 * Reads a file that contains secrets, if only root and the daemon's user can read or change it.
 *
 * Like sshd's StrictModes: it must be a regular file that belongs to root or the daemon's user,
 * without any access for group and others; each directory on the path must belong to one of the
 * two, and may be writable by others only if it is sticky. No component may be a symbolic link. The
 * path is walked and the file opened once, and the checks use the opened descriptors, so that
 * nothing can be exchanged in between.
 *
 * One exception: files in $CREDENTIALS_DIRECTORY may be group-readable. systemd grants the unit's
 * user access by an ACL, whose mask appears as group permission; nobody else can enter that
 * directory.
 *
 * Any thread.
 */
#ifndef TXDA_ACCESS_SECURE_FILE_H
#define TXDA_ACCESS_SECURE_FILE_H

#include <stddef.h>

/*
 * The whole file, at most @max bytes, NUL-terminated; secure_file_free() wipes and frees it.
 * -EPERM: somebody else has access; -EFBIG; -EINVAL: not a regular file; -ELOOP; errors of open(2).
 * The message is in err.
 */
int secure_file_read(const char *path, size_t max, char **ret, size_t *ret_len, char *err,
		     size_t errlen);
/* NULL is accepted. */
void secure_file_free(char *text, size_t len);

#endif
