// SPDX-License-Identifier: MIT
#include "bus.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "host.h"

#define MAX_WATCHED 256

/* The handler reads these without a lock. @end is stored last and cleared first; 0: unused. */
static struct watched {
	_Atomic uintptr_t base, end;
	_Atomic bool hit;
	_Atomic(_Atomic bool *) lost;
} watched[MAX_WATCHED];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards changes of the table */
static struct sigaction before;
static bool installed;

static struct watched *find(uintptr_t addr)
{
	for (unsigned i = 0; i < MAX_WATCHED; i++) {
		struct watched *w = &watched[i];

		if (addr < atomic_load(&w->end) && addr >= atomic_load(&w->base))
			return w;
	}
	return NULL;
}

/* What would have happened without this handler. */
static void pass_on(int sig, siginfo_t *info, void *context)
{
	if (before.sa_flags & SA_SIGINFO) {
		before.sa_sigaction(sig, info, context);
	} else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
		before.sa_handler(sig);
	} else if (info->si_code > 0 || before.sa_handler == SIG_DFL) {
		signal(sig, SIG_DFL);
		/* An access is repeated and ends the process; what a process sent comes once. */
		if (info->si_code <= 0)
			raise(sig);
	}
}

static void on_sigbus(int sig, siginfo_t *info, void *context)
{
	uintptr_t addr = (uintptr_t)info->si_addr;
	struct watched *w = info->si_code > 0 ? find(addr) : NULL;
	void *page = (void *)(addr & ~(uintptr_t)(CM_PAGE - 1));
	int err = errno;

	if (!w || mmap(page, CM_PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
			  MAP_FAILED) {
		pass_on(sig, info, context);
	} else {
		atomic_store(&w->hit, true);
		atomic_store(atomic_load(&w->lost), true);
	}
	errno = err;
}

static int install(void)
{
	struct sigaction action;

	if (installed)
		return 0;
	memset(&action, 0, sizeof(action));
	action.sa_sigaction = on_sigbus;
	action.sa_flags = SA_SIGINFO | SA_ONSTACK;
	/* cm_interrupted() does not return to whom it interrupts, and here that would hide the loss. */
	sigfillset(&action.sa_mask);
	if (sigaction(SIGBUS, NULL, &before) || sigaction(SIGBUS, &action, NULL))
		return -errno;
	installed = true;
	return 0;
}

int cm_bus_watch(void *base, size_t bytes, _Atomic bool *lost)
{
	struct watched *w;
	int ret;

	pthread_mutex_lock(&lock);
	ret = install();
	for (w = watched; w < watched + MAX_WATCHED && atomic_load(&w->end); w++)
		;
	if (!ret && w == watched + MAX_WATCHED)
		ret = -ENOSPC;
	if (!ret) {
		atomic_store(&w->hit, false);
		atomic_store(&w->lost, lost);
		atomic_store(&w->base, (uintptr_t)base);
		atomic_store(&w->end, (uintptr_t)base + bytes);
	}
	pthread_mutex_unlock(&lock);
	return ret;
}

void cm_bus_forget(void *base, size_t bytes)
{
	uintptr_t from = (uintptr_t)base;

	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < MAX_WATCHED; i++) {
		struct watched *w = &watched[i];

		if (atomic_load(&w->end) && atomic_load(&w->base) >= from &&
		    atomic_load(&w->base) - from < bytes)
			atomic_store(&w->end, 0);
	}
	pthread_mutex_unlock(&lock);
}

bool cm_bus_is_lost(const void *base)
{
	const struct watched *w = find((uintptr_t)base);

	return w && atomic_load(&w->hit);
}

void cm_bus_unblock(void)
{
	static _Thread_local bool done;
	sigset_t bus;

	if (done)
		return;
	sigemptyset(&bus);
	sigaddset(&bus, SIGBUS);
	pthread_sigmask(SIG_UNBLOCK, &bus, NULL);
	done = true;
}
