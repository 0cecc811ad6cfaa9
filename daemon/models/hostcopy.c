// SPDX-License-Identifier: MIT
#include "hostcopy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_FILES 8 /* TXDA_MAX_CHIPS_PER_GROUP */

struct hostcopy {
	struct {
		void *memory;
		size_t bytes;
	} files[MAX_FILES];
	unsigned n;
	bool locked;
};

/* Maps a file whole, and reads it. */
static int add_file(struct hostcopy *c, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	void *memory;
	int error = 0;

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	if (fstat(fd, &st))
		error = -errno;
	if (error || st.st_size <= 0) {
		close(fd);
		return error;
	}
	memory = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
	error = memory == MAP_FAILED ? -errno : 0;
	close(fd);
	if (error)
		return error;
	c->files[c->n].memory = memory;
	c->files[c->n++].bytes = (size_t)st.st_size;
	c->locked = !mlock(memory, (size_t)st.st_size) && c->locked;
	return 0;
}

int hostcopy_new(const char *case_dir, unsigned tp, struct hostcopy **ret)
{
	struct hostcopy *c = calloc(1, sizeof(*c));
	char path[1200];
	int error = 0;

	if (!c)
		return -ENOMEM;
	c->locked = true;
	for (unsigned i = 0; i < tp && i < MAX_FILES && !error; i++) {
		snprintf(path, sizeof(path), "%s/chip%u/param.bin", case_dir, i);
		error = add_file(c, path);
	}
	if (error) {
		hostcopy_free(c);
		return error;
	}
	*ret = c;
	return 0;
}

void hostcopy_free(struct hostcopy *c)
{
	for (unsigned i = 0; c && i < c->n; i++)
		munmap(c->files[i].memory, c->files[i].bytes);
	free(c);
}

uint64_t hostcopy_bytes(const struct hostcopy *c)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < c->n; i++)
		bytes += c->files[i].bytes;
	return bytes;
}

bool hostcopy_locked(const struct hostcopy *c)
{
	return c->locked;
}
