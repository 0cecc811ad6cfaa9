/* SPDX-License-Identifier: MIT */
/*
 * Rotary position embeddings: the scaling schemes of Hugging Face checkpoints as inverse
 * frequencies and the parameters of ROPE_TABLE. Values are computed in float32 in the same order as
 * in transformers, since a rounding error here is multiplied by the position.
 */
#ifndef TXDA_COMPILE_ROPE_H
#define TXDA_COMPILE_ROPE_H

#include <stdbool.h>
#include <stdint.h>
#include <cjson/cJSON.h>

#include "error.h"
#include "txda_isa.h"

enum rope_type { ROPE_DEFAULT, ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN, ROPE_DYNAMIC };

struct rope_config {
	enum rope_type type;
	double theta;
	double factor;
	double low_freq_factor, high_freq_factor; /* llama3 */
	double beta_fast, beta_slow;		  /* yarn */
	double attention_factor;		  /* yarn; 0: by mscale or factor */
	double mscale, mscale_all_dim;		  /* yarn; 0: not given */
	bool truncate;				  /* yarn */
	uint32_t original_max_position;		  /* 0: not given */
	double partial;				  /* share of a head that rotates; 0: not given */
};

/* Where the parameters of one kind of layer are found. */
struct rope_keys {
	const char *kind;  /* within rope_parameters: "full_attention"; NULL: all are of one kind */
	const char *theta; /* beside rope_parameters: "rope_theta" */
	double base;	   /* default base; 0: 10000 */
	bool without_scaling; /* rope_scaling applies to the other kinds only */
};

/*
 * Reads rope_parameters, or rope_theta and rope_scaling. @max_position is max_position_embeddings.
 */
int rope_parse(const cJSON *config, const struct rope_keys *keys, uint32_t max_position,
	       struct rope_config *ret, struct tool_error *error);

/*
 * Refuses what rope_parse() does not read: rotations of kinds of layers, unless @kinds, and
 * rope_scaling beside rope_parameters that say something else.
 */
int rope_check(const cJSON *config, bool kinds, const char *model_type, struct tool_error *error);

/* Fills inv_freq[P] for heads of 2 P elements and the parameters, all but max_position. */
void rope_compute(const struct rope_config *rope, uint32_t pairs, uint32_t max_position,
		  float *inv_freq, struct txda_op_rope_table *ret);

#endif /* TXDA_COMPILE_ROPE_H */
