/* SPDX-License-Identifier: MIT */
/*
 * Buffers: memory bound at an address of one chip's address space.
 *
 * Each buffer is followed by an unmapped page, so that an access past its end faults instead of
 * reaching the next buffer. Large buffers start at 2 MiB boundaries so that large pages can map
 * them.
 * Ownership: a buffer holds a reference to its context.
 * Threads: constant once created, except for the contents and whether it is idle; callers
 * synchronise access to both.
 */
#ifndef TXDA_BUFFER_H
#define TXDA_BUFFER_H

#include "context.h"

struct txda_buffer {
	atomic_uint refs;
	struct txda_device *device;
	struct txda__space *space; /* a reference */
	struct txda__mem *mem;
	uint64_t bytes; /* requested size */
	uint64_t room;	/* rounded up to pages */
	uint64_t va;
	struct txda__range *range; /* with the page behind it */
	bool read_only;		   /* for the device */
	bool sealed;		   /* imported so, and read-only for the host, too */
	bool idle;		   /* see txda_buffer_advise() */
	bool dropped;		   /* its contents were, since it became idle */
};

/* Like txda_buffer_new(), with @flags TXDA__MEM_*; @read_only applies to the device. */
int txda__buffer_new(struct txda_device *device, uint64_t bytes, enum txda_memory memory,
		     bool read_only, unsigned flags, struct txda_buffer **ret_buffer);
/*
 * Imports memory from an fd into @space, with TXDA__IMPORT_*; @bytes 0: all of it, else it must
 * match (rounded up to pages), or -EINVAL.
 */
int txda__buffer_import(struct txda_device *device, struct txda__space *space, int fd,
			uint64_t bytes, unsigned flags, struct txda_buffer **ret_buffer);
/* -ENODEV unless it is in @space: the chip was reset between the two. */
int txda__buffer_check_space(struct txda_buffer *buffer, const struct txda__space *space);
/* -EBUSY while it is idle: work that uses it would fault. */
int txda__buffer_check_used(struct txda_buffer *buffer);
/* -EACCES if the host must not write to it, -EBUSY while it is idle. */
int txda__buffer_check_write(struct txda_buffer *buffer);
/* A read-only buffer of a file's own pages; -ENOTSUP: the backend has none. @bytes: the file's. */
int txda__buffer_from_file(struct txda_device *device, int fd, uint64_t bytes,
			   struct txda_buffer **ret_buffer);

#define TXDA__LOAD_PIECE (4ull << 20)

/* CRC-32C of a buffer's contents, read back from it. */
struct txda__sums {
	uint32_t all;
	uint32_t *piece; /* of each TXDA__LOAD_PIECE; the caller frees it */
};

/*
 * Like txda_buffer_load(), with a progress callback, called by this thread with the bytes done so
 * far; an error of it, with a message recorded, ends the load. @ret_sums: NULL, or receives the
 * checksums.
 */
int txda__buffer_load(struct txda_buffer *buffer, uint64_t offset, int fd, uint64_t fd_offset,
		      uint64_t bytes, struct txda__sums *ret_sums,
		      int (*progress)(void *arg, uint64_t done), void *arg);

#endif /* TXDA_BUFFER_H */
