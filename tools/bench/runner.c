// SPDX-License-Identifier: MIT
#include "runner.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"

enum { IN_TOKENS, IN_POSITIONS, IN_SLOTS, IN_SPANS, IN_CONTEXT, IN_TABLE, IN_ROWS };

static const char *const input_names[] = {"tokens",  "positions",   "slots", "spans",
					  "context", "block_table", "rows"};

static int fail(struct runner *r, const char *what, int err)
{
	const char *why = txda_context_error(r->context);

	fprintf(stderr, "txda-bench: %s: %s\n", what, why[0] ? why : strerror(-err));
	return err;
}

int runner_open(struct runner *r, const char *case_dir, unsigned max_tokens)
{
	struct txda_context_options co = TXDA_INIT(struct txda_context_options);
	struct txda_group_options go = TXDA_INIT(struct txda_group_options);
	struct txda_model_options mo = TXDA_INIT(struct txda_model_options);
	struct txda_model_plan plan = TXDA_INIT(struct txda_model_plan);
	char cmodel[64];
	void *p;
	int err;

	memset(r, 0, sizeof(*r));
	co.name = "benchmark";
	err = txda_model_plan(NULL, case_dir, &plan);
	if (err)
		return fail(r, case_dir, err);
	if (plan.tp > 1) {
		snprintf(cmodel, sizeof(cmodel), "chips=%u", plan.tp);
		co.cmodel = cmodel;
	}
	err = txda_context_new(&co, &r->context);
	if (err)
		return fail(r, "cannot open a device", err);
	go.tp = plan.tp;
	err = txda_group_new(r->context, &go, &r->group);
	if (err)
		return fail(r, "cannot make a group", err);
	mo.path = case_dir;
	mo.max_kv_blocks = max_tokens / 16 + 256;
	r->load_s = clock_s();
	err = txda_model_load(r->group, &mo, &r->model);
	if (err)
		return fail(r, case_dir, err);
	r->load_s = clock_s() - r->load_s;
	r->info = TXDA_INIT(struct txda_model_info);
	txda_model_info(r->model, &r->info);
	for (unsigned rank = 0; rank < r->info.tp; rank++)
		for (unsigned i = 0; i < 7; i++) {
			err = txda_model_tensor_ptr(r->model, rank, input_names[i], &p);
			if (err)
				return fail(r, input_names[i], err);
			r->in[rank][i] = p;
		}
	err = txda_model_tensor_ptr(r->model, 0, "topk_ids", &p);
	if (err)
		return fail(r, "topk_ids", err);
	r->topk_ids = p;
	return 0;
}

void runner_close(struct runner *r)
{
	txda_model_unref(r->model);
	txda_group_unref(r->group);
	txda_context_unref(r->context);
	memset(r, 0, sizeof(*r));
}

int runner_start(struct runner *r, unsigned seqs, unsigned tokens)
{
	unsigned columns = (tokens + r->info.block_size - 1) / r->info.block_size;

	if (seqs > 256 || seqs > r->info.max_seqs || seqs > r->info.max_rows ||
	    tokens > r->info.max_context || (uint64_t)columns * seqs > r->info.kv_blocks) {
		fprintf(stderr,
			"txda-bench: %u sequences of %u tokens do not fit: the model takes %u "
			"sequences, %u positions, %u KV blocks\n",
			seqs, tokens, r->info.max_seqs, r->info.max_context, r->info.kv_blocks);
		return -E2BIG;
	}
	r->seqs = seqs;
	r->columns = columns;
	for (unsigned s = 0; s < seqs; s++) {
		r->length[s] = 0;
		r->next[s] = (int32_t)(s * 31 + 7) % (int32_t)r->info.vocab;
	}
	return 0;
}

static void fill(struct runner *r, unsigned n)
{
	int32_t **in = r->in[0];
	unsigned bs = r->info.block_size, t = 0;

	for (unsigned s = 0; s < r->seqs; s++) {
		in[IN_SPANS][2 * s] = (int32_t)t;
		in[IN_SPANS][2 * s + 1] = (int32_t)n;
		for (unsigned c = 0; c < r->columns; c++)
			in[IN_TABLE][s * r->columns + c] = (int32_t)(s * r->columns + c);
		for (unsigned i = 0; i < n; i++, t++) {
			unsigned pos = r->length[s] + i;

			in[IN_TOKENS][t] = n == 1 ? r->next[s]
						  : (int32_t)((pos * 2654435761u + s * 40503u) %
							      r->info.vocab);
			in[IN_POSITIONS][t] = (int32_t)pos;
			in[IN_SLOTS][t] = (int32_t)((s * r->columns + pos / bs) * bs + pos % bs);
		}
		r->length[s] += n;
		in[IN_CONTEXT][s] = (int32_t)r->length[s];
		in[IN_ROWS][s] = (int32_t)t - 1;
	}
	for (unsigned rank = 1; rank < r->info.tp; rank++) {
		const unsigned size[] = {t,	 t, t, 2 * r->seqs, r->seqs, r->seqs * r->columns,
					 r->seqs};

		for (unsigned i = 0; i < 7; i++)
			memcpy(r->in[rank][i], in[i], size[i] * sizeof(int32_t));
	}
}

int runner_step(struct runner *r, unsigned n, double *ret_seconds)
{
	struct txda_step step = TXDA_INIT(struct txda_step);
	uint64_t fence;
	double t;
	int err;

	if (n * r->seqs > r->info.max_tokens) {
		fprintf(stderr, "txda-bench: a step of %u tokens; the model takes %u\n",
			n * r->seqs, r->info.max_tokens);
		return -E2BIG;
	}
	fill(r, n);
	step.tokens = n * r->seqs;
	step.seqs = step.rows = r->seqs;
	step.blocks = r->columns;
	step.flags = TXDA_SUBMIT_WAIT_SOON;
	step.timing = r->timing;
	t = clock_s();
	err = txda_model_run(r->model, &step, &fence);
	if (!err)
		err = txda_model_sync(r->model, fence, TXDA_FOREVER);
	if (err)
		return fail(r, "a step failed", err);
	*ret_seconds = clock_s() - t;
	for (unsigned s = 0; s < r->seqs; s++)
		r->next[s] = r->topk_ids[s * r->info.topk];
	return 0;
}
