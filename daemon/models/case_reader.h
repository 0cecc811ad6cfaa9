/* SPDX-License-Identifier: MIT */
/*
 * Has the model_info.json of case dirs read by a confined process (txdad-text --case), as their
 * owners may be anybody, and checks what it sends. One process reads a file; further reads of the
 * unchanged file take the same result.
 *
 * Functions may block for as long as the process runs. Threads: any.
 * Errors: 0 or -errno with the message in err.
 */
#ifndef TXDA_MODELS_CASE_READER_H
#define TXDA_MODELS_CASE_READER_H

#include <stdbool.h>
#include <stddef.h>

struct image_tower;

/* From now on this process parses no model_info.json itself, nor does libtxda in it. */
void case_reader_use(void);

/* The image encoder of the case dir; *ret_sees is false if it has none. */
int case_reader_tower(const char *case_dir, struct image_tower *ret, bool *ret_sees, char *err,
		      size_t errlen);

#endif /* TXDA_MODELS_CASE_READER_H */
