/* SPDX-License-Identifier: MIT */
/*
 * Keeps a file consistent with the machine's chips while other processes do the same.
 *
 * Chips appear and disappear together, and udev starts a process for each of them. There is no
 * lock, since any user could hold it: a process that has replaced the file examines the machine
 * again, and replaces the file again if the machine has changed meanwhile. So the last writer has
 * examined the machine after its write, and later changes have processes of their own.
 */
#ifndef TXDA_CDI_STORE_H
#define TXDA_CDI_STORE_H

#include "error.h"

/*
 * The required contents of the file, freed by the caller; *ret_text is NULL if there should be
 * none. 0 or -errno.
 */
typedef int (*cdi_take)(void *data, char **ret_text, struct tool_error *error);

/*
 * Gives @path the contents from @take atomically: it is replaced by a new file (mode 0644). Creates
 * its directory if necessary. Returns 1 if there is a file now, 0 if not, or -errno.
 */
int cdi_store(const char *path, cdi_take take, void *data, struct tool_error *error);

#endif /* TXDA_CDI_STORE_H */
