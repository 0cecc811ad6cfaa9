/* SPDX-License-Identifier: MIT */
/*
 * The table of models: which are served, on which chips, and in which state.
 *
 * A model runs on one or more groups of chips; each copy is a replica, with a state of its own. The
 * state of a model is the first of these that one of its replicas is in: ready, draining, lost,
 * loading, compiling, asleep, failed, unloaded.
 *
 *	state      of a replica                              what leads on
 *	unloaded   off the chips                             asked for: compiling
 *	compiling  its plan is wanted: its turn, or the      planned: loading
 *	           compiler                                  error: where it came from, else failed
 *	loading    waits for memory, or is being loaded      done: ready; no room: unloaded
 *	                                                     error: where it came from, else failed
 *	ready      takes requests                            unload, evicted, idle: draining
 *	                                                     its chips fail: lost
 *	draining   running requests end, no new ones come    the last has ended: unloaded or asleep
 *	asleep     off the chips, weights in host memory     asked for: compiling
 *	lost       its chips failed                          after RETRY_SECONDS: compiling
 *	failed     could not be loaded                       asked for by an administrator: compiling
 *
 * "Where it came from" is asleep or lost. Unloading a replica that is compiling or loading calls the
 * load off.
 *
 * A load that was asked for and finds no room takes those models off the chips that have been idle
 * for longest (never a pinned one, never one with running requests), the fewest that suffice. Where
 * only busy ones are in the way it waits for them, for as long as the load timeout says; after half
 * of that a model that has been there for as long goes even if it is never idle: its new requests
 * wait for their turn, those that run end. A load at the start takes nobody off, but waits for those
 * that are on their way out. models_fit() is what answers whether a model fits.
 *
 * Requests are spread among replicas by balance.h.
 *
 * Threads: the event loop's alone. One loader thread (loader.h) opens files, compiles, loads and
 * frees; it gets a job with all that it needs, and gives it back. There is no lock on the table.
 *
 * Errors: 0 or -errno; the words in err.
 */
#ifndef TXDA_MODELS_H
#define TXDA_MODELS_H

#include <stdatomic.h>

#include "config.h"
#include "engine.h"
#include "metrics.h"
#include "source.h"

#define MODELS_MAX	  (2 * CONFIG_MAX_MODELS) /* served, and retired whose requests end */
#define MODELS_MAX_GROUPS 64

struct balance;
struct event;
struct event_base;
struct hostcopy;
struct keeper;
struct keeper_entry;
struct loader;
struct model_text;
struct models;

enum model_state {
	MODEL_UNLOADED,
	MODEL_COMPILING,
	MODEL_LOADING,
	MODEL_READY,
	MODEL_DRAINING,
	MODEL_ASLEEP,
	MODEL_LOST,
	MODEL_FAILED,
	MODEL_N_STATES,
};

enum model_reason { /* why a model went off the chips */
		    MODEL_BY_ADMIN,
		    MODEL_BY_IDLING,
		    MODEL_BY_EVICTION,
		    MODEL_N_REASONS,
};

/* Who gets the events of an engine request: what engine_request.client points to. */
struct client {
	void (*news)(struct client *c); /* in the event loop's thread; may free the client */
	struct replica *replica;	/* on which the request runs; set by model_submit() */
};

/* Why a request that waits for a model goes on. */
enum model_wake {
	MODEL_WAKE_READY,
	MODEL_WAKE_REFUSED,  /* the model will not come: its state and error say why */
	MODEL_WAKE_DEADLINE, /* its own time is over */
	MODEL_WAKE_TIMEOUT,  /* the load takes longer than the load timeout */
	MODEL_WAKE_SHUTDOWN,
};

/* Who waits for a model. */
struct model_waiter {
	struct model_waiter *next;
	void (*wake)(struct model_waiter *w, enum model_wake why); /* once; may free it */
	uint64_t deadline_ns;					   /* 0: none */
	uint64_t since_ns;
	bool waits; /* in a model's list */
};

/* What a replica holds of its chips. */
struct holding {
	struct engine *engine; /* NULL: nothing */
	struct txda_group *group;
	struct engine_limits limits;
	struct keeper_entry *kept[2 * TXDA_MAX_CHIPS_PER_GROUP]; /* its weights and its draft's */
	unsigned n_kept;
	bool adopted; /* its weights were there when the daemon started */
};

struct replica {
	struct served_model *model;
	enum model_state state;
	enum model_state fallback; /* what it is when a load fails, or when it is drained */
	struct holding on_chip;
	struct hostcopy *copy; /* asleep; NULL while it is made, or when it could not be */
	struct event *ready_event;
	uint64_t turn;	    /* compiling, loading: its place in the queue */
	uint64_t retry_ns;  /* lost, and a load that found no room: when it is tried again */
	uint64_t load_ns;   /* how long the last load took */
	unsigned in_flight; /* engine requests that have not ended */
	unsigned tries;	    /* loads that found no room where there was some, in a row */
};

struct served_model {
	struct models *table;
	struct config_model *config; /* its own */
	struct model_spec spec;	     /* constant */
	struct model_found found;    /* as of the last look at its directory */
	enum model_state state;	     /* of its replicas */
	char error[512];
	struct replica replicas[CONFIG_MAX_REPLICAS]; /* [n_replicas] */
	unsigned n_replicas;
	struct balance *balance;	   /* NULL: one replica */
	_Atomic(struct model_text *) text; /* constant while a request has it */
	struct model_text **old_texts;	   /* [n_old]: of directories that changed */
	unsigned n_old;
	char text_of[1024];	     /* directory that text was read from */
	struct engine_limits limits; /* of the last load, the least context of all replicas */

	bool demanded; /* the load was asked for: it may evict, and requests wait for it */
	bool pinned;
	bool retired;	  /* no longer configured: goes when nobody uses it */
	bool starting;	  /* the load of the daemon's start */
	bool plan_wanted; /* a plan alone: by an administrator */
	char plan_error[512];
	int64_t keep_alive; /* seconds without a request until it goes; -1: for ever */
	uint64_t used_ns;   /* when a request last came or ended */
	uint64_t demand_ns; /* when the load was asked for */
	uint64_t ready_ns;  /* when it was last loaded */
	struct model_waiter *parked, **last_parked;
	unsigned n_parked;
	unsigned users;	   /* requests that refer to it */
	unsigned expected; /* of these, the ones that have not given the engine anything yet */

	struct metrics_model metrics;
	struct engine_stats past; /* counters of engines that are gone */
	struct engine_stats told; /* as of the last line on what goes on */
	char fingerprint[48];
	int64_t created;
};

/* How the text side of a model is read: tokeniser, templates. */
struct model_text_ops {
	/* In the loader's thread. @must_fit: @dir is not the case dir. @stop: ends it when true. */
	int (*load)(const char *dir, const struct engine_limits *limits,
		    const struct model_spec *spec, bool must_fit, const struct config *config,
		    const atomic_bool *stop, struct model_text **ret, char *err, size_t errlen);
	void (*free)(struct model_text *text); /* NULL is accepted */
	void (*set_context)(struct model_text *text, unsigned max_context);
};

struct models_options {
	struct event_base *base;
	struct txda_context *context; /* referenced */
	const struct config *config;  /* borrowed: limits and time limits, as they are now */
	const struct model_text_ops *text;
	const char *cache_dir;	  /* NULL: as cache_find() */
	uint64_t cache_size;	  /* limit of the cache; 0: none */
	bool private_cache;	  /* nothing is taken from the cache, and nothing stays in it */
	const char *compiler;	  /* NULL: txda-compile beside this executable, or in PATH */
	unsigned compile_seconds; /* longest run of the compiler; 0: 3600 */
	struct keeper *keeper;	  /* borrowed; NULL: weights go with the process */
};

/* The table. Read by others, changed by models.c and replica.c alone. */
struct models {
	struct models_options options;
	struct served_model *all[MODELS_MAX]; /* [n] */
	unsigned n;
	struct loader *loader;
	struct event *loader_event;
	struct departure *departures, **last_departure; /* to be freed by the loader */
	uint64_t turns, next_id;
	bool shutdown;
};

int models_new(const struct models_options *options, struct models **ret, char *err, size_t errlen);
/* Ends everything at once; waits for the loader, whose compiler is killed. NULL is accepted. */
void models_free(struct models *t);
/* In place of that, where somebody uses the rest still: no compiler is left running, nor files that
 * are this process's alone. NULL is accepted. */
void models_end_loader(struct models *t);
/* No more loads; who waits is woken. Requests that run go on, and may submit what is left of them.
 * Does not wait. */
void models_shutdown(struct models *t);
/* Once a second: chips that are lost, models that idle, loads that wait for room. */
void models_check(struct models *t);
/* After the models of the start were added: what is kept of others is given up. */
void models_settle_kept(struct models *t);
/* Begins what there is to do, after model_add(): the loader gets its next job, what is to be freed
 * first, then loads in the order in which they were asked for. */
void models_pump(struct models *t);

/*
 * Looks whether every model of a configuration could be served now, for as long as that takes. @ret
 * [c->n_models]: what was found. False: @err says which could not, and on which line of which file
 * it is. Threads: any.
 */
bool models_validate(struct txda_context *context, const struct config *c, struct model_found *ret,
		     char *err, size_t errlen);
/* How a configured model is looked for. */
void models_spec(const struct config_model *c, struct model_spec *ret);

/*
 * Adds a model, which takes over *config and has no name that is taken, and begins to load it if it
 * is to be loaded at once. @found NULL: it cannot be served, as @why says; it is MODEL_FAILED until
 * an administrator asks for it. -ENOMEM.
 */
int model_add(struct models *t, struct config_model *config, const struct model_found *found,
	      const char *why);
/* No longer served: refuses new requests, and goes with the last one that runs. */
void model_retire(struct served_model *m);

/* Asks for the model: begins a load if there is none. */
void model_demand(struct served_model *m);
/* Takes it off the chips, into host memory with @sleep; running requests end first. */
void model_unload(struct served_model *m, bool sleep, enum model_reason reason);
/* Wants found.planned to be known, without a load: plan_wanted is false again once it is, or
 * plan_error says why not. */
void model_want_plan(struct served_model *m);
/* Whether a request can be submitted now. */
bool model_is_ready(const struct served_model *m);
/* Whether a request may wait for it: not for one that loads by itself or does not come. */
bool model_may_be_awaited(const struct served_model *m);

/* Waits for the model. -EAGAIN: too many do. */
int model_park(struct served_model *m, struct model_waiter *w);
/* No longer; nothing to do if it does not wait. */
void model_unpark(struct served_model *m, struct model_waiter *w);
/* A request refers to the model, and no longer. */
void model_use(struct served_model *m);
void model_unuse(struct served_model *m);

/*
 * Submits a request to the replica that suits it; @client gets its callbacks. Errors as
 * engine_submit(). -EIO also when no replica is there any more.
 */
int model_submit(struct served_model *m, struct engine_request *r, struct client *client, char *err,
		 size_t errlen);
/* Cancels a request that was submitted and has not ended. */
void model_cancel(struct engine_request *r);
/* A request on this replica ended; may take the replica off its chips. */
void replica_request_ended(struct replica *r);

/* Looks whether its chips are still there. */
void model_check(struct served_model *m);
/* All replicas' counters together. False: none is loaded. */
bool model_stats(const struct served_model *m, struct engine_stats *ret);
unsigned model_in_flight(const struct served_model *m);
/* Bytes of the KV cache on each chip of the first replica; 0: not loaded. */
uint64_t model_kv_bytes(const struct served_model *m);
/* Of a load: "queued", "compiling", ... and how far it is, 0 to 1. */
const char *model_phase(const struct served_model *m, double *ret_progress);
/* The index of a replica's chip of that rank; UINT_MAX: not known. */
unsigned replica_chip(const struct replica *r, unsigned rank);

/* The model of that name (NULL: the first one), or NULL. */
struct served_model *models_find(struct models *t, const char *name);
/* Of the API: compiling is "loading" there, as its phase tells the rest; draining is "unloading". */
const char *model_state_name(enum model_state state);

enum fit_victims {
	FIT_NOBODY, /* may go for it */
	FIT_IDLE,   /* models without requests */
	FIT_BUSY,   /* all that are not pinned */
};

/* What a load would take and find. */
struct model_fit {
	bool exact;    /* false: not compiled yet, weight_bytes is the checkpoint's size */
	bool resident; /* it has its memory already */
	bool fits;     /* now */
	unsigned tp;   /* 0: not known yet */
	/* Per chip, a draft model included. */
	uint64_t weight_bytes, scratch_bytes, io_bytes, overhead_bytes;
	uint64_t kv_block_bytes, kv_blocks_min, kv_blocks_max; /* it needs, it can use */
	uint64_t need_bytes;				       /* with kv_blocks_min */
	unsigned n_groups;
	struct fit_group {
		unsigned n_chips, chips[TXDA_MAX_CHIPS_PER_GROUP];
		uint64_t free_bytes, total_bytes; /* of the chip that has least free */
		uint64_t bare_bytes;		  /* free without what kept weights take */
		uint64_t spare_bytes;		  /* what these take, where it is most */
		uint64_t there_bytes;		  /* of its own weights, on each chip */
		uint64_t need_bytes; /* less than above where its weights are already */
		unsigned models;     /* that use one of its chips */
		bool lost, taken;    /* a chip failed; a replica is there */
		bool waits;	     /* its weights are kept there, and nobody uses them */
		bool fits;
	} groups[MODELS_MAX_GROUPS];
	unsigned best; /* fits: which group it goes to */
	/* !fits: the models that have to go for it, the fewest that suffice; 0: none would help */
	struct served_model *victims[MODELS_MAX];
	unsigned n_victims;
};
/*
 * Does it fit? 0: it does, or after its victims went. -ENOSPC: it does not, @err says value and
 * limit. -EIO: every group has lost a chip; -ENODEV: there is no group for it, or each has a
 * replica. *ret is filled in any case. @r: the replica that is to be loaded; NULL: one that has no
 * place yet. Looks at the chips' memory, and at no file.
 */
int models_fit(struct served_model *m, const struct replica *r, enum fit_victims who,
	       struct model_fit *ret, char *err, size_t errlen);

#endif
