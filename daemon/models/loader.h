/* SPDX-License-Identifier: MIT */
/*
 * A thread for slow work: it examines directories, runs the compiler, loads and frees engines. It
 * has one job at a time. A job holds all its inputs and results; while it runs it belongs to the
 * thread, except for cancel.
 *
 * A table has several: the first one loads and frees, so that chips have one job at a time; the
 * others do LOAD_PLAN, since a compile may take an hour and others' models must not wait for that.
 *
 * Threads: the event loop's, which owns the loader.
 */
#ifndef TXDA_MODELS_LOADER_H
#define TXDA_MODELS_LOADER_H

#include "models.h"

enum load_kind {
	LOAD_PLAN,   /* finds the case dir, compiling it if necessary, and plans its memory */
	LOAD_ENGINE, /* loads a planned model onto a group, and reads its text side */
	LOAD_FREE,   /* frees the resources of a replica */
	LOAD_KEPT,   /* drops kept weights of models that are not served; has no replica */
	LOAD_LOOK,   /* checks which kept weights can be used; likewise */
};

struct load_job {
	enum load_kind kind;
	struct replica *replica;  /* the replica's owner */
	atomic_bool cancel;	  /* not wanted any more: kills the compiler */
	struct model_spec spec;	  /* LOAD_PLAN, LOAD_ENGINE */
	struct model_found found; /* filled by LOAD_PLAN */
	bool again;		  /* LOAD_PLAN: what the cache has is damaged: compile it again */
	/* Set by LOAD_PLAN, also on errors: the holds of its case dirs in the cache. */
	struct cache_use *use, *draft_use;
	uint64_t cache_releases;      /* LOAD_PLAN: the table's when it began */
	struct holding on_chip;	      /* LOAD_ENGINE: only the group before; LOAD_FREE */
	struct engine_options engine; /* LOAD_ENGINE: max_kv_blocks and what was configured */
	uint64_t spare_need;	      /* drop kept weights until each chip has this free; 0: no */
	bool wants_text;
	struct model_text *text;
	bool sleeps, forgets;  /* LOAD_FREE: weights go to host memory, are not kept any longer */
	struct hostcopy *copy; /* LOAD_ENGINE: freed after loading; LOAD_FREE: freed, or created */
	int error;
	char err[512];
	uint64_t ns; /* duration */
};

/*
 * Also starts the thread. @first: the table's first one, whose cache this one uses, and which is
 * freed after it; NULL: it is the first.
 */
int loader_new(const struct models_options *options, const struct loader *first,
	       struct loader **ret, char *err, size_t errlen);
/* Cancels the job and waits for the thread; loader_take() returns the result. */
void loader_stop(struct loader *l);
void loader_free(struct loader *l); /* NULL is accepted */

/* A zeroed job to be filled in; NULL: the loader is busy. */
struct load_job *loader_job(struct loader *l);
void loader_start(struct loader *l);
/* The current job, for its replica and cancel; NULL: none. */
struct load_job *loader_current(struct loader *l);
int loader_fd(const struct loader *l);
/* The finished job, returned once; NULL: none. Valid until loader_job(). */
struct load_job *loader_take(struct loader *l);
/* Phase and progress from 0 to 1: "compiling", "loading", "tokenizer". */
const char *loader_phase(const struct loader *l, double *ret_progress);

#endif
