/* SPDX-License-Identifier: MIT */
/*
 * Chips, groups and plans without a chip, in the place of libtxda's calls: four chips, groups of
 * neighbours; those of named devices begin with the first one.
 */
#ifndef TXDA_TESTS_FAKE_CONTEXT_H
#define TXDA_TESTS_FAKE_CONTEXT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <txda.h>

#define FAKE_CHIPS 4

extern struct txda_context *const fake_context;
extern atomic_uint fake_groups; /* that live */
extern uint64_t fake_chip_used[FAKE_CHIPS], fake_chip_bytes;
extern bool fake_chip_lost[FAKE_CHIPS];
/* What txda_model_plan() says of every case dir; -EINVAL where there is a file "broken" in it. */
extern struct txda_model_plan fake_plan;
/* Case dirs are not read while it is set, as of a file system that hangs; whether one is waited
 * for. */
extern atomic_bool fake_plan_blocks, fake_plan_waits;

#endif
