/* SPDX-License-Identifier: MIT */
/*
 * The weight manager: one copy of a param.bin per chip, shared by the models of a context.
 *
 * A file is told by device, inode, size, time of change and the checksum that its case dir gives,
 * so a file that was replaced is another one. The first to ask loads, others that ask meanwhile
 * wait for the outcome (and get the same error).
 * Ownership: the table holds no reference; the last txda__weights_unref() frees the memory.
 * Threads: any function from any thread.
 */
#ifndef TXDA_WEIGHTS_H
#define TXDA_WEIGHTS_H

#include <pthread.h>

#include "internal.h"

struct txda__weights {
	struct txda__weights *next;
	struct txda_device *device;	/* borrowed: whoever has weights keeps the context */
	struct txda__space *space;	/* a reference: what was lost is loaded anew */
	uint64_t dev, inode, bytes, mtime_ns, ctime_ns;
	uint32_t crc32c;
	unsigned refs;			/* under the table's lock, like all below */
	enum { TXDA__WEIGHTS_LOADING, TXDA__WEIGHTS_READY, TXDA__WEIGHTS_FAILED } state;
	bool verified;
	int error;
	char message[256];
	struct txda_buffer *buffer;
};

struct txda__weights_table {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct txda__weights *first;
};

void txda__weights_init(struct txda__weights_table *table);
void txda__weights_fini(struct txda__weights_table *table);
/*
 * The weights of @fd (@bytes long) on @device. @verify: the bytes must have @crc32c. @progress is
 * told the bytes that are there.
 */
int txda__weights_get(struct txda_device *device, int fd, const char *name, uint64_t bytes,
		      uint32_t crc32c, bool verify, void (*progress)(void *arg, uint64_t done),
		      void *arg, struct txda__weights **ret_weights);
void txda__weights_unref(struct txda__weights *weights);

#endif /* TXDA_WEIGHTS_H */
