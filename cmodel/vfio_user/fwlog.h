/* SPDX-License-Identifier: MIT */
/*
 * The chip's log: messages in a ring at the end of the reserved part of DRAM (uapi/txda_regs.h),
 * which the driver shows to people. Only vu_device_log() writes it.
 *
 * Threads: the device's lock.
 */
#ifndef VU_FWLOG_H
#define VU_FWLOG_H

#include <stdint.h>

#include "txda_regs.h"

#define VU_FWLOG_ENTRIES 512
#define VU_FWLOG_BYTES	 (VU_FWLOG_ENTRIES * sizeof(struct txda_fw_log_entry))

struct vu_fwlog {
	uint64_t count; /* messages since power-on */
};

/* @ring: VU_FWLOG_BYTES of DRAM, which the host may read meanwhile. Text that is too long is cut. */
void vu_fwlog_add(struct vu_fwlog *log, struct txda_fw_log_entry *ring, uint8_t level,
		  uint64_t time_ns, const char *text);

#endif /* VU_FWLOG_H */
