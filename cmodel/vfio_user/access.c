// SPDX-License-Identifier: MIT
#include "access.h"
#include "device.h"
#include "regs.h"

#include <string.h>

static bool memory_answers(struct vu_device *d, unsigned region)
{
	bool on;

	if (region == TXDA_BAR_REGS && d->stuck & VU_STUCK_REGS)
		return false;

	pthread_mutex_lock(&d->lock);
	on = !atomic_load(&d->gone) && vu_config_memory_enabled(&d->config);
	pthread_mutex_unlock(&d->lock);
	return on;
}

void vu_device_bar_read(struct vu_device *d, unsigned region, uint64_t offset, void *buf,
			uint32_t bytes)
{
	memset(buf, 0xff, bytes);
	if (!memory_answers(d, region))
		return;
	if (region == TXDA_BAR_REGS && bytes == 4 && !(offset % 4) &&
	    offset < TXDA_BAR_REGS_BYTES) {
		uint32_t value = vu_regs_read(d, (uint32_t)offset);

		memcpy(buf, &value, sizeof(value));
	} else if (region == TXDA_BAR_DRAM && offset < d->dram_bytes &&
		   bytes <= d->dram_bytes - offset && offset < d->bar_bytes &&
		   bytes <= d->bar_bytes - offset) {
		memcpy(buf, d->dram + offset, bytes);
	}
}

void vu_device_bar_write(struct vu_device *d, unsigned region, uint64_t offset, const void *buf,
			 uint32_t bytes)
{
	if (!memory_answers(d, region))
		return;
	if (region == TXDA_BAR_REGS && bytes == 4 && !(offset % 4) &&
	    offset < TXDA_BAR_REGS_BYTES) {
		uint32_t value;

		memcpy(&value, buf, sizeof(value));
		vu_regs_write(d, (uint32_t)offset, value);
	} else if (region == TXDA_BAR_DRAM && offset < d->dram_bytes &&
		   bytes <= d->dram_bytes - offset && offset < d->bar_bytes &&
		   bytes <= d->bar_bytes - offset) {
		memcpy(d->dram + offset, buf, bytes);
	}
}

void vu_device_config_read(struct vu_device *d, uint64_t offset, void *buf, uint32_t bytes)
{
	pthread_mutex_lock(&d->lock);
	if (atomic_load(&d->gone))
		memset(buf, 0xff, bytes);
	else
		vu_config_read(&d->config, offset, buf, bytes);
	pthread_mutex_unlock(&d->lock);
}

void vu_device_config_write(struct vu_device *d, uint64_t offset, const void *buf, uint32_t bytes)
{
	unsigned what = 0;

	pthread_mutex_lock(&d->lock);
	if (!atomic_load(&d->gone))
		what = vu_config_write(&d->config, offset, buf, bytes);
	pthread_mutex_unlock(&d->lock);
	if (what & VU_CONFIG_FLR)
		vu_device_flr(d);
	else if (what & VU_CONFIG_POWER)
		vu_device_power_changed(d);
}
