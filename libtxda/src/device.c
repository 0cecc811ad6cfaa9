// SPDX-License-Identifier: MIT
#include <string.h>

#include "context.h"

/* The first 2 MiB stay free, so that null pointers and small offsets from them fault. */
#define VA_START (2ull << 20)
#define VA_END	 (1ull << 40)

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
	if (device->vm) {
		device->context->backend->ops->vm_free(device->vm);
		txda__vas_free(&device->vas);
	}
	pthread_mutex_destroy(&device->lock);
}

static int make_vm(struct txda_device *device)
{
	const struct txda__backend_ops *ops = device->context->backend->ops;
	struct txda__vm *vm;
	uint64_t end;
	int r;

	r = ops->vm_new(device->context->backend, device->physical, &vm, &end);
	if (r < 0)
		return r;
	if (end > VA_END)
		end = VA_END;
	r = txda__vas_init(&device->vas, VA_START, end - VA_START);
	if (r < 0) {
		ops->vm_free(vm);
		return txda__fail(device->context, r, "out of memory");
	}
	device->vm = vm;
	return 0;
}

int txda__device_vm(struct txda_device *device, struct txda__vm **ret_vm)
{
	int r = 0;

	pthread_mutex_lock(&device->lock);
	if (!device->vm)
		r = make_vm(device);
	if (r >= 0) {
		device->users++;
		*ret_vm = device->vm;
	}
	pthread_mutex_unlock(&device->lock);
	return r;
}

void txda__device_put(struct txda_device *device)
{
	pthread_mutex_lock(&device->lock);
	device->users--;
	pthread_mutex_unlock(&device->lock);
}

bool txda__device_vacate(struct txda_device *device)
{
	bool vacant;

	pthread_mutex_lock(&device->lock);
	/* Whatever is on a chip has an address there. */
	vacant = !device->vm || (!device->vas.n_taken && !device->users);
	if (vacant && device->vm) {
		device->context->backend->ops->vm_free(device->vm);
		txda__vas_free(&device->vas);
		device->vm = NULL;
		device->group_slots = 0;
	}
	pthread_mutex_unlock(&device->lock);
	return vacant;
}

/* A slot that none of the chips uses; their locks are held. */
static int find_slot(struct txda_device *const *device, unsigned n, unsigned *ret_slot)
{
	unsigned taken = 0;

	for (unsigned i = 0; i < n; i++)
		taken |= device[i]->group_slots;
	for (unsigned slot = 0; slot < TXDA__GROUP_SLOTS; slot++)
		if (!(taken & (1u << slot))) {
			*ret_slot = slot;
			return 0;
		}
	return txda__fail(device[0]->context, -EBUSY,
			  "the %u chips run %u models that span chips; no more fit", n,
			  TXDA__GROUP_SLOTS);
}

int txda__devices_join(struct txda_device *const *device, unsigned n, unsigned *ret_slot)
{
	struct txda_context *context = device[0]->context;
	struct txda__vm *vm[TXDA_MAX_CHIPS_PER_GROUP];
	bool member[TXDA__MAX_CHIPS] = {false};
	unsigned slot, held = 0;
	int r = 0;

	while (held < n && r >= 0) {
		r = txda__device_vm(device[held], &vm[held]);
		if (r >= 0)
			member[device[held++]->index] = true;
	}
	if (r < 0)
		goto out_put;
	/* In the order of the chips, whatever their ranks, so that two groups cannot lock up. */
	for (unsigned i = 0; i < TXDA__MAX_CHIPS; i++)
		if (member[i])
			pthread_mutex_lock(&context->device[i].lock);
	r = find_slot(device, n, &slot);
	if (r >= 0)
		r = context->backend->ops->vm_join(vm, n, slot);
	for (unsigned i = 0; i < n && r >= 0; i++)
		device[i]->group_slots |= 1u << slot;
	for (unsigned i = 0; i < TXDA__MAX_CHIPS; i++)
		if (member[i])
			pthread_mutex_unlock(&context->device[i].lock);
	if (r >= 0)
		*ret_slot = slot;
out_put:
	while (held)
		txda__device_put(device[--held]);
	return r;
}

void txda__device_leave(struct txda_device *device, unsigned slot)
{
	pthread_mutex_lock(&device->lock);
	device->context->backend->ops->vm_leave(device->vm, slot);
	device->group_slots &= ~(1u << slot);
	pthread_mutex_unlock(&device->lock);
}

int txda_context_device_count(struct txda_context *context)
{
	return (int)context->n_devices;
}

int txda_device_get(struct txda_context *context, unsigned index, struct txda_device **ret_device)
{
	if (index >= context->n_devices)
		return txda__fail(context, -ENODEV, "no chip %u; this process sees %u", index,
				  context->n_devices);
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

	if (a->context != b->context)
		return txda__fail(a->context, -EXDEV, "the chips belong to two contexts");
	return (int)backend->ops->distance(a->context->backend, a->physical, b->physical);
}
