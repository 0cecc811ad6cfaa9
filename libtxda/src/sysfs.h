/* SPDX-License-Identifier: MIT */
/*
 * What the driver tells in sysfs: attributes of a chip's PCI device and its hwmon sensors.
 *
 * What is read is text of somebody else's: cut, made printable, and skipped when it makes no sense.
 * The driver answers without asking a chip that may hang.
 * Threads: any.
 */
#ifndef TXDA_SYSFS_H
#define TXDA_SYSFS_H

#include "internal.h"

/* The first line of an attribute. */
bool txda__sysfs_line(const char *directory, const char *name, char *line, size_t size);
/* An attribute that is one number. */
bool txda__sysfs_integer(const char *directory, const char *name, int64_t *ret_value);
/* The same up to 2^64 - 1 in @base; a minus sign is none. */
bool txda__sysfs_unsigned(const char *directory, const char *name, int base, uint64_t *ret_value);
/*
 * Sensors, memory in use and counters of the PCI device at @device; what is not there is marked as
 * not known.
 */
void txda__sysfs_status(const char *device, struct txda_device_status *ret_status);
/* "1.2.3" of a version register. */
void txda__version_text(uint32_t version, char *buf, size_t len);

#endif /* TXDA_SYSFS_H */
