/* SPDX-License-Identifier: MIT */
/*
 * Weights without a chip, in the place of libtxda's calls: a memfd each, found by path, rank and
 * chip. The file at a path counts as changed when the path has a file "changed" in it.
 */
#ifndef TXDA_TESTS_FAKE_WEIGHTS_H
#define TXDA_TESTS_FAKE_WEIGHTS_H

#include <stdint.h>

#include <txda.h>

/* Those of a path on a chip, made if need be; for fake_model_weights of fake_model.h. */
int fake_weights_of(const char *path, struct txda_device *device, unsigned rank, uint64_t bytes,
		    struct txda_weights **ret);
/* How many there are. */
unsigned fake_weights_live(void);
/* Told of the bytes of an import (negative: they go); or NULL. */
extern void (*fake_weights_taken)(struct txda_device *device, int64_t bytes);
/* Of the chips' memory. */
extern uint64_t fake_weights_memory_id;

#endif
