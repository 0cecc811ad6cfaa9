/* SPDX-License-Identifier: MIT */
/*
 * Inputs of the program `vision` of a case dir besides pixels: the position of each patch, which
 * rows attend to each other, which rows become tokens; and the positions of a prompt's tokens
 * around images. Pure functions; the caller frees the memory.
 *
 * Kinds of towers. MERGE (Qwen, GLM): an image is a grid of patches, merge x merge of which become
 * one token; patches are ordered square by square. TILES (CLIP): an image is a thumbnail of the
 * whole and a grid of tiles, each with a class row before its patches. SLICES (MiniCPM-V): a
 * picture becomes several images, the whole and slices of it, each encoded separately; patches are
 * ordered row by row, merge x merge of them become one token, and windows of 2 x 2 become one row
 * at an intermediate layer.
 */
#ifndef TXDA_IMAGE_TOWER_H
#define TXDA_IMAGE_TOWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cjson/cJSON.h>

#define IMAGE_MAX_PINPOINTS 64

enum image_kind { IMAGE_MERGE, IMAGE_TILES, IMAGE_SLICES };
enum image_positions { IMAGE_NONE, IMAGE_BILINEAR, IMAGE_BICUBIC, IMAGE_TILE, IMAGE_NEAREST };

struct image_tower {
	enum image_kind kind;
	enum image_positions positions; /* learned ones */
	uint32_t patch, frames, channels, merge;
	uint32_t window;    /* side of a window in tokens (SLICES: patches); 0: none */
	uint32_t side;	    /* side of the square of learned positions; of a tile, in patches */
	uint32_t tile;	    /* side of a tile in pixels, some of which no patch may cover */
	uint32_t taps;	    /* 0, 1, 2, 4 or 16 */
	uint32_t deepstack; /* embeddings besides the first, for later layers of the text model */
	uint32_t image_token;
	uint32_t n_pinpoints, pinpoints[IMAGE_MAX_PINPOINTS][2]; /* heights and widths of grids */
	/* Limits of a launch: units (tokens, or tiles), images or tiles, windows, output rows. */
	uint32_t max_units, max_spans, max_windows, max_rows;
};

/*
 * The size of an image. MERGE and SLICES: its grid, height and width in patches, multiples of
 * merge. TILES: height and width of the picture itself, in pixels.
 */
struct image_size {
	uint32_t height, width;
};

/*
 * The images that a picture becomes: the whole and, with SLICES, rows x columns slices, row by row.
 */
struct image_parts {
	struct image_size whole, slice;
	uint32_t rows, columns;
};

static inline uint32_t image_parts_count(const struct image_parts *p)
{
	return 1 + p->rows * p->columns;
}

static inline struct image_size image_part(const struct image_parts *p, uint32_t i)
{
	return i ? p->slice : p->whole;
}

/* The inputs of one launch. */
struct image_plan {
	uint32_t units, rows, spans, windows, tokens;
	uint32_t *order;      /* [rows] MERGE and SLICES: the patch of each row */
	int32_t *positions;   /* [rows][2] MERGE: row and column of its patch */
	int32_t *taps;	      /* [rows][taps] */
	float *tap_weights;   /* likewise */
	int32_t *image_spans; /* [spans][2] */
	int32_t *window_spans;
	int32_t *embed_rows; /* [tokens] */
	/*
	 * SLICES with windows: the images' spans of merged rows, and which rows are averaged,
	 * [rows / 4][4].
	 */
	int32_t *merged_spans, *mean_rows;
	float *mean_weights;
};

/* Reads the object "vision" of a model_info.json. 0, or -EINVAL with @err. */
int image_tower_parse(const cJSON *vision, struct image_tower *ret, char *err, size_t errlen);
/*
 * Whether one that another process has read is what image_tower_parse() could have made; clears
 * what its kind does not use. -EINVAL
 */
int image_tower_check(struct image_tower *t, char *err, size_t errlen);

/* Elements of a patch. */
static inline uint32_t image_patch_elements(const struct image_tower *t)
{
	return t->channels * t->frames * t->patch * t->patch;
}

/* Rows of a unit: patches; of a tile its class row, too. */
static inline uint64_t image_unit_rows(const struct image_tower *t)
{
	return t->kind == IMAGE_TILES ? (uint64_t)t->side * t->side + 1
				      : (uint64_t)t->merge * t->merge;
}

/*
 * Elements of a unit as returned by processors: the planes of a tile, or the patches of a square.
 */
static inline uint64_t image_unit_elements(const struct image_tower *t)
{
	return t->kind == IMAGE_TILES ? (uint64_t)t->channels * t->tile * t->tile
				      : (uint64_t)t->merge * t->merge * image_patch_elements(t);
}

/* TILES: the grid of tiles that an image is cut into. */
struct image_size image_tile_grid(const struct image_tower *t, struct image_size size);

/* TILES: the rows and columns of that grid's patches that show the picture, without its margin. */
struct image_shown {
	uint32_t top, bottom, left, right;
};
struct image_shown image_find_shown(const struct image_tower *t, struct image_size size,
				    struct image_size grid);

/* Tokens of an image in a prompt; 0: a size that the tower does not accept. */
uint64_t image_tokens(const struct image_tower *t, struct image_size size);
/* Number of units of an image: squares of patches, or tiles (TILES); the size is not checked. */
uint64_t image_units(const struct image_tower *t, struct image_size size);

/* -EINVAL: an invalid size; -E2BIG: more than a launch accepts; -ENOMEM. @err has the details. */
int image_plan_make(const struct image_tower *t, const struct image_size *sizes, unsigned n,
		    struct image_plan *ret, char *err, size_t errlen);
void image_plan_free(struct image_plan *p);
/* Memory of the plan of one image, whose size the tower accepts. */
uint64_t image_plan_bytes(const struct image_tower *t, struct image_size size);

/*
 * Fills the input `pixels` from a processor's @pixels: patches one after another (MERGE, SLICES),
 * or the planes of tiles (TILES). @out has plan->rows times image_patch_elements().
 */
void image_plan_pixels(const struct image_tower *t, const struct image_plan *p, const float *pixels,
		       float *out);

/* An input of the program `vision`. */
struct image_input {
	const char *name;
	const void *data;
	size_t bytes;
};
#define IMAGE_INPUTS 10
/*
 * Those of a launch with @pixels, as of image_plan_pixels(), that the tower has. Returns their
 * number.
 */
unsigned image_plan_inputs(const struct image_tower *t, const struct image_plan *p,
			   const float *pixels, struct image_input ret[IMAGE_INPUTS]);

/*
 * Positions of a prompt's tokens, [n][3]: time, row, column. Runs of the image token belong to the
 * images in order. *ret_delta: the difference between a later token's position and its index.
 * -EINVAL: the runs do not match the images.
 */
int image_prompt_positions(const struct image_tower *t, const int32_t *ids, size_t n,
			   const struct image_size *sizes, unsigned n_images, int32_t (*ret)[3],
			   int32_t *ret_delta, char *err, size_t errlen);

#endif /* TXDA_IMAGE_TOWER_H */
