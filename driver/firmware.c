// SPDX-License-Identifier: GPL-2.0
#include "firmware.h"

#include <linux/crc32c.h>
#include <linux/firmware.h>
#include <linux/io.h>
#include <linux/iopoll.h>
#include <linux/module.h>
#include <linux/sizes.h>
#include <linux/string.h>
#include <drm/drm_print.h>

#include "device.h"
#include "txda_firmware.h"

#define TXDA_FW_TIMEOUT_US (10 * USEC_PER_SEC)
#define TXDA_FW_POLL_US	   1000

#define TXDA_FW_MAJOR(h) ((h)->version >> 16)
#define TXDA_FW_MINOR(h) (((h)->version >> 8) & 0xff)
#define TXDA_FW_PATCH(h) ((h)->version & 0xff)

MODULE_FIRMWARE(TXDA_FIRMWARE_NAME);

/* @h: in the byte order of the chip, which is that of every machine that TX8 works in. */
static int txda_fw_bad(struct txda_device *tdev, const char *what, u64 has, u64 wanted)
{
	drm_err(&tdev->drm, "firmware %s: %s is %#llx, wanted is %#llx\n", TXDA_FIRMWARE_NAME, what,
		has, wanted);
	return -EINVAL;
}

/* The checksum is of the file with its own field zero. */
static u32 txda_fw_crc(const struct firmware *fw)
{
	const size_t at = offsetof(struct txda_firmware, crc32c), after = at + sizeof(u32);
	static const u32 zero;
	u32 crc;

	crc = crc32c(~0u, fw->data, at);
	crc = crc32c(crc, &zero, sizeof(zero));
	return ~crc32c(crc, fw->data + after, fw->size - after);
}

/* What one driver or chip is too old for gets a message of its own, since an update helps. */
static int txda_fw_check_versions(struct txda_device *tdev, const struct txda_firmware *h)
{
	u32 regs = txda_read(tdev, TXDA_REG_VERSION);
	u32 driver = DRM_TXDA_MAJOR << 16 | DRM_TXDA_MINOR;

	if (h->header_version != TXDA_FIRMWARE_HEADER_VERSION) {
		drm_err(&tdev->drm,
			"firmware %s has header version %u, this driver reads %u: %s is too old\n",
			TXDA_FIRMWARE_NAME, h->header_version, TXDA_FIRMWARE_HEADER_VERSION,
			h->header_version > TXDA_FIRMWARE_HEADER_VERSION ? "the driver"
									 : "the firmware");
		return -EPROTO;
	}
	if (h->chip_family != tdev->info.family) {
		drm_err(&tdev->drm, "firmware %s is for chip family %u, this is family %u\n",
			TXDA_FIRMWARE_NAME, h->chip_family, tdev->info.family);
		return -EPROTO;
	}
	if (h->regs_version >> 16 != regs >> 16 || (h->regs_version & 0xffff) > (regs & 0xffff)) {
		drm_err(&tdev->drm,
			"firmware %s %u.%u.%u needs register map %u.%u, the chip has %u.%u\n",
			TXDA_FIRMWARE_NAME, TXDA_FW_MAJOR(h), TXDA_FW_MINOR(h), TXDA_FW_PATCH(h),
			h->regs_version >> 16, h->regs_version & 0xffff, regs >> 16, regs & 0xffff);
		return -EPROTO;
	}
	if (h->driver_version > driver) {
		drm_err(&tdev->drm,
			"firmware %s %u.%u.%u needs driver interface %u.%u, this one has %u.%u\n",
			TXDA_FIRMWARE_NAME, TXDA_FW_MAJOR(h), TXDA_FW_MINOR(h), TXDA_FW_PATCH(h),
			h->driver_version >> 16, h->driver_version & 0xffff, driver >> 16,
			driver & 0xffff);
		return -EPROTO;
	}
	return 0;
}

static int txda_fw_check(struct txda_device *tdev, const struct firmware *fw)
{
	const struct txda_firmware *h = (const struct txda_firmware *)fw->data;
	u64 dram = tdev->dram_reserved + tdev->dram_bytes;
	u32 crc;
	int err;

	if (fw->size < sizeof(*h))
		return txda_fw_bad(tdev, "size", fw->size, sizeof(*h));
	if (h->magic != TXDA_FIRMWARE_MAGIC)
		return txda_fw_bad(tdev, "magic number", h->magic, TXDA_FIRMWARE_MAGIC);
	err = txda_fw_check_versions(tdev, h);
	if (err)
		return err;
	if (h->header_bytes != sizeof(*h))
		return txda_fw_bad(tdev, "size of the header", h->header_bytes, sizeof(*h));
	if (h->bytes != fw->size)
		return txda_fw_bad(tdev, "size by its header", h->bytes, fw->size);
	crc = txda_fw_crc(fw);
	if (h->crc32c != crc)
		return txda_fw_bad(tdev, "checksum", h->crc32c, crc);
	if (h->carveout_bytes % SZ_2M)
		return txda_fw_bad(tdev, "carve-out modulo 2 MiB", h->carveout_bytes % SZ_2M, 0);

	if (fw->size > tdev->dram_reserved) {
		drm_err(&tdev->drm, "firmware %s has %zu bytes, the chip reserves %llu for it\n",
			TXDA_FIRMWARE_NAME, fw->size, tdev->dram_reserved);
		return -E2BIG;
	}
	if (h->carveout_bytes > dram / 2) {
		drm_err(&tdev->drm, "firmware %s wants %llu MiB of the chip's %llu MiB of DRAM\n",
			TXDA_FIRMWARE_NAME, h->carveout_bytes >> 20, dram >> 20);
		return -E2BIG;
	}
	return 0;
}

static void txda_fw_release(void *fw)
{
	release_firmware(fw);
}

/* Firmware keeps the larger of what the chip reserves and what the image wants. */
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
	/* What was written through the aperture must be in DRAM before the chip looks. */
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
