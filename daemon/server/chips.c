// SPDX-License-Identifier: MIT
#include "chips.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <txda.h>

#include "metrics.h"

#define READ_EVERY_NS 1000000000ull

static double known(bool is_known, double value)
{
	return is_known ? value : NAN;
}

static bool read_chip(struct txda_context *context, unsigned index, struct metrics_chip *chip)
{
	struct txda_device_info info = TXDA_INIT(struct txda_device_info);
	struct txda_device_status status = TXDA_INIT(struct txda_device_status);
	struct txda_device *device;
	bool read;

	if (txda_device_get(context, index, &device) < 0)
		return false;
	read = txda_device_info(device, &info) >= 0 && txda_device_status(device, &status) >= 0;
	txda_device_unref(device);
	if (!read)
		return false;
	chip->index = index;
	memcpy(chip->serial, info.serial, sizeof(chip->serial));
	chip->up = !status.lost;
	chip->utilisation = known(status.utilisation_permille != UINT32_MAX,
				  status.utilisation_permille / 1000.0);
	chip->memory = (double)info.mem_bytes;
	chip->memory_used = (double)status.mem_used_bytes;
	chip->power_watts = known(status.power_mw != UINT32_MAX, status.power_mw / 1000.0);
	chip->temperature_celsius = known(status.temp_mc != INT32_MIN, status.temp_mc / 1000.0);
	chip->clock_hertz = known(status.clock_khz != UINT32_MAX, status.clock_khz * 1000.0);
	chip->ecc_corrected = status.ecc_corrected;
	chip->ecc_uncorrected = status.ecc_uncorrected;
	chip->faults = status.faults;
	return true;
}

void chips_write_metrics(struct chips_metrics *last, struct txda_context *context, uint64_t now_ns,
			 struct json_out *o)
{
	int count = context ? txda_context_device_count(context) : 0;
	struct metrics_chip *chips;
	unsigned n = 0;

	if (!last->read_ns || now_ns - last->read_ns >= READ_EVERY_NS) {
		chips = calloc(count > 0 ? (size_t)count : 1, sizeof(*chips));
		if (!chips)
			return;
		for (int i = 0; i < count; i++)
			n += read_chip(context, (unsigned)i, &chips[n]);
		json_out_clear(&last->text);
		metrics_write_chips(&last->text, chips, n);
		last->read_ns = now_ns;
		free(chips);
	}
	if (!json_out_failed(&last->text))
		json_raw(o, last->text.data, last->text.len);
}
