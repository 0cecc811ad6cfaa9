// SPDX-License-Identifier: MIT
/*
 * Translated address spaces: a cache of the embedder's page tables.
 *
 * Only the leader adds to it, while it resolves the addresses of an op; other threads remove from
 * it while they have the machine paused. A lookup holds the space's lock from before it reads page
 * tables until its answer is in the table. So a thread that has changed page tables and then finds
 * nothing in the range knows that later lookups see the change, and need not pause.
 */
#include "mmu.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>

#define DEFAULT_MAP_COUNT 65530 /* the kernel's default */

/* Half of what the host allows: the process has mappings of other kinds too. */
static size_t max_pieces(void)
{
	FILE *file = fopen("/proc/sys/vm/max_map_count", "r");
	unsigned long count = DEFAULT_MAP_COUNT;

	if (file) {
		if (fscanf(file, "%lu", &count) != 1)
			count = DEFAULT_MAP_COUNT;
		fclose(file);
	}
	return count / 2;
}

void cm_vm_set_translate(struct cm_vm *vm, cm_translate_fn fn, void *arg)
{
	struct cm_mmu *mmu = vm->mmu;

	cm_pause(mmu->lead);
	if (!mmu->max_pieces)
		mmu->max_pieces = max_pieces();
	vm->translate = fn;
	vm->translate_arg = arg;
	cm_resume(mmu->lead);
}

static bool unmap_host(struct cm_vm *vm, uint64_t va, uint64_t end)
{
	return mmap(vm->base + va, end - va, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
}

/* Removes everything. One mapping in place of many always fits. Leader. */
static void forget_all(struct cm_vm *vm)
{
	struct cm_mmu *mmu = vm->mmu;

	pthread_mutex_lock(&vm->lock);
	if (vm->ranges.n)
		unmap_host(vm, vm->ranges.at[0].va, vm->ranges.at[vm->ranges.n - 1].end);
	vm->ranges.n = 0;
	pthread_mutex_unlock(&vm->lock);
	mmu->pieces -= vm->pieces;
	vm->pieces = 0;
	vm->generation++;
}

/* Makes room for new mappings. Programs are kept: the client has not unmapped them. */
static void evict(struct cm_mmu *mmu)
{
	for (struct cm_vm *vm = mmu->vms; vm; vm = vm->next) {
		if (!vm->translate)
			continue;
		forget_all(vm);
		pthread_mutex_lock(&vm->lock);
		vm->was_evicted = true;
		pthread_mutex_unlock(&vm->lock);
	}
	mmu->evictions++;
}

/* Cuts the answer down to the hole around @va; false: it does not fit at all. */
static bool clip(const struct cm_vm *vm, uint64_t va, size_t at, struct cm_translation *t)
{
	uint64_t from = at ? vm->ranges.at[at - 1].end : 0, end = t->va + t->bytes;
	uint64_t to = at < vm->ranges.n ? vm->ranges.at[at].va : CM_VA_BYTES;

	if (end < t->va || (t->va | t->bytes | t->offset) % CM_PAGE || t->va > va || end <= va ||
	    va < from || va >= to || !t->flags)
		return false;
	if (t->va < from) {
		t->offset += from - t->va;
		t->va = from;
	}
	t->bytes = (end < to ? end : to) - t->va;
	return true;
}

/* Whether two ranges that meet can be one. */
static bool are_alike(const struct cm_range *a, const struct cm_range *b)
{
	return a->flags == b->flags && a->peer == b->peer;
}

/* Enters the range into the table, merged with neighbours that are alike. */
static void enter(struct cm_vm *vm, size_t at, const struct cm_translation *t)
{
	struct cm_range r = {t->va, t->va + t->bytes, t->flags, t->peer};
	struct cm_range *before = at ? &vm->ranges.at[at - 1] : NULL;
	struct cm_range *after = at < vm->ranges.n ? &vm->ranges.at[at] : NULL;

	if (before && (before->end != r.va || !are_alike(before, &r)))
		before = NULL;
	if (after && (after->va != r.end || !are_alike(after, &r)))
		after = NULL;
	if (before && after) {
		r.end = after->end;
		cm_ranges_cut(&vm->ranges, after->va, after->end);
		vm->ranges.at[at - 1].end = r.end;
	} else if (before) {
		before->end = r.end;
	} else if (after) {
		after->va = r.va;
	} else {
		cm_ranges_insert(&vm->ranges, at, r);
	}
}

/* 1: mapped, 0: there is nothing at @va, -ENOMEM: the host has no room. Leader. */
static int look_up(struct cm_vm *vm, uint64_t va)
{
	struct cm_translation t = {.fd = -1};
	size_t at = cm_ranges_first(&vm->ranges, va);
	int prot = PROT_READ;
	void *host;

	if (vm->translate(vm->translate_arg, va, &t) || !clip(vm, va, at, &t))
		return 0;
	if (cm_ranges_reserve(&vm->ranges))
		return -ENOMEM;
	if (t.flags & CM_MAP_WRITE)
		prot |= PROT_WRITE;
	host = mmap(vm->base + t.va, t.bytes, prot, MAP_SHARED | MAP_FIXED, t.fd, (off_t)t.offset);
	if (host == MAP_FAILED) {
		int err = errno;

		/* A failed MAP_FIXED may have removed the previous mapping, the reservation. */
		unmap_host(vm, t.va, t.va + t.bytes);
		return err == ENOMEM ? -ENOMEM : 0;
	}
	if (t.bytes >= CM_HUGE_PAGE)
		madvise(host, t.bytes, MADV_HUGEPAGE);
	enter(vm, at, &t);
	if (t.peer)
		vm->has_peers = true;
	vm->pieces++;
	vm->mmu->pieces++;
	return 1;
}

bool cm_vm_translate(struct cm_vm *vm, uint64_t va)
{
	struct cm_mmu *mmu = vm->mmu;
	int ret = -ENOMEM;

	va &= ~(CM_PAGE - 1);
	if (va >= CM_VA_BYTES)
		return false;
	if (mmu->pieces >= mmu->max_pieces)
		evict(mmu);
	for (unsigned tries = 0; ret == -ENOMEM && tries < 2; tries++) {
		if (tries)
			evict(mmu);
		pthread_mutex_lock(&vm->lock);
		ret = look_up(vm, va);
		pthread_mutex_unlock(&vm->lock);
	}
	return ret == 1;
}

void cm_vm_count_c2c(struct cm_vm *vm, uint64_t va, uint64_t bytes, bool write)
{
	uint64_t end = va + bytes;

	if (!vm->has_peers || !bytes)
		return;
	pthread_mutex_lock(&vm->lock);
	for (size_t i = cm_ranges_first(&vm->ranges, va); i < vm->ranges.n; i++) {
		const struct cm_range *r = &vm->ranges.at[i];
		uint64_t from = r->va > va ? r->va : va, to = r->end < end ? r->end : end;

		if (from >= to)
			break;
		if (r->peer)
			cm_chip_count_c2c(write ? vm->chip : r->peer, write ? r->peer : vm->chip,
					  to - from);
	}
	pthread_mutex_unlock(&vm->lock);
}

void cm_vm_translate_end(struct cm_vm *vm)
{
	vm->mmu->pieces -= vm->pieces;
	vm->pieces = 0;
}

/* Whether anything in the range is cached. */
static bool is_kept(struct cm_vm *vm, uint64_t va, uint64_t end)
{
	bool kept;
	size_t at;

	pthread_mutex_lock(&vm->lock);
	at = cm_ranges_first(&vm->ranges, va);
	kept = vm->was_evicted || (at < vm->ranges.n && vm->ranges.at[at].va < end);
	pthread_mutex_unlock(&vm->lock);
	return kept;
}

void cm_vm_forget(struct cm_vm *vm, uint64_t va, uint64_t bytes)
{
	struct cm_mmu *mmu = vm->mmu;
	uint64_t end;
	bool done;

	if (!bytes || va >= CM_VA_BYTES)
		return;
	end = bytes > CM_VA_BYTES - va ? CM_VA_BYTES : va + bytes;
	va &= ~(CM_PAGE - 1);
	end = (end + CM_PAGE - 1) & ~(CM_PAGE - 1);
	if (!is_kept(vm, va, end))
		return;
	cm_pause(mmu->lead);
	pthread_mutex_lock(&vm->lock);
	done = !cm_ranges_reserve(&vm->ranges) && unmap_host(vm, va, end);
	if (done)
		cm_ranges_cut(&vm->ranges, va, end);
	pthread_mutex_unlock(&vm->lock);
	if (done) {
		/* A hole in a mapping splits it in two. */
		vm->pieces++;
		mmu->pieces++;
		vm->generation++;
	} else {
		forget_all(vm);
	}
	if (!vm->ranges.n) {
		mmu->pieces -= vm->pieces;
		vm->pieces = 0;
	}
	mmu->unmapped(vm, va, end);
	cm_resume(mmu->lead);
}
