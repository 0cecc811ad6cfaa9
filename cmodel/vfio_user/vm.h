/* SPDX-License-Identifier: MIT */
/*
 * VMIDs: roots of page tables, the cache of translations, and group slots.
 *
 * A VMID has an address space of the model while a started queue uses it or one of its group slots
 * is set. The space begins empty; addresses that a stream touches are looked up in the page tables
 * (see walk.h) and mapped. That is the TLB of the chip: it holds no negative entries, a flush drops
 * a range, a new root drops everything.
 *
 * Order of invalidations. Lookups happen in the thread that leads the model; they take the device's
 * lock for regions of guest memory. An operation that invalidates translations (flush, root,
 * unmapped guest memory, a link that goes down, bus mastering off) first changes the tables that
 * lookups use, then makes the model drop its cache, which waits for the running op. When it
 * returns, nothing uses the old translations.
 *
 * Each space reserves CM_VA_BYTES of host addresses, so that a process can have about 120.
 *
 * Threads: op_lock is held for all calls.
 */
#ifndef VU_VM_H
#define VU_VM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cmodel.h"
#include "txda_regs.h"

struct vu_device;

#define VU_VA_BITS    ((unsigned)__builtin_ctzll(CM_VA_BYTES))
#define VU_ROUTE_SELF 15 /* in TXDA_GROUP_ROUTES: no port, the chip itself */

struct vu_group {
	uint64_t id;
	uint32_t rank_size; /* size << 8 | rank */
	uint32_t routes;
	/* The state of this slot in the model; a size of 0: not set. */
	uint32_t size, set_rank;
	uint64_t set_id;
};

struct vu_vm {
	struct vu_device *device;
	unsigned id;
	_Atomic uint64_t root; /* the register */
	struct cm_vm *cm;      /* NULL: not in use */
	unsigned users;	       /* started queues */
	uint64_t flush_page;
	uint32_t flush_count;
	bool flushing; /* a flush that is stuck; of the device's op_lock */
	struct vu_group group[TXDA_VM_GROUPS];
};

void vu_vm_init(struct vu_vm *vm, struct vu_device *d, unsigned id);

/* For a queue that starts: the address space, created if necessary; -ENOMEM, -ENODEV. */
int vu_vm_get(struct vu_vm *vm, struct cm_vm **ret);
void vu_vm_put(struct vu_vm *vm);

void vu_vm_set_root(struct vu_vm *vm, uint64_t root);
void vu_vm_flush(struct vu_vm *vm);
/* Drops all translations. */
void vu_vm_forget(struct vu_vm *vm);
/* A register of group slot @g was written: passes the slot on to the model. */
void vu_vm_group_changed(struct vu_vm *vm, unsigned g);
/* A chip reset; its queues are gone. */
void vu_vm_reset(struct vu_vm *vm);

#endif /* VU_VM_H */
