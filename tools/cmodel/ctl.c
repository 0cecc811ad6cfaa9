// SPDX-License-Identifier: MIT
#include "ctl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define LINE_BYTES 1000 /* a little less than the server's limit */

static int fail(const char *where, const char *why)
{
	fprintf(stderr, "txda-cmodel: %s: %s\n", where, why);
	return 1;
}

/* Whether @path was formatted completely. */
static int set_path(struct sockaddr_un *address, const char *where)
{
	struct stat st;
	int dir = !stat(where, &st) && S_ISDIR(st.st_mode);
	int len = snprintf(address->sun_path, sizeof(address->sun_path), "%s%s", where,
			   dir ? "/control.sock" : "");

	address->sun_family = AF_UNIX;
	return len > 0 && (size_t)len < sizeof(address->sun_path);
}

/* Prints lines up to and including the status line. */
static int print_answer(FILE *in, const char *where)
{
	char *line = NULL;
	size_t room = 0;
	int status = -1;

	while (status < 0 && getline(&line, &room, in) >= 0) {
		if (!strcmp(line, "ok\n"))
			status = 0;
		else if (!strncmp(line, "error: ", 7))
			status = 1;
		fputs(line, status == 1 ? stderr : stdout);
	}
	free(line);
	return status < 0 ? fail(where, "the server hung up") : status;
}

int ctl_send_command(const char *where, char **words, int n)
{
	struct sockaddr_un address;
	char line[LINE_BYTES] = "";
	size_t at = 0;
	int sock, status;
	FILE *io;

	for (int i = 0; i < n; i++) {
		int len = snprintf(line + at, sizeof(line) - at, "%s%s", words[i],
				   i + 1 < n ? " " : "\n");

		if (len < 0 || (size_t)len >= sizeof(line) - at)
			return fail(where, "the command is too long");
		at += (size_t)len;
	}
	if (!set_path(&address, where))
		return fail(where, strerror(ENAMETOOLONG));
	sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (sock < 0)
		return fail(where, strerror(errno));
	if (connect(sock, (struct sockaddr *)&address, sizeof(address)) ||
	    send(sock, line, at, MSG_NOSIGNAL) != (ssize_t)at) {
		status = fail(where, strerror(errno));
		close(sock);
		return status;
	}
	io = fdopen(sock, "r");
	if (!io) {
		close(sock);
		return fail(where, strerror(errno));
	}
	status = print_answer(io, where);
	fclose(io);
	return status;
}
