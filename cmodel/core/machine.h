/* SPDX-License-Identifier: MIT */
/*
 * The machine: one object of each layer, and the callbacks that connect them.
 *
 * This is the top of core/; only machine.c and tests include it. Functions of cmodel.h that act on
 * an object of one layer are defined there; those that start from a machine or a chip are here.
 */
#ifndef CM_MACHINE_H
#define CM_MACHINE_H

#include "c2c.h"
#include "chip.h"
#include "lead.h"
#include "mmu.h"
#include "pool.h"
#include "queue.h"
#include "ready.h"

struct cm_machine {
	unsigned n_chips;
	struct cm_chip *chip; /* [n_chips] */
	const char *isa;
	bool spread; /* memory, among the nodes of the host */
	struct cm_pool pool;
	struct cm_ready ready;
	struct cm_lead lead;
	struct cm_mmu mmu;
	struct cm_c2c c2c;
	struct cm_queues queues;
};

#endif /* CM_MACHINE_H */
