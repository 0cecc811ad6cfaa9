/* SPDX-License-Identifier: MIT */
/*
 * Cleans up after compilers that were killed: .NAME.txda-new with half a case dir, .NAME.txda-lock,
 * rarely .NAME.txda-old. The next compile of NAME would remove them, but there may be none: the key
 * changes with the checkpoint and the compiler.
 */
#ifndef TXDA_MODELS_CACHE_SWEEP_H
#define TXDA_MODELS_CACHE_SWEEP_H

#define CACHE_PRIVATE ".txda-private-" /* prefix of the names of private directories */
#define CACHE_NEW     ".txda-new"      /* ends of the names; they begin with a dot */
#define CACHE_LOCK    ".txda-lock"

/*
 * Removes these for each NAME whose lock is free, and private directories (cache_private.h) of
 * processes that have ended; those of running compilers and daemons stay. What cannot be removed
 * stays, too: it is not a failure. Blocks.
 */
void cache_sweep(const char *cache);

/*
 * Opens @name below @dirfd with @flags, without following links, and locks it, LOCK_SH or LOCK_EX.
 * Returns a descriptor that holds the lock; -1: it is locked by another process, or errno. If the
 * previous holder removed the file, the file no longer has that name, which is treated as locked.
 */
int cache_try_lock(int dirfd, const char *name, int flags, int lock);

/* Like rm -r, of any depth and with any modes; links are not followed. */
void cache_remove_tree(const char *path);

#endif
