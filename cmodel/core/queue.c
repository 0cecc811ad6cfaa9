// SPDX-License-Identifier: MIT
#include "queue.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

int cm_queues_add(struct cm_queues *qs, struct cm_vm *vm, enum cm_queue_class class,
		  const struct cm_queue_ops *ops, void *arg, struct cm_queue **ret)
{
	struct cm_queue *q;
	unsigned slot;

	if (class != CM_QUEUE_COMPUTE && class != CM_QUEUE_COPY)
		return -EINVAL;
	if (atomic_load(&vm->chip->lost))
		return -ENODEV;
	q = calloc(1, sizeof(*q));
	if (!q)
		return -ENOMEM;
	q->queues = qs;
	q->chip = vm->chip;
	q->vm = vm;
	q->class = class;
	if (ops)
		q->ops = *ops;
	q->arg = arg;
	q->exec = (struct cm_exec){
		.pool = qs->pool,
		.vm = vm,
		.member = &q->member,
		.cancel = &q->cancel,
		.progress = &q->progress,
		.fault = &q->why,
	};
	pthread_mutex_init(&q->lock, NULL);

	cm_pause(qs->lead);
	for (slot = 0; slot < CM_MAX_QUEUES && qs->queue[slot]; slot++)
		;
	if (slot < CM_MAX_QUEUES) {
		q->slot = slot;
		q->id = vm->chip->next_queue++;
		qs->queue[slot] = q;
		cm_ready_rank(qs->ready, slot, CM_PRIORITY_NORMAL);
		cm_c2c_join(qs->c2c, &q->member, vm);
	}
	cm_resume(qs->lead);
	if (slot == CM_MAX_QUEUES) {
		pthread_mutex_destroy(&q->lock);
		free(q);
		return -ENOSPC;
	}
	*ret = q;
	return 0;
}

void cm_queue_free(struct cm_queue *q)
{
	struct cm_queues *qs;

	if (!q)
		return;
	qs = q->queues;
	cm_queue_cancel(q);
	cm_pause(qs->lead);
	cm_c2c_leave(&q->member, q->in_stream || atomic_load(&q->head) != atomic_load(&q->tail));
	cm_exec_fini(&q->exec);
	cm_ready_forget(qs->ready, q->slot);
	qs->queue[q->slot] = NULL;
	cm_resume(qs->lead);
	pthread_mutex_destroy(&q->lock);
	free(q);
}

void cm_queue_cancel(struct cm_queue *q)
{
	atomic_store(&q->cancel, true);
	cm_pool_interrupt(q->queues->pool);
}

int cm_queue_submit(struct cm_queue *q, uint64_t va, uint64_t bytes, bool lazy)
{
	int ret = 0;

	pthread_mutex_lock(&q->lock);
	if (atomic_load(&q->chip->lost)) {
		ret = -ENODEV;
	} else if (cm_queue_is_faulted(q)) {
		ret = -EIO;
	} else {
		uint32_t tail = atomic_load_explicit(&q->tail, memory_order_relaxed);

		if (tail - atomic_load(&q->head) >= CM_QUEUE_DEPTH) {
			ret = -EAGAIN;
		} else {
			q->ring[tail % CM_QUEUE_DEPTH] = (struct cm_stream){va, bytes};
			atomic_store(&q->tail, tail + 1);
		}
	}
	pthread_mutex_unlock(&q->lock);
	if (ret)
		return ret;
	cm_ready_activate(q->queues->ready, q->slot);
	if (!lazy)
		cm_lead_notify(q->queues->lead);
	return 0;
}

enum cm_queue_state cm_queue_state(struct cm_queue *q)
{
	return cm_queue_is_faulted(q) ? CM_QUEUE_FAULTED : CM_QUEUE_OK;
}

int cm_queue_fault(struct cm_queue *q, struct txda_fault *ret)
{
	if (!cm_queue_is_faulted(q))
		return -ENOENT;
	*ret = q->fault;
	return 0;
}

uint64_t cm_queue_progress(struct cm_queue *q)
{
	return atomic_load_explicit(&q->progress, memory_order_relaxed);
}

uint64_t cm_queue_packet(struct cm_queue *q)
{
	return atomic_load_explicit(&q->packet_va, memory_order_relaxed);
}

bool cm_queue_is_innocent(struct cm_queue *q)
{
	return atomic_load(&q->innocent);
}

void cm_queue_set_priority(struct cm_queue *q, enum cm_queue_priority priority)
{
	struct cm_queues *qs = q->queues;

	cm_pause(qs->lead);
	cm_ready_rank(qs->ready, q->slot, priority);
	cm_resume(qs->lead);
}

struct cm_queue *cm_queue_of(struct cm_member *member)
{
	return (struct cm_queue *)((char *)member - offsetof(struct cm_queue, member));
}

void cm_queue_fail(struct cm_queue *q, const struct txda_fault *fault)
{
	if (cm_queue_is_faulted(q))
		return;
	q->fault = *fault;
	q->fault.queue = q->id;
	q->fault.vmid = q->vm->id;
	q->fault.packet_va = q->in_stream ? q->stream.va + q->pos : 0;
	cm_count32(&q->chip->activity.faults);

	pthread_mutex_lock(&q->lock);
	atomic_store(&q->state, CM_QUEUE_FAULTED);
	atomic_store(&q->head, atomic_load(&q->tail));
	pthread_mutex_unlock(&q->lock);
	cm_ready_forget(q->queues->ready, q->slot);
	/* The members of its groups would wait for this queue for ever. */
	cm_c2c_poison(&q->member);
	q->in_stream = false;
	q->busy = CM_BUSY_NONE;
	q->resume_ns = 0;
	q->poll_ns = 0;
	atomic_store_explicit(&q->packet_va, 0, memory_order_relaxed);

	if (q->ops.faulted)
		q->ops.faulted(q->arg, &q->fault);
	cm_lead_wake_waiters(q->queues->lead);
}

void cm_queue_fail_with(struct cm_queue *q, uint32_t code, uint64_t va, uint64_t detail)
{
	struct txda_fault fault = cm_fault(code, va, detail);

	cm_queue_fail(q, &fault);
}

void cm_queue_fail_innocent(struct cm_queue *q, uint64_t id)
{
	if (!cm_queue_is_faulted(q))
		atomic_store(&q->innocent, true);
	cm_queue_fail_with(q, TXDA_FAULT_COLLECTIVE, 0, id);
}

void cm_queues_lose(struct cm_queues *qs, struct cm_chip *c)
{
	for (unsigned i = 0; i < CM_MAX_QUEUES; i++) {
		if (qs->queue[i] && qs->queue[i]->chip == c)
			cm_queue_fail_with(qs->queue[i], TXDA_FAULT_LOST, 0, c->index);
	}
	/* Also for those of its queues that have not reached their group yet. */
	cm_c2c_lose(qs->c2c, c);
}
