/* SPDX-License-Identifier: MIT */
/*
 * Groups: the chips of one copy of a model, by rank, and the explanation of the choice.
 *
 * Ownership: a group holds a reference to its context, which keeps its devices alive. Threads:
 * constant once created.
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
