/* SPDX-License-Identifier: MIT */
/*
 * Tensors that a source has and no program uses. Nothing is left out without a word, also of kinds
 * that nobody has thought of: what source_find() was never asked for is unused, and unless it is of
 * a kind that is known to change no result (a list in unused.c) it may change results, and is an
 * error.
 */
#ifndef TXDA_COMPILE_UNUSED_H
#define TXDA_COMPILE_UNUSED_H

#include "model.h"

/*
 * Call it when the programs of all chips are built. Writes a note that names what is unused to
 * @note, "" if nothing is. -ENOTSUP: some of it may change results, and @o does not ignore that.
 * The program mtp answers for the tensors of its layer, other programs for all others.
 */
int unused_check(const struct model *m, const struct compile_options *o, char *note, size_t len,
		 struct tool_error *error);

#endif /* TXDA_COMPILE_UNUSED_H */
