/* SPDX-License-Identifier: MIT */
/*
 * Limits of device memory by control group, for tests: who starts them makes a group, names its
 * directory in $DMEM_GROUP, and in $DMEM_REGION the first chip's memory as control groups know it.
 */
#ifndef TXDA_TEST_DMEM_H
#define TXDA_TEST_DMEM_H

#include <stdint.h>

/* The group; skips the test if there is none. */
const char *must_group(void);
/* From now on the process's buffers are charged to @group. */
void must_enter(const char *group);
/* @limit: dmem.max, dmem.min or dmem.low. */
void must_limit(const char *group, const char *limit, uint64_t bytes);

#endif
