/* SPDX-License-Identifier: MIT */
/* Options of a compile. */
#ifndef TXDA_COMPILE_OPTIONS_H
#define TXDA_COMPILE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "txda_isa.h"

enum weight_mode { WEIGHTS_KEEP, WEIGHTS_BF16, WEIGHTS_F16, WEIGHTS_W8, WEIGHTS_W4 };

/* Which launches a program is for; the graph is the same. */
enum program_role {
	PROGRAM_STEP,	 /* all */
	PROGRAM_PREFILL, /* prompts: a row of logits a sequence */
	PROGRAM_DECODE,	 /* a token and a row of each sequence */
};

struct compile_options {
	uint32_t tp; /* chips; 0: the config's tensor_parallel, else 1 */
	enum weight_mode weights;
	bool expert_parallel; /* chips have whole experts */
	bool kv_int8;	      /* keys and values as int8 */
	enum program_role role;
	bool embeds;		   /* the input inputs_embeds in place of tokens */
	bool mtp;		   /* the program `mtp` of the layer that predicts one token more */
	bool hidden;		   /* an output of the last hidden states of the chosen tokens */
	bool keys;		   /* an output of the keys that an indexer chose, for tests */
	bool states;		   /* likewise of all tokens, for the program mtp */
	uint32_t group;		   /* quantisation group: 32, 64 or 128 */
	uint32_t block_size;	   /* tokens per KV block: txda_is_block_size(); 0: by the model */
	uint32_t max_tokens;	   /* T */
	uint32_t max_seqs;	   /* S */
	uint32_t max_rows;	   /* R */
	uint32_t max_context;	   /* 0: what the model reaches */
	uint32_t topk;		   /* cut to the vocabulary */
	uint32_t max_image_tokens; /* of a launch of the program vision, without lines' ends */
	const char *name;	   /* NULL: the directory's */
	unsigned jobs;		   /* threads; 0: one per CPU. Not part of the key */
};

#define COMPILE_OPTIONS_DEFAULT                                                                    \
	((struct compile_options){.group = 32,                                                     \
				  .max_tokens = 2048,                                              \
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
