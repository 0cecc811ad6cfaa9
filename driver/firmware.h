/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Firmware: loading and booting the chip's image.
 *
 * The image (txda_firmware.h in uapi) is a configuration blob: it says how much DRAM firmware
 * keeps for itself, and the chip boots on it. A missing one, one for another register map, or one
 * that the chip refuses stops the probe with a message that says which file, what it has and what
 * was wanted.
 */
#ifndef TXDA_FIRMWARE_H_
#define TXDA_FIRMWARE_H_

struct txda_device;

/* In probe: requests, checks and keeps the image. */
int txda_fw_load(struct txda_device *tdev);
/* Copies it into DRAM and boots the chip; also after each reset that asks for it. */
int txda_fw_boot(struct txda_device *tdev);

#endif /* TXDA_FIRMWARE_H_ */
