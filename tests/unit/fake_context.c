// SPDX-License-Identifier: MIT
#include "fake_context.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct txda_device {
	unsigned index;
};

struct txda_group {
	unsigned tp, first;
};

static char context_place;
struct txda_context *const fake_context = (struct txda_context *)&context_place;
static struct txda_device devices[FAKE_CHIPS] = {{0}, {1}, {2}, {3}};
atomic_uint fake_groups;
uint64_t fake_chip_used[FAKE_CHIPS], fake_chip_bytes = 1 << 30;
bool fake_chip_lost[FAKE_CHIPS];
atomic_bool fake_plan_blocks, fake_plan_waits;
struct txda_model_plan fake_plan = {
	.size = sizeof(struct txda_model_plan),
	.tp = 1,
	.weight_bytes = 100 << 20,
	.scratch_bytes = 1 << 20,
	.io_bytes = 1 << 20,
	.kv_block_bytes = 1 << 16,
	.kv_blocks_at_limit = 1 << 20,
};

struct txda_context *txda_context_ref(struct txda_context *context)
{
	return context;
}

struct txda_context *txda_context_unref(struct txda_context *context)
{
	(void)context;
	return NULL;
}

const char *txda_context_backend(struct txda_context *context)
{
	(void)context;
	return "fake";
}

int txda_context_device_count(struct txda_context *context)
{
	(void)context;
	return FAKE_CHIPS;
}

int txda_device_get(struct txda_context *context, unsigned index, struct txda_device **ret_device)
{
	(void)context;
	*ret_device = &devices[index];
	return 0;
}

struct txda_device *txda_device_unref(struct txda_device *device)
{
	(void)device;
	return NULL;
}

int txda_group_new(struct txda_context *context, const struct txda_group_options *options,
		   struct txda_group **ret_group)
{
	unsigned tp = options->tp ? options->tp : 1;
	struct txda_group *group;

	unsigned first = options->devices ? options->devices[0] : options->replica * tp;

	if (context != fake_context || first + tp > FAKE_CHIPS)
		return -ENODEV;
	group = malloc(sizeof(*group));
	if (!group)
		return -ENOMEM;
	group->tp = tp;
	group->first = first;
	atomic_fetch_add(&fake_groups, 1);
	*ret_group = group;
	return 0;
}

struct txda_group *txda_group_unref(struct txda_group *group)
{
	if (group)
		atomic_fetch_sub(&fake_groups, 1);
	free(group);
	return NULL;
}

unsigned txda_group_size(struct txda_group *group)
{
	return group->tp;
}

struct txda_device *txda_group_device(struct txda_group *group, unsigned rank)
{
	return &devices[group->first + rank];
}

int txda_device_info(struct txda_device *device, struct txda_device_info *ret_info)
{
	ret_info->index = device->index;
	ret_info->mem_bytes = fake_chip_bytes;
	snprintf(ret_info->serial, sizeof(ret_info->serial), "FAKE%u", device->index);
	return 0;
}

int txda_device_status(struct txda_device *device, struct txda_device_status *ret_status)
{
	ret_status->mem_used_bytes = fake_chip_used[device->index];
	ret_status->lost = fake_chip_lost[device->index];
	return 0;
}

int txda_model_plan(struct txda_context *context, const char *path,
		    struct txda_model_plan *ret_plan)
{
	char broken[2048];

	(void)context;
	atomic_store(&fake_plan_waits, atomic_load(&fake_plan_blocks));
	while (atomic_load(&fake_plan_blocks))
		usleep(1000);
	snprintf(broken, sizeof(broken), "%s/broken", path);
	if (!access(broken, F_OK))
		return -EINVAL;
	*ret_plan = fake_plan;
	return 0;
}
