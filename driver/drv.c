// SPDX-License-Identifier: GPL-2.0
#include "drv.h"

#include <linux/module.h>
#include <linux/pci.h>
#include <drm/drm_accel.h>
#include <drm/drm_drv.h>
#include <drm/drm_file.h>
#include <drm/drm_gem.h>
#include <drm/drm_ioctl.h>
#include <drm/drm_print.h>

#include "bind.h"
#include "compat/compat.h"
#include "compat/huge.h"
#include "device.h"
#include "events.h"
#include "evict.h"
#include "fence.h"
#include "file.h"
#include "gem.h"
#include "group.h"
#include "pci.h"
#include "pmu.h"
#include "query.h"
#include "queue.h"
#include "vm.h"

unsigned int txda_job_timeout_ms = 10000;

/*
 * An accel node has no master and no primary minor, and some of core DRM's ioctls (GET_UNIQUE,
 * GET_MAGIC) dereference those pointers unchecked: any user could oops the kernel. So only the
 * ioctls on this list are let through.
 */
static bool txda_ioctl_allowed(unsigned int cmd)
{
	unsigned int nr = DRM_IOCTL_NR(cmd);

	if (DRM_IOCTL_TYPE(cmd) != DRM_IOCTL_BASE)
		return false;
	if (nr >= DRM_COMMAND_BASE && nr < DRM_COMMAND_BASE + DRM_TXDA_NUM_IOCTLS)
		return true;

	switch (nr) {
	case DRM_IOCTL_NR(DRM_IOCTL_VERSION):
	case DRM_IOCTL_NR(DRM_IOCTL_GET_CAP):
	case DRM_IOCTL_NR(DRM_IOCTL_SET_CLIENT_NAME):
	case DRM_IOCTL_NR(DRM_IOCTL_GEM_CLOSE):
	case DRM_IOCTL_NR(DRM_IOCTL_PRIME_HANDLE_TO_FD):
	case DRM_IOCTL_NR(DRM_IOCTL_PRIME_FD_TO_HANDLE):
	case DRM_IOCTL_NR(DRM_IOCTL_SYNCOBJ_CREATE):
	case DRM_IOCTL_NR(DRM_IOCTL_SYNCOBJ_DESTROY):
	case DRM_IOCTL_NR(DRM_IOCTL_SYNCOBJ_HANDLE_TO_FD):
	case DRM_IOCTL_NR(DRM_IOCTL_SYNCOBJ_FD_TO_HANDLE):
	case DRM_IOCTL_NR(DRM_IOCTL_SYNCOBJ_WAIT):
	case DRM_IOCTL_NR(DRM_IOCTL_SYNCOBJ_RESET):
	case DRM_IOCTL_NR(DRM_IOCTL_SYNCOBJ_SIGNAL):
	case DRM_IOCTL_NR(DRM_IOCTL_SYNCOBJ_TIMELINE_WAIT):
	case DRM_IOCTL_NR(DRM_IOCTL_SYNCOBJ_QUERY):
	case DRM_IOCTL_NR(DRM_IOCTL_SYNCOBJ_TRANSFER):
	case DRM_IOCTL_NR(DRM_IOCTL_SYNCOBJ_TIMELINE_SIGNAL):
	case DRM_IOCTL_NR(DRM_IOCTL_SYNCOBJ_EVENTFD):
		return true;
	default:
		return false;
	}
}

/* A failure caused by the chip's removal must not be reported as one worth retrying. */
static long txda_ioctl_result(struct file *filp, long result)
{
	struct drm_file *file = filp->private_data;

	return result == -EIO && txda_device_leaves(to_txda(file->minor->dev)) ? -ENODEV : result;
}

static long txda_ioctl(struct file *filp, unsigned int cmd, unsigned long arg)
{
	if (!txda_ioctl_allowed(cmd))
		return -ENOTTY;
	return txda_ioctl_result(filp, drm_ioctl(filp, cmd, arg));
}

#ifdef CONFIG_COMPAT
static long txda_compat_ioctl(struct file *filp, unsigned int cmd, unsigned long arg)
{
	if (!txda_ioctl_allowed(cmd))
		return -ENOTTY;
	return txda_ioctl_result(filp, drm_compat_ioctl(filp, cmd, arg));
}
#endif

static const struct file_operations txda_fops = {
	.owner = THIS_MODULE,
	.open = accel_open,
	.release = drm_release,
	.unlocked_ioctl = txda_ioctl,
#ifdef CONFIG_COMPAT
	.compat_ioctl = txda_compat_ioctl,
#endif
	.mmap = drm_gem_mmap,
#ifdef TXDA_HUGE_FAULTS
	.get_unmapped_area = txda_gem_get_unmapped_area,
#endif
	.poll = drm_poll,
	.read = drm_read,
	.llseek = noop_llseek,
	.show_fdinfo = drm_show_fdinfo,
	.fop_flags = FOP_UNSIGNED_OFFSET,
};

#define TXDA_IOCTL(n, f) DRM_IOCTL_DEF_DRV(TXDA_##n, txda_ioctl_##f, 0)

static const struct drm_ioctl_desc txda_ioctls[] = {
	TXDA_IOCTL(DEV_QUERY, dev_query),
	TXDA_IOCTL(VM_CREATE, vm_create),
	TXDA_IOCTL(VM_DESTROY, vm_destroy),
	TXDA_IOCTL(VM_GET_STATE, vm_get_state),
	TXDA_IOCTL(VM_BIND, vm_bind),
	TXDA_IOCTL(VM_SET_GROUP, vm_set_group),
	TXDA_IOCTL(BO_CREATE, bo_create),
	TXDA_IOCTL(BO_MMAP_OFFSET, bo_mmap_offset),
	TXDA_IOCTL(BO_QUERY_INFO, bo_query_info),
	TXDA_IOCTL(BO_SET_LABEL, bo_set_label),
	TXDA_IOCTL(BO_FROM_USERPTR, bo_from_userptr),
	TXDA_IOCTL(QUEUE_CREATE, queue_create),
	TXDA_IOCTL(QUEUE_DESTROY, queue_destroy),
	TXDA_IOCTL(QUEUE_GET_STATE, queue_get_state),
	TXDA_IOCTL(QUEUE_SUBMIT, queue_submit),
	TXDA_IOCTL(BO_ADVISE, bo_advise),
};

static_assert(ARRAY_SIZE(txda_ioctls) == DRM_TXDA_NUM_IOCTLS);

const struct drm_driver txda_drm_driver = {
	.driver_features =
		DRIVER_COMPUTE_ACCEL | DRIVER_GEM | DRIVER_SYNCOBJ | DRIVER_SYNCOBJ_TIMELINE,
	.open = txda_file_open,
	.postclose = txda_file_close,
	.show_fdinfo = txda_file_show_fdinfo,
	.gem_prime_import = txda_gem_prime_import,
	.fops = &txda_fops,
	.ioctls = txda_ioctls,
	.num_ioctls = ARRAY_SIZE(txda_ioctls),
	.name = "txda",
	.desc = "TX8 accelerator",
	TXDA_DRM_DATE.major = DRM_TXDA_MAJOR,
	.minor = DRM_TXDA_MINOR,
};

static int txda_param_set_timeout(const char *value, const struct kernel_param *param)
{
	return param_set_uint_minmax(value, param, 1, TXDA_MAX_TIMEOUT_MS);
}

static const struct kernel_param_ops txda_param_timeout_ops = {
	.set = txda_param_set_timeout,
	.get = param_get_uint,
};

module_param_cb(job_timeout_ms, &txda_param_timeout_ops, &txda_job_timeout_ms, 0444);
MODULE_PARM_DESC(job_timeout_ms, "Limit of jobs without progress, where a queue names none, in ms");

static int __init txda_init(void)
{
	int err;

	err = txda_fences_init();
	if (err)
		return err;
	err = txda_events_register();
	if (err)
		goto err_fences;
	err = pci_register_driver(&txda_pci_driver);
	if (err)
		goto err_events;
	return 0;

err_events:
	txda_events_unregister();
err_fences:
	txda_fences_exit();
	return err;
}
module_init(txda_init);

static void __exit txda_exit(void)
{
	pci_unregister_driver(&txda_pci_driver);
	txda_pmus_exit();
	txda_events_unregister();
	txda_fences_exit();
}
module_exit(txda_exit);

MODULE_AUTHOR("The TXDA authors");
MODULE_DESCRIPTION("TX8 accelerators");
MODULE_LICENSE("GPL");
MODULE_VERSION(TXDA_VERSION);
TXDA_IMPORT_NS(DMA_BUF);
