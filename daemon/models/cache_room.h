/* SPDX-License-Identifier: MIT */
/*
 * Room in the cache of compiled models: unused entries are evicted, least recently used first. An
 * entry is in use while some process holds it (cache_hold()); its time of last use is its
 * directory's mtime.
 *
 * Threads: any. Everything blocks.
 */
#ifndef TXDA_MODELS_CACHE_ROOM_H
#define TXDA_MODELS_CACHE_ROOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Evicts entries until @need more bytes keep the cache within @limit (0: none) and leave its file
 * system some free space, beside what compiles that run may write yet. On success those bytes are
 * reserved: @lock_fd is the open lock file of the entry that they are for (CACHE_LOCK in
 * cache_sweep.h), which says so to other threads and processes until it is unlocked. On failure
 * nothing is removed and @err is set: -ENOSPC, other entries have to be released first; -EFBIG,
 * removing all of them would not do.
 */
int cache_reserve(const char *cache, int lock_fd, uint64_t need, uint64_t limit, char *err,
		  size_t errlen);
/* What the files below a directory of the cache take. No case dir has as much as CACHE_ABSURD. */
#define CACHE_ABSURD (UINT64_MAX >> 8)
uint64_t cache_tree_bytes(const char *path);
/* Evicts entries until the finished ones are within @limit. */
int cache_make_room(const char *cache, uint64_t limit, char *err, size_t errlen);

/* An entry in use. */
struct cache_use;

/*
 * Marks the entry as used now and holds it, until cache_release() or the process ends. NULL: it is
 * not an entry, is not owned by this user or root, is writable by others, is just being removed, or
 * out of memory.
 */
struct cache_use *cache_hold(const char *entry);
void cache_release(struct cache_use *use); /* NULL is accepted; any thread */

#endif
