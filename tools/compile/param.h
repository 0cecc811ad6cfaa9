/* SPDX-License-Identifier: MIT */
/*
 * param.bin of one chip: first a list of its entries and their offsets, then one pass that packs
 * and writes it.
 *
 * Tiles are packed panel by panel by a few threads into a ring of buffers and written in order with
 * the checksum, so that memory use is a few buffers whatever the model's size.
 */
#ifndef TXDA_COMPILE_PARAM_H
#define TXDA_COMPILE_PARAM_H

#include <stdbool.h>
#include <stdint.h>

#include "error.h"
#include "progress.h"
#include "source.h"
#include "txda_isa.h"

/*
 * Rows [row, row + rows) of a source, or @rows rows at a distance, and its columns from @col on:
 * one piece of a fused or sharded weight.
 */
struct param_part {
	struct source_tensor source;
	uint64_t row, rows, col;
	uint64_t row_by; /* distance between these rows; 0: 1 */
};

/*
 * A weight [n, k] in tiles: its parts below each other, then zeros. TILE32_GATED: two parts of n /
 * 2 rows. Several matrices follow one another, each with its own @n_parts parts.
 */
struct param_tiles {
	const char *name;
	uint8_t dtype, layout;
	uint16_t group;
	bool keep; /* codes and scales of the parts are kept */
	uint32_t n, k;
	uint32_t matrices; /* 0: one */
	unsigned n_parts;
	const struct param_part *part; /* [matrices][n_parts] */
	/* Only with @keep: element k of each row is the part's column @columns[matrix][k], or
	 * nothing for TXDA_NONE. NULL: in order. */
	const uint32_t *columns;
};

struct param_entry;

struct param_list {
	struct param_entry *entries;
	uint32_t n;
	size_t room;
	uint64_t bytes; /* of the file so far */
	int failed;	/* -ENOMEM: an entry could not be added */
};

/* Both return the offset in the file: a multiple of 64, of 4096 for large ones. Parts and columns
 * are copied. */
uint64_t param_add_tiles(struct param_list *list, const struct param_tiles *tiles);
/* Unchanged bytes; copied. */
uint64_t param_add_bytes(struct param_list *list, const char *name, const void *data,
			 uint64_t bytes);
/* Rounds the file up and returns its size. */
uint64_t param_finish(struct param_list *list);
void param_free(struct param_list *list);

/*
 * Writes the whole file to @fd and returns its CRC-32C. @threads workers pack tiles (0: one per
 * CPU). -EINTR if @progress was interrupted.
 */
int param_write(const struct param_list *list, int fd, unsigned threads, struct progress *progress,
		uint32_t *ret_crc, struct tool_error *error);

/* One panel of @tiles (counted over all matrices) into @out (txda_tile_panel_bytes()). @block is
 * workspace: PACK_K rows. For param_write() and tests. */
int param_make_panel(const struct param_tiles *tiles, uint64_t panel, float (*block)[TXDA_TILE_N],
		     uint8_t *out, struct tool_error *error);

#endif /* TXDA_COMPILE_PARAM_H */
