/* SPDX-License-Identifier: MIT */
/*
 * Shared by the engine's files: engine.c (lifetime, client side), engine_loop.c (its thread),
 * request.c.
 */
#ifndef TXDA_ENGINE_INTERNAL_H
#define TXDA_ENGINE_INTERNAL_H

#include <pthread.h>
#include <sys/queue.h>

#include "draft.h"
#include "encoder.h"
#include "engine_options.h"
#include "kv.h"
#include "launch.h"
#include "mask_workers.h"
#include "sampler.h"
#include "scheduler.h"
#include "step.h"

/* A copy of an output row that waits for its mask. */
struct kept_row {
	struct sampler_row row;
	float memory[]; /* logits, candidates' logits, their ids */
};

/* A request's state in the engine, allocated with it. */
struct engine_seq {
	struct sched_seq sched; /* first member: the scheduler returns pointers to it */
	struct engine_request *request;
	struct engine_seq *submit_next;
	struct engine_seq *live_prev, *live_next; /* link in engine.live */
	struct engine_request *leader;		  /* whose prompt it waits for; NULL: scheduled */
	bool encodes;				  /* or whether its images wait to be encoded */
	TAILQ_ENTRY(engine_seq) encode_link;	  /* link in engine.encodes, while they do */
	struct draft_seq draft;
	struct mask_job job;   /* mask job of its constraint */
	struct kept_row *kept; /* after the last token, while all tokens are computed */
	bool late;	       /* its mask was late last time, or it is a beam: no proposals */
	/* Results of the step's tokens, until the scheduler has counted them. */
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
	struct launch_limits launch;
	uint64_t max_stall_ns; /* 0: no limit */
	bool prefix_caching;
	int ready_fd;
	pthread_t thread;
	bool thread_runs;

	/* From the clients to the engine thread. */
	_Atomic(struct engine_seq *) submitted; /* a stack, newest first */
	atomic_uint n_submitted;		/* number of requests on it */
	atomic_uint n_waiting;			/* in the scheduler; set by the engine thread */
	atomic_uint cancels;			/* incremented by each cancellation */
	atomic_uint masks_done;			/* incremented by each finished mask job */
	atomic_bool stopping, lost;
	char lost_text[256]; /* constant once lost is set */
	atomic_bool asleep;
	pthread_mutex_t sleep_lock;
	pthread_cond_t wake;

	/* From the engine thread to the clients. */
	struct ready_list ready;
	pthread_mutex_t stats_lock; /* the engine thread never waits for it while requests run */
	struct engine_stats published;

	/* Private to the engine thread. */
	struct kv *kv;
	struct scheduler *scheduler;
	struct sampler *sampler;
	struct engine_seq *live; /* all requests that were taken and have not ended */
	unsigned n_live;	 /* their number */
	unsigned n_searches;	 /* beam searches among them */
	struct draft *draft;	 /* NULL: no speculation */
	struct encoder *encoder; /* NULL: no vision */
	TAILQ_HEAD(encode_list, engine_seq) encodes; /* requests whose images are to be encoded */
	uint64_t encode_debt_ns; /* time spent on an image, until steps have had as much */
	struct mask_workers *masks;
	/* One holds the running step, the other the one being prepared. */
	struct step_slot slots[2];
	unsigned turn;	      /* the slot of the running step, or of the next one */
	uint64_t deadline_ns; /* the earliest deadline of the requests, UINT64_MAX: there is none */
	struct engine_stats stats;
	unsigned cancels_seen, masks_seen;
	bool wake_client;
	uint64_t boundary_ns; /* end of the last step, 0: none ran before */
};

/* Puts @r on the list unless it is there; true: the list was empty, so the client must be woken. */
bool ready_push(struct ready_list *list, struct engine_request *r);
/* Takes all entries, oldest first, linked by ready_next. */
struct engine_request *ready_take(struct ready_list *list);

/* The main function of the engine thread; @arg is a struct engine. */
void *engine_main(void *arg);

#endif
