/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note OR MIT */
/*
 * Firmware images of TX8: what the driver loads with request_firmware() and hands to the chip. Not
 * installed: who makes images (tools/firmware) is built with the driver.
 *
 * A file is one struct txda_firmware followed by @payload_bytes that only the chip understands. The
 * driver checks the header as far as it concerns it, copies the whole file to the reserved start of
 * DRAM, leaves the first @carveout_bytes of DRAM alone from then on, and boots the chip (see
 * TXDA_REG_FW_CTRL). The chip checks everything once more; when it refuses, TXDA_REG_FW_ERROR holds
 * one of:
 *   EINVAL   22  place or size is not in the reserved part of DRAM below the log, or not aligned
 *   ENOEXEC   8  no firmware: magic, sizes or reserved fields are wrong
 *   EBADMSG  74  the checksum does not fit
 *   EPROTO   71  a header version, a register map or a chip family that is not this chip's
 *   ENOSPC   28  the carve-out is more than half of the DRAM
 *   EBUSY    16  firmware runs already; a chip reset comes first
 *
 * All fields are little endian. What is added later comes out of the reserved fields and raises
 * TXDA_FIRMWARE_HEADER_VERSION when an older reader must not ignore it.
 */
#ifndef TXDA_FIRMWARE_H
#define TXDA_FIRMWARE_H

#include <linux/types.h>

#define TXDA_FIRMWARE_MAGIC	     0x57465854u /* "TXFW" */
#define TXDA_FIRMWARE_HEADER_VERSION 1
#define TXDA_FIRMWARE_MAX_BYTES	     (8u << 20)
#define TXDA_FIRMWARE_NAME	     "txda/tx8.fw" /* below the firmware directory */

struct txda_firmware {
	__u32 magic;
	__u16 header_version;
	__u16 header_bytes;   /* sizeof(struct txda_firmware) */
	__u32 bytes;	      /* of the whole file: header_bytes + payload_bytes */
	__u32 payload_bytes;  /* a multiple of 8 */
	__u32 crc32c;	      /* Castagnoli, of the whole file with this field 0 */
	__u32 version;	      /* of the firmware: major << 16 | minor << 8 | patch */
	__u32 chip_family;    /* TXDA_CHIP_FAMILY_* */
	__u32 regs_version;   /* oldest register map: as TXDA_REG_VERSION */
	__u32 driver_version; /* oldest driver: DRM_TXDA_MAJOR << 16 | DRM_TXDA_MINOR */
	__u32 flags;	      /* 0 */
	__u64 carveout_bytes; /* of DRAM from offset 0, a multiple of 2 MiB */
	__u8 build[32];	      /* for people; ASCII, zero padded */
	__u64 reserved[6];    /* 0 */
};

#define TXDA_FIRMWARE_VERSION(major, minor, patch)                                                 \
	((__u32)(major) << 16 | (__u32)(minor) << 8 | (__u32)(patch))

#endif /* TXDA_FIRMWARE_H */
