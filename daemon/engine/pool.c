// SPDX-License-Identifier: MIT
#include "pool.h"

#include <errno.h>
#include <math.h>

unsigned pool_first(const struct engine_request *r)
{
	return r->pooling.how == ENGINE_POOL_LAST ? r->n_prompt : 0;
}

unsigned pool_take(struct engine_request *r, unsigned position, const float *hidden)
{
	bool last = position == r->n_prompt - 1;

	if ((r->pooling.how == ENGINE_POOL_LAST && !last) ||
	    (r->pooling.how == ENGINE_POOL_CLS && position))
		return r->n_prompt;
	for (unsigned i = 0; i < r->pooling.dimensions; i++)
		r->pooled[i] += (double)hidden[i];
	return r->pooling.how == ENGINE_POOL_MEAN ? position + 1 : r->n_prompt;
}

int pool_finish(struct engine_request *r)
{
	double scale = r->pooling.how == ENGINE_POOL_MEAN ? 1.0 / r->n_prompt : 1, square = 0;

	for (unsigned i = 0; i < r->pooling.dimensions; i++)
		square += r->pooled[i] * r->pooled[i];
	if (!isfinite(square))
		return -EIO;
	/* A vector of zeros has no direction and stays as it is. */
	if (r->pooling.normalize)
		scale = square > 0 ? 1 / sqrt(square) : 0;
	for (unsigned i = 0; i < r->pooling.dimensions; i++)
		r->embedding[i] = (float)(r->pooled[i] * scale);
	return 0;
}
