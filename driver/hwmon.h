/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Sensors through hwmon, name "txda": power1_input and power1_average in microwatts, power1_cap
 * with its range if the chip can be limited, temp1_input, temp1_max (throttles) and temp1_crit
 * (trips) in millidegrees Celsius, freq1_input in hertz, and labels.
 *
 * A read is one register access and never waits for the chip: sensors of a hung chip stay readable.
 * A chip that is down or gone gives -ENODEV.
 */
#ifndef TXDA_HWMON_H
#define TXDA_HWMON_H

struct txda_device;

/* Undone with the PCI device. */
int txda_hwmon_init(struct txda_device *tdev);

/* After a reset or resume: restores the power limit. In drm_dev_enter(). */
void txda_hwmon_restart(struct txda_device *tdev);

#endif /* TXDA_HWMON_H */
