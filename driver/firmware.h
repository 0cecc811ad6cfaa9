/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Firmware: loading and booting the chip's image.
 *
 * The image (txda_firmware.h in uapi) is a configuration blob: it says how much DRAM firmware
 * keeps for itself, and the chip boots on it. A missing one, one for another register map, or one
 * that the chip refuses stops the probe with a message that says which file, what it has and what
 * was wanted. A chip without TXDA_CHIP_FIRMWARE needs none.
 *
 * The image stays in memory while the chip is bound: resets and resume boot it again, when files
 * cannot be read.
 */
#ifndef TXDA_FW_H
#define TXDA_FW_H

/* Of a struct txda_firmware. */
#define TXDA_FW_MAJOR(h) ((h)->version >> 16)
#define TXDA_FW_MINOR(h) (((h)->version >> 8) & 0xff)
#define TXDA_FW_PATCH(h) ((h)->version & 0xff)

struct firmware;
struct txda_device;

/*
 * In probe, before vram.h divides DRAM: requests, checks and keeps the image, and takes its share
 * of DRAM off.
 */
int txda_fw_load(struct txda_device *tdev);

/*
 * Whether the chip takes the image, as far as the driver knows. -EINVAL: it is none, or damaged;
 * -EPROTO: of another version or for another chip; -E2BIG: it asks for too much DRAM. The kernel
 * log says why.
 */
int txda_fw_check(struct txda_device *tdev, const struct firmware *fw);

/*
 * Copies it into DRAM and boots the chip, unless it runs already; in probe and after each reset. In
 * drm_dev_enter() or probe. -ENODEV, -EIO; the kernel log says why.
 */
int txda_fw_boot(struct txda_device *tdev);

#endif /* TXDA_FW_H */
