/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Changes of address spaces: VM_BIND.
 *
 * Each operation goes through four steps: check (nothing is allocated), prepare (all that can fail
 * for lack of something), execute (changes the tree and the page tables; fails only with the chip)
 * and clean up (gives back what is left over and what was unmapped). A synchronous call does them
 * for one operation after the other; an asynchronous one checks and prepares all, and has the rest
 * done by the address space's scheduler. Execution is what fences wait for: it allocates nothing
 * and frees nothing.
 *
 * An operation that fails while it executes leaves page tables that nobody can vouch for: the
 * address space is lost.
 */
#ifndef TXDA_BIND_H
#define TXDA_BIND_H

#include <drm/gpu_scheduler.h>

struct drm_device;
struct drm_file;
struct drm_gpuva_op;

int txda_ioctl_vm_bind(struct drm_device *drm, void *data, struct drm_file *file);

/* For vm.c, whose address spaces run on them. */
int txda_bind_step_map(struct drm_gpuva_op *op, void *priv);
int txda_bind_step_remap(struct drm_gpuva_op *op, void *priv);
int txda_bind_step_unmap(struct drm_gpuva_op *op, void *priv);
extern const struct drm_sched_backend_ops txda_bind_sched_ops;

#endif /* TXDA_BIND_H */
