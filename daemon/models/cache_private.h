/* SPDX-License-Identifier: MIT */
/*
 * Without a cache: compiled models are in a directory that belongs to this process, inside the
 * cache's directory (on whose file system there is room, and where the daemon may write), and are
 * removed with the process. Those of killed processes are removed by cache_sweep(): a running
 * process holds a lock on its directory.
 */
#ifndef TXDA_MODELS_CACHE_PRIVATE_H
#define TXDA_MODELS_CACHE_PRIVATE_H

#include <stddef.h>

/* Appends the directory's name to the cache's in @path. 0 and *ret_lock, or -errno and @err. */
int cache_private_new(char *path, size_t len, int *ret_lock, char *err, size_t errlen);
void cache_private_remove(const char *path, int lock);

#endif
