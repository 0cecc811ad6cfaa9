// SPDX-License-Identifier: MIT
#include "hostcopy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "owned.h"

#define MAX_FILES 8 /* TXDA_MAX_CHIPS_PER_GROUP */

struct hostcopy {
	struct {
		void *memory;
		size_t bytes;
	} files[MAX_FILES];
	unsigned n;
	bool locked;
};

/* Maps a whole file, and reads it in. */
static int add_file(struct hostcopy *c, int dirfd, const char *name, uint64_t most)
{
	struct stat st;
	void *memory;
	char why[400];
	int fd = owned_open(dirfd, name, &st, why, sizeof(why)), error;

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	if (!st.st_size || (uint64_t)st.st_size > most) {
		close(fd);
		return st.st_size ? -EFBIG : 0;
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

int hostcopy_new(const char *case_dir, unsigned tp, uint64_t most, struct hostcopy **ret)
{
	struct hostcopy *c = calloc(1, sizeof(*c));
	int dirfd = open(case_dir, O_PATH | O_DIRECTORY | O_CLOEXEC), error = 0;
	char name[32];

	if (!c || dirfd < 0) {
		error = c ? -errno : -ENOMEM;
		free(c);
		if (dirfd >= 0)
			close(dirfd);
		return error;
	}
	c->locked = true;
	for (unsigned i = 0; i < tp && i < MAX_FILES && !error; i++) {
		snprintf(name, sizeof(name), "chip%u/param.bin", i);
		error = add_file(c, dirfd, name, most);
	}
	close(dirfd);
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
