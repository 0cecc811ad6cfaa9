// SPDX-License-Identifier: MIT
/* Address spaces: a reserved range of host addresses, and a table of what is mapped in it. */
#include "mmu.h"
#include "cpus.h"

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
	cm_bus_forget(vm->reserved, vm->reserved_bytes);
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

/* Makes the host addresses of [va, va + bytes) a reservation again; 0 or -errno. */
static int close_host(struct cm_vm *vm, uint64_t va, uint64_t bytes)
{
	void *at = vm->base + va;

	cm_bus_forget(at, bytes);
	return mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
		    -1, 0) == MAP_FAILED
		       ? -errno
		       : 0;
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
		close_host(vm, va, bytes);
		return ret;
	}
	if (fd == CM_MAP_PRIVATE && vm->mmu->spread)
		cm_interleave(host, bytes);
	if (flags & CM_MAP_LOSABLE)
		ret = cm_bus_watch(host, bytes, &vm->lost);
	else if (bytes >= CM_HUGE_PAGE)
		madvise(host, bytes, MADV_HUGEPAGE);
	if (ret) {
		close_host(vm, va, bytes);
		return ret;
	}
	pthread_mutex_lock(&vm->lock);
	cm_ranges_insert(&vm->ranges, at, (struct cm_range){va, va + bytes, flags, NULL});
	pthread_mutex_unlock(&vm->lock);
	return 0;
}

int cm_vm_map(struct cm_vm *vm, uint64_t va, int fd, uint64_t offset, uint64_t bytes,
	      unsigned flags)
{
	int ret;

	if (bad_range(va, bytes) || offset % CM_PAGE || offset > INT64_MAX - bytes || !flags ||
	    (flags & ~(CM_MAP_READ | CM_MAP_WRITE | CM_MAP_LOSABLE)) ||
	    (flags & CM_MAP_LOSABLE &&
	     (flags != (CM_MAP_READ | CM_MAP_LOSABLE) || fd == CM_MAP_PRIVATE)))
		return -EINVAL;
	/* The rest of a file's last page can be accessed. */
	ret = fd == CM_MAP_PRIVATE
		      ? 0
		      : check_file(fd, offset,
				   flags & CM_MAP_LOSABLE ? bytes - CM_PAGE + 1 : bytes);
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
		ret = close_host(vm, va, bytes);
	}
	pthread_mutex_unlock(&vm->map_lock);
	return ret;
}

/* ---- mappings that may lose pages -------------------------------------------------------------- */

/* The losable range that has [va, va + bytes), or NULL. The lock is held. */
static struct cm_range *losable(struct cm_vm *vm, uint64_t va, uint64_t bytes)
{
	size_t i = cm_ranges_first(&vm->ranges, va);
	struct cm_range *r;

	if (bad_range(va, bytes) || i == vm->ranges.n)
		return NULL;
	r = &vm->ranges.at[i];
	return r->va <= va && va + bytes <= r->end && r->flags & CM_MAP_LOSABLE ? r : NULL;
}

int cm_vm_replace(struct cm_vm *vm, uint64_t va, void *ptr, uint64_t bytes)
{
	struct cm_range *r;
	int ret = -EFAULT;

	pthread_mutex_lock(&vm->map_lock);
	cm_pause(vm->mmu->lead);
	cm_vm_close_lost(vm);
	pthread_mutex_lock(&vm->lock);
	r = losable(vm, va, bytes);
	if (r && r->flags & CM_MAP_READ) {
		ret = 0;
		if (mremap(ptr, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, vm->base + va) ==
		    MAP_FAILED) {
			ret = -errno;
			/* What was there is still in use, unless this advice finds a hole. */
			if (madvise(vm->base + va, bytes, MADV_NORMAL)) {
				r->flags &= ~CM_MAP_READ;
				vm->generation++;
				mmap(vm->base + va, bytes, PROT_NONE,
				     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
				     0);
			}
		}
	}
	pthread_mutex_unlock(&vm->lock);
	cm_resume(vm->mmu->lead);
	pthread_mutex_unlock(&vm->map_lock);
	return ret;
}

void cm_vm_replaced(struct cm_vm *vm, uint64_t va, uint64_t bytes)
{
	struct cm_range *r;

	pthread_mutex_lock(&vm->map_lock);
	pthread_mutex_lock(&vm->lock);
	r = losable(vm, va, bytes);
	if (r)
		r->flags &= ~CM_MAP_LOSABLE;
	pthread_mutex_unlock(&vm->lock);
	cm_bus_forget(vm->base + va, bytes);
	pthread_mutex_unlock(&vm->map_lock);
}

void cm_vm_lose(struct cm_vm *vm, uint64_t va, uint64_t bytes)
{
	struct cm_range *r;

	cm_pause(vm->mmu->lead);
	pthread_mutex_lock(&vm->lock);
	r = losable(vm, va, bytes);
	if (r)
		r->flags &= ~CM_MAP_READ;
	pthread_mutex_unlock(&vm->lock);
	vm->generation++;
	cm_resume(vm->mmu->lead);
}

bool cm_vm_close_lost(struct cm_vm *vm)
{
	if (!atomic_load_explicit(&vm->lost, memory_order_relaxed) ||
	    !atomic_exchange(&vm->lost, false))
		return false;
	pthread_mutex_lock(&vm->lock);
	for (size_t i = 0; i < vm->ranges.n; i++) {
		struct cm_range *r = &vm->ranges.at[i];

		if (r->flags & CM_MAP_LOSABLE && cm_bus_is_lost(vm->base + r->va))
			r->flags &= ~CM_MAP_READ;
	}
	pthread_mutex_unlock(&vm->lock);
	vm->generation++;
	return true;
}

/* ---- resolving --------------------------------------------------------------------------------- */

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

	cm_bus_unblock();
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
