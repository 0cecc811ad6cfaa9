/* SPDX-License-Identifier: MIT */
/*
 * All chips of the process: one device model, a PCI function for each of its chips, cards of up to
 * eight chips that are all linked with each other.
 *
 * Threads: vu_machine_poll() and the commands may be called from any thread that holds no lock of a
 * device.
 */
#ifndef VU_MACHINE_H
#define VU_MACHINE_H

#include "device.h"

#define VU_MEM_MIN (64ull << 20)

struct vu_machine_options {
	unsigned chips;
	uint64_t mem_bytes; /* DRAM of each chip, a multiple of 2 MiB */
	uint64_t bar_bytes; /* of BAR2, a power of two; 0: as the DRAM, at most 4 GiB */
	unsigned cores;	    /* as cm_options.cores */
	int interrupt;	    /* as cm_options.interrupt */
	enum vu_irq_mode irq;
	const char *identity; /* source of the serial numbers: constant across starts */
	/*
	 * Called when the state of chips may have changed: vu_machine_poll() is due. By any thread,
	 * with the model paused.
	 */
	void (*changed)(void *arg);
	void *arg;
};

struct vu_machine {
	struct cm_machine *cm;
	unsigned n_devices;
	struct vu_device *device;
	void (*changed)(void *arg);
	void *arg;
};

/* -EINVAL, -ENOMEM or another -errno. */
int vu_machine_new(const struct vu_machine_options *opt, struct vu_machine **ret);
void vu_machine_free(struct vu_machine *m);

/*
 * Checks all chips and links and raises events for what has changed. Returns when to check again
 * (CLOCK_MONOTONIC; UINT64_MAX: not before it is due). @ret_lost: lost chips, a bit each.
 */
uint64_t vu_machine_poll(struct vu_machine *m, uint64_t *ret_lost);

#endif /* VU_MACHINE_H */
