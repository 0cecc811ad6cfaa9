/* SPDX-License-Identifier: MIT */
/*
 * Groups: the chips of one copy of a model, by rank, and why these were chosen.
 *
 * Ownership: a group holds a reference to its context; its devices live as long.
 * Threads: constant once made.
 */
#ifndef TXDA_GROUP_H
#define TXDA_GROUP_H

#include "context.h"

struct txda_group {
	atomic_uint refs;
	struct txda_context *context;
	unsigned size;
	struct txda_device *device[TXDA_MAX_CHIPS_PER_GROUP];
	char explanation[1536];
};

#endif /* TXDA_GROUP_H */
