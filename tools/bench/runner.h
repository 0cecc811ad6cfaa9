/* SPDX-License-Identifier: MIT */
/*
 * Runs a loaded model step by step through libtxda, without a server: sequences of equal length are
 * prefilled, then decoded greedily.
 */
#ifndef TXDA_BENCH_RUNNER_H
#define TXDA_BENCH_RUNNER_H

#include <stdbool.h>
#include <stdint.h>

#include "kv_seq.h"
#include "txda.h"

#define MAX_SEQS 256

/* An image in the prompt of sequence 0, whose tokens are all given in one step. */
struct runner_image {
	unsigned first, tokens;	       /* the prompt's tokens that are the image's */
	const int32_t (*positions)[3]; /* of all tokens of the prompt */
};

struct runner {
	struct txda_context *context;
	struct txda_group *group;
	struct txda_model *model;
	struct txda_model_info info;
	double load_s; /* time of txda_model_load() */
	/* inputs of each rank, mapped: of all layers, then of each group of them */
	int32_t *in[TXDA_MAX_CHIPS_PER_GROUP][6 + 2 * KV_MAX_GROUPS];
	unsigned n_in;
	int32_t *state_table[TXDA_MAX_CHIPS_PER_GROUP];
	struct kv *kv;
	uint64_t n_committed;	       /* blocks ever */
	struct kv_seq cache[MAX_SEQS]; /* of each sequence */
	uint32_t *entries;	       /* their tables */
	const int32_t *topk_ids;
	unsigned seqs;
	unsigned columns;		  /* of the block tables, while these sequences run */
	unsigned axes;			  /* coordinates of a position */
	bool sees;			  /* it has inputs for images */
	const struct runner_image *image; /* of the next step; NULL: only text */
	unsigned length[MAX_SEQS];	  /* tokens in the cache by sequence */
	int32_t next[MAX_SEQS];		  /* the token to decode next */
	struct txda_op_timing *timing;	  /* of each op in the last step; NULL: not requested */
};

/* Loads CASE on a group of its own. 0, or -errno with a message on stderr. */
int runner_open(struct runner *r, const char *case_dir, unsigned max_tokens);
void runner_close(struct runner *r);
/* Starts @seqs empty sequences that will reach @tokens at most. */
int runner_start(struct runner *r, unsigned seqs, unsigned tokens);
/*
 * Runs one step with @n tokens per sequence (generated ones if n > 1, else the argmax of the last
 * step) and reads its logits.
 */
int runner_step(struct runner *r, unsigned n, double *ret_seconds);
/* Copies the embeddings computed by a launch of @vision; the next step is the prompt with them. */
int runner_take_image(struct runner *r, struct txda_model *vision,
		      const struct runner_image *image);

#endif
