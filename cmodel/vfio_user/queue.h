/* SPDX-License-Identifier: MIT */
/*
 * Queues: rings in memory, run by queues of the model.
 *
 * From START to STOP a queue has a queue of the model, which executes the streams of its entries.
 * Entries are fetched when the doorbell rings and, if there are more than the model accepts at
 * once, by the completions that make room; each is read from memory once. The thread that leads the
 * model handles completions: it stores the seqno, advances the head and sets the interrupt source,
 * without involving another thread.
 *
 * An invalid or unreadable entry is passed to the model as a stream that faults, so that it is at
 * HEAD when the queue stops. Faults detected elsewhere (doorbells, completion words) are recorded
 * with the faulty address or value; an innocent queue, whose collective failed because another
 * member was lost, is TXDA_QUEUE_LOST instead of FAULTED.
 *
 * Threads: according to the device's locks, see device.h.
 */
#ifndef VU_QUEUE_H
#define VU_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "cmodel.h"
#include "txda_regs.h"

struct vu_device;
struct vu_vm;

#define VU_RING_MIN_LOG2 4

struct vu_inflight {
	uint64_t seqno;
	bool irq;
	uint32_t bad; /* enum txda_fault_code: the entry itself is at fault; else 0 */
};

struct vu_queue {
	struct vu_device *device;
	unsigned index;
	/* lock */
	uint64_t ring, completion; /* TXDA_ADDR */
	uint32_t ring_log2, vmid, priority;
	uint32_t state;	  /* TXDA_QUEUE_* */
	uint32_t tail;	  /* the doorbell */
	uint32_t fetched; /* entries passed to the model, counted like the tail */
	uint32_t head;	  /* entries done */
	uint64_t progress_base;
	uint64_t slow_until_ns; /* during a slow stop: until then it appears to run */
	struct cm_queue *cm;	/* stored under op_lock too; NULL: not started */
	bool stuck;		/* op_lock: it does not stop */
	struct vu_vm *vm;	/* op_lock: the address space of @cm */
	struct vu_inflight inflight[CM_QUEUE_DEPTH]; /* by entry % CM_QUEUE_DEPTH */
};

void vu_queue_init(struct vu_queue *q, struct vu_device *d, unsigned index);

/* Writes of registers; op_lock is held. */
void vu_queue_doorbell(struct vu_queue *q, uint32_t tail);
void vu_queue_control(struct vu_queue *q, uint32_t value);
/* Set-up registers. Invalid values, and writes to a queue that is not off, are refused. */
void vu_queue_set_ring(struct vu_queue *q, uint64_t addr);
void vu_queue_set_ring_log2(struct vu_queue *q, uint32_t log2);
void vu_queue_set_vmid(struct vu_queue *q, uint32_t vmid);
void vu_queue_set_priority(struct vu_queue *q, uint32_t priority);
void vu_queue_set_completion(struct vu_queue *q, uint64_t addr);

/* Frees the model's queue and leaves this one in @state; op_lock is held. */
void vu_queue_end(struct vu_queue *q, uint32_t state);
/* The same, and it is LOST if it was not off. */
void vu_queue_lose(struct vu_queue *q);
/* A chip reset: as vu_queue_lose(), and clears the set-up; op_lock is held. */
void vu_queue_reset(struct vu_queue *q);

/* lock */
uint32_t vu_queue_state(struct vu_queue *q);
uint64_t vu_queue_progress(const struct vu_queue *q);
uint64_t vu_queue_packet(const struct vu_queue *q);

#endif /* VU_QUEUE_H */
