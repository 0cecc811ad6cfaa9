/* SPDX-License-Identifier: MIT */
/*
 * Whether a model's files are the same at the end of a compile as at its beginning. Their times do
 * not tell: one write() sets them once, when it begins, and a shared mapping when it likes. So their
 * content is read before the first tensor and after the last.
 */
#ifndef TXDA_COMPILE_CONTENT_H
#define TXDA_COMPILE_CONTENT_H

#include "error.h"
#include "progress.h"
#include "source.h"

struct content;

/* Reads all files of weights, before any of their tensors is used. -EINTR if @p was interrupted. */
int content_read(const struct source *s, const struct progress *p, struct content **ret,
		 struct tool_error *error);
/* -ESTALE: a file has other content now, or was written; the error names it. */
int content_unchanged(const struct content *c, struct tool_error *error);
/* NULL is accepted. */
void content_free(struct content *c);

#endif /* TXDA_COMPILE_CONTENT_H */
