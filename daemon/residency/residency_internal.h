/* SPDX-License-Identifier: MIT */
/* What residency.c (the table, the clients' side), loader.c (its thread) and place.c (chips) share.
 */
#ifndef TXDA_RESIDENCY_INTERNAL_H
#define TXDA_RESIDENCY_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include <txda.h>

#include "residency.h"

#define MAX_NAME 256
#define MAX_PATH 1024
#define MAX_TEXT 512

/* Someone who waits for a load, or is to be told of its end. */
struct waiter {
	struct waiter *next;
	residency_ready_fn *ready;
	void *arg;
	struct residency_model *model;
	int error;	     /* 0: holds a reference to the model */
	char text[MAX_TEXT]; /* of the error */
};

struct waiter_list {
	struct waiter *first, **last;
};

struct residency_model {
	/* Constant. */
	struct residency *residency;
	struct residency_model *next; /* in the order of residency_add() */
	char name[MAX_NAME], path[MAX_PATH];
	bool is_case; /* the path is a case dir, not a Hugging Face directory */
	char draft_path[MAX_PATH]; /* "": none */
	bool draft_is_case;
	bool draft_mtp; /* the model's own layer: draft_path is the model's path */
	unsigned wanted_tp;
	char weights[16]; /* "": as they are */
	uint64_t added_s;

	/* Under the residency's lock. */
	enum residency_state state;
	char case_dir[MAX_PATH];
	char phase[32], error[MAX_TEXT];
	uint64_t progress_done, progress_total;
	bool planned; /* plan is valid */
	struct txda_model_plan plan;
	char draft_case_dir[MAX_PATH];
	struct txda_model_plan draft_plan; /* zero without a draft */
	uint64_t load_turn; /* place in the queue of loads; 0: not in it */
	uint64_t load_ns;
	unsigned holders;
	struct waiter_list waiters;

	/* Set by the loader under the lock, constant while there are holders. */
	struct engine *engine;
	struct engine_limits limits;
	struct txda_group *group;
};

struct residency {
	/* Constant. */
	struct txda_context *context;
	struct residency_options options;
	char cache_dir[MAX_PATH], compiler[MAX_PATH];
	int fd;
	pthread_t loader;
	bool loader_runs;

	pthread_mutex_t lock; /* never held while something takes long */
	pthread_cond_t work;  /* for the loader */
	struct residency_model *models, **last_model;
	unsigned n_models;
	uint64_t turns;			 /* loads that were queued */
	struct residency_model *loading; /* by the loader, now */
	struct waiter_list done;	 /* for residency_dispatch() */
	bool shutdown, ending;
	atomic_bool stop; /* kills a compiler that runs */
};

void waiters_init(struct waiter_list *list);
void waiters_add(struct waiter_list *list, struct waiter *w);

/* Notices that an engine has lost its chips. Locked. */
void model_refresh(struct residency_model *m);
/* Ends the waits for a model; 0 gives each a reference. Locked. */
void model_tell(struct residency_model *m, int error, const char *text);

/* The loader thread, of a struct residency. */
void *loader_main(void *arg);

/*
 * Chooses the chips of a model whose plan is known, and its share of their memory: the group, with
 * one reference, and engine options. Loader thread only, not locked.
 */
int place_model(struct residency_model *m, struct txda_group **ret_group,
		struct engine_options *options, char *err, size_t errlen);

#endif
