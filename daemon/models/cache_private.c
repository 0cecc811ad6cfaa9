// SPDX-License-Identifier: MIT
#include "cache_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "cache_sweep.h"

#define TRIES 8

int cache_private_new(char *path, size_t len, int *ret_lock, char *err, size_t errlen)
{
	size_t n = strlen(path);
	int error = ENAMETOOLONG;

	for (unsigned i = 0; i < TRIES; i++) {
		if ((size_t)snprintf(path + n, len - n, "/%sXXXXXX", CACHE_PRIVATE) >= len - n)
			break;
		if (!mkdtemp(path)) {
			error = errno;
			break;
		}
		/* Another process's sweep may remove it first. */
		*ret_lock = cache_try_lock(AT_FDCWD, path, O_RDONLY | O_DIRECTORY, LOCK_EX);
		if (*ret_lock >= 0)
			return 0;
		error = errno;
	}
	path[n] = '\0';
	snprintf(err, errlen, "cannot make a private directory in %s: %s", path, strerror(error));
	return -error;
}

void cache_private_remove(const char *path, int lock)
{
	cache_remove_tree(path);
	close(lock);
}
