/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Hardware queues: the ring, doorbell and completion word of one queue of the chip.
 *
 * Each is owned by one user at a time: a client's queue (queue.h), or the kernel's own copy queue
 * (copy.h). An owner takes one for an address space, pushes jobs with rising sequence numbers, is
 * called back from hard interrupt context when some are done, and gives it back. The chip shares
 * its cores among the queues, so one client's wait never stands in another one's way.
 *
 * The ring and the completion word lie in coherent system memory: completions are seen without
 * reading a register.
 *
 * Threads: get, stop and put sleep and are the owner's business; push is for one caller at a time
 * and does not sleep; done may be read by anybody. All but put need drm_dev_enter() around them
 * when they touch the chip, which each says.
 */
#ifndef TXDA_HWQ_H
#define TXDA_HWQ_H

#include <linux/bitmap.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/types.h>

#include "file.h"
#include "txda_regs.h"

struct txda_device;

#define TXDA_HWQ_ENTRIES_LOG2 7
#define TXDA_HWQ_ENTRIES      BIT(TXDA_HWQ_ENTRIES_LOG2)
/*
 * Jobs in flight at most. The chip stores the completion word first and raises the head after that,
 * so whoever has seen the word may find the ring one fuller than it believes.
 */
#define TXDA_HWQ_DEPTH (TXDA_HWQ_ENTRIES - 1)

/**
 * struct txda_hwq - One hardware queue in use.
 */
struct txda_hwq {
	/** @tdev: The chip. */
	struct txda_device *tdev;

	/** @index: Its number on the chip: TXDA_REG_QUEUE(index). */
	u32 index;

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

	/** @progress: Packets and ops done for the owner, as far as was seen. */
	u64 progress;

	/** @progress_seen: The chip's counter then; it starts over when the chip is reset. */
	u64 progress_seen;

	/** @complete: Some jobs are done, or the queue has stopped. Hard interrupt context. */
	void (*complete)(struct txda_hwq *hwq);

	/** @priv: The owner's. */
	void *priv;
};

/**
 * struct txda_hwqs - The chip's hardware queues.
 */
struct txda_hwqs {
	/** @lock: Who owns which; the interrupt handler takes it to call owners back. */
	spinlock_t lock;

	/** @owner: By index; NULL: free. */
	struct txda_hwq *owner[TXDA_MAX_QUEUES];
};

int txda_hwqs_init(struct txda_device *tdev);

/*
 * Takes a free queue of the class and starts it. Registers: the caller is inside drm_dev_enter().
 * -ENOSPC: none is free. -EIO: the chip refused, and a reset of it was called for.
 */
int txda_hwq_get(struct txda_device *tdev, enum txda_queue_class_id class, u32 vmid, u32 priority,
		 void (*complete)(struct txda_hwq *hwq), void *priv, struct txda_hwq **ret_hwq);
/*
 * Gives it back; it must be stopped, or the chip gone or reset. Never fails. @complete does not run
 * any more when it returns.
 */
void txda_hwq_put(struct txda_hwq *hwq);

/* Appends a job. The caller keeps at most TXDA_HWQ_DEPTH in flight and is in drm_dev_enter(). */
void txda_hwq_push(struct txda_hwq *hwq, u64 stream_va, u32 stream_bytes, u64 seqno);
/* Sequence number of the last job done; what that job wrote can be read after this. */
u64 txda_hwq_done(const struct txda_hwq *hwq);
/* TXDA_QUEUE_OFF, RUNNING, FAULTED or LOST; all ones: no answer. In drm_dev_enter(). */
u32 txda_hwq_state(struct txda_hwq *hwq);
/*
 * Packets and ops done for its owner; never falls, whatever becomes of the chip. For one caller at
 * a time. In drm_dev_enter().
 */
u64 txda_hwq_progress(struct txda_hwq *hwq);
/* Address of the packet that runs, or 0. In drm_dev_enter(). */
u64 txda_hwq_packet(struct txda_hwq *hwq);
/*
 * Stops it after the piece of a packet that runs, or at once when it has faulted. In
 * drm_dev_enter(). 0 also when the chip does not answer at all: then nothing of it runs.
 * -ETIMEDOUT: it makes no progress and does not stop, only a reset of the chip helps (reset.h).
 */
int txda_hwq_stop(struct txda_hwq *hwq);
/* Sets the queue up again after a chip reset or resume, with the same owner. In drm_dev_enter(). */
int txda_hwq_restart(struct txda_hwq *hwq);

/* Some queues' sources were set: calls their owners back. Hard interrupt context. */
void txda_hwqs_irq(struct txda_device *tdev, u64 queues);

#endif /* TXDA_HWQ_H */
