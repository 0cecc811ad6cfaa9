/* SPDX-License-Identifier: MIT */
/*
 * The CPUs that this process may use, in the order in which cores are placed on them: first one
 * thread of each physical core, then the others; those that share a last-level cache or a socket
 * follow each other. And its memory nodes.
 *
 * Threads: any.
 */
#ifndef CM_CPUS_H
#define CM_CPUS_H

#include <stddef.h>
#include <sys/types.h>

/* Where the system describes its CPUs. Tests have other ones. */
extern const char *cm_cpus_directory;

/* Fills in up to @max; returns how many there are, at least 1: where the system does not say, the one
 * that the caller runs on. */
unsigned cm_cpus(unsigned *ret_cpu, unsigned max);
/* How many physical cores they belong to. */
unsigned cm_physical_cores(void);
/*
 * How many of @cpus compute for chips, at most @cores. One of every 8 CPUs, at most two, is left to
 * threads that use the chips, and to their clients: at the end of each op all cores wait for one
 * that had to let another thread run.
 */
unsigned cm_cpus_to_compute(unsigned cpus, unsigned cores);
/* The calling thread runs on @cpu alone. 0 or -errno. */
int cm_cpus_pin(unsigned cpu);
/* The CPUs that the calling thread may run on; NULL: no memory is left. To be freed with free(). */
struct cm_cpu_choice *cm_cpus_choice(void);
/*
 * Thread @tid leaves @cpu and runs on any other one of them; @before: the one that it avoids so far, -1:
 * none. 0 or -errno; -EBUSY: somebody else has limited it to other CPUs, -EPERM: a filter of system
 * calls forbids it. Then it stays where it is.
 */
int cm_cpus_avoid(const struct cm_cpu_choice *choice, pid_t tid, int before, int cpu);
/* Nodes with memory; 1 where the system does not say. */
unsigned cm_memory_nodes(void);
/* Pages of [ptr, ptr + bytes) that are not there yet come from all nodes in turns. */
void cm_interleave(void *ptr, size_t bytes);

#endif /* CM_CPUS_H */
