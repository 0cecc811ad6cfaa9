/* SPDX-License-Identifier: MIT */
/*
 * Queues: streams that were submitted, and the state of the packet in execution.
 *
 * A queue has one of these states; cm_queue.busy says what has to finish before its next packet:
 *
 *	empty      no streams                   submit -> active
 *	active     in the active set (ready.h)  the command processor (cp.h) runs its packets in turn
 *	parked     waits for memory or a time   written or due -> active
 *	in line    waits for its group (c2c.h)  the meeting is over -> active
 *	faulted    until it is freed            cm_queue_fail()
 *
 * Ownership: a queue belongs to the embedder. It refers to its address space, which lives longer.
 * Threads: submitters take @lock for ring and tail. Atomic fields may be read by any thread; all
 * other fields belong to the leader (lead.h).
 */
#ifndef CM_QUEUE_H
#define CM_QUEUE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "../cmodel.h"
#include "c2c.h"
#include "exec.h"
#include "lead.h"
#include "mmu.h"
#include "pool.h"
#include "ready.h"
#include "transfer.h"

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

/* What has to finish before the queue's next packet. */
enum cm_busy {
	CM_BUSY_NONE = 0,
	CM_BUSY_WAIT,	    /* @pkt is a WAIT whose word has not reached its value */
	CM_BUSY_TRANSFER,   /* @pkt is a copy or fill, see @transfer */
	CM_BUSY_EXEC,	    /* @pkt is an EXEC, see @exec */
	CM_BUSY_COLLECTIVE, /* @pkt is a collective, see @member */
};

/* The queues of a machine. */
struct cm_queues {
	struct cm_pool *pool;
	struct cm_ready *ready;
	struct cm_lead *lead;
	struct cm_c2c *c2c;
	struct cm_queue *queue[CM_MAX_QUEUES]; /* leader: by slot; NULL: free */
};

struct cm_queue {
	struct cm_queues *queues;
	struct cm_chip *chip;
	struct cm_vm *vm;
	enum cm_queue_class class;
	struct cm_queue_ops ops;
	void *arg;
	unsigned slot;
	unsigned id; /* for fault records */

	pthread_mutex_t lock;
	struct cm_stream ring[CM_QUEUE_DEPTH];
	_Atomic uint32_t tail;	/* streams submitted */
	_Atomic uint32_t head;	/* streams done; stored by the leader */
	_Atomic uint32_t state; /* enum cm_queue_state, released after @fault */
	_Atomic uint64_t progress;
	_Atomic uint64_t packet_va; /* of the packet in execution; 0: none */
	_Atomic bool innocent;	    /* faulted because of others */
	_Atomic bool cancel;	    /* being freed: skip the rest of the running op */
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
	struct cm_exec exec;
	struct cm_member member;
	struct txda_fault why; /* filled by the layers below, for cm_queue_fail() */
	uint64_t resume_ns;    /* not runnable before; 0: runnable, UINT64_MAX: hangs for good */
	uint64_t poll_ns;      /* next poll of a word that the host may write; 0: none */
	uint32_t poll_step_ns;
};

int cm_queues_add(struct cm_queues *qs, struct cm_vm *vm, enum cm_queue_class class,
		  const struct cm_queue_ops *ops, void *arg, struct cm_queue **ret);

/* The queue of a member of a group. */
struct cm_queue *cm_queue_of(struct cm_member *member);

/* Stops the queue with this record (queue, vmid and packet_va are filled in here) and tells the
 * embedder and all waiting threads. Leader. */
void cm_queue_fail(struct cm_queue *q, const struct txda_fault *fault);
/* The same with a record that names no op. Leader. */
void cm_queue_fail_with(struct cm_queue *q, uint32_t code, uint64_t va, uint64_t detail);
/* TXDA_FAULT_COLLECTIVE of group @id through no fault of the queue. Leader. */
void cm_queue_fail_innocent(struct cm_queue *q, uint64_t id);
/* The chip is lost: fails all of its queues. Leader. */
void cm_queues_lose(struct cm_queues *qs, struct cm_chip *c);

static inline bool cm_queue_is_faulted(struct cm_queue *q)
{
	return atomic_load(&q->state) == CM_QUEUE_FAULTED;
}

/* One more op or packet is done. Leader. */
static inline void cm_queue_step(struct cm_queue *q)
{
	cm_count(&q->progress, 1);
}

#endif /* CM_QUEUE_H */
