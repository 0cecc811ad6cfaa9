// SPDX-License-Identifier: MIT
/*
 * Real chips and their users, from sysfs, hwmon and fdinfo. The node is never opened, so a hung
 * chip cannot block the survey.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "survey.h"
#include "sysfs.h"

/* The last path component of a link's target. */
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

struct found {
	struct txda__survey_chip chip;
	uint64_t card, card_index;
};

/*
 * False if it is not a node of our driver, or not available here: a container sees all chips in
 * sysfs, but in @dev only those assigned to it.
 */
static bool read_node(const char *sysfs, const char *dev, const char *name, struct found *found)
{
	struct txda_device_info *info = &found->chip.info;
	char device[400], path[440], text[64];

	memset(found, 0, sizeof(*found));
	snprintf(path, sizeof(path), "%s/accel/%s", dev, name);
	if (access(path, F_OK))
		return false;
	snprintf(device, sizeof(device), "%s/class/accel/%s/device", sysfs, name);
	snprintf(path, sizeof(path), "%s/driver", device);
	if (!read_link_name(path, text, sizeof(text)) || strcmp(text, "txda"))
		return false;
	if (!txda__sysfs_line(device, "chip_name", info->name, sizeof(info->name)) || !*info->name)
		snprintf(info->name, sizeof(info->name), "TX8");
	snprintf(info->node, sizeof(info->node), "/dev/accel/%.40s", name);
	if (!read_link_name(device, info->bus, sizeof(info->bus)))
		info->bus[0] = '\0';
	if (!txda__sysfs_line(device, "serial", info->serial, sizeof(info->serial)))
		info->serial[0] = '\0';
	if (!txda__sysfs_line(device, "fw_version", info->firmware, sizeof(info->firmware)))
		info->firmware[0] = '\0';
	snprintf(path, sizeof(path), "%s/module/txda", sysfs);
	if (!txda__sysfs_line(path, "version", info->driver, sizeof(info->driver)))
		info->driver[0] = '\0';
	txda__sysfs_unsigned(device, "npu_memory_total", 10, &info->mem_bytes);
	txda__sysfs_unsigned(device, "card", 16, &found->card);
	txda__sysfs_unsigned(device, "card_index", 10, &found->card_index);
	txda__sysfs_status(device, &found->chip.status);
	return true;
}

/* The same order as txda__nodes(), so that a chip has the same number everywhere. */
static int compare(const void *a, const void *b)
{
	const struct found *x = a, *y = b;

	if (x->card != y->card)
		return x->card < y->card ? -1 : 1;
	if (x->card_index != y->card_index)
		return x->card_index < y->card_index ? -1 : 1;
	return strcmp(x->chip.info.bus, y->chip.info.bus);
}

/* ---- users: /proc/PID/fdinfo ----------------------------------------------------------------- */

/* A client of one chip, from its open file's fdinfo. */
struct client {
	char pdev[32], name[64];
	uint64_t id, mem_bytes, busy_ns;
};

/* "1234 KiB", "17 ns": converts to the base unit. */
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
		else if (!strcmp(line, "drm-client-name"))
			snprintf(client->name, sizeof(client->name), "%s", value);
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
	memcpy(info.purpose, client->name, sizeof(info.purpose));
	for (char *s = info.purpose; *s; s++)
		if ((unsigned char)*s < ' ' || (unsigned char)*s >= 0x7f)
			*s = '?';
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

static int survey_chips(struct txda_survey *survey, const char *sysfs, const char *dev)
{
	struct dirent **entry = NULL;
	struct found *found = NULL;
	unsigned n_found = 0, index;
	char path[300];
	int n, r = 0;

	snprintf(path, sizeof(path), "%s/class/accel", sysfs);
	n = scandir(path, &entry, is_accel, versionsort);
	if (n > 0)
		found = calloc((size_t)n, sizeof(*found));
	for (int i = 0; i < n; i++) {
		if (found && read_node(sysfs, dev, entry[i]->d_name, &found[n_found]))
			n_found++;
		free(entry[i]);
	}
	free(entry);
	if (n > 0 && !found)
		return -ENOMEM;
	if (n_found)
		qsort(found, n_found, sizeof(*found), compare);
	for (unsigned i = 0; i < n_found && r >= 0; i++) {
		found[i].chip.info.physical = i;
		r = txda__survey_add_chip(survey, &found[i].chip, &index);
	}
	free(found);
	return r;
}

int txda__survey_nodes(struct txda_survey *survey, const char *sysfs, const char *dev,
		       const char *procfs)
{
	struct dirent *process;
	int r;
	DIR *dir;

	r = survey_chips(survey, sysfs, dev);
	if (r < 0 || !survey->n_chips)
		return r; /* no chips, so no users: skip the scan of all processes */

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
