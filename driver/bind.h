/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Changes of address spaces: VM_BIND.
 *
 * Each operation has four steps: check (allocates nothing), prepare (allocates everything that may
 * be needed, so this is where it can fail for lack of memory), execute (changes the tree and the
 * page tables; fails only if the chip does) and clean up (frees what was not used and what was
 * unmapped). A synchronous call runs them for one operation after the other. An asynchronous call
 * checks and prepares all operations, and the address space's scheduler does the rest. Fences wait
 * for the execution step, so it allocates nothing and frees nothing.
 *
 * An operation that fails while executing leaves the page tables in an unknown state: the address
 * space is marked lost.
 */
#ifndef TXDA_BIND_H
#define TXDA_BIND_H

#include <drm/gpu_scheduler.h>

struct drm_device;
struct drm_file;
struct drm_gpuva_op;

int txda_ioctl_vm_bind(struct drm_device *drm, void *data, struct drm_file *file);

/* Used by vm.c: asynchronous binds run on these scheduler operations. */
int txda_bind_step_map(struct drm_gpuva_op *op, void *priv);
int txda_bind_step_remap(struct drm_gpuva_op *op, void *priv);
int txda_bind_step_unmap(struct drm_gpuva_op *op, void *priv);
extern const struct drm_sched_backend_ops txda_bind_sched_ops;

#endif /* TXDA_BIND_H */
