/* SPDX-License-Identifier: MIT */
/*
 * The weight manager: one copy of a param.bin per chip, shared by the models of a context.
 *
 * A file is told by device, inode, size, time of change and the checksum that its case dir gives,
 * so a file that was replaced is another one. The first to ask loads, others that ask meanwhile
 * wait for the outcome (and get the same error). weights.c has the table and the loads,
 * weights_keep.c what lets weights pass from one process to the next: an imported copy is an entry
 * of the table like any other, so a model that wants that file finds it there.
 * Ownership: the table holds no reference; the last txda_weights_unref() frees the memory.
 * Threads: any function from any thread.
 */
#ifndef TXDA_WEIGHTS_H
#define TXDA_WEIGHTS_H

#include <pthread.h>

#include "internal.h"

struct txda_weights {
	struct txda_weights *next;
	struct txda_device *device; /* a reference */
	struct txda__space *space;  /* a reference: what was lost is loaded anew */
	uint64_t dev, inode, bytes, mtime_ns, ctime_ns;
	uint32_t crc32c;
	uint64_t memory_id; /* of the chip's memory, before anything was stored there */
	bool keep;	    /* exportable; the first to ask decides */
	bool imported;
	unsigned refs; /* under the table's lock, like all below */
	enum { TXDA__WEIGHTS_LOADING, TXDA__WEIGHTS_READY, TXDA__WEIGHTS_FAILED } state;
	bool verified;
	int error;
	char message[256];
	struct txda_buffer *buffer;
};

struct txda__weights_table {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct txda_weights *first;
};

void txda__weights_init(struct txda__weights_table *table);
void txda__weights_fini(struct txda__weights_table *table);

struct txda__weights_wish {
	int fd;		  /* of param.bin */
	const char *name; /* its */
	uint64_t bytes;
	uint32_t crc32c;
	bool verify;				    /* the bytes must have that checksum */
	bool keep;				    /* exportable, if they are not there yet */
	void (*progress)(void *arg, uint64_t done); /* the bytes that are there; or NULL */
	void *arg;
};

/* The weights of a file on @device. */
int txda__weights_get(struct txda_device *device, const struct txda__weights_wish *wish,
		      struct txda_weights **ret_weights);

/* ---- between weights.c and weights_keep.c ---------------------------------------------------- */

/* Fills what tells the file of @fd. */
int txda__weights_tell_file(struct txda_context *context, int fd, const char *name,
			    struct txda_weights *key);
bool txda__weights_same_file(const struct txda_weights *a, const struct txda_weights *b);
/* The entry of that file in that space, with a reference, or NULL. The lock is held. */
struct txda_weights *txda__weights_find(struct txda__weights_table *table,
					const struct txda_weights *key);
/* An entry with the fields of @key and a reference of its own to the device; NULL: no memory. Takes
 * over the reference to the space. The lock is held. */
struct txda_weights *txda__weights_add(struct txda__weights_table *table,
				       const struct txda_weights *key);
int txda__weights_memory_id(struct txda__space *space, uint64_t *ret_id);

#endif /* TXDA_WEIGHTS_H */
