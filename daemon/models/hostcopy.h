/* SPDX-License-Identifier: MIT */
/*
 * The weights of a sleeping model: the parameter files of its case dir, mapped and read into host
 * memory, so that waking it up copies from memory without disk access. The memory is locked if
 * RLIMIT_MEMLOCK allows it; otherwise the kernel may drop pages under memory pressure, and reads
 * them again.
 *
 * Blocks while it reads; any thread.
 */
#ifndef TXDA_MODELS_HOSTCOPY_H
#define TXDA_MODELS_HOSTCOPY_H

#include <stdbool.h>
#include <stdint.h>

struct hostcopy;

/*
 * From chip0/param.bin to chip(@tp - 1)/param.bin; missing files need no copy. -EFBIG: a file has
 * more than @most bytes, so it is not what was loaded. -ENOMEM, or the error of mapping a file.
 */
int hostcopy_new(const char *case_dir, unsigned tp, uint64_t most, struct hostcopy **ret);
void hostcopy_free(struct hostcopy *c); /* NULL is accepted */
uint64_t hostcopy_bytes(const struct hostcopy *c);
bool hostcopy_locked(const struct hostcopy *c);

#endif
