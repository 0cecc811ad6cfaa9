/* SPDX-License-Identifier: MIT */
/*
 * Memory that a client passed as a descriptor: a memfd (or another file of a tmpfs, as shm_open()
 * makes them), or a dma-buf.
 *
 * The client may do anything to it at any time: write, shrink it, punch holes, unplug the device
 * behind it. So the mapping is never touched by loads and stores, which would end in SIGBUS, but by
 * the kernel on our behalf (process_vm_readv(2) with ourselves), which says -EFAULT. Files that can
 * keep a reader waiting (FUSE, network, disk) are refused before anything of theirs is called.
 * What is read is read once. Nothing here makes pages of a client's file, which would be charged to
 * the daemon as long as the client keeps it: holes in what is to be written are errors.
 *
 * Between client_memory_open() and client_memory_end() a dma-buf is open for the CPU, as
 * DMA_BUF_IOCTL_SYNC asks for.
 *
 * Errors: -errno, words in err; -EINVAL: the client's fault. One thread at a time.
 */
#ifndef TXDA_SERVER_CLIENT_MEMORY_H
#define TXDA_SERVER_CLIENT_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct client_memory {
	int fd; /* borrowed */
	bool dma_buf, writable;
	bool begun; /* DMA_BUF_SYNC_START was said */
	char *map;  /* NULL: not open */
	size_t map_len;
	char *data; /* [len] within the mapping */
	size_t len;
	/* which memory it is */
	dev_t dev;
	ino_t ino;
	uint64_t offset;
};

/* Before the first one is opened: prepares for holes. */
void client_memory_start(void);
/*
 * Maps @len bytes at @offset. With @writable their pages are mapped, too, which takes a while; they
 * must be there (-EINVAL): made by the daemon they would be charged to it. The caller unmaps map[0
 * .. map_len) when all is over.
 */
int client_memory_open(int fd, uint64_t offset, uint64_t len, bool writable,
		       struct client_memory *ret, char *err, size_t errlen);
/* -EFAULT: the memory is not there (any more). @at + @len is within the range. */
int client_memory_read(const struct client_memory *m, size_t at, void *to, size_t len);
int client_memory_write(const struct client_memory *m, size_t at, const void *from, size_t len);
/* Whether two open ones have bytes in common. */
bool client_memory_overlap(const struct client_memory *a, const struct client_memory *b);
/* The CPU has done; before the client is told. */
void client_memory_end(struct client_memory *m);

#endif
