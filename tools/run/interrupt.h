/* SPDX-License-Identifier: MIT */
/*
 * SIGINT, SIGTERM and SIGHUP, and waits that are ended by them. The signals are blocked except
 * within interrupt_poll(), so none is missed between checking the flags and the wait that follows.
 * One thread.
 */
#ifndef TXDA_RUN_INTERRUPT_H
#define TXDA_RUN_INTERRUPT_H

#include <signal.h>
#include <stdbool.h>

/* Ctrl-C: ends the current answer; cleared before the next operation. */
extern volatile sig_atomic_t interrupt_stop;
/* The number of the signal that ends the program; 0: none. */
extern volatile sig_atomic_t interrupt_end;

void interrupt_init(void);
/* Whether the current operation should end. */
bool interrupted(void);
/*
 * In a new process, before it executes another program: restores the signals as this program found
 * them.
 */
void interrupt_restore(void);

/*
 * Waits until @fd (-1: none) is ready for @events of poll(2). 1: it is; 0: the time has passed
 * (@timeout_ms -1: never), or another signal was handled; -EINTR: interrupted() is true.
 */
int interrupt_poll(int fd, short events, int timeout_ms);

#endif
