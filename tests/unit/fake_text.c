// SPDX-License-Identifier: MIT
/*
 * Stands in for txdad-text and is hostile: the name of the directory says how. "good" reads nothing
 * and answers a job with one id, by the process itself. A path is that of a file: if there is one,
 * it removes it and is silent until there is one again, otherwise it makes it; then it is "good".
 * What it answers to a job is in the job's text.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "text_message.h"

static void say(int fd, const void *data, size_t n)
{
	if (write(fd, data, n) != (ssize_t)n)
		exit(1);
}

static void load(const char *how)
{
	struct text_loaded l = {
		.size = sizeof(l), .tables = {sizeof(l), 0}, .images = {sizeof(l), 0}};

	if (!strcmp(how, "dies"))
		abort();
	if (!strcmp(how, "silent"))
		pause();
	if (*how == '/' && open(how, O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600) < 0) {
		unlink(how);
		while (access(how, F_OK))
			usleep(10000);
	}
	/* A child that nobody knows of. */
	if (!strcmp(how, "forks") && !fork())
		for (;;)
			pause();
	if (!strcmp(how, "small"))
		l.size = 8;
	if (!strcmp(how, "huge"))
		l.size = UINT32_MAX;
	if (!strcmp(how, "beyond"))
		l.tables = (struct text_part){sizeof(l), 1};
	if (!strcmp(how, "images"))
		l.images = (struct text_part){sizeof(l), 48};
	if (!strcmp(how, "wraps"))
		l.tables = (struct text_part){UINT32_MAX, UINT32_MAX};
	if (!strcmp(how, "stops"))
		l.n_stop_tokens = TEXT_STOP_TOKENS + 1;
	if (!strcmp(how, "endless")) {
		l.error = -5;
		memset(l.message, 'x', sizeof(l.message));
	}
	say(0, &l, sizeof(l));
}

static void work(int fd)
{
	struct {
		struct text_job job;
		char text[16];
	} in;
	struct text_done done = {.size = sizeof(done), .part = {sizeof(done), 0}};

	say(fd, "", 1);
	for (;;) {
		ssize_t n = read(fd, &in, sizeof(in));

		if (n < (ssize_t)sizeof(in.job))
			return;
		memset(in.text + (n - sizeof(in.job)), 0, sizeof(in.text) - (n - sizeof(in.job)));
		done.size = sizeof(done);
		done.part = (struct text_part){sizeof(done), 0};
		done.error = 0;
		if (!strcmp(in.text, "silent"))
			continue;
		if (!strcmp(in.text, "dies"))
			return;
		if (!strcmp(in.text, "huge"))
			done.size = UINT32_MAX;
		if (!strcmp(in.text, "small"))
			done.size = 4;
		if (!strcmp(in.text, "beyond"))
			done.part.length = 1;
		if (!strcmp(in.text, "positive"))
			done.error = 1;
		if (!strcmp(in.text, "endless"))
			memset(done.message, 'x', sizeof(done.message));
		say(fd, &done, sizeof(done));
	}
}

/* A lane is a child here, too. */
static void serve(void)
{
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct text_lane lane;
	struct iovec data = {&lane, sizeof(lane)};
	struct msghdr message = {.msg_iov = &data,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control)};
	int fd;

	while (recvmsg(0, &message, 0) == sizeof(lane)) {
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
		if (!fork()) {
			close(0);
			work(fd);
			_exit(0);
		}
		close(fd);
	}
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 1;
	load(argv[1]);
	serve();
	return 0;
}
