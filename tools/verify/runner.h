/* SPDX-License-Identifier: MIT */
/*
 * Runs a model and returns logits: a case dir, or a Hugging Face directory that is compiled to a
 * temporary one, on one group of chips. Sequences are numbered slots with cache blocks of their
 * own, deliberately scattered over the cache. A part at position 0 restarts a slot; others continue
 * where the last one ended. Not thread-safe.
 */
#ifndef TXDA_VERIFY_RUNNER_H
#define TXDA_VERIFY_RUNNER_H

#include <stdbool.h>
#include <stdint.h>

#include "error.h"
#include "kv_seq.h"
#include "options.h"
#include "sha256.h"
#include "processor.h"
#include "txda.h"

struct runner_options {
	const char *path;
	const char *config; /* text of a config.json, for synthetic weights, instead of a path */
	struct compile_options compile; /* for a Hugging Face directory */
	bool precise;
	unsigned slots;	  /* sequences that are kept at the same time */
	unsigned context; /* positions of each */
};

/* The images of the sequences: of a prompt's tokens, and of those after it. */
struct runner_images {
	unsigned n;		       /* tokens of the prompt */
	const int32_t (*positions)[3]; /* [n] */
	int32_t delta;	     /* difference between positions and indices of later tokens */
	const int32_t *rows; /* [n] of the embeddings, or -1 */
	const float *embeds, *deepstack;
};

struct runner {
	struct txda_context *context;
	struct txda_group *group;
	struct txda_model *model;
	struct txda_model_info info;
	bool routed;   /* the model has experts, or an indexer */
	bool compiled; /* from a Hugging Face directory */
	unsigned keys; /* a token in the output of that name; 0: there is none */
	/* Elements of a row of the output states and of the input hidden_before; 0: there is none. */
	unsigned states, before;
	unsigned slots;
	struct kv *kv;
	uint64_t n_committed; /* blocks ever */
	struct kv_seq *seqs;  /* [slots], with entries of tables for each */
	uint32_t *entries;
	int32_t *tokens, *positions, *kv_slots, *rows, *spans, *contexts, *block_table,
		*state_table; /* inputs of the step being built */
	float *hidden_before;
	/* Vision models: coordinates of a position (else 1), additional rows of tokens. */
	unsigned axes, hidden, deep;
	int32_t *image_rows;
	float *image_embeds, *image_deepstack;
	const struct runner_images *images; /* NULL: only text; set by the caller */
	struct txda_model *vision;	    /* the program `vision`, or NULL */
	struct image_tower tower;	    /* with that */
	struct image_processor processor;
	struct sha256 bits; /* of all logits so far */
	uint64_t n_logits;
};

/* Part of a sequence in one step. */
struct runner_part {
	unsigned slot;
	const int32_t *tokens; /* [n] */
	unsigned n;
	unsigned position;    /* of the first token */
	const unsigned *rows; /* [n_rows] tokens of the part whose logits are wanted */
	unsigned n_rows;
	float *logits;	     /* [n_rows, V] */
	float *lse;	     /* [n_rows] or NULL */
	int32_t *keys;	     /* [n, r->keys] or NULL */
	float *states;	     /* [n, r->states] or NULL */
	const float *before; /* [n, r->before]; NULL: zeros, or those of before */
};

int runner_open(const struct runner_options *options, struct runner **ret,
		struct tool_error *error);
void runner_close(struct runner *r);
/* Runs the parts as one step. Their sum must be within the model's limits. */
int runner_step(struct runner *r, const struct runner_part *parts, unsigned n,
		struct tool_error *error);
/*
 * One sequence, at most @chunk tokens a step (0: as many as the model takes). Rows count from the
 * first token.
 */
int runner_sequence(struct runner *r, const struct runner_part *part, unsigned chunk,
		    struct tool_error *error);
/* The index of the largest of @n logits. */
unsigned runner_argmax(const float *logits, unsigned n);

#endif /* TXDA_VERIFY_RUNNER_H */
