/* SPDX-License-Identifier: GPL-2.0 */
/*
 * User memory as buffers (BO_FROM_USERPTR): pinned for the lifetime of the buffer, and charged to
 * the user that created it, whose RLIMIT_MEMLOCK limits the sum unless it has CAP_IPC_LOCK.
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
/*
 * Does nothing for a buffer without pages. Takes no lock of the process, which its threads may hold
 * for as long as they like: the last reference may go where resets and removal wait.
 */
void txda_userptr_unpin(struct txda_bo *bo);

#endif /* TXDA_USERPTR_H */
