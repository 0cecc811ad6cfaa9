// SPDX-License-Identifier: MIT
#include "fake_weights.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct txda_weights {
	struct txda_weights *next;
	struct txda_device *device;
	struct txda_weights_info info;
	int fd;
	unsigned refs;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct txda_weights *all;
void (*fake_weights_taken)(struct txda_device *device, int64_t bytes);
uint64_t fake_weights_memory_id;

/* What stands for the file of a rank. */
static uint64_t inode_of(const char *path, unsigned rank)
{
	uint64_t hash = 14695981039346656037ull + rank;
	char changed[2048];

	for (const char *p = path; *p; p++)
		hash = (hash ^ (unsigned char)*p) * 1099511628211ull;
	snprintf(changed, sizeof(changed), "%s/changed", path);
	return access(changed, F_OK) ? hash : ~hash;
}

/* Locked. */
static struct txda_weights *find(struct txda_device *device, uint64_t inode)
{
	struct txda_weights *w = all;

	while (w && (w->device != device || w->info.file_inode != inode))
		w = w->next;
	return w;
}

static struct txda_weights *add(struct txda_device *device, const struct txda_weights_info *info,
				int fd)
{
	struct txda_weights *w = calloc(1, sizeof(*w));

	if (!w)
		abort();
	*w = (struct txda_weights){
		.next = all, .device = device, .info = *info, .fd = fd, .refs = 1};
	all = w;
	return w;
}

int fake_weights_of(const char *path, struct txda_device *device, unsigned rank, uint64_t bytes,
		    struct txda_weights **ret)
{
	struct txda_weights_info info = {.bytes = bytes,
					 .crc32c = 42,
					 .file_inode = inode_of(path, rank),
					 .memory_id = fake_weights_memory_id};
	struct txda_weights *w;
	int fd;

	pthread_mutex_lock(&lock);
	w = find(device, info.file_inode);
	if (w) {
		w->refs++;
	} else {
		fd = memfd_create("fake weights", MFD_CLOEXEC);
		if (fd < 0 || ftruncate(fd, (off_t)bytes))
			abort();
		w = add(device, &info, fd);
	}
	pthread_mutex_unlock(&lock);
	*ret = w;
	return 0;
}

unsigned fake_weights_live(void)
{
	unsigned n = 0;

	pthread_mutex_lock(&lock);
	for (struct txda_weights *w = all; w; w = w->next)
		n++;
	pthread_mutex_unlock(&lock);
	return n;
}

int txda_weights_import(struct txda_device *device, int fd, const struct txda_weights_info *info,
			struct txda_weights **ret_weights)
{
	struct txda_weights_info i = *info;
	int error = 0;
	struct stat st;

	pthread_mutex_lock(&lock);
	if (fstat(fd, &st) || (uint64_t)st.st_size != info->bytes)
		error = -EINVAL;
	else if (info->memory_id != fake_weights_memory_id)
		error = -ESTALE;
	else if (find(device, info->file_inode))
		error = -EEXIST;
	i.imported = true;
	if (!error)
		*ret_weights = add(device, &i, fcntl(fd, F_DUPFD_CLOEXEC, 3));
	pthread_mutex_unlock(&lock);
	if (!error && fake_weights_taken)
		fake_weights_taken(device, (int64_t)info->bytes);
	return error;
}

int txda_weights_export(struct txda_weights *weights, int *ret_fd)
{
	*ret_fd = fcntl(weights->fd, F_DUPFD_CLOEXEC, 3);
	return *ret_fd < 0 ? -errno : 0;
}

int txda_weights_info(struct txda_weights *weights, struct txda_weights_info *ret_info)
{
	size_t size = ret_info->size;

	*ret_info = weights->info;
	ret_info->size = size;
	return 0;
}

int txda_weights_check(struct txda_weights *weights, const char *path, unsigned rank)
{
	return weights->info.file_inode == inode_of(path, rank) &&
			       weights->info.memory_id == fake_weights_memory_id
		       ? 0
		       : -ESTALE;
}

struct txda_weights *txda_weights_ref(struct txda_weights *weights)
{
	pthread_mutex_lock(&lock);
	weights->refs++;
	pthread_mutex_unlock(&lock);
	return weights;
}

struct txda_weights *txda_weights_unref(struct txda_weights *weights)
{
	struct txda_weights **at = &all;
	bool last;

	if (!weights)
		return NULL;
	pthread_mutex_lock(&lock);
	last = --weights->refs == 0;
	while (last && *at != weights)
		at = &(*at)->next;
	if (last)
		*at = weights->next;
	pthread_mutex_unlock(&lock);
	if (last) {
		if (fake_weights_taken && weights->info.imported)
			fake_weights_taken(weights->device, -(int64_t)weights->info.bytes);
		close(weights->fd);
		free(weights);
	}
	return NULL;
}
