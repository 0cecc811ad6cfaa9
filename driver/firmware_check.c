// SPDX-License-Identifier: GPL-2.0
#include "firmware.h"

#include <linux/crc32c.h>
#include <linux/firmware.h>
#include <linux/sizes.h>
#include <drm/drm_print.h>

#include "device.h"
#include "txda_firmware.h"

/* @h: in the chip's byte order (little-endian), which is that of every supported machine. */
static int txda_fw_bad(struct txda_device *tdev, const char *what, u64 has, u64 wanted)
{
	drm_err(&tdev->drm, "firmware %s: %s is %#llx, expected %#llx\n", TXDA_FIRMWARE_NAME, what,
		has, wanted);
	return -EINVAL;
}

/* The checksum covers the file with its checksum field set to zero. */
static u32 txda_fw_crc(const struct firmware *fw)
{
	const size_t at = offsetof(struct txda_firmware, crc32c), after = at + sizeof(u32);
	static const u32 zero;
	u32 crc;

	crc = crc32c(~0u, fw->data, at);
	crc = crc32c(crc, &zero, sizeof(zero));
	return ~crc32c(crc, fw->data + after, fw->size - after);
}

/* Version mismatches get a message of their own, since updating the driver or firmware helps. */
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

int txda_fw_check(struct txda_device *tdev, const struct firmware *fw)
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

	if (fw->size > tdev->fwlog.at) {
		drm_err(&tdev->drm, "firmware %s has %zu bytes, the chip reserves %llu for it\n",
			TXDA_FIRMWARE_NAME, fw->size, tdev->fwlog.at);
		return -E2BIG;
	}
	if (h->carveout_bytes > dram / 2) {
		drm_err(&tdev->drm, "firmware %s wants %llu MiB of the chip's %llu MiB of DRAM\n",
			TXDA_FIRMWARE_NAME, h->carveout_bytes >> 20, dram >> 20);
		return -E2BIG;
	}
	return 0;
}
