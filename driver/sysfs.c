// SPDX-License-Identifier: GPL-2.0
#include "sysfs.h"

#include <linux/device.h>
#include <linux/kstrtox.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/sysfs.h>
#include <drm/drm_drv.h>
#include <drm/drm_managed.h>

#include "device.h"

/* ---- Constant attributes -------------------------------------------------------------------- */

static ssize_t serial_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct txda_device *tdev = dev_get_drvdata(dev);

	return sysfs_emit(buf, "%.*s\n", DRM_TXDA_SERIAL_BYTES, tdev->info.serial);
}
static DEVICE_ATTR_RO(serial);

static ssize_t chip_name_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct txda_device *tdev = dev_get_drvdata(dev);

	return sysfs_emit(buf, "%.*s\n", DRM_TXDA_NAME_BYTES, tdev->info.name);
}
static DEVICE_ATTR_RO(chip_name);

static ssize_t card_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct txda_device *tdev = dev_get_drvdata(dev);

	return sysfs_emit(buf, "%016llx\n", tdev->card);
}
static DEVICE_ATTR_RO(card);

static ssize_t card_index_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct txda_device *tdev = dev_get_drvdata(dev);

	return sysfs_emit(buf, "%u\n", tdev->card_index);
}
static DEVICE_ATTR_RO(card_index);

static ssize_t card_chips_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct txda_device *tdev = dev_get_drvdata(dev);

	return sysfs_emit(buf, "%u\n", tdev->card_chips);
}
static DEVICE_ATTR_RO(card_chips);

static ssize_t npu_memory_total_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct txda_device *tdev = dev_get_drvdata(dev);

	return sysfs_emit(buf, "%llu\n", tdev->dram_bytes);
}
static DEVICE_ATTR_RO(npu_memory_total);

/* ---- Counters of the driver ----------------------------------------------------------------- */

static ssize_t npu_memory_utilization_show(struct device *dev, struct device_attribute *attr,
					   char *buf)
{
	struct txda_device *tdev = dev_get_drvdata(dev);

	return sysfs_emit(buf, "%lld\n", atomic64_read(&tdev->vram.used));
}
static DEVICE_ATTR_RO(npu_memory_utilization);

static ssize_t reset_count_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct txda_device *tdev = dev_get_drvdata(dev);

	return sysfs_emit(buf, "%lld\n", atomic64_read(&tdev->reset.chip_resets));
}
static DEVICE_ATTR_RO(reset_count);

static ssize_t state_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct txda_device *tdev = dev_get_drvdata(dev);
	const char *state = "up";

	if (READ_ONCE(tdev->reset.down))
		state = "down";
	else if (READ_ONCE(tdev->reset.wedged))
		state = "wedged";
	return sysfs_emit(buf, "%s\n", state);
}
static DEVICE_ATTR_RO(state);

static ssize_t job_timeout_ms_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct txda_device *tdev = dev_get_drvdata(dev);

	return sysfs_emit(buf, "%u\n", READ_ONCE(tdev->queues.timeout_ms));
}

static ssize_t job_timeout_ms_store(struct device *dev, struct device_attribute *attr,
				    const char *buf, size_t count)
{
	struct txda_device *tdev = dev_get_drvdata(dev);
	u32 value;
	int err;

	err = kstrtou32(buf, 0, &value);
	if (err)
		return err;
	if (!value || value > TXDA_MAX_TIMEOUT_MS)
		return -EINVAL;
	WRITE_ONCE(tdev->queues.timeout_ms, value);
	return count;
}
static DEVICE_ATTR_RW(job_timeout_ms);

static ssize_t user_ban_ms_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct txda_device *tdev = dev_get_drvdata(dev);

	return sysfs_emit(buf, "%u\n", READ_ONCE(tdev->users.ban_ms));
}

static ssize_t user_ban_ms_store(struct device *dev, struct device_attribute *attr, const char *buf,
				 size_t count)
{
	u32 value;
	int err;

	err = kstrtou32(buf, 0, &value);
	if (err)
		return err;
	if (value > TXDA_USER_MAX_BAN_MS)
		return -EINVAL;
	txda_users_set_ban(dev_get_drvdata(dev), value);
	return count;
}
static DEVICE_ATTR_RW(user_ban_ms);

/* ---- Values read from the chip -------------------------------------------------------------- */

static ssize_t fw_version_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	u32 version;
	int err;

	err = txda_bars_get(dev_get_drvdata(dev), TXDA_REG_FW_VERSION, &version);
	return err
		       ?: sysfs_emit(buf, "%u.%u.%u\n", version >> 16, (version >> 8) & 0xff,
				     version & 0xff);
}
static DEVICE_ATTR_RO(fw_version);

static ssize_t txda_sysfs_show_errors(struct device *dev, enum txda_ras_kind kind, char *buf)
{
	struct txda_device *tdev = dev_get_drvdata(dev);
	u64 total;
	int idx, err;

	if (txda_bars_enter(tdev, &idx))
		return -ENODEV;
	err = txda_ras_get(tdev, kind, &total);
	txda_bars_exit(tdev, idx);
	return err ?: sysfs_emit(buf, "%llu\n", total);
}

static ssize_t ecc_corrected_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return txda_sysfs_show_errors(dev, TXDA_RAS_ECC_CORRECTED, buf);
}
static DEVICE_ATTR_RO(ecc_corrected);

static ssize_t ecc_uncorrected_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return txda_sysfs_show_errors(dev, TXDA_RAS_ECC_UNCORRECTED, buf);
}
static DEVICE_ATTR_RO(ecc_uncorrected);

static ssize_t throttle_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	static const char *const names[] = {
		[0] = "none",
		[TXDA_THROTTLE_POWER] = "power",
		[TXDA_THROTTLE_THERMAL] = "thermal",
		[TXDA_THROTTLE_POWER | TXDA_THROTTLE_THERMAL] = "power thermal",
	};
	u32 mask;
	int err;

	err = txda_bars_get(dev_get_drvdata(dev), TXDA_REG_THROTTLE, &mask);
	if (err)
		return err;
	return sysfs_emit(buf, "%s\n", names[mask & (ARRAY_SIZE(names) - 1)]);
}
static DEVICE_ATTR_RO(throttle);

/* The time in all; -ENODEV: the chip does not answer. */
static int txda_busy_get(struct txda_device *tdev, u64 *ret_ns)
{
	struct txda_busy *busy = &tdev->busy;
	int err = -ENODEV;
	u64 value;

	mutex_lock(&busy->lock);
	value = txda_read_pair(tdev, TXDA_REG_BUSY_COMPUTE_LO);
	if (txda_device_alive(tdev)) {
		*ret_ns = txda_total_add(&busy->ns, value);
		err = 0;
	}
	mutex_unlock(&busy->lock);
	return err;
}

void txda_busy_save(struct txda_device *tdev)
{
	u64 ns;

	txda_busy_get(tdev, &ns);
}

void txda_busy_restart(struct txda_device *tdev)
{
	mutex_lock(&tdev->busy.lock);
	txda_total_restart(&tdev->busy.ns);
	mutex_unlock(&tdev->busy.lock);
}

static ssize_t npu_busy_time_us_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct txda_device *tdev = dev_get_drvdata(dev);
	int idx, err;
	u64 ns;

	if (txda_bars_enter(tdev, &idx))
		return -ENODEV;
	err = txda_busy_get(tdev, &ns);
	txda_bars_exit(tdev, idx);

	return err ?: sysfs_emit(buf, "%llu\n", div_u64(ns, NSEC_PER_USEC));
}
static DEVICE_ATTR_RO(npu_busy_time_us);

/* ---- Links ---------------------------------------------------------------------------------- */

/**
 * struct txda_port_attr - An attribute of one C2C port.
 */
struct txda_port_attr {
	/** @attr: Base. */
	struct device_attribute attr;

	/** @port: Its number. */
	u32 port;
};

static u32 txda_port_reg(struct device_attribute *attr)
{
	return TXDA_REG_PORT(container_of(attr, struct txda_port_attr, attr)->port);
}

static ssize_t state_port_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	static const char *const names[] = {
		[TXDA_PORT_DOWN] = "down",
		[TXDA_PORT_TRAINING] = "training",
		[TXDA_PORT_UP] = "up",
	};
	u32 state;
	int err;

	err = txda_bars_get(dev_get_drvdata(dev), txda_port_reg(attr) + TXDA_PORT_STATE, &state);
	if (err)
		return err;
	return sysfs_emit(buf, "%s\n", state < ARRAY_SIZE(names) ? names[state] : "unknown");
}

static ssize_t speed_port_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	u32 mbps;
	int err;

	err = txda_bars_get(dev_get_drvdata(dev), txda_port_reg(attr) + TXDA_PORT_SPEED_MBPS,
			    &mbps);
	return err ?: sysfs_emit(buf, "%u\n", mbps);
}

static ssize_t errors_port_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	u32 port = container_of(attr, struct txda_port_attr, attr)->port;

	return txda_sysfs_show_errors(dev, TXDA_RAS_PORT + port, buf);
}

static ssize_t peer_port_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct txda_device *tdev = dev_get_drvdata(dev);
	u32 reg = txda_port_reg(attr), index, port;
	bool alive;
	u64 card;
	int idx;

	if (txda_bars_enter(tdev, &idx))
		return -ENODEV;
	card = txda_read_pair(tdev, reg + TXDA_PORT_PEER_CARD_LO);
	index = txda_read(tdev, reg + TXDA_PORT_PEER_INDEX);
	port = txda_read(tdev, reg + TXDA_PORT_PEER_PORT);
	alive = txda_device_alive(tdev);
	txda_bars_exit(tdev, idx);
	if (!alive)
		return -ENODEV;
	return sysfs_emit(buf, "%016llx:%u:%u\n", card, index, port);
}

#define TXDA_PORT(p, n)                                                                            \
	{                                                                                          \
		.attr = __ATTR(port##p##_##n, 0444, n##_port_show, NULL), .port = p,               \
	}

static struct txda_port_attr txda_ports[] = {
	TXDA_PORT(0, state), TXDA_PORT(0, speed), TXDA_PORT(0, errors), TXDA_PORT(0, peer),
	TXDA_PORT(1, state), TXDA_PORT(1, speed), TXDA_PORT(1, errors), TXDA_PORT(1, peer),
	TXDA_PORT(2, state), TXDA_PORT(2, speed), TXDA_PORT(2, errors), TXDA_PORT(2, peer),
	TXDA_PORT(3, state), TXDA_PORT(3, speed), TXDA_PORT(3, errors), TXDA_PORT(3, peer),
	TXDA_PORT(4, state), TXDA_PORT(4, speed), TXDA_PORT(4, errors), TXDA_PORT(4, peer),
	TXDA_PORT(5, state), TXDA_PORT(5, speed), TXDA_PORT(5, errors), TXDA_PORT(5, peer),
	TXDA_PORT(6, state), TXDA_PORT(6, speed), TXDA_PORT(6, errors), TXDA_PORT(6, peer),
	TXDA_PORT(7, state), TXDA_PORT(7, speed), TXDA_PORT(7, errors), TXDA_PORT(7, peer),
};

#define TXDA_PORT_PTR(i) (&txda_ports[i].attr.attr)

static struct attribute *txda_port_attrs[] = {
	TXDA_PORT_PTR(0),  TXDA_PORT_PTR(1),  TXDA_PORT_PTR(2),
	TXDA_PORT_PTR(3),  TXDA_PORT_PTR(4),  TXDA_PORT_PTR(5),
	TXDA_PORT_PTR(6),  TXDA_PORT_PTR(7),  TXDA_PORT_PTR(8),
	TXDA_PORT_PTR(9),  TXDA_PORT_PTR(10), TXDA_PORT_PTR(11),
	TXDA_PORT_PTR(12), TXDA_PORT_PTR(13), TXDA_PORT_PTR(14),
	TXDA_PORT_PTR(15), TXDA_PORT_PTR(16), TXDA_PORT_PTR(17),
	TXDA_PORT_PTR(18), TXDA_PORT_PTR(19), TXDA_PORT_PTR(20),
	TXDA_PORT_PTR(21), TXDA_PORT_PTR(22), TXDA_PORT_PTR(23),
	TXDA_PORT_PTR(24), TXDA_PORT_PTR(25), TXDA_PORT_PTR(26),
	TXDA_PORT_PTR(27), TXDA_PORT_PTR(28), TXDA_PORT_PTR(29),
	TXDA_PORT_PTR(30), TXDA_PORT_PTR(31), NULL};

static umode_t txda_port_is_visible(struct kobject *kobj, struct attribute *attr, int n)
{
	struct txda_device *tdev = dev_get_drvdata(kobj_to_dev(kobj));
	struct txda_port_attr *port = container_of(attr, struct txda_port_attr, attr.attr);

	return port->port < tdev->n_ports ? attr->mode : 0;
}

static const struct attribute_group txda_port_group = {
	.name = "c2c",
	.attrs = txda_port_attrs,
	.is_visible = txda_port_is_visible,
};

static struct attribute *txda_sysfs_attrs[] = {&dev_attr_serial.attr,
					       &dev_attr_chip_name.attr,
					       &dev_attr_card.attr,
					       &dev_attr_card_index.attr,
					       &dev_attr_card_chips.attr,
					       &dev_attr_fw_version.attr,
					       &dev_attr_state.attr,
					       &dev_attr_reset_count.attr,
					       &dev_attr_ecc_corrected.attr,
					       &dev_attr_ecc_uncorrected.attr,
					       &dev_attr_throttle.attr,
					       &dev_attr_job_timeout_ms.attr,
					       &dev_attr_user_ban_ms.attr,
					       &dev_attr_npu_busy_time_us.attr,
					       &dev_attr_npu_memory_utilization.attr,
					       &dev_attr_npu_memory_total.attr,
					       NULL};

static const struct attribute_group txda_sysfs_group = {
	.attrs = txda_sysfs_attrs,
};

int txda_busy_init(struct txda_device *tdev)
{
	tdev->busy.ns.seen = txda_read_pair(tdev, TXDA_REG_BUSY_COMPUTE_LO);
	return drmm_mutex_init(&tdev->drm, &tdev->busy.lock);
}

int txda_sysfs_add(struct txda_device *tdev)
{
	struct device *dev = tdev->drm.dev;
	int err;

	err = devm_device_add_group(dev, &txda_sysfs_group);
	if (!err)
		err = devm_device_add_group(dev, &txda_port_group);
	return err;
}
