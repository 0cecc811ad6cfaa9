// SPDX-License-Identifier: MIT
#include "cache_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache_sweep.h"

#define TRIES 8

/* A descriptor that holds its lock; -1: a sweep of somebody else was faster, or errno. */
static int hold(const char *path)
{
	struct stat here, there;
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return -1;
	if (!flock(fd, LOCK_EX | LOCK_NB) && !fstat(fd, &here) && !stat(path, &there) &&
	    here.st_ino == there.st_ino && here.st_dev == there.st_dev)
		return fd;
	close(fd);
	return -1;
}

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
		*ret_lock = hold(path);
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
