// SPDX-License-Identifier: MIT
/*
 * count_events EVENT... - counts events of the chip behind accel0, as perf does; for each line of its input it prints
 * their counts, in bytes and nanoseconds.
 * count_events --refused - prints the error numbers of an unknown event, one of ports, one of a task, one that samples.
 */
#include <errno.h>
#include <linux/perf_event.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PMU	   "/sys/bus/event_source/devices/txda_0/"
#define MAX_EVENTS 8

static void fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

/* The number that @format finds in the file @name of the PMU. */
static uint64_t number(const char *name, const char *format)
{
	unsigned long long value;
	char path[256];
	FILE *file;

	snprintf(path, sizeof(path), PMU "%s", name);
	file = fopen(path, "r");
	if (!file || fscanf(file, format, &value) != 1)
		fail(path);
	fclose(file);
	return value;
}

/* A descriptor, or an error number below 0. */
static int open_event(uint64_t config, pid_t pid, int cpu, uint64_t period)
{
	struct perf_event_attr attr = {
		.type = (uint32_t)number("type", "%llu"),
		.size = PERF_ATTR_SIZE_VER0,
		.config = config,
		.sample_period = period,
	};
	long fd = syscall(SYS_perf_event_open, &attr, pid, cpu, -1, PERF_FLAG_FD_CLOEXEC);

	return fd < 0 ? -errno : (int)fd;
}

int main(int argc, char **argv)
{
	int fds[MAX_EVENTS], n = argc - 1, cpu = (int)number("cpumask", "%llu");
	char path[128], line[64];

	if (n == 1 && !strcmp(argv[1], "--refused")) {
		printf("%d %d %d %d\n", -open_event(99, -1, 0, 0), -open_event(4, -1, 0, 0),
		       -open_event(0, 0, -1, 0), -open_event(0, -1, 0, 1000));
		return 0;
	}
	if (n < 1 || n > MAX_EVENTS || number("format/event", "config:0-%llu") != 7)
		return 2;
	for (int i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "events/%s", argv[1 + i]);
		fds[i] = open_event(number(path, "event=%llx"), -1, cpu, 0);
		if (fds[i] < 0) {
			errno = -fds[i];
			fail("perf_event_open");
		}
	}
	while (fgets(line, sizeof(line), stdin)) {
		for (int i = 0; i < n; i++) {
			uint64_t count;

			if (read(fds[i], &count, sizeof(count)) != sizeof(count))
				fail(argv[1 + i]);
			printf("%s%llu", i ? " " : "", (unsigned long long)count);
		}
		printf("\n");
		fflush(stdout);
	}
	return 0;
}
