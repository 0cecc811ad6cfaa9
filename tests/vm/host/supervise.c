// SPDX-License-Identifier: MIT
/*
 * supervise - run one virtual machine: the model server and QEMU as children, the guest's requests,
 * a deadline. What the guest prints goes to standard output.
 *
 *   supervise -d DIR [-n CHIPS] [-l SECONDS] [-i] [-m MODEL ARG... --] -- QEMU ARG...
 *
 * DIR gets the sockets and the files "events" and "model.log"; the server makes its sockets in
 * DIR/chips. -i leaves standard input to QEMU and sets no limit.
 * Exit status: what the guest said with "exit", 124 when it took too long, 125 when it died without
 * a word, 126 when it could not be started.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "control.h"
#include "model.h"
#include "qmp.h"

#define STATUS_TIMEOUT	 124
#define STATUS_DIED	 125
#define STATUS_NO_START	 126
#define START_TIMEOUT_MS 30000
#define MAX_ARGS	 256

struct machine {
	const char *dir;
	char *const *qemu_argv;
	bool interactive;
	int limit_s;
	pid_t qemu, printer;
	int listen_qmp, listen_ctl, listen_out, signals;
	struct model model;
	struct qmp qmp;
	struct control control;
};

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static int listen_at(const char *dir, const char *name)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int fd;

	if ((size_t)snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/%s.sock", dir, name) >=
	    sizeof(addr.sun_path))
		return -ENAMETOOLONG;
	unlink(addr.sun_path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (bind(fd, (const struct sockaddr *)&addr, sizeof(addr)) || listen(fd, 1)) {
		int err = -errno;

		close(fd);
		return err;
	}
	return fd;
}

/* QEMU connects while it starts; a QEMU that refuses its arguments never does. */
static int accept_from(struct machine *m, int fd)
{
	for (int waited = 0; waited < START_TIMEOUT_MS; waited += 100) {
		struct pollfd pfd = {.fd = fd, .events = POLLIN};

		if (poll(&pfd, 1, 100) > 0) {
			int conn = accept4(fd, NULL, NULL, SOCK_CLOEXEC);

			return conn < 0 ? -errno : conn;
		}
		if (waitpid(m->qemu, NULL, WNOHANG) == m->qemu) {
			m->qemu = 0;
			return -ECHILD;
		}
	}
	return -ETIMEDOUT;
}

/* A child of its own copies the guest's output, so that no request delays it. */
static pid_t printer_start(int fd)
{
	pid_t pid = fork();
	char buf[4096];
	ssize_t n;

	if (pid != 0)
		return pid;
	while ((n = read(fd, buf, sizeof(buf))) > 0) {
		for (ssize_t done = 0, w; done < n; done += w) {
			w = write(STDOUT_FILENO, buf + done, (size_t)(n - done));
			if (w < 0)
				_exit(1);
		}
	}
	_exit(0);
}

static int start(struct machine *m)
{
	int out, err;

	m->listen_qmp = listen_at(m->dir, "qmp");
	m->listen_ctl = listen_at(m->dir, "ctl");
	m->listen_out = listen_at(m->dir, "out");
	if (m->listen_qmp < 0 || m->listen_ctl < 0 || m->listen_out < 0)
		return -EIO;
	if (m->model.argv) {
		err = model_start(&m->model, START_TIMEOUT_MS);
		if (err) {
			fprintf(stderr, "supervise: the model server does not start: %s\n",
				strerror(-err));
			return err;
		}
	}
	m->qemu = child_start(m->qemu_argv, m->interactive, NULL);
	if (m->qemu < 0)
		return m->qemu;
	err = accept_from(m, m->listen_qmp);
	if (err >= 0)
		err = qmp_start(&m->qmp, err, START_TIMEOUT_MS);
	if (err >= 0)
		m->control.fd = err = accept_from(m, m->listen_ctl);
	if (err < 0)
		return err;
	out = accept_from(m, m->listen_out);
	if (out < 0)
		return out;
	m->printer = printer_start(out);
	close(out);
	return m->printer < 0 ? -errno : 0;
}

static void stop(struct machine *m)
{
	if (m->qemu > 0) {
		kill(m->qemu, SIGKILL);
		waitpid(m->qemu, NULL, 0);
	}
	/* With QEMU gone the output ends, so this prints the last of it. */
	if (m->printer > 0)
		waitpid(m->printer, NULL, 0);
	model_kill(&m->model);
}

/* A child ended or someone wants us to; true when the machine is over. */
static bool take_signals(struct machine *m, int *ret_status)
{
	struct signalfd_siginfo info;
	pid_t pid;

	if (read(m->signals, &info, sizeof(info)) != sizeof(info))
		return false;
	if (info.ssi_signo != SIGCHLD) {
		if (m->interactive && info.ssi_signo == SIGINT)
			return false;
		*ret_status = 128 + (int)info.ssi_signo;
		return true;
	}
	while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) {
		if (pid == m->model.pid) {
			fprintf(stderr, "supervise: the model server died\n");
			m->model.pid = 0;
		} else if (pid == m->printer) {
			m->printer = 0;
		} else if (pid == m->qemu) {
			m->qemu = 0;
			*ret_status = m->interactive ? 0 : STATUS_DIED;
			return true;
		}
	}
	return false;
}

static int run(struct machine *m)
{
	int64_t deadline = now_ms() + (int64_t)m->limit_s * 1000;
	int status = STATUS_DIED;

	for (;;) {
		struct pollfd fds[] = {
			{.fd = m->signals, .events = POLLIN},
			{.fd = m->control.fd, .events = POLLIN},
			{.fd = m->qmp.fd, .events = POLLIN},
		};
		int64_t left = deadline - now_ms();

		if (!m->interactive && left <= 0)
			return STATUS_TIMEOUT;
		if (poll(fds, 3, m->interactive ? -1 : (int)left) < 0 && errno != EINTR)
			return STATUS_DIED;
		if ((fds[1].revents) && control_serve(&m->control))
			m->control.fd = -1;
		if (m->control.exited)
			return m->control.status;
		if (m->control.limit_s >= 0) {
			deadline = now_ms() + (int64_t)m->control.limit_s * 1000;
			m->control.limit_s = -1;
		}
		/* Not only when there is more to read: a request may have left events behind. */
		if (m->qmp.fd >= 0 && qmp_pump(&m->qmp))
			m->qmp.fd = -1;
		if (fds[0].revents && take_signals(m, &status))
			return status;
	}
}

static int watch_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* Words up to a "--" become a NULL-terminated list of their own; returns what follows. */
static char **cut_list(char **argv, char *list[MAX_ARGS])
{
	int n = 0;

	while (*argv && strcmp(*argv, "--") && n < MAX_ARGS - 1)
		list[n++] = *argv++;
	list[n] = NULL;
	return *argv ? argv + 1 : argv;
}

static void usage(void)
{
	fprintf(stderr, "usage: supervise -d DIR [-n CHIPS] [-l SECONDS] [-i] [-m MODEL ARG... --] "
			"-- QEMU ARG...\n");
	exit(STATUS_NO_START);
}

int main(int argc, char **argv)
{
	static char *model_argv[MAX_ARGS], *qemu_argv[MAX_ARGS];
	static struct machine m = {.limit_s = 120};
	char path[256], chips_dir[200], log[200];
	int status, err;

	(void)argc;
	for (argv++; *argv && strcmp(*argv, "--"); argv++) {
		if (!strcmp(*argv, "-i"))
			m.interactive = true;
		else if (!strcmp(*argv, "-d") && argv[1])
			m.dir = *++argv;
		else if (!strcmp(*argv, "-n") && argv[1])
			m.control.chips = (unsigned int)atoi(*++argv);
		else if (!strcmp(*argv, "-l") && argv[1])
			m.limit_s = atoi(*++argv);
		else if (!strcmp(*argv, "-m"))
			argv = cut_list(argv + 1, model_argv) - 1;
		else
			usage();
	}
	if (!*argv || !m.dir)
		usage();
	cut_list(argv + 1, qemu_argv);
	if (!qemu_argv[0])
		usage();

	snprintf(path, sizeof(path), "%s/events", m.dir);
	snprintf(chips_dir, sizeof(chips_dir), "%s/chips", m.dir);
	snprintf(log, sizeof(log), "%s/model.log", m.dir);
	m.qemu_argv = qemu_argv;
	m.model = (struct model){
		.argv = model_argv[0] ? model_argv : NULL,
		.dir = chips_dir,
		.log = log,
	};
	m.qmp.fd = -1;
	m.control.fd = -1;
	m.control.qmp = &m.qmp;
	m.control.model = &m.model;
	m.control.machine = &m.qemu;
	m.control.limit_s = -1;
	m.control.events = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	m.signals = watch_signals();

	err = start(&m);
	if (err)
		fprintf(stderr, "supervise: the machine does not start: %s\n", strerror(-err));
	status = err ? STATUS_NO_START : run(&m);
	stop(&m);
	return status;
}
