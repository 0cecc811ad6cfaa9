// SPDX-License-Identifier: MIT
#include "fake_drm.h"

#include <assert.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cmodel.h"
#include "txda_isa.h"
#include "txda_regs.h"

#define MAX_FILES   16
#define MAX_OBJECTS 256
#define MAX_FENCES  1024
#define MODEL_CHIPS 16	     /* each that is plugged in is another one */
#define MAX_JOBS    32	     /* of a queue, in flight */
#define PAGE_BYTES  65536ull /* of the fake in each address space: words, then streams */
#define MAX_WORDS   64
#define PRIVATE_VA  (CM_VA_BYTES - (1ull << 20)) /* the fake's own page in each address space */

/* Built without NDEBUG in mind: a test that goes on after this means nothing. */
#define check(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);            \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

struct buffer {
	unsigned refs; /* handles, exported fds, mappings */
	uint64_t offset, bytes;
	unsigned slot; /* of the chip whose memory it takes */
	bool device, no_mmap;
	unsigned chip;
	int user_fd;	/* userptr: what is mapped there; -1: none */
};

enum kind { FREE, HANDLE, VM, QUEUE, SYNCOBJ };

struct file;

struct object {
	enum kind kind;
	struct file *file;
	uint32_t id;
	struct buffer *buffer; /* HANDLE */
	uint32_t vm_id;	       /* HANDLE: private to; QUEUE */
	struct cm_vm *vm;
	uint64_t *page; /* VM: the fake's own */
	bool lost;
	struct buffer *page_buffer;
	struct cm_queue *queue;
	unsigned n_queues; /* VM: so far */
	unsigned index;	   /* QUEUE: of its word in the page */
	uint64_t *word;
	uint64_t submitted;
	uint32_t timeline;	     /* QUEUE: of its last job */
	uint64_t point;		     /* SYNCOBJ: the last that was submitted ... */
	struct object *by;	     /* ... to this queue */
	uint64_t job_of[MAX_FENCES]; /* SYNCOBJ: number of the job that signals a point */
};

struct file {
	int fd; /* -1: free */
	unsigned slot, chip;
	uint32_t last_id;
};

/* A dma-buf: a pipe, told by its inode, whose other end tells when nobody has it any more. */
struct dmabuf {
	struct buffer *buffer; /* NULL: free */
	ino_t inode;
	int end;
};

struct watcher {
	struct object *syncobj;
	uint64_t point;
	int fd;
};

struct fake_drm_knobs fake_drm;

static struct {
	struct cm_machine *machine;
	unsigned n_slots, n_chips;
	unsigned chip[FAKE_CHIPS]; /* in the slot */
	bool there[FAKE_CHIPS];
	atomic_bool gone[MODEL_CHIPS];
	uint64_t used[MODEL_CHIPS];
	int memory;
	uint64_t memory_end;
	struct file file[MAX_FILES];
	struct object *object[MAX_OBJECTS];
	struct dmabuf dmabuf[MAX_FILES];
	unsigned long resets[MODEL_CHIPS];
	unsigned long n_calls;
	struct {
		unsigned long request, n;
	} calls[64];
	uint64_t last_group;
	struct txda__listener *listener;
} fake;

/* Tables; outside of the model's own locks. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* What callbacks of the model touch: who waits for words. */
static pthread_mutex_t word_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t word_changed;
static struct watcher watcher[MAX_FENCES];
static unsigned n_watchers;

/* ---- buffers --------------------------------------------------------------------------------- */

static struct buffer *make_buffer(uint64_t bytes)
{
	struct buffer *b = calloc(1, sizeof(*b));

	check(b);
	b->refs = 1;
	b->bytes = bytes;
	b->offset = fake.memory_end;
	b->user_fd = -1;
	fake.memory_end += bytes + (2 << 20);
	return b;
}

static void put_buffer(struct buffer *b, unsigned chip)
{
	if (!b || --b->refs)
		return;
	if (b->device)
		fake.used[chip] -= b->bytes;
	check(!fallocate(fake.memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)b->offset,
			 (off_t)b->bytes));
	if (b->user_fd >= 0)
		close(b->user_fd);
	free(b);
}

/* Dma-bufs that were closed everywhere. */
static void reap(void)
{
	for (unsigned i = 0; i < MAX_FILES; i++) {
		struct dmabuf *d = &fake.dmabuf[i];
		struct pollfd end = {.fd = d->end};

		if (!d->buffer || poll(&end, 1, 0) != 1 || !(end.revents & POLLERR))
			continue;
		close(d->end);
		put_buffer(d->buffer, d->buffer->chip);
		d->buffer = NULL;
	}
}

/* ---- objects --------------------------------------------------------------------------------- */

static struct file *find_file(int fd)
{
	for (unsigned i = 0; i < MAX_FILES; i++)
		if (fake.file[i].fd == fd)
			return &fake.file[i];
	return NULL;
}

static struct object *find(struct file *file, enum kind kind, uint32_t id)
{
	for (unsigned i = 0; i < MAX_OBJECTS; i++)
		if (fake.object[i] && fake.object[i]->file == file &&
		    fake.object[i]->kind == kind && fake.object[i]->id == id)
			return fake.object[i];
	return NULL;
}

static struct object *make(struct file *file, enum kind kind)
{
	for (unsigned i = 0; i < MAX_OBJECTS; i++)
		if (!fake.object[i]) {
			struct object *o = calloc(1, sizeof(*o));

			check(o);
			o->kind = kind;
			o->file = file;
			o->id = ++file->last_id;
			fake.object[i] = o;
			return o;
		}
	check(!"too many objects");
	return NULL;
}

/* Of a queue: jobs that are done. */
static uint64_t jobs_done(const struct object *queue)
{
	return __atomic_load_n(queue->word, __ATOMIC_ACQUIRE);
}

/* Signalled, for good or bad. */
static bool is_signalled(struct object *syncobj, uint64_t point)
{
	struct object *queue = syncobj->by;
	struct txda_fault fault;

	return !queue || fake.gone[syncobj->file->chip] ||
	       cm_queue_fault(queue->queue, &fault) == 0 ||
	       jobs_done(queue) >= syncobj->job_of[point % MAX_FENCES];
}

/* With word_lock. */
static void wake(void)
{
	for (unsigned i = 0; i < n_watchers;) {
		uint64_t one = 1;

		if (!is_signalled(watcher[i].syncobj, watcher[i].point)) {
			i++;
			continue;
		}
		if (write(watcher[i].fd, &one, sizeof(one)) < 0)
			one = 0;
		close(watcher[i].fd);
		watcher[i] = watcher[--n_watchers];
	}
	pthread_cond_broadcast(&word_changed);
}

static void on_signalled(void *arg, uint64_t va, uint64_t value)
{
	(void)arg;
	(void)va;
	(void)value;
	pthread_mutex_lock(&word_lock);
	wake();
	pthread_mutex_unlock(&word_lock);
}

static void on_faulted(void *arg, const struct txda_fault *fault)
{
	(void)fault;
	on_signalled(arg, 0, 0);
}

/* Frees an object. The model's parts without a lock of ours that its callbacks take. */
static void drop(struct object *o)
{
	struct cm_queue *queue = NULL;

	pthread_mutex_lock(&word_lock);
	if (o->kind == QUEUE) {
		queue = o->queue;
		for (unsigned i = 0; i < MAX_OBJECTS; i++)
			if (fake.object[i] && fake.object[i]->by == o)
				fake.object[i]->by = NULL;
		wake();
	}
	for (unsigned i = 0; i < n_watchers;)
		if (watcher[i].syncobj == o) {
			close(watcher[i].fd);
			watcher[i] = watcher[--n_watchers];
		} else {
			i++;
		}
	for (unsigned i = 0; i < MAX_OBJECTS; i++)
		if (fake.object[i] == o)
			fake.object[i] = NULL;
	pthread_mutex_unlock(&word_lock);
	if (queue)
		cm_queue_free(queue);
	if (o->kind == VM) {
		cm_vm_free(o->vm);
		munmap(o->page, PAGE_BYTES);
		put_buffer(o->page_buffer, o->file->chip);
	}
	put_buffer(o->buffer, o->file->chip);
	free(o);
}

/* ---- ioctls: what the chip is ---------------------------------------------------------------- */

static int dev_query(struct file *file, void *arg)
{
	struct drm_txda_dev_query *q = arg;
	union {
		struct drm_txda_device_info device;
		struct drm_txda_memory_info memory;
		struct drm_txda_firmware_info firmware;
		struct drm_txda_topology_info topology;
		struct drm_txda_reset_info reset;
	} answer;
	uint32_t bytes;

	memset(&answer, 0, sizeof(answer));
	switch (q->type) {
	case DRM_TXDA_QUERY_DEVICE:
		bytes = sizeof(answer.device);
		snprintf((char *)answer.device.name, sizeof(answer.device.name), "TX8 (fake)");
		/* all sixteen bytes, without a NUL */
		snprintf((char *)answer.device.serial, 16, "FAKE-SERIAL-%03u", file->slot);
		answer.device.serial[15] = '!';
		answer.device.isa_major = TXDA_ISA_MAJOR;
		answer.device.caps = TXDA_CHIP_CMODEL | TXDA_CHIP_PRECISE;
		answer.device.cores = 2;
		break;
	case DRM_TXDA_QUERY_MEMORY:
		bytes = sizeof(answer.memory);
		answer.memory.device_bytes = FAKE_CHIP_BYTES;
		reap();
		answer.memory.device_used = fake.used[file->chip];
		answer.memory.device_mappable = FAKE_CHIP_BYTES;
		break;
	case DRM_TXDA_QUERY_RESET:
		bytes = sizeof(answer.reset);
		answer.reset.queue_resets = 3;
		answer.reset.chip_resets = fake.resets[file->chip];
		break;
	case DRM_TXDA_QUERY_FIRMWARE:
		bytes = sizeof(answer.firmware);
		answer.firmware.version = 0x10203;
		break;
	case DRM_TXDA_QUERY_TOPOLOGY:
		bytes = sizeof(answer.topology);
		answer.topology.card = fake_drm.no_links ? 100 + file->slot : 0xc0ffee;
		answer.topology.card_index = fake_drm.no_links ? 0 : file->slot;
		answer.topology.n_ports = 1;
		answer.topology.ports[0].state = fake_drm.no_links ? TXDA_PORT_DOWN : TXDA_PORT_UP;
		answer.topology.ports[0].peer_card = 101;
		break;
	default: return -EINVAL;
	}
	if (fake_drm.known_bytes && bytes > fake_drm.known_bytes)
		bytes = fake_drm.known_bytes;
	if (q->pointer) {
		char *to = (char *)(uintptr_t)q->pointer;

		memset(to, 0, q->size);
		memcpy(to, &answer, q->size < bytes ? q->size : bytes);
	}
	q->size = bytes;
	return 0;
}

static int version(struct file *file, void *arg)
{
	struct drm_version *v = arg;

	(void)file;
	v->version_major = fake_drm.version_major;
	v->version_minor = 0;
	v->version_patchlevel = 7;
	if (v->name_len > 4)
		v->name_len = 4;
	if (v->name_len) /* who asks for the length has no room yet */
		memcpy(v->name, "txda", v->name_len);
	return 0;
}

/* ---- ioctls: address spaces and buffers ------------------------------------------------------ */

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
	o = make(file, VM);
	o->vm = vm;
	o->page_buffer = make_buffer(PAGE_BYTES);
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
	struct object *o = find(file, VM, a->id);

	if (!o)
		return -ENOENT;
	for (unsigned i = 0; i < MAX_OBJECTS; i++)
		if (fake.object[i] && fake.object[i]->kind == QUEUE &&
		    fake.object[i]->file == file && fake.object[i]->vm_id == a->id)
			return -EBUSY;
	drop(o);
	return 0;
}

static int vm_get_state(struct file *file, void *arg)
{
	struct drm_txda_vm_get_state *a = arg;
	struct object *o = find(file, VM, a->id);

	if (!o)
		return -ENOENT;
	a->state = o->lost ? DRM_TXDA_VM_LOST : DRM_TXDA_VM_USABLE;
	return 0;
}

static int vm_bind(struct file *file, void *arg)
{
	struct drm_txda_vm_bind *a = arg;
	const struct drm_txda_bind_op *op = (void *)(uintptr_t)a->ops.array;
	struct object *vm = find(file, VM, a->vm_id), *bo;

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
	bo = find(file, HANDLE, op->bo);
	if (!bo)
		return -ENOENT;
	if ((bo->vm_id && bo->vm_id != a->vm_id) || op->bo_offset + op->size > bo->buffer->bytes)
		return -EINVAL;
	if (fake_drm.no_links && bo->buffer->device && bo->buffer->slot != file->slot)
		return -EXDEV;
	return cm_vm_map(
		vm->vm, op->va, bo->buffer->user_fd >= 0 ? bo->buffer->user_fd : fake.memory,
		bo->buffer->user_fd >= 0 ? 0 : bo->buffer->offset + op->bo_offset, op->size,
		CM_MAP_READ | (op->flags & DRM_TXDA_BIND_READONLY ? 0 : CM_MAP_WRITE));
}

static int vm_set_group(struct file *file, void *arg)
{
	struct drm_txda_vm_set_group *a = arg;
	const struct drm_txda_member *m = (void *)(uintptr_t)a->members.array;
	struct object *vm = find(file, VM, a->vm_id);
	uint64_t id = ++fake.last_group;
	int r = 0;

	if (!vm)
		return -ENOENT;
	if (!a->members.count)
		return cm_vm_set_group(vm->vm, a->slot, 0, 0, 0);
	if (fake_drm.no_links)
		return -EXDEV;
	for (unsigned i = 0; i < a->members.count && r >= 0; i++) {
		struct file *other = find_file(m[i].fd);

		vm = other ? find(other, VM, m[i].vm_id) : NULL;
		if (!vm || fake.gone[other->chip])
			return vm ? -ENODEV : -ENOENT;
		r = cm_vm_set_group(vm->vm, a->slot, id, i, a->members.count);
	}
	return r;
}

static int bo_create(struct file *file, void *arg)
{
	struct drm_txda_bo_create *a = arg;
	bool device = a->places == DRM_TXDA_PLACE_DEVICE;
	uint64_t bytes = (a->size + 4095) & ~4095ull, used;
	struct object *o;

	reap();
	used = fake.used[file->chip];
	if (!a->size || (!device && a->places != DRM_TXDA_PLACE_HOST) ||
	    a->flags & ~DRM_TXDA_BO_NO_MMAP)
		return -EINVAL;
	if (a->vm_id && !find(file, VM, a->vm_id))
		return -ENOENT;
	if (device && (bytes > FAKE_CHIP_BYTES - used ||
		       (fake_drm.mappable_bytes && !(a->flags & DRM_TXDA_BO_NO_MMAP) &&
			used + bytes > fake_drm.mappable_bytes)))
		return -ENOSPC;
	o = make(file, HANDLE);
	o->buffer = make_buffer(bytes);
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
	o = make(file, HANDLE);
	o->buffer = make_buffer(a->size);
	o->buffer->user_fd = fd;
	o->vm_id = a->vm_id;
	a->handle = o->id;
	return 0;
}

static int bo_mmap_offset(struct file *file, void *arg)
{
	struct drm_txda_bo_mmap_offset *a = arg;
	struct object *o = find(file, HANDLE, a->handle);

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
	struct object *o = find(file, HANDLE, a->handle);

	if (!o)
		return -ENOENT;
	a->place = o->buffer->device ? DRM_TXDA_PLACE_DEVICE : DRM_TXDA_PLACE_HOST;
	a->flags = (o->buffer->no_mmap ? DRM_TXDA_BO_NO_MMAP : 0) |
		   (o->buffer->chip != file->chip ? DRM_TXDA_BO_IMPORTED : 0);
	a->size = o->buffer->bytes;
	return 0;
}

static int gem_close(struct file *file, void *arg)
{
	struct drm_gem_close *a = arg;
	struct object *o = find(file, HANDLE, a->handle);

	if (!o)
		return -EINVAL;
	drop(o);
	return 0;
}

static int prime_export(struct file *file, void *arg)
{
	struct drm_prime_handle *a = arg;
	struct object *o = find(file, HANDLE, a->handle);
	struct dmabuf *d = fake.dmabuf;
	struct stat st;
	int fds[2];

	if (!o)
		return -ENOENT;
	if (o->vm_id)
		return -EPERM;
	reap();
	while (d < fake.dmabuf + MAX_FILES && d->buffer)
		d++;
	check(d < fake.dmabuf + MAX_FILES);
	check(!pipe2(fds, O_CLOEXEC));
	check(!fstat(fds[0], &st));
	*d = (struct dmabuf){.buffer = o->buffer, .inode = st.st_ino, .end = fds[1]};
	o->buffer->refs++;
	a->fd = fds[0];
	return 0;
}

static int prime_import(struct file *file, void *arg)
{
	struct drm_prime_handle *a = arg;
	struct buffer *buffer = NULL;
	struct object *o;
	struct stat st;

	if (fstat(a->fd, &st) < 0)
		return -EBADF;
	for (unsigned i = 0; i < MAX_FILES; i++)
		if (fake.dmabuf[i].buffer && fake.dmabuf[i].inode == st.st_ino)
			buffer = fake.dmabuf[i].buffer;
	if (!buffer)
		return -EINVAL;
	/* One handle for one buffer in one file. */
	for (unsigned i = 0; i < MAX_OBJECTS; i++)
		if (fake.object[i] && fake.object[i]->file == file &&
		    fake.object[i]->buffer == buffer) {
			a->handle = fake.object[i]->id;
			return 0;
		}
	o = make(file, HANDLE);
	o->buffer = buffer;
	buffer->refs++;
	a->handle = o->id;
	return 0;
}

/* ---- ioctls: queues and fences --------------------------------------------------------------- */

static int queue_create(struct file *file, void *arg)
{
	static const struct cm_queue_ops ops = {.signalled = on_signalled, .faulted = on_faulted};
	struct drm_txda_queue_create *a = arg;
	struct object *vm = find(file, VM, a->vm_id), *o;
	struct cm_queue *queue;
	int r;

	if (!vm)
		return -ENOENT;
	if (vm->lost)
		return -EIO;
	if (a->flags || a->class_ > DRM_TXDA_QUEUE_COPY || a->priority != DRM_TXDA_PRIORITY_NORMAL)
		return -EINVAL;
	o = make(file, QUEUE);
	r = cm_queue_new(vm->vm,
			 a->class_ == DRM_TXDA_QUEUE_COPY ? CM_QUEUE_COPY : CM_QUEUE_COMPUTE, &ops,
			 o, &queue);
	if (r < 0) {
		for (unsigned i = 0; i < MAX_OBJECTS; i++)
			if (fake.object[i] == o)
				fake.object[i] = NULL;
		free(o);
		return r;
	}
	o->queue = queue;
	o->vm_id = a->vm_id;
	o->index = vm->n_queues++ % MAX_WORDS;
	o->word = &vm->page[o->index];
	__atomic_store_n(o->word, 0, __ATOMIC_RELEASE);
	a->id = o->id;
	return 0;
}

static int queue_destroy(struct file *file, void *arg)
{
	struct drm_txda_queue_destroy *a = arg;
	struct object *o = find(file, QUEUE, a->id);

	if (!o)
		return -ENOENT;
	drop(o);
	return 0;
}

static int queue_submit(struct file *file, void *arg)
{
	struct drm_txda_queue_submit *a = arg;
	const struct drm_txda_job *job = (void *)(uintptr_t)a->jobs.array;
	const struct drm_txda_sync *sync = (void *)(uintptr_t)job->syncs.array;
	struct object *queue = find(file, QUEUE, a->queue_id), *vm, *syncobj;
	struct txda_pkt_fence *fence;
	unsigned at;
	int r;

	if (!queue)
		return -ENOENT;
	if (queue->lost)
		return -EIO;
	syncobj = find(file, SYNCOBJ, sync->handle);
	if (!syncobj)
		return -ENOENT;
	if (a->jobs.count != 1 || job->flags || job->stream_va % 8 || job->stream_bytes % 8 ||
	    sync->flags != (DRM_TXDA_SYNC_SIGNAL | DRM_TXDA_SYNC_TIMELINE) ||
	    sync->point <= syncobj->point)
		return -EINVAL;
	vm = find(file, VM, queue->vm_id);
	if (queue->submitted - jobs_done(queue) >=
	    (fake_drm.submit_depth ? fake_drm.submit_depth : MAX_JOBS))
		return -EAGAIN;
	r = cm_queue_submit(queue->queue, job->stream_va, job->stream_bytes, true);
	if (r < 0)
		return r;
	/* A place that is free, since no more jobs are in flight. */
	at = MAX_WORDS * 8 +
	     (unsigned)(queue->index * MAX_JOBS + queue->submitted % MAX_JOBS) * sizeof(*fence);
	fence = (void *)((char *)vm->page + at);
	*fence = (struct txda_pkt_fence){
		.hdr = {.op = TXDA_PKT_SIGNAL, .flags = TXDA_SIGNAL_IRQ, .bytes = sizeof(*fence)},
		.va = PRIVATE_VA + queue->index * 8,
		.value = ++queue->submitted,
	};
	pthread_mutex_lock(&word_lock);
	syncobj->by = queue;
	syncobj->point = sync->point;
	syncobj->job_of[sync->point % MAX_FENCES] = queue->submitted;
	pthread_mutex_unlock(&word_lock);
	cm_queue_submit(queue->queue, PRIVATE_VA + at, sizeof(*fence), false);
	return 0;
}

static int queue_get_state(struct file *file, void *arg)
{
	struct drm_txda_queue_get_state *a = arg;
	struct object *queue = find(file, QUEUE, a->id);
	struct txda_fault fault;

	if (!queue)
		return -ENOENT;
	if (queue->lost) {
		a->state = DRM_TXDA_QUEUE_INNOCENT;
		return 0;
	}
	if (cm_queue_fault(queue->queue, &fault) < 0)
		return 0;
	a->state = DRM_TXDA_QUEUE_FATAL_FAULT;
	a->fault.code = fault.code;
	a->fault.op = fault.op;
	a->fault.tensor = fault.tensor;
	a->fault.va = fault.va;
	a->fault.packet_va = fault.packet_va;
	a->fault.detail = fault.detail;
	return 0;
}

static int syncobj_create(struct file *file, void *arg)
{
	((struct drm_syncobj_create *)arg)->handle = make(file, SYNCOBJ)->id;
	return 0;
}

static int syncobj_destroy(struct file *file, void *arg)
{
	struct object *o = find(file, SYNCOBJ, ((struct drm_syncobj_destroy *)arg)->handle);

	if (!o)
		return -EINVAL;
	drop(o);
	return 0;
}

/* The only one that waits, without the tables' lock. */
static int syncobj_wait(struct file *file, void *arg)
{
	struct drm_syncobj_timeline_wait *a = arg;
	uint64_t point = *(const uint64_t *)(uintptr_t)a->points;
	struct object *o = find(file, SYNCOBJ, *(const uint32_t *)(uintptr_t)a->handles);
	struct timespec until = {a->timeout_nsec / 1000000000, a->timeout_nsec % 1000000000};
	int r = 0;

	if (!o)
		return -ENOENT;
	if (point > o->point)
		return -EINVAL;
	pthread_mutex_lock(&word_lock);
	pthread_mutex_unlock(&lock);
	while (!is_signalled(o, point) && r != ETIMEDOUT)
		r = pthread_cond_timedwait(&word_changed, &word_lock, &until);
	if (is_signalled(o, point))
		r = 0;
	pthread_mutex_unlock(&word_lock);
	pthread_mutex_lock(&lock);
	return r == ETIMEDOUT ? -ETIME : 0;
}

struct eventfd_args {
	uint32_t handle, flags;
	uint64_t point;
	int32_t fd;
	uint32_t pad;
};

static int syncobj_eventfd(struct file *file, void *arg)
{
	struct eventfd_args *a = arg;
	struct object *o = find(file, SYNCOBJ, a->handle);

	if (!o)
		return -ENOENT;
	pthread_mutex_lock(&word_lock);
	check(n_watchers < MAX_FENCES);
	watcher[n_watchers++] = (struct watcher){o, a->point, fcntl(a->fd, F_DUPFD_CLOEXEC, 3)};
	wake();
	pthread_mutex_unlock(&word_lock);
	return 0;
}

static int client_name(struct file *file, void *arg)
{
	(void)file;
	(void)arg;
	return -EINVAL; /* as a kernel that does not know it */
}

static const struct {
	unsigned long request;
	int (*serve)(struct file *file, void *arg);
} table[] = {
	{DRM_IOCTL_VERSION, version},
	{DRM_IOCTL_GEM_CLOSE, gem_close},
	{DRM_IOCTL_PRIME_HANDLE_TO_FD, prime_export},
	{DRM_IOCTL_PRIME_FD_TO_HANDLE, prime_import},
	{DRM_IOCTL_SYNCOBJ_CREATE, syncobj_create},
	{DRM_IOCTL_SYNCOBJ_DESTROY, syncobj_destroy},
	{DRM_IOCTL_SYNCOBJ_TIMELINE_WAIT, syncobj_wait},
	{DRM_IOWR(0xCF, struct eventfd_args), syncobj_eventfd},
	{DRM_IOWR(
		 0xD1, struct { __u64 a[2]; }),
	 client_name},
	{DRM_IOCTL_TXDA_DEV_QUERY, dev_query},
	{DRM_IOCTL_TXDA_VM_CREATE, vm_create},
	{DRM_IOCTL_TXDA_VM_DESTROY, vm_destroy},
	{DRM_IOCTL_TXDA_VM_GET_STATE, vm_get_state},
	{DRM_IOCTL_TXDA_VM_BIND, vm_bind},
	{DRM_IOCTL_TXDA_VM_SET_GROUP, vm_set_group},
	{DRM_IOCTL_TXDA_BO_CREATE, bo_create},
	{DRM_IOCTL_TXDA_BO_MMAP_OFFSET, bo_mmap_offset},
	{DRM_IOCTL_TXDA_BO_QUERY_INFO, bo_query_info},
	{DRM_IOCTL_TXDA_BO_FROM_USERPTR, bo_from_userptr},
	{DRM_IOCTL_TXDA_QUEUE_CREATE, queue_create},
	{DRM_IOCTL_TXDA_QUEUE_DESTROY, queue_destroy},
	{DRM_IOCTL_TXDA_QUEUE_GET_STATE, queue_get_state},
	{DRM_IOCTL_TXDA_QUEUE_SUBMIT, queue_submit},
};

/* ---- the kernel ------------------------------------------------------------------------------ */

static void count(unsigned long request)
{
	unsigned i = 0;

	fake.n_calls++;
	while (fake.calls[i].request && fake.calls[i].request != request)
		i++;
	fake.calls[i].request = request;
	fake.calls[i].n++;
}

static bool fails(unsigned long request)
{
	if (!fake_drm.fail_error || (fake_drm.fail_request && fake_drm.fail_request != request))
		return false;
	return fake_drm.fail_after-- == 0;
}

/* What takes things away does so in any case: a kernel that could not would leak. */
static bool takes_away(unsigned long request, const void *arg)
{
	const struct drm_txda_vm_bind *bind = arg;
	const struct drm_txda_vm_set_group *group = arg;

	switch (request) {
	case DRM_IOCTL_GEM_CLOSE:
	case DRM_IOCTL_SYNCOBJ_DESTROY:
	case DRM_IOCTL_TXDA_QUEUE_DESTROY:
	case DRM_IOCTL_TXDA_VM_DESTROY: return true;
	case DRM_IOCTL_TXDA_VM_BIND:
		return ((const struct drm_txda_bind_op *)(uintptr_t)bind->ops.array)->flags &
		       DRM_TXDA_BIND_UNMAP;
	case DRM_IOCTL_TXDA_VM_SET_GROUP: return !group->members.count;
	default: return false;
	}
}

static int serve(struct file *file, unsigned long request, void *arg)
{
	for (unsigned i = 0; i < ARRAY_SIZE(table); i++)
		if (table[i].request == request)
			return table[i].serve(file, arg);
	return -ENOTTY;
}

static int fake_ioctl(int fd, unsigned long request, void *arg)
{
	struct file *file;
	int r;

	pthread_mutex_lock(&lock);
	count(request);
	file = find_file(fd);
	check(file);
	if (fake.gone[file->chip]) {
		r = -ENODEV;
	} else if (fails(request)) {
		r = fake_drm.fail_error;
		fake_drm.fail_error = 0;
		if (takes_away(request, arg))
			serve(file, request, arg);
	} else {
		r = serve(file, request, arg);
	}
	pthread_mutex_unlock(&lock);
	return r;
}

static void describe_node(unsigned slot, struct txda__node *node)
{
	memset(node, 0, sizeof(*node));
	snprintf(node->node, sizeof(node->node), "/fake/accel%u", slot);
	snprintf(node->bus, sizeof(node->bus), "0000:0%u:00.0", slot + 1);
	snprintf(node->serial, sizeof(node->serial), "FAKE-SERIAL-%03u!", slot);
	node->card_index = slot;
	node->incarnation = 1000 + fake.chip[slot];
}

static int fake_nodes(struct txda__node *ret, unsigned max)
{
	unsigned n = 0;

	for (unsigned i = 0; i < fake.n_slots; i++) {
		unsigned slot = fake_drm.reversed ? fake.n_slots - 1 - i : i;

		if (fake.there[slot] && n < max)
			describe_node(slot, &ret[n++]);
	}
	return (int)n;
}

static bool fake_exists(const char *node)
{
	return !strncmp(node, "/fake/", 6);
}

static int fake_open(const char *node)
{
	unsigned slot = 0, i = 0;

	if (fake_drm.open_error)
		return fake_drm.open_error;
	check(sscanf(node, "/fake/accel%u", &slot) == 1 && slot < fake.n_slots);
	pthread_mutex_lock(&lock);
	while (i < MAX_FILES && fake.file[i].fd >= 0 && fcntl(fake.file[i].fd, F_GETFD) >= 0)
		i++;
	check(i < MAX_FILES);
	fake.file[i] = (struct file){.fd = fcntl(fake.memory, F_DUPFD_CLOEXEC, 3),
				     .slot = slot,
				     .chip = fake.chip[slot]};
	pthread_mutex_unlock(&lock);
	return fake.file[i].fd;
}

static int fake_listen(struct txda__listener **ret_listener)
{
	struct txda__node node[FAKE_CHIPS];
	int n = fake_nodes(node, FAKE_CHIPS);
	int r = txda__listener_blank(node, (unsigned)n, ret_listener);

	if (r >= 0)
		fake.listener = *ret_listener;
	return r;
}

static const struct txda__drm_kernel kernel = {
	.nodes = fake_nodes,
	.exists = fake_exists,
	.open = fake_open,
	.ioctl = fake_ioctl,
	.listen = fake_listen,
};

void fake_drm_start(unsigned chips)
{
	struct cm_options options = {
		.chips = MODEL_CHIPS, .mem_bytes = FAKE_CHIP_BYTES, .cores = 1};
	pthread_condattr_t attr;

	memset(&fake, 0, sizeof(fake));
	memset(&fake_drm, 0, sizeof(fake_drm));
	fake_drm.version_major = DRM_TXDA_MAJOR;
	for (unsigned i = 0; i < MAX_FILES; i++)
		fake.file[i].fd = -1;
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&word_changed, &attr);
	pthread_condattr_destroy(&attr);
	check(!cm_machine_new(&options, &fake.machine));
	fake.memory = memfd_create("fake", MFD_CLOEXEC);
	check(fake.memory >= 0 && !ftruncate(fake.memory, 1ll << 40));
	fake.n_slots = chips;
	for (; fake.n_chips < chips; fake.n_chips++) {
		fake.chip[fake.n_chips] = fake.n_chips;
		fake.there[fake.n_chips] = true;
	}
	txda__drm_kernel = &kernel;
}

void fake_drm_end(void)
{
	for (unsigned i = 0; i < MAX_OBJECTS; i++) {
		struct object *o = fake.object[i];

		if (!o)
			continue;
		/* With its chip, or its file, everything of a client goes. */
		if (!fake.gone[o->file->chip])
			fprintf(stderr, "left: kind %d, id %u of slot %u\n", o->kind, o->id,
				o->file->slot);
		check(fake.gone[o->file->chip]);
	}
	for (unsigned pass = SYNCOBJ; pass > FREE; pass--)
		for (unsigned i = 0; i < MAX_OBJECTS; i++)
			if (fake.object[i] && fake.object[i]->kind == (pass == SYNCOBJ ? QUEUE
								       : pass == QUEUE ? SYNCOBJ
										       : pass))
				drop(fake.object[i]);
	reap();
	for (unsigned i = 0; i < MAX_FILES; i++)
		check(fake.file[i].fd < 0 || fcntl(fake.file[i].fd, F_GETFD) < 0);
	for (unsigned i = 0; i < MAX_FILES; i++)
		check(!fake.dmabuf[i].buffer);
	cm_machine_free(fake.machine);
	close(fake.memory);
	pthread_cond_destroy(&word_changed);
	txda__drm_kernel = &txda__drm_kernel_real;
}

void fake_drm_tell(const struct txda__news *news)
{
	txda__listener_push(fake.listener, news);
}

void fake_drm_unplug(unsigned slot)
{
	struct txda__news news = {.kind = TXDA_EVENT_DEVICE_REMOVED, .time_ns = 1};
	char spec[40];

	describe_node(slot, &news.node);
	snprintf(news.text, sizeof(news.text), "%s is gone", news.node.node);
	snprintf(spec, sizeof(spec), "lost:chip=%u", fake.chip[slot]);
	pthread_mutex_lock(&lock);
	fake.gone[fake.chip[slot]] = true;
	fake.there[slot] = false;
	pthread_mutex_unlock(&lock);
	fake_drm_inject(spec);
	pthread_mutex_lock(&word_lock);
	wake();
	pthread_mutex_unlock(&word_lock);
	if (fake.listener)
		fake_drm_tell(&news);
}

void fake_drm_reset(unsigned slot)
{
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < MAX_OBJECTS; i++)
		if (fake.object[i] && fake.object[i]->file->slot == slot)
			fake.object[i]->lost = true;
	fake.resets[fake.chip[slot]]++;
	pthread_mutex_unlock(&lock);
}

void fake_drm_plug(unsigned slot)
{
	struct txda__news news = {.kind = TXDA_EVENT_DEVICE_ADDED, .time_ns = 1};

	check(fake.n_chips < MODEL_CHIPS);
	pthread_mutex_lock(&lock);
	if (slot >= fake.n_slots)
		fake.n_slots = slot + 1;
	fake.chip[slot] = fake.n_chips++;
	fake.there[slot] = true;
	pthread_mutex_unlock(&lock);
	describe_node(slot, &news.node);
	snprintf(news.text, sizeof(news.text), "%s was added", news.node.node);
	if (fake.listener)
		fake_drm_tell(&news);
}

void fake_drm_inject(const char *spec)
{
	check(!cm_inject(fake.machine, spec));
}

unsigned long fake_drm_calls(unsigned long request)
{
	unsigned long n = request ? 0 : fake.n_calls;

	pthread_mutex_lock(&lock);
	for (unsigned i = 0; request && i < ARRAY_SIZE(fake.calls); i++)
		if (fake.calls[i].request == request)
			n = fake.calls[i].n;
	pthread_mutex_unlock(&lock);
	return n;
}

unsigned fake_drm_handles(void)
{
	unsigned n = 0;

	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < MAX_OBJECTS; i++)
		n += fake.object[i] && fake.object[i]->kind == HANDLE;
	pthread_mutex_unlock(&lock);
	return n;
}
