/* SPDX-License-Identifier: MIT */
/* Writes model_info.json (docs/case-dir.md). */
#ifndef TXDA_COMPILE_INFO_H
#define TXDA_COMPILE_INFO_H

#include "graph.h"
#include "model.h"

struct chip_info {
	uint64_t kcore_bytes, param_bytes, scratch_bytes, io_bytes, kv_block_bytes;
	uint32_t param_crc32c;
	struct compiled_program vision; /* its sizes */
};

/*
 * Returns the text, to be freed by the caller, or NULL if out of memory. @first is rank 0, for
 * inputs and outputs.
 */
char *info_make(const struct model *m, const struct compile_options *o, const char *weights,
		const struct chip_info *chips, const struct compiled_chip *first);

#endif /* TXDA_COMPILE_INFO_H */
