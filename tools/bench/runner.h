/* SPDX-License-Identifier: MIT */
/*
 * A loaded model driven step by step through libtxda, without a server: sequences of equal length
 * that are prefilled, then decoded greedily.
 */
#ifndef TXDA_BENCH_RUNNER_H
#define TXDA_BENCH_RUNNER_H

#include <stdbool.h>
#include <stdint.h>

#include "txda.h"

struct runner {
	struct txda_context *context;
	struct txda_group *group;
	struct txda_model *model;
	struct txda_model_info info;
	double load_s; /* time of txda_model_load() */
	/* inputs of each rank, mapped */
	int32_t *in[TXDA_MAX_CHIPS_PER_GROUP][7];
	const int32_t *topk_ids;
	unsigned seqs, columns;
	unsigned length[256];	       /* tokens in the cache by sequence */
	int32_t next[256];	       /* the token to decode next */
	struct txda_op_timing *timing; /* of each op in the last step; NULL: not wanted */
};

/* Loads CASE on a group of its own. Says on stderr what failed; 0 or -errno. */
int runner_open(struct runner *r, const char *case_dir, unsigned max_tokens);
void runner_close(struct runner *r);
/* Starts @seqs empty sequences that will reach @tokens at most. */
int runner_start(struct runner *r, unsigned seqs, unsigned tokens);
/* One step that gives each sequence @n tokens (made up when n > 1, else the last step's argmax) and
 * takes its logits. */
int runner_step(struct runner *r, unsigned n, double *ret_seconds);

#endif
