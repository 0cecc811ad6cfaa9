/* SPDX-License-Identifier: MIT */
/*
 * Reads a file that holds secrets, if nobody but root and the daemon's user can read or change it.
 *
 * As sshd's StrictModes has it: the file is a regular one that belongs to root or the daemon's user,
 * without any access for group and others; each directory that leads to it belongs to one of the
 * two, and others can write into it only if it is sticky. Nothing on the way is a symbolic link. The
 * path is walked and the file opened once, and what is checked is what was opened, so that nothing
 * can be exchanged in between.
 *
 * One exception: files of $CREDENTIALS_DIRECTORY may be readable for their group. systemd lets the
 * unit's user in by an ACL, and its mask appears there; nobody else can enter that directory.
 *
 * Any thread.
 */
#ifndef TXDA_SERVER_SECURE_FILE_H
#define TXDA_SERVER_SECURE_FILE_H

#include <stddef.h>

/*
 * The whole file, @max bytes at most, with a NUL behind it; secure_file_free() wipes and frees it.
 * -EPERM: somebody else has access; -EFBIG; -EINVAL: no regular file; -ELOOP; what open(2) says. The
 * words are in err.
 */
int secure_file_read(const char *path, size_t max, char **ret, size_t *ret_len, char *err,
		     size_t errlen);
/* NULL is accepted. */
void secure_file_free(char *text, size_t len);

#endif
