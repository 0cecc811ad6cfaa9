// SPDX-License-Identifier: MIT
#include "sigbus.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096ull

static void on_sigbus(int sig, siginfo_t *info, void *context)
{
	void *page = (void *)((uintptr_t)info->si_addr & ~(PAGE - 1));
	int err = errno;

	(void)context;
	if (info->si_code != BUS_ADRERR ||
	    mmap(page, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		 0) == MAP_FAILED)
		/* The access is repeated and ends the process. */
		signal(sig, SIG_DFL);
	errno = err;
}

int vu_sigbus_install(void)
{
	struct sigaction action;

	memset(&action, 0, sizeof(action));
	action.sa_sigaction = on_sigbus;
	action.sa_flags = SA_SIGINFO;
	/* Whoever is interrupted never returns to the handler. */
	sigfillset(&action.sa_mask);
	return sigaction(SIGBUS, &action, NULL) ? -errno : 0;
}
