// SPDX-License-Identifier: MIT
#include "cpus.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_CPUS  4096
#define MAX_NODES 1024
/* One of every 8 CPUs is left to other threads, at most two. */
#define CPUS_PER_LEFT 8
#define MOST_LEFT     2

const char *cm_cpus_directory = "/sys/devices/system/cpu";

struct place {
	unsigned sibling; /* 1: another CPU of this process on that core comes first */
	unsigned socket, cache, cpu;
};

/* The first number of a file below the CPU's directory; @none: there is none. */
static unsigned read_number(unsigned cpu, const char *name, unsigned none)
{
	char path[128];
	unsigned n;
	FILE *f;

	snprintf(path, sizeof(path), "%s/cpu%u/%s", cm_cpus_directory, cpu, name);
	f = fopen(path, "re");
	if (!f)
		return none;
	if (fscanf(f, "%u", &n) != 1)
		n = none;
	fclose(f);
	return n;
}

static int compare(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	if (x->sibling != y->sibling)
		return x->sibling < y->sibling ? -1 : 1;
	if (x->socket != y->socket)
		return x->socket < y->socket ? -1 : 1;
	if (x->cache != y->cache)
		return x->cache < y->cache ? -1 : 1;
	return x->cpu < y->cpu ? -1 : 1;
}

/* The CPUs of this process in their order, at @place[MAX_CPUS]; returns how many. */
static unsigned find(struct place *place)
{
	cpu_set_t *set = CPU_ALLOC(MAX_CPUS);
	size_t bytes = CPU_ALLOC_SIZE(MAX_CPUS);
	bool seen[MAX_CPUS] = {false}; /* first CPUs of cores */
	unsigned n = 0;

	if (set && !sched_getaffinity(0, bytes, set)) {
		for (unsigned cpu = 0; cpu < MAX_CPUS; cpu++) {
			unsigned first;

			if (!CPU_ISSET_S(cpu, bytes, set))
				continue;
			first = read_number(cpu, "topology/thread_siblings_list", cpu);
			place[n++] = (struct place){
				.sibling = first < MAX_CPUS && seen[first],
				.socket = read_number(cpu, "topology/physical_package_id", 0),
				.cache = read_number(cpu, "cache/index3/id", 0),
				.cpu = cpu,
			};
			if (first < MAX_CPUS)
				seen[first] = true;
		}
		qsort(place, n, sizeof(*place), compare);
	}
	if (set)
		CPU_FREE(set);
	return n;
}

unsigned cm_cpus(unsigned *ret_cpu, unsigned max)
{
	struct place *place = calloc(MAX_CPUS, sizeof(*place));
	unsigned n = place ? find(place) : 0;
	int here;

	for (unsigned i = 0; i < n && i < max; i++)
		ret_cpu[i] = place[i].cpu;
	free(place);
	if (n)
		return n;
	here = sched_getcpu();
	if (max)
		ret_cpu[0] = here < 0 ? 0 : (unsigned)here;
	return 1;
}

unsigned cm_physical_cores(void)
{
	struct place *place = calloc(MAX_CPUS, sizeof(*place));
	unsigned n = place ? find(place) : 0, cores = 0;

	while (cores < n && !place[cores].sibling)
		cores++;
	free(place);
	return cores ? cores : 1;
}

unsigned cm_cpus_to_compute(unsigned cpus, unsigned cores)
{
	unsigned left = cpus / CPUS_PER_LEFT < MOST_LEFT ? cpus / CPUS_PER_LEFT : MOST_LEFT;

	return cores < cpus - left ? cores : cpus - left;
}

int cm_cpus_pin(unsigned cpu)
{
	cpu_set_t *set = CPU_ALLOC(MAX_CPUS);
	size_t bytes = CPU_ALLOC_SIZE(MAX_CPUS);
	int ret;

	if (!set)
		return -ENOMEM;
	CPU_ZERO_S(bytes, set);
	CPU_SET_S(cpu, bytes, set);
	ret = sched_setaffinity(0, bytes, set) ? -errno : 0;
	CPU_FREE(set);
	return ret;
}

struct cm_cpu_choice {
	cpu_set_t set[MAX_CPUS / CPU_SETSIZE];
};

struct cm_cpu_choice *cm_cpus_choice(void)
{
	struct cm_cpu_choice *choice = calloc(1, sizeof(*choice));

	if (choice && sched_getaffinity(0, sizeof(*choice), choice->set)) {
		free(choice);
		return NULL;
	}
	return choice;
}

int cm_cpus_avoid(const struct cm_cpu_choice *choice, pid_t tid, int before, int cpu)
{
	struct cm_cpu_choice now = {0}, expected = *choice, others = *choice;

	if (sched_getaffinity(tid, sizeof(now), now.set))
		return -errno;
	if (before >= 0)
		CPU_CLR_S((unsigned)before, sizeof(expected), expected.set);
	if (!CPU_EQUAL_S(sizeof(now), now.set, expected.set))
		return -EBUSY;
	CPU_CLR_S((unsigned)cpu, sizeof(others), others.set);
	return sched_setaffinity(tid, sizeof(others), others.set) ? -errno : 0;
}

/* The bits of a list such as "0-1,4"; returns how many. */
static unsigned read_nodes(unsigned long *bits, size_t max)
{
	FILE *f = fopen("/sys/devices/system/node/has_memory", "re");
	unsigned from, to, n = 0;
	int next = ',';

	while (f && next == ',' && fscanf(f, "%u", &from) == 1) {
		to = from;
		next = fgetc(f);
		if (next == '-' && fscanf(f, "%u", &to) == 1)
			next = fgetc(f);
		for (; from <= to && from < max; from++, n++)
			bits[from / (8 * sizeof(*bits))] |= 1ul << from % (8 * sizeof(*bits));
	}
	if (f)
		fclose(f);
	return n;
}

unsigned cm_memory_nodes(void)
{
	unsigned long bits[MAX_NODES / (8 * sizeof(long))] = {0};
	unsigned n = read_nodes(bits, MAX_NODES);

	return n ? n : 1;
}

void cm_interleave(void *ptr, size_t bytes)
{
	unsigned long bits[MAX_NODES / (8 * sizeof(long))] = {0};

	/* A hint: without it pages come from the node of the thread that touches them first. */
	if (read_nodes(bits, MAX_NODES))
		syscall(SYS_mbind, ptr, bytes, MPOL_INTERLEAVE, bits, MAX_NODES + 1, 0);
}
