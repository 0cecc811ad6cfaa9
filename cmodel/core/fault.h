/* SPDX-License-Identifier: MIT */
/*
 * How the layers that run packets report to the command processor: a result, and in the case of a
 * fault a record. Layers below queue.h know no queues: they fill the record that their caller gave
 * them, and cm_queue_fail() completes it (queue, vmid, packet_va).
 */
#ifndef CM_FAULT_H
#define CM_FAULT_H

#include <stdint.h>

#include "txda_isa.h"

/* The result of a piece of work. */
enum cm_result {
	CM_DONE,  /* the packet is done */
	CM_AGAIN, /* an op or slice was run, there is more of the packet */
	CM_PARK,  /* cannot run now */
	CM_MEET,  /* runs when the other members of its group have come (c2c.h) */
	CM_FAULT, /* stopped; the fault record says why */
};

/* A record that names no op. */
static inline struct txda_fault cm_fault(uint32_t code, uint64_t va, uint64_t detail)
{
	return (struct txda_fault){
		.code = code,
		.op = TXDA_NONE,
		.tensor = TXDA_NONE,
		.opcode = TXDA_NONE,
		.va = va,
		.detail = detail,
	};
}

/* Fills *@ret; returns CM_FAULT. */
static inline enum cm_result cm_fail(struct txda_fault *ret, uint32_t code, uint64_t va,
				     uint64_t detail)
{
	*ret = cm_fault(code, va, detail);
	return CM_FAULT;
}

#endif /* CM_FAULT_H */
