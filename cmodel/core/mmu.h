/* SPDX-License-Identifier: MIT */
/*
 * Address spaces: device addresses to host addresses.
 *
 * Each space mirrors its device addresses in a reserved range of host addresses, so that the host's
 * MMU translates and ops use plain pointers. A table says what is mapped; each range that an op
 * uses is checked against it. Mapped spaces are filled by the embedder (mmu.c), translated ones as
 * streams touch them (translate.c), as a cache of the embedder's page tables.
 *
 * A host address stays valid until the space's generation rises: after that a layer that kept one
 * resolves it again before the next op.
 *
 * Ownership: an address space belongs to the embedder. Programs and groups are kept in it by the
 * layers above (program.h, c2c.h), which are notified of unmapped memory and of the end of the
 * space by the callbacks in struct cm_mmu.
 *
 * Locks: map_lock is held during a map or unmap, and is taken before leadership; lock guards the
 * table, is held only briefly and is taken after all other locks of the model. Fields marked
 * "leader" belong to the thread that leads (lead.h).
 */
#ifndef CM_MMU_H
#define CM_MMU_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../cmodel.h"
#include "bus.h"
#include "chip.h"
#include "lead.h"
#include "range.h"

#define CM_GROUP_SLOTS 16
#define CM_FIND_TRIES  3 /* how often ranges are looked up again when there was an eviction */

struct cm_group;   /* c2c.h */
struct cm_member;  /* c2c.h */
struct cm_program; /* program.h */

/* State shared by the address spaces of a machine. */
struct cm_mmu {
	struct cm_lead *lead;
	bool spread; /* private memory, among the nodes of the host */
	/* [va, end) of the space is unmapped. Leader. */
	void (*unmapped)(struct cm_vm *vm, uint64_t va, uint64_t end);
	/* The space is about to be freed. Leader. */
	void (*freeing)(struct cm_vm *vm);
	/* leader: */
	struct cm_vm *vms;
	size_t pieces;	    /* host mappings of translated spaces, or more */
	size_t max_pieces;  /* 0: no space is translated */
	uint64_t evictions; /* rises when all of them were dropped to make room: whoever resolves
			     * two ranges checks that the first is still there */
};

struct cm_group_slot {
	struct cm_group *group; /* NULL: not set */
	unsigned rank;
};

struct cm_vm {
	struct cm_mmu *mmu;
	struct cm_chip *chip;
	unsigned id;
	uint8_t *base; /* the host address of VA 0; 2 MiB aligned */
	void *reserved;
	size_t reserved_bytes;
	pthread_mutex_t map_lock, lock; /* see above */
	struct cm_ranges ranges;	/* lock */
	uint64_t generation;		/* leader: rises with each unmap */
	_Atomic bool lost;		/* a losable mapping has lost a page */
	cm_translate_fn translate;	/* NULL: the embedder maps */
	void *translate_arg;
	bool has_peers;	  /* leader: it has had memory of a peer */
	bool was_evicted; /* lock: there may be copies of programs that are not in the table */
	size_t pieces;	  /* leader: host mappings that translation has made, or more */
	struct cm_vm *next, *prev; /* leader: of the machine */

	struct cm_group_slot group[CM_GROUP_SLOTS]; /* leader, c2c.c: the groups it is in, */
	struct cm_member *members;		    /* and its queues */
	struct cm_program *programs;		    /* leader, program.c: last used first, */
	uint64_t program_bytes;			    /* and the bytes of all */
};

int cm_mmu_vm_new(struct cm_mmu *mmu, struct cm_chip *c, struct cm_vm **ret);

/*
 * Like cm_vm_resolve(), but a translated space is filled; on failure *ret_bad is the first address
 * that is not mapped with @flags. Leader.
 */
void *cm_vm_find(struct cm_vm *vm, uint64_t va, uint64_t bytes, unsigned flags, uint64_t *ret_bad);
/* If @vm->lost: what lost pages cannot be accessed any more. True if there was any. Leader. */
bool cm_vm_close_lost(struct cm_vm *vm);
/* Counts an access to [va, va + bytes) as traffic between chips, where it is a peer's. Leader. */
void cm_vm_count_c2c(struct cm_vm *vm, uint64_t va, uint64_t bytes, bool write);
/* Copies out of an address space that is not translated. 0 or -EFAULT. Leader. */
int cm_vm_read(struct cm_vm *vm, uint64_t va, void *buf, uint64_t bytes);

/* ---- translate.c, for mmu.c ------------------------------------------------------------------ */

/* Gets the mapping at @va from the embedder and maps it; false: there is none. Leader. */
bool cm_vm_translate(struct cm_vm *vm, uint64_t va);
/* Forgets all mappings of a space that is being freed. Leader. */
void cm_vm_translate_end(struct cm_vm *vm);

#endif /* CM_MMU_H */
