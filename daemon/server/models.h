/* SPDX-License-Identifier: MIT */
/*
 * The models that this daemon serves: brings each from the table of residency to readiness, hands
 * out the engine's news, and gets over the loss of its chips: running requests fail, and once the
 * last is gone the model is let go and acquired anew.
 *
 * Threads: the event loop's; names and the text side may be read by the pool's threads.
 */
#ifndef TXDA_SERVER_MODELS_H
#define TXDA_SERVER_MODELS_H

#include <stdatomic.h>

#include "config.h"
#include "metrics.h"
#include "model_text.h"
#include "textpool.h"

struct event;
struct residency_model;
struct server;

enum model_state {
	MODEL_LOADING,
	MODEL_READY,
	MODEL_FAILED, /* could not be loaded at all */
	MODEL_LOST,   /* its chips failed; tried again from time to time */
};

struct served_model {
	struct server *server;
	const struct config_model *config;
	enum model_state state;
	char error[512];
	struct residency_model *held;
	struct engine *engine;
	struct event *ready_event, *retry_event;
	_Atomic(struct model_text *) text; /* set once, then constant */
	struct {
		struct textpool_job job;
		char dir[1024];
		struct engine_limits limits;
		struct model_text *text;
		char err[256];
		int result;
	} load;
	unsigned in_flight; /* engine requests that have not ended */
	struct metrics_model metrics;
	struct engine_stats told; /* as of the last line on what goes on */
	char fingerprint[48];
	int64_t created;
};

/* Sets up @m and begins to load it. */
void model_start(struct served_model *m, struct server *s, const struct config_model *config);
/* Lets go of everything. Nothing may be in flight. */
void model_stop(struct served_model *m);
/* Looks whether the chips are still there. */
void model_check(struct served_model *m);
/* An engine request of this model ended. */
void model_request_ended(struct served_model *m);

/* The model of that name (NULL: the first one), or NULL. Any thread. */
struct served_model *models_find(struct server *s, const char *name);
/* "a, b, c", cut to fit. */
void models_names(struct server *s, char *buf, size_t len);
const char *model_state_name(enum model_state state);
/* Why it does not answer, as an error for clients. */
void model_unavailable(const struct served_model *m, struct api_error *e);

#endif
