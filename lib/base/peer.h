/* SPDX-License-Identifier: MIT */
/* Checks the process at the other end of a Unix socket. */
#ifndef TXDA_BASE_PEER_H
#define TXDA_BASE_PEER_H

/*
 * For a socket @fd connected to @path: in a directory where everybody can create files, such as
 * /tmp, another user's process could listen there and receive the data. So there the listener must
 * belong to root or to this user. 0; -EPERM: it does not; -errno of getsockopt(2).
 */
int peer_check(int fd, const char *path);

#endif
