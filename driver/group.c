// SPDX-License-Identifier: GPL-2.0
#include "group.h"

#include <linux/err.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/timekeeping.h>
#include <drm/drm_drv.h>

#include "array.h"
#include "compat/slab.h"
#include "device.h"
#include "file.h"
#include "vm.h"

/* In ROUTES: the value for a member's own entry. */
#define TXDA_GROUP_SELF 15u

/**
 * struct txda_group - Address spaces of several chips that run collectives together.
 */
struct txda_group {
	/** @id: Its id on the chips; unique among all groups of the machine. */
	u64 id;

	/** @slot: Its slot number in each of the address spaces. */
	u32 slot;

	/** @size: Members. */
	u32 size;

	/** @vm: By rank. A member leaves the group before it is freed. */
	struct txda_vm *vm[DRM_TXDA_MAX_GROUP];

	/**
	 * @routes: By rank: its ports to the other members, in the format of the chip's
	 * register.
	 */
	u32 routes[DRM_TXDA_MAX_GROUP];
};

/* Protects all groups, all address spaces' @groups, and the registers of their slots. */
static DEFINE_MUTEX(txda_groups_lock);

/*
 * Ids start from the time, so that they also differ from those that an earlier load of this module
 * assigned and that a chip might still have in a register.
 */
static u64 txda_group_next_id(void)
{
	static u64 last;

	lockdep_assert_held(&txda_groups_lock);
	last = max(last + 1, ktime_get_boottime_ns());
	return last;
}

/* ---- Slots on the chips --------------------------------------------------------------------- */

static u32 txda_group_reg(const struct txda_vm *vm, u32 slot, u32 reg)
{
	return TXDA_REG_VM(vm->pt.vmid) + TXDA_VM_GROUP(slot) + reg;
}

static void txda_group_write_regs(struct txda_vm *vm, u32 slot, u64 id, u32 rank_size, u32 routes)
{
	struct txda_device *tdev = vm->tdev;

	if (id) {
		txda_write(tdev, txda_group_reg(vm, slot, TXDA_GROUP_RANK_SIZE), rank_size);
		txda_write(tdev, txda_group_reg(vm, slot, TXDA_GROUP_ROUTES), routes);
	}
	txda_write_pair(tdev, txda_group_reg(vm, slot, TXDA_GROUP_ID_LO), id);
}

/*
 * Chips that are gone or down are skipped; a chip that is down is written when it comes up again
 * (@up names that chip).
 */
static void txda_group_write_slot(struct txda_vm *vm, u32 slot, u64 id, u32 rank_size, u32 routes,
				  const struct txda_device *up)
{
	struct txda_device *tdev = vm->tdev;
	int idx;

	lockdep_assert_held(&txda_groups_lock);
	if (tdev == up) {
		txda_group_write_regs(vm, slot, id, rank_size, routes);
	} else if (txda_bars_try_enter(tdev, &idx)) {
		txda_group_write_regs(vm, slot, id, rank_size, routes);
		txda_bars_try_exit(tdev, idx);
	}
}

static void txda_group_clear(struct txda_group *group, const struct txda_device *up)
{
	u32 rank;

	for (rank = 0; rank < group->size; rank++)
		txda_group_write_slot(group->vm[rank], group->slot, 0, 0, 0, up);
}

static void txda_group_write(struct txda_group *group, const struct txda_device *up)
{
	u32 rank;

	group->id = txda_group_next_id();
	for (rank = 0; rank < group->size; rank++)
		txda_group_write_slot(group->vm[rank], group->slot, group->id,
				      group->size << 8 | rank, group->routes[rank], up);
}

/* ---- Making and dissolving ------------------------------------------------------------------ */

static void txda_group_dissolve(struct txda_group *group)
{
	u32 rank;

	txda_group_clear(group, NULL);
	for (rank = 0; rank < group->size; rank++)
		group->vm[rank]->groups[group->slot] = NULL;
	kfree(group);
}

/* A job does not say which slots it uses: any job of a member may use the group. */
static bool txda_group_is_busy(const struct txda_group *group)
{
	u32 rank;

	for (rank = 0; rank < group->size; rank++) {
		if (atomic_read(&group->vm[rank]->jobs))
			return true;
	}
	return false;
}

static void txda_groups_leave_locked(struct txda_vm *vm)
{
	u32 slot;

	for (slot = 0; slot < DRM_TXDA_GROUP_SLOTS; slot++) {
		if (vm->groups[slot])
			txda_group_dissolve(vm->groups[slot]);
	}
}

void txda_groups_leave(struct txda_vm *vm)
{
	mutex_lock(&txda_groups_lock);
	vm->groups_over = true;
	txda_groups_leave_locked(vm);
	mutex_unlock(&txda_groups_lock);
}

void txda_groups_leave_all(struct txda_device *tdev)
{
	struct txda_vm *vm;

	mutex_lock(&txda_groups_lock);
	mutex_lock(&tdev->vms_lock);
	list_for_each_entry(vm, &tdev->vms, link)
		txda_groups_leave_locked(vm);
	mutex_unlock(&tdev->vms_lock);
	mutex_unlock(&txda_groups_lock);
}

int txda_groups_refuse(struct txda_vm *vm)
{
	int err = 0;
	u32 slot;

	mutex_lock(&txda_groups_lock);
	for (slot = 0; slot < DRM_TXDA_GROUP_SLOTS; slot++) {
		if (vm->groups[slot])
			err = -EBUSY;
	}
	if (!err)
		vm->groups_refused++;
	mutex_unlock(&txda_groups_lock);
	return err;
}

void txda_groups_allow(struct txda_vm *vm)
{
	mutex_lock(&txda_groups_lock);
	vm->groups_refused--;
	mutex_unlock(&txda_groups_lock);
}

void txda_groups_restart(struct txda_device *tdev)
{
	struct txda_vm *vm;
	u32 slot;

	mutex_lock(&txda_groups_lock);
	mutex_lock(&tdev->vms_lock);
	list_for_each_entry(vm, &tdev->vms, link) {
		for (slot = 0; slot < DRM_TXDA_GROUP_SLOTS; slot++) {
			if (!vm->groups[slot])
				continue;
			txda_group_clear(vm->groups[slot], tdev);
			txda_group_write(vm->groups[slot], tdev);
		}
	}
	mutex_unlock(&tdev->vms_lock);
	mutex_unlock(&txda_groups_lock);
}

/* ---- VM_SET_GROUP --------------------------------------------------------------------------- */

/*
 * The address space behind another open file, with a reference. Having the descriptor is the
 * permission to use the objects in it.
 */
static struct txda_vm *txda_member_vm(struct drm_file *own, const struct drm_txda_member *member)
{
	struct drm_file *drm_file;
	struct txda_vm *vm;
	struct file *filp;

	filp = fget(member->fd);
	if (!filp)
		return ERR_PTR(-EBADF);
	/* All nodes of this driver share these file operations, and no other file has them. */
	if (filp->f_op != own->filp->f_op) {
		fput(filp);
		return ERR_PTR(-EINVAL);
	}
	drm_file = filp->private_data;
	vm = txda_vm_lookup(to_txda_file(drm_file), member->vm_id);
	fput(filp);
	return vm ?: ERR_PTR(-ENOENT);
}

static void txda_group_put_members(struct txda_group *group)
{
	while (group->size--)
		txda_vm_put(group->vm[group->size]);
	group->size = 0;
}

/* Fills @group with references to its members. @vm is one of them. */
static int txda_group_get_members(struct txda_group *group, struct drm_file *file,
				  const struct txda_vm *vm, const struct drm_txda_member *members,
				  u32 count)
{
	bool is_member = false;
	u32 i;

	while (group->size < count) {
		struct txda_vm *other = txda_member_vm(file, &members[group->size]);

		if (IS_ERR(other))
			return PTR_ERR(other);
		group->vm[group->size++] = other;
		is_member |= other == vm;
		if (READ_ONCE(other->lost))
			return -EIO;
		for (i = 0; i < group->size - 1; i++) {
			if (group->vm[i]->tdev == other->tdev)
				return -EINVAL;
		}
	}
	return is_member ? 0 : -EINVAL;
}

/* The ports of member @rank to all members. */
static int txda_group_find_routes(const struct txda_group *group, u32 rank, u32 *ret_routes)
{
	struct txda_device *tdev = group->vm[rank]->tdev;
	u32 routes = 0, i;
	int idx, port;

	while ((port = txda_bars_enter(tdev, &idx))) {
		if (port == -EAGAIN)
			port = txda_reset_wait(tdev);
		if (port)
			return port;
	}
	for (i = 0; i < group->size; i++) {
		port = TXDA_GROUP_SELF;
		if (i != rank)
			port = txda_device_port_to(tdev, group->vm[i]->tdev);
		if (port < 0)
			break;
		routes |= (u32)port << (4 * i);
	}
	/* A chip that does not answer has no ports that are up. */
	if (port < 0 && !txda_device_alive(tdev))
		port = -ENODEV;
	txda_bars_exit(tdev, idx);
	if (port < 0)
		return port;

	*ret_routes = routes;
	return 0;
}

/* A member may have died since it was looked up; whoever ends it takes this lock afterwards. */
static int txda_group_check_member(const struct txda_vm *vm)
{
	lockdep_assert_held(&txda_groups_lock);
	if (vm->groups_over)
		return -ENOENT;
	if (drm_dev_is_unplugged(&vm->tdev->drm))
		return -ENODEV;
	return READ_ONCE(vm->lost) ? -EIO : 0;
}

/*
 * The group replaces whatever its members have in that slot, which no job may be using; jobs of the
 * members that use other slots do not matter. A job that is submitted concurrently may see the slot
 * before, between or after; ordering that is up to the client.
 */
static int txda_group_install(struct txda_group *group)
{
	struct txda_group *old;
	u32 rank;
	int err;

	lockdep_assert_held(&txda_groups_lock);
	for (rank = 0; rank < group->size; rank++) {
		err = txda_group_check_member(group->vm[rank]);
		if (err)
			return err;
		old = group->vm[rank]->groups[group->slot];
		if (group->vm[rank]->groups_refused || (old && txda_group_is_busy(old)))
			return -EBUSY;
	}
	for (rank = 0; rank < group->size; rank++) {
		old = group->vm[rank]->groups[group->slot];
		if (old)
			txda_group_dissolve(old);
	}
	for (rank = 0; rank < group->size; rank++)
		group->vm[rank]->groups[group->slot] = group;
	txda_group_write(group, NULL);
	return 0;
}

static int txda_group_make(struct drm_file *file, struct txda_vm *vm, u32 slot,
			   const struct drm_txda_member *members, u32 count)
{
	struct txda_vm *vms[DRM_TXDA_MAX_GROUP];
	struct txda_group *group;
	u32 rank;
	int err;

	group = kzalloc_obj(*group, GFP_KERNEL_ACCOUNT);
	if (!group)
		return -ENOMEM;
	group->slot = slot;
	err = txda_group_get_members(group, file, vm, members, count);
	for (rank = 0; !err && rank < group->size; rank++)
		err = txda_group_find_routes(group, rank, &group->routes[rank]);
	if (err)
		goto err_group;

	memcpy(vms, group->vm, sizeof(vms));
	mutex_lock(&txda_groups_lock);
	err = txda_group_install(group);
	mutex_unlock(&txda_groups_lock);
	if (err)
		goto err_group;

	/* The group may be dissolved and freed already. */
	for (rank = 0; rank < count; rank++)
		txda_vm_put(vms[rank]);
	return 0;

err_group:
	txda_group_put_members(group);
	kfree(group);
	return err;
}

static int txda_group_leave_slot(struct txda_vm *vm, u32 slot)
{
	struct txda_group *group;
	int err = 0;

	mutex_lock(&txda_groups_lock);
	group = vm->groups[slot];
	if (group && txda_group_is_busy(group))
		err = -EBUSY;
	else if (group)
		txda_group_dissolve(group);
	mutex_unlock(&txda_groups_lock);
	return err;
}

int txda_ioctl_vm_set_group(struct drm_device *drm, void *data, struct drm_file *file)
{
	struct drm_txda_vm_set_group *args = data;
	struct drm_txda_member *members;
	struct txda_vm *vm;
	int err;

	if (args->slot >= DRM_TXDA_GROUP_SLOTS)
		return -EINVAL;
	vm = txda_vm_lookup(to_txda_file(file), args->vm_id);
	if (!vm)
		return -ENOENT;

	members = txda_array_get(&args->members, sizeof(*members), sizeof(*members),
				 DRM_TXDA_MAX_GROUP);
	if (IS_ERR(members)) {
		err = PTR_ERR(members);
		goto out_vm;
	}
	if (members)
		err = txda_group_make(file, vm, args->slot, members, args->members.count);
	else
		err = txda_group_leave_slot(vm, args->slot);
	kvfree(members);

out_vm:
	txda_vm_put(vm);
	return err;
}
