/* SPDX-License-Identifier: MIT */
/*
 * Names of the files of a GGUF model that is split: NAME-00002-of-00003.gguf is the second of three.
 *
 * Threads: any.
 */
#ifndef TXDA_BASE_GGUF_NAME_H
#define TXDA_BASE_GGUF_NAME_H

#include <stdbool.h>
#include <stddef.h>

#define GGUF_MAX_PARTS 4096u

/* How many parts @path, or a name, says that there are; 0: it is no part's. */
unsigned gguf_name_parts(const char *path);
/* Puts the number of @part, from 1 on, into @path, which is a part's. */
void gguf_name_set_part(char *path, unsigned part);
/* Whether both are parts of one model. */
bool gguf_name_same(const char *a, const char *b);
/* Cuts off ".gguf" and what stands before it of a part. */
void gguf_name_cut(char *path);

#endif
