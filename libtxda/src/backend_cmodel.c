// SPDX-License-Identifier: MIT
/*
 * The device-model backend: chips simulated in this process.
 *
 * Each allocation, except private memory, is a memfd of its own, sealed against shrinking and
 * growing, that the model maps at the buffer's address. So fresh memory is zeroed and freed memory
 * is released at once, any buffer can be exported (a mapping of a sealed file cannot fault), and a
 * chip's DRAM needs no layout: only the sum of the sizes is tracked here.
 *
 * Memory of a file is mapped as the file's own pages, and becomes private memory chunk by chunk.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "cmodel.h"

#include "context.h"
#include "crc32c.h"
#include "io.h"
#include "memfd.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

#define LARGE_PAGE (2ull << 20)

#define STAGING_BYTES (256u << 10) /* fits into the second level cache */
#define REST_TIMES    3		   /* as long as the work before */
#define REST_MOST_NS  10000000	   /* work may include waiting, for a disk or a processor */

struct cmodel {
	struct txda__backend base;
	struct cm_machine *machine;
	uint64_t mem_bytes; /* of each chip */
	atomic_uint_fast64_t last_group;
	pthread_mutex_t lock; /* guards used */
	uint64_t used[CM_MAX_CHIPS];
};

struct txda__vm {
	struct cmodel *cmodel;
	unsigned chip;
	struct cm_vm *vm;
};

struct txda__mem {
	struct cmodel *cmodel;
	unsigned chip;
	int fd; /* -1: private memory, which exists only as the model's own mapping */
	uint64_t bytes;
	bool counted; /* counts against the chip's DRAM */
	bool sealed;  /* imported read-only, or frozen: no mapping may be writable */
	bool file;    /* a file's own pages: mem_load does not write it */
	bool read_only;
	struct txda__vm *vm;
	uint64_t va;
	pthread_mutex_t lock; /* guards host */
	void *host;	      /* separate mapping of memory that the device may only read */
};

struct txda__hwqueue {
	struct cmodel *cmodel;
	struct cm_vm *vm;
	struct cm_queue *queue;
	struct txda__queue_events events;
};

static struct cmodel *from(struct txda__backend *backend)
{
	return (struct cmodel *)backend;
}

/* Half of the machine's memory, shared by the chips: sparse until it is used. */
static uint64_t default_mem_bytes(unsigned chips)
{
	long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
	uint64_t bytes = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page / 2 / chips : 0;

	bytes &= ~((256ull << 20) - 1);
	return bytes < (1ull << 30) ? 1ull << 30 : bytes;
}

static int cmodel_open(struct txda_context *context, const char *text,
		       struct txda__backend **ret_backend)
{
	struct txda__cmodel_spec spec;
	struct cm_options options = {0};
	struct cmodel *cmodel;
	char err[256];
	int r;

	r = txda__parse_cmodel(text, &spec, err, sizeof(err));
	if (r < 0)
		return txda__fail(context, r, "TXDA_CMODEL: %s", err);
	if (!spec.cores_given)
		r = txda__parse_threads(getenv("OMP_NUM_THREADS"), &spec.cores, err, sizeof(err));
	if (r < 0)
		return txda__fail(context, r, "%s", err);
	cmodel = calloc(1, sizeof(*cmodel));
	if (!cmodel)
		return txda__fail(context, -ENOMEM, "out of memory");
	cmodel->mem_bytes = spec.mem_bytes ? spec.mem_bytes : default_mem_bytes(spec.chips);
	options.chips = spec.chips;
	options.mem_bytes = cmodel->mem_bytes;
	options.cores = spec.cores;
	options.pin = spec.pin;
	options.numa_local = spec.numa_local;
	options.spin_us = spec.spin_us;
	options.isa = spec.isa;
	r = cm_machine_new(&options, &cmodel->machine);
	if (r < 0) {
		free(cmodel);
		if (r == -EBUSY)
			return txda__fail(context, r,
					  "TXDA_CMODEL: isa=%s: another context of this process "
					  "computes with another path; they share one",
					  spec.isa);
		return txda__fail(context, r,
				  "the device model (chips=%u, cores=%u, isa=%s) did not start: %s",
				  spec.chips, spec.cores, spec.isa, strerror(-r));
	}
	for (unsigned i = 0; i < spec.n_faults; i++) {
		r = cm_inject(cmodel->machine, spec.faults[i]);
		if (r < 0) {
			cm_machine_free(cmodel->machine);
			free(cmodel);
			return txda__fail(context, r, "TXDA_CMODEL: faults=%s: %s", spec.faults[i],
					  r == -ENODEV ? "there is no such chip"
						       : "the device model does not know it");
		}
	}
	pthread_mutex_init(&cmodel->lock, NULL);
	cmodel->base.ops = &txda__backend_cmodel;
	cmodel->base.context = context;
	*ret_backend = &cmodel->base;
	return 0;
}

static void cmodel_close(struct txda__backend *backend)
{
	struct cmodel *cmodel = from(backend);

	cm_machine_free(cmodel->machine);
	pthread_mutex_destroy(&cmodel->lock);
	free(cmodel);
}

static unsigned cmodel_chips(struct txda__backend *backend)
{
	return cm_machine_chips(from(backend)->machine);
}

static int cmodel_info(struct txda__backend *backend, unsigned chip, struct txda_device_info *info)
{
	struct cmodel *cmodel = from(backend);

	memset(info, 0, sizeof(*info));
	info->size = sizeof(*info);
	info->index = chip;
	info->physical = chip;
	snprintf(info->name, sizeof(info->name), "TX8 (cmodel, %.32s)",
		 cm_machine_isa(cmodel->machine));
	snprintf(info->serial, sizeof(info->serial), "CM%d-%u", (int)getpid(), chip);
	snprintf(info->bus, sizeof(info->bus), "cmodel:%d:%u", (int)getpid(), chip);
	info->caps = TXDA_CAP_CMODEL | TXDA_CAP_PRECISE | TXDA_CAP_HOST_VISIBLE;
	info->mem_bytes = cmodel->mem_bytes;
	info->cores = cm_machine_cores(cmodel->machine);
	return 0;
}

static int cmodel_status(struct txda__backend *backend, unsigned chip,
			 struct txda_device_status *status)
{
	struct cmodel *cmodel = from(backend);
	struct cm_sensors sensors = {0};

	cm_chip_sensors(cm_machine_chip(cmodel->machine, chip), &sensors);
	memset(status, 0, sizeof(*status));
	status->size = sizeof(*status);
	pthread_mutex_lock(&cmodel->lock);
	status->mem_used_bytes = cmodel->used[chip];
	pthread_mutex_unlock(&cmodel->lock);
	status->busy_ns = sensors.busy_ns;
	status->copy_busy_ns = sensors.copy_busy_ns;
	status->bytes_read = sensors.bytes_read;
	status->bytes_written = sensors.bytes_written;
	/* A lost chip does not answer: its sensors are unknown. */
	status->power_mw = sensors.lost ? UINT32_MAX : sensors.power_mw;
	status->temp_mc = sensors.lost ? INT32_MIN : sensors.temp_mc;
	status->clock_khz = sensors.lost ? UINT32_MAX : sensors.clock_khz;
	status->ecc_corrected = sensors.ecc_corrected;
	status->ecc_uncorrected = sensors.ecc_uncorrected;
	status->faults = sensors.faults;
	status->lost = sensors.lost;
	status->utilisation_permille = UINT32_MAX;
	return 0;
}

/* All chips of the process are on one card. */
static unsigned cmodel_distance(struct txda__backend *backend, unsigned a, unsigned b)
{
	(void)backend;
	return a != b;
}

static int cmodel_link(struct txda__backend *backend, unsigned chip, unsigned port,
		       struct txda_link_info *ret_info)
{
	(void)ret_info;
	return txda__fail(backend->context, -ENOENT, "chip %u has no port %u", chip, port);
}

/* ---- address spaces -------------------------------------------------------------------------- */

static int cmodel_vm_new(struct txda__backend *backend, unsigned chip, struct txda__vm **ret_vm,
			 uint64_t *ret_end)
{
	struct cmodel *cmodel = from(backend);
	struct txda__vm *vm = calloc(1, sizeof(*vm));
	int r;

	if (!vm)
		return txda__fail(backend->context, -ENOMEM, "out of memory");
	vm->cmodel = cmodel;
	vm->chip = chip;
	r = cm_vm_new(cm_machine_chip(cmodel->machine, chip), &vm->vm);
	if (r < 0) {
		free(vm);
		return txda__fail(backend->context, r, "no address space on chip %u: %s", chip,
				  strerror(-r));
	}
	*ret_vm = vm;
	*ret_end = CM_VA_BYTES;
	return 0;
}

static void cmodel_vm_free(struct txda__vm *vm)
{
	cm_vm_free(vm->vm);
	free(vm);
}

static int cmodel_vm_leave(struct txda__vm *vm, unsigned slot)
{
	return cm_vm_set_group(vm->vm, slot, 0, 0, 0);
}

static int cmodel_vm_join(struct txda__vm *const *vm, unsigned size, unsigned slot)
{
	struct cmodel *cmodel = vm[0]->cmodel;
	uint64_t id = atomic_fetch_add(&cmodel->last_group, 1) + 1;

	for (unsigned rank = 0; rank < size; rank++) {
		int r = cm_vm_set_group(vm[rank]->vm, slot, id, rank, size);

		if (r >= 0)
			continue;
		while (rank)
			cmodel_vm_leave(vm[--rank], slot);
		return txda__fail(cmodel->base.context, r, "a group of %u: %s", size, strerror(-r));
	}
	return 0;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static int reserve(struct cmodel *cmodel, unsigned chip, uint64_t bytes)
{
	char wanted[24], left[24], all[24];
	uint64_t unused;

	pthread_mutex_lock(&cmodel->lock);
	unused = cmodel->mem_bytes - cmodel->used[chip];
	if (bytes <= unused)
		cmodel->used[chip] += bytes;
	pthread_mutex_unlock(&cmodel->lock);
	if (bytes <= unused)
		return 0;
	return txda__fail(cmodel->base.context, -ENOMEM,
			  "chip %u: %s (%llu bytes) requested, %s (%llu bytes) of %s free", chip,
			  txda__bytes(bytes, wanted), (unsigned long long)bytes,
			  txda__bytes(unused, left), (unsigned long long)unused,
			  txda__bytes(cmodel->mem_bytes, all));
}

static void unreserve(struct cmodel *cmodel, unsigned chip, uint64_t bytes)
{
	pthread_mutex_lock(&cmodel->lock);
	cmodel->used[chip] -= bytes;
	pthread_mutex_unlock(&cmodel->lock);
}

/* @keep: its final seals are added once it is filled. */
static int make_memfd(uint64_t bytes, bool keep, int *ret_fd)
{
	int fd = memfd_create(keep ? "txda-weights" : "txda", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -errno;
	/* Others who get a descriptor to read from cannot open one to write to. */
	if (fchmod(fd, 0644) < 0 || ftruncate(fd, (off_t)bytes) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | (keep ? 0 : F_SEAL_SEAL)) < 0) {
		int r = -errno;

		close(fd);
		return r;
	}
	*ret_fd = fd;
	return 0;
}

static struct txda__mem *new_mem(struct txda__vm *vm, int fd, uint64_t bytes)
{
	struct txda__mem *mem = calloc(1, sizeof(*mem));

	if (!mem)
		return NULL;
	pthread_mutex_init(&mem->lock, NULL);
	mem->cmodel = vm->cmodel;
	mem->chip = vm->chip;
	mem->vm = vm;
	mem->fd = fd;
	mem->bytes = bytes;
	return mem;
}

static int cmodel_mem_new(struct txda__vm *vm, uint64_t bytes, enum txda_memory memory,
			  unsigned flags, struct txda__mem **ret_mem)
{
	const unsigned own_pages = TXDA__MEM_PRIVATE | TXDA__MEM_LARGE;
	struct cmodel *cmodel = vm->cmodel;
	struct txda_context *context = cmodel->base.context;
	bool counted = memory == TXDA_MEMORY_DEVICE;
	struct txda__mem *mem;
	int fd = -1, r;

	if (counted) {
		r = reserve(cmodel, vm->chip, bytes);
		if (r < 0)
			return r;
	}
	r = (flags & own_pages) == own_pages ? 0 : make_memfd(bytes, flags & TXDA__MEM_KEEP, &fd);
	if (r < 0) {
		txda__fail(context, r, "memory of %llu bytes: %s", (unsigned long long)bytes,
			   strerror(-r));
		goto out_unreserve;
	}
	mem = new_mem(vm, fd, bytes);
	if (!mem) {
		r = txda__fail(context, -ENOMEM, "out of memory");
		if (fd >= 0)
			close(fd);
		goto out_unreserve;
	}
	mem->counted = counted;
	*ret_mem = mem;
	return 0;

out_unreserve:
	if (counted)
		unreserve(cmodel, vm->chip, bytes);
	return r;
}

/* The same with a descriptor of its own for the file of @fd. */
static int new_mem_of(struct txda__vm *vm, int fd, uint64_t bytes, struct txda__mem **ret_mem)
{
	struct txda_context *context = vm->cmodel->base.context;
	int own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	struct txda__mem *mem;

	if (own < 0)
		return txda__fail(context, -errno, "fd %d: %s", fd, strerror(errno));
	mem = new_mem(vm, own, bytes);
	if (!mem) {
		close(own);
		return txda__fail(context, -ENOMEM, "out of memory");
	}
	*ret_mem = mem;
	return 0;
}

/* Accounted like memory of its own, which it becomes. */
static int cmodel_mem_from_file(struct txda__vm *vm, int fd, uint64_t bytes,
				struct txda__mem **ret_mem)
{
	uint64_t room = txda__align(bytes, TXDA__PAGE);
	struct txda__mem *mem = NULL;
	int r;

	r = reserve(vm->cmodel, vm->chip, room);
	if (r < 0)
		return r;
	r = new_mem_of(vm, fd, room, &mem);
	if (r < 0) {
		unreserve(vm->cmodel, vm->chip, room);
		return r;
	}
	mem->file = true;
	mem->counted = true;
	*ret_mem = mem;
	return 0;
}

/* Imported memory is accounted by its owner, except kept memory, whose owner is gone. */
static int cmodel_mem_import(struct txda__vm *vm, int fd, unsigned flags,
			     struct txda__mem **ret_mem, uint64_t *ret_bytes)
{
	struct txda_context *context = vm->cmodel->base.context;
	bool counted = flags & TXDA__IMPORT_KEPT;
	struct txda__mem *mem = NULL;
	uint64_t bytes;
	int r;

	r = txda__memfd_check(context, fd, flags & TXDA__IMPORT_READ_ONLY, &bytes);
	if (r >= 0 && counted)
		r = txda__memfd_check_frozen(context, fd);
	if (r >= 0 && counted)
		r = reserve(vm->cmodel, vm->chip, bytes);
	if (r < 0)
		return r;
	r = new_mem_of(vm, fd, bytes, &mem);
	if (r < 0) {
		if (counted)
			unreserve(vm->cmodel, vm->chip, bytes);
		return r;
	}
	mem->sealed = flags & TXDA__IMPORT_READ_ONLY;
	mem->counted = counted;
	*ret_mem = mem;
	*ret_bytes = bytes;
	return 0;
}

/*
 * Existing mappings may still write; they belong to this process and end with it. A file's pages
 * are allocated small, as they are written; where the kernel supports large ones (6.1), a copy into
 * them pays off.
 */
static int cmodel_mem_freeze(struct txda__mem *mem)
{
	void *ptr = cm_vm_resolve(mem->vm->vm, mem->va, mem->bytes, CM_MAP_READ);

	if (ptr)
		(void)madvise(ptr, mem->bytes, MADV_COLLAPSE);
	if (fcntl(mem->fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) < 0)
		return txda__fail(mem->cmodel->base.context, -errno,
				  "sealing memory against writing: %s", strerror(errno));
	mem->sealed = true;
	return 0;
}

static int cmodel_mem_export(struct txda__mem *mem, bool read_only, int *ret_fd)
{
	char path[32];
	int fd;

	if (mem->fd < 0 || mem->file)
		return txda__fail(mem->cmodel->base.context, -ENOTSUP,
				  "export: the buffer is private");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", mem->fd);
	fd = read_only ? open(path, O_RDONLY | O_CLOEXEC) : fcntl(mem->fd, F_DUPFD_CLOEXEC, 3);
	if (fd < 0)
		return txda__fail(mem->cmodel->base.context, -errno, "export: %s", strerror(errno));
	*ret_fd = fd;
	return 0;
}

static void cmodel_mem_free(struct txda__mem *mem)
{
	if (mem->host)
		munmap(mem->host, mem->bytes);
	if (mem->fd >= 0)
		close(mem->fd);
	if (mem->counted)
		unreserve(mem->cmodel, mem->chip, mem->bytes);
	pthread_mutex_destroy(&mem->lock);
	free(mem);
}

static int cmodel_mem_bind(struct txda__mem *mem, uint64_t va, bool read_only)
{
	int r = cm_vm_map(mem->vm->vm, va, mem->fd < 0 ? CM_MAP_PRIVATE : mem->fd, 0, mem->bytes,
			  CM_MAP_READ | (read_only ? 0 : CM_MAP_WRITE) |
				  (mem->file ? CM_MAP_LOSABLE : 0));

	if (r < 0)
		return txda__fail(mem->cmodel->base.context, r,
				  "mapping %llu bytes at 0x%llx of chip %u: %s",
				  (unsigned long long)mem->bytes, (unsigned long long)va, mem->chip,
				  strerror(-r));
	mem->va = va;
	mem->read_only = read_only;
	return 0;
}

static void cmodel_mem_unbind(struct txda__mem *mem)
{
	cm_vm_unmap(mem->vm->vm, mem->va, mem->bytes);
}

/* The model's own mapping if it is writable, else a second one. */
static int cmodel_mem_map(struct txda__mem *mem, void **ret_ptr)
{
	void *ptr = NULL;
	int r = 0;

	if (!mem->read_only || mem->fd < 0 || mem->file)
		ptr = cm_vm_resolve(mem->vm->vm, mem->va, mem->bytes,
				    CM_MAP_READ | (mem->read_only ? 0 : CM_MAP_WRITE));
	if (!ptr && mem->file)
		r = -EIO;
	if (!ptr && !r) {
		pthread_mutex_lock(&mem->lock);
		if (!mem->host) {
			int prot = PROT_READ | (mem->sealed ? 0 : PROT_WRITE);

			ptr = mmap(NULL, mem->bytes, prot, MAP_SHARED, mem->fd, 0);
			if (ptr == MAP_FAILED)
				r = -errno;
			else
				mem->host = ptr;
		}
		ptr = mem->host;
		pthread_mutex_unlock(&mem->lock);
	}
	if (r < 0)
		return txda__fail(mem->cmodel->base.context, r, "mapping %llu bytes: %s",
				  (unsigned long long)mem->bytes, strerror(-r));
	*ret_ptr = ptr;
	return 0;
}

/* Copies one staging buffer; returns the bytes or -errno, 0 at the end of the file. */
static int64_t load_some(struct txda__mem *mem, void *staging, uint64_t offset, int fd,
			 uint64_t fd_offset, uint64_t bytes)
{
	ssize_t got, put;
	uint64_t done = 0;

	do {
		got = pread(fd, staging, bytes < STAGING_BYTES ? bytes : STAGING_BYTES,
			    (off_t)fd_offset);
	} while (got < 0 && errno == EINTR);
	if (got <= 0)
		return got < 0 ? -errno : 0;
	while (done < (uint64_t)got) {
		put = pwrite(mem->fd, (char *)staging + done, (uint64_t)got - done,
			     (off_t)(offset + done));
		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			return put < 0 ? -errno : -EIO;
		done += (uint64_t)put;
	}
	return got;
}

static int load_failed(struct txda__mem *mem, int error)
{
	return txda__fail(mem->cmodel->base.context, error, "reading the file: %s",
			  strerror(-error));
}

/* Private memory has no file: reads directly into the model's mapping, which uses large pages. */
static int64_t load_private(struct txda__mem *mem, uint64_t offset, int fd, uint64_t fd_offset,
			    uint64_t bytes)
{
	int64_t n;
	void *ptr;
	int r = cmodel_mem_map(mem, &ptr);

	if (r < 0)
		return r;
	n = io_pread(fd, (char *)ptr + offset, bytes, fd_offset);
	return n < 0 ? load_failed(mem, (int)n) : n;
}

/* A file's own pages: fills the page tables, so that the first step finds them filled. */
static int64_t load_mapped(struct txda__mem *mem, uint64_t offset, uint64_t bytes)
{
	void *ptr;
	int r = cmodel_mem_map(mem, &ptr);

	if (r >= 0 &&
	    madvise((char *)ptr + offset, txda__align(bytes, TXDA__PAGE), MADV_POPULATE_READ))
		/* -EINVAL: the kernel is older than 5.14, accesses will fill them. */
		r = errno == EINVAL ? 0 : load_failed(mem, errno == EFAULT ? -EIO : -errno);
	return r < 0 ? r : (int64_t)bytes;
}

/*
 * Launches go first: rests after work that began at @start_ns. A low priority would delay others
 * more: a page fault holds the lock of the address space, and a thread that then waits for a
 * processor keeps all waiting whose malloc() needs more memory; 80 ms have been seen.
 */
static void rest(uint64_t start_ns)
{
	uint64_t ns = REST_TIMES * (clock_ns() - start_ns);

	nanosleep(&(struct timespec){.tv_nsec = ns < REST_MOST_NS ? (long)ns : REST_MOST_NS}, NULL);
}

/* Reads [offset, offset + bytes) of the file, and its checksum while it is in the cache. */
static int read_chunk(struct txda__mem *mem, char *ptr, uint64_t offset, uint64_t bytes,
		      const atomic_bool *stop, uint32_t *ret_crc)
{
	uint64_t done = 0;

	*ret_crc = 0;
	while (done < bytes) {
		uint64_t part = bytes - done < STAGING_BYTES ? bytes - done : STAGING_BYTES;
		uint64_t start = clock_ns();
		int64_t n = io_pread(mem->fd, ptr + done, part, offset + done);

		if (n <= 0)
			return n < 0 ? (int)n : -ENODATA;
		*ret_crc = crc32c(*ret_crc, ptr + done, (size_t)n);
		done += (uint64_t)n;
		if (atomic_load(stop))
			return -ECANCELED;
		if (done < bytes)
			rest(start);
	}
	return 0;
}

static int cmodel_mem_own(struct txda__mem *mem, uint64_t offset, uint64_t bytes, uint32_t crc,
			  const atomic_bool *stop)
{
	uint64_t room = txda__align(bytes, TXDA__PAGE);
	char *map = mmap(NULL, room + LARGE_PAGE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0),
	     *ptr;
	uint32_t sum;
	int r;

	if (map == MAP_FAILED)
		return -errno;
	/* Large pages move as they are between addresses aligned to them. */
	ptr = map + (txda__align((uintptr_t)map, LARGE_PAGE) - (uintptr_t)map);
	if (room >= LARGE_PAGE)
		(void)madvise(ptr, room, MADV_HUGEPAGE);
	cm_machine_spread(mem->cmodel->machine, ptr, room);
	r = read_chunk(mem, ptr, offset, bytes, stop, &sum);
	if (r >= 0 && sum != crc)
		r = -EBADMSG;
	if (r >= 0)
		r = cm_vm_replace(mem->vm->vm, mem->va + offset, ptr, room);
	/* What has moved away is not this thread's any more. */
	if (ptr > map)
		munmap(map, (size_t)(ptr - map));
	if (r < 0)
		munmap(ptr, room);
	munmap(ptr + room, (size_t)(map + LARGE_PAGE - ptr));
	return r;
}

static void cmodel_mem_owned(struct txda__mem *mem, bool good)
{
	if (!good) {
		cm_vm_lose(mem->vm->vm, mem->va, mem->bytes);
		return;
	}
	cm_vm_replaced(mem->vm->vm, mem->va, mem->bytes);
	close(mem->fd);
	mem->fd = -1;
}

/*
 * Writes to the memfd, not to a mapping: this avoids a page fault per page and zeroing of pages
 * that are about to be filled. The staging buffer stays in the CPU cache.
 */
static int64_t cmodel_mem_load(struct txda__mem *mem, uint64_t offset, int fd, uint64_t fd_offset,
			       uint64_t bytes)
{
	void *staging;
	uint64_t done = 0;
	int64_t n = 0;

	if (mem->fd < 0)
		return load_private(mem, offset, fd, fd_offset, bytes);
	if (mem->file)
		return load_mapped(mem, offset, bytes);
	staging = aligned_alloc(4096, STAGING_BYTES);
	if (!staging)
		return load_failed(mem, -ENOMEM);
	while (done < bytes) {
		n = load_some(mem, staging, offset + done, fd, fd_offset + done, bytes - done);
		if (n <= 0)
			break;
		done += (uint64_t)n;
	}
	free(staging);
	return n < 0 ? load_failed(mem, (int)n) : (int64_t)done;
}

/* ---- queues ---------------------------------------------------------------------------------- */

static void on_signalled(void *arg, uint64_t va, uint64_t value)
{
	struct txda__hwqueue *queue = arg;

	(void)va;
	(void)value;
	queue->events.passed(queue->events.arg);
}

static void on_faulted(void *arg, const struct txda_fault *fault)
{
	struct txda__hwqueue *queue = arg;

	(void)fault;
	queue->events.faulted(queue->events.arg);
}

static int cmodel_queue_new(struct txda__vm *vm, enum txda_queue_class queue_class,
			    const struct txda__queue_events *events,
			    struct txda__hwqueue **ret_queue)
{
	static const struct cm_queue_ops ops = {.signalled = on_signalled, .faulted = on_faulted};
	struct txda_context *context = vm->cmodel->base.context;
	struct txda__hwqueue *queue = calloc(1, sizeof(*queue));
	int r;

	if (!queue)
		return txda__fail(context, -ENOMEM, "out of memory");
	queue->cmodel = vm->cmodel;
	queue->vm = vm->vm;
	queue->events = *events;
	r = cm_queue_new(vm->vm, queue_class == TXDA_QUEUE_COPY ? CM_QUEUE_COPY : CM_QUEUE_COMPUTE,
			 &ops, queue, &queue->queue);
	if (r < 0) {
		free(queue);
		return txda__fail(context, r, "no queue: %s", strerror(-r));
	}
	*ret_queue = queue;
	return 0;
}

static void cmodel_queue_free(struct txda__hwqueue *queue)
{
	cm_queue_free(queue->queue);
	free(queue);
}

static int cmodel_queue_submit(struct txda__hwqueue *queue, uint64_t va, uint64_t bytes,
			       uint64_t fence, bool wait_soon)
{
	(void)fence;
	return cm_queue_submit(queue->queue, va, bytes, wait_soon);
}

static int cmodel_queue_fault(struct txda__hwqueue *queue, struct txda_fault *ret_fault, char *buf,
			      size_t len)
{
	struct txda_fault fault;
	char text[384];

	if (cm_queue_fault(queue->queue, &fault) < 0)
		return 0;
	*ret_fault = fault;
	snprintf(buf, len, "%s", cm_fault_text(queue->vm, &fault, text, sizeof(text)));
	return fault.code == TXDA_FAULT_LOST ? -ENODEV : -EIO;
}

static int cmodel_queue_wait(struct txda__hwqueue *queue, const uint64_t *word, uint64_t fence,
			     uint64_t deadline_ns)
{
	return cm_wait(queue->cmodel->machine, queue->queue, word, fence, deadline_ns);
}

const struct txda__backend_ops txda__backend_cmodel = {
	.name = "cmodel",
	.simulated = true,
	.signals = true,
	.open = cmodel_open,
	.close = cmodel_close,
	.chips = cmodel_chips,
	.info = cmodel_info,
	.status = cmodel_status,
	.distance = cmodel_distance,
	.link = cmodel_link,
	.vm_new = cmodel_vm_new,
	.vm_free = cmodel_vm_free,
	.vm_join = cmodel_vm_join,
	.vm_leave = cmodel_vm_leave,
	.mem_new = cmodel_mem_new,
	.mem_import = cmodel_mem_import,
	.mem_export = cmodel_mem_export,
	.mem_from_file = cmodel_mem_from_file,
	.mem_own = cmodel_mem_own,
	.mem_owned = cmodel_mem_owned,
	.mem_freeze = cmodel_mem_freeze,
	.mem_free = cmodel_mem_free,
	.mem_bind = cmodel_mem_bind,
	.mem_unbind = cmodel_mem_unbind,
	.mem_map = cmodel_mem_map,
	.mem_load = cmodel_mem_load,
	.queue_new = cmodel_queue_new,
	.queue_free = cmodel_queue_free,
	.queue_submit = cmodel_queue_submit,
	.queue_wait = cmodel_queue_wait,
	.queue_fault = cmodel_queue_fault,
};
