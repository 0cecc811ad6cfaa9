/* SPDX-License-Identifier: GPL-2.0 */
/*
 * User memory as buffers (BO_FROM_USERPTR): pinned for the lifetime of the buffer and charged
 * against RLIMIT_MEMLOCK of the process that created it.
 */
#ifndef TXDA_USERPTR_H
#define TXDA_USERPTR_H

#include <linux/types.h>

struct txda_bo;

/*
 * Backs @bo with the caller's memory at @va. -EFAULT: the caller may not access (all of) that
 * memory in this way; -EOPNOTSUPP: pages of a file that cannot be pinned long-term; -EDQUOT: over
 * RLIMIT_MEMLOCK; -ENOMEM; -EINTR. Page faults in that memory can take as long as its owner likes,
 * so no other thread may wait for the caller.
 */
int txda_userptr_pin(struct txda_bo *bo, u64 va);
/* Does nothing for a buffer without pages. */
void txda_userptr_unpin(struct txda_bo *bo);

#endif /* TXDA_USERPTR_H */
