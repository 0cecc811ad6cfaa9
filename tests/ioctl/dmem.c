// SPDX-License-Identifier: MIT
#include "dmem.h"
#include "common.h"

static void put(const char *group, const char *name, const char *text)
{
	char path[128];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", group, name);
	file = fopen(path, "w");
	if (!file || fputs(text, file) < 0 || fclose(file))
		fail("%s: %s", path, strerror_of(-errno));
}

const char *must_group(void)
{
	const char *group = getenv("DMEM_GROUP");

	if (!group)
		skip("there is no control group with limits of device memory");
	return group;
}

void must_enter(const char *group)
{
	put(group, "cgroup.procs", "0");
}

void must_limit(const char *group, const char *limit, uint64_t bytes)
{
	const char *region = getenv("DMEM_REGION");
	char text[128];

	check(region);
	snprintf(text, sizeof(text), "%s %llu", region, (unsigned long long)bytes);
	put(group, limit, text);
}
