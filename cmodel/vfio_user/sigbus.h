/* SPDX-License-Identifier: MIT */
/*
 * Clients that shrink a file after they have given it to the server.
 *
 * Touching the missing part is a SIGBUS, anywhere in the model. The handler maps a page of zeros
 * there, private to the server, and the work goes on: reads and writes of memory that the client
 * has taken away are lost. Other memory errors end the process as usual. Files that are sealed
 * against shrinking, as QEMU's memfds are, do not have this problem.
 *
 * The handler is the process's own, so a program installs it, not the library.
 */
#ifndef VU_SIGBUS_H
#define VU_SIGBUS_H

int vu_sigbus_install(void); /* 0 or -errno */

#endif /* VU_SIGBUS_H */
