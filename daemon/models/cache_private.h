/* SPDX-License-Identifier: MIT */
/*
 * No cache: what is compiled lies in a directory of this process alone, within the cache's (which is
 * where there is room, and where the daemon may write), and goes with it. Of processes that were
 * killed cache_sweep() removes them: who lives holds a lock on its directory.
 */
#ifndef TXDA_RESIDENCY_CACHE_PRIVATE_H
#define TXDA_RESIDENCY_CACHE_PRIVATE_H

#include <stddef.h>

/* Puts the directory's name behind the cache's in @path. 0 and *ret_lock, or -errno and @err. */
int cache_private_new(char *path, size_t len, int *ret_lock, char *err, size_t errlen);
void cache_private_remove(const char *path, int lock);

#endif
