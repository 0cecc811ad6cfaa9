/* SPDX-License-Identifier: MIT */
/*
 * The priority of processes that work for one user, beside threads that serve all: simulated chips,
 * the engine, the event loop.
 *
 * Only processes of their own get it, never a thread of the daemon: that might hold a lock, such as
 * one of malloc(), for which a thread that serves all would then wait.
 *
 * With the nice value 10, a process gets a tenth of a processor that others need, and all of one
 * that is idle. With less it would hardly go on beside simulated chips that never rest.
 */
#ifndef TXDA_BASE_PRIORITY_H
#define TXDA_BASE_PRIORITY_H

#include <stdbool.h>
#include <sys/types.h>

#define PRIORITY_LOW 10 /* nice value */

/*
 * Gives the process @pid of the same user, 0: the caller, the low priority, which it keeps: raising
 * it again takes a privilege. Does nothing if a filter of system calls forbids that. A system call
 * only: may run between vfork() and exec().
 */
void priority_lower(pid_t pid);

/* Whether it has an effect. */
bool priority_works(void);

#endif
