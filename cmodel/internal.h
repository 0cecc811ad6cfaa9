/* SPDX-License-Identifier: MIT */
/*
 * The inside of the device model: the objects that its files share.
 *
 * Who owns what. Leadership (lead.h) is the one big lock of the machine: whoever leads may touch
 * everything that is marked "leader" below, and only the leader runs work. It is taken by try-lock
 * in the hot path and never waited for there; a control operation (unmap, free, inject) waits for
 * it with cm_pause(), which makes the leader step aside after the op that it runs. Fields marked
 * "atomic" may be read by anybody, fields with a lock name that lock.
 */
#ifndef CM_INTERNAL_H
#define CM_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "cmodel.h"
#include "ops/ops.h"

#define CM_PAGE	       4096ull
#define CM_HUGE_PAGE   (2ull << 20)
#define CM_CACHE_LINE  64
#define CM_MAX_QUEUES  1024 /* alive on one machine */
#define CM_QUEUE_WORDS (CM_MAX_QUEUES / 64)
#define CM_GROUP_SLOTS 16

struct cm_program; /* program.h */
struct cm_context; /* exec.h */
struct cm_group;   /* c2c.h */

static inline uint64_t cm_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

/* One turn of a spin loop. */
static inline void cm_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* ---- fault injection (inject.c) ------------------------------------------------------------- */

enum cm_inject_kind {
	CM_INJECT_HANG,
	CM_INJECT_PAGE,
	CM_INJECT_ECC,
	CM_INJECT_ECC_CORRECTED,
	CM_INJECT_LINK_DOWN,
	CM_INJECT_THERMAL,
	CM_INJECT_LOST,
	CM_INJECT_SLOW_DMA,
	CM_INJECT_CLEAR,
	CM_INJECT_KINDS
};

struct cm_injection {
	bool armed; /* strikes after @after more ops of the chip */
	uint64_t after;
	uint64_t ms;
	uint64_t until_ns; /* in force until then; 0: not, UINT64_MAX: until it is cleared */
};

/* ---- chips ---------------------------------------------------------------------------------- */

/* Written by the leader alone, read by anybody. */
struct cm_activity {
	_Atomic uint64_t busy_ns;
	_Atomic uint64_t copy_busy_ns;
	_Atomic uint64_t bytes_read;
	_Atomic uint64_t bytes_written;
	_Atomic uint64_t ops;
	_Atomic uint32_t ecc_corrected;
	_Atomic uint32_t ecc_uncorrected;
	_Atomic uint32_t faults;
};

struct cm_chip {
	struct cm_machine *machine;
	unsigned index;
	int dram_fd;
	uint64_t dram_bytes;
	struct cm_activity activity;
	_Atomic bool lost;
	_Atomic uint64_t hot_until_ns; /* thermal trip: throttled until then */
	_Atomic uint64_t link_down_until_ns;
	void (*notify)(void *arg); /* leader: set before anything can strike */
	void *notify_arg;
	bool injected; /* leader: some injection is armed or in force */
	bool stalled;  /* leader: see cm_chip_stall() */
	struct cm_injection inject[CM_INJECT_KINDS]; /* leader */
	unsigned next_vm, next_queue;		     /* leader: ids for fault records */
	pthread_mutex_t sensor_lock;		     /* the thermal model below */
	uint64_t sensed_ns, sensed_busy_ns, sensed_copy_ns;
	double temp_c, load;
};

/* ---- address spaces ------------------------------------------------------------------------- */

struct cm_range {
	uint64_t va, end;
	unsigned flags; /* CM_MAP_* */
};

struct cm_group_slot {
	struct cm_group *group; /* NULL: not set */
	unsigned rank;
};

struct cm_vm {
	struct cm_chip *chip;
	unsigned id;
	uint8_t *base; /* the host address of VA 0; 2 MiB aligned */
	void *reserved;
	size_t reserved_bytes;
	pthread_mutex_t map_lock; /* one map or unmap at a time; taken before leadership */
	pthread_mutex_t lock;	  /* the table, for moments only; taken after the model's others */
	struct cm_range *range;	  /* sorted, disjoint */
	size_t n_ranges, cap_ranges;
	uint64_t generation;	   /* leader: rises with each unmap: resolved pointers are stale */
	cm_translate_fn translate; /* NULL: the embedder maps */
	void *translate_arg;
	bool was_evicted; /* lock: programs may be known whose memory is not in the table */
	size_t pieces;	  /* leader: host mappings that translation has made, or more */
	struct cm_group_slot group[CM_GROUP_SLOTS]; /* leader */
	struct cm_program *programs;		    /* leader: the cache, last used first */
	size_t program_bytes;			    /* leader: held by the cache */
	struct cm_vm *next, *prev;		    /* leader: of the machine */
};

/* ---- queues --------------------------------------------------------------------------------- */

struct cm_stream {
	uint64_t va, bytes;
};

union cm_packet {
	struct txda_pkt hdr;
	struct txda_pkt_copy copy;
	struct txda_pkt_copy_2d copy_2d;
	struct txda_pkt_fill fill;
	struct txda_pkt_exec exec;
	struct txda_pkt_fence fence;
	struct txda_pkt_timestamp timestamp;
	struct txda_pkt_collective collective;
};

/* What stands between the queue and its next packet. */
enum cm_busy {
	CM_BUSY_NONE = 0,
	CM_BUSY_WAIT,	    /* @pkt is a WAIT whose word is not there yet */
	CM_BUSY_TRANSFER,   /* @pkt is a copy or fill, see @transfer */
	CM_BUSY_EXEC,	    /* @pkt is an EXEC, @op is the next op */
	CM_BUSY_COLLECTIVE, /* @pkt is a collective that waits for the other members */
};

/* A COPY, COPY_2D or FILL in progress: rows of bytes, counted through as one sequence. */
struct cm_transfer {
	uint64_t dst, src; /* src is not used by a fill */
	uint64_t dst_pitch, src_pitch;
	uint64_t dst_span, src_span; /* bytes from the first to the end of the last row */
	uint64_t row_bytes;
	uint64_t total, done;
	bool fill;
	uint32_t value;
};

struct cm_queue {
	struct cm_machine *machine;
	struct cm_chip *chip;
	struct cm_vm *vm;
	enum cm_queue_class class;
	struct cm_queue_ops ops;
	void *arg;
	unsigned slot; /* bit in the machine's masks */
	unsigned id;   /* for fault records */

	pthread_mutex_t lock; /* submitters: ring and tail */
	struct cm_stream ring[CM_QUEUE_DEPTH];
	_Atomic uint32_t tail;	/* streams submitted */
	_Atomic uint32_t head;	/* streams done; stored by the leader */
	_Atomic uint32_t state; /* enum cm_queue_state, released after @fault */
	_Atomic uint64_t progress;
	_Atomic uint64_t packet_va; /* of the packet in execution; 0: none */
	_Atomic bool innocent;	    /* faulted by what happened to others */
	_Atomic bool cancel;	    /* is going away: skip the rest of the op that runs */
	struct txda_fault fault;

	/* leader, to the end */
	bool in_stream;
	struct cm_stream stream;
	const uint8_t *stream_ptr;
	uint64_t stream_generation; /* of the vm, for which @stream_ptr holds */
	uint64_t pos;		    /* of the current packet in the stream */
	enum cm_busy busy;
	union cm_packet pkt;
	struct cm_transfer transfer;
	uint64_t resume_ns; /* not runnable before; 0: runnable, UINT64_MAX: hangs for good */
	uint64_t poll_ns;   /* parked at a WAIT whose word the host may write: look then; 0: no */
	uint32_t poll_step_ns;
	enum cm_queue_priority priority;
	struct cm_context *context;  /* what EXEC runs */
	struct cm_context *contexts; /* all of this queue, last used first */
	uint32_t op;
	bool met;	      /* the collective that it waited for is done */
	bool group_poisoned;  /* faulted after it used groups: see c2c.c */
	uint32_t groups_used; /* by slot of the vm */
	struct cm_group *waits_in;
	struct cm_queue *group_next; /* behind it in the same rank */
};

/* ---- the machine ---------------------------------------------------------------------------- */

enum cm_lead {
	CM_LEAD_FREE = 0,
	CM_LEAD_HELD = 1,
	CM_LEAD_CONTENDED = 2, /* held, and a cm_pause() sleeps for it */
};

/* One phase of work for the pool. */
typedef void (*cm_part_fn)(const void *arg, unsigned phase, unsigned part, unsigned core);

struct cm_job {
	cm_part_fn run;
	const void *arg;
	unsigned phase, parts;
	const _Atomic bool *cancel;
};

struct cm_worker {
	struct cm_machine *machine;
	pthread_t thread;
	unsigned core;
	bool started;
	_Alignas(CM_CACHE_LINE) _Atomic uint32_t wake; /* futex */
};

struct cm_scratch {
	void *ptr;
	size_t bytes; /* as asked for */
	size_t mapped;
};

struct cm_machine {
	unsigned n_chips;
	struct cm_chip *chip;
	unsigned cores;
	const char *isa;
	uint64_t spin_ns;
	bool yield; /* more cores than CPUs: spinning threads let others run */

	/* pool.c: the phase that runs now */
	_Alignas(CM_CACHE_LINE) _Atomic uint64_t claim; /* leader's core << 32 | parts unclaimed */
	_Alignas(CM_CACHE_LINE) _Atomic uint32_t done;	/* parts done by helpers */
	_Alignas(CM_CACHE_LINE) struct cm_job job;

	/* lead.c */
	_Alignas(CM_CACHE_LINE) _Atomic uint32_t lead; /* enum cm_lead; futex */
	_Atomic uint32_t pausers;		       /* threads in cm_pause() */
	_Atomic uint32_t takers; /* threads in cm_wait() that spin for leadership */
	_Atomic bool external;	 /* the leader is in cm_wait(), not a worker */
	_Atomic bool stop;
	unsigned lead_core;	  /* leader */
	uint64_t lead_since_ns;	  /* leader; 0: not read yet */
	unsigned pause_depth;	  /* leader: calls of cm_pause() within its lead */
	struct cm_machine *outer; /* leader: another machine that the same thread leads */

	/* Work: bits of queues to look at, and queues that wait. */
	_Alignas(CM_CACHE_LINE) _Atomic uint64_t active[CM_QUEUE_WORDS];
	/* A word may have changed that a parked queue waits for. Part of what others see as work to
	 * do: a leader that sets it may leave before it gets to look. */
	_Atomic uint32_t repoll;
	_Atomic uint32_t n_parked; /* stored by the leader */
	_Atomic uint64_t timer_ns; /* the next queue resumes then; 0: none. Stored by the leader */
	uint64_t parked[CM_QUEUE_WORDS]; /* leader */
	unsigned next_slot;		 /* leader: round robin */
	/* leader: queues whose priority is not normal; how many, and whose turn it is */
	uint64_t ranked[CM_PRIORITIES][CM_QUEUE_WORDS];
	unsigned n_ranked, ranked_turn, ranked_next[CM_PRIORITIES];
	struct cm_queue *queue[CM_MAX_QUEUES]; /* leader */

	/* Sleepers */
	_Alignas(CM_CACHE_LINE) _Atomic uint32_t event; /* futex of cm_wait() */
	_Atomic uint32_t sleepers;			/* in cm_wait() */
	_Atomic uint64_t asleep;			/* workers, a bit each */
	struct cm_worker *worker;			/* [cores] */

	/* leader, to the end */
	struct cm_chip *account_chip; /* whose time runs now; NULL: nobody's */
	bool account_copy;
	uint64_t account_since_ns;
	struct cm_scratch shared;
	struct cm_scratch core[CM_MAX_CORES];
	uint64_t scratch_generation; /* rises when scratch has moved */
	struct cm_vm *vms;
	struct cm_group *groups;
	/* Host mappings of translated address spaces: how many, at most, and how often all of them
	 * were dropped to make room. Who resolves two ranges looks whether the first was. */
	size_t pieces, max_pieces;
	uint64_t evictions;
};

/* ---- machine.c ------------------------------------------------------------------------------ */

/* Makes l->shared and l->core[] at least so large; -ENOMEM. Leader. */
int cm_scratch_grow(struct cm_machine *m, size_t shared_bytes, size_t core_bytes);

/* ---- mmu.c ---------------------------------------------------------------------------------- */

/*
 * Like cm_vm_resolve(), but a translated space is filled; on failure *ret_bad is the first address
 * that is not mapped so. Leader.
 */
void *cm_vm_find(struct cm_vm *vm, uint64_t va, uint64_t bytes, unsigned flags, uint64_t *ret_bad);
#define CM_FIND_TRIES 3 /* how often ranges are looked up anew when there was an eviction */

/* The table of ranges; vm->lock is held. The first range that ends above @va; */
size_t cm_range_first(const struct cm_vm *vm, uint64_t va);
/* room for @n more; */
int cm_range_reserve(struct cm_vm *vm, size_t n);
/* puts one in at its place, for which there is room; */
void cm_range_insert(struct cm_vm *vm, size_t at, struct cm_range range);
/* takes [va, end) out, with room for one more. */
void cm_range_cut(struct cm_vm *vm, uint64_t va, uint64_t end);

/* ---- translate.c ---------------------------------------------------------------------------- */

/* Asks the embedder for what is at @va and maps it; false: nothing is. Leader. */
bool cm_vm_translate(struct cm_vm *vm, uint64_t va);
/* Forgets all mappings of a space that goes away. Leader. */
void cm_vm_translate_end(struct cm_vm *vm);
/*
 * Copies out of an address space whatever other threads do to it. -EFAULT. The caller holds
 * vm->map_lock.
 */
int cm_vm_read(struct cm_vm *vm, uint64_t va, void *buf, uint64_t bytes);

/* ---- queue.c -------------------------------------------------------------------------------- */

/* Stops the queue with this record (queue, vmid and packet_va are filled in) and tells everybody.
 * Leader. */
void cm_queue_fail(struct cm_queue *q, const struct txda_fault *fault);
/* The same with the fields that packets need. Leader. */
void cm_queue_fail_with(struct cm_queue *q, uint32_t code, uint64_t va, uint64_t detail);
/* TXDA_FAULT_COLLECTIVE of group @id, for which the queue can do nothing. Leader. */
void cm_queue_fail_innocent(struct cm_queue *q, uint64_t id);
/* One more op or packet is done. Leader. */
static inline void cm_queue_step(struct cm_queue *q)
{
	atomic_store_explicit(&q->progress,
			      atomic_load_explicit(&q->progress, memory_order_relaxed) + 1,
			      memory_order_relaxed);
}

/* Adds to a counter that one thread writes. */
static inline void cm_count(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

static inline void cm_count32(_Atomic uint32_t *counter)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1,
			      memory_order_relaxed);
}

/* ---- cp.c ----------------------------------------------------------------------------------- */

/* Runs one op or a few cheap packets of the next runnable queue; false: nothing is runnable.
 * Leader. */
bool cm_cp_turn(struct cm_machine *m);
/* The queue may be runnable again. Anybody. */
void cm_cp_activate(struct cm_queue *q);
/* Forgets a queue that goes away. Leader. */
void cm_cp_forget(struct cm_queue *q);
/* Memory was written that WAIT packets may look at. Leader. */
void cm_cp_wrote(struct cm_machine *m);

/* What a piece of work of a queue came to. */
enum cm_result {
	CM_DONE,  /* the packet is done */
	CM_AGAIN, /* an op was run, there is more of the packet */
	CM_PARK,  /* not runnable now */
	CM_FAULT, /* the queue has faulted */
};

/* ---- transfer.c ----------------------------------------------------------------------------- */

/* Checks the COPY, COPY_2D or FILL in q->pkt; CM_AGAIN or CM_FAULT. Leader. */
enum cm_result cm_transfer_begin(struct cm_queue *q);
/* Runs its next slice. Leader. */
enum cm_result cm_transfer_step(struct cm_queue *q);

/* ---- sensors.c ------------------------------------------------------------------------------ */

/* From now on the time of the pool is that of @chip (NULL: nobody's), computing or copying. Leader.
 */
void cm_account(struct cm_machine *m, struct cm_chip *chip, bool copy);
/* Books the time so far. Leader. */
void cm_account_flush(struct cm_machine *m);
void cm_sensors_init(struct cm_chip *c);

/* ---- inject.c ------------------------------------------------------------------------------- */

/*
 * Before an op (@transfer: a slice of a copy) of a chip with c->injected: CM_DONE lets it run,
 * CM_PARK and CM_FAULT do not. Leader.
 */
enum cm_result cm_inject_before(struct cm_queue *q, bool transfer);
/* After a slice of a copy: CM_PARK when it is slowed down. Leader. */
enum cm_result cm_inject_after_transfer(struct cm_queue *q);
#endif /* CM_INTERNAL_H */
