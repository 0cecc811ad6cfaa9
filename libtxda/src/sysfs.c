// SPDX-License-Identifier: MIT
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sysfs.h"

bool txda__sysfs_line(const char *directory, const char *name, char *line, size_t size)
{
	char path[600];
	ssize_t n;
	int fd;

	if (snprintf(path, sizeof(path), "%s/%s", directory, name) >= (int)sizeof(path))
		return false;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return false;
	n = read(fd, line, size - 1);
	close(fd);
	if (n < 0)
		return false;
	line[n] = '\0';
	line[strcspn(line, "\n")] = '\0';
	for (char *s = line; *s; s++)
		if ((unsigned char)*s < ' ' || (unsigned char)*s >= 0x7f)
			*s = '?';
	return true;
}

bool txda__sysfs_integer(const char *directory, const char *name, int64_t *ret_value)
{
	char line[32], *end;
	long long value;

	if (!txda__sysfs_line(directory, name, line, sizeof(line)))
		return false;
	errno = 0;
	value = strtoll(line, &end, 0);
	if (errno || end == line || *end)
		return false;
	*ret_value = value;
	return true;
}

bool txda__sysfs_unsigned(const char *directory, const char *name, int base, uint64_t *ret_value)
{
	char line[32], *end;
	unsigned long long value;

	if (!txda__sysfs_line(directory, name, line, sizeof(line)) || line[0] == '-' ||
	    line[0] == ' ')
		return false;
	errno = 0;
	value = strtoull(line, &end, base);
	if (errno || end == line || *end)
		return false;
	*ret_value = value;
	return true;
}

static void read_unsigned(const char *directory, const char *name, uint64_t divisor,
			  uint32_t *value)
{
	uint64_t read;

	if (txda__sysfs_unsigned(directory, name, 10, &read) && read / divisor < UINT32_MAX)
		*value = (uint32_t)(read / divisor);
}

static void read_hwmon(const char *device, struct txda_device_status *status)
{
	char path[600];
	struct dirent *entry;
	int64_t value;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/hwmon", device);
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		char hwmon[900];

		if (strncmp(entry->d_name, "hwmon", 5))
			continue;
		snprintf(hwmon, sizeof(hwmon), "%s/%s", path, entry->d_name);
		if (txda__sysfs_integer(hwmon, "temp1_input", &value) && value > INT32_MIN &&
		    value < INT32_MAX)
			status->temp_mc = (int32_t)value;
		read_unsigned(hwmon, "power1_average", 1000, &status->power_mw);
		read_unsigned(hwmon, "power1_input", 1000, &status->power_mw);
		read_unsigned(hwmon, "freq1_input", 1000, &status->clock_khz);
		break;
	}
	if (dir)
		closedir(dir);
}

bool txda__sysfs_status(const char *device, struct txda_device_status *ret_status)
{
	struct txda_device_status status = {
		.size = sizeof(status),
		.power_mw = UINT32_MAX,
		.temp_mc = INT32_MIN,
		.clock_khz = UINT32_MAX,
		.utilisation_permille = UINT32_MAX,
	};
	uint64_t busy_us;
	bool answers;
	char state[16];

	txda__sysfs_unsigned(device, "npu_memory_utilization", 10, &status.mem_used_bytes);
	answers = txda__sysfs_unsigned(device, "npu_busy_time_us", 10, &busy_us);
	if (answers)
		status.busy_ns = busy_us * 1000;
	/* A chip whose recovery failed, or that does not answer. */
	if (txda__sysfs_line(device, "state", state, sizeof(state)))
		status.lost = !strcmp(state, "wedged") || (!strcmp(state, "up") && !answers);
	read_unsigned(device, "ecc_corrected", 1, &status.ecc_corrected);
	read_unsigned(device, "ecc_uncorrected", 1, &status.ecc_uncorrected);
	read_hwmon(device, &status);
	*ret_status = status;
	return answers;
}

void txda__version_text(uint32_t version, char *buf, size_t len)
{
	snprintf(buf, len, "%u.%u.%u", version >> 16, version >> 8 & 0xff, version & 0xff);
}
