/* SPDX-License-Identifier: MIT */
/*
 * A client may shrink a file after it has given it to the server. Touching what is missing is then
 * a SIGBUS, at any place of the model. The handler puts a page of zeros there, private to the
 * server, and the work goes on: the client has taken away memory that it had lent, and reads and
 * writes of that memory are lost. Other errors of memory end the process as ever.
 *
 * Files that are sealed against shrinking, as QEMU's memfds are, cannot do that.
 *
 * The handler is the process's own, so a program installs it, not the library.
 */
#ifndef VU_SIGBUS_H
#define VU_SIGBUS_H

int vu_sigbus_install(void); /* 0 or -errno */

#endif /* VU_SIGBUS_H */
