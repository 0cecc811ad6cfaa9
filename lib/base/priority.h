/* SPDX-License-Identifier: MIT */
/*
 * The priority of processes that work for one user, beside threads that serve all: simulated chips,
 * the engine, the event loop; and among these, who waits for whom.
 *
 * Low priority
 * ------------
 * Only processes of their own get it, never a thread of the daemon: that might hold a lock, such as
 * one of malloc(), for which a thread that serves all would then wait.
 *
 * With the nice value 10, a process gets a tenth of a processor that others need, and all of one
 * that is idle. With less it would hardly go on beside simulated chips that never rest.
 *
 * Time slices
 * -----------
 * Linux (6.12 and later) runs a thread that wakes up at once if its time slice is shorter than the
 * running thread's; otherwise it may wait for the next tick, up to 4 ms. Shares of the processor
 * remain the same. So threads that others wait for, and that work briefly, have short slices. Those
 * that compute all the time have the kernel's default: with a longer one a core of a simulated chip
 * waits longer for a processor, and the others wait for it. See sched(7) and the kernel's
 * Documentation/scheduler/sched-eevdf.rst.
 */
#ifndef TXDA_BASE_PRIORITY_H
#define TXDA_BASE_PRIORITY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PRIORITY_LOW 10 /* nice value */

#define PRIORITY_SHORT_SLICE_NS 100000 /* the kernel's minimum */

/*
 * Gives the process @pid of the same user, 0: the caller, the low priority, which it keeps: raising
 * it again takes a privilege. Does nothing if a filter of system calls forbids that. A system call
 * only: may run between vfork() and exec().
 */
void priority_lower(pid_t pid);

/* Whether it has an effect. */
bool priority_works(void);

/*
 * Gives the calling thread, and none that it starts, the short slice, as far as the kernel has such
 * slices and no filter of system calls forbids it. The kernel's default is 0.7 to 3 ms, its limits are
 * 0.1 and 100 ms.
 */
void priority_shorten_slice(void);

#endif
