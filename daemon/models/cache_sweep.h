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

/* As rm -r, but for what lies deeper than a private directory has it; links are not followed. */
void cache_remove_tree(const char *path);

#endif
