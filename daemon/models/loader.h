/* SPDX-License-Identifier: MIT */
/*
 * The thread that does what takes long: it looks at directories, runs the compiler, loads engines
 * and frees them. It has one job at a time. A job holds all that it needs and all that came of it;
 * while it runs it is the thread's, but for cancel.
 *
 * Threads: the event loop's, which owns the loader.
 */
#ifndef TXDA_MODELS_LOADER_H
#define TXDA_MODELS_LOADER_H

#include "models.h"

enum load_kind {
	LOAD_PLAN,   /* finds the case dir, compiling it if need be, and plans its memory */
	LOAD_ENGINE, /* loads a planned model onto a group, and reads its text side */
	LOAD_FREE,   /* frees what a replica had */
};

struct load_job {
	enum load_kind kind;
	struct replica *replica;      /* the owner's */
	atomic_bool cancel;	      /* not wanted any more: kills the compiler */
	struct model_spec spec;	      /* LOAD_PLAN, LOAD_ENGINE */
	struct model_found found;     /* LOAD_PLAN fills it */
	struct holding on_chip;	      /* LOAD_ENGINE: only the group before; LOAD_FREE */
	struct engine_options engine; /* LOAD_ENGINE: max_kv_blocks and what was configured */
	uint64_t spare_need; /* kept weights go until each chip has so much; 0: they stay */
	bool wants_text;
	struct model_text *text;
	bool sleeps, forgets;  /* LOAD_FREE: weights go to host memory, are kept no longer */
	struct hostcopy *copy; /* LOAD_ENGINE: freed when that is done; LOAD_FREE: freed, or made */
	int error;
	char err[512];
	uint64_t ns; /* how long it took */
};

/* Also starts the thread. */
int loader_new(const struct models_options *options, struct loader **ret, char *err, size_t errlen);
/* Cancels the job and waits for the thread; loader_take() gives what came of it. */
void loader_stop(struct loader *l);
void loader_free(struct loader *l); /* NULL is accepted */

/* The job to be filled, zeroed; NULL: the loader is busy. */
struct load_job *loader_job(struct loader *l);
void loader_start(struct loader *l);
/* The job under way, for its replica and cancel; NULL: none is. */
struct load_job *loader_current(struct loader *l);
int loader_fd(const struct loader *l);
/* The job that is done, once; NULL: none is. It stays valid until loader_job(). */
struct load_job *loader_take(struct loader *l);
/* "compiling", "loading", "tokenizer", and how far that is, 0 to 1. */
const char *loader_phase(const struct loader *l, double *ret_progress);

#endif
