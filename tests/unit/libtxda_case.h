/* SPDX-License-Identifier: MIT */
/*
 * A tiny model, made by hand, for tests of libtxda: y = RMSNORM(x) * w, summed over the chips, at
 * chosen rows.
 *
 *   inputs   x F32 [T, 64], rows I32 [R]        output (rank 0)  y F32 [R, 64]
 *   limits   T 16, S 4, R 8, B 4, N 64; 32 tokens a KV block of 8192 bytes (the program has the
 *            slot, but no use for it)
 */
#ifndef LIBTXDA_CASE_H
#define LIBTXDA_CASE_H

#include <stddef.h>
#include <stdint.h>

#define CASE_H	      64
#define CASE_T	      16
#define CASE_R	      8
#define CASE_N	      64
#define CASE_KV_BYTES 8192
#define CASE_SCRATCH  (2 * CASE_T * CASE_H * 4)
#define CASE_PARAM    12544 /* not whole pages */

/* The program of @rank of @tp. free() it. */
void *case_program(unsigned tp, unsigned rank, size_t *ret_bytes);
/* Makes the checksum right again. */
void case_seal(void *program, size_t bytes);
/* w[i] */
float case_weight(unsigned i);
/* model_info.json; free() it. */
char *case_info(unsigned tp);
/* Writes a case dir below $TMPDIR; *ret_path is malloc'ed. Exits on failure. */
void case_write(unsigned tp, char **ret_path);
void case_put(const char *path, const char *name, const void *data, size_t bytes);
void case_remove(char *path);
/* One step with all tokens and rows, always the same; 0 or the first error. */
struct txda_model;
int case_run(struct txda_model *model, float y[CASE_R][CASE_H]);

#endif /* LIBTXDA_CASE_H */
