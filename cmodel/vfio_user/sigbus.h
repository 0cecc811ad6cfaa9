/* SPDX-License-Identifier: MIT */
/*
 * Handles clients that shrink a file after passing it to the server.
 *
 * Access to the missing part raises SIGBUS, anywhere in the model. The handler maps a private page
 * of zeros there, and the work continues: accesses to memory that the client has removed have no
 * effect. Other memory errors end the process as usual. Files that are sealed against shrinking, as
 * QEMU's memfds are, do not have this problem.
 *
 * Signal handlers belong to the process, so the program installs it, not the library.
 */
#ifndef VU_SIGBUS_H
#define VU_SIGBUS_H

int vu_sigbus_install(void); /* 0 or -errno */

#endif /* VU_SIGBUS_H */
