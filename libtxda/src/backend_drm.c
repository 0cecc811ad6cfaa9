// SPDX-License-Identifier: MIT
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xf86drm.h>

#include "backend_drm.h"
#include "clock.h"
#include "monitor.h"
#include "sysfs.h"
#include "txda_isa.h"

/* The shortest time over which utilisation is averaged. */
#define UTILISATION_NS 250000000ull

/* Since Linux 6.13; older versions of libdrm lack it. */
#ifndef DRM_IOCTL_SET_CLIENT_NAME
struct drm_set_client_name {
	__u64 name_len;
	__u64 name;
};
#define DRM_IOCTL_SET_CLIENT_NAME DRM_IOWR(0xD1, struct drm_set_client_name)
#endif

/* ---- access to the kernel -------------------------------------------------------------------- */

static bool real_exists(const char *node)
{
	return !access(node, F_OK);
}

static int real_open(const char *node)
{
	int fd = open(node, O_RDWR | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static int real_ioctl(int fd, unsigned long request, void *arg)
{
	return drmIoctl(fd, request, arg) < 0 ? -errno : 0;
}

const struct txda__drm_kernel txda__drm_kernel_real = {
	.nodes = txda__nodes,
	.exists = real_exists,
	.open = real_open,
	.ioctl = real_ioctl,
	.listen = txda__listener_new,
};
const struct txda__drm_kernel *txda__drm_kernel = &txda__drm_kernel_real;

int txda__drm_ioctl(struct drm_chip *chip, unsigned long request, void *arg)
{
	int r = txda__drm_kernel->ioctl(chip->fd, request, arg);
	struct drm_version version = {0};

	/*
	 * The request may concern another chip, or a chip that does not answer in the middle of its
	 * reset. On a removed chip every request fails, so ask again.
	 */
	if (r == -ENODEV &&
	    txda__drm_kernel->ioctl(chip->fd, DRM_IOCTL_VERSION, &version) == -ENODEV)
		atomic_store(&chip->lost, true);
	return r;
}

static int query_index(struct drm_chip *chip, enum drm_txda_query type, uint32_t index, void *ret,
		       uint32_t bytes)
{
	struct drm_txda_dev_query query = {
		.type = type, .index = index, .answer = txda__drm_answer(ret, bytes)};

	memset(ret, 0, bytes);
	return txda__drm_ioctl(chip, DRM_IOCTL_TXDA_DEV_QUERY, &query);
}

int txda__drm_query(struct drm_chip *chip, enum drm_txda_query type, void *ret, uint32_t bytes)
{
	return query_index(chip, type, 0, ret, bytes);
}

int txda__drm_count(void)
{
	struct txda__node *node = calloc(TXDA__MAX_CHIPS, sizeof(*node));
	int n, count = 0;

	if (!node)
		return -ENOMEM;
	n = txda__drm_kernel->nodes(node, TXDA__MAX_CHIPS);
	for (int i = 0; i < n; i++)
		count += txda__drm_kernel->exists(node[i].node);
	free(node);
	return n < 0 ? n : count;
}

/* ---- chips ----------------------------------------------------------------------------------- */

static struct drm *from(struct txda__backend *backend)
{
	return (struct drm *)backend;
}

struct drm_chip *txda__drm_chip_get(struct drm *drm, unsigned index)
{
	struct drm_chip *chip = NULL;

	pthread_mutex_lock(&drm->lock);
	if (index < drm->n_chips) {
		chip = drm->chip[index];
		txda__ref(&chip->refs);
	}
	pthread_mutex_unlock(&drm->lock);
	return chip;
}

void txda__drm_chip_put(struct drm_chip *chip)
{
	if (!txda__unref(&chip->refs))
		return;
	if (chip->fd >= 0)
		close(chip->fd);
	pthread_mutex_destroy(&chip->lock);
	free(chip);
}

/*
 * "txda-run" in fdinfo and in the driver's messages; the kernel accepts printable characters only.
 */
static void set_client_name(struct drm_chip *chip)
{
	char name[sizeof(drm_context(chip)->name)];
	struct drm_set_client_name args = {.name = (uintptr_t)name};

	snprintf(name, sizeof(name), "%s", drm_context(chip)->name);
	for (char *s = name; *s; s++)
		if (*s <= ' ' || *s > '~')
			*s = '-';
	args.name_len = strlen(name);
	txda__drm_ioctl(chip, DRM_IOCTL_SET_CLIENT_NAME, &args); /* rejected by older kernels */
}

static int check_driver(struct drm_chip *chip)
{
	char name[16] = "";
	struct drm_version version = {.name_len = sizeof(name) - 1, .name = name};
	int r = txda__drm_ioctl(chip, DRM_IOCTL_VERSION, &version);

	if (r < 0)
		return txda__fail(drm_context(chip), r, "%s: %s", chip->node.node, strerror(-r));
	if (strcmp(name, "txda") || version.version_major != DRM_TXDA_MAJOR)
		return txda__fail(drm_context(chip), -EPROTO,
				  "%s: the kernel has driver %.15s %d.%d; libtxda %s wants txda %d",
				  chip->node.node, name, version.version_major,
				  version.version_minor, txda_version(), DRM_TXDA_MAJOR);
	/*
	 * The module's version, as in the survey; a built-in driver has the version of its
	 * ioctls.
	 */
	if (!txda__sysfs_line("/sys/module/txda", "version", chip->info.driver,
			      sizeof(chip->info.driver)))
		snprintf(chip->info.driver, sizeof(chip->info.driver), "%d.%d.%d",
			 version.version_major, version.version_minor, version.version_patchlevel);
	return 0;
}

static void describe(struct drm_chip *chip, const struct drm_txda_device_info *device,
		     const struct drm_txda_memory_info *memory,
		     const struct drm_txda_firmware_info *firmware)
{
	struct txda_device_info *info = &chip->info;

	info->size = sizeof(*info);
	info->index = chip->index;
	info->physical = chip->index;
	snprintf(info->name, sizeof(info->name), "%.*s", DRM_TXDA_NAME_BYTES,
		 (const char *)device->name);
	snprintf(info->serial, sizeof(info->serial), "%.*s", DRM_TXDA_SERIAL_BYTES,
		 (const char *)device->serial);
	snprintf(info->bus, sizeof(info->bus), "%s", chip->node.bus);
	snprintf(info->node, sizeof(info->node), "%s", chip->node.node);
	txda__version_text(firmware->version, info->firmware, sizeof(info->firmware));
	info->caps = (device->caps & DRM_TXDA_CAP_CMODEL ? TXDA_CAP_CMODEL : 0) |
		     (device->caps & DRM_TXDA_CAP_PRECISE ? TXDA_CAP_PRECISE : 0) |
		     (memory->device_mappable ? TXDA_CAP_HOST_VISIBLE : 0);
	info->mem_bytes = memory->device_bytes;
	info->cores = device->cores;
}

static int read_chip(struct drm_chip *chip)
{
	struct drm_txda_firmware_info firmware;
	struct drm_txda_topology_info topology;
	struct drm_txda_device_info device;
	struct drm_txda_memory_info memory;
	int r;

	r = check_driver(chip);
	if (r < 0)
		return r;
	r = txda__drm_query(chip, DRM_TXDA_QUERY_DEVICE, &device, sizeof(device));
	if (r >= 0)
		r = txda__drm_query(chip, DRM_TXDA_QUERY_MEMORY, &memory, sizeof(memory));
	if (r >= 0)
		r = txda__drm_query(chip, DRM_TXDA_QUERY_FIRMWARE, &firmware, sizeof(firmware));
	if (r >= 0)
		r = txda__drm_query(chip, DRM_TXDA_QUERY_TOPOLOGY, &topology, sizeof(topology));
	if (r < 0)
		return txda__fail(drm_context(chip), r, "%s: %s", chip->node.node, strerror(-r));
	if (device.isa_major != TXDA_ISA_MAJOR)
		return txda__fail(drm_context(chip), -EPROTO,
				  "%s has instruction set %u.%u; libtxda %s knows %u",
				  chip->node.node, device.isa_major, device.isa_minor,
				  txda_version(), TXDA_ISA_MAJOR);
	chip->card = topology.card;
	chip->card_index = topology.card_index;
	chip->n_ports = topology.n_ports;
	describe(chip, &device, &memory, &firmware);
	set_client_name(chip);
	return 0;
}

int txda__drm_chip_open(struct drm *drm, const struct txda__node *node, unsigned index,
			struct drm_chip **ret_chip)
{
	struct drm_chip *chip = calloc(1, sizeof(*chip));
	int r;

	if (!chip)
		return txda__fail(drm->base.context, -ENOMEM, "out of memory");
	atomic_init(&chip->refs, 1);
	pthread_mutex_init(&chip->lock, NULL);
	chip->drm = drm;
	chip->index = index;
	chip->node = *node;
	chip->fd = txda__drm_kernel->open(node->node);
	if (chip->fd < 0)
		r = txda__fail(drm->base.context, chip->fd, "%s: %s%s", node->node,
			       strerror(-chip->fd),
			       chip->fd == -EACCES ? " (members of group render may use it)" : "");
	else
		r = read_chip(chip);
	if (r < 0) {
		txda__drm_chip_put(chip);
		return r;
	}
	*ret_chip = chip;
	return 0;
}

/* ---- open and close -------------------------------------------------------------------------- */

static void drm_close(struct txda__backend *backend)
{
	struct drm *drm = from(backend);

	txda__drm_events_end(drm);
	for (unsigned i = 0; i < drm->n_chips; i++)
		txda__drm_chip_put(drm->chip[i]);
	pthread_mutex_destroy(&drm->lock);
	free(drm);
}

/* A node that this process cannot open, or that disappears meanwhile, is skipped. */
static int open_chips(struct drm *drm, const struct txda__node *node, unsigned n)
{
	int first = 0, r;

	for (unsigned i = 0; i < n; i++) {
		r = txda__drm_chip_open(drm, &node[i], drm->n_chips, &drm->chip[drm->n_chips]);
		if (r >= 0)
			drm->n_chips++;
		else if (!first)
			first = r;
		if (r == -ENOMEM || r == -EMFILE || r == -ENFILE)
			return r;
	}
	return drm->n_chips ? 0 : first;
}

static int drm_open(struct txda_context *context, const char *spec,
		    struct txda__backend **ret_backend)
{
	struct txda__node *node = calloc(TXDA__MAX_CHIPS, sizeof(*node));
	struct drm *drm = calloc(1, sizeof(*drm));
	int n, r;

	(void)spec;
	if (!node || !drm) {
		free(node);
		free(drm);
		return txda__fail(context, -ENOMEM, "out of memory");
	}
	drm->base.ops = &txda__backend_drm;
	drm->base.context = context;
	pthread_mutex_init(&drm->lock, NULL);
	n = txda__drm_kernel->nodes(node, TXDA__MAX_CHIPS);
	if (n < 0)
		r = txda__fail(context, n, "looking for TX8 nodes: %s", strerror(-n));
	else
		r = open_chips(drm, node, (unsigned)n);
	free(node);
	if (r < 0) {
		drm_close(&drm->base);
		return r;
	}
	*ret_backend = &drm->base;
	return 0;
}

/* ---- chip information ------------------------------------------------------------------------ */

static unsigned drm_chips(struct txda__backend *backend)
{
	struct drm *drm = from(backend);
	unsigned n;

	pthread_mutex_lock(&drm->lock);
	n = drm->n_chips;
	pthread_mutex_unlock(&drm->lock);
	return n;
}

static int no_chip(struct txda__backend *backend, unsigned index)
{
	return txda__fail(backend->context, -ENODEV, "no chip %u", index);
}

static int drm_info(struct txda__backend *backend, unsigned index, struct txda_device_info *info)
{
	struct drm_chip *chip = txda__drm_chip_get(from(backend), index);

	if (!chip)
		return no_chip(backend, index);
	*info = chip->info;
	txda__drm_chip_put(chip);
	return 0;
}

/* In permille, since the last call that was at least UTILISATION_NS ago; UINT32_MAX: none was. */
static uint32_t utilisation(struct drm_chip *chip, uint64_t busy_ns)
{
	uint64_t now = clock_ns(), since, worked;
	uint32_t permille;

	pthread_mutex_lock(&chip->lock);
	since = now - chip->seen.time_ns;
	if (!chip->seen.time_ns) {
		chip->seen.permille = UINT32_MAX;
	} else if (since >= UTILISATION_NS) {
		/* The counter restarts when the driver does. */
		worked = busy_ns > chip->seen.busy_ns ? busy_ns - chip->seen.busy_ns : 0;
		chip->seen.permille = txda__permille(worked, since);
	}
	if (since >= UTILISATION_NS) {
		chip->seen.time_ns = now;
		chip->seen.busy_ns = busy_ns;
	}
	permille = chip->seen.permille;
	pthread_mutex_unlock(&chip->lock);
	return permille;
}

static uint32_t max_u32(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

/* Counters only increase, also while the chip is down, or lost, and its files cannot be read. */
static void keep_counters(struct drm_chip *chip, struct txda_device_status *status)
{
	pthread_mutex_lock(&chip->lock);
	if (status->busy_ns > chip->counted.busy_ns)
		chip->counted.busy_ns = status->busy_ns;
	chip->counted.ecc_corrected = max_u32(chip->counted.ecc_corrected, status->ecc_corrected);
	chip->counted.ecc_uncorrected =
		max_u32(chip->counted.ecc_uncorrected, status->ecc_uncorrected);
	chip->counted.faults = max_u32(chip->counted.faults, status->faults);
	status->busy_ns = chip->counted.busy_ns;
	status->ecc_corrected = chip->counted.ecc_corrected;
	status->ecc_uncorrected = chip->counted.ecc_uncorrected;
	status->faults = chip->counted.faults;
	pthread_mutex_unlock(&chip->lock);
}

/* For a removed chip the values other than counters are unknown. */
static int drm_status(struct txda__backend *backend, unsigned index,
		      struct txda_device_status *status)
{
	struct drm_chip *chip = txda__drm_chip_get(from(backend), index);
	struct drm_txda_memory_info memory;
	struct drm_txda_reset_info reset;
	int r = -ENODEV;

	if (!chip)
		return no_chip(backend, index);
	if (txda__sysfs_status(chip->node.device, status))
		status->utilisation_permille = utilisation(chip, status->busy_ns);
	if (!atomic_load(&chip->lost))
		r = txda__drm_query(chip, DRM_TXDA_QUERY_MEMORY, &memory, sizeof(memory));
	if (r >= 0)
		status->mem_used_bytes = memory.device_used;
	status->lost = r == -ENODEV || (r >= 0 && status->lost);
	if (!status->lost &&
	    txda__drm_query(chip, DRM_TXDA_QUERY_RESET, &reset, sizeof(reset)) >= 0)
		status->faults = (uint32_t)reset.queue_resets;
	keep_counters(chip, status);
	txda__drm_chip_put(chip);
	return 0;
}

/* Whether one of the ports of @chip is connected to @other now. */
static bool linked(struct drm_chip *chip, const struct drm_chip *other)
{
	struct drm_txda_port_info port;

	for (uint32_t i = 0; i < chip->n_ports; i++) {
		if (query_index(chip, DRM_TXDA_QUERY_PORT, i, &port, sizeof(port)) < 0)
			return false;
		if (port.state == DRM_TXDA_PORT_UP && port.peer_card == other->card &&
		    port.peer_index == other->card_index)
			return true;
	}
	return false;
}

/* The chip at that place, UINT32_MAX if it is not one of this context's. */
static unsigned find_peer(struct drm *drm, uint64_t card, unsigned index)
{
	unsigned found = UINT32_MAX;

	pthread_mutex_lock(&drm->lock);
	for (unsigned i = 0; i < drm->n_chips; i++)
		if (drm->chip[i]->card == card && drm->chip[i]->card_index == index)
			found = i;
	pthread_mutex_unlock(&drm->lock);
	return found;
}

static int drm_link(struct txda__backend *backend, unsigned index, unsigned port,
		    struct txda_link_info *ret_info)
{
	struct drm_chip *chip = txda__drm_chip_get(from(backend), index);
	struct drm_txda_port_info at;
	int r;

	if (!chip)
		return no_chip(backend, index);
	r = query_index(chip, DRM_TXDA_QUERY_PORT, port, &at, sizeof(at));
	txda__drm_chip_put(chip);
	if (r == -ENOENT)
		return txda__fail(backend->context, r, "chip %u has no port %u", index, port);
	if (r < 0)
		return txda__fail(backend->context, r, "chip %u: %s", index, strerror(-r));
	ret_info->state = at.state == DRM_TXDA_PORT_UP	       ? TXDA_LINK_UP
			  : at.state == DRM_TXDA_PORT_TRAINING ? TXDA_LINK_TRAINING
							       : TXDA_LINK_DOWN;
	ret_info->speed_mbps = at.speed_mbps;
	ret_info->device = find_peer(from(backend), at.peer_card, at.peer_index);
	ret_info->port = at.peer_port;
	return 0;
}

static unsigned drm_distance(struct txda__backend *backend, unsigned a, unsigned b)
{
	struct drm_chip *x = txda__drm_chip_get(from(backend), a);
	struct drm_chip *y = txda__drm_chip_get(from(backend), b);
	unsigned hops = a == b ? 0 : 2;

	if (x && y && x != y && (x->card == y->card || linked(x, y)))
		hops = 1;
	if (x)
		txda__drm_chip_put(x);
	if (y)
		txda__drm_chip_put(y);
	return hops;
}

/* ---- address spaces -------------------------------------------------------------------------- */

static int vm_fail(struct drm_chip *chip, int error, const char *what)
{
	return txda__fail(drm_context(chip), error, "chip %u: %s: %s", chip->index, what,
			  error == -ENOSPC ? "no address space is left" : txda__drm_reason(error));
}

static int drm_vm_new(struct txda__backend *backend, unsigned index, struct txda__vm **ret_vm,
		      uint64_t *ret_end)
{
	struct drm_chip *chip = txda__drm_chip_get(from(backend), index);
	struct drm_txda_vm_create args = {0};
	struct txda__vm *vm;
	int r;

	if (!chip)
		return no_chip(backend, index);
	vm = calloc(1, sizeof(*vm));
	if (!vm) {
		r = txda__fail(backend->context, -ENOMEM, "out of memory");
		goto err_put;
	}
	r = txda__drm_ioctl(chip, DRM_IOCTL_TXDA_VM_CREATE, &args);
	if (r < 0) {
		vm_fail(chip, r, "making an address space");
		goto err_free;
	}
	vm->chip = chip;
	vm->id = args.id;
	if (args.va_range < 4 * DRM_COPIER_VA_BYTES || args.va_range % TXDA__PAGE) {
		struct drm_txda_vm_destroy destroy = {.id = args.id};

		txda__drm_ioctl(chip, DRM_IOCTL_TXDA_VM_DESTROY, &destroy);
		r = txda__fail(backend->context, -EPROTO,
			       "chip %u: an address space of 0x%llx bytes", index,
			       (unsigned long long)args.va_range);
		goto err_free;
	}
	vm->end = args.va_range - DRM_COPIER_VA_BYTES;
	txda__drm_copier_init(&vm->copier);
	*ret_vm = vm;
	*ret_end = vm->end;
	return 0;

err_free:
	free(vm);
err_put:
	txda__drm_chip_put(chip);
	return r;
}

static bool drm_vm_lost(struct txda__vm *vm)
{
	struct drm_txda_vm_get_state args = {.id = vm->id};
	int r = txda__drm_ioctl(vm->chip, DRM_IOCTL_TXDA_VM_GET_STATE, &args);

	return atomic_load(&vm->chip->lost) || (r >= 0 && args.state != DRM_TXDA_VM_USABLE);
}

/*
 * A reset of the chip may have cleared its memory, and the driver behind a new node does not know
 * the old contexts.
 */
static int drm_vm_memory_id(struct txda__vm *vm, uint64_t *ret_id)
{
	struct drm_txda_reset_info reset;
	int r = txda__drm_query(vm->chip, DRM_TXDA_QUERY_RESET, &reset, sizeof(reset));

	if (r < 0)
		return txda__fail(drm_context(vm->chip), r,
				  "reading the reset count of chip %u: %s", vm->chip->index,
				  strerror(-r));
	*ret_id = vm->chip->node.incarnation * 0x9e3779b97f4a7c15ull + reset.chip_resets;
	return 0;
}

static void drm_vm_free(struct txda__vm *vm)
{
	struct drm_txda_vm_destroy args = {.id = vm->id};

	txda__drm_copier_fini(vm);
	txda__drm_ioctl(vm->chip, DRM_IOCTL_TXDA_VM_DESTROY, &args);
	txda__drm_chip_put(vm->chip);
	free(vm);
}

static const char *join_error(int r)
{
	switch (r) {
	case -EXDEV: return "two of them are not linked";
	case -EBUSY:
		return "one of them has a compute queue that takes turns because no other was "
		       "left, or work in flight with a driver that takes no group then";
	default: return strerror(-r);
	}
}

static int drm_vm_join(struct txda__vm *const *vm, unsigned size, unsigned slot)
{
	struct drm_txda_member member[DRM_TXDA_MAX_GROUP];
	struct drm_txda_vm_set_group args = {
		.vm_id = vm[0]->id,
		.slot = slot,
		.members = {.stride = sizeof(member[0]), .count = size, .array = (uintptr_t)member},
	};
	int r;

	for (unsigned i = 0; i < size; i++)
		member[i] = (struct drm_txda_member){vm[i]->chip->fd, vm[i]->id};
	r = txda__drm_ioctl(vm[0]->chip, DRM_IOCTL_TXDA_VM_SET_GROUP, &args);
	if (r < 0)
		return txda__fail(drm_context(vm[0]->chip), r, "a group of %u chips: %s", size,
				  join_error(r));
	return 0;
}

static int drm_vm_leave(struct txda__vm *vm, unsigned slot)
{
	struct drm_txda_vm_set_group args = {.vm_id = vm->id, .slot = slot};

	args.members.stride = sizeof(struct drm_txda_member);
	return txda__drm_ioctl(vm->chip, DRM_IOCTL_TXDA_VM_SET_GROUP, &args);
}

const struct txda__backend_ops txda__backend_drm = {
	.name = "drm",
	.open = drm_open,
	.close = drm_close,
	.chips = drm_chips,
	.info = drm_info,
	.status = drm_status,
	.distance = drm_distance,
	.link = drm_link,
	.vm_new = drm_vm_new,
	.vm_free = drm_vm_free,
	.vm_lost = drm_vm_lost,
	.vm_memory_id = drm_vm_memory_id,
	.vm_join = drm_vm_join,
	.vm_leave = drm_vm_leave,
	.mem_new = txda__drm_mem_new,
	.mem_import = txda__drm_mem_import,
	.mem_export = txda__drm_mem_export,
	.mem_freeze = txda__drm_mem_freeze,
	.mem_free = txda__drm_mem_free,
	.mem_bind = txda__drm_mem_bind,
	.mem_unbind = txda__drm_mem_unbind,
	.mem_advise = txda__drm_mem_advise,
	.mem_map = txda__drm_mem_map,
	.mem_write = txda__drm_mem_write,
	.mem_read = txda__drm_mem_read,
	.mem_load = txda__drm_mem_load,
	.queue_new = txda__drm_queue_new,
	.queue_free = txda__drm_queue_free,
	.queue_stop = txda__drm_queue_stop,
	.queue_submit = txda__drm_queue_submit,
	.queue_wait = txda__drm_queue_wait,
	.queue_arm = txda__drm_queue_arm,
	.queue_fault = txda__drm_queue_fault,
	.events_fd = txda__drm_events_fd,
	.take_events = txda__drm_events,
};
