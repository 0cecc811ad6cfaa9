/* SPDX-License-Identifier: MIT */
/*
 * The weight manager: one copy of a param.bin per chip, shared by the models of a context.
 *
 * A file is identified by device, inode, size, modification time and the checksum in its case dir,
 * so a replaced file counts as a different one. The first caller loads; concurrent callers wait for
 * the result and get the same error, unless the first one gave up: then another one loads. weights.c has the table and the loads, weights_keep.c the
 * export and import between processes: an imported copy is a normal entry of the table, so a model
 * that needs that file finds it there. weights_map.c has weights that are a file's own pages at
 * first.
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
	struct txda__space *space;  /* a reference; if it is lost the weights are loaded again */
	uint64_t dev, inode, bytes, mtime_ns, ctime_ns;
	uint32_t crc32c;
	uint64_t memory_id; /* memory generation of the chip before the first store */
	bool keep;	    /* exportable; decided by the first caller */
	bool imported;
	struct txda__owner *owner; /* while and after a file's pages are replaced; or NULL */
	unsigned refs;		   /* under the table's lock, like all below */
	enum { TXDA__WEIGHTS_LOADING, TXDA__WEIGHTS_READY, TXDA__WEIGHTS_FAILED } state;
	bool verified;
	int error;
	char message[256];
	struct txda_buffer *buffer;
};

void txda__weights_init(struct txda__weights_table *table);
void txda__weights_fini(struct txda__weights_table *table);

struct txda__weights_wish {
	int fd;		  /* of param.bin */
	const char *name; /* checksum of param.bin */
	uint64_t bytes;
	uint32_t crc32c;
	bool verify; /* the contents must have that checksum */
	bool keep;   /* exportable, if they are not loaded yet */
	bool map;    /* the file's own pages may be used */
	/*
	 * With the bytes already loaded, also while another thread loads them; an error, with a message
	 * recorded, ends this caller's load or wait
	 */
	int (*progress)(void *arg, uint64_t done);
	void *arg;
};

/* The weights of a file on @device. */
int txda__weights_get(struct txda_device *device, const struct txda__weights_wish *wish,
		      struct txda_weights **ret_weights);

/* ---- between weights.c, weights_keep.c and weights_map.c ------------------------------------- */

/*
 * A buffer of the file's own pages, if only this process's user can write to the file and the
 * backend supports it; else -ENOTSUP. Other errors are final.
 */
int txda__weights_map(struct txda_weights *w, const struct txda__weights_wish *wish);
/*
 * Starts a thread that replaces the pages by memory of the chip's own; takes over @piece, the
 * checksums that the pages must still have (TXDA__LOAD_PIECE). Without it they stay as they are.
 */
void txda__weights_own(struct txda_weights *w, uint32_t *piece);
/* Ends that thread, if there is one. */
void txda__weights_own_end(struct txda_weights *w);

/* Fills in the identity of the file of @fd. */
int txda__weights_identify(struct txda_context *context, int fd, const char *name,
			   struct txda_weights *key);
bool txda__weights_same_file(const struct txda_weights *a, const struct txda_weights *b);
/* The entry of that file in that space, with a reference, or NULL. The lock must be held. */
struct txda_weights *txda__weights_find(struct txda__weights_table *table,
					const struct txda_weights *key);
/*
 * A new entry with the fields of @key and a reference of its own to the device; NULL: out of
 * memory. Takes over the reference to the space. The lock must be held.
 */
struct txda_weights *txda__weights_add(struct txda__weights_table *table,
				       const struct txda_weights *key);
int txda__weights_memory_id(struct txda__space *space, uint64_t *ret_id);

#endif /* TXDA_WEIGHTS_H */
