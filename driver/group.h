/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Groups: address spaces of several chips whose queues meet in collectives (VM_SET_GROUP).
 *
 * A group is dissolved as a whole when one of its members leaves or is destroyed, or when its chip
 * is removed: its slots are cleared on all chips, so that no queue waits for a member that cannot
 * arrive. One mutex of the module protects all groups, and with it the registers of all group
 * slots: a chip that is down or in recovery when they change gets them when it comes up
 * (txda_groups_restart()), so members need not wait for one another's chips.
 *
 * Lifetime: a group belongs to its members collectively and holds no references to them. Threads:
 * any; may sleep. The mutex is taken inside reset.lock and outside txda_device.vms_lock.
 */
#ifndef TXDA_GROUP_H
#define TXDA_GROUP_H

#include <linux/types.h>

struct drm_device;
struct drm_file;
struct txda_device;
struct txda_vm;

/*
 * The address space is being destroyed: dissolves its groups and prevents it from joining new ones.
 * Before its VMID is given to another address space.
 */
void txda_groups_leave(struct txda_vm *vm);
/* The chip is removed, or lost its memory: dissolves the groups of all its address spaces. */
void txda_groups_leave_all(struct txda_device *tdev);
/*
 * The address space has one more queue that may have to wait for its turn while others wait for it
 * in a collective: it joins no group until txda_groups_allow(). -EBUSY: it is in one.
 */
int txda_groups_refuse(struct txda_vm *vm);
void txda_groups_allow(struct txda_vm *vm);
/*
 * After a reset or resume: writes the slots of its address spaces again. The groups get new ids on
 * all their chips, since the other chips may have advanced in collectives whose state this one
 * lost. In drm_dev_enter().
 */
void txda_groups_restart(struct txda_device *tdev);

int txda_ioctl_vm_set_group(struct drm_device *drm, void *data, struct drm_file *file);

#endif /* TXDA_GROUP_H */
