/* SPDX-License-Identifier: MIT */
/*
 * The models that this daemon serves, and which of them are on the chips: brings each from the
 * table of residency to readiness and off again, hands out the engine's news, and gets over the
 * loss of chips.
 *
 *	unloaded ── asked for by a request or an administrator ──► loading ──► ready
 *	asleep   ──'                                                 │          │ idle for long, evicted,
 *	   ▲                                                      failed        ▼ or told to go
 *	   └───────────────────────────────────────────────────────────────  unloading
 *	ready ── all its chips failed, tried again ──► lost ──► ready
 *
 * A load that was asked for and has no room lets the models go that have been idle for longest
 * (never a pinned one, never one with running requests), the fewest that suffice. Where only busy
 * ones are in the way it waits for them, for as long as --load-timeout says; after half of that a
 * model that has been there for as long goes even if it is never idle: its new requests wait for
 * their turn, those that run end. A load at the start lets nobody go.
 *
 * A model may run on several groups of chips (replicas). Requests are spread among them by
 * balance.h; a replica whose chips fail goes and comes alone.
 *
 * Threads: the event loop's; the text side may be read by the pool's threads.
 */
#ifndef TXDA_SERVER_MODELS_H
#define TXDA_SERVER_MODELS_H

#include <stdatomic.h>

#include "balance.h"
#include "client.h"
#include "config.h"
#include "metrics.h"
#include "model_text.h"
#include "textpool.h"

struct event;
struct exchange;
struct residency_model;
struct residency_plan;
struct server;
struct txda_context;

enum model_state {
	MODEL_UNLOADED, /* loaded when it is asked for; error: why it is not, if it was to be */
	MODEL_LOADING,
	MODEL_READY,
	MODEL_UNLOADING, /* running requests end */
	MODEL_ASLEEP,	 /* its weights are in host memory */
	MODEL_FAILED,	 /* could not be loaded at all */
	MODEL_LOST,	 /* its chips failed; tried again from time to time */
	MODEL_N_STATES,
};

enum model_reason { /* why a model went off the chips */
		    MODEL_BY_ADMIN,
		    MODEL_BY_IDLING,
		    MODEL_BY_EVICTION,
		    MODEL_N_REASONS,
};

enum replica_state {
	REPLICA_OUT,
	REPLICA_LOADING,
	REPLICA_NO_ROOM, /* waits until there is room */
	REPLICA_READY,
	REPLICA_LOST, /* its requests end, then it is tried again */
};

/* A copy of a model on a group of chips. */
struct replica {
	struct served_model *model;
	char name[256]; /* in the table of residency */
	enum replica_state state;
	struct residency_model *held;
	struct engine *engine;
	struct event *ready_event, *retry_event;
	unsigned in_flight; /* engine requests that have not ended */
	unsigned tries;	    /* loads that found no room, in a row */
	bool lost;	    /* it had chips that failed */
};

struct served_model {
	struct server *server;
	struct config_model *config; /* its own */
	enum model_state state;
	char error[512];
	struct replica replicas[CONFIG_MAX_REPLICAS]; /* [n_replicas] */
	unsigned n_replicas;
	struct balance *balance;	   /* NULL: one replica */
	_Atomic(struct model_text *) text; /* constant while an exchange has it */
	struct model_text **old_texts;	   /* [n_old]: of directories that changed */
	unsigned n_old;
	struct engine_limits limits; /* of the last load */
	struct {
		struct textpool_job job;
		bool in_pool, must_fit;
		char dir[1024]; /* of text, or of the one that is read */
		char tool_parser[32], reasoning_parser[32];
		struct engine_limits limits;
		struct model_text *text;
		char err[256];
		int result;
	} load;

	bool demanded; /* the load was asked for: it may evict, and requests wait for it */
	bool pinned;
	bool sleeps;	    /* unloading: to be asleep then */
	bool retired;	    /* no longer configured: goes when nobody uses it */
	bool starting;	    /* the load of the daemon's start */
	int64_t keep_alive; /* seconds without a request until it goes; -1: for ever */
	uint64_t used_ns;   /* when a request last came or ended */
	uint64_t demand_ns; /* when the load was asked for */
	uint64_t ready_ns;  /* when it was last loaded */
	struct exchange *parked, **last_parked; /* that wait for the load */
	unsigned n_parked;
	unsigned users;	   /* exchanges that refer to it */
	unsigned expected; /* of these, the ones that have not given the engine anything yet */

	enum model_state verdict; /* of a load: what it is when no replica came of it */
	struct metrics_model metrics;
	struct engine_stats past; /* counters of engines that are gone */
	struct engine_stats told; /* as of the last line on what goes on */
	char fingerprint[48];
	int64_t created;
};

/*
 * Whether every model of a configuration could be served now; @err says which one could not, and on
 * which line of which file it is. Looks at files, for as long as that takes. Threads: any.
 */
bool models_validate(struct txda_context *context, const struct config *c, char *err,
		     size_t errlen);

/*
 * Adds a model, which takes over *config and has no name that is taken, and begins to load it if it
 * is to be loaded at once. One that cannot be served is MODEL_FAILED, as the log says, until it is
 * asked for again. -ENOMEM.
 */
int model_add(struct server *s, struct config_model *config);
/* No longer served: refuses new requests, and goes with the last one that runs. */
void model_retire(struct served_model *m);
/* Lets go of everything, now. */
void model_free(struct served_model *m);

/* Asks for the model: begins a load if there is none. */
void model_demand(struct served_model *m);
/* Takes it off the chips, into host memory with @sleep; running requests end first. */
void model_unload(struct served_model *m, bool sleep, enum model_reason reason);
/* Ends the requests that run on it. */
void model_abort(struct served_model *m, const char *why);
/* Whether a request can be submitted now. */
bool model_is_ready(const struct served_model *m);
/* What a load would take, and who would have to go for it: as residency_make_room(). @ret_names:
 * [RESIDENCY_MAX_GROUPS] the victims' names. */
int model_plan(struct served_model *m, struct residency_plan *ret, const char **ret_names,
	       char *err, size_t errlen);

/* Lets an exchange wait for the model: exchange_go_on() is called when it is ready, or
 * exchange_fail(). -EAGAIN: too many wait. */
int model_park(struct served_model *m, struct exchange *x);
/* Takes it from that list, if it is there. */
void model_unpark(struct served_model *m, struct exchange *x);
/* An exchange refers to the model, and no longer. */
void model_use(struct served_model *m);
void model_unuse(struct served_model *m);

/*
 * Submits a request to the replica that suits it; @client gets its news. Errors as
 * engine_submit(). -EAGAIN also when no replica is there any more.
 */
int model_submit(struct served_model *m, struct engine_request *r, struct client *client, char *err,
		 size_t errlen);
/* Cancels a request that was submitted and has not ended. */
void model_cancel(struct engine_request *r);
/* A request on this replica ended; may take the replica off its chips. */
void replica_request_ended(struct replica *r);

/* Once a second: chips that are lost, models that idle, loads that wait for room. */
void models_check(struct server *s);
/* Looks whether its chips are still there. */
void model_check(struct served_model *m);
/* All replicas' counters together. False: none is loaded. */
bool model_stats(const struct served_model *m, struct engine_stats *ret);
unsigned model_in_flight(const struct served_model *m);

/* The model of that name (NULL: the first one), or NULL. */
struct served_model *models_find(struct server *s, const char *name);
/* "a, b, c", cut to fit. */
void models_names(struct server *s, char *buf, size_t len);
const char *model_state_name(enum model_state state);
/* Why it does not answer, as an error for clients. */
void model_unavailable(const struct served_model *m, struct api_error *e);

#endif
