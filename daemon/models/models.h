/* SPDX-License-Identifier: MIT */
/*
 * The table of models: their configuration, placement on chips, and states.
 *
 * A model runs on one or more groups of chips; each copy is a replica, with its own state. The
 * state of a model is the first of these that one of its replicas is in: ready, draining, lost,
 * loading, compiling, asleep, failed, unloaded.
 *
 *	state      of a replica                              next state
 *	unloaded   not on the chips                          requested: compiling
 *	compiling  waits for its plan, or is being compiled  planned: loading
 *	                                                     error: previous state, else failed
 *	loading    waits for memory, or is being loaded      done: ready; no room: unloaded
 *	                                                     damaged in the cache: compiling, once
 *	                                                     error: previous state, else failed
 *	ready      takes requests                            unload, evicted, idle: draining
 *	                                                     its chips fail: lost
 *	draining   finishes running requests, takes no new   all have ended: unloaded or asleep
 *	asleep     not on the chips, weights in host memory  requested: compiling
 *	lost       its chips failed                          after RETRY_SECONDS: compiling
 *	failed     could not be loaded                       requested by an administrator: compiling
 *
 * The previous state counts only if it was asleep or lost. Unloading a replica that is compiling or loading cancels
 * the load.
 *
 * A load on demand that finds no room evicts the models that have been idle for longest (never a
 * pinned one, never one with running requests), as few as suffice. If only busy ones are in the way
 * it waits for them, up to the load timeout, counted from the end of its plan; after half of that
 * time a model that has been loaded for at least as long is evicted even if it is never idle: its
 * new requests wait for their turn, running ones are finished. A load at start evicts nothing, but
 * waits for models that are being unloaded. models_fit() decides whether a model fits.
 *
 * Requests are distributed among replicas by balance.h.
 *
 * Threads: only the event loop's. Those of loader.h open files, compile, load and free; one gets a
 * job with all it needs, and returns it. The table has no lock.
 *
 * Errors: 0 or -errno; the message in err.
 */
#ifndef TXDA_MODELS_H
#define TXDA_MODELS_H

#include <stdatomic.h>

#include "config.h"
#include "engine.h"
#include "metrics.h"
#include "source.h"

#define MODELS_MAX (2 * CONFIG_MAX_MODELS) /* served, and retired ones with requests */
/*
 * Threads for slow work. Models of one owner (of the directory) are planned, compiled and loaded
 * one after the other, those of different owners in parallel: checkpoints that take an hour to
 * compile delay only their owner's.
 */
#define MODELS_LOADERS	  5
#define MODELS_MAX_GROUPS 64

struct balance;
struct cache_use;
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

enum model_reason { /* reasons why a model was unloaded */
		    MODEL_BY_ADMIN,
		    MODEL_BY_IDLING,
		    MODEL_BY_EVICTION,
		    MODEL_N_REASONS,
};

/* Receiver of the events of an engine request; engine_request.client points to it. */
struct client {
	void (*news)(struct client *c); /* in the event loop's thread; may free the client */
	struct replica *replica;	/* runs the request; set by model_submit() */
};

/* Reason why a waiting request is woken. */
enum model_wake {
	MODEL_WAKE_READY,
	MODEL_WAKE_REFUSED,  /* the model will not come: see its state and error */
	MODEL_WAKE_DEADLINE, /* the request's deadline has passed */
	MODEL_WAKE_TIMEOUT,  /* the load exceeded the load timeout */
	MODEL_WAKE_SHUTDOWN,
};

/* A request that waits for a model. */
struct model_waiter {
	struct model_waiter *next;
	void (*wake)(struct model_waiter *w, enum model_wake why); /* called once; may free it */
	uint64_t deadline_ns;					   /* 0: none */
	uint64_t since_ns;
	bool waits; /* in a model's list */
};

/* A replica's resources on its chips. */
struct holding {
	struct engine *engine; /* NULL: none */
	struct txda_group *group;
	struct engine_limits limits;
	struct keeper_entry *kept[2 * TXDA_MAX_CHIPS_PER_GROUP]; /* its weights and its draft's */
	unsigned n_kept;
	bool adopted; /* its weights were on the chips when the daemon started */
};

struct replica {
	struct served_model *model;
	enum model_state state;
	enum model_state fallback; /* its state after a failed load, or once drained */
	struct holding on_chip;
	struct hostcopy *copy; /* asleep; NULL while it is created, or if that failed */
	struct event *ready_event;
	uint64_t turn;	    /* compiling, loading: its place in the queue */
	uint64_t retry_ns;  /* lost, or a load without room: time of the next attempt */
	uint64_t seek_ns;   /* loading: since when it has been waiting for room */
	uint64_t load_ns;   /* duration of the last load */
	unsigned in_flight; /* engine requests in progress */
	unsigned tries;	    /* consecutive loads without the expected room */
	bool again;	    /* this load has it compiled again, as its weights were damaged */
};

struct served_model {
	struct models *table;
	struct config_model *config; /* its own copy */
	struct model_spec spec;	     /* constant */
	struct model_found found;    /* result of the last examination of its directory */
	/*
	 * Holds of found's case dirs in the cache, from the plan until it is unloaded or has
	 * failed.
	 */
	struct cache_use *use, *draft_use;
	enum model_state state; /* derived from its replicas */
	char error[512];
	struct replica replicas[CONFIG_MAX_REPLICAS]; /* [n_replicas] */
	unsigned n_replicas;
	struct balance *balance;	   /* NULL: only one replica */
	_Atomic(struct model_text *) text; /* not changed while a request uses it */
	struct model_text **old_texts;	   /* [n_old] of directories that have changed */
	unsigned n_old;
	char text_of[1024];	     /* directory that text was read from */
	struct engine_limits limits; /* from the last load: the smallest context of all replicas */

	bool demanded; /* the load was requested: it may evict, and requests wait for it */
	bool pinned;
	bool retired;	  /* not configured any more: removed when nobody uses it */
	bool starting;	  /* the load at the daemon's start */
	bool plan_wanted; /* only a plan, requested by an administrator */
	char plan_error[512];
	int64_t keep_alive; /* idle seconds until it is unloaded; -1: never */
	uint64_t used_ns;   /* when a request last arrived or ended */
	uint64_t demand_ns; /* when the load was requested */
	uint64_t ready_ns;  /* when it was last loaded */
	struct model_waiter *parked, **last_parked;
	unsigned n_parked;
	unsigned users; /* requests that reference it */
	/* Those of them that have not submitted anything yet, or wait for the load to be reported. */
	unsigned expected;

	struct metrics_model metrics;
	struct engine_stats past; /* counters of engines that were freed */
	struct engine_stats told; /* values at the last status line */
	char fingerprint[48];
	int64_t created;
};

/* How the text side (tokeniser, templates) of a model is read. */
struct model_text_ops {
	/*
	 * In the loader's thread. @must_fit: @dir is not the case dir. @stop: aborts it when true.
	 */
	int (*load)(const char *dir, const struct engine_limits *limits,
		    const struct model_spec *spec, bool must_fit, const struct config *config,
		    const atomic_bool *stop, struct model_text **ret, char *err, size_t errlen);
	void (*free)(struct model_text *text); /* NULL is accepted */
	void (*set_context)(struct model_text *text, unsigned max_context);
};

struct models_options {
	struct event_base *base;
	struct txda_context *context; /* referenced */
	const struct config *config;  /* borrowed: current limits and time limits */
	const struct model_text_ops *text;
	const char *cache_dir;	  /* NULL: as cache_find() */
	uint64_t cache_size;	  /* size limit of the cache; 0: none */
	bool private_cache;	  /* the cache is neither read nor kept */
	const char *compiler;	  /* NULL: txda-compile beside this executable, or in PATH */
	unsigned compile_seconds; /* time limit of the compiler; 0: 3600 */
	struct keeper *keeper;	  /* borrowed; NULL: weights are freed with the process */
};

/* The table. Read by anyone, changed only by models.c and replica.c. */
struct models {
	struct models_options options;
	struct served_model *all[MODELS_MAX]; /* [n] */
	unsigned n;
	struct loader *loaders[MODELS_LOADERS]; /* the first one loads, the others plan */
	struct event *loader_events[MODELS_LOADERS];
	struct departure *departures, **last_departure; /* to be freed by the loader */
	uint64_t turns, next_id;
	bool drops_kept; /* the loader should drop kept weights of models that are not served */
	bool looks_kept; /* the loader should check which kept weights can be used */
	bool shutdown;
	uint64_t
		cache_releases; /* how often entries of the cache, or reserved room, were released */
};

int models_new(const struct models_options *options, struct models **ret, char *err, size_t errlen);
/* Frees everything at once; waits for the loader, whose compiler is killed. NULL is accepted. */
void models_free(struct models *t);
/*
 * Used instead when the table is still in use: only kills the compiler and removes files private to
 * this process. NULL is accepted.
 */
void models_end_loaders(struct models *t);
/*
 * Starts no more loads and wakes waiters. Running requests continue, and may submit the rest of
 * their work. Does not wait.
 */
void models_shutdown(struct models *t);
/* Once per second: checks for lost chips, idle models, loads that wait for room. */
void models_check(struct models *t);
/*
 * Call after the models of the start, or of a reload, were added: weights kept for other models are
 * dropped from the next models_pump() on.
 */
void models_settle_kept(struct models *t);
/*
 * Starts pending work, after model_add(): gives the loader its next job, first what must be freed,
 * then loads in the order of their requests.
 */
void models_pump(struct models *t);

#define MODELS_LOOK_MS 30000 /* for the directories of a model */

/*
 * Checks whether every model of a configuration could be served now; blocks. @ret [c->n_models]:
 * the results. False: @err says which could not, with file and line of its setting.
 * Threads: any.
 */
bool models_validate(struct txda_context *context, const struct config *c, struct model_found *ret,
		     char *err, size_t errlen);
/* The lookup parameters of a configured model. */
void models_spec(const struct config_model *c, struct model_spec *ret);

/*
 * Adds a model, which takes over *config and must not have a name in use, and starts to load it if
 * it is not on demand. @found NULL: it cannot be served, for the reason @why; it is MODEL_FAILED
 * until an administrator requests it. -ENOMEM.
 */
int model_add(struct models *t, struct config_model *config, const struct model_found *found,
	      const char *why);
/* Retires a model: it refuses new requests, and is removed after the last running one. */
void model_retire(struct served_model *m);
/* After a reload: retired models, then the others in the order of the settings. */
void models_sort(struct models *t);

/* Requests the model: starts a load if there is none. */
void model_demand(struct served_model *m);
/* Unloads it, into host memory with @sleep; running requests are finished first. */
void model_unload(struct served_model *m, bool sleep, enum model_reason reason);
/*
 * Requests the memory plan (found.planned) without a load: plan_wanted becomes false once it is
 * known, or plan_error says why not.
 */
void model_want_plan(struct served_model *m);
/* Whether a request can be submitted now. */
bool model_is_ready(const struct served_model *m);
/* Whether a request may wait for it: not if it is loaded at start or will not come. */
bool model_may_be_awaited(const struct served_model *m);

/* Waits for the model. -EAGAIN: too many requests do. */
int model_park(struct served_model *m, struct model_waiter *w);
/* Stops waiting; does nothing if it is not waiting. */
void model_unpark(struct served_model *m, struct model_waiter *w);
/* Adds or drops a request's reference to the model. */
void model_use(struct served_model *m);
void model_unuse(struct served_model *m);

/*
 * Submits a request to the most suitable replica; @client gets its callbacks. Errors as
 * engine_submit(). -EIO also when there is no replica any more.
 */
int model_submit(struct served_model *m, struct engine_request *r, struct client *client, char *err,
		 size_t errlen);
/* Cancels a request that was submitted and has not ended. */
void model_cancel(struct engine_request *r);
/* A request on this replica ended; may complete the unloading of the replica. */
void replica_request_ended(struct replica *r);

/* Checks whether its chips are still present. */
void model_check(struct served_model *m);
/* The sum of all replicas' counters, and the mean of what is of a chip. False: none is loaded. */
bool model_stats(const struct served_model *m, struct engine_stats *ret);
unsigned model_in_flight(const struct served_model *m);
/* Bytes of the KV cache on a chip, the mean of the loaded replicas; 0: none is loaded. */
uint64_t model_kv_bytes(const struct served_model *m);
/* Phase and progress of a load: "queued", "compiling", ... and 0 to 1. */
const char *model_phase(const struct served_model *m, double *ret_progress);
/* The index of a replica's chip of that rank; UINT_MAX: unknown. */
unsigned replica_chip(const struct replica *r, unsigned rank);

/* The model of that name (NULL: the first one), or NULL. */
struct served_model *models_find(struct models *t, const char *name);
/*
 * State names of the API: compiling is reported as "loading", with its phase giving the detail;
 * draining as "unloading".
 */
const char *model_state_name(enum model_state state);

enum fit_victims {
	FIT_NOBODY, /* which models may be evicted for it */
	FIT_IDLE,   /* models without requests */
	FIT_BUSY,   /* all models that are not pinned */
};

/* The memory that a load needs and would find. */
struct model_fit {
	bool exact;    /* false: not compiled yet, weight_bytes is the checkpoint's size */
	bool resident; /* it has its memory already */
	bool fits;     /* it fits now */
	unsigned tp;   /* 0: unknown */
	/* Per chip, a draft model included. */
	uint64_t weight_bytes, scratch_bytes, io_bytes, overhead_bytes;
	uint64_t kv_block_bytes, kv_blocks_min, kv_blocks_max; /* required, useful at most */
	uint64_t need_bytes;				       /* with kv_blocks_min */
	unsigned n_groups;
	struct fit_group {
		unsigned n_chips, chips[TXDA_MAX_CHIPS_PER_GROUP];
		uint64_t free_bytes, total_bytes; /* of the chip with the least free memory */
		uint64_t bare_bytes;		  /* free memory if kept weights were dropped */
		uint64_t spare_bytes;		  /* size of these, on the chip with the most */
		uint64_t there_bytes;		  /* of its own weights, on each chip */
		uint64_t need_bytes; /* less than above if its weights are already there */
		unsigned models;     /* that use one of its chips */
		bool lost, taken;    /* a chip failed; another replica is there */
		bool waits;	     /* its weights are kept there and unused */
		bool fits;
	} groups[MODELS_MAX_GROUPS];
	unsigned best; /* fits: the group it is placed on */
	/*
	 * !fits: the models that have to be evicted for it, as few as suffice; 0: none would help
	 */
	struct served_model *victims[MODELS_MAX];
	unsigned n_victims;
};
/*
 * Does it fit? 0: it does, or after its victims are evicted. -ENOSPC: it does not, @err has value
 * and limit. -EIO: every group has lost a chip; -ENODEV: there is no group for it, or each has a
 * replica. *ret is filled in any case. @r: the replica to be loaded; NULL: one that is not placed
 * yet. Reads the chips' memory state, and no files.
 */
int models_fit(struct served_model *m, const struct replica *r, enum fit_victims who,
	       struct model_fit *ret, char *err, size_t errlen);

#endif
