/* SPDX-License-Identifier: MIT */
/*
 * File names of split GGUF models: NAME-00002-of-00003.gguf is the second of three parts.
 *
 * Threads: any.
 */
#ifndef TXDA_BASE_GGUF_NAME_H
#define TXDA_BASE_GGUF_NAME_H

#include <stdbool.h>
#include <stddef.h>

#define GGUF_MAX_PARTS 4096u

/* The number of parts that @path, or a name, states; 0: not the name of a part. */
unsigned gguf_name_parts(const char *path);
/* Writes the number of @part, from 1 on, into @path, the name of a part. */
void gguf_name_set_part(char *path, unsigned part);
/* Whether both are parts of one model. */
bool gguf_name_same(const char *a, const char *b);
/* Cuts off ".gguf", and the numbers of a part. */
void gguf_name_cut(char *path);

#endif
