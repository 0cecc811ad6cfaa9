/* SPDX-License-Identifier: MIT */
/* Compiles a model to a case dir. One at a time per process. */
#ifndef TXDA_COMPILE_COMPILE_H
#define TXDA_COMPILE_COMPILE_H

#include <signal.h>
#include <stdbool.h>

#include "error.h"
#include "model.h"
#include "options.h"
#include "progress.h"

struct compile_job {
	const struct model *model;
	const char *case_path;
	const char *share; /* a case dir with the same weights, which are linked; or NULL */
	struct compile_options options; /* resolved */
	bool force;			/* replace an existing case dir */
	bool quiet;			/* no notes */
	enum progress_style progress;
	volatile sig_atomic_t *interrupted; /* NULL: never */
};

struct compile_result {
	uint64_t weight_bytes; /* of all chips */
	uint64_t kv_block_bytes, scratch_bytes;
	const char *weights; /* "bf16" */
};

int compile_run(const struct compile_job *job, struct compile_result *ret,
		struct tool_error *error);

/* Prints a program as text: a case dir's, rank by rank, or a kcore.bin. */
int compile_dump(const char *path, struct tool_error *error);

#endif /* TXDA_COMPILE_COMPILE_H */
