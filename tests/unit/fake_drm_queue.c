// SPDX-License-Identifier: MIT
#include "fake_drm_internal.h"

static void on_signalled(void *arg, uint64_t va, uint64_t value)
{
	pthread_mutex_lock(&fake_word_lock);
	fake_wake();
	pthread_mutex_unlock(&fake_word_lock);
}

static void on_faulted(void *arg, const struct txda_fault *fault)
{
	on_signalled(arg, 0, 0);
}

static int queue_create(struct file *file, void *arg)
{
	static const struct cm_queue_ops ops = {.signalled = on_signalled, .faulted = on_faulted};
	struct drm_txda_queue_create *a = arg;
	struct object *vm = fake_find(file, VM, a->vm_id), *o;
	struct cm_queue *queue;
	int r;

	if (!vm)
		return -ENOENT;
	if (vm->lost)
		return -EIO;
	if (a->flags & ~DRM_TXDA_QUEUE_SHARE || a->class_ > DRM_TXDA_QUEUE_COPY ||
	    a->priority != DRM_TXDA_PRIORITY_NORMAL)
		return -EINVAL;
	if (fake_drm.own_queues && !a->flags) {
		if (fake_drm.own_queues == 1)
			return -EDQUOT;
		fake_drm.own_queues--;
	}
	o = fake_make(file, QUEUE);
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
	struct object *o = fake_find(file, QUEUE, a->id);

	if (!o)
		return -ENOENT;
	fake_drop(o);
	return 0;
}

static int queue_submit(struct file *file, void *arg)
{
	struct drm_txda_queue_submit *a = arg;
	const struct drm_txda_job *job = (void *)(uintptr_t)a->jobs.array;
	const struct drm_txda_sync *sync = (void *)(uintptr_t)job->syncs.array;
	struct object *queue = fake_find(file, QUEUE, a->queue_id), *vm, *syncobj;
	struct txda_pkt_fence *fence;
	unsigned at;
	int r;

	if (!queue)
		return -ENOENT;
	if (queue->lost)
		return -EIO;
	syncobj = fake_find(file, SYNCOBJ, sync->handle);
	if (!syncobj)
		return -ENOENT;
	if (a->jobs.count != 1 || job->flags || job->stream_va % 8 || job->stream_bytes % 8 ||
	    sync->flags != (DRM_TXDA_SYNC_SIGNAL | DRM_TXDA_SYNC_TIMELINE) ||
	    sync->point <= syncobj->point)
		return -EINVAL;
	vm = fake_find(file, VM, queue->vm_id);
	if (queue->submitted - fake_jobs_done(queue) >=
	    (fake_drm.submit_depth ? fake_drm.submit_depth : MAX_JOBS))
		return -EBUSY;
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
	pthread_mutex_lock(&fake_word_lock);
	syncobj->by = queue;
	syncobj->point = sync->point;
	syncobj->job_of[sync->point % MAX_FENCES] = queue->submitted;
	pthread_mutex_unlock(&fake_word_lock);
	cm_queue_submit(queue->queue, PRIVATE_VA + at, sizeof(*fence), false);
	return 0;
}

static int queue_get_state(struct file *file, void *arg)
{
	struct drm_txda_queue_get_state *a = arg;
	struct object *queue = fake_find(file, QUEUE, a->id);
	struct drm_txda_fault told = {0};
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
	told.code = fault.code;
	told.op = fault.op;
	told.tensor = fault.tensor;
	told.va = fault.va;
	told.packet_va = fault.packet_va;
	told.detail = fault.detail;
	fake_answer(&a->fault, &told, sizeof(told));
	return 0;
}

static int syncobj_create(struct file *file, void *arg)
{
	((struct drm_syncobj_create *)arg)->handle = fake_make(file, SYNCOBJ)->id;
	return 0;
}

static int syncobj_destroy(struct file *file, void *arg)
{
	struct object *o = fake_find(file, SYNCOBJ, ((struct drm_syncobj_destroy *)arg)->handle);

	if (!o)
		return -EINVAL;
	fake_drop(o);
	return 0;
}

/* The only one that waits, without the tables' lock. */
static int syncobj_wait(struct file *file, void *arg)
{
	struct drm_syncobj_timeline_wait *a = arg;
	uint64_t point = *(const uint64_t *)(uintptr_t)a->points;
	struct object *o = fake_find(file, SYNCOBJ, *(const uint32_t *)(uintptr_t)a->handles);
	struct timespec until = {a->timeout_nsec / 1000000000, a->timeout_nsec % 1000000000};
	int r = 0;

	if (!o)
		return -ENOENT;
	if (point > o->point)
		return -EINVAL;
	pthread_mutex_lock(&fake_word_lock);
	pthread_mutex_unlock(&fake_lock);
	while (!fake_is_signalled(o, point) && r != ETIMEDOUT)
		r = pthread_cond_timedwait(&fake_word_changed, &fake_word_lock, &until);
	if (fake_is_signalled(o, point))
		r = 0;
	pthread_mutex_unlock(&fake_word_lock);
	pthread_mutex_lock(&fake_lock);
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
	struct object *o = fake_find(file, SYNCOBJ, a->handle);

	if (!o)
		return -ENOENT;
	pthread_mutex_lock(&fake_word_lock);
	fake_watch(o, a->point, a->fd);
	pthread_mutex_unlock(&fake_word_lock);
	return 0;
}

const struct fake_ioctl fake_queue_ioctls[] = {
	{DRM_IOCTL_SYNCOBJ_CREATE, syncobj_create},
	{DRM_IOCTL_SYNCOBJ_DESTROY, syncobj_destroy},
	{DRM_IOCTL_SYNCOBJ_TIMELINE_WAIT, syncobj_wait},
	{DRM_IOWR(0xCF, struct eventfd_args), syncobj_eventfd},
	{DRM_IOCTL_TXDA_QUEUE_CREATE, queue_create},
	{DRM_IOCTL_TXDA_QUEUE_DESTROY, queue_destroy},
	{DRM_IOCTL_TXDA_QUEUE_GET_STATE, queue_get_state},
	{DRM_IOCTL_TXDA_QUEUE_SUBMIT, queue_submit},
	{0, NULL},
};
