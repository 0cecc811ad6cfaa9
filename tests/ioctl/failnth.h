/* SPDX-License-Identifier: MIT */
/*
 * Calls of the kernel in which the first, then the second, then each further chance to fail for want
 * of memory, or of a user's page, is made to fail.
 *
 * The kernel counts such chances of the calling thread (/proc/thread-self/fail-nth, failslab,
 * fail_page_alloc, fail_usercopy) and takes the one that was asked for. A call that returns without
 * one having been taken has no more of them.
 */
#ifndef TXDA_TEST_FAILNTH_H
#define TXDA_TEST_FAILNTH_H

#include "args.h"

/* What a step works on: all of it made anew for each try, and gone with its files. */
struct world {
	/* Of the first chip: a file, an address space with a queue, and buffers in it. */
	struct client client;
	struct mem host, device;
	/* A file of the second chip, -1: there is none. */
	int peer;
	/* Whatever a step needs between its functions. */
	uint32_t handle, sync, queue, vm;
	/* Buffers that are, or were, idle. */
	struct mem idle, other;
	int buf;
	void *at;
};

struct step {
	const char *name;
	/* Before the call, may be NULL. */
	void (*prepare)(struct world *w);
	/* The call, 0 or -errno. */
	int (*run)(struct world *w);
	/* Afterwards, may be NULL. @err is what @run returned. */
	void (*after)(struct world *w, int err);
};

extern const struct step failnth_steps[];
extern const size_t failnth_n_steps;
/* Those of idle buffers. */
extern const struct step failnth_idle_steps[];
extern const size_t failnth_n_idle_steps;

#endif
