// SPDX-License-Identifier: MIT
#include <signal.h>

#include "thread.h"

int txda__thread_start(pthread_t *ret_thread, const char *name, void *(*run)(void *arg), void *arg)
{
	sigset_t all, before;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(ret_thread, NULL, run, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!r)
		pthread_setname_np(*ret_thread, name);
	return -r;
}
