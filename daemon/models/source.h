/* SPDX-License-Identifier: MIT */
/*
 * Resolves a model's directory: a checkpoint to be compiled, a case dir, or a checkpoint that names
 * its case dir (param_dir.h); and its draft's.
 *
 * Functions open files and may block, as long as a file system does not answer.
 * Threads: any.
 * Errors: 0 or -errno with the message in err.
 */
#ifndef TXDA_MODELS_SOURCE_H
#define TXDA_MODELS_SOURCE_H

#include <sys/types.h>
#include <txda.h>

#include "param_dir.h"

#define SOURCE_PATH 1024

/* The requested form of a model. 0, "" and false: the model's own. */
struct model_spec {
	char path[SOURCE_PATH];	 /* as configured */
	char draft[SOURCE_PATH]; /* "": none; "mtp": the model's own prediction layer */
	unsigned tp;
	char weights[16];
	bool kv_int8, whole_experts, ignore_unused;
	char tool_parser[32], reasoning_parser[32];
};

/* Location and memory needs. */
struct model_found {
	char path[SOURCE_PATH];	    /* absolute, without links; "": not resolved yet */
	char case_dir[SOURCE_PATH]; /* "": to be compiled */
	char text_dir[SOURCE_PATH]; /* of its tokeniser and the like */
	struct case_facts facts;    /* directory of a case dir that was not compiled for it */
	uid_t owner;		    /* of path */
	bool compiles;		    /* it is a checkpoint */
	bool planned;		    /* plan is valid, and draft_plan of a model with a draft */
	struct txda_model_plan plan;
	uint64_t checkpoint_bytes; /* per chip: the checkpoint's size, until it is planned */
	char draft_path[SOURCE_PATH], draft_case_dir[SOURCE_PATH];
	struct txda_model_plan draft_plan; /* zero without a draft */
	bool draft_compiles;
	uint64_t draft_bytes; /* of the draft's checkpoint; 0: it is a layer of the model */
};

/*
 * Resolves the directories again, and plans case dirs. A model that has to be compiled has no case
 * dir yet. -ENOENT, -ENOTDIR, -EINVAL: not a model's directory, or not as requested. -EPERM: the
 * case dir that it names, or a link on the path, does not belong to its owner.
 */
int source_look(struct txda_context *context, const struct model_spec *spec,
		struct model_found *ret, char *err, size_t errlen);
/*
 * The same, but does not wait longer than @ms for a file system that does not answer: -ETIMEDOUT.
 * Then a thread remains until it does, with a reference to @context.
 */
int source_look_within(struct txda_context *context, const struct model_spec *spec, unsigned ms,
		       struct model_found *ret, char *err, size_t errlen);
/* Whether the draft's plan matches the model's. -EINVAL */
int source_draft_fits(const struct model_found *found, char *err, size_t errlen);

#endif
