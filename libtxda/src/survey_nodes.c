// SPDX-License-Identifier: MIT
/*
 * Real chips and their users, from sysfs, hwmon and fdinfo: the node is never opened, so a hung
 * chip cannot hang us.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "survey.h"

/* Reads an attribute's first line. */
static bool read_line(const char *directory, const char *name, char *line, size_t size)
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

static bool read_integer(const char *directory, const char *name, int64_t *ret_value)
{
	char line[32], *end;
	long long value;

	if (!read_line(directory, name, line, sizeof(line)))
		return false;
	errno = 0;
	value = strtoll(line, &end, 0);
	if (errno || end == line || *end)
		return false;
	*ret_value = value;
	return true;
}

/* The last part of where a link points to. */
static bool read_link_name(const char *path, char *name, size_t size)
{
	char target[600], *slash;
	ssize_t n = readlink(path, target, sizeof(target) - 1);

	if (n <= 0)
		return false;
	target[n] = '\0';
	slash = strrchr(target, '/');
	return snprintf(name, size, "%s", slash ? slash + 1 : target) < (int)size;
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
		if (read_integer(hwmon, "temp1_input", &value) && value > INT32_MIN &&
		    value < INT32_MAX)
			status->temp_mc = (int32_t)value;
		if ((read_integer(hwmon, "power1_input", &value) ||
		     read_integer(hwmon, "power1_average", &value)) &&
		    value >= 0 && value / 1000 < UINT32_MAX)
			status->power_mw = (uint32_t)(value / 1000);
		if (read_integer(hwmon, "freq1_input", &value) && value >= 0 &&
		    value / 1000 < UINT32_MAX)
			status->clock_khz = (uint32_t)(value / 1000);
		break;
	}
	if (dir)
		closedir(dir);
}

static int add_node(struct txda_survey *survey, const char *sysfs, const char *name)
{
	struct txda__survey_chip chip = {.status = {
						 .power_mw = UINT32_MAX,
						 .temp_mc = INT32_MIN,
						 .clock_khz = UINT32_MAX,
						 .utilisation_permille = UINT32_MAX,
					 }};
	char device[400], path[440], text[64];
	int64_t value;
	unsigned index;

	snprintf(device, sizeof(device), "%s/class/accel/%s/device", sysfs, name);
	snprintf(path, sizeof(path), "%s/driver", device);
	if (!read_link_name(path, text, sizeof(text)) || strcmp(text, "txda"))
		return 0;
	snprintf(chip.info.name, sizeof(chip.info.name), "TX8");
	snprintf(chip.info.node, sizeof(chip.info.node), "/dev/accel/%.40s", name);
	chip.info.physical = (unsigned)strtoul(name + 5, NULL, 10);
	if (!read_link_name(device, chip.info.bus, sizeof(chip.info.bus)))
		chip.info.bus[0] = '\0';
	if (!read_line(device, "serial", chip.info.serial, sizeof(chip.info.serial)))
		chip.info.serial[0] = '\0';
	if (read_integer(device, "npu_memory_total", &value) && value >= 0)
		chip.info.mem_bytes = (uint64_t)value;
	if (read_integer(device, "npu_memory_utilization", &value) && value >= 0)
		chip.status.mem_used_bytes = (uint64_t)value;
	if (read_integer(device, "npu_busy_percent", &value) && value >= 0 && value <= 100)
		chip.status.utilisation_permille = (uint32_t)value * 10;
	read_hwmon(device, &chip.status);
	return txda__survey_add_chip(survey, &chip, &index);
}

/* ---- users: /proc/PID/fdinfo ----------------------------------------------------------------- */

/* A client of one chip, as its open file says. */
struct client {
	char pdev[32];
	uint64_t id, mem_bytes, busy_ns;
};

/* "1234 KiB", "17 ns": the number in the base unit. */
static uint64_t read_quantity(const char *s)
{
	char *end;
	uint64_t value = strtoull(s, &end, 10), factor = 1;

	if (!strcmp(end, " KiB"))
		factor = 1024;
	else if (!strcmp(end, " MiB"))
		factor = 1024 * 1024;
	return txda__mul(value, factor, &value) ? value : 0;
}

static bool read_client(int dir_fd, const char *fd_name, struct client *client)
{
	char path[64], text[4096], *save = NULL, *value;
	bool ours = false;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "fdinfo/%.20s", fd_name);
	fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return false;
	text[n] = '\0';
	memset(client, 0, sizeof(*client));
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		value = strchr(line, ':');
		if (!value)
			continue;
		*value++ = '\0';
		value += strspn(value, " \t");
		if (!strcmp(line, "drm-driver"))
			ours = !strcmp(value, "txda");
		else if (!strcmp(line, "drm-pdev"))
			snprintf(client->pdev, sizeof(client->pdev), "%s", value);
		else if (!strcmp(line, "drm-client-id"))
			client->id = strtoull(value, NULL, 10);
		else if (!strcmp(line, "drm-resident-vram"))
			client->mem_bytes += read_quantity(value);
		else if (!strncmp(line, "drm-engine-", 11) &&
			 strncmp(line, "drm-engine-capacity-", 20))
			client->busy_ns += read_quantity(value);
	}
	return ours;
}

static int add_client(struct txda_survey *survey, int pid, int dir_fd, const struct client *client)
{
	struct txda_process_info info = {.size = sizeof(info), .pid = pid};
	int fd = openat(dir_fd, "comm", O_RDONLY | O_CLOEXEC);
	ssize_t n;

	n = fd < 0 ? 0 : read(fd, info.command, sizeof(info.command) - 1);
	if (fd >= 0)
		close(fd);
	info.command[n > 0 ? n : 0] = '\0';
	for (char *s = info.command; *s; s++)
		if ((unsigned char)*s < ' ' || (unsigned char)*s >= 0x7f)
			*s = s[1] ? '?' : '\0';
	info.mem_bytes = client->mem_bytes;
	info.busy_ns = client->busy_ns;
	for (unsigned i = 0; i < survey->n_chips; i++)
		if (!strcmp(survey->chip[i].info.bus, client->pdev))
			return txda__survey_add_process(survey, i, &info);
	return 0;
}

static int survey_process(struct txda_survey *survey, const char *procfs, int pid)
{
	uint64_t seen[64];
	unsigned n_seen = 0;
	struct dirent *entry;
	char path[300];
	int dir_fd, r = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/%d", procfs, pid);
	dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir_fd < 0)
		return 0;
	snprintf(path, sizeof(path), "%s/%d/fd", procfs, pid);
	dir = opendir(path);
	while (dir && r >= 0 && (entry = readdir(dir))) {
		struct client client;
		char target[64];
		ssize_t n = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1);
		bool again = false;

		if (n <= 0)
			continue;
		target[n] = '\0';
		if (strncmp(target, "/dev/accel/", 11) ||
		    !read_client(dir_fd, entry->d_name, &client))
			continue;
		for (unsigned i = 0; i < n_seen; i++) /* a duplicate of an fd is the same client */
			again |= seen[i] == client.id;
		if (again)
			continue;
		if (n_seen < ARRAY_SIZE(seen))
			seen[n_seen++] = client.id;
		r = add_client(survey, pid, dir_fd, &client);
	}
	if (dir)
		closedir(dir);
	close(dir_fd);
	return r;
}

static int is_accel(const struct dirent *entry)
{
	unsigned number;
	int end = 0;

	return sscanf(entry->d_name, "accel%9u%n", &number, &end) == 1 && !entry->d_name[end];
}

int txda__survey_nodes(struct txda_survey *survey, const char *sysfs, const char *procfs)
{
	struct dirent **entry = NULL;
	struct dirent *process;
	char path[300];
	int n, r = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "%s/class/accel", sysfs);
	n = scandir(path, &entry, is_accel, versionsort);
	for (int i = 0; i < n; i++) {
		if (r >= 0)
			r = add_node(survey, sysfs, entry[i]->d_name);
		free(entry[i]);
	}
	free(entry);
	if (r < 0 || !survey->n_chips)
		return r; /* without chips nobody uses them: the walk through all processes is saved
			   */

	dir = opendir(procfs);
	while (dir && r >= 0 && (process = readdir(dir))) {
		char *end;
		long pid = strtol(process->d_name, &end, 10);

		if (pid > 0 && pid < INT32_MAX && !*end)
			r = survey_process(survey, procfs, (int)pid);
	}
	if (dir)
		closedir(dir);
	return r;
}
