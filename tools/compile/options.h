/* SPDX-License-Identifier: MIT */
/* Options of a compile. */
#ifndef TXDA_COMPILE_OPTIONS_H
#define TXDA_COMPILE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "txda_isa.h"

enum weight_mode { WEIGHTS_KEEP, WEIGHTS_BF16, WEIGHTS_F16, WEIGHTS_W8, WEIGHTS_W4 };

/* The launches that a program is for; the graph is the same. */
enum program_role {
	PROGRAM_STEP,	 /* all */
	PROGRAM_PREFILL, /* prompts: one row of logits per sequence */
	PROGRAM_DECODE,	 /* one token and one row per sequence */
};

struct compile_options {
	uint32_t tp; /* chips; 0: the config's tensor_parallel, else 1 */
	enum weight_mode weights;
	bool expert_parallel; /* each expert is on one chip */
	bool kv_int8;	      /* keys and values as int8 */
	enum program_role role;
	bool embeds;	      /* the input inputs_embeds instead of tokens */
	bool mtp;	      /* the program `mtp` of the layer that predicts a further token */
	bool hidden;	      /* an output of the last hidden states of the chosen tokens */
	bool keys;	      /* an output of the keys chosen by an indexer, for tests */
	bool states;	      /* likewise for all tokens, for the program mtp */
	bool ignore_unused;   /* tensors that may change results (unused.h) */
	uint32_t group;	      /* quantisation group: 32, 64 or 128; 0: by the type */
	uint32_t block_size;  /* tokens per KV block: txda_is_block_size(); 0: by the model */
	uint32_t max_tokens;  /* T */
	uint32_t max_seqs;    /* S */
	uint32_t max_rows;    /* R */
	uint32_t max_context; /* 0: the model's limit */
	uint32_t topk;	      /* limited to the vocabulary */
	uint32_t max_image_tokens; /* per launch of the program vision, without the ends of lines */
	const char *name;	   /* NULL: the directory's */
	unsigned jobs;		   /* threads; 0: one per CPU. Not part of the key */
};

#define COMPILE_OPTIONS_DEFAULT                                                                    \
	((struct compile_options){.max_tokens = 2048,                                              \
				  .max_seqs = 256,                                                 \
				  .max_rows = 256,                                                 \
				  .topk = 64,                                                      \
				  .max_image_tokens = 4096})

#define COMPILE_VERSION "txda-compile 0.1.0"

static inline const char *program_role_name(enum program_role role)
{
	static const char *const names[] = {"step", "prefill", "decode"};

	return names[role];
}

static inline const char *weight_mode_name(enum weight_mode mode)
{
	static const char *const names[] = {"keep", "bf16", "f16", "w8", "w4"};

	return names[mode];
}

#endif /* TXDA_COMPILE_OPTIONS_H */
