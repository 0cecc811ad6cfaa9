/* SPDX-License-Identifier: MIT */
/* What residency.c (the table, the clients' side), loader.c (its thread) and place.c (chips) share.
 */
#ifndef TXDA_RESIDENCY_INTERNAL_H
#define TXDA_RESIDENCY_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include <txda.h>

#include "keeper.h"
#include "param_dir.h"
#include "residency.h"

struct hostcopy;

#define MAX_NAME 256
#define MAX_PATH 1024
#define MAX_TEXT 512
#define MAX_KEPT (2 * TXDA_MAX_CHIPS_PER_GROUP) /* weights of a model and its draft */

/* What a model's directory is. */
enum source_kind {
	SOURCE_CHECKPOINT, /* a Hugging Face directory, to be compiled */
	SOURCE_CASE,	   /* a case dir */
	SOURCE_PARAM_DIR,  /* a Hugging Face directory that names its case dir (param_dir.h) */
};

struct source {
	char path[MAX_PATH]; /* absolute, without links */
	enum source_kind kind;
	char case_dir[MAX_PATH]; /* "": to be compiled */
	char text_dir[MAX_PATH]; /* where its tokeniser and the like lie; "": in the case dir */
	struct case_facts facts; /* of case_dir */
};

/* Someone who waits for a load, or is to be told of its end. */
struct waiter {
	struct waiter *next;
	residency_ready_fn *ready;
	void *arg;
	struct residency_model *model;
	bool plans;	     /* for the plan alone: holds no reference */
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
	bool needs_compiler;	   /* when it was added: the path was no case dir and named none */
	char draft_path[MAX_PATH]; /* "": none */
	bool draft_mtp;		   /* the model's own layer: draft_path is the model's path */
	unsigned wanted_tp;
	char weights[16];      /* "": as they are */
	char family[MAX_NAME]; /* "": none */
	uint64_t kv_limit;     /* bytes of a chip; 0: none */
	struct residency_chips chips;
	struct residency_model_options options;
	uint64_t added_s;

	/* Under the residency's lock. */
	enum residency_state state;
	char case_dir[MAX_PATH];
	char text_dir[MAX_PATH];
	struct case_facts facts; /* of a case dir that was not compiled for it */
	char phase[32], error[MAX_TEXT];
	uint64_t progress_done, progress_total;
	bool planned; /* plan is valid */
	struct txda_model_plan plan;
	char draft_case_dir[MAX_PATH];
	struct txda_model_plan draft_plan; /* zero without a draft */
	uint64_t load_turn;		   /* place in the queue of loads; 0: not in it */
	uint64_t load_ns;
	unsigned holders;
	struct waiter_list waiters;
	bool plan_only;	       /* the load under way is for the plan alone */
	atomic_bool cancel;    /* the load under way is not wanted any more; kills its compiler */
	bool removed;	       /* out of the table; freed by the loader when nothing is left */
	bool sleeps;	       /* draining: to be asleep then */
	bool forgets;	       /* draining: its weights are kept no longer */
	struct hostcopy *copy; /* asleep */

	/* Set by the loader under the lock, constant while there are holders. */
	struct engine *engine;
	struct engine_limits limits;
	struct txda_group *group;
	struct keeper_entry *kept[MAX_KEPT]; /* the loader's own */
	unsigned n_kept;
	bool adopted;
};

struct residency {
	/* Constant. */
	struct txda_context *context;
	struct residency_options options;
	char cache_dir[MAX_PATH], compiler[MAX_PATH];
	int private_lock; /* of a cache_dir of this process alone; -1: it is not */
	int fd;
	pthread_t loader;
	bool loader_runs;

	pthread_mutex_t lock; /* never held while something takes long */
	pthread_cond_t work;  /* for the loader */
	struct residency_model *models, **last_model;
	unsigned n_models;
	uint64_t turns;			 /* loads that were queued */
	struct residency_model *loading; /* by the loader, now; or freed, then freeing is set */
	bool freeing;
	struct waiter_list done; /* for residency_dispatch() */
	bool shutdown, ending;
};

void waiters_init(struct waiter_list *list);
void waiters_add(struct waiter_list *list, struct waiter *w);
/* Whether someone in the list waits for @m. */
bool waiters_have(const struct waiter_list *list, const struct residency_model *m);

/* Notices that an engine has lost its chips. Locked. */
void model_refresh(struct residency_model *m);
/* Ends the waits for a model; 0 gives each a reference. Locked. */
void model_tell(struct residency_model *m, int error, const char *text);

/*
 * Finds out what a model's directory is now; it may have changed since it was added. -ENOENT,
 * -ENOTDIR, -EINVAL, -EPERM: it cannot be served.
 */
int source_find(const char *path, struct source *ret, char *err, size_t errlen);
/* Whether a case dir, whose plan is known, is what the model's configuration asks for. -EINVAL. */
int source_fits(const struct residency_model *m, const struct source *s,
		const struct txda_model_plan *plan, char *err, size_t errlen);

/* The model of that name, or NULL. Locked. */
struct residency_model *model_find(struct residency *r, const char *name);

/* An engine that nobody holds and that is on its way out, or NULL. Locked. */
struct residency_model *model_leaving(struct residency *r);

/* The loader thread, of a struct residency. */
void *loader_main(void *arg);

/*
 * Chooses the chips of a model whose plan is known, and its share of their memory: the group, with
 * one reference, and engine options. Loader thread only, not locked.
 */
/* -ENOSPC: no group has room now. */
int place_model(struct residency_model *m, struct txda_group **ret_group,
		struct engine_options *options, char *err, size_t errlen);

/* Bytes per chip of a model that is not compiled yet, by its checkpoint's size: an upper bound but
 * for float32 ones. */
uint64_t place_checkpoint_bytes(const struct residency_model *m);
/* Group @i of those where a model for @tp chips may go. */
int place_group(struct residency *r, const struct residency_chips *chips, unsigned tp, unsigned i,
		struct txda_group **ret, char *err, size_t errlen);
/* Whether two groups have a chip in common. */
bool place_shares_chip(struct txda_group *a, struct txda_group *b);

struct room {
	uint64_t weights, scratch, io, kv_block; /* bytes of a chip, with the draft's */
	uint64_t blocks_min, blocks_max;
};
/* Code, queues, what pages round up. */
#define ROOM_OVERHEAD (8ull << 20)
/* What a model takes by its plan. */
void room_of(const struct residency_model *m, struct room *ret);
/* Bytes of its weights that lie on each chip of @group already. Locked. */
uint64_t room_weights_there(const struct residency_model *m, struct txda_group *group);
/* Bytes that it needs at least, on a chip of @group. Locked. */
uint64_t room_need(const struct residency_model *m, struct txda_group *group);
/* Bytes of each chip of @group that kept weights take which would make room for it. Locked or the
 * loader. */
void room_spare(const struct residency_model *m, struct txda_group *group, uint64_t *ret_bytes);

#endif
