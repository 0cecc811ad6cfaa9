/* SPDX-License-Identifier: MIT */
/*
 * The pool: the cores of the machine, their scratch memory, and one phase of work at a time.
 *
 * Claims. The leader publishes a phase as one word, claim = its own core << 32 | parts left. A part
 * is claimed by a compare-and-swap that decrements the count. The swap succeeds only on the phase
 * that is current at that instant, and from then on the leader cannot leave the phase, because it
 * waits until all parts are done. So a claim alone makes @job valid to read, and a helper that
 * comes late finds no parts left and has read nothing else. No generation counter is needed: a
 * helper that slept between load and swap and finds an equal word claims a part of the phase that
 * runs now, which is right. Helpers report the number of parts that they did in one addition, once
 * they find none left.
 *
 * Complexes. CM_COMPLEX cores in a row share a word, so that claims of many cores do not wait for
 * one cache line. A phase is divided among as many complexes as it has parts for, beginning with the
 * leader's and wrapping around: of G the one at place i has the parts i, i + G, i + 2 G, because an
 * op's first parts may be the largest. A core that has had a part of its own complex, and finds none
 * left there, takes parts of the others; one whose own has none to begin with keeps waiting for its
 * word alone. The leader takes all that nobody does. Each complex counts its parts that are done; the
 * leader adds up. To wake the cores of a complex, the leader wakes two, and each that has claimed a
 * part wakes two more.
 *
 * Active cores. Only these take parts (active.h), the others sleep; and only complexes with active
 * cores have parts, beginning with the first one if the leader is not active itself.
 *
 * Cores. Worker i is core i. A thread that leads from cm_wait() is core 0 in place of worker 0,
 * which is excluded from its phases by the core number in the word and sleeps meanwhile. The loop
 * that the workers run is in lead.c; this layer only wakes them.
 *
 * Scratch. Each core has private scratch, and all share one more piece; its size is the largest
 * that any program loaded so far needs. It moves only when a program is loaded, which raises
 * scratch_generation. Its memory beyond what the programs that are still loaded need goes back to the
 * system as soon as one is freed.
 *
 * Cancelling. Parts that have not begun are skipped. One that runs goes on to its end, unless the
 * embedder has given cm_options.interrupt: then that signal leaves it with a jump, which is possible
 * since the work of a part takes no lock, memory or descriptor (ops.h).
 *
 * CPUs. The system wakes a thread where it slept unless it finds an idle CPU. Beside processes that take
 * what is left of the processors it finds none, and threads of one phase would stay on one CPU, each
 * waiting for the other. So a worker that slept on the leader's CPU is kept off it when it is woken for a
 * phase, and one that finds itself there leaves it. It may run on all others, until it meets a leader
 * again.
 *
 * Accounting. The leader's time is charged to the chip whose op runs: cm_account().
 *
 * Threads: fields and functions marked "leader" belong to the thread that leads (lead.h).
 */
#ifndef CM_POOL_H
#define CM_POOL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "../ops/ops.h"
#include "active.h"
#include "chip.h"
#include "host.h"

/* A part of a phase: [0, parts) in any order on any core. */
typedef void (*cm_part_fn)(const void *arg, unsigned phase, unsigned part, unsigned core);

/* Whose work a phase does, by rank: when one flag becomes true, the rest of it is skipped. */
struct cm_cancel {
	unsigned n;
	const _Atomic bool *flag[TXDA_MAX_GROUP];
};

struct cm_job {
	cm_part_fn run;
	const void *arg;
	unsigned phase, parts;
	unsigned first, complexes; /* that have parts: the leader's, and those that follow it */
	unsigned around;	   /* complexes with active cores; after the last comes the first */
	const struct cm_cancel *cancel;
};

#define CM_COMPLEX 8 /* cores; as many as share a last-level cache on many CPUs */

struct cm_complex {
	_Alignas(CM_CACHE_LINE) _Atomic uint64_t claim;	 /* leader's core << 32 | parts unclaimed */
	_Alignas(CM_CACHE_LINE) _Atomic uint32_t done;	 /* parts done by its helpers */
	_Alignas(CM_CACHE_LINE) _Atomic uint32_t asleep; /* sleeping workers, a bit each */
};

struct cm_worker {
	struct cm_lead *lead;
	pthread_t thread;
	unsigned core;
	int cpu; /* it runs on that one alone; -1: anywhere */
	bool started;
	_Alignas(CM_CACHE_LINE) _Atomic uint32_t wake; /* futex */
	pid_t tid;				       /* once it runs */
	_Atomic int slept_on;			       /* CPU on which it went to sleep last */
	int avoids;				       /* CPU, -1: none; under apart_lock */
};

struct cm_scratch {
	void *ptr;
	size_t bytes;  /* requested */
	size_t mapped; /* with the guard page */
};

/* What a loaded program needs. */
struct cm_scratch_need {
	size_t shared_bytes, core_bytes;
	struct cm_scratch_need *next;
};

struct cm_pool {
	unsigned cores;
	uint64_t spin_ns;	  /* how long an idle core spins before it sleeps */
	bool yield;		  /* more cores than CPUs: spinning threads let others run */
	int interrupt;		  /* signal that ends parts of cancelled work; 0: none */
	struct cm_worker *worker; /* [cores] */

	struct cm_active active;
	struct cm_complex *complex; /* [n_complexes] */
	unsigned n_complexes;

	/* Written by the leader for each phase; what is above is read by all cores all the time. */
	_Alignas(CM_CACHE_LINE) struct cm_job job;
	_Atomic bool cut;				   /* a part of the phase was cancelled */
	_Alignas(CM_CACHE_LINE) _Atomic uint32_t sleeping; /* workers */

	_Atomic bool apart;	      /* workers are kept off the leader's CPU */
	_Atomic int lead_cpu;	      /* on which the leader runs; -1: there is none */
	struct cm_cpu_choice *choice; /* CPUs that workers may run on */
	pthread_mutex_t apart_lock;

	/* Of the current leader; all but @external for the leader alone. */
	_Atomic bool external; /* it is a thread in cm_wait(), not a worker */
	unsigned lead_core;
	uint64_t lead_since_ns; /* 0: not read yet */

	struct cm_chip *account_chip; /* leader: the chip that is charged; NULL: none */
	bool account_copy;
	uint64_t account_since_ns;

	struct cm_scratch shared;      /* leader */
	struct cm_scratch *core;       /* [cores] */
	void **core_ptr;	       /* [cores]: their memory */
	uint64_t scratch_generation;   /* rises when scratch has moved */
	struct cm_scratch_need *needs; /* leader: of the loaded programs */
};

/*
 * @cores: 1 to CM_MAX_CORES. @pin: each on a CPU of its own, as far as there are enough. 0 or
 * -ENOMEM; cm_pool_fini() in any case.
 */
int cm_pool_init(struct cm_pool *p, unsigned cores, uint64_t spin_ns, bool pin);
void cm_pool_fini(struct cm_pool *p);

/* Runs parts [0, parts) of @phase; returns when all are done. False: not all of their work was
 * done, since it was cancelled. Leader. */
bool cm_pool_run(struct cm_pool *p, cm_part_fn run, const void *arg, unsigned phase, unsigned parts,
		 const struct cm_cancel *cancel);
/* Some work was cancelled: ends parts of it that run. Any thread. */
void cm_pool_interrupt(struct cm_pool *p);
/* Handler of cm_options.interrupt. */
void cm_pool_on_interrupt(void);
/* Takes part in the current phase; false if there was nothing to claim. Worker @core. */
bool cm_pool_help(struct cm_pool *p, unsigned core);
/* Whether cm_pool_help() might find a part. */
static inline bool cm_pool_has_parts(struct cm_pool *p, unsigned core)
{
	uint64_t word = atomic_load(&p->complex[core / CM_COMPLEX].claim);

	return (uint32_t)word && word >> 32 != core && cm_is_active(&p->active, core);
}
/* The calling worker, @core, leaves the leader's CPU, should it be there. */
void cm_pool_keep_apart(struct cm_pool *p, unsigned core);
/* Worker @i is about to sleep, or was woken. It checks for work in between. */
void cm_pool_announce_sleep(struct cm_pool *p, unsigned i);
void cm_pool_end_sleep(struct cm_pool *p, unsigned i);
/* Wakes worker @i if it sleeps. Any thread. */
void cm_pool_wake(struct cm_pool *p, unsigned i);

/* Makes the shared scratch and that of each core at least as large as @need says, which the
 * pool keeps until cm_pool_scratch_end() if this succeeds; 0 or -ENOMEM. Leader. */
int cm_pool_scratch(struct cm_pool *p, struct cm_scratch_need *need);
void cm_pool_scratch_end(struct cm_pool *p, struct cm_scratch_need *need);

/* From now on the pool's time is charged to @chip (NULL: none), as computing or copying. Leader. */
void cm_account(struct cm_pool *p, struct cm_chip *chip, bool copy);
/* Charges the time so far. Leader. */
void cm_account_flush(struct cm_pool *p);

/* Futexes of this process. @deadline_ns: CLOCK_MONOTONIC, UINT64_MAX: none. Any thread. */
void cm_futex_wait(_Atomic uint32_t *word, uint32_t seen, uint64_t deadline_ns);
void cm_futex_wake(_Atomic uint32_t *word, int n);

#endif /* CM_POOL_H */
