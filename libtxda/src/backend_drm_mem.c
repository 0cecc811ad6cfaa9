// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend_drm.h"
#include "memfd.h"

/* ---- handles --------------------------------------------------------------------------------- */

void txda__drm_handle_close(struct drm_chip *chip, uint32_t handle)
{
	struct drm_gem_close args = {.handle = handle};

	txda__drm_ioctl(chip, DRM_IOCTL_GEM_CLOSE, &args);
}

/* Adds a user of @handle; chip.lock is held. */
static struct drm_bo *bo_get(struct drm_chip *chip, uint32_t handle)
{
	struct drm_bo *bo;

	for (bo = chip->bos; bo; bo = bo->next)
		if (bo->handle == handle) {
			bo->refs++;
			return bo;
		}
	bo = calloc(1, sizeof(*bo));
	if (bo) {
		*bo = (struct drm_bo){.next = chip->bos, .refs = 1, .handle = handle};
		chip->bos = bo;
	}
	return bo;
}

/*
 * The lock is held throughout: otherwise an import might get the handle while it is being
 * closed.
 */
static void bo_put(struct drm_chip *chip, struct drm_bo *bo)
{
	pthread_mutex_lock(&chip->lock);
	if (--bo->refs == 0) {
		struct drm_bo **at = &chip->bos;

		while (*at != bo)
			at = &(*at)->next;
		*at = bo->next;
		txda__drm_handle_close(chip, bo->handle);
		free(bo);
	}
	pthread_mutex_unlock(&chip->lock);
}

int txda__drm_bo_map(struct drm_chip *chip, uint32_t handle, uint64_t bytes, void **ret_ptr)
{
	struct drm_txda_bo_mmap_offset args = {.handle = handle};
	void *ptr;
	int r;

	r = txda__drm_ioctl(chip, DRM_IOCTL_TXDA_BO_MMAP_OFFSET, &args);
	if (r < 0)
		return r;
	ptr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, chip->fd, (off_t)args.offset);
	if (ptr == MAP_FAILED)
		return -errno;
	*ret_ptr = ptr;
	return 0;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static struct txda__mem *make_mem(struct txda__vm *vm, uint64_t bytes)
{
	struct txda__mem *mem = calloc(1, sizeof(*mem));

	if (!mem) {
		txda__fail(drm_context(vm->chip), -ENOMEM, "out of memory");
		return NULL;
	}
	pthread_mutex_init(&mem->lock, NULL);
	mem->vm = vm;
	mem->bytes = bytes;
	mem->mappable = true;
	mem->fd = -1;
	return mem;
}

void txda__drm_mem_free(struct txda__mem *mem)
{
	if (mem->view && mem->view != mem->user)
		munmap(mem->view, mem->bytes);
	if (mem->bo)
		bo_put(mem->vm->chip, mem->bo);
	if (mem->user)
		munmap(mem->user, mem->bytes);
	if (mem->fd >= 0)
		close(mem->fd);
	pthread_mutex_destroy(&mem->lock);
	free(mem);
}

/* Takes over the handle, and closes it if there is no memory for @mem. */
static int own_handle(struct txda__mem *mem, uint32_t handle)
{
	struct drm_chip *chip = mem->vm->chip;

	pthread_mutex_lock(&chip->lock);
	mem->bo = bo_get(chip, handle);
	pthread_mutex_unlock(&chip->lock);
	if (mem->bo)
		return 0;
	txda__drm_handle_close(chip, handle);
	return txda__fail(drm_context(chip), -ENOMEM, "out of memory");
}

/* Adds how much is free to the message; any error that means no room is returned as -ENOMEM. */
static int no_room(struct drm_chip *chip, int error, uint64_t bytes, bool host)
{
	struct drm_txda_memory_info memory;
	char wanted[24], left[24], all[24];
	uint64_t unused = 0;

	if (error == -ENODEV)
		return txda__fail(drm_context(chip), error, "chip %u is lost", chip->index);
	if ((error != -ENOSPC && error != -ENOMEM) || host ||
	    txda__drm_query(chip, DRM_TXDA_QUERY_MEMORY, &memory, sizeof(memory)) < 0)
		return txda__fail(drm_context(chip), error == -ENOSPC ? -ENOMEM : error,
				  "chip %u: %s (%llu bytes) of %s memory: %s", chip->index,
				  txda__bytes(bytes, wanted), (unsigned long long)bytes,
				  host ? "host" : "device", txda__drm_reason(error));
	if (memory.device_bytes > memory.device_used)
		unused = memory.device_bytes - memory.device_used;
	return txda__fail(drm_context(chip), -ENOMEM,
			  "chip %u: %s (%llu bytes) requested, %s (%llu bytes) of %s free",
			  chip->index, txda__bytes(bytes, wanted), (unsigned long long)bytes,
			  txda__bytes(unused, left), (unsigned long long)unused,
			  txda__bytes(memory.device_bytes, all));
}

int txda__drm_mem_new(struct txda__vm *vm, uint64_t bytes, enum txda_memory memory, unsigned flags,
		      struct txda__mem **ret_mem)
{
	bool host = memory == TXDA_MEMORY_HOST || flags & TXDA__MEM_SHARED;
	struct drm_txda_bo_create args = {
		.size = bytes,
		.places = host ? DRM_TXDA_PLACE_HOST : DRM_TXDA_PLACE_DEVICE,
		.flags = flags & TXDA__MEM_UNMAPPED ? DRM_TXDA_BO_NO_MMAP : 0,
		.vm_id = flags & TXDA__MEM_PRIVATE ? vm->id : 0,
	};
	struct drm_chip *chip = vm->chip;
	struct txda__mem *mem = make_mem(vm, bytes);
	int r;

	if (!mem)
		return -ENOMEM;
	r = txda__drm_ioctl(chip, DRM_IOCTL_TXDA_BO_CREATE, &args);
	if (r == -ENOSPC && !host && !(args.flags & DRM_TXDA_BO_NO_MMAP)) {
		/* There may be room beyond the aperture; copies can reach it. */
		args.size = bytes;
		args.flags |= DRM_TXDA_BO_NO_MMAP;
		r = txda__drm_ioctl(chip, DRM_IOCTL_TXDA_BO_CREATE, &args);
	}
	if (r < 0)
		no_room(chip, r, bytes, host);
	else
		r = own_handle(mem, args.handle);
	if (r < 0) {
		txda__drm_mem_free(mem);
		return r == -ENOSPC ? -ENOMEM : r;
	}
	mem->host = host;
	mem->mappable = !(args.flags & DRM_TXDA_BO_NO_MMAP);
	*ret_mem = mem;
	return 0;
}

/* ---- import and export ----------------------------------------------------------------------- */

/* Imports a memfd: its pages, mapped here, become a buffer. */
static int import_memfd(struct txda__mem *mem, int fd, bool read_only)
{
	struct drm_chip *chip = mem->vm->chip;
	struct drm_txda_bo_from_userptr args = {
		.size = mem->bytes,
		.flags = read_only ? DRM_TXDA_USERPTR_READONLY : 0,
		.vm_id = mem->vm->id,
	};
	struct rlimit limit;
	void *ptr;
	int r;

	ptr = mmap(NULL, mem->bytes, PROT_READ | (read_only ? 0 : PROT_WRITE), MAP_SHARED, fd, 0);
	if (ptr == MAP_FAILED)
		return txda__fail(drm_context(chip), -errno, "mapping the memfd: %s",
				  strerror(errno));
	mem->user = ptr;
	mem->host = true;
	mem->view = ptr;
	args.va = (uintptr_t)ptr;
	r = txda__drm_ioctl(chip, DRM_IOCTL_TXDA_BO_FROM_USERPTR, &args);
	/* Without RLIMIT_MEMLOCK, the limit reached is the number of buffers. */
	if (r == -EDQUOT && !getrlimit(RLIMIT_MEMLOCK, &limit) && limit.rlim_cur != RLIM_INFINITY)
		return txda__fail(drm_context(chip), r,
				  "the memfd's %llu bytes would be locked into memory; %llu may be "
				  "in all (ulimit -l, LimitMEMLOCK=)",
				  (unsigned long long)mem->bytes,
				  (unsigned long long)limit.rlim_cur);
	if (r < 0)
		return txda__fail(drm_context(chip), r, "pinning the memfd: %s",
				  txda__drm_reason(r));
	return own_handle(mem, args.handle);
}

/* A dma-buf, from this driver or another; @own: it must be in this chip's memory. */
static int import_dmabuf(struct txda__mem *mem, int fd, bool own)
{
	struct drm_prime_handle prime = {.fd = fd};
	struct drm_txda_bo_query_info info = {0};
	struct drm_chip *chip = mem->vm->chip;
	int r;

	pthread_mutex_lock(&chip->lock);
	r = txda__drm_ioctl(chip, DRM_IOCTL_PRIME_FD_TO_HANDLE, &prime);
	if (r >= 0) {
		mem->bo = bo_get(chip, prime.handle);
		if (!mem->bo) {
			txda__drm_handle_close(chip, prime.handle);
			r = -ENOMEM;
		}
	}
	pthread_mutex_unlock(&chip->lock);
	if (r >= 0) {
		info.handle = prime.handle;
		r = txda__drm_ioctl(chip, DRM_IOCTL_TXDA_BO_QUERY_INFO, &info);
	}
	if (r < 0)
		return txda__fail(drm_context(chip), r, "fd %d cannot be imported on chip %u: %s",
				  fd, chip->index, strerror(-r));
	if (!mem->read_only && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY)
		return txda__fail(drm_context(chip), -EACCES, "fd %d does not allow writing", fd);
	if (!info.size || info.size % TXDA__PAGE || info.size > (1ull << 40))
		return txda__fail(drm_context(chip), -EINVAL,
				  "the dma-buf has %llu bytes; it must be whole pages up to 1 TiB",
				  (unsigned long long)info.size);
	/*
	 * For a buffer of the same chip the kernel returns another handle; it is already
	 * accounted.
	 */
	if (own && (info.place != DRM_TXDA_PLACE_DEVICE || info.flags & DRM_TXDA_BO_IMPORTED))
		return txda__fail(drm_context(chip), -EXDEV,
				  "the dma-buf is not in the memory of chip %u", chip->index);
	mem->bytes = info.size;
	mem->host = info.place == DRM_TXDA_PLACE_HOST;
	mem->mappable = !(info.flags & DRM_TXDA_BO_NO_MMAP);
	mem->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (mem->fd < 0)
		return txda__fail(drm_context(chip), -errno, "fd %d: %s", fd, strerror(errno));
	return 0;
}

int txda__drm_mem_import(struct txda__vm *vm, int fd, unsigned flags, struct txda__mem **ret_mem,
			 uint64_t *ret_bytes)
{
	struct txda_context *context = drm_context(vm->chip);
	bool read_only = flags & TXDA__IMPORT_READ_ONLY, kept = flags & TXDA__IMPORT_KEPT;
	struct txda__mem *mem;
	uint64_t bytes = 0;
	struct stat st;
	int r = 0;

	if (fstat(fd, &st) < 0)
		return txda__fail(context, -errno, "fd %d: %s", fd, strerror(errno));
	/* A dma-buf has no seals; other files without seals are refused by the check. */
	if (S_ISREG(st.st_mode) && fcntl(fd, F_GET_SEALS) >= 0)
		r = txda__memfd_check(context, fd, read_only, &bytes);
	if (r >= 0 && bytes && kept)
		r = txda__fail(context, -EXDEV, "the memory is a memfd, not of chip %u",
			       vm->chip->index);
	if (r < 0)
		return r;
	mem = make_mem(vm, bytes);
	if (!mem)
		return -ENOMEM;
	mem->read_only = read_only;
	r = bytes ? import_memfd(mem, fd, read_only) : import_dmabuf(mem, fd, kept);
	if (r < 0) {
		txda__drm_mem_free(mem);
		return r;
	}
	*ret_mem = mem;
	*ret_bytes = mem->bytes;
	return 0;
}

int txda__drm_mem_freeze(struct txda__mem *mem)
{
	mem->frozen = true;
	return 0;
}

int txda__drm_mem_export(struct txda__mem *mem, bool read_only, int *ret_fd)
{
	struct drm_prime_handle args = {.handle = mem->bo->handle, .fd = -1};
	struct drm_chip *chip = mem->vm->chip;
	bool writable;
	int r;

	read_only |= mem->frozen;
	args.flags = DRM_CLOEXEC | (read_only ? 0 : DRM_RDWR);
	r = txda__drm_ioctl(chip, DRM_IOCTL_PRIME_HANDLE_TO_FD, &args);
	if (r < 0)
		return txda__fail(
			drm_context(chip), r == -EPERM || r == -EINVAL ? -ENOTSUP : r, "export: %s",
			r == -EPERM || r == -EINVAL ? "the buffer is private" : strerror(-r));
	/*
	 * A buffer has one dma-buf: an existing one keeps the access rights it was created with. That
	 * of imported memory is its owner's.
	 */
	writable = (fcntl(args.fd, F_GETFL) & O_ACCMODE) == O_RDWR;
	if (read_only ? writable : !writable && !mem->read_only) {
		close(args.fd);
		return txda__fail(drm_context(chip), -EBUSY, "export: the buffer is shared for %s",
				  read_only ? "writing" : "reading only");
	}
	*ret_fd = args.fd;
	return 0;
}

/* ---- addresses and host mappings ------------------------------------------------------------- */

static int vm_bind(struct txda__vm *vm, struct drm_txda_bind_op *op)
{
	struct drm_txda_vm_bind args = {
		.vm_id = vm->id,
		.ops = {.stride = sizeof(*op), .count = 1, .array = (uintptr_t)op},
	};

	op->syncs.stride = sizeof(struct drm_txda_sync);
	return txda__drm_ioctl(vm->chip, DRM_IOCTL_TXDA_VM_BIND, &args);
}

int txda__drm_vm_map(struct txda__vm *vm, uint32_t handle, uint64_t offset, uint64_t va,
		     uint64_t bytes, bool read_only)
{
	struct drm_txda_bind_op op = {
		.flags = DRM_TXDA_BIND_MAP | (read_only ? DRM_TXDA_BIND_READONLY : 0),
		.bo = handle,
		.bo_offset = offset,
		.va = va,
		.size = bytes,
	};

	return vm_bind(vm, &op);
}

int txda__drm_vm_unmap(struct txda__vm *vm, uint64_t va, uint64_t bytes)
{
	struct drm_txda_bind_op op = {.flags = DRM_TXDA_BIND_UNMAP, .va = va, .size = bytes};

	return vm_bind(vm, &op);
}

int txda__drm_mem_bind(struct txda__mem *mem, uint64_t va, bool read_only)
{
	struct drm_chip *chip = mem->vm->chip;
	int r = txda__drm_vm_map(mem->vm, mem->bo->handle, 0, va, mem->bytes, read_only);

	if (r < 0)
		return txda__fail(
			drm_context(chip), r, "mapping %llu bytes at 0x%llx of chip %u: %s",
			(unsigned long long)mem->bytes, (unsigned long long)va, chip->index,
			r == -EXDEV ? "it belongs to another chip, to which there is no link"
				    : strerror(-r));
	mem->va = va;
	mem->bound_read_only = read_only;
	mem->bound = true;
	return 0;
}

void txda__drm_mem_unbind(struct txda__mem *mem)
{
	txda__drm_vm_unmap(mem->vm, mem->va, mem->bytes);
	mem->bound = false;
}

static int advise_failed(struct txda__mem *mem, int error)
{
	struct txda_context *context = drm_context(mem->vm->chip);

	if (error == -ENOSPC || error == -ENOMEM)
		return no_room(mem->vm->chip, error, mem->bytes, mem->host);
	if (error == -EPERM)
		return txda__fail(context, -ENOTSUP, "advice: the buffer is shared");
	return txda__fail(context, error, "advice: %s", txda__drm_reason(error));
}

int txda__drm_mem_advise(struct txda__mem *mem, enum txda_advice advice, bool *ret_kept)
{
	struct drm_txda_bo_advise args = {
		.handle = mem->bo->handle,
		.advice = advice == TXDA_ADVICE_WILLNEED ? DRM_TXDA_WILLNEED
			  : advice == TXDA_ADVICE_COLD	 ? DRM_TXDA_COLD
							 : DRM_TXDA_DONTNEED,
	};
	bool was_bound = mem->bound;
	int r, bound;

	*ret_kept = true;
	if (was_bound)
		txda__drm_mem_unbind(mem);
	r = txda__drm_ioctl(mem->vm->chip, DRM_IOCTL_TXDA_BO_ADVISE, &args);
	if (r >= 0) {
		*ret_kept = args.retained;
		if (advice != TXDA_ADVICE_WILLNEED)
			return 1;
	}
	/* Kernels before version 1.2 take no memory away. */
	r = r < 0 && r != -ENOTTY ? advise_failed(mem, r) : 0;
	if (r < 0 && !was_bound)
		return r;
	bound = txda__drm_mem_bind(mem, mem->va, mem->bound_read_only);
	return r < 0 ? r : bound;
}

/* An imported buffer may be mappable only through its own fd, not through our node. */
static int make_view(struct txda__mem *mem, void **ret_ptr)
{
	int prot = PROT_READ | (mem->read_only ? 0 : PROT_WRITE);
	void *ptr;
	int r;

	r = txda__drm_bo_map(mem->vm->chip, mem->bo->handle, mem->bytes, ret_ptr);
	if (r >= 0 || mem->fd < 0)
		return r;
	ptr = mmap(NULL, mem->bytes, prot, MAP_SHARED, mem->fd, 0);
	if (ptr == MAP_FAILED)
		return -errno;
	*ret_ptr = ptr;
	return 0;
}

int txda__drm_mem_map(struct txda__mem *mem, void **ret_ptr)
{
	struct drm_chip *chip = mem->vm->chip;
	void *ptr = NULL;
	int r = 0;

	if (!mem->mappable)
		return txda__fail(drm_context(chip), -ENOTSUP,
				  "this memory of chip %u is not visible to the host", chip->index);
	pthread_mutex_lock(&mem->lock);
	if (!mem->view) {
		r = make_view(mem, &ptr);
		if (r >= 0)
			mem->view = ptr;
	}
	ptr = mem->view;
	pthread_mutex_unlock(&mem->lock);
	if (r < 0)
		return txda__fail(drm_context(chip), r, "mapping %llu bytes: %s",
				  (unsigned long long)mem->bytes, strerror(-r));
	*ret_ptr = ptr;
	return 0;
}
