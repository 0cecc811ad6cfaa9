// SPDX-License-Identifier: MIT
#include <string.h>

#include "context.h"
#include "device.h"
#include "monitor.h"
#include "space.h"

void txda__device_init(struct txda_device *device, struct txda_context *context, unsigned index,
		       unsigned physical)
{
	memset(device, 0, sizeof(*device));
	device->context = context;
	device->index = index;
	device->physical = physical;
	pthread_mutex_init(&device->lock, NULL);
}

void txda__device_fini(struct txda_device *device)
{
	txda__space_put(device->space);
	if (!txda__inherited(device->context))
		pthread_mutex_destroy(&device->lock);
}

int txda_context_device_count(struct txda_context *context)
{
	return txda__forked(context) ? -EPERM : (int)context->n_devices;
}

int txda_device_get(struct txda_context *context, unsigned index, struct txda_device **ret_device)
{
	if (txda__forked(context))
		return -EPERM;
	if (index >= context->n_devices)
		return txda__fail(context, -ENODEV, "chip %u does not exist; this process sees %u",
				  index, context->n_devices);
	*ret_device = txda_device_ref(&context->device[index]);
	return 0;
}

struct txda_device *txda_device_ref(struct txda_device *device)
{
	if (device)
		txda_context_ref(device->context);
	return device;
}

struct txda_device *txda_device_unref(struct txda_device *device)
{
	if (device)
		txda_context_unref(device->context);
	return NULL;
}

int txda_device_info(struct txda_device *device, struct txda_device_info *ret_info)
{
	struct txda_device_info info = {0};
	int r;

	if (txda__forked(device->context))
		return -EPERM;
	r = device->context->backend->ops->info(device->context->backend, device->physical, &info);
	if (r < 0)
		return r;
	info.index = device->index;
	info.physical = device->physical;
	return txda__copy_out(device->context, ret_info, &info, sizeof(info), "txda_device_info");
}

int txda_device_status(struct txda_device *device, struct txda_device_status *ret_status)
{
	struct txda_device_status status = {0};
	int r;

	if (txda__forked(device->context))
		return -EPERM;
	r = device->context->backend->ops->status(device->context->backend, device->physical,
						  &status);
	if (r < 0)
		return r;
	if (device->context->backend->ops->simulated)
		status.utilisation_permille =
			txda__monitor_utilisation(&device->context->monitor, device->index);
	return txda__copy_out(device->context, ret_status, &status, sizeof(status),
			      "txda_device_status");
}

int txda_device_link(struct txda_device *device, unsigned port, struct txda_link_info *ret_info)
{
	const struct txda__backend_ops *ops = device->context->backend->ops;
	struct txda_link_info info = {.device = UINT32_MAX};
	int r;

	if (txda__forked(device->context))
		return -EPERM;
	r = ops->link(device->context->backend, device->physical, port, &info);
	if (r < 0)
		return r;
	if (info.device != UINT32_MAX)
		info.device = txda__context_find(device->context, info.device);
	return txda__copy_out(device->context, ret_info, &info, sizeof(info), "txda_link_info");
}

int txda_device_distance(struct txda_device *a, struct txda_device *b)
{
	const struct txda__backend *backend = a->context->backend;

	if (txda__forked(a->context))
		return -EPERM;
	if (a->context != b->context)
		return txda__fail(a->context, -EXDEV, "the chips belong to two contexts");
	return (int)backend->ops->distance(a->context->backend, a->physical, b->physical);
}
