/* SPDX-License-Identifier: MIT */
/*
 * Threads of the library: they take no signals, which belong to the program.
 */
#ifndef TXDA_THREAD_H
#define TXDA_THREAD_H

#include <pthread.h>

/*
 * pthread_create() with all signals blocked in the new thread and @name (15 bytes) to see it by. 0
 * or -errno.
 */
int txda__thread_start(pthread_t *ret_thread, const char *name, void *(*run)(void *arg), void *arg);

#endif /* TXDA_THREAD_H */
