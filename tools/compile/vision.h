/* SPDX-License-Identifier: MIT */
/*
 * Vision towers: the program `vision` beside `step`. There is one table of families (vision.c),
 * which differ in its fields; one graph is built from them (graph_vision.c).
 *
 * A launch takes T units. In towers that merge patches (Qwen, GLM) a unit is a square of merge x
 * merge patches, which becomes one token; in those with tiles (CLIP) it is a tile, with a row for
 * the class and one for each patch. MiniCPM-V merges twice: windows of 2 x 2 patches become one row
 * between two layers, and 2 x 2 of those a token at the end.
 */
#ifndef TXDA_COMPILE_VISION_H
#define TXDA_COMPILE_VISION_H

#include <stdbool.h>
#include <stdint.h>
#include <cjson/cJSON.h>

#include "error.h"
#include "txda_isa.h"

#define VISION_MAX_LAYERS    256
#define VISION_MAX_DEEP	     16
#define VISION_MAX_PINPOINTS 64

/*
 * Tensor names of a checkpoint, in some with the prefix "model."; %u is the layer. NULL: the family
 * has none.
 */
struct vision_names {
	const char *patch;
	const char *norm1, *norm2;
	const char *qkv, *q, *k, *v, *proj;
	const char *fc1, *fc2; /* the MLP, or: */
	const char *gate, *up, *down;
	const char *positions,
		*class_token;	    /* the table of learned positions, and a row of its own */
	const char *before, *after; /* norms before and after the layers */
	const char *downsample;	    /* a convolution that merges, before the merger */
	const char *merge_norm, *merge_fc1, *merge_fc2;
	const char *merge_proj, *merge_gate, *merge_up, *merge_down; /* the merger of GLM */
	const char *deep_norm, *deep_fc1, *deep_fc2; /* mergers of taps; %u is the tap */
	/* Attention within windows, then an MLP that reduces each to one row. */
	const char *window_norm, *window_q, *window_k, *window_v, *window_proj;
	const char *shrink_norm, *shrink_fc1, *shrink_fc2;
	const char *newline;
};

struct vision_family {
	const char *model_type; /* of config.json */
	const char *text;	/* the text's family; NULL: given by text_config.model_type */
	const char *tower;	/* vision_config.model_type, if it matters */
	const struct vision_names *names;
	bool tiles;  /* units are tiles */
	bool slices; /* units merge twice; pictures are sliced */
	bool rms;    /* norms are RMSNORM, else LAYERNORM with a bias */
	bool patch_bias, qkv_bias, proj_bias, mlp_bias;
	bool windows, deep;
	uint32_t taps; /* of the learned positions; 0: none */
	/* Keys, and their defaults. */
	const char *hidden_key, *depth_key, *heads_key, *act;
	uint32_t depth, hidden, heads, inner, patch, out;
	double eps;
};

struct vision_config {
	const struct vision_family *family; /* NULL: no vision */
	uint32_t depth;			    /* layers that are run */
	uint32_t hidden, heads, inner;
	uint32_t patch, temporal, channels;
	uint32_t merge; /* patches of a unit's side; 1 with tiles */
	uint32_t rows;	/* rows of a unit */
	uint32_t out;	/* elements of an embedding: the text's hidden size */
	uint32_t merge_inner;
	enum txda_activation act, merge_act;
	bool qkv_bias, merge_bias;
	float eps;
	double rope_theta;
	float merge_eps;	       /* of the mergers' norms */
	uint32_t window;	       /* side of a window in units (slices: patches); 0: none */
	uint32_t shrink;	       /* slices: the layer after which windows become rows */
	bool whole[VISION_MAX_LAYERS]; /* layers whose attention covers the whole image */
	uint32_t side; /* of the square of learned positions, or of a tile in patches */
	uint32_t tile; /* side of a tile in pixels; 0: none */
	uint32_t n_deep, deep[VISION_MAX_DEEP]; /* layers whose states are tapped */
	uint32_t n_pinpoints, pinpoints[VISION_MAX_PINPOINTS][2]; /* heights and widths */
	uint32_t image_token;
};

/* The family of a config.json's model_type, or NULL. */
const struct vision_family *vision_family_find(const char *model_type);
/* Adds ", qwen2_vl, …" to what is in @buf. */
void vision_family_list(char *buf, size_t len);

/*
 * Reads vision_config and related keys of a whole config.json. @text_hidden: hidden_size of the
 * text, @vocab its vocabulary.
 */
int vision_parse(const cJSON *json, const struct vision_family *family, uint32_t text_hidden,
		 uint32_t vocab, struct vision_config *ret, struct tool_error *error);

/*
 * mrope_section and mrope_interleaved of the text: pairs of each coordinate, and their arrangement.
 */
struct mrope_config {
	uint32_t section[3]; /* 0: positions have one coordinate */
	bool interleaved;
};
/* @usual: the default sections of a family with interleaved coordinates; else NULL. */
int mrope_parse(const cJSON *text, const uint32_t *usual, struct mrope_config *ret,
		struct tool_error *error);
/* The coordinate of each of @pairs pairs; -EINVAL if the sections do not add up to them. */
int mrope_axes(const struct mrope_config *m, uint32_t pairs, uint32_t *axes,
	       struct tool_error *error);

#endif /* TXDA_COMPILE_VISION_H */
