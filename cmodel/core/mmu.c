// SPDX-License-Identifier: MIT
/* Address spaces: a reserved range of host addresses, and a table of what is mapped in it. */
#include "mmu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

int cm_mmu_vm_new(struct cm_mmu *mmu, struct cm_chip *c, struct cm_vm **ret)
{
	struct cm_vm *vm;

	if (atomic_load(&c->lost))
		return -ENODEV;
	vm = calloc(1, sizeof(*vm));
	if (!vm)
		return -ENOMEM;
	vm->mmu = mmu;
	vm->chip = c;
	/* Aligned so that huge pages of a mapping can be huge pages of the host. */
	vm->reserved_bytes = CM_VA_BYTES + CM_HUGE_PAGE;
	vm->reserved = mmap(NULL, vm->reserved_bytes, PROT_NONE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (vm->reserved == MAP_FAILED) {
		free(vm);
		return -ENOMEM;
	}
	vm->base = (uint8_t *)(((uintptr_t)vm->reserved + CM_HUGE_PAGE - 1) & ~(CM_HUGE_PAGE - 1));
	pthread_mutex_init(&vm->map_lock, NULL);
	pthread_mutex_init(&vm->lock, NULL);

	cm_pause(mmu->lead);
	vm->id = c->next_vm++;
	vm->next = mmu->vms;
	if (vm->next)
		vm->next->prev = vm;
	mmu->vms = vm;
	cm_resume(mmu->lead);
	*ret = vm;
	return 0;
}

void cm_vm_free(struct cm_vm *vm)
{
	struct cm_mmu *mmu;

	if (!vm)
		return;
	mmu = vm->mmu;
	cm_pause(mmu->lead);
	mmu->freeing(vm);
	cm_vm_translate_end(vm);
	if (vm->prev)
		vm->prev->next = vm->next;
	else
		mmu->vms = vm->next;
	if (vm->next)
		vm->next->prev = vm->prev;
	cm_resume(mmu->lead);
	munmap(vm->reserved, vm->reserved_bytes);
	pthread_mutex_destroy(&vm->map_lock);
	pthread_mutex_destroy(&vm->lock);
	cm_ranges_fini(&vm->ranges);
	free(vm);
}

static bool bad_range(uint64_t va, uint64_t bytes)
{
	return !bytes || va % CM_PAGE || bytes % CM_PAGE || va > CM_VA_BYTES ||
	       bytes > CM_VA_BYTES - va;
}

/* Whether the file has the bytes: touching a mapping beyond its end is a SIGBUS. */
static int check_file(int fd, uint64_t offset, uint64_t bytes)
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return 0;
	if (st.st_size < 0 || offset > (uint64_t)st.st_size ||
	    bytes > (uint64_t)st.st_size - offset)
		return -ERANGE;
	return 0;
}

/* Like cm_vm_map() with the map lock held. */
static int map_locked(struct cm_vm *vm, uint64_t va, int fd, uint64_t offset, uint64_t bytes,
		      unsigned flags)
{
	int prot = PROT_READ | (flags & CM_MAP_WRITE ? PROT_WRITE : 0);
	size_t at = cm_ranges_first(&vm->ranges, va);
	void *host;
	int ret;

	if (at < vm->ranges.n && vm->ranges.at[at].va < va + bytes)
		return -EEXIST;
	pthread_mutex_lock(&vm->lock);
	ret = cm_ranges_reserve(&vm->ranges);
	pthread_mutex_unlock(&vm->lock);
	if (ret)
		return ret;
	/* Private memory has no other mapping through which the embedder could fill it. */
	if (fd == CM_MAP_PRIVATE)
		host = mmap(vm->base + va, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	else
		host = mmap(vm->base + va, bytes, prot, MAP_SHARED | MAP_FIXED, fd, (off_t)offset);
	if (host == MAP_FAILED) {
		ret = -errno;
		/* A failed MAP_FIXED may have removed the previous mapping, the reservation. */
		mmap(vm->base + va, bytes, PROT_NONE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
		return ret;
	}
	if (bytes >= CM_HUGE_PAGE)
		madvise(host, bytes, MADV_HUGEPAGE);
	pthread_mutex_lock(&vm->lock);
	cm_ranges_insert(&vm->ranges, at, (struct cm_range){va, va + bytes, flags});
	pthread_mutex_unlock(&vm->lock);
	return 0;
}

int cm_vm_map(struct cm_vm *vm, uint64_t va, int fd, uint64_t offset, uint64_t bytes,
	      unsigned flags)
{
	int ret;

	if (bad_range(va, bytes) || offset % CM_PAGE || offset > INT64_MAX - bytes || !flags ||
	    (flags & ~(CM_MAP_READ | CM_MAP_WRITE)))
		return -EINVAL;
	ret = fd == CM_MAP_PRIVATE ? 0 : check_file(fd, offset, bytes);
	if (ret)
		return ret;
	pthread_mutex_lock(&vm->map_lock);
	ret = vm->translate ? -EINVAL : map_locked(vm, va, fd, offset, bytes, flags);
	pthread_mutex_unlock(&vm->map_lock);
	return ret;
}

int cm_vm_unmap(struct cm_vm *vm, uint64_t va, uint64_t bytes)
{
	struct cm_mmu *mmu = vm->mmu;
	int ret = -ENOENT;
	size_t at;

	if (bad_range(va, bytes))
		return -EINVAL;
	pthread_mutex_lock(&vm->map_lock);
	at = cm_ranges_first(&vm->ranges, va);
	if (at < vm->ranges.n && vm->ranges.at[at].va < va + bytes) {
		pthread_mutex_lock(&vm->lock);
		ret = cm_ranges_reserve(&vm->ranges);
		pthread_mutex_unlock(&vm->lock);
	}
	if (!ret) {
		cm_pause(mmu->lead);
		pthread_mutex_lock(&vm->lock);
		cm_ranges_cut(&vm->ranges, va, va + bytes);
		pthread_mutex_unlock(&vm->lock);
		/* Host addresses of this space are resolved again before the next op. */
		vm->generation++;
		mmu->unmapped(vm, va, va + bytes);
		cm_resume(mmu->lead);
		if (mmap(vm->base + va, bytes, PROT_NONE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
			 0) == MAP_FAILED)
			ret = -errno;
	}
	pthread_mutex_unlock(&vm->map_lock);
	return ret;
}

/*
 * How far from @va the table has [va, end) mapped with @flags; *ret_hole: it ends at a hole, where
 * nothing is mapped at all.
 */
static uint64_t mapped_until(struct cm_vm *vm, uint64_t va, uint64_t end, unsigned flags,
			     bool *ret_hole)
{
	*ret_hole = true;
	pthread_mutex_lock(&vm->lock);
	for (size_t i = cm_ranges_first(&vm->ranges, va); va < end && i < vm->ranges.n; i++) {
		const struct cm_range *r = &vm->ranges.at[i];

		if (r->va > va)
			break;
		if ((r->flags & flags) != flags) {
			*ret_hole = false;
			break;
		}
		va = r->end;
	}
	pthread_mutex_unlock(&vm->lock);
	return va;
}

static void *find(struct cm_vm *vm, uint64_t va, uint64_t bytes, unsigned flags, bool translate,
		  uint64_t *ret_bad)
{
	uint64_t at = va, end;
	unsigned tries = 0;
	bool hole;

	*ret_bad = va;
	if (!bytes || va >= CM_VA_BYTES)
		return NULL;
	/* A range that runs out of the address space has its first bad address there or before. */
	end = bytes > CM_VA_BYTES - va ? CM_VA_BYTES + 1 : va + bytes;
	for (;;) {
		uint64_t evictions;

		at = mapped_until(vm, at, end, flags, &hole);
		if (at >= end || !hole || !translate || !vm->translate)
			break;
		evictions = vm->mmu->evictions;
		if (!cm_vm_translate(vm, at))
			break;
		if (evictions != vm->mmu->evictions) {
			/* Everything before @at was dropped as well. */
			if (++tries == CM_FIND_TRIES)
				break;
			at = va;
		}
	}
	*ret_bad = at;
	return at >= end ? vm->base + va : NULL;
}

void *cm_vm_find(struct cm_vm *vm, uint64_t va, uint64_t bytes, unsigned flags, uint64_t *ret_bad)
{
	return find(vm, va, bytes, flags, true, ret_bad);
}

void *cm_vm_resolve(struct cm_vm *vm, uint64_t va, uint64_t bytes, unsigned flags)
{
	uint64_t bad;

	return find(vm, va, bytes, flags, false, &bad);
}

int cm_vm_read(struct cm_vm *vm, uint64_t va, void *buf, uint64_t bytes)
{
	uint64_t bad;
	const void *src = find(vm, va, bytes, CM_MAP_READ, false, &bad);

	if (!src)
		return -EFAULT;
	memcpy(buf, src, bytes);
	return 0;
}
