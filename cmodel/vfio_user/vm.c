// SPDX-License-Identifier: MIT
#include "vm.h"
#include "device.h"
#include "log.h"
#include "walk.h"

#include <errno.h>
#include <string.h>

#define FLUSH_ALL 0xffffffffu

void vu_vm_init(struct vu_vm *vm, struct vu_device *d, unsigned id)
{
	memset(vm, 0, sizeof(*vm));
	vm->device = d;
	vm->id = id;
}

/* ---- translation ----------------------------------------------------------------------------- */

/* Cuts a run off at @limit of its aperture; -EFAULT if @va is beyond it. */
static int clip_end(struct vu_run *run, uint64_t va, uint64_t limit)
{
	if (run->address + (va - run->va) >= limit)
		return -EFAULT;
	if (run->address + run->bytes > limit)
		run->bytes = limit - run->address;
	return 0;
}

static int to_local(struct vu_device *d, uint64_t va, struct vu_run *run,
		    struct cm_translation *ret)
{
	ret->fd = d->dram_fd;
	ret->offset = 0;
	return clip_end(run, va, d->dram_bytes);
}

static int to_peer(struct vu_device *d, uint64_t va, struct vu_run *run, struct cm_translation *ret)
{
	if (run->port >= vu_device_ports(d) || !vu_device_link_up(d, run->port))
		return -EFAULT;
	ret->peer = vu_device_peer(d, run->port)->chip;
	return to_local(vu_device_peer(d, run->port), va, run, ret);
}

static int to_system(struct vu_device *d, uint64_t va, struct vu_run *run,
		     struct cm_translation *ret)
{
	uint64_t at = run->address + (va - run->va);
	const struct vu_guest_region *r = NULL;
	int err = -EFAULT;

	pthread_mutex_lock(&d->lock);
	if (vu_device_bus_master(d))
		r = vu_guest_find(&d->guest, at);
	if (r) {
		if (run->address < r->address) {
			uint64_t skip = r->address - run->address;

			run->va += skip;
			run->address += skip;
			run->bytes -= skip;
		}
		/* The region ends at 2^64 at most, a run far below. */
		if (run->bytes > r->bytes - (run->address - r->address))
			run->bytes = r->bytes - (run->address - r->address);
		if (!r->readable)
			run->rights &= ~TXDA_PTE_READ;
		if (!r->writeable)
			run->rights &= ~TXDA_PTE_WRITE;
		ret->fd = r->fd;
		/* File offset of bus address 0, modulo 2^64; the sum below is correct. */
		ret->offset = r->offset - r->address;
		err = 0;
	}
	pthread_mutex_unlock(&d->lock);
	return err;
}

/* The callback of the model: cm_translate_fn. */
static int translate(void *arg, uint64_t va, struct cm_translation *ret)
{
	struct vu_vm *vm = arg;
	struct vu_device *d = vm->device;
	const struct vu_walk walk = {d->dram, d->dram_bytes, VU_VA_BITS};
	struct vu_run run;
	int err;

	err = vu_walk(&walk, atomic_load(&vm->root), va, &run);
	if (err)
		return err;
	switch (run.aperture) {
	case TXDA_APERTURE_LOCAL: err = to_local(d, va, &run, ret); break;
	case TXDA_APERTURE_SYSTEM: err = to_system(d, va, &run, ret); break;
	default: err = to_peer(d, va, &run, ret); break;
	}
	if (err)
		return err;
	ret->va = run.va;
	ret->bytes = run.bytes;
	ret->offset += run.address;
	ret->flags = (run.rights & TXDA_PTE_READ ? CM_MAP_READ : 0) |
		     (run.rights & TXDA_PTE_WRITE ? CM_MAP_WRITE : 0);
	return ret->flags ? 0 : -EFAULT;
}

/* ---- the space of the model ------------------------------------------------------------------ */

static int need_cm(struct vu_vm *vm)
{
	int err;

	if (vm->cm)
		return 0;
	err = cm_vm_new(vm->device->chip, &vm->cm);
	if (!err)
		cm_vm_set_translate(vm->cm, translate, vm);
	return err;
}

static void drop_cm_if_unused(struct vu_vm *vm)
{
	if (!vm->cm || vm->users)
		return;
	for (unsigned g = 0; g < TXDA_VM_GROUPS; g++) {
		if (vm->group[g].size)
			return;
	}
	cm_vm_free(vm->cm);
	vm->cm = NULL;
}

int vu_vm_get(struct vu_vm *vm, struct cm_vm **ret)
{
	int err = need_cm(vm);

	if (err)
		return err;
	vm->users++;
	*ret = vm->cm;
	return 0;
}

void vu_vm_put(struct vu_vm *vm)
{
	vm->users--;
	drop_cm_if_unused(vm);
}

void vu_vm_forget(struct vu_vm *vm)
{
	if (vm->cm)
		cm_vm_forget(vm->cm, 0, UINT64_MAX);
}

void vu_vm_set_root(struct vu_vm *vm, uint64_t root)
{
	atomic_store(&vm->root, root);
	vu_vm_forget(vm);
}

void vu_vm_flush(struct vu_vm *vm)
{
	if (!vm->cm)
		return;
	if (vm->flush_count == FLUSH_ALL)
		vu_vm_forget(vm);
	else if (vm->flush_page <= UINT64_MAX >> TXDA_PAGE_SHIFT)
		cm_vm_forget(vm->cm, vm->flush_page << TXDA_PAGE_SHIFT,
			     (uint64_t)vm->flush_count << TXDA_PAGE_SHIFT);
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* Whether the registers of the slot describe a group; ports must lead to all members but one's own
 * chip. */
static bool group_is_sound(const struct vu_vm *vm, const struct vu_group *g)
{
	uint32_t size = g->rank_size >> 8, rank = g->rank_size & 0xff;

	if (!g->id || !size || size > TXDA_MAX_GROUP || rank >= size)
		return false;
	for (uint32_t r = 0; r < size; r++) {
		uint32_t port = g->routes >> 4 * r & 15;

		if (r == rank ? port != VU_ROUTE_SELF : port >= vu_device_ports(vm->device))
			return false;
	}
	return true;
}

void vu_vm_group_changed(struct vu_vm *vm, unsigned slot)
{
	struct vu_group *g = &vm->group[slot];
	uint32_t size = group_is_sound(vm, g) ? g->rank_size >> 8 : 0, rank = g->rank_size & 0xff;
	int err = 0;

	if (size == g->size && (!size || (g->set_id == g->id && g->set_rank == rank)))
		return;
	if (g->size)
		cm_vm_set_group(vm->cm, slot, 0, 0, 0);
	g->size = 0;
	if (size) {
		err = need_cm(vm);
		if (!err)
			err = cm_vm_set_group(vm->cm, slot, g->id, rank, size);
	}
	if (err) {
		vu_log(VU_LOG_WARNING, (int)vm->device->index,
		       "VMID %u: group 0x%llx, rank %u of %u: %s", vm->id,
		       (unsigned long long)g->id, rank, size, strerror(-err));
	} else {
		g->size = size;
		g->set_id = g->id;
		g->set_rank = rank;
	}
	drop_cm_if_unused(vm);
}

void vu_vm_reset(struct vu_vm *vm)
{
	atomic_store(&vm->root, 0);
	vm->flush_page = 0;
	vm->flush_count = 0;
	vm->flushing = false;
	for (unsigned g = 0; g < TXDA_VM_GROUPS; g++) {
		bool set = vm->group[g].size;

		vm->group[g] = (struct vu_group){.size = vm->group[g].size,
						 .set_id = vm->group[g].set_id,
						 .set_rank = vm->group[g].set_rank};
		if (set)
			vu_vm_group_changed(vm, g);
	}
	drop_cm_if_unused(vm);
}
