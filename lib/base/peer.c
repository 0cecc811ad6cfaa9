// SPDX-License-Identifier: MIT
#include "peer.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * Whether everybody can create files beside @path; also true if the directory cannot be examined.
 */
static bool is_open_to_all(const char *path)
{
	const char *slash = strrchr(path, '/');
	char dir[4096];
	struct stat st;

	snprintf(dir, sizeof(dir), "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
	return stat(dir, &st) || st.st_mode & S_IWOTH;
}

int peer_check(int fd, const char *path)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	if (!is_open_to_all(path))
		return 0;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len))
		return -errno;
	return !cred.uid || cred.uid == geteuid() ? 0 : -EPERM;
}
