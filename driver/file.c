// SPDX-License-Identifier: GPL-2.0
#include "file.h"

#include <linux/ktime.h>
#include <linux/slab.h>
#include <drm/drm_print.h>

#include "compat/compat.h"
#include "device.h"
#include "gem.h"
#include "queue.h"
#include "vm.h"

static const char *const txda_class_names[TXDA_CLASS_COUNT] = {
	[TXDA_CLASS_COMPUTE] = "compute",
	[TXDA_CLASS_COPY] = "copy",
};

int txda_file_open(struct drm_device *drm, struct drm_file *drm_file)
{
	struct txda_file *file = kzalloc(sizeof(*file), GFP_KERNEL);

	if (!file)
		return -ENOMEM;
	file->tdev = to_txda(drm);
	file->drm = drm_file;
	file->opened_ns = ktime_get_ns();
	file->user = txda_user_get_current(file->tdev);
	if (!file->user) {
		kfree(file);
		return -ENOMEM;
	}
	xa_init_flags(&file->vms, XA_FLAGS_ALLOC1);
	xa_init_flags(&file->queues, XA_FLAGS_ALLOC1);
	drm_file->driver_priv = file;
	return 0;
}

void txda_file_identify(const struct txda_file *file, struct txda_client *ret_client)
{
	ret_client->id = file->drm->client_id;
	ret_client->uid = file->user->uid;
	ret_client->pid = task_tgid_nr(current);
	get_task_comm(ret_client->comm, current->group_leader);
}

void txda_file_close(struct drm_device *drm, struct drm_file *drm_file)
{
	struct txda_file *file = to_txda_file(drm_file);

	txda_queues_close_file(file);
	txda_vm_close_file(file);
	xa_destroy(&file->queues);
	xa_destroy(&file->vms);
	txda_user_put(file->user);
	kfree(file);
}

/* Includes the time of running jobs, so that the value increases during a long job. */
static s64 txda_file_busy_ns(struct txda_file *file, enum txda_queue_class_id class)
{
	s64 busy = atomic64_read(&file->busy_ns[class]);
	s64 shown = atomic64_read(&file->busy_shown[class]);
	struct txda_queue *queue;
	u32 id;

	for (id = 1; id <= TXDA_MAX_CLIENT_QUEUES; id++) {
		queue = txda_queue_lookup(file, id);
		if (!queue)
			continue;
		if (queue->class == class)
			busy += txda_queue_running_ns(queue);
		txda_queue_put(queue);
	}
	/* A job that ended meanwhile may be missing from both sums: never show less than before. */
	while (busy > shown) {
		if (atomic64_try_cmpxchg(&file->busy_shown[class], &shown, busy))
			return busy;
	}
	return shown;
}

void txda_file_show_fdinfo(struct drm_printer *p, struct drm_file *drm_file)
{
	struct txda_file *file = to_txda_file(drm_file);
	struct txda_device *tdev = file->tdev;
	const u32 capacity[TXDA_CLASS_COUNT] = {
		[TXDA_CLASS_COMPUTE] = tdev->compute_queues,
		[TXDA_CLASS_COPY] = tdev->copy_queues,
	};
	struct drm_memory_stats device = {}, host = {};
	u32 ban_ms = txda_user_ban_left(file);
	int i;

	for (i = 0; i < TXDA_CLASS_COUNT; i++) {
		drm_printf(p, "drm-engine-%s:\t%lld ns\n", txda_class_names[i],
			   txda_file_busy_ns(file, i));
		if (capacity[i] > 1)
			drm_printf(p, "drm-engine-capacity-%s:\t%u\n", txda_class_names[i],
				   capacity[i]);
	}

	if (ban_ms)
		drm_printf(p, "txda-banned:\t%u ms\n", ban_ms);

	txda_gem_stats(drm_file, &device, &host);
	drm_print_memory_stats(p, &device, TXDA_GEM_STATS, "vram");
	drm_print_memory_stats(p, &host, TXDA_GEM_STATS, "memory");
}
