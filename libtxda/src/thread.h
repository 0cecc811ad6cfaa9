/* SPDX-License-Identifier: MIT */
/* Threads of the library: they block all signals, which are left to the program's threads. */
#ifndef TXDA_THREAD_H
#define TXDA_THREAD_H

#include <pthread.h>

/*
 * pthread_create() with all signals blocked in the new thread, named @name (at most 15 bytes). 0 or
 * -errno.
 */
int txda__thread_start(pthread_t *ret_thread, const char *name, void *(*run)(void *arg), void *arg);

#endif /* TXDA_THREAD_H */
