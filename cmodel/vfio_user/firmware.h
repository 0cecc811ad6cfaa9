/* SPDX-License-Identifier: MIT */
/*
 * Firmware: the boot of a chip from an image in DRAM (uapi/txda_firmware.h).
 *
 * The model does not use the payload; it checks the image as a boot ROM would and is READY or
 * FAILED when the write to TXDA_REG_FW_CTRL returns.
 *
 * Threads: the device's lock.
 */
#ifndef VU_FIRMWARE_H
#define VU_FIRMWARE_H

#include <stdint.h>

#include "txda_firmware.h"

struct vu_firmware {
	uint32_t state; /* TXDA_FW_* */
	uint32_t version;
	uint32_t error;
	uint64_t image;
	uint32_t image_bytes;
};

/*
 * What is wrong with the image (an errno, positive) or 0. @dram is all of DRAM; the image lies in
 * its first @reserved bytes. *@ret_version is set on success.
 */
int vu_firmware_check(const uint8_t *dram, uint64_t dram_bytes, uint64_t reserved, uint64_t at,
		      uint32_t bytes, uint32_t *ret_version);
/* Boots, see above. */
void vu_firmware_boot(struct vu_firmware *fw, const uint8_t *dram, uint64_t dram_bytes,
		      uint64_t reserved);

#endif /* VU_FIRMWARE_H */
