/* SPDX-License-Identifier: MIT */
/*
 * Mappings of files that may lose pages: one that is truncated, or whose disk fails, raises SIGBUS
 * at the access, in whichever thread makes it.
 *
 * The handler maps a page of zeros there, so that the access ends, and sets the mapping's flag; who
 * uses the mapping checks the flag afterwards and discards what it computed. Other memory errors go
 * to the handler that the process had before.
 *
 * Signal handlers belong to the process: the first mapping that is watched installs this one. A
 * thread that has SIGBUS blocked would be killed instead: cm_bus_unblock().
 *
 * Threads: any.
 */
#ifndef CM_BUS_H
#define CM_BUS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * Watches [base, base + bytes): *@lost becomes true when a page was lost. 0, -errno of sigaction(),
 * or -ENOSPC: too many mappings are watched.
 */
int cm_bus_watch(void *base, size_t bytes, _Atomic bool *lost);
/* Ends that for mappings that begin in the range, which nobody accesses any more. */
void cm_bus_forget(void *base, size_t bytes);
/* Whether a page was lost of the mapping that begins at @base. */
bool cm_bus_is_lost(const void *base);
/* Before the calling thread accesses watched mappings; cheap after its first call. */
void cm_bus_unblock(void);

#endif /* CM_BUS_H */
