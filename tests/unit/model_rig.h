/* SPDX-License-Identifier: MIT */
/* What the tests of models share: a context on the device model, a group of it and the tiny model. */
#ifndef MODEL_RIG_H
#define MODEL_RIG_H

#include <math.h>

#include "libtxda_case.h"
#include "libtxda_test.h"
#include "model.h"

#define PAGES(bytes) (((uint64_t)(bytes) + 4095) & ~4095ull)

/*
 * What one model needs of one chip beside the KV cache: weights, scratch, inputs and outputs (those
 * of rank 0).
 */
#define FIXED                                                                                      \
	(PAGES(CASE_PARAM) + PAGES(CASE_SCRATCH) +                                                 \
	 PAGES(CASE_T * CASE_H * 4 + 64 + CASE_R * CASE_H * 4))

static struct txda_context *context;
static struct txda_group *group; /* of the first chips */
static char *path;		 /* the tiny model for as many */

static inline struct txda_group *new_group(unsigned first, unsigned tp)
{
	struct txda_group_options options = TXDA_INIT(struct txda_group_options);
	unsigned device[8];
	struct txda_group *ret;

	for (unsigned i = 0; i < tp; i++)
		device[i] = first + i;
	options.tp = tp;
	options.devices = device;
	ok(context, txda_group_new(context, &options, &ret));
	return ret;
}

static inline void begin(const char *spec, unsigned tp)
{
	context = open_context(spec);
	group = new_group(0, tp);
	case_write(tp, &path);
}

static inline int end(void **state)
{
	txda_group_unref(group);
	case_remove(path);
	txda_context_unref(context);
	return 0;
}

static inline struct txda_model *load(struct txda_group *of, unsigned kv_blocks)
{
	struct txda_model_options options = TXDA_INIT(struct txda_model_options);
	struct txda_model *model;

	options.path = path;
	options.kv_blocks = kv_blocks;
	ok(context, txda_model_load(of, &options, &model));
	return model;
}

/* Runs one step with random x and checks y = scale * norm(x) * w. */
static inline void run_and_check(struct txda_model *model, unsigned tokens, unsigned n_rows,
				 float scale)
{
	struct txda_step step = TXDA_INIT(struct txda_step);
	float x[CASE_T][CASE_H], y[CASE_R][CASE_H];
	int32_t rows[CASE_R];
	uint64_t fence;
	static unsigned seed = 1;

	for (unsigned t = 0; t < tokens; t++)
		for (unsigned i = 0; i < CASE_H; i++) {
			seed = seed * 1103515245 + 12345;
			x[t][i] = (float)(int)(seed >> 16 & 255) / 64 - 2;
		}
	for (unsigned r = 0; r < n_rows; r++)
		rows[r] = (int32_t)((r * 7 + 3) % tokens);
	ok(context, txda_model_set_input(model, "x", x, tokens * sizeof(x[0])));
	ok(context, txda_model_set_input(model, "rows", rows, n_rows * sizeof(rows[0])));
	step.tokens = tokens;
	step.seqs = 1;
	step.rows = n_rows;
	step.flags = tokens % 2 ? TXDA_SUBMIT_WAIT_SOON : 0;
	ok(context, txda_model_run(model, &step, &fence));
	ok(context, txda_model_sync(model, fence, TXDA_FOREVER));
	ok(context, txda_model_get_output(model, "y", y, n_rows * sizeof(y[0])));
	for (unsigned r = 0; r < n_rows; r++) {
		const float *in = x[rows[r]];
		double sum = 0;

		for (unsigned i = 0; i < CASE_H; i++)
			sum += (double)in[i] * in[i];
		for (unsigned i = 0; i < CASE_H; i++) {
			double want = scale * in[i] / sqrt(sum / CASE_H + 1e-6) * case_weight(i);

			if (fabs(y[r][i] - want) > 1e-4 * (1 + fabs(want)))
				fail_msg("y[%u][%u] is %g, not %g", r, i, y[r][i], want);
		}
	}
}

#endif /* MODEL_RIG_H */
