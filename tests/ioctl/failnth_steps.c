// SPDX-License-Identifier: MIT
#include "failnth.h"

#include <sys/ioctl.h>

#define MANY 64

/* ---- The file and the chip ------------------------------------------------------------------ */

static int run_open(struct world *w)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", w->client.fd);
	w->buf = open(path, O_RDWR | O_CLOEXEC);
	return w->buf < 0 ? -errno : 0;
}

/* All that a file can hold goes with it, whatever fails. */
static int run_close(struct world *w)
{
	close(w->client.fd);
	w->client.fd = -1;
	return 0;
}

static void prepare_close(struct world *w)
{
	struct stream *s = &w->client.stream;
	struct drm_txda_sync sync = signals(w->sync);

	put_fill(s, w->device.va, PAGE, 1);
	must(submit(w->client.fd, w->client.queue, s->mem.va, s->bytes, &sync, 1));
	must(bind_one(w->client.fd, w->client.vm, DRM_TXDA_BIND_UNMAP, 0, 0, w->host.va + 4 * PAGE,
		      PAGE));
}

static int run_query(struct world *w)
{
	char answer[DRM_TXDA_MAX_ANSWER_BYTES];
	int err = 0;

	for (uint32_t type = DRM_TXDA_QUERY_DEVICE; !err && type <= DRM_TXDA_QUERY_RESET; type++)
		err = query(w->client.fd, type, answer, sizeof(answer));
	return err;
}

static int run_fdinfo(struct world *w)
{
	char path[64], text[4096];
	int fd, err = 0;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", w->client.fd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (read(fd, text, sizeof(text)) < 0)
		err = -errno;
	close(fd);
	return err;
}

/* ---- Address spaces ------------------------------------------------------------------------- */

static int run_vm_create(struct world *w)
{
	return vm_create(w->client.fd, &w->vm);
}

static void prepare_vm(struct world *w)
{
	w->vm = must_vm(w->client.fd);
	must(bind_one(w->client.fd, w->vm, DRM_TXDA_BIND_MAP, w->host.handle, 0, VA, 16 * PAGE));
}

static int run_vm_destroy(struct world *w)
{
	return vm_destroy(w->client.fd, w->vm);
}

static int run_vm_get_state(struct world *w)
{
	struct drm_txda_vm_get_state arg = {.id = w->client.vm};

	return call(w->client.fd, DRM_IOCTL_TXDA_VM_GET_STATE, &arg);
}

static void prepare_big(struct world *w)
{
	must(bo_create(w->client.fd, 4 * MIB, DEVICE, 0, 0, &w->handle));
}

static int run_bind_map(struct world *w)
{
	return bind_one(w->client.fd, w->client.vm, DRM_TXDA_BIND_MAP, w->handle, PAGE,
			VA + 3 * PAGE, 3 * MIB);
}

static void prepare_bound(struct world *w)
{
	prepare_big(w);
	must(bind_one(w->client.fd, w->client.vm, DRM_TXDA_BIND_MAP, w->handle, 0, VA, 4 * MIB));
}

/* In the middle of huge pages: one mapping becomes two. */
static int run_bind_unmap(struct world *w)
{
	return bind_one(w->client.fd, w->client.vm, DRM_TXDA_BIND_UNMAP, 0, 0, VA + MIB, PAGE);
}

static int run_bind_replace(struct world *w)
{
	return bind_one(w->client.fd, w->client.vm, DRM_TXDA_BIND_MAP, w->host.handle, 0, VA + MIB,
			16 * PAGE);
}

/* The address space is none the worse, and what failed works now. */
static void after_bind(struct world *w, int err)
{
	(void)err;
	check_equal(vm_state(w->client.fd, w->client.vm), DRM_TXDA_VM_USABLE);
	must(bind_one(w->client.fd, w->client.vm, DRM_TXDA_BIND_MAP, w->device.handle, 0, VA,
		      16 * PAGE));
	must(dev_fill(&w->client, VA, 16 * PAGE, 0x5a5a5a5a));
	check(is_filled(w->device.cpu, 16 * PAGE, 0x5a5a5a5a));
}

static int bind_many(struct world *w, uint32_t flags, const struct drm_txda_sync *syncs, uint32_t n)
{
	struct drm_txda_bind_op ops[MANY] = {0};
	struct drm_txda_vm_bind arg = {
		.vm_id = w->client.vm,
		.flags = flags,
		.ops = array_of(ops, MANY, sizeof(ops[0])),
	};

	for (uint32_t i = 0; i < MANY; i++) {
		ops[i].flags = i % 4 == 3 ? DRM_TXDA_BIND_UNMAP : DRM_TXDA_BIND_MAP;
		ops[i].bo = i % 4 == 3 ? 0 : i % 2 ? w->host.handle : w->device.handle;
		ops[i].va = VA + i * 5 * PAGE;
		ops[i].size = 6 * PAGE;
		if (i == MANY - 1)
			ops[i].syncs = array_of(syncs, n, sizeof(*syncs));
	}
	return call(w->client.fd, DRM_IOCTL_TXDA_VM_BIND, &arg);
}

static int run_bind_many(struct world *w)
{
	return bind_many(w, 0, NULL, 0);
}

static void prepare_sync(struct world *w)
{
	must(syncobj_signal(w->client.fd, w->sync));
	w->handle = must_syncobj(w->client.fd);
}

static int run_bind_async(struct world *w)
{
	struct drm_txda_sync syncs[] = {wait_for(w->sync), signals_point(w->handle, 7)};

	return bind_many(w, DRM_TXDA_VM_BIND_ASYNC, syncs, ARRAY_SIZE(syncs));
}

/* When the arguments cannot be copied back the binds are under way; the next ones come after them. */
static void after_bind_async(struct world *w, int err)
{
	struct drm_txda_sync next = signals_point(w->handle, 8);

	if (err == -EFAULT)
		must(bind_many(w, DRM_TXDA_VM_BIND_ASYNC, &next, 1));
	if (!err || err == -EFAULT)
		must(syncobj_wait(w->client.fd, w->handle, err ? 8 : 7, PATIENCE));
	after_bind(w, err);
}

/* ---- Groups --------------------------------------------------------------------------------- */

static void prepare_group(struct world *w)
{
	if (w->peer < 0)
		skip("there is one chip only");
	w->vm = must_vm(w->peer);
}

static int set_group(struct world *w, uint32_t count)
{
	struct drm_txda_member members[] = {
		{.fd = w->client.fd, .vm_id = w->client.vm},
		{.fd = w->peer, .vm_id = w->vm},
	};
	struct drm_txda_vm_set_group arg = {
		.vm_id = w->client.vm,
		.slot = 3,
		.members = array_of(members, count, sizeof(members[0])),
	};

	return call(w->client.fd, DRM_IOCTL_TXDA_VM_SET_GROUP, &arg);
}

static int run_group(struct world *w)
{
	return set_group(w, 2);
}

static void prepare_leave(struct world *w)
{
	prepare_group(w);
	must(set_group(w, 2));
}

static int run_leave(struct world *w)
{
	return set_group(w, 0);
}

/* ---- Buffers -------------------------------------------------------------------------------- */

static int run_bo_device(struct world *w)
{
	return bo_create(w->client.fd, 2 * MIB + 5 * PAGE, DEVICE, 0, 0, &w->handle);
}

static int run_bo_private(struct world *w)
{
	return bo_create(w->client.fd, 3 * PAGE, DEVICE | HOST, DRM_TXDA_BO_NO_MMAP, w->client.vm,
			 &w->handle);
}

static int run_bo_host(struct world *w)
{
	return bo_create(w->client.fd, 8 * PAGE, HOST, 0, 0, &w->handle);
}

static int run_bo_wc(struct world *w)
{
	return bo_create(w->client.fd, 8 * PAGE, HOST, DRM_TXDA_BO_WRITE_COMBINE, 0, &w->handle);
}

static int map_and_touch(int fd, uint32_t handle, uint64_t bytes)
{
	struct drm_txda_bo_mmap_offset arg = {.handle = handle};
	int err = call(fd, DRM_IOCTL_TXDA_BO_MMAP_OFFSET, &arg);
	char *at;

	if (err)
		return err;
	at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)arg.offset);
	if (at == MAP_FAILED)
		return -errno;
	/* A page that cannot be had now is had at the second try. */
	at[0] = 1;
	at[bytes - 1] = 1;
	munmap(at, bytes);
	return 0;
}

static int run_map_device(struct world *w)
{
	return map_and_touch(w->client.fd, w->device.handle, w->device.bytes);
}

static int run_map_host(struct world *w)
{
	return map_and_touch(w->client.fd, w->host.handle, w->host.bytes);
}

static int run_bo_info(struct world *w)
{
	struct drm_txda_bo_query_info arg = {.handle = w->host.handle};

	return call(w->client.fd, DRM_IOCTL_TXDA_BO_QUERY_INFO, &arg);
}

static int run_label(struct world *w)
{
	struct drm_txda_bo_set_label arg = {
		.handle = w->host.handle,
		.label = (uintptr_t) "a name",
	};

	return call(w->client.fd, DRM_IOCTL_TXDA_BO_SET_LABEL, &arg);
}

static int run_gem_close(struct world *w)
{
	return gem_close(w->client.fd, w->host.handle);
}

static void prepare_user(struct world *w)
{
	w->at = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (w->at == MAP_FAILED)
		fail("mmap: %s", strerror_of(errno));
	memset(w->at, 1, MIB / 2);
}

static int run_userptr(struct world *w)
{
	struct drm_txda_bo_from_userptr arg = {.va = (uintptr_t)w->at, .size = MIB};

	return call(w->client.fd, DRM_IOCTL_TXDA_BO_FROM_USERPTR, &arg);
}

static void after_userptr(struct world *w, int err)
{
	(void)err;
	munmap(w->at, MIB);
}

static int run_export(struct world *w)
{
	return to_fd(w->client.fd, w->host.handle, DRM_RDWR, &w->buf);
}

static void prepare_import(struct world *w)
{
	if (w->peer < 0)
		skip("there is one chip only");
	must(bo_create(w->client.fd, 4 * MIB, DEVICE, 0, 0, &w->handle));
	w->buf = must_export(w->client.fd, w->handle);
	w->vm = must_vm(w->peer);
}

static int import_and_bind(struct world *w)
{
	uint32_t handle;
	int err = from_fd(w->peer, w->buf, &handle);

	return err ? err : bind_one(w->peer, w->vm, DRM_TXDA_BIND_MAP, handle, 0, VA, 4 * MIB);
}

static void prepare_import_host(struct world *w)
{
	prepare_import(w);
	close(w->buf);
	must(bo_create(w->client.fd, 4 * MIB, HOST, 0, 0, &w->handle));
	w->buf = must_export(w->client.fd, w->handle);
}

/* ---- Queues --------------------------------------------------------------------------------- */

static int run_queue_compute(struct world *w)
{
	return queue_create_as(w->client.fd, w->client.vm, DRM_TXDA_QUEUE_COMPUTE, 0, 0, &w->queue);
}

static int run_queue_copy(struct world *w)
{
	return queue_create_as(w->client.fd, w->client.vm, DRM_TXDA_QUEUE_COPY, 0, 0, &w->queue);
}

static int run_queue_shared(struct world *w)
{
	struct drm_txda_queue_create arg = {.vm_id = w->client.vm, .flags = DRM_TXDA_QUEUE_SHARE};
	int err = call(w->client.fd, DRM_IOCTL_TXDA_QUEUE_CREATE, &arg);

	if (!err)
		w->queue = arg.id;
	return err;
}

static int run_queue_destroy(struct world *w)
{
	return queue_destroy(w->client.fd, w->client.queue);
}

static int run_queue_state(struct world *w)
{
	struct drm_txda_queue_get_state arg = {.id = w->client.queue};

	return call(w->client.fd, DRM_IOCTL_TXDA_QUEUE_GET_STATE, &arg);
}

static void prepare_submit(struct world *w)
{
	put_fill(&w->client.stream, w->device.va, PAGE, 0x77777777);
	prepare_sync(w);
}

/* Waits for one, signals a binary syncobj, and a point that the next one waits for. */
static int run_submit(struct world *w)
{
	struct drm_txda_sync before[] = {wait_for(w->sync), signals_point(w->handle, 1)};
	struct drm_txda_sync after[] = {wait_for_point(w->handle, 1), signals_point(w->handle, 2)};
	struct drm_txda_job jobs[MANY] = {0};

	for (uint32_t i = 0; i < MANY; i++) {
		jobs[i].stream_va = w->client.stream.mem.va;
		jobs[i].stream_bytes = w->client.stream.bytes;
	}
	jobs[0].syncs = array_of(before, ARRAY_SIZE(before), sizeof(before[0]));
	jobs[3].syncs = array_of(after, ARRAY_SIZE(after), sizeof(after[0]));
	return submit_jobs(w->client.fd, w->client.queue, jobs, MANY);
}

/* When the arguments cannot be copied back the jobs are submitted, all of them. */
static void after_submit(struct world *w, int err)
{
	struct drm_txda_queue_get_state state;
	bool all;

	if (!err)
		must(syncobj_wait(w->client.fd, w->handle, 2, PATIENCE));
	w->client.stream.bytes = 0;
	must(dev_fill(&w->client, w->device.va, PAGE, 5));
	state = must_state(w->client.fd, w->client.queue);
	check_equal(state.state, 0);
	all = !err || (err == -EFAULT && state.submitted != 1);
	check_equal(state.submitted, all ? MANY + 1 : 1);
}

const struct step failnth_steps[] = {
	{"open", NULL, run_open, NULL},
	{"close", prepare_close, run_close, NULL},
	{"query", NULL, run_query, NULL},
	{"fdinfo", NULL, run_fdinfo, NULL},
	{"vm-create", NULL, run_vm_create, NULL},
	{"vm-destroy", prepare_vm, run_vm_destroy, NULL},
	{"vm-get-state", NULL, run_vm_get_state, NULL},
	{"bind-map", prepare_big, run_bind_map, after_bind},
	{"bind-unmap", prepare_bound, run_bind_unmap, after_bind},
	{"bind-replace", prepare_bound, run_bind_replace, after_bind},
	{"bind-many", NULL, run_bind_many, after_bind},
	{"bind-async", prepare_sync, run_bind_async, after_bind_async},
	{"group", prepare_group, run_group, NULL},
	{"group-leave", prepare_leave, run_leave, NULL},
	{"bo-device", NULL, run_bo_device, NULL},
	{"bo-private", NULL, run_bo_private, NULL},
	{"bo-host", NULL, run_bo_host, NULL},
	{"bo-write-combine", NULL, run_bo_wc, NULL},
	{"map-device", NULL, run_map_device, NULL},
	{"map-host", NULL, run_map_host, NULL},
	{"bo-info", NULL, run_bo_info, NULL},
	{"label", NULL, run_label, NULL},
	{"gem-close", NULL, run_gem_close, NULL},
	{"userptr", prepare_user, run_userptr, after_userptr},
	{"export", NULL, run_export, NULL},
	{"import", prepare_import, import_and_bind, NULL},
	{"import-host", prepare_import_host, import_and_bind, NULL},
	{"queue-compute", NULL, run_queue_compute, NULL},
	{"queue-copy", NULL, run_queue_copy, NULL},
	{"queue-shared", NULL, run_queue_shared, NULL},
	{"queue-destroy", NULL, run_queue_destroy, NULL},
	{"queue-state", NULL, run_queue_state, NULL},
	{"submit", prepare_submit, run_submit, after_submit},
};

const size_t failnth_n_steps = ARRAY_SIZE(failnth_steps);
