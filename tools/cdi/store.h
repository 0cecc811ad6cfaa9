/* SPDX-License-Identifier: MIT */
/*
 * Keeps a file as the machine is, whoever else does that at the same time.
 *
 * Chips come and go in flocks, and udev tells of each in a process of its own. Nobody waits for a
 * lock, which any user could hold: who has replaced the file looks at the machine again, and
 * replaces it again if that has changed in between. So the last one to write has seen the machine
 * after he wrote, and later changes have their own process.
 */
#ifndef TXDA_CDI_STORE_H
#define TXDA_CDI_STORE_H

#include "error.h"

/* What the file should say, to be freed; *ret_text is NULL when there should be none. 0 or -errno. */
typedef int (*cdi_take)(void *data, char **ret_text, struct tool_error *error);

/*
 * Makes @path say what @take says, in one piece: a new file (mode 0644) takes its place. Its
 * directory is made if need be. Returns 1 when the file is there, 0 when there is none, or -errno.
 */
int cdi_store(const char *path, cdi_take take, void *data, struct tool_error *error);

#endif /* TXDA_CDI_STORE_H */
