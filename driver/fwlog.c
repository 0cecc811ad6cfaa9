// SPDX-License-Identifier: GPL-2.0
#include "fwlog.h"

#include <linux/io.h>
#include <linux/kernel.h>
#include <linux/log2.h>
#include <linux/math64.h>
#include <linux/time64.h>
#include <drm/drm_print.h>

#include "device.h"

/* Time and level before the text, newline and zero after it. */
#define TXDA_FWLOG_LINE (sizeof_field(struct txda_fw_log_entry, text) + 48)

void txda_fwlog_init(struct txda_device *tdev)
{
	u32 entries = txda_read(tdev, TXDA_REG_FW_LOG_ENTRIES);
	u64 bytes = (u64)entries * sizeof(struct txda_fw_log_entry);

	if (entries && (!is_power_of_2(entries) || entries > TXDA_FW_LOG_MAX_ENTRIES ||
			bytes > tdev->dram_reserved)) {
		drm_warn(&tdev->drm,
			 "no log: %u messages, not a power of 2 up to %u in %llu bytes\n", entries,
			 TXDA_FW_LOG_MAX_ENTRIES, tdev->dram_reserved);
		entries = 0;
		bytes = 0;
	}
	tdev->fwlog.entries = entries;
	tdev->fwlog.at = tdev->dram_reserved - bytes;
}

static u64 txda_fwlog_number(const void __iomem *at)
{
	u64 number;

	memcpy_fromio(&number, at, sizeof(number));
	return number;
}

/* Message @number, if it is there and stays until it is read. */
static bool txda_fwlog_read(struct txda_device *tdev, u64 number, struct txda_fw_log_entry *entry)
{
	u64 index = (number - 1) & (tdev->fwlog.entries - 1);
	const void __iomem *at =
		tdev->vram.aperture + tdev->fwlog.at + index * sizeof(struct txda_fw_log_entry);

	if (txda_fwlog_number(at) != number)
		return false;
	/* The number is written after the message. */
	rmb();
	memcpy_fromio(entry, at, sizeof(*entry));
	/* And is taken away before the next message is written. */
	rmb();
	return txda_fwlog_number(at) == number;
}

static void txda_fwlog_format(const struct txda_fw_log_entry *entry, char *line)
{
	static const char *const levels[] = {"error", "warning", "info", "debug"};
	char text[sizeof(entry->text) + 1];
	u32 i, ns;
	u64 s = div_u64_rem(entry->time_ns, NSEC_PER_SEC, &ns);

	for (i = 0; i < sizeof(entry->text) && entry->text[i]; i++)
		text[i] = entry->text[i] >= ' ' && entry->text[i] <= '~' ? entry->text[i] : '?';
	text[i] = '\0';
	snprintf(line, TXDA_FWLOG_LINE, "[%5llu.%06u] %s: %s\n", s, ns / 1000,
		 entry->level < ARRAY_SIZE(levels) ? levels[entry->level] : "unknown level", text);
}

void txda_fwlog_show(struct txda_device *tdev, u32 max, bool (*put)(void *arg, const char *line),
		     void *arg)
{
	u64 bytes = tdev->fwlog.entries * sizeof(struct txda_fw_log_entry), newest, left;
	struct txda_fw_log_entry entry;
	char line[TXDA_FWLOG_LINE];

	if (!tdev->vram.aperture || tdev->fwlog.at + bytes > tdev->vram.aperture_bytes)
		return;
	newest = txda_read_pair(tdev, TXDA_REG_FW_LOG_COUNT_LO);
	if (!txda_device_alive(tdev))
		return;
	for (left = min3(newest, (u64)max, (u64)tdev->fwlog.entries); left; left--) {
		if (!txda_fwlog_read(tdev, newest - left + 1, &entry))
			continue;
		txda_fwlog_format(&entry, line);
		if (!put(arg, line))
			break;
	}
}
