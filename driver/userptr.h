/* SPDX-License-Identifier: GPL-2.0 */
/*
 * User memory as buffers (BO_FROM_USERPTR): pinned for as long as the buffer lives, and charged
 * against RLIMIT_MEMLOCK of the process that made it, until then.
 */
#ifndef TXDA_USERPTR_H
#define TXDA_USERPTR_H

#include <linux/types.h>

struct txda_bo;

/*
 * Gives @bo the caller's memory at @va. -EFAULT: not (all) memory that the caller may access like
 * that; -EOPNOTSUPP: a file's pages that cannot be pinned for long; -EDQUOT: over RLIMIT_MEMLOCK;
 * -ENOMEM; -EINTR. Faults of that memory can take as long as its owner likes, so nobody may wait
 * for the caller.
 */
int txda_userptr_pin(struct txda_bo *bo, u64 va);
/* Nothing to do for a buffer without pages. */
void txda_userptr_unpin(struct txda_bo *bo);

#endif /* TXDA_USERPTR_H */
