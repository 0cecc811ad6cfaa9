/* SPDX-License-Identifier: MIT */
/*
 * What a compiler that was killed leaves in the cache: .NAME.txda-new with half a case dir,
 * .NAME.txda-lock, seldom .NAME.txda-old. The next compile of NAME would remove them, but it may
 * never come: the key changes with the checkpoint and the compiler.
 */
#ifndef TXDA_RESIDENCY_CACHE_SWEEP_H
#define TXDA_RESIDENCY_CACHE_SWEEP_H

#define CACHE_PRIVATE ".txda-private-" /* how names of directories of one process begin */

/*
 * Removes these of each NAME whose lock nobody holds, and private directories (cache_private.h) of
 * processes that are gone; what a running compiler or daemon has stays. What
 * cannot be removed stays, too: it is no reason not to start. Blocks.
 */
void cache_sweep(const char *cache);

/*
 * Opens @name below @dirfd with @flags, never through a link, and takes its lock, LOCK_SH or LOCK_EX.
 * A descriptor that holds it; -1: somebody has it, or errno. Who had it before may have removed the
 * file: then this is none of that name any more, which counts as taken.
 */
int cache_try_lock(int dirfd, const char *name, int flags, int lock);

/* As rm -r, but for what lies deeper than a private directory has it; links are not followed. */
void cache_remove_tree(const char *path);

#endif
