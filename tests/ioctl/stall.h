/* SPDX-License-Identifier: MIT */
/*
 * A process whose mmap_lock is held for as long as a test likes: a page fault of one of its threads
 * waits for a file of FUSE, which the test serves. Root only.
 */
#ifndef TXDA_TEST_STALL_H
#define TXDA_TEST_STALL_H

#include <stdbool.h>
#include <sys/types.h>

struct stall_shared;

struct stall {
	pid_t pid;
	int server; /* /dev/fuse */
	char path[64];
	struct stall_shared *shared;
};

/*
 * Forks, and returns when a thread of the child holds mmap_lock. The child calls @before with @arg
 * before that and @run after it, which must need no new page.
 */
struct stall must_stall(void (*before)(void *arg), void (*run)(void *arg), void *arg);
/* Whether @run has returned. */
bool stall_is_done(const struct stall *stall);
/* Ends the fault, and the child. */
void stall_end(struct stall *stall);

#endif
