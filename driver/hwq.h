/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Hardware queues: the ring, doorbell and completion word of one queue of the chip.
 *
 * Each is owned by one user at a time: a client's queue (queue.h), or the kernel's own copy queue
 * (copy.h). An owner acquires one for an address space, pushes jobs with increasing sequence
 * numbers, is called back from hard interrupt context when jobs are done, and releases it. The chip
 * shares its cores among the queues, so one whose job waits does not block another; only those that
 * take turns wait for each other's jobs.
 *
 * The last queues of each class take turns: they are bound to one of several owners (share.h), each
 * of which has a ring and a completion word of its own. An owner without one is parked: nothing of
 * it runs, and the functions below treat it like a queue that has stopped.
 *
 * The ring and the completion word are in coherent system memory: completions are detected without
 * reading a register.
 *
 * Threads: get, bind, stop and put sleep and are called by the owner only, one at a time; push
 * has one caller at a time and does not sleep; done may be called by anyone. Functions that
 * access the chip need drm_dev_enter() around them, as stated for each.
 */
#ifndef TXDA_HWQ_H
#define TXDA_HWQ_H

#include <linux/bitmap.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/types.h>

#include "file.h"
#include "share.h"
#include "txda_regs.h"

struct txda_device;

/* txda_hwq.index of a parked one. */
#define TXDA_HWQ_PARKED U32_MAX

#define TXDA_HWQ_ENTRIES_LOG2 7
#define TXDA_HWQ_ENTRIES      BIT(TXDA_HWQ_ENTRIES_LOG2)
/*
 * Maximum number of jobs in flight. The chip stores the completion word before it advances the
 * head, so software that has seen the word may find one entry still counted in the ring.
 */
#define TXDA_HWQ_DEPTH (TXDA_HWQ_ENTRIES - 1)

/**
 * struct txda_hwq - One hardware queue in use.
 */
struct txda_hwq {
	/** @tdev: The chip. */
	struct txda_device *tdev;

	/**
	 * @index: Its number on the chip: TXDA_REG_QUEUE(index), or TXDA_HWQ_PARKED. Changes under
	 * txda_hwqs.lock, by its owner.
	 */
	u32 index;

	/** @turn: Its turns, if it shares. */
	struct txda_turn turn;

	/** @class: What it can run. */
	enum txda_queue_class_id class;

	/** @vmid: Address space. */
	u32 vmid;

	/** @priority: enum txda_queue_priority. */
	u32 priority;

	/** @ring: TXDA_HWQ_ENTRIES entries, then the completion word on a cache line of its own. */
	struct txda_ring_entry *ring;

	/** @completion: The chip stores the sequence number of the last job done. */
	u64 *completion;

	/** @dma: Bus address of @ring. */
	dma_addr_t dma;

	/** @tail: Entries pushed, modulo 2^32. */
	u32 tail;

	/** @progress: Packets and ops executed for the owner, as of the last read. */
	u64 progress;

	/**
	 * @progress_seen: The chip's counter at the last read; it restarts when the chip is reset.
	 */
	u64 progress_seen;

	/** @complete: Some jobs are done, or the queue has stopped. Hard interrupt context. */
	void (*complete)(struct txda_hwq *hwq);

	/** @priv: Private data of the owner. */
	void *priv;
};

/**
 * struct txda_hwqs - The chip's hardware queues.
 */
struct txda_hwqs {
	/** @lock: Protects @owner; the interrupt handler holds it while it calls owners back. */
	spinlock_t lock;

	/** @owner: By index; NULL: free. */
	struct txda_hwq *owner[TXDA_MAX_QUEUES];
};

int txda_hwqs_init(struct txda_device *tdev);

/* The queues of a class that have one owner each; those after them take turns. */
u32 txda_hwqs_own(const struct txda_device *tdev, enum txda_queue_class_id class);
/* How many queues of a class take turns. */
u32 txda_hwqs_shared(const struct txda_device *tdev, enum txda_queue_class_id class);

/*
 * Acquires a free queue of the class and starts it. Call inside drm_dev_enter(). -ENOSPC: none is
 * free. -EIO: the chip refused, and a chip reset was requested.
 */
int txda_hwq_get(struct txda_device *tdev, enum txda_queue_class_id class, u32 vmid, u32 priority,
		 void (*complete)(struct txda_hwq *hwq), void *priv, struct txda_hwq **ret_hwq);
/*
 * Acquires a parked one, which txda_hwq_bind() lets run. The owner adds it to those that take
 * turns. -ENOSPC: no queue of the class is for that.
 */
int txda_hwq_get_parked(struct txda_device *tdev, enum txda_queue_class_id class, u32 vmid,
			u32 priority, void (*complete)(struct txda_hwq *hwq), void *priv,
			struct txda_hwq **ret_hwq);
/*
 * Releases it. The queue must be stopped, or the chip gone or reset. Never fails. @complete is not
 * running any more when this returns.
 */
void txda_hwq_put(struct txda_hwq *hwq);

/* Lets a parked one run as queue @index, which no other is bound to. As txda_hwq_restart(). */
int txda_hwq_bind(struct txda_hwq *hwq, u32 index);
/* Stops and parks it. As txda_hwq_stop(). */
int txda_hwq_park(struct txda_hwq *hwq);

/* Appends a job. The caller keeps at most TXDA_HWQ_DEPTH in flight and is in drm_dev_enter(). */
void txda_hwq_push(struct txda_hwq *hwq, u64 stream_va, u32 stream_bytes, u64 seqno);
/* Sequence number of the last job done. What that job wrote can be read after this call. */
u64 txda_hwq_done(const struct txda_hwq *hwq);
/* TXDA_QUEUE_OFF, RUNNING, FAULTED or LOST; all ones: no answer. In drm_dev_enter(). */
u32 txda_hwq_state(struct txda_hwq *hwq);
/*
 * Packets and ops executed for its owner; never decreases, also across resets. One caller at a
 * time. In drm_dev_enter().
 */
u64 txda_hwq_progress(struct txda_hwq *hwq);
/* Address of the packet being executed, or 0. In drm_dev_enter(). */
u64 txda_hwq_packet(struct txda_hwq *hwq);
/*
 * Stops it after the current slice of a packet, or at once when it has faulted. In drm_dev_enter().
 * -ETIMEDOUT: it makes no progress and does not stop; -ENODEV: the chip does not answer, and what
 * it does cannot be known. Then only a reset helps (reset.h), which cuts the chip off if need be.
 */
int txda_hwq_stop(struct txda_hwq *hwq);
/*
 * Sets the queue up again after a chip reset or resume, with the same owner. In drm_dev_enter().
 * -EIO: the chip refused, and a chip reset was requested.
 */
int txda_hwq_restart(struct txda_hwq *hwq);

/*
 * The interrupt sources of some queues were set: calls their owners back. Hard interrupt context.
 */
void txda_hwqs_irq(struct txda_device *tdev, u64 queues);

#endif /* TXDA_HWQ_H */
