// SPDX-License-Identifier: MIT
#include "internal.h"
#include "c2c.h"
#include "exec.h"
#include "lead.h"

#include <errno.h>
#include <stdlib.h>

int cm_queue_new(struct cm_vm *vm, enum cm_queue_class class, const struct cm_queue_ops *ops,
		 void *arg, struct cm_queue **ret)
{
	struct cm_machine *m = vm->chip->machine;
	struct cm_queue *q;
	unsigned slot;

	if (class != CM_QUEUE_COMPUTE && class != CM_QUEUE_COPY)
		return -EINVAL;
	if (atomic_load(&vm->chip->lost))
		return -ENODEV;
	q = calloc(1, sizeof(*q));
	if (!q)
		return -ENOMEM;
	q->machine = m;
	q->chip = vm->chip;
	q->vm = vm;
	q->class = class;
	if (ops)
		q->ops = *ops;
	q->arg = arg;
	q->priority = CM_PRIORITY_NORMAL;
	pthread_mutex_init(&q->lock, NULL);

	cm_pause(m);
	for (slot = 0; slot < CM_MAX_QUEUES && m->queue[slot]; slot++)
		;
	if (slot < CM_MAX_QUEUES) {
		q->slot = slot;
		q->id = vm->chip->next_queue++;
		m->queue[slot] = q;
	}
	cm_resume(m);
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
	struct cm_machine *m;

	if (!q)
		return;
	m = q->machine;
	cm_queue_cancel(q);
	cm_pause(m);
	cm_c2c_leave(q);
	cm_exec_release(q);
	cm_queue_set_priority(q, CM_PRIORITY_NORMAL);
	cm_cp_forget(q);
	m->queue[q->slot] = NULL;
	cm_resume(m);
	pthread_mutex_destroy(&q->lock);
	free(q);
}

void cm_queue_cancel(struct cm_queue *q)
{
	/* What runs now is not wanted any more: its parts that have not begun are skipped. */
	atomic_store(&q->cancel, true);
}

int cm_queue_submit(struct cm_queue *q, uint64_t va, uint64_t bytes, bool lazy)
{
	int ret = 0;

	pthread_mutex_lock(&q->lock);
	if (atomic_load(&q->chip->lost)) {
		ret = -ENODEV;
	} else if (atomic_load(&q->state) == CM_QUEUE_FAULTED) {
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
	cm_cp_activate(q);
	if (!lazy)
		cm_lead_notify(q->machine);
	return 0;
}

enum cm_queue_state cm_queue_state(struct cm_queue *q)
{
	return atomic_load(&q->state) == CM_QUEUE_FAULTED ? CM_QUEUE_FAULTED : CM_QUEUE_OK;
}

int cm_queue_fault(struct cm_queue *q, struct txda_fault *ret)
{
	if (atomic_load(&q->state) != CM_QUEUE_FAULTED)
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
	struct cm_machine *m = q->machine;
	uint64_t bit = 1ull << q->slot % 64;

	cm_pause(m);
	if (q->priority != CM_PRIORITY_NORMAL) {
		m->ranked[q->priority][q->slot / 64] &= ~bit;
		m->n_ranked--;
	}
	if (priority != CM_PRIORITY_NORMAL) {
		m->ranked[priority][q->slot / 64] |= bit;
		m->n_ranked++;
	}
	q->priority = priority;
	cm_resume(m);
}

void cm_queue_fail(struct cm_queue *q, const struct txda_fault *fault)
{
	if (atomic_load(&q->state) == CM_QUEUE_FAULTED)
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
	cm_cp_forget(q);
	/* Members of its groups that wait for this queue would wait for ever. */
	cm_c2c_poison(q);
	q->in_stream = false;
	q->busy = CM_BUSY_NONE;
	q->resume_ns = 0;
	q->poll_ns = 0;
	atomic_store_explicit(&q->packet_va, 0, memory_order_relaxed);

	if (q->ops.faulted)
		q->ops.faulted(q->arg, &q->fault);
	cm_lead_wake_waiters(q->machine);
}

void cm_queue_fail_with(struct cm_queue *q, uint32_t code, uint64_t va, uint64_t detail)
{
	struct txda_fault fault = {
		.code = code,
		.op = TXDA_NONE,
		.tensor = TXDA_NONE,
		.opcode = TXDA_NONE,
		.va = va,
		.detail = detail,
	};

	cm_queue_fail(q, &fault);
}

void cm_queue_fail_innocent(struct cm_queue *q, uint64_t id)
{
	if (atomic_load(&q->state) != CM_QUEUE_FAULTED)
		atomic_store(&q->innocent, true);
	cm_queue_fail_with(q, TXDA_FAULT_COLLECTIVE, 0, id);
}
