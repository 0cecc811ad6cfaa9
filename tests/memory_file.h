/* SPDX-License-Identifier: MIT */
/* Bytes as an open file, for functions that map files. */
#ifndef TXDA_TESTS_MEMORY_FILE_H
#define TXDA_TESTS_MEMORY_FILE_H

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Returns a descriptor, which the caller closes or passes on. */
static inline int memory_file(const void *data, size_t bytes)
{
	int fd = memfd_create("file", MFD_CLOEXEC);

	if (fd < 0 || write(fd, data, bytes) != (ssize_t)bytes)
		abort();
	return fd;
}

#endif
