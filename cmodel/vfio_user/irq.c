// SPDX-License-Identifier: MIT
#include "irq.h"

#include <unistd.h>

static unsigned vector_of(const struct vu_irq *irq, unsigned queue)
{
	return irq->n_vectors > 1 ? 1 + queue % (irq->n_vectors - 1) : 0;
}

/* Sends the pending message of the vector if possible. */
static void flush(struct vu_irq *irq, unsigned vector)
{
	static const uint64_t one = 1;
	struct vu_vector *v = &irq->vector[vector];

	if (!v->pending || v->fd < 0 || v->masked || !irq->can_send)
		return;
	/* If the counter of the eventfd overflows, a message is already waiting there. */
	if (write(v->fd, &one, sizeof(one)) == sizeof(one))
		v->pending = false;
}

static void send_message(struct vu_irq *irq, unsigned vector)
{
	irq->vector[vector].pending = true;
	flush(irq, vector);
}

static void send_queues(struct vu_irq *irq, uint64_t queues)
{
	uint64_t vectors = 0;

	for (; queues; queues &= queues - 1)
		vectors |= 1ull << vector_of(irq, (unsigned)__builtin_ctzll(queues));
	for (; vectors; vectors &= vectors - 1)
		send_message(irq, (unsigned)__builtin_ctzll(vectors));
}

void vu_irq_init(struct vu_irq *irq, enum vu_irq_mode mode)
{
	*irq = (struct vu_irq){
		.mode = mode,
		.n_vectors = mode == VU_IRQ_MODE_MSIX ? VU_MSIX_VECTORS : 1,
		.error_fd = -1,
	};
	for (unsigned i = 0; i < VU_MSIX_VECTORS; i++)
		irq->vector[i].fd = -1;
}

void vu_irq_reset(struct vu_irq *irq)
{
	irq->queues = irq->queues_enable = 0;
	irq->events = irq->events_enable = 0;
	for (unsigned i = 0; i < irq->n_vectors; i++)
		irq->vector[i].pending = false;
}

void vu_irq_release(struct vu_irq *irq)
{
	for (unsigned i = 0; i < irq->n_vectors; i++) {
		vu_irq_set_fd(irq, i, -1);
		irq->vector[i].masked = false;
	}
}

void vu_irq_set_error_fd(struct vu_irq *irq, int fd)
{
	if (irq->error_fd >= 0)
		close(irq->error_fd);
	irq->error_fd = fd;
}

void vu_irq_raise_queue(struct vu_irq *irq, unsigned queue)
{
	uint64_t bit = 1ull << queue, fresh = bit & ~irq->queues & irq->queues_enable;

	irq->queues |= bit;
	if (fresh)
		send_message(irq, vector_of(irq, queue));
}

void vu_irq_raise_events(struct vu_irq *irq, uint32_t events)
{
	uint32_t fresh = events & ~irq->events & irq->events_enable;

	irq->events |= events;
	if (fresh)
		send_message(irq, 0);
}

void vu_irq_ack_queues(struct vu_irq *irq, uint64_t mask)
{
	irq->queues &= ~mask;
}

void vu_irq_ack_events(struct vu_irq *irq, uint32_t mask)
{
	irq->events &= ~mask;
}

void vu_irq_enable_queues(struct vu_irq *irq, uint64_t mask)
{
	uint64_t fresh = mask & ~irq->queues_enable & irq->queues;

	irq->queues_enable = mask;
	send_queues(irq, fresh);
}

void vu_irq_enable_events(struct vu_irq *irq, uint32_t mask)
{
	uint32_t fresh;

	mask &= TXDA_IRQ_ALL;
	fresh = mask & ~irq->events_enable & irq->events;
	irq->events_enable = mask;
	if (fresh)
		send_message(irq, 0);
}

void vu_irq_set_bus_master(struct vu_irq *irq, bool on)
{
	irq->can_send = on;
	for (unsigned i = 0; i < irq->n_vectors; i++)
		flush(irq, i);
}

void vu_irq_set_fd(struct vu_irq *irq, unsigned vector, int fd)
{
	struct vu_vector *v = &irq->vector[vector];
	bool was_deaf = v->fd < 0;

	if (v->fd >= 0)
		close(v->fd);
	v->fd = fd;
	/*
	 * Messages without an eventfd, and those that the reader of the last one may have missed.
	 */
	if (fd >= 0 && !was_deaf) {
		if ((vector == 0 && (irq->events & irq->events_enable)))
			v->pending = true;
		for (uint64_t q = irq->queues & irq->queues_enable; q; q &= q - 1) {
			if (vector_of(irq, (unsigned)__builtin_ctzll(q)) == vector)
				v->pending = true;
		}
	}
	flush(irq, vector);
}

void vu_irq_mask(struct vu_irq *irq, unsigned vector, bool masked)
{
	irq->vector[vector].masked = masked;
	flush(irq, vector);
}

void vu_irq_trigger(struct vu_irq *irq, unsigned vector)
{
	send_message(irq, vector);
}

uint64_t vu_irq_pending(const struct vu_irq *irq)
{
	uint64_t pending = 0;

	for (unsigned i = 0; i < irq->n_vectors; i++)
		pending |= (uint64_t)irq->vector[i].pending << i;
	return pending;
}
