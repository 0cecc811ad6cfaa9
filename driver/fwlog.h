/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The log of the chip's firmware: a ring of messages at the end of the reserved part of DRAM
 * (txda_regs.h). It is shown in debugfs, and its end in dumps.
 *
 * A chip without a log, or with one that it describes wrongly or that lies beyond the aperture,
 * shows none: one whose register map is older than 1.1 reads 0 for the size, as for all registers
 * that it does not know. Nothing that the chip writes there is trusted: text is made printable, and
 * a message that changes while it is read is left out.
 */
#ifndef TXDA_FWLOG_H
#define TXDA_FWLOG_H

#include <linux/types.h>

struct txda_device;

/**
 * struct txda_fwlog - Where it is.
 */
struct txda_fwlog {
	/** @at: Its offset in DRAM. Firmware images end here. */
	u64 at;

	/** @entries: Messages that it holds, a power of two; 0: there is no log. */
	u32 entries;
};

/* In probe, when the reserved part of DRAM is known and before firmware enlarges it. */
void txda_fwlog_init(struct txda_device *tdev);

/*
 * Calls @put with each of the newest @max messages that are still there, as a line, oldest first,
 * until it returns false: there is no room for more. In drm_dev_enter(), with the BARs usable.
 * Never sleeps.
 */
void txda_fwlog_show(struct txda_device *tdev, u32 max, bool (*put)(void *arg, const char *line),
		     void *arg);

#endif /* TXDA_FWLOG_H */
