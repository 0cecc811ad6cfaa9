// SPDX-License-Identifier: GPL-2.0
#include "query.h"

#include <linux/capability.h>
#include <linux/ktime.h>
#include <linux/string.h>
#include <drm/drm_drv.h>
#include <drm/drm_file.h>

#include "array.h"
#include "device.h"
#include "file.h"
#include "gem.h"

/* Union of all answers; each is small enough for the stack. */
union txda_answer {
	struct drm_txda_device_info device;
	struct drm_txda_memory_info memory;
	struct drm_txda_queues_info queues;
	struct drm_txda_firmware_info firmware;
	struct drm_txda_topology_info topology;
	struct drm_txda_timestamp_info timestamp;
	struct drm_txda_reset_info reset;
	struct drm_txda_port_info port;
};

static void txda_query_topology(struct txda_device *tdev, struct drm_txda_topology_info *info)
{
	info->card = tdev->card;
	info->card_index = tdev->card_index;
	info->card_chips = tdev->card_chips;
	info->numa_node = dev_to_node(&tdev->pdev->dev);
	info->n_ports = tdev->n_ports;
}

static void txda_query_port(struct txda_device *tdev, u32 port, struct drm_txda_port_info *info)
{
	u32 reg = TXDA_REG_PORT(port);

	info->state = txda_device_port_state(tdev, port);
	info->speed_mbps = txda_read(tdev, reg + TXDA_PORT_SPEED_MBPS);
	info->peer_card = txda_read_pair(tdev, reg + TXDA_PORT_PEER_CARD_LO);
	info->peer_index = txda_read(tdev, reg + TXDA_PORT_PEER_INDEX);
	info->peer_port = txda_read(tdev, reg + TXDA_PORT_PEER_PORT);
}

static void txda_query_memory(struct txda_device *tdev, struct drm_file *file,
			      struct drm_txda_memory_info *info)
{
	struct drm_memory_stats device = {}, host = {};

	txda_gem_stats(file, &device, &host);
	info->device_bytes = tdev->dram_bytes;
	info->device_used = atomic64_read(&tdev->vram.used);
	info->device_mappable = tdev->dram_mappable;
	info->host_used = atomic64_read(&tdev->host_used);
	info->client_device_used = device.shared + device.private;
	info->client_host_used = host.shared + host.private;
}

static void txda_query_queues(struct txda_device *tdev, struct drm_txda_queues_info *info)
{
	info->compute = txda_hwqs_own(tdev, TXDA_CLASS_COMPUTE);
	/* One is the kernel's. */
	info->copy = txda_hwqs_own(tdev, TXDA_CLASS_COPY) - 1;
	info->compute_shared = txda_hwqs_shared(tdev, TXDA_CLASS_COMPUTE);
	info->copy_shared = txda_hwqs_shared(tdev, TXDA_CLASS_COPY);
	info->max_per_client = TXDA_MAX_CLIENT_QUEUES;
	info->priorities = BIT(DRM_TXDA_PRIORITY_LOW) | BIT(DRM_TXDA_PRIORITY_NORMAL);
	if (capable(CAP_SYS_NICE))
		info->priorities |= BIT(DRM_TXDA_PRIORITY_HIGH);
	info->default_timeout_ms = READ_ONCE(tdev->queues.timeout_ms);
	info->max_timeout_ms = TXDA_MAX_TIMEOUT_MS;
}

static void txda_query_timestamp(struct txda_device *tdev, struct drm_txda_timestamp_info *info)
{
	info->host_before_ns = ktime_get_ns();
	info->device_ns = txda_read_pair(tdev, TXDA_REG_TIME_LO);
	info->host_after_ns = ktime_get_ns();
}

/* Fills @answer and returns its size, or -EINVAL for an unknown type. */
static int txda_query(struct txda_device *tdev, struct drm_file *file,
		      const struct drm_txda_dev_query *args, union txda_answer *answer)
{
	if (args->index && args->type != DRM_TXDA_QUERY_PORT)
		return -EINVAL;
	switch (args->type) {
	case DRM_TXDA_QUERY_DEVICE:
		answer->device = tdev->info;
		return sizeof(answer->device);
	case DRM_TXDA_QUERY_MEMORY:
		txda_query_memory(tdev, file, &answer->memory);
		return sizeof(answer->memory);
	case DRM_TXDA_QUERY_QUEUES:
		txda_query_queues(tdev, &answer->queues);
		return sizeof(answer->queues);
	case DRM_TXDA_QUERY_FIRMWARE:
		answer->firmware.state = txda_device_firmware_state(tdev);
		answer->firmware.version = txda_read(tdev, TXDA_REG_FW_VERSION);
		return sizeof(answer->firmware);
	case DRM_TXDA_QUERY_TOPOLOGY:
		txda_query_topology(tdev, &answer->topology);
		return sizeof(answer->topology);
	case DRM_TXDA_QUERY_TIMESTAMP:
		txda_query_timestamp(tdev, &answer->timestamp);
		return sizeof(answer->timestamp);
	case DRM_TXDA_QUERY_RESET:
		answer->reset.chip_resets = atomic64_read(&tdev->reset.chip_resets);
		answer->reset.queue_resets = atomic64_read(&tdev->queues.resets);
		return sizeof(answer->reset);
	case DRM_TXDA_QUERY_PORT:
		if (args->index >= tdev->n_ports)
			return -ENOENT;
		txda_query_port(tdev, args->index, &answer->port);
		return sizeof(answer->port);
	default:
		return -EINVAL;
	}
}

/* -EAGAIN: a function reset is in progress, or a chip reset happened during the query. */
static int txda_query_once(struct txda_device *tdev, struct drm_file *file,
			   const struct drm_txda_dev_query *args, union txda_answer *answer)
{
	u64 resets = atomic64_read(&tdev->reset.chip_resets);
	int bytes, idx, err;
	bool alive;

	err = txda_bars_enter(tdev, &idx);
	if (err)
		return err;
	bytes = txda_query(tdev, file, args, answer);
	alive = txda_device_alive(tdev);
	txda_bars_exit(tdev, idx);

	if (bytes < 0)
		return bytes;
	if (resets != atomic64_read(&tdev->reset.chip_resets))
		return -EAGAIN;
	return alive ? bytes : -ENODEV;
}

int txda_ioctl_dev_query(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct txda_device *tdev = to_txda(drm);
	struct drm_txda_dev_query *args = data;
	union txda_answer answer;
	int bytes, err;

	err = txda_answer_check(&args->answer);
	if (err)
		return err;

	for (;;) {
		/* Uses memset(): an initialiser may leave the tail of the union undefined. */
		memset(&answer, 0, sizeof(answer));
		bytes = txda_query_once(tdev, file, args, &answer);
		if (bytes >= 0)
			break;
		if (bytes != -EAGAIN)
			return bytes;
		err = txda_reset_wait(tdev);
		if (err)
			return err;
	}

	return txda_answer_put(&args->answer, &answer, bytes);
}
