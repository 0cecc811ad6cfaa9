/* SPDX-License-Identifier: MIT */
/*
 * Queues: a ring for streams in memory that the chip reads, and a fence word that shows the chip's
 * progress.
 *
 * A submission copies its packets consecutively into the ring, appends a SIGNAL of the queue's word
 * and submits the piece to the chip: nothing is allocated. A piece of the ring is reused after a
 * later fence has passed, so that the chip has certainly finished reading it. As long as the queue
 * is drained regularly, the same few cache lines are reused.
 * Ownership: a queue holds a reference to its context, and to the buffers of each copy until the
 * copy's fence has passed; whoever submits or waits next drops them. A launch holds none: its model
 * outlives its queues.
 * Threads: one submitter at a time; waiting, faults and the fd from any thread. Callbacks come from
 * any thread.
 */
#ifndef TXDA_QUEUE_H
#define TXDA_QUEUE_H

#include "buffer.h"
#include "program.h"
#include "space.h"
#include "txda_isa.h"

#define TXDA__RING_BYTES (2ull << 20)
#define TXDA__IN_FLIGHT	 512

struct txda__piece {
	uint64_t fence;
	uint32_t start, end; /* in the ring */
};

/* The buffers of a copy in flight, a reference each. */
struct txda__held {
	uint64_t fence;
	struct txda_buffer *dst, *src;
};

struct txda_queue {
	atomic_uint refs;
	struct txda_device *device;
	struct txda__hwqueue *hw;
	struct txda_buffer *memory; /* one page for the word, then the ring */
	char *ring;		    /* host mapping */
	struct txda__progress progress;
	uint64_t ring_va, word_va;
	struct txda__piece piece[TXDA__IN_FLIGHT]; /* a FIFO */
	unsigned oldest, n_pieces;
	uint32_t write;	      /* where the next piece may start */
	bool refused;	      /* the chip rejected a stream: it will accept no more */
	atomic_bool faulted;  /* set once the two members below are */
	atomic_uint n_held;   /* changes under the lock; launches see that there are none */
	pthread_mutex_t lock; /* protects what follows */
	struct txda__held held[TXDA__IN_FLIGHT]; /* a FIFO */
	unsigned oldest_held;
	unsigned fault_code; /* enum txda_fault_code */
	char fault[384];
	char purpose[96]; /* identifies the queue in fault events: "model demo, rank 1", or "" */
	const struct txda__program *program; /* provides the names in fault messages; NULL: none */
	atomic_int fd;			     /* eventfd if one was requested, or -1 */
	bool owns_fd;
};

/* The last fence that has passed. */
static inline uint64_t txda__queue_passed(const struct txda_queue *queue)
{
	return __atomic_load_n(queue->progress.word, __ATOMIC_ACQUIRE);
}

/* 0, or -EIO/-ENODEV with the message recorded when the queue has failed. */
int txda__queue_check(struct txda_queue *queue);
/* Fails the queue with that text and ends its work; for the thread that submits. */
void txda__queue_stop(struct txda_queue *queue, const char *why);
/*
 * Signals completions and faults through @fd, which the caller owns and which must outlive the
 * queue's work.
 */
void txda__queue_set_fd(struct txda_queue *queue, int fd);

#endif /* TXDA_QUEUE_H */
