// SPDX-License-Identifier: MIT
/*
 * node_info NODE - what the driver says of the chip behind an accel node, "KEY VALUE" a line,
 * through nothing but ioctls.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <xf86drm.h>
#include "drm/txda_drm.h"

static int query(int fd, uint32_t type, void *answer, uint32_t bytes)
{
	struct drm_txda_dev_query arg = {
		.type = type,
		.answer = {.size = bytes, .pointer = (uintptr_t)answer},
	};

	return drmIoctl(fd, DRM_IOCTL_TXDA_DEV_QUERY, &arg) ? -errno : 0;
}

int main(int argc, char **argv)
{
	struct drm_txda_device_info device = {0};
	struct drm_txda_memory_info memory = {0};
	struct drm_txda_queues_info queues = {0};
	struct drm_txda_topology_info topology = {0};
	struct drm_txda_firmware_info firmware = {0};
	drmVersionPtr version;
	int fd, err;

	if (argc != 2) {
		fprintf(stderr, "usage: node_info NODE\n");
		return 2;
	}
	fd = open(argv[1], O_RDWR | O_CLOEXEC);
	if (fd < 0) {
		fprintf(stderr, "%s: %s\n", argv[1], strerror(errno));
		return 1;
	}
	version = drmGetVersion(fd);
	if (!version) {
		fprintf(stderr, "%s: no version: %s\n", argv[1], strerror(errno));
		return 1;
	}
	printf("driver %s\nversion %d.%d\n", version->name, version->version_major,
	       version->version_minor);
	drmFreeVersion(version);

	err = query(fd, DRM_TXDA_QUERY_DEVICE, &device, sizeof(device));
	if (!err)
		err = query(fd, DRM_TXDA_QUERY_MEMORY, &memory, sizeof(memory));
	if (!err)
		err = query(fd, DRM_TXDA_QUERY_QUEUES, &queues, sizeof(queues));
	if (!err)
		err = query(fd, DRM_TXDA_QUERY_TOPOLOGY, &topology, sizeof(topology));
	if (!err)
		err = query(fd, DRM_TXDA_QUERY_FIRMWARE, &firmware, sizeof(firmware));
	if (err) {
		fprintf(stderr, "%s: DEV_QUERY: %s\n", argv[1], strerror(-err));
		return 1;
	}
	printf("name %.32s\nserial %.16s\nfamily %u\ncores %u\n", (const char *)device.name,
	       (const char *)device.serial, device.family, device.cores);
	printf("device_bytes %llu\ncompute %u\ncopy %u\n", (unsigned long long)memory.device_bytes,
	       queues.compute, queues.copy);
	printf("card %llu\ncard_index %u\ncard_chips %u\nfirmware %u\n",
	       (unsigned long long)topology.card, topology.card_index, topology.card_chips,
	       firmware.state);
	close(fd);
	return 0;
}
