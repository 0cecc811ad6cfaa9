// SPDX-License-Identifier: MIT
/*
 * Reads files of a case dir. They may be replaced or truncated during the read, so every check
 * applies to the data that was read.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "case_file.h"
#include "internal.h"
#include "io.h"
#include "owned.h"
#include "set_error.h"

_Static_assert(CASE_MAX_CHIPS == TXDA_MAX_CHIPS_PER_GROUP, "as many chips as a group has");

static int open_file(int dir_fd, const char *name, int *ret_fd, uint64_t *ret_bytes, char *err,
		     size_t errlen)
{
	struct stat st;
	char why[400];
	int fd = owned_open(dir_fd, name, &st, why, sizeof(why));

	if (fd < 0)
		return set_error(fd, err, errlen, "%s", why);
	*ret_fd = fd;
	*ret_bytes = (uint64_t)st.st_size;
	return 0;
}

int txda__case_file(int dir_fd, const char *name, uint64_t bytes, int *ret_fd, char *err,
		    size_t errlen)
{
	uint64_t size;
	int fd, r;

	r = open_file(dir_fd, name, &fd, &size, err, errlen);
	if (r < 0)
		return r;
	if (size != bytes) {
		close(fd);
		return set_error(-EINVAL, err, errlen,
				 "%s has %llu bytes; model_info.json says %llu", name,
				 (unsigned long long)size, (unsigned long long)bytes);
	}
	*ret_fd = fd;
	return 0;
}

/* Reads @bytes of an open file and closes it. */
static int read_and_close(int fd, const char *name, uint64_t bytes, void **ret_data, char *err,
			  size_t errlen)
{
	void *data = aligned_alloc(64, txda__align(bytes ? bytes : 1, 64));
	int r = data ? io_read_all(fd, data, bytes) : -ENOMEM;

	close(fd);
	/* As for those who read a part of a file. */
	r = r == -EPIPE ? -ENODATA : r;
	if (r < 0) {
		free(data);
		return set_error(r, err, errlen, "%s: %s", name,
				 r == -ENODATA ? "it became shorter" : strerror(-r));
	}
	*ret_data = data;
	return 0;
}

int txda__case_read(int dir_fd, const char *name, uint64_t bytes, uint64_t max, void **ret_data,
		    char *err, size_t errlen)
{
	int fd, r;

	if (bytes > max)
		return set_error(-EFBIG, err, errlen, "%s has %llu bytes; the limit is %llu", name,
				 (unsigned long long)bytes, (unsigned long long)max);
	r = txda__case_file(dir_fd, name, bytes, &fd, err, errlen);
	return r < 0 ? r : read_and_close(fd, name, bytes, ret_data, err, errlen);
}

int txda__case_open(const char *path, int *ret_dir_fd, struct case_info *ret_case, char *err,
		    size_t errlen)
{
	int dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), r;
	struct case_said *said;

	if (dir_fd < 0)
		return set_error(-errno, err, errlen, "%s", strerror(errno));
	said = malloc(sizeof(*said));
	r = said ? case_said_read(dir_fd, said, err, errlen)
		 : set_error(-ENOMEM, err, errlen, "out of memory");
	if (!r && said->error)
		r = set_error(said->error, err, errlen, "%s", said->message);
	if (r < 0) {
		close(dir_fd);
	} else {
		*ret_case = said->info;
		*ret_dir_fd = dir_fd;
	}
	free(said);
	return r;
}
