// SPDX-License-Identifier: GPL-2.0
#include "firmware.h"

#include <linux/firmware.h>
#include <linux/io.h>
#include <linux/iopoll.h>
#include <linux/module.h>
#include <drm/drm_print.h>

#include "device.h"
#include "txda_firmware.h"

#define TXDA_FW_TIMEOUT_US (10 * USEC_PER_SEC)
#define TXDA_FW_POLL_US	   1000

MODULE_FIRMWARE(TXDA_FIRMWARE_NAME);

static void txda_fw_release(void *fw)
{
	release_firmware(fw);
}

/* Firmware keeps the larger of the chip's reserved size and the image's requested size. */
static void txda_fw_carve_out(struct txda_device *tdev, const struct txda_firmware *h)
{
	u64 more;

	if (h->carveout_bytes <= tdev->dram_reserved)
		return;
	more = h->carveout_bytes - tdev->dram_reserved;
	tdev->dram_reserved += more;
	tdev->dram_bytes -= more;
	tdev->dram_mappable -= min(tdev->dram_mappable, more);
}

int txda_fw_load(struct txda_device *tdev)
{
	const struct txda_firmware *h;
	const struct firmware *fw;
	struct device *dev = &tdev->pdev->dev;
	int err;

	if (!tdev->wants_firmware)
		return 0;

	err = firmware_request_nowarn(&fw, TXDA_FIRMWARE_NAME, dev);
	if (err) {
		drm_err(&tdev->drm,
			"firmware %s cannot be loaded (%pe): is it installed in /lib/firmware?\n",
			TXDA_FIRMWARE_NAME, ERR_PTR(err));
		return err;
	}
	err = txda_fw_check(tdev, fw);
	if (err) {
		release_firmware(fw);
		return err;
	}
	err = devm_add_action_or_reset(dev, txda_fw_release, (void *)fw);
	if (err)
		return err;

	h = (const struct txda_firmware *)fw->data;
	txda_fw_carve_out(tdev, h);
	tdev->fw = fw;
	drm_dbg(&tdev->drm, "firmware %u.%u.%u (%.32s), %llu MiB of DRAM\n", TXDA_FW_MAJOR(h),
		TXDA_FW_MINOR(h), TXDA_FW_PATCH(h), h->build, tdev->dram_reserved >> 20);
	return 0;
}

static int txda_fw_start(struct txda_device *tdev)
{
	const struct firmware *fw = tdev->fw;
	u32 state;
	int err;

	if (!tdev->vram.aperture || tdev->vram.aperture_bytes < fw->size) {
		drm_err(&tdev->drm, "firmware %s has %zu bytes, BAR%d shows %llu\n",
			TXDA_FIRMWARE_NAME, fw->size, TXDA_BAR_DRAM, tdev->vram.aperture_bytes);
		return -EIO;
	}
	memcpy_toio(tdev->vram.aperture, fw->data, fw->size);
	/* Data written through the aperture must have reached DRAM before the chip reads it. */
	wmb();
	txda_write_pair(tdev, TXDA_REG_FW_IMAGE_LO, 0);
	txda_write(tdev, TXDA_REG_FW_IMAGE_BYTES, fw->size);
	txda_write(tdev, TXDA_REG_FW_CTRL, TXDA_FW_BOOT);

	err = read_poll_timeout(txda_read, state,
				state != TXDA_FW_RESET && state != TXDA_FW_BOOTING, TXDA_FW_POLL_US,
				TXDA_FW_TIMEOUT_US, false, tdev, TXDA_REG_FW_STATE);
	if (!txda_device_alive(tdev))
		return -ENODEV;
	if (err || state != TXDA_FW_READY) {
		drm_err(&tdev->drm, "firmware %s does not boot: state %u, error %u\n",
			TXDA_FIRMWARE_NAME, state, txda_read(tdev, TXDA_REG_FW_ERROR));
		return -EIO;
	}
	return 0;
}

int txda_fw_boot(struct txda_device *tdev)
{
	u32 state = txda_read(tdev, TXDA_REG_FW_STATE);

	if (!txda_device_alive(tdev))
		return -ENODEV;
	if (state == TXDA_FW_READY)
		return 0;
	if (!tdev->fw) {
		drm_err(&tdev->drm,
			"the chip needs no firmware by its capabilities, but is in state %u\n",
			state);
		return -EIO;
	}
	return txda_fw_start(tdev);
}
