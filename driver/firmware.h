/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Firmware: loading and booting the chip's image.
 *
 * The image (txda_firmware.h in uapi) is a configuration blob: it states how much DRAM the firmware
 * reserves, and the chip boots from it. If the image is missing, made for another register map, or
 * refused by the chip, the probe fails with a message that names the file and the value found and
 * expected. A chip without TXDA_CHIP_FIRMWARE needs none.
 *
 * The image is kept in memory while the chip is bound: reset and resume boot it again at times when
 * files cannot be read.
 */
#ifndef TXDA_FW_H
#define TXDA_FW_H

/* Member of struct txda_firmware. */
#define TXDA_FW_MAJOR(h) ((h)->version >> 16)
#define TXDA_FW_MINOR(h) (((h)->version >> 8) & 0xff)
#define TXDA_FW_PATCH(h) ((h)->version & 0xff)

struct firmware;
struct txda_device;

/*
 * In probe, before vram.h divides up DRAM: requests, checks and keeps the image, and subtracts its
 * share of DRAM.
 */
int txda_fw_load(struct txda_device *tdev);

/*
 * Whether the image suits the chip. -EINVAL: not an image, or damaged; -EPROTO: another version or
 * for another chip; -E2BIG: it asks for too much DRAM. The kernel log says why.
 */
int txda_fw_check(struct txda_device *tdev, const struct firmware *fw);

/*
 * Copies it into DRAM and boots the chip, unless it is running already; in probe and after each
 * reset. In drm_dev_enter() or probe. -ENODEV, -EIO; the kernel log says why.
 */
int txda_fw_boot(struct txda_device *tdev);

#endif /* TXDA_FW_H */
