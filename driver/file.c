// SPDX-License-Identifier: GPL-2.0
#include "file.h"

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

void txda_file_show_fdinfo(struct drm_printer *p, struct drm_file *drm_file)
{
	struct txda_file *file = to_txda_file(drm_file);
	struct txda_device *tdev = file->tdev;
	const u32 capacity[TXDA_CLASS_COUNT] = {
		[TXDA_CLASS_COMPUTE] = tdev->compute_queues,
		[TXDA_CLASS_COPY] = tdev->copy_queues,
	};
	struct drm_memory_stats device = {}, host = {};
	int i;

	for (i = 0; i < TXDA_CLASS_COUNT; i++) {
		drm_printf(p, "drm-engine-%s:\t%lld ns\n", txda_class_names[i],
			   atomic64_read(&file->busy_ns[i]));
		if (capacity[i] > 1)
			drm_printf(p, "drm-engine-capacity-%s:\t%u\n", txda_class_names[i],
				   capacity[i]);
	}

	txda_gem_stats(drm_file, &device, &host);
	drm_print_memory_stats(p, &device, TXDA_GEM_STATS, "vram");
	drm_print_memory_stats(p, &host, TXDA_GEM_STATS, "memory");
}
