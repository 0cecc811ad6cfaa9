/* SPDX-License-Identifier: MIT */
/* What the engine's files share: engine.c (life, client side), engine_loop.c (its thread),
 * request.c. */
#ifndef TXDA_ENGINE_INTERNAL_H
#define TXDA_ENGINE_INTERNAL_H

#include <pthread.h>
#include <sys/queue.h>

#include "draft.h"
#include "encoder.h"
#include "engine.h"
#include "kv.h"
#include "mask_workers.h"
#include "sampler.h"
#include "scheduler.h"
#include "step.h"

#define NS_PER_S 1000000000ull

/* A copy of a row of outputs that waits for its mask. */
struct kept_row {
	struct sampler_row row;
	float memory[]; /* logits, candidates' logits, their ids */
};

/* A request's life in the engine, allocated with it. */
struct engine_seq {
	struct sched_seq sched; /* first: the scheduler hands these out */
	struct engine_request *request;
	struct engine_seq *submit_next;
	struct engine_seq *live_prev, *live_next; /* of engine.live */
	struct engine_request *leader; /* whose prompt it waits for; NULL: the scheduler has it */
	bool encodes;		       /* or that its images wait to be encoded */
	TAILQ_ENTRY(engine_seq) encode_link; /* of engine.encodes, while it does */
	struct draft_seq draft;
	struct mask_job job;   /* of its constraint */
	struct kept_row *kept; /* behind the last token, while all tokens are computed */
	bool late;	       /* a mask came too late once: no more proposals */
	/* What the step's tokens brought, until the scheduler has counted them. */
	enum engine_finish ending;
	int error;
	const char *error_words;
};

struct ready_list {
	_Atomic(struct engine_request *) head;
};

struct engine {
	/* Constant from engine_new() on. */
	struct txda_model *model;
	struct engine_limits limits;
	unsigned max_queue;
	uint64_t step_limit_ns;
	bool prefix_caching;
	int ready_fd;
	pthread_t thread;
	bool thread_runs;

	/* From the clients to the engine thread. */
	_Atomic(struct engine_seq *) submitted; /* a stack, youngest first */
	atomic_uint n_submitted;		/* on it */
	atomic_uint n_waiting;			/* of the scheduler, written by the engine thread */
	atomic_uint cancels;			/* rises with each cancellation */
	atomic_uint masks_done;			/* rises with each job of mask_workers.h */
	atomic_bool stopping, lost;
	char lost_text[256]; /* constant once lost is set */
	atomic_bool asleep;
	pthread_mutex_t sleep_lock;
	pthread_cond_t wake;

	/* From the engine thread to the clients. */
	struct ready_list ready;
	pthread_mutex_t stats_lock; /* the engine thread never waits for it while requests run */
	struct engine_stats published;

	/* The engine thread's own. */
	struct kv *kv;
	struct scheduler *scheduler;
	struct sampler *sampler;
	struct engine_seq *live; /* of all requests that were taken and have not ended */
	unsigned n_live;	 /* how many */
	unsigned n_searches;	 /* beam searches among them */
	struct draft *draft;	 /* NULL: no speculation */
	struct encoder *encoder; /* NULL: the model does not see */
	TAILQ_HEAD(encode_list, engine_seq) encodes; /* whose images are to be encoded */
	uint64_t encode_debt_ns; /* what an image took, until steps have had as much */
	struct mask_workers *masks;
	/* One holds the step that runs, the other the one that is prepared meanwhile. */
	struct step_slot slots[2];
	unsigned turn;	      /* the slot of the step that runs, or is to run next */
	uint64_t deadline_ns; /* the earliest of the requests', UINT64_MAX: there is none */
	struct engine_stats stats;
	unsigned cancels_seen, masks_seen;
	bool wake_client;
	uint64_t boundary_ns; /* end of the last step, 0: nothing ran before */
};

/* Puts @r on the list unless it is there; true: the list was empty, the client has to be woken. */
bool ready_push(struct ready_list *list, struct engine_request *r);
/* Takes all, oldest first, linked by ready_next. */
struct engine_request *ready_take(struct ready_list *list);

/* The engine thread, of a struct engine. */
void *engine_main(void *arg);

#endif
