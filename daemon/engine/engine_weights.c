// SPDX-License-Identifier: MIT
#include <errno.h>

#include <txda.h>

#include "engine.h"
#include "engine_internal.h"

int engine_weights(struct engine *e, bool draft, unsigned rank, struct txda_weights **ret)
{
	struct txda_model *model = draft ? draft_model(e->draft) : e->model;

	return model ? txda_model_weights(model, rank, ret) : -ENOENT;
}
