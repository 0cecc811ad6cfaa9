/* SPDX-License-Identifier: MIT */
/* Finds programs that are installed with this one. Threads: any. */
#ifndef TXDA_BASE_PROGRAM_H
#define TXDA_BASE_PROGRAM_H

#include <stddef.h>

/* Finds a program beside this executable, or in PATH. -ENOENT. */
int program_find(const char *name, char *path, size_t len);

#endif
