/* SPDX-License-Identifier: MIT */
/*
 * The weights of a model that sleeps: the parameter files of its case dir, mapped and read into
 * host memory, so that waking it copies from memory and waits for no disk. The memory is locked
 * where RLIMIT_MEMLOCK allows it; else the kernel may drop pages that it needs more, and reads
 * them again.
 *
 * Blocks while it reads; any thread.
 */
#ifndef TXDA_RESIDENCY_HOSTCOPY_H
#define TXDA_RESIDENCY_HOSTCOPY_H

#include <stdbool.h>
#include <stdint.h>

struct hostcopy;

/* Of chip0/param.bin to chip(@tp - 1)/param.bin; those that are not there need no copy. -ENOMEM,
 * or why a file cannot be mapped. */
int hostcopy_new(const char *case_dir, unsigned tp, struct hostcopy **ret);
void hostcopy_free(struct hostcopy *c); /* NULL is accepted */
uint64_t hostcopy_bytes(const struct hostcopy *c);
bool hostcopy_locked(const struct hostcopy *c);

#endif
