// SPDX-License-Identifier: GPL-2.0
#include "hwmon.h"

#include <linux/err.h>
#include <linux/hwmon.h>
#include <linux/hwmon-sysfs.h>
#include <linux/minmax.h>
#include <linux/sysfs.h>
#include <drm/drm_drv.h>
#include <drm/drm_print.h>

#include "device.h"

#define TXDA_UW_PER_MW	1000
#define TXDA_HZ_PER_KHZ 1000

static umode_t txda_hwmon_is_visible(const void *data, enum hwmon_sensor_types type, u32 attr,
				     int channel)
{
	const struct txda_device *tdev = data;

	if (type == hwmon_power && attr == hwmon_power_cap)
		return tdev->info.caps & DRM_TXDA_CAP_POWER_LIMIT ? 0644 : 0444;
	return 0444;
}

/* The chip's reading is already averaged over some tenths of a second. */
static int txda_hwmon_read_power(struct txda_device *tdev, u32 attr, long *ret_value)
{
	u32 reg = attr == hwmon_power_cap ? TXDA_REG_POWER_LIMIT_MW : TXDA_REG_POWER_MW;
	u32 mw;
	int err;

	err = txda_bars_get(tdev, reg, &mw);
	if (err)
		return err;
	*ret_value = min_t(u64, (u64)mw * TXDA_UW_PER_MW, LONG_MAX);
	return 0;
}

static int txda_hwmon_read_temp(struct txda_device *tdev, u32 attr, long *ret_value)
{
	u32 reg, mc;
	int err;

	switch (attr) {
	case hwmon_temp_input:
		reg = TXDA_REG_TEMP_MC;
		break;
	case hwmon_temp_max:
		reg = TXDA_REG_TEMP_LIMIT_MC;
		break;
	case hwmon_temp_crit:
		reg = TXDA_REG_TEMP_TRIP_MC;
		break;
	default:
		return -EOPNOTSUPP;
	}
	err = txda_bars_get(tdev, reg, &mc);
	if (err)
		return err;
	*ret_value = (s32)mc;
	return 0;
}

static int txda_hwmon_read(struct device *dev, enum hwmon_sensor_types type, u32 attr, int channel,
			   long *ret_value)
{
	struct txda_device *tdev = dev_get_drvdata(dev);

	switch (type) {
	case hwmon_power:
		return txda_hwmon_read_power(tdev, attr, ret_value);
	case hwmon_temp:
		return txda_hwmon_read_temp(tdev, attr, ret_value);
	default:
		return -EOPNOTSUPP;
	}
}

static int txda_hwmon_read_string(struct device *dev, enum hwmon_sensor_types type, u32 attr,
				  int channel, const char **ret_string)
{
	switch (type) {
	case hwmon_power:
		*ret_string = "card slot";
		return 0;
	case hwmon_temp:
		*ret_string = "die";
		return 0;
	default:
		return -EOPNOTSUPP;
	}
}

/* The chip clamps the limit; reading the attribute back shows the effective value. */
static int txda_hwmon_write(struct device *dev, enum hwmon_sensor_types type, u32 attr, int channel,
			    long value)
{
	struct txda_device *tdev = dev_get_drvdata(dev);
	int idx, err;

	if (type != hwmon_power || attr != hwmon_power_cap)
		return -EOPNOTSUPP;
	if (value < TXDA_UW_PER_MW || value / TXDA_UW_PER_MW > U32_MAX)
		return -EINVAL;
	err = txda_device_enter(tdev, &idx);
	if (err)
		return err;
	/* Stored before the register is written, since a concurrent reset restores it from here. */
	tdev->power_limit_mw = value / TXDA_UW_PER_MW;
	txda_hwmon_restart(tdev);
	txda_device_exit(tdev, idx);
	return 0;
}

void txda_hwmon_restart(struct txda_device *tdev)
{
	if (tdev->power_limit_mw)
		txda_write(tdev, TXDA_REG_POWER_LIMIT_MW, tdev->power_limit_mw);
}

static const struct hwmon_ops txda_hwmon_ops = {
	.is_visible = txda_hwmon_is_visible,
	.read = txda_hwmon_read,
	.read_string = txda_hwmon_read_string,
	.write = txda_hwmon_write,
};

static const struct hwmon_channel_info *const txda_hwmon_channels[] = {
	HWMON_CHANNEL_INFO(power, HWMON_P_INPUT | HWMON_P_AVERAGE | HWMON_P_CAP | HWMON_P_LABEL),
	HWMON_CHANNEL_INFO(temp, HWMON_T_INPUT | HWMON_T_MAX | HWMON_T_CRIT | HWMON_T_LABEL), NULL};

static const struct hwmon_chip_info txda_hwmon_chip = {
	.ops = &txda_hwmon_ops,
	.info = txda_hwmon_channels,
};

/* hwmon has no class for clocks; the names follow other accelerators' drivers. */
static ssize_t freq1_input_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	u32 khz;
	int err;

	err = txda_bars_get(dev_get_drvdata(dev), TXDA_REG_CLOCK_KHZ, &khz);
	if (err)
		return err;
	return sysfs_emit(buf, "%llu\n", (u64)khz * TXDA_HZ_PER_KHZ);
}
static DEVICE_ATTR_RO(freq1_input);

static ssize_t freq1_label_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "core\n");
}
static DEVICE_ATTR_RO(freq1_label);

static struct attribute *txda_hwmon_attrs[] = {&dev_attr_freq1_input.attr,
					       &dev_attr_freq1_label.attr, NULL};
ATTRIBUTE_GROUPS(txda_hwmon);

int txda_hwmon_init(struct txda_device *tdev)
{
	struct device *hwmon;

	hwmon = devm_hwmon_device_register_with_info(&tdev->pdev->dev, "txda", tdev,
						     &txda_hwmon_chip, txda_hwmon_groups);
	if (IS_ERR(hwmon)) {
		drm_err(&tdev->drm, "cannot register sensors: %pe\n", hwmon);
		return PTR_ERR(hwmon);
	}
	return 0;
}
