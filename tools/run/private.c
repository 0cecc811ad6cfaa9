// SPDX-License-Identifier: MIT
#include "private.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "interrupt.h"
#include "show.h"

#define BACKLOG	   16
#define LISTEN_FD  3 /* where sd_listen_fds(3) looks */
#define FIRST_FREE 10
#define LOG_BYTES  4096 /* of its end, when it failed */
#define FAIL_MS	   1000 /* from the end of its sockets to that of the process */
#define STOP_MS	   10000

/* ---- the socket ------------------------------------------------------------------------------ */

/* Makes a listening socket below @parent and removes its names. */
static int make_socket(const char *parent, int *ret_listen, int *ret_path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char dir[sizeof(address.sun_path) - 2];
	int fd, path_fd = -1, r = 0;

	if ((size_t)snprintf(dir, sizeof(dir), "%s/txda-run.XXXXXX", parent) >= sizeof(dir))
		return -ENAMETOOLONG;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (!mkdtemp(dir)) {
		r = -errno;
		close(fd);
		return r;
	}
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/s", dir);
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) || listen(fd, BACKLOG) ||
	    (path_fd = open(address.sun_path, O_PATH | O_CLOEXEC)) < 0)
		r = -errno;
	unlink(address.sun_path);
	rmdir(dir);
	if (r) {
		close(fd);
		return r;
	}
	*ret_listen = fd;
	*ret_path = path_fd;
	return 0;
}

static int find_socket(int *ret_listen, int *ret_path)
{
	const char *const parents[] = {getenv("XDG_RUNTIME_DIR"), getenv("TMPDIR"), "/tmp",
				       "/dev/shm"};
	int r = -ENOENT;

	for (size_t i = 0; i < sizeof(parents) / sizeof(*parents); i++) {
		if (!parents[i] || *parents[i] != '/')
			continue;
		r = make_socket(parents[i], ret_listen, ret_path);
		if (!r)
			return 0;
	}
	fprintf(stderr,
		"txda-run: cannot make a socket in $XDG_RUNTIME_DIR, $TMPDIR, /tmp or /dev/shm: "
		"%s\n",
		strerror(-r));
	return r;
}

/* ---- the program ----------------------------------------------------------------------------- */

/* Beside this program, as build trees and packages have it, else in PATH. */
static const char *find_program(void)
{
	static char path[4096];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - sizeof("/txdad"));
	char *slash;

	if (n > 0) {
		path[n] = 0;
		slash = strrchr(path, '/');
		strcpy(slash ? slash : path, "/txdad");
		if (!access(path, X_OK))
			return path;
	}
	for (const char *dirs = getenv("PATH"); dirs && *dirs;) {
		int len = (int)strcspn(dirs, ":");

		if (len &&
		    (size_t)snprintf(path, sizeof(path), "%.*s/txdad", len, dirs) < sizeof(path) &&
		    !access(path, X_OK))
			return path;
		dirs += len + (dirs[len] == ':');
	}
	fprintf(stderr, "txda-run: txdad was found neither beside txda-run nor in $PATH; its "
			"Debian package is txdad\n");
	return NULL;
}

/*
 * In the new process. It shares nothing with the terminal, and inherits nothing from a service
 * manager.
 */
static _Noreturn void become(const char *program, char *const *argv, pid_t parent, int listen_fd,
			     int log_fd)
{
	char pid[16];

	interrupt_restore();
	setsid();
	listen_fd = fcntl(listen_fd, F_DUPFD, FIRST_FREE);
	log_fd = fcntl(log_fd, F_DUPFD, FIRST_FREE);
	close(STDIN_FILENO);
	if (open("/dev/null", O_RDONLY) != STDIN_FILENO || dup2(log_fd, STDOUT_FILENO) < 0 ||
	    dup2(log_fd, STDERR_FILENO) < 0 || dup2(listen_fd, LISTEN_FD) < 0)
		_exit(EXIT_FAILURE);
	close_range(LISTEN_FD + 1, ~0u, 0);
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	setenv("LISTEN_PID", pid, 1);
	setenv("LISTEN_FDS", "1", 1);
	unsetenv("LISTEN_FDNAMES");
	unsetenv("NOTIFY_SOCKET");
	unsetenv("WATCHDOG_PID");
	unsetenv("WATCHDOG_USEC");
	/* A parent that has ended before the first call is seen by the second one. */
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(EXIT_FAILURE);
	execv(program, argv);
	fprintf(stderr, "cannot run %s: %s\n", program, strerror(errno));
	_exit(EXIT_FAILURE);
}

int private_start(struct private_daemon *d, const char *dir, char *const *options)
{
	static const char *const fixed[] = {
		"txdad", "--drain-seconds",   "0",	"--no-access-log", "--status-seconds",
		"0",	 "--no-keep-weights", "--model"};
	const char *argv[sizeof(fixed) / sizeof(*fixed) + PRIVATE_MAX_OPTIONS + 2];
	const char *program = find_program();
	pid_t parent = getpid();
	int listen_fd = -1;
	size_t n = 0;

	if (!program || find_socket(&listen_fd, &d->socket_fd))
		return 1;
	while (n < sizeof(fixed) / sizeof(*fixed)) {
		argv[n] = fixed[n];
		n++;
	}
	argv[n++] = dir;
	for (unsigned i = 0; i < PRIVATE_MAX_OPTIONS && options[i]; i++)
		argv[n++] = options[i];
	argv[n] = NULL;
	d->log_fd = memfd_create("txdad-log", MFD_CLOEXEC);
	if (d->log_fd >= 0)
		fcntl(d->log_fd, F_SETFL, O_APPEND);
	d->pid = d->log_fd < 0 ? -1 : fork();
	if (!d->pid)
		become(program, (char *const *)argv, parent, listen_fd, d->log_fd);
	d->pid_fd = d->pid > 0 ? pidfd_open(d->pid, 0) : -1;
	/* The listening socket: when the daemon exits, connected clients are notified. */
	close(listen_fd);
	if (d->pid_fd < 0) {
		fprintf(stderr, "txda-run: cannot start %s: %s\n", program, strerror(errno));
		private_stop(d);
		return 1;
	}
	snprintf(d->socket, sizeof(d->socket), "/proc/self/fd/%d", d->socket_fd);
	return 0;
}

/* ---- its end --------------------------------------------------------------------------------- */

static void show_log(const struct private_daemon *d)
{
	char text[LOG_BYTES + 1], *line, *next;
	off_t end = lseek(d->log_fd, 0, SEEK_END);
	off_t from = end > LOG_BYTES ? end - LOG_BYTES : 0;
	ssize_t n = end < 0 ? -1 : pread(d->log_fd, text, LOG_BYTES, from);

	if (n <= 0)
		return;
	text[n] = 0;
	fputs("Its log ends with:\n", stderr);
	for (line = text; line && *line; line = next) {
		next = strchr(line, '\n');
		if (next)
			*next++ = 0;
		fputs("  ", stderr);
		show_text(stderr, line);
		fputc('\n', stderr);
	}
}

bool private_failed(struct private_daemon *d)
{
	struct pollfd p = {.fd = d->pid_fd, .events = POLLIN};
	int status;

	if (!d->pid || poll(&p, 1, FAIL_MS) != 1 || waitpid(d->pid, &status, 0) != d->pid)
		return false;
	d->pid = 0;
	if (WIFSIGNALED(status))
		fprintf(stderr, "txda-run: the private daemon was killed by signal %d (%s)\n",
			WTERMSIG(status), strsignal(WTERMSIG(status)));
	else
		fprintf(stderr, "txda-run: the private daemon exited with status %d\n",
			WEXITSTATUS(status));
	show_log(d);
	return true;
}

void private_stop(struct private_daemon *d)
{
	struct pollfd p = {.fd = d->pid_fd, .events = POLLIN};

	if (d->pid > 0) {
		kill(d->pid, SIGTERM);
		/* The signals of interrupt.h are blocked here, so further ones have no effect. */
		if (d->pid_fd < 0 || poll(&p, 1, STOP_MS) != 1)
			kill(d->pid, SIGKILL);
		while (waitpid(d->pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	d->pid = 0;
}
