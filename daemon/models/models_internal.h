/* SPDX-License-Identifier: MIT */
/* Shared by models.c (the table), replica.c (loads and unloads) and fit.c (memory). */
#ifndef TXDA_MODELS_INTERNAL_H
#define TXDA_MODELS_INTERNAL_H

#include "models.h"

static inline const char *model_name(const struct served_model *m)
{
	return m->config->names[0];
}
/* "NAME", or "NAME#2" for the second replica. */
const char *replica_name(const struct replica *r, char buf[264]);

/* Derives the model's state from its replicas', and handles changes of it. */
void model_settle(struct served_model *m);
/* Starts to load the replicas that are not loaded. */
void model_begin_load(struct served_model *m);
void model_fail_parked(struct served_model *m);
/* Releases its entries of the cache. */
void model_release_cache(struct served_model *m);
/* Sets the context limit, which depends on the memory that was left for the KV cache. */
void model_set_context(struct served_model *m);
/* Ready, without requests or waiters. */
bool model_is_idle(const struct served_model *m);

/* Handles the loaders' finished jobs and their results. */
void models_take_jobs(struct models *t);
/* Nothing runs on it: frees its resources, and it becomes unloaded, or asleep. */
void replica_take_out(struct replica *r, bool sleeps);
/* Cancels a load; its host copy is freed, too, unless @sleep. */
void replica_call_off(struct replica *r, bool sleep);
void replica_check(struct replica *r);
/*
 * Frees all that the replica has, and the table's list of resources to free; the loader has
 * stopped.
 */
void replica_free(struct replica *r);
void models_free_departures(struct models *t);
void model_add_counters(struct engine_stats *sum, const struct engine_stats *one);
/* Whether the text side has to be read for m->found; takes over a finished one. -ENOMEM. */
bool model_wants_text(const struct served_model *m);
int model_replace_text(struct served_model *m, struct model_text *text,
		       const struct model_found *found);
/* Whether a loader has, or is about to get, something of the model. */
bool model_is_with_loader(const struct served_model *m);

/* fit.c: group @i of those where a model with @tp chips may be placed. */
int fit_group_new(const struct served_model *m, unsigned tp, unsigned i, struct txda_group **ret,
		  char *err, size_t errlen);
/* The KV cache size of a replica on fit->best, which leaves room for models to be loaded later. */
void fit_kv(const struct replica *r, const struct model_fit *fit, struct engine_options *options);

#endif
