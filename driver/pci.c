// SPDX-License-Identifier: GPL-2.0
#include "pci.h"

#include <linux/dma-mapping.h>
#include <linux/module.h>
#include <drm/drm_drv.h>
#include <drm/drm_print.h>

#include "copy.h"
#include "coredump.h"
#include "debugfs.h"
#include "device.h"
#include "drv.h"
#include "events.h"
#include "firmware.h"
#include "gem.h"
#include "group.h"
#include "hwmon.h"
#include "locks.h"
#include "pmu.h"
#include "scrub.h"
#include "sysfs.h"
#include "vm.h"

/* Bits of a bus address that a PTE holds. */
#define TXDA_DMA_BITS 52

static int txda_pci_setup(struct txda_device *tdev)
{
	struct pci_dev *pdev = tdev->pdev;
	int err;

	err = pcim_enable_device(pdev);
	if (err) {
		drm_err(&tdev->drm, "cannot enable the PCI function: %pe\n", ERR_PTR(err));
		return err;
	}
	err = dma_set_mask_and_coherent(&pdev->dev, DMA_BIT_MASK(TXDA_DMA_BITS));
	if (err) {
		drm_err(&tdev->drm, "no DMA with %d bits: %pe\n", TXDA_DMA_BITS, ERR_PTR(err));
		return err;
	}
	dma_set_max_seg_size(&pdev->dev, UINT_MAX);
	return 0;
}

/*
 * Resets the function, if the platform can. Whether all of DRAM is zero now: the chip counts its
 * resets, since a hypervisor may leave out one that it says was done.
 */
static bool txda_pci_function_reset(struct txda_device *tdev)
{
	struct pci_dev *pdev = tdev->pdev;
	u32 before = txda_read(tdev, TXDA_REG_RESET_COUNT);
	int err;

	pci_clear_master(pdev);
	pci_save_state(pdev);
	err = pcie_reset_flr(pdev, PCI_RESET_DO_RESET);
	pci_restore_state(pdev);
	return !err && txda_read(tdev, TXDA_REG_RESET_COUNT) == before + 1 &&
	       txda_device_alive(tdev);
}

/* The chip may still be executing work of an earlier driver: stop it before it gets memory. */
static int txda_pci_boot(struct txda_device *tdev)
{
	bool clear;
	int err;

	err = txda_device_init(tdev);
	if (err)
		return err;
	clear = txda_pci_function_reset(tdev);
	err = txda_chip_reset(tdev);
	if (err) {
		drm_err(&tdev->drm, "the chip does not reset: %pe\n", ERR_PTR(err));
		return err;
	}
	err = txda_fw_load(tdev);
	if (err)
		return err;
	err = txda_scrub_init(tdev);
	if (!err)
		err = txda_vram_init(tdev);
	if (err)
		return err;
	if (clear)
		txda_vram_set_clear(tdev);
	return txda_fw_boot(tdev);
}

/* Software state, released by DRM's managed resources. */
static int txda_pci_init_blocks(struct txda_device *tdev)
{
	int err;

	tdev->queues.timeout_ms = txda_job_timeout_ms;

	err = txda_reset_init(tdev);
	if (!err)
		err = txda_coredump_init(tdev);
	if (!err)
		err = txda_events_init(tdev);
	if (!err)
		err = txda_hwqs_init(tdev);
	if (!err)
		txda_shares_init(tdev);
	if (!err)
		err = txda_mmu_init(tdev);
	if (!err)
		err = txda_queues_init(tdev);
	if (!err)
		err = txda_gem_init(tdev);
	if (!err)
		err = txda_evict_init(tdev);
	if (!err)
		err = txda_vms_init(tdev);
	if (!err)
		err = txda_users_init(tdev);
	return err;
}

static int txda_pci_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct txda_device *tdev;
	int err;

	tdev = devm_drm_dev_alloc(&pdev->dev, &txda_drm_driver, struct txda_device, drm);
	if (IS_ERR(tdev))
		return PTR_ERR(tdev);
	tdev->pdev = pdev;
	pci_set_drvdata(pdev, tdev);

	err = txda_pci_setup(tdev);
	if (err)
		return err;
	err = txda_pci_boot(tdev);
	if (err)
		return err;
	err = txda_pci_init_blocks(tdev);
	if (err)
		return err;

	err = txda_irq_init(tdev);
	if (err)
		return err;
	pci_set_master(pdev);
	txda_irq_enable(tdev);
	err = txda_copy_init(tdev);
	if (err) {
		drm_err(&tdev->drm, "cannot start the kernel's copy queue: %pe\n", ERR_PTR(err));
		goto err_stop;
	}
	err = txda_hwmon_init(tdev);
	if (!err)
		err = txda_sysfs_add(tdev);
	if (err)
		goto err_stop;
	pci_save_state(pdev);
	txda_locks_show_device(tdev);
	err = txda_reset_set_up(tdev);
	if (err)
		goto err_stop;
	err = drm_dev_register(&tdev->drm, 0);
	if (err) {
		drm_err(&tdev->drm, "cannot register the accel node: %pe\n", ERR_PTR(err));
		goto err_stop;
	}

	txda_debugfs_init(tdev);
	txda_events_add(tdev);
	txda_pmu_add(tdev);
	txda_scrub_start(tdev);
	drm_info(&tdev->drm, "%s, serial %.16s, %llu MiB, %u+%u queues, %s\n", tdev->info.name,
		 tdev->info.serial, tdev->dram_bytes >> 20, tdev->compute_queues, tdev->copy_queues,
		 tdev->irq.msix ? "MSI-X" : "MSI");
	return 0;

err_stop:
	txda_reset_fini(tdev);
	/* Before any memory goes that the chip knows of. */
	txda_chip_reset(tdev);
	pci_clear_master(pdev);
	txda_copy_fini(tdev);
	txda_irq_disable(tdev);
	txda_coredump_fini(tdev);
	txda_irq_fini(tdev);
	return err;
}

static void txda_pci_remove(struct pci_dev *pdev)
{
	struct txda_device *tdev = pci_get_drvdata(pdev);

	/* Those inside may wait for fences, which nobody would signal once it is unplugged. */
	txda_reset_unplug(tdev);
	/*
	 * No new users can enter from here on (open files may outlive the chip), and those inside
	 * have left.
	 */
	drm_dev_unplug(&tdev->drm);
	txda_pmu_close(tdev);
	txda_events_remove(tdev);
	/* Wakes who waits for the chip to come up, the scrubber among them. */
	txda_reset_fini(tdev);
	txda_scrub_stop(tdev);

	/* No handlers run and no DMA happens any more, whether or not the chip is present. */
	if (txda_device_alive(tdev) && txda_chip_reset(tdev))
		txda_pci_function_reset(tdev);
	pci_clear_master(pdev);
	txda_irq_disable(tdev);

	txda_groups_leave_all(tdev);
	txda_queues_lose(tdev, DRM_TXDA_QUEUE_INNOCENT, -ENODEV);
	txda_shares_fini(tdev);
	txda_copy_fini(tdev);
	txda_gem_unplug(tdev);
	txda_coredump_fini(tdev);
	txda_irq_fini(tdev);
}

/* Leaves the chip idle for the next kernel or driver. */
static void txda_pci_shutdown(struct pci_dev *pdev)
{
	txda_reset_prepare(pci_get_drvdata(pdev));
	pci_clear_master(pdev);
}

static const struct pci_device_id txda_pci_ids[] = {{PCI_DEVICE(TXDA_PCI_VENDOR, TXDA_PCI_DEVICE)},
						    {}};
MODULE_DEVICE_TABLE(pci, txda_pci_ids);

struct pci_driver txda_pci_driver = {
	.name = "txda",
	.id_table = txda_pci_ids,
	.probe = txda_pci_probe,
	.remove = txda_pci_remove,
	.shutdown = txda_pci_shutdown,
	.err_handler = &txda_pci_errors,
	.driver.pm = pm_sleep_ptr(&txda_pm_ops),
};
