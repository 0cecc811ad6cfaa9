/* SPDX-License-Identifier: MIT */
/*
 * Interrupts: the sources of TXDA_REG_IRQ_*, and the vectors, which are eventfds of the client.
 *
 * A source sends its vector's message when it becomes set while it is enabled, or enabled while it
 * is set. A message that cannot be sent at that time, because bus mastering is off or the vector is
 * masked or has no eventfd, is sent as soon as possible; so none is lost, and the driver sees at
 * most one spurious one.
 *
 * The client masks vectors through SET_IRQS. The MSI-X table in BAR0 is plain memory: the client
 * emulates the table that the guest sees.
 *
 * Ownership: eventfds that were given to vu_irq_set_fd() belong to it.
 * Threads: the device's lock. vu_irq_raise_*() are called from the leading thread too.
 */
#ifndef VU_IRQ_H
#define VU_IRQ_H

#include <stdbool.h>
#include <stdint.h>

#include "config.h"
#include "txda_regs.h"

#define VU_MSIX_VECTORS 17

struct vu_vector {
	int fd; /* -1: none */
	bool masked;
	bool pending; /* to be sent as soon as possible */
};

struct vu_irq {
	enum vu_irq_mode mode;
	unsigned n_vectors;
	bool can_send; /* bus mastering is on */
	int error_fd;  /* -1: none. For fatal bus errors, which the model never reports */
	struct vu_vector vector[VU_MSIX_VECTORS];
	uint64_t queues, queues_enable;
	uint32_t events, events_enable;
};

void vu_irq_init(struct vu_irq *irq, enum vu_irq_mode mode);
/* Clears sources, enables and pending messages; keeps the eventfds. */
void vu_irq_reset(struct vu_irq *irq);
/* Closes all eventfds and unmasks; call when the client has disconnected. */
void vu_irq_release(struct vu_irq *irq);

void vu_irq_raise_queue(struct vu_irq *irq, unsigned queue);
void vu_irq_raise_events(struct vu_irq *irq, uint32_t events);
void vu_irq_ack_queues(struct vu_irq *irq, uint64_t mask);
void vu_irq_ack_events(struct vu_irq *irq, uint32_t mask);
void vu_irq_enable_queues(struct vu_irq *irq, uint64_t mask);
void vu_irq_enable_events(struct vu_irq *irq, uint32_t mask);
void vu_irq_set_bus_master(struct vu_irq *irq, bool on);

/* The client's side; @vector is below n_vectors. */
void vu_irq_set_fd(struct vu_irq *irq, unsigned vector, int fd);
void vu_irq_mask(struct vu_irq *irq, unsigned vector, bool masked);
/* The eventfd for bus errors; -1: none. */
void vu_irq_set_error_fd(struct vu_irq *irq, int fd);
/* The client triggers the vector itself. */
void vu_irq_trigger(struct vu_irq *irq, unsigned vector);
/* One bit per vector. */
uint64_t vu_irq_pending(const struct vu_irq *irq);

#endif /* VU_IRQ_H */
