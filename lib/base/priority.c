// SPDX-License-Identifier: MIT
#include "priority.h"

#include <errno.h>
#include <sys/resource.h>

void priority_lower(pid_t pid)
{
	/* A daemon with a low priority of its own: this would raise it. */
	if (getpriority(PRIO_PROCESS, (id_t)pid) < PRIORITY_LOW)
		setpriority(PRIO_PROCESS, (id_t)pid, PRIORITY_LOW);
}

bool priority_works(void)
{
	int own;

	errno = 0;
	own = getpriority(PRIO_PROCESS, 0);
	/* Setting the current value: a filter refuses that as well. */
	return !errno && !setpriority(PRIO_PROCESS, 0, own);
}
