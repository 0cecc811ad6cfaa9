// SPDX-License-Identifier: MIT
#include "tool_run.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void occupy_standard_descriptors(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			/* The lowest free number is @fd. Without /dev/null all remains as it is. */
			(void)!open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

/*
 * Whether output was lost; *ret_error is why, or 0 if that is not known any more: a stream forgets
 * the reason of an earlier failure. Then the descriptor may still tell it.
 */
static bool lost_output(int *ret_error)
{
	struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};

	errno = 0;
	if (!fflush(stdout) && !ferror(stdout))
		return false;
	if (!errno && poll(&p, 1, 0) > 0 && p.revents & POLLERR)
		errno = EPIPE;
	else if (!errno)
		(void)!write(STDOUT_FILENO, "", 0);
	*ret_error = errno;
	return true;
}

int tool_end(const char *name, int status, int failure)
{
	int error;

	if (!lost_output(&error) || status)
		return status;
	if (error != EPIPE)
		fprintf(stderr, "%s: cannot write to standard output%s%s\n", name,
			error ? ": " : "", error ? strerror(error) : "");
	return failure;
}

int tool_run(const char *name, int (*tool)(int argc, char **argv), int argc, char **argv,
	     int failure)
{
	occupy_standard_descriptors();
	return tool_end(name, tool(argc, argv), failure);
}
