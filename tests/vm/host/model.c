// SPDX-License-Identifier: MIT
#include "model.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

pid_t child_start(char *const *argv, bool keep_stdin, const char *log)
{
	pid_t parent = getpid(), pid = fork();
	sigset_t none;

	if (pid != 0)
		return pid < 0 ? -errno : pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(127);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (!keep_stdin) {
		int null = open("/dev/null", O_RDWR | O_CLOEXEC);

		if (null >= 0)
			dup2(null, STDIN_FILENO);
	}
	if (log) {
		int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);

		if (fd >= 0) {
			dup2(fd, STDOUT_FILENO);
			dup2(fd, STDERR_FILENO);
		}
	}
	execvp(argv[0], argv);
	fprintf(stderr, "supervise: %s: %s\n", argv[0], strerror(errno));
	_exit(127);
}

static int connect_to(const char *path)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int fd;

	if (strlen(path) >= sizeof(addr.sun_path))
		return -ENAMETOOLONG;
	strcpy(addr.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *)&addr, sizeof(addr))) {
		int err = -errno;

		close(fd);
		return err;
	}
	return fd;
}

void model_chip_path(const struct model *model, unsigned int chip, char *path, size_t bytes)
{
	snprintf(path, bytes, "%s/chip%u.sock", model->dir, chip);
}

static void control_path(const struct model *model, char *path, size_t bytes)
{
	snprintf(path, bytes, "%s/control.sock", model->dir);
}

int model_start(struct model *model, int timeout_ms)
{
	char path[256];
	pid_t pid;

	if (!model->argv)
		return -ENODEV;
	if (model->pid)
		return -EBUSY;
	pid = child_start(model->argv, false, model->log);
	if (pid < 0)
		return pid;
	model->pid = pid;
	/* The control socket comes last, so the chips listen when it does. */
	control_path(model, path, sizeof(path));
	for (int waited = 0; waited < timeout_ms; waited += 20) {
		int fd = connect_to(path);

		if (fd >= 0) {
			close(fd);
			return 0;
		}
		if (waitpid(pid, NULL, WNOHANG) == pid) {
			model->pid = 0;
			return -ECHILD;
		}
		poll(NULL, 0, 20);
	}
	model_kill(model);
	return -ETIMEDOUT;
}

void model_kill(struct model *model)
{
	if (!model->pid)
		return;
	kill(model->pid, SIGKILL);
	waitpid(model->pid, NULL, 0);
	model->pid = 0;
}

/* The last line of an answer is "ok" or "error: WHY"; returns its start once it is there. */
static char *last_line(char *answer, size_t fill)
{
	char *line;

	if (!fill || answer[fill - 1] != '\n')
		return NULL;
	answer[fill - 1] = '\0';
	line = strrchr(answer, '\n');
	line = line ? line + 1 : answer;
	if (!strcmp(line, "ok") || !strncmp(line, "error: ", 7))
		return line;
	answer[fill - 1] = '\n';
	return NULL;
}

static int read_answer(int fd, int timeout_ms, char *answer, size_t bytes)
{
	size_t fill = 0;

	for (;;) {
		struct pollfd pfd = {.fd = fd, .events = POLLIN};
		ssize_t n = poll(&pfd, 1, timeout_ms);
		char *last;

		if (n <= 0)
			return n ? -errno : -ETIMEDOUT;
		n = read(fd, answer + fill, bytes - 1 - fill);
		if (n <= 0)
			return n ? -errno : -ECONNRESET;
		fill += (size_t)n;
		last = last_line(answer, fill);
		if (last && last[0] == 'o') {
			/* What precedes "ok" is the answer, without its newline. */
			*(last > answer ? last - 1 : last) = '\0';
			return 0;
		}
		if (last)
			return -EREMOTEIO;
		if (fill + 1 == bytes)
			return -EMSGSIZE;
	}
}

int model_control(struct model *model, const char *line, int timeout_ms, char *answer, size_t bytes)
{
	char path[256];
	int fd, err;

	control_path(model, path, sizeof(path));
	fd = connect_to(path);
	if (fd < 0)
		return fd;
	answer[0] = '\0';
	err = dprintf(fd, "%s\n", line) < 0 ? -errno : read_answer(fd, timeout_ms, answer, bytes);
	if (err && err != -EREMOTEIO)
		answer[0] = '\0';
	close(fd);
	return err;
}
