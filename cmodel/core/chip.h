/* SPDX-License-Identifier: MIT */
/*
 * A chip: its DRAM, its health and its activity counters.
 *
 * Ownership: the machine owns its chips; layers above this one refer to them by pointer. A chip
 * knows nothing of address spaces or queues.
 * Threads: fields marked "leader" belong to the thread that leads the machine (lead.h). Atomic
 * fields are stored by the leader and read by anybody. The thermal model has a lock of its own.
 * Units: times in nanoseconds of CLOCK_MONOTONIC; an "until" of UINT64_MAX means until cleared.
 */
#ifndef CM_CHIP_H
#define CM_CHIP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "../cmodel.h"
#include "host.h"

enum cm_inject_kind {
	CM_INJECT_HANG,
	CM_INJECT_PAGE,
	CM_INJECT_ECC,
	CM_INJECT_ECC_CORRECTED,
	CM_INJECT_LINK_DOWN,
	CM_INJECT_THERMAL,
	CM_INJECT_LOST,
	CM_INJECT_SLOW_DMA,
	CM_INJECT_CLEAR,
	CM_INJECT_KINDS
};

/* One kind of injected fault, see inject.h. */
struct cm_injection {
	bool armed; /* strikes after @after more ops of the chip */
	uint64_t after;
	uint64_t ms;
	uint64_t until_ns; /* in force until then; 0: not in force */
};

struct cm_activity {
	_Atomic uint64_t busy_ns;
	_Atomic uint64_t copy_busy_ns;
	_Atomic uint64_t bytes_read;
	_Atomic uint64_t bytes_written;
	_Atomic uint64_t c2c_sent, c2c_received;
	_Atomic uint64_t ops;
	_Atomic uint32_t ecc_corrected;
	_Atomic uint32_t ecc_uncorrected;
	_Atomic uint32_t faults;
};

struct cm_chip {
	struct cm_machine *machine; /* used by machine.c alone */
	unsigned index;
	int dram_fd; /* memfd; -1: none */
	uint64_t dram_bytes;
	struct cm_activity activity;
	_Atomic bool lost;
	_Atomic uint64_t hot_until_ns; /* thermal trip: throttled until then */
	_Atomic uint64_t link_down_until_ns;
	void (*notify)(void *arg); /* leader: cm_chip_set_notify() */
	void *notify_arg;
	bool injected; /* leader: some injection is armed or in force */
	bool stalled;  /* leader: cm_chip_stall() */
	struct cm_injection inject[CM_INJECT_KINDS]; /* leader */
	unsigned next_vm, next_queue;		     /* leader: ids for fault records */
	pthread_mutex_t sensor_lock;		     /* the thermal model below */
	uint64_t sensed_ns, sensed_busy_ns, sensed_copy_ns;
	double temp_c, load;
};

/* Creates the DRAM, @mem_bytes of sealed memfd; 0 or -errno. cm_chip_fini() is called in any case. */
int cm_chip_init(struct cm_chip *c, struct cm_machine *machine, unsigned index, uint64_t mem_bytes);
void cm_chip_fini(struct cm_chip *c);
/* Counts what went from one chip to another, if it is another. Leader. */
void cm_chip_count_c2c(struct cm_chip *from, struct cm_chip *to, uint64_t bytes);

#endif /* CM_CHIP_H */
