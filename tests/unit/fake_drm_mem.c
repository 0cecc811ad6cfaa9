// SPDX-License-Identifier: MIT
#include <linux/falloc.h>

#include "fake_drm_internal.h"

static int vm_create(struct file *file, void *arg)
{
	struct drm_txda_vm_create *a = arg;
	struct object *o;
	struct cm_vm *vm;
	int r;

	if (a->flags)
		return -EINVAL;
	r = cm_vm_new(cm_machine_chip(fake.machine, file->chip), &vm);
	if (r < 0)
		return r;
	o = fake_make(file, VM);
	o->vm = vm;
	o->page_buffer = fake_buffer(PAGE_BYTES);
	o->page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fake.memory,
		       (off_t)o->page_buffer->offset);
	check(o->page != MAP_FAILED);
	r = cm_vm_map(vm, PRIVATE_VA, fake.memory, o->page_buffer->offset, PAGE_BYTES,
		      CM_MAP_READ | CM_MAP_WRITE);
	check(r == 0);
	a->id = o->id;
	a->va_range = PRIVATE_VA;
	return 0;
}

static int vm_destroy(struct file *file, void *arg)
{
	struct drm_txda_vm_destroy *a = arg;
	struct object *o = fake_find(file, VM, a->id);

	if (!o)
		return -ENOENT;
	for (unsigned i = 0; i < MAX_OBJECTS; i++)
		if (fake.object[i] && fake.object[i]->kind == QUEUE &&
		    fake.object[i]->file == file && fake.object[i]->vm_id == a->id)
			return -EBUSY;
	for (uint32_t slot = 0; slot < DRM_TXDA_GROUP_SLOTS; slot++)
		fake_dissolve(o->group[slot], slot);
	fake_drop(o);
	return 0;
}

static int vm_get_state(struct file *file, void *arg)
{
	struct drm_txda_vm_get_state *a = arg;
	struct object *o = fake_find(file, VM, a->id);

	if (!o)
		return -ENOENT;
	a->state = o->lost ? DRM_TXDA_VM_LOST : DRM_TXDA_VM_USABLE;
	return 0;
}

static int vm_bind(struct file *file, void *arg)
{
	struct drm_txda_vm_bind *a = arg;
	const struct drm_txda_bind_op *op = (void *)(uintptr_t)a->ops.array;
	struct object *vm = fake_find(file, VM, a->vm_id), *bo;

	if (!vm)
		return -ENOENT;
	if (vm->lost)
		return -EIO;
	if (a->ops.count != 1 || a->ops.stride != sizeof(*op) || a->flags || a->pad ||
	    op->syncs.count || !op->size || op->size % 4096 || op->va % 4096 ||
	    op->va + op->size > PRIVATE_VA)
		return -EINVAL;
	cm_vm_unmap(vm->vm, op->va, op->size);
	if ((op->flags & DRM_TXDA_BIND_KIND_MASK) == DRM_TXDA_BIND_UNMAP)
		return op->bo || op->bo_offset ? -EINVAL : 0;
	bo = fake_find(file, HANDLE, op->bo);
	if (!bo)
		return -ENOENT;
	if ((bo->vm_id && bo->vm_id != a->vm_id) || op->bo_offset + op->size > bo->buffer->bytes)
		return -EINVAL;
	if (bo->read_only && !(op->flags & DRM_TXDA_BIND_READONLY))
		return -EACCES;
	if (fake_drm.no_links && bo->buffer->device && bo->buffer->slot != file->slot)
		return -EXDEV;
	return cm_vm_map(
		vm->vm, op->va, bo->buffer->user_fd >= 0 ? bo->buffer->user_fd : fake.memory,
		bo->buffer->user_fd >= 0 ? 0 : bo->buffer->offset + op->bo_offset, op->size,
		CM_MAP_READ | (op->flags & DRM_TXDA_BIND_READONLY ? 0 : CM_MAP_WRITE));
}

void fake_dissolve(uint64_t group, uint32_t slot)
{
	for (unsigned i = 0; i < MAX_OBJECTS; i++) {
		struct object *o = fake.object[i];

		if (!group || !o || o->kind != VM || o->group[slot] != group)
			continue;
		o->group[slot] = 0;
		cm_vm_set_group(o->vm, slot, 0, 0, 0);
	}
}

static bool has_jobs(const struct object *vm)
{
	struct txda_fault fault;

	for (unsigned i = 0; i < MAX_OBJECTS; i++) {
		struct object *o = fake.object[i];

		if (o && o->kind == QUEUE && o->file == vm->file && o->vm_id == vm->id &&
		    o->submitted > fake_jobs_done(o) && !o->lost &&
		    cm_queue_fault(o->queue, &fault) < 0)
			return true;
	}
	return false;
}

/* Any job of a member may use the group. */
static bool is_busy(uint64_t group, uint32_t slot)
{
	for (unsigned i = 0; group && i < MAX_OBJECTS; i++)
		if (fake.object[i] && fake.object[i]->kind == VM &&
		    fake.object[i]->group[slot] == group && has_jobs(fake.object[i]))
			return true;
	return false;
}

static int vm_set_group(struct file *file, void *arg)
{
	struct drm_txda_vm_set_group *a = arg;
	const struct drm_txda_member *m = (void *)(uintptr_t)a->members.array;
	struct object *vm = fake_find(file, VM, a->vm_id);
	struct object *member[DRM_TXDA_MAX_GROUP];
	uint64_t id = ++fake.last_group;
	int r = 0;

	if (!vm)
		return -ENOENT;
	if (!a->members.count) {
		if (is_busy(vm->group[a->slot], a->slot))
			return -EBUSY;
		fake_dissolve(vm->group[a->slot], a->slot);
		return 0;
	}
	if (fake_drm.no_links)
		return -EXDEV;
	for (unsigned i = 0; i < a->members.count; i++) {
		struct file *other = fake_file(m[i].fd);

		member[i] = other ? fake_find(other, VM, m[i].vm_id) : NULL;
		if (!member[i] || fake.gone[other->chip])
			return member[i] ? -ENODEV : -ENOENT;
		if (member[i]->lost)
			return -EIO;
		if (is_busy(member[i]->group[a->slot], a->slot))
			return -EBUSY;
	}
	for (unsigned i = 0; i < a->members.count; i++)
		fake_dissolve(member[i]->group[a->slot], a->slot);
	for (unsigned i = 0; i < a->members.count && r >= 0; i++) {
		r = cm_vm_set_group(member[i]->vm, a->slot, id, i, a->members.count);
		member[i]->group[a->slot] = id;
	}
	return r;
}

static int bo_create(struct file *file, void *arg)
{
	struct drm_txda_bo_create *a = arg;
	bool device = a->places == DRM_TXDA_PLACE_DEVICE;
	uint64_t bytes = (a->size + 4095) & ~4095ull, used;
	struct object *o;

	fake_reap();
	used = fake.used[file->chip];
	if (!a->size || (!device && a->places != DRM_TXDA_PLACE_HOST) ||
	    a->flags & ~DRM_TXDA_BO_NO_MMAP)
		return -EINVAL;
	if (a->vm_id && !fake_find(file, VM, a->vm_id))
		return -ENOENT;
	if (device && (bytes > FAKE_CHIP_BYTES - used ||
		       (fake_drm.mappable_bytes && !(a->flags & DRM_TXDA_BO_NO_MMAP) &&
			used + bytes > fake_drm.mappable_bytes)))
		return -ENOSPC;
	o = fake_make(file, HANDLE);
	o->buffer = fake_buffer(bytes);
	o->buffer->device = device;
	o->buffer->no_mmap = a->flags & DRM_TXDA_BO_NO_MMAP;
	o->buffer->slot = file->slot;
	o->buffer->chip = file->chip;
	o->vm_id = a->vm_id;
	if (device)
		fake.used[file->chip] += bytes;
	a->size = bytes;
	a->handle = o->id;
	return 0;
}

/* A descriptor of this process for the file with that inode; -1: it has none. */
static int find_fd(unsigned long inode)
{
	struct stat st;

	for (int fd = 0; fd < 1024; fd++)
		if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_ino == inode &&
		    fcntl(fd, F_GET_SEALS) >= 0)
			return fcntl(fd, F_DUPFD_CLOEXEC, 3);
	return -1;
}

/* The pages themselves cannot be had from here, but the memfd that is mapped there can. */
static int bo_from_userptr(struct file *file, void *arg)
{
	struct drm_txda_bo_from_userptr *a = arg;
	unsigned long from, to, inode;
	struct object *o;
	char line[512];
	FILE *maps = fopen("/proc/self/maps", "r");
	int fd = -1;

	check(maps);
	while (fd < 0 && fgets(line, sizeof(line), maps))
		if (sscanf(line, "%lx-%lx %*s %*s %*s %lu", &from, &to, &inode) == 3 &&
		    from <= a->va && to >= a->va + a->size)
			fd = find_fd(inode);
	fclose(maps);
	if (fd < 0)
		return -EOPNOTSUPP;
	o = fake_make(file, HANDLE);
	o->buffer = fake_buffer(a->size);
	o->buffer->user_fd = fd;
	o->vm_id = a->vm_id;
	a->handle = o->id;
	return 0;
}

static int bo_mmap_offset(struct file *file, void *arg)
{
	struct drm_txda_bo_mmap_offset *a = arg;
	struct object *o = fake_find(file, HANDLE, a->handle);

	if (!o)
		return -ENOENT;
	if (o->buffer->no_mmap)
		return -EPERM;
	a->offset = o->buffer->offset;
	return 0;
}

static int bo_query_info(struct file *file, void *arg)
{
	struct drm_txda_bo_query_info *a = arg;
	struct object *o = fake_find(file, HANDLE, a->handle);

	if (!o)
		return -ENOENT;
	a->place = o->buffer->device ? DRM_TXDA_PLACE_DEVICE : DRM_TXDA_PLACE_HOST;
	a->flags = (o->buffer->no_mmap ? DRM_TXDA_BO_NO_MMAP : 0) |
		   (o->buffer->device && o->buffer->chip != file->chip ? DRM_TXDA_BO_IMPORTED : 0);
	a->size = o->buffer->bytes;
	return 0;
}

/* Memory is short at once: idle buffers lose theirs when they are declared idle. */
static int bo_advise(struct file *file, void *arg)
{
	struct drm_txda_bo_advise *a = arg;
	struct object *o = fake_find(file, HANDLE, a->handle);

	if (!o)
		return -ENOENT;
	if (a->pad || a->advice > DRM_TXDA_DONTNEED)
		return -EINVAL;
	if (fake_drm.no_advice)
		return -ENOTTY;
	if (o->buffer->exported)
		return -EPERM;
	if (a->advice == DRM_TXDA_DONTNEED)
		check(!fallocate(fake.memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				 (off_t)o->buffer->offset, (off_t)o->buffer->bytes));
	a->retained = a->advice != DRM_TXDA_DONTNEED;
	return 0;
}

static int gem_close(struct file *file, void *arg)
{
	struct drm_gem_close *a = arg;
	struct object *o = fake_find(file, HANDLE, a->handle);

	if (!o)
		return -EINVAL;
	fake_drop(o);
	return 0;
}

static int prime_export(struct file *file, void *arg)
{
	struct drm_prime_handle *a = arg;
	struct object *o = fake_find(file, HANDLE, a->handle);

	if (!o)
		return -ENOENT;
	if (o->vm_id)
		return -EPERM;
	o->buffer->exported = true;
	a->fd = fake_dmabuf(o->buffer, a->flags & DRM_RDWR);
	return 0;
}

static int prime_import(struct file *file, void *arg)
{
	struct drm_prime_handle *a = arg;
	struct buffer *buffer;
	bool read_only;
	struct object *o;

	if (fcntl(a->fd, F_GETFD) < 0)
		return -EBADF;
	read_only = (fcntl(a->fd, F_GETFL) & O_ACCMODE) == O_RDONLY;
	buffer = fake_dmabuf_find(a->fd);
	if (!buffer)
		return -EINVAL;
	/* One handle for one buffer in one file; another one that may only be read. */
	for (unsigned i = 0; i < MAX_OBJECTS; i++)
		if (fake.object[i] && fake.object[i]->file == file &&
		    fake.object[i]->buffer == buffer && fake.object[i]->read_only == read_only) {
			a->handle = fake.object[i]->id;
			return 0;
		}
	o = fake_make(file, HANDLE);
	o->buffer = buffer;
	o->read_only = read_only;
	buffer->refs++;
	a->handle = o->id;
	return 0;
}

const struct fake_ioctl fake_mem_ioctls[] = {
	{DRM_IOCTL_GEM_CLOSE, gem_close},
	{DRM_IOCTL_PRIME_HANDLE_TO_FD, prime_export},
	{DRM_IOCTL_PRIME_FD_TO_HANDLE, prime_import},
	{DRM_IOCTL_TXDA_VM_CREATE, vm_create},
	{DRM_IOCTL_TXDA_VM_DESTROY, vm_destroy},
	{DRM_IOCTL_TXDA_VM_GET_STATE, vm_get_state},
	{DRM_IOCTL_TXDA_VM_BIND, vm_bind},
	{DRM_IOCTL_TXDA_VM_SET_GROUP, vm_set_group},
	{DRM_IOCTL_TXDA_BO_CREATE, bo_create},
	{DRM_IOCTL_TXDA_BO_MMAP_OFFSET, bo_mmap_offset},
	{DRM_IOCTL_TXDA_BO_QUERY_INFO, bo_query_info},
	{DRM_IOCTL_TXDA_BO_ADVISE, bo_advise},
	{DRM_IOCTL_TXDA_BO_FROM_USERPTR, bo_from_userptr},
	{0, NULL},
};
