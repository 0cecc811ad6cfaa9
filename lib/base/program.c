// SPDX-License-Identifier: MIT
#include "program.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int find_in_path(const char *name, char *path, size_t len)
{
	const char *dirs = getenv("PATH");

	while (dirs && *dirs) {
		size_t n = strcspn(dirs, ":");
		int need = snprintf(path, len, "%.*s/%s", (int)n, dirs, name);

		if (n && need > 0 && (size_t)need < len && !access(path, X_OK))
			return 0;
		dirs += n + (dirs[n] == ':');
	}
	return -ENOENT;
}

int program_find(const char *name, char *path, size_t len)
{
	char self[4096];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n > 0) {
		self[n] = '\0';
		*strrchr(self, '/') = '\0';

		int need = snprintf(path, len, "%s/%s", self, name);

		if (need > 0 && (size_t)need < len && !access(path, X_OK))
			return 0;
	}
	return find_in_path(name, path, len);
}
