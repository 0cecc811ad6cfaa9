/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Groups: address spaces of several chips whose queues meet in collectives (VM_SET_GROUP).
 *
 * A group is dissolved as a whole when one of its members leaves, dies, or its chip goes: its
 * slots are emptied on all chips, so that nobody waits for a member that cannot come. One mutex of
 * the module guards all groups; it is taken before any address space's lock.
 */
#ifndef TXDA_GROUP_H
#define TXDA_GROUP_H

#include <linux/types.h>

struct drm_device;
struct drm_file;
struct txda_device;
struct txda_vm;

/* The address space goes: dissolves its groups. */
void txda_groups_leave(struct txda_vm *vm);
/* The chip goes for good, or lost its memory: dissolves the groups of all its address spaces. */
void txda_groups_leave_all(struct txda_device *tdev);
/* After a reset or resume: writes the slots of its address spaces again. In drm_dev_enter(). */
void txda_groups_restart(struct txda_device *tdev);

int txda_ioctl_vm_set_group(struct drm_device *drm, void *data, struct drm_file *file);

#endif /* TXDA_GROUP_H */
