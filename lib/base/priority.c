// SPDX-License-Identifier: MIT
#include "priority.h"

#include <errno.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SCHED_FLAG_RESET_ON_FORK
#define SCHED_FLAG_RESET_ON_FORK 1
#endif

/*
 * struct sched_attr of sched_setattr(2), as far as all kernels know it. <linux/sched/types.h> also
 * defines what <sched.h> does.
 */
struct attributes {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

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

void priority_shorten_slice(void)
{
	struct attributes a = {0};

	/* A raised priority would not be passed on to threads; it runs ahead of others anyway. */
	if (syscall(SYS_sched_getattr, 0, &a, sizeof(a), 0) || a.policy != SCHED_OTHER ||
	    a.nice < 0)
		return;
	a.flags = SCHED_FLAG_RESET_ON_FORK;
	a.runtime = PRIORITY_SHORT_SLICE_NS;
	(void)syscall(SYS_sched_setattr, 0, &a, 0);
}
