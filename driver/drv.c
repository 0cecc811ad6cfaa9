// SPDX-License-Identifier: GPL-2.0
/*
 * Module, PCI binding, and the accel node with its list of allowed ioctls.
 */
#include <linux/dma-mapping.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <drm/drm_accel.h>
#include <drm/drm_drv.h>
#include <drm/drm_file.h>
#include <drm/drm_ioctl.h>
#include <drm/drm_print.h>

#include "compat/compat.h"
#include "device.h"
#include "query.h"

/*
 * An accel node has no master and no primary minor, and some of core DRM's ioctls (GET_UNIQUE,
 * GET_MAGIC) follow those pointers without a look: any user could oops the kernel. So only what
 * this driver means to serve goes through.
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

static long txda_ioctl(struct file *filp, unsigned int cmd, unsigned long arg)
{
	return txda_ioctl_allowed(cmd) ? drm_ioctl(filp, cmd, arg) : -ENOTTY;
}

#ifdef CONFIG_COMPAT
static long txda_compat_ioctl(struct file *filp, unsigned int cmd, unsigned long arg)
{
	return txda_ioctl_allowed(cmd) ? drm_compat_ioctl(filp, cmd, arg) : -ENOTTY;
}
#endif

/*
 * DRM_ACCEL_FOPS brings drm_ioctl and an mmap that wants GEM objects, so the operations are named
 * here.
 */
static const struct file_operations txda_fops = {
	.owner = THIS_MODULE,
	.open = accel_open,
	.release = drm_release,
	.unlocked_ioctl = txda_ioctl,
#ifdef CONFIG_COMPAT
	.compat_ioctl = txda_compat_ioctl,
#endif
	.poll = drm_poll,
	.read = drm_read,
	.llseek = noop_llseek,
	.fop_flags = FOP_UNSIGNED_OFFSET,
};

static const struct drm_ioctl_desc txda_ioctls[] = {
	DRM_IOCTL_DEF_DRV(TXDA_DEV_QUERY, txda_ioctl_dev_query, 0),
};

static const struct drm_driver txda_drm_driver = {
	.driver_features = DRIVER_COMPUTE_ACCEL,
	.fops = &txda_fops,
	.ioctls = txda_ioctls,
	.num_ioctls = ARRAY_SIZE(txda_ioctls),
	.name = "txda",
	.desc = "TX8 accelerator",
	TXDA_DRM_DATE
	.major = DRM_TXDA_MAJOR,
	.minor = DRM_TXDA_MINOR,
};

static int txda_pci_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct txda_device *tdev;
	int err;

	tdev = devm_drm_dev_alloc(&pdev->dev, &txda_drm_driver, struct txda_device, drm);
	if (IS_ERR(tdev))
		return PTR_ERR(tdev);
	tdev->pdev = pdev;
	pci_set_drvdata(pdev, tdev);

	err = pcim_enable_device(pdev);
	if (err)
		return dev_err_probe(&pdev->dev, err, "cannot enable the PCI function\n");
	err = txda_device_init(tdev);
	if (err)
		return err;
	err = drm_dev_register(&tdev->drm, 0);
	if (err)
		return dev_err_probe(&pdev->dev, err, "cannot register the accel node\n");

	drm_info(&tdev->drm, "%s, serial %.16s, %llu MiB\n", tdev->info.name, tdev->info.serial,
		 tdev->dram_bytes >> 20);
	return 0;
}

static void txda_pci_remove(struct pci_dev *pdev)
{
	struct txda_device *tdev = pci_get_drvdata(pdev);

	/* From here on no register is touched: open files may outlive the chip. */
	drm_dev_unplug(&tdev->drm);
}

static const struct pci_device_id txda_pci_ids[] = {
	{ PCI_DEVICE(TXDA_PCI_VENDOR, TXDA_PCI_DEVICE) },
	{}
};
MODULE_DEVICE_TABLE(pci, txda_pci_ids);

static struct pci_driver txda_pci_driver = {
	.name = "txda",
	.id_table = txda_pci_ids,
	.probe = txda_pci_probe,
	.remove = txda_pci_remove,
};
module_pci_driver(txda_pci_driver);

MODULE_AUTHOR("The TXDA authors");
MODULE_DESCRIPTION("TX8 accelerators");
MODULE_LICENSE("GPL");
MODULE_VERSION(TXDA_VERSION);
