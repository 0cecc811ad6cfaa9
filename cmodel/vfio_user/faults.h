/* SPDX-License-Identifier: MIT */
/*
 * Fault records that the driver has not acknowledged yet, oldest first. Each queue has at most one
 * here: a queue that faults again before its record was acknowledged adds none.
 *
 * Threads: the device's lock.
 */
#ifndef VU_FAULTS_H
#define VU_FAULTS_H

#include <stdint.h>

#include "txda_isa.h"
#include "txda_regs.h"

_Static_assert(sizeof(struct txda_fault) == TXDA_FAULT_RECORD_BYTES, "the record's registers");

struct vu_faults {
	struct txda_fault record[TXDA_MAX_QUEUES];
	unsigned first, count;
	uint64_t waiting; /* queues with a record, a bit each */
};

void vu_faults_push(struct vu_faults *f, const struct txda_fault *record);
void vu_faults_ack(struct vu_faults *f);
/* Word @i of the oldest record; 0 if there is none. */
uint32_t vu_faults_word(const struct vu_faults *f, unsigned i);

#endif /* VU_FAULTS_H */
