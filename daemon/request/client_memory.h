/* SPDX-License-Identifier: MIT */
/*
 * Memory passed by a client as a descriptor: a memfd (or another file of a tmpfs, as created by
 * shm_open()), or a dma-buf.
 *
 * The client may do anything to it at any time: write, shrink it, punch holes, unplug the device
 * behind it. So the mapping is never accessed by loads and stores, which would raise SIGBUS, but
 * through the kernel (process_vm_readv(2) on ourselves), which returns -EFAULT. Files that can
 * block a reader (FUSE, network, disk) are refused before any of their operations is called. Data
 * is read only once. Nothing here allocates pages of a client's file, which would be charged to the
 * daemon as long as the client keeps it: holes in memory to be written are errors.
 *
 * Between client_memory_open() and client_memory_end() CPU access to a dma-buf is active, as
 * DMA_BUF_IOCTL_SYNC requires.
 *
 * Errors: -errno, message in err; -EINVAL: the client's mistake; -ENOTSUP: the system does not allow
 * process_vm_readv(2). One thread at a time.
 */
#ifndef TXDA_REQUEST_CLIENT_MEMORY_H
#define TXDA_REQUEST_CLIENT_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct client_memory {
	int fd; /* borrowed */
	bool dma_buf, writable;
	bool begun; /* DMA_BUF_SYNC_START was called */
	char *map;  /* NULL: not open */
	size_t map_len;
	char *data; /* [len] within the mapping */
	size_t len;
	/* identity of the memory */
	dev_t dev;
	ino_t ino;
	uint64_t offset;
};

/* Call before the first one is opened: finds out what the system allows. */
void client_memory_start(void);
/*
 * Maps @len bytes at @offset. With @writable their pages are faulted in, too, which takes a while;
 * they must be allocated (-EINVAL), as pages allocated by the daemon would be charged to it. The
 * caller unmaps map[0 .. map_len) at the end.
 */
int client_memory_open(int fd, uint64_t offset, uint64_t len, bool writable,
		       struct client_memory *ret, char *err, size_t errlen);
/* -EFAULT: the memory does not exist (any more). @at + @len must be within the range. */
int client_memory_read(const struct client_memory *m, size_t at, void *to, size_t len);
int client_memory_write(const struct client_memory *m, size_t at, const void *from, size_t len);
/* Whether two open memories overlap. */
bool client_memory_overlap(const struct client_memory *a, const struct client_memory *b);
/* Ends CPU access; call before replying. */
void client_memory_end(struct client_memory *m);

#endif
