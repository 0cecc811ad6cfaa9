/* SPDX-License-Identifier: MIT */
/* Whether the process behind a Unix socket is the one that is meant. */
#ifndef TXDA_BASE_PEER_H
#define TXDA_BASE_PEER_H

/*
 * Of a socket @fd that was connected to @path: where anybody may make files, as in /tmp, anybody may
 * have been there first and would see what is sent. So the one who listens must be root or this
 * user there. 0; -EPERM: it is somebody else; -errno of getsockopt(2).
 */
int peer_check(int fd, const char *path);

#endif
