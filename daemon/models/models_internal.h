/* SPDX-License-Identifier: MIT */
/* What models.c (the table), replica.c (loads and ends) and fit.c (memory) share. */
#ifndef TXDA_MODELS_INTERNAL_H
#define TXDA_MODELS_INTERNAL_H

#include "models.h"

#define NS_PER_S 1000000000ull

static inline const char *model_name(const struct served_model *m)
{
	return m->config->names[0];
}
/* "NAME", or "NAME#2" of the second replica. */
const char *replica_name(const struct replica *r, char buf[264]);

/* Sets the model's state by its replicas', and does what a change of it brings. */
void model_settle(struct served_model *m);
/* Begins to load the replicas that are not there. */
void model_begin_load(struct served_model *m);
void model_fail_parked(struct served_model *m);
/* How long requests may be depends on the memory that was left for the KV cache. */
void model_set_context(struct served_model *m);
/* Ready, and nobody has anything for it. */
bool model_is_idle(const struct served_model *m);

/* Takes the job that the loader has done, and what came of it. */
void models_take_job(struct models *t);
/* Nothing runs on it: what it holds goes, and it is unloaded, or asleep. */
void replica_take_out(struct replica *r, bool sleeps);
/* Not loaded after all; its host copy goes, too, unless @sleep. */
void replica_call_off(struct replica *r, bool sleep);
void replica_check(struct replica *r);
/* Ends all that the replica has, and the table's departures; the loader has stopped. */
void replica_free(struct replica *r);
void models_free_departures(struct models *t);
void model_add_counters(struct engine_stats *sum, const struct engine_stats *one);
/* Whether the text side has to be read for m->found; takes over what was read. -ENOMEM. */
bool model_wants_text(const struct served_model *m);
int model_replace_text(struct served_model *m, struct model_text *text,
		       const struct model_found *found);
/* Whether the loader has something of the model, or is to get it. */
bool model_is_with_loader(const struct served_model *m);

/* fit.c: group @i of those where a model for @tp chips may go. */
int fit_group_new(const struct served_model *m, unsigned tp, unsigned i, struct txda_group **ret,
		  char *err, size_t errlen);
/* The KV cache of a replica that goes to fit->best, and what it leaves to models to come. */
void fit_kv(const struct replica *r, const struct model_fit *fit, struct engine_options *options);

#endif
