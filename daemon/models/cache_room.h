/* SPDX-License-Identifier: MIT */
/*
 * Room in the cache of compiled models: entries that nobody uses go, the one that was used longest
 * ago first. An entry is in use while some process holds it (cache_hold()); its time of last use is
 * its directory's mtime.
 *
 * Threads: the loader's. Everything blocks.
 */
#ifndef TXDA_MODELS_CACHE_ROOM_H
#define TXDA_MODELS_CACHE_ROOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Removes entries until @need bytes more leave the cache within @limit (0: none) and its file system
 * with a little free. -ENOSPC with @err: that is not to be had.
 */
int cache_make_room(const char *cache, uint64_t need, uint64_t limit, char *err, size_t errlen);

/*
 * Marks the entry as used now and holds it, in place of what was held for @user before; until the
 * process ends. False: it is no entry, belongs to neither this user nor root, others may write to
 * it, or it is just being removed.
 */
bool cache_hold(const char *entry, const char *user);

#endif
