// SPDX-License-Identifier: MIT
/* Time slices: of the thread that asks alone, where the kernel has them. */
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "unit.h"
#include "priority.h"

/* The slice that the kernel tells in sched_getattr(2); 0: it tells none. */
static uint64_t slice(void)
{
	uint64_t attributes[6] = {0}; /* sched_runtime comes after 24 bytes */

	if (syscall(SYS_sched_getattr, 0, attributes, sizeof(attributes), 0))
		return 0;
	return attributes[3];
}

static void *read_slice(void *ret)
{
	*(uint64_t *)ret = slice();
	return NULL;
}

static void *set_and_read(void *arg)
{
	uint64_t *slices = arg;
	pthread_t child;

	slices[0] = slice();
	priority_shorten_slice();
	slices[1] = slice();
	assert_int_equal(pthread_create(&child, NULL, read_slice, &slices[2]), 0);
	pthread_join(child, NULL);
	return NULL;
}

TEST(a_slice_is_of_one_thread)
{
	uint64_t slices[3] = {0}, before = slice();
	int own = getpriority(PRIO_PROCESS, 0);
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, set_and_read, slices), 0);
	pthread_join(thread, NULL);
	assert_int_equal(slice(), before);
	assert_int_equal(sched_getscheduler(0), SCHED_OTHER);
	assert_int_equal(getpriority(PRIO_PROCESS, 0), own);
	if (slices[1] == slices[0]) {
		print_message("this kernel has no slices of threads (6.12 and later)\n");
		skip();
	}
	assert_int_equal(slices[1], PRIORITY_SHORT_SLICE_NS);
	assert_int_equal(slices[2], slices[0]);
}

/* Setting a slice does not raise a lowered priority. */
TEST(a_lowered_priority_stays)
{
	if (!priority_works()) {
		print_message("a filter forbids priorities here\n");
		skip();
	}
	priority_lower(0);
	priority_shorten_slice();
	assert_true(getpriority(PRIO_PROCESS, 0) >= PRIORITY_LOW);
}

TEST_MAIN
