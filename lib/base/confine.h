/* SPDX-License-Identifier: MIT */
/*
 * Confinement of a process that parses untrusted data: the compiler of checkpoints, the worker that
 * runs a model's templates and tokeniser. The process confines itself before it opens the first
 * untrusted file:
 *
 *   landlock   files: the given ones can be read, the given directories written, nothing else
 *              (no device, no /proc); no TCP, no abstract sockets, no signals to others, as far as
 *              the kernel's version of it has them
 *   seccomp    system calls: an allow-list. The basic list has memory, threads, time, random
 *              numbers, and reads and writes of open descriptors. No call opens a file, a socket or
 *              a process, and memory is neither executable nor
 *              shared with others, unless @calls says so. What is not on the list
 *              fails with EPERM
 *   the rest   no new privileges, not dumpable: other processes of the user cannot read its memory.
 *              When memory runs out the kernel kills such processes before those that they serve
 *
 * A kernel without landlock is not an error (see confine_landlock()); one without seccomp is.
 *
 * Builds with a sanitizer are not confined, as its runtime opens files and traces itself;
 * confine_works() is false there.
 */
#ifndef TXDA_BASE_CONFINE_H
#define TXDA_BASE_CONFINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * What the process may open is given by descriptors (O_PATH is enough), not by names: these may lead
 * elsewhere by the time that somebody has checked what they lead to. Lists that end with -1, or NULL.
 */
struct confinement {
	const int *readable; /* directories with all below them, and files */
	const int *listable; /* directories with all below them: the names, no file's content */
	const int *writable; /* directories with all below them */
	const char *const *calls; /* names of further system calls, up to a NULL; or NULL */
};

/* 0: unchanged. Limits are never raised. */
struct confine_limits {
	uint64_t memory;    /* bytes of its own, not counting files mapped read-only */
	uint64_t file_size; /* bytes of a file that it writes */
	unsigned cpu_seconds;
	unsigned processes; /* processes and threads of the user, including others' */
	unsigned descriptors;
};

/*
 * Sets the limits, and disables core dumps. System calls only: may run between vfork() and exec().
 * A limit that cannot be set is already lower.
 */
void confine_limit(const struct confine_limits *limits);

/*
 * Confines the calling thread, and the threads that it starts, permanently. Call it before the
 * first thread is started. 0, or -errno and @err: then the process must exit, as it may be partly
 * confined.
 */
int confine_self(const struct confinement *c, char *err, size_t errlen);

/*
 * From now on no other process of the same user can read or trace the caller; part of
 * confine_self().
 */
int confine_hide(void);

/* The version of the kernel's landlock; 0: not available. */
unsigned confine_landlock(void);
/* Whether confine_self() has an effect in this build. */
bool confine_works(void);

#endif
