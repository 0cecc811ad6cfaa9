/* SPDX-License-Identifier: MIT */
/*
 * Values that the driver provides in sysfs: attributes of a chip's PCI device and its hwmon
 * sensors.
 *
 * The text is untrusted: truncated, made printable, and skipped when invalid. The driver answers
 * reads without waiting for a hung chip.
 * Threads: any.
 */
#ifndef TXDA_SYSFS_H
#define TXDA_SYSFS_H

#include "internal.h"

/* The first line of an attribute. */
bool txda__sysfs_line(const char *directory, const char *name, char *line, size_t size);
/* An attribute that is one number. */
bool txda__sysfs_integer(const char *directory, const char *name, int64_t *ret_value);
/* An unsigned number up to 2^64 - 1 in @base; a minus sign is rejected. */
bool txda__sysfs_unsigned(const char *directory, const char *name, int base, uint64_t *ret_value);
/*
 * Sensors, memory in use and counters of the PCI device at @device; missing ones are marked as
 * unknown, and so is the utilisation, for which busy_ns must be read twice. False: busy_ns cannot
 * be read.
 */
bool txda__sysfs_status(const char *device, struct txda_device_status *ret_status);
/* Formats a version register as "1.2.3". */
void txda__version_text(uint32_t version, char *buf, size_t len);

#endif /* TXDA_SYSFS_H */
