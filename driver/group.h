/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Groups: address spaces of several chips whose queues meet in collectives (VM_SET_GROUP).
 *
 * A group is dissolved as a whole when one of its members leaves, dies, or its chip goes: its
 * slots are emptied on all chips, so that nobody waits for a member that cannot come. One mutex of
 * the module guards all groups, and with it the registers of all group slots: a chip that is down
 * or in recovery when they are written gets them when it comes up (txda_groups_restart()), so
 * members need not wait for one another's chips.
 *
 * Lifetime: a group belongs to its members together and holds none of them.
 * Threads: any; may sleep. The mutex is taken inside of reset.lock and outside of
 * txda_device.vms_lock.
 */
#ifndef TXDA_GROUP_H
#define TXDA_GROUP_H

#include <linux/types.h>

struct drm_device;
struct drm_file;
struct txda_device;
struct txda_vm;

/*
 * The address space goes: dissolves its groups, and it joins none any more. Before its place on the
 * chip becomes another one's.
 */
void txda_groups_leave(struct txda_vm *vm);
/* The chip goes for good, or lost its memory: dissolves the groups of all its address spaces. */
void txda_groups_leave_all(struct txda_device *tdev);
/*
 * After a reset or resume: writes the slots of its address spaces again. The groups get new ids on
 * all their chips, since the others may have gone on in collectives that this one forgot. In
 * drm_dev_enter().
 */
void txda_groups_restart(struct txda_device *tdev);

int txda_ioctl_vm_set_group(struct drm_device *drm, void *data, struct drm_file *file);

#endif /* TXDA_GROUP_H */
