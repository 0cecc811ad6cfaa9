// SPDX-License-Identifier: MIT
/*
 * txda-holder: starts a daemon, keeps descriptors for it (store.h), and starts it again with them
 * when it ends. So weights outlive a daemon that is not run by systemd.
 *
 * One thread with one poll: the socket of sd_notify(3) and a signalfd. The socket is in a directory
 * of its own, where only the holder's user can send to it: closing a descriptor from anybody else
 * could block. A message counts only if the kernel names the daemon itself as its sender.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "store.h"
#include "clock.h"
#include "tool_line.h"
#include "tool_run.h"

#define EXIT_CONFIG 78	  /* sysexits.h: errors that a restart does not fix */
#define EARLY_MS    10000 /* a command that exits sooner is restarted after a delay */
#define MAX_AT_ONCE 3	  /* early ends in a row that do not count */
#define MAX_TAKEN   64	  /* messages in a row, before signals are handled */
#define MAX_LEFT    4096  /* more than an exited command can have left in the socket's queue */
#define MAX_FAILED  3	  /* failed starts in a row that are attributed to the descriptors */

struct holder {
	char **command;
	unsigned max_delay_ms;
	struct store store;
	struct rlimit files; /* the command's */
	sigset_t old_mask;
	void (*old_pipe)(int); /* the command's handling of SIGPIPE */
	int notify_fd, signal_fd;
	char notify_dir[96], notify_name[108]; /* "": not made yet; $NOTIFY_SOCKET */
	pid_t child;			       /* 0: none */
	int64_t started_ms, start_at_ms;
	unsigned delay_ms, n_failed, early;
	bool ready;    /* it has sent READY=1 */
	bool stopping; /* the holder ends with it */
	bool renewing; /* SIGTERM was sent in order to restart it */
};

static void log_message(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void log_message(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	fputs("txda-holder: ", stderr);
	vfprintf(stderr, format, ap);
	fputc('\n', stderr);
	va_end(ap);
}

/* ---- set up ---------------------------------------------------------------------------------- */

/* A directory that the holder's user alone may enter. */
static int make_dir(struct holder *h)
{
	const char *parents[] = {getenv("XDG_RUNTIME_DIR"), "/run", "/tmp"};
	int error = -ENOENT;

	for (unsigned i = 0; i < sizeof(parents) / sizeof(parents[0]); i++) {
		char dir[sizeof(h->notify_dir)];

		if (!parents[i] || parents[i][0] != '/' ||
		    snprintf(dir, sizeof(dir), "%s/txda-holder.XXXXXX", parents[i]) >=
			    (int)sizeof(dir))
			continue;
		if (mkdtemp(dir)) {
			memcpy(h->notify_dir, dir, sizeof(dir));
			return 0;
		}
		error = -errno;
	}
	return error;
}

static int open_socket(struct holder *h)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const int on = 1;
	int error = make_dir(h);

	if (error)
		return error;
	snprintf(h->notify_name, sizeof(h->notify_name), "%s/notify", h->notify_dir);
	_Static_assert(sizeof(h->notify_name) <= sizeof(address.sun_path), "the name fits");
	memcpy(address.sun_path, h->notify_name, sizeof(h->notify_name));
	h->notify_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (h->notify_fd < 0 ||
	    setsockopt(h->notify_fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) ||
	    bind(h->notify_fd, (struct sockaddr *)&address, sizeof(address)))
		return -errno;
	return 0;
}

static void remove_socket(const struct holder *h)
{
	if (*h->notify_name)
		unlink(h->notify_name);
	if (*h->notify_dir)
		rmdir(h->notify_dir);
}

static int open_signals(struct holder *h)
{
	static const int numbers[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1};
	sigset_t mask;

	sigemptyset(&mask);
	for (unsigned i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		sigaddset(&mask, numbers[i]);
	if (sigprocmask(SIG_BLOCK, &mask, &h->old_mask))
		return -errno;
	/* The reader of its messages may end; the descriptors are still held then. */
	h->old_pipe = signal(SIGPIPE, SIG_IGN);
	if (h->old_pipe == SIG_ERR)
		return -errno;
	h->signal_fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	return h->signal_fd < 0 ? -errno : 0;
}

/* As many descriptors as the store may have; the command gets the limit that it would have had. */
static int raise_limit(struct holder *h)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &h->files))
		return -errno;
	limit = h->files;
	limit.rlim_cur = limit.rlim_max;
	return setrlimit(RLIMIT_NOFILE, &limit) ? -errno : 0;
}

/* ---- the command ----------------------------------------------------------------------------- */

/* In the child. */
static void become_command(const struct holder *h)
{
	int error;

	signal(SIGPIPE, h->old_pipe);
	sigprocmask(SIG_SETMASK, &h->old_mask, NULL);
	error = setenv("NOTIFY_SOCKET", h->notify_name, 1) ? -errno : 0;
	if (!error)
		error = store_export(&h->store, getpid());
	/* What is open below the limit stays so. */
	if (!error && setrlimit(RLIMIT_NOFILE, &h->files))
		error = -errno;
	if (!error) {
		execvp(h->command[0], h->command);
		error = -errno;
	}
	log_message("cannot start %s: %s", h->command[0], strerror(-error));
	_exit(error == -ENOENT ? 127 : 126);
}

static void start(struct holder *h)
{
	h->ready = h->renewing = false;
	h->started_ms = (int64_t)clock_ms();
	fflush(NULL);
	h->child = fork();
	if (!h->child)
		become_command(h);
	if (h->child < 0) {
		log_message("cannot create a process for %s: %s", h->command[0], strerror(errno));
		h->child = 0;
		h->start_at_ms = (int64_t)clock_ms() + 1000;
	}
}

/*
 * The first restarts are immediate; a command that keeps failing early is restarted after
 * increasing delays.
 */
static void plan_start(struct holder *h)
{
	int64_t now = (int64_t)clock_ms();

	h->early = h->renewing || now - h->started_ms >= EARLY_MS ? 0 : h->early + 1;
	if (h->early <= MAX_AT_ONCE)
		h->delay_ms = 0;
	else
		h->delay_ms = h->delay_ms ? h->delay_ms * 2 : 1000;
	if (h->delay_ms > h->max_delay_ms)
		h->delay_ms = h->max_delay_ms;
	h->start_at_ms = now + h->delay_ms;
}

/* Returns the exit status, or -1 to start it again. */
static int on_end(struct holder *h, int status)
{
	bool well =
		WIFEXITED(status) && (!WEXITSTATUS(status) || WEXITSTATUS(status) == EXIT_CONFIG);

	h->child = 0;
	h->n_failed = h->ready ? 0 : h->n_failed + 1;
	if (h->stopping || (well && !h->renewing))
		return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	if (WIFEXITED(status) && WEXITSTATUS(status) >= 126 && WEXITSTATUS(status) <= 127)
		return WEXITSTATUS(status);
	/* The descriptors that it received may be the reason why it ends. */
	if (h->n_failed >= MAX_FAILED && h->store.n) {
		log_message(
			"%s exited %u times before it was ready: its %u descriptors are dropped",
			h->command[0], h->n_failed, h->store.n);
		store_clear(&h->store);
	}
	plan_start(h);
	if (WIFSIGNALED(status))
		log_message("%s was killed by signal %d; restarting it with %u descriptors",
			    h->command[0], WTERMSIG(status), h->store.n);
	else
		log_message("%s exited with status %d; restarting it with %u descriptors",
			    h->command[0], WEXITSTATUS(status), h->store.n);
	return -1;
}

/* ---- messages and signals -------------------------------------------------------------------- */

/* One message; false: there is none. */
static bool take_message(struct holder *h)
{
	char text[4096];
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(int) * STORE_MESSAGE_FDS) +
			  CMSG_SPACE(sizeof(struct ucred))];
	} control;
	struct iovec iov = {.iov_base = text, .iov_len = sizeof(text)};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = &control,
			     .msg_controllen = sizeof(control)};
	int fds[STORE_MESSAGE_FDS];
	struct ucred from = {0};
	unsigned n_fds = 0;
	ssize_t len = recvmsg(h->notify_fd, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);

	if (len < 0)
		return errno == EINTR;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
		size_t bytes = c->cmsg_len - CMSG_LEN(0);

		if (c->cmsg_level != SOL_SOCKET)
			continue;
		if (c->cmsg_type == SCM_CREDENTIALS && bytes == sizeof(from))
			memcpy(&from, CMSG_DATA(c), sizeof(from));
		else if (c->cmsg_type == SCM_RIGHTS && !n_fds) {
			n_fds = (unsigned)(bytes / sizeof(int));
			memcpy(fds, CMSG_DATA(c), n_fds * sizeof(int));
		}
	}
	/* Messages of other processes and truncated ones are ignored. */
	if (!h->child || from.pid != h->child || msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
		while (n_fds)
			close(fds[--n_fds]);
		return true;
	}
	h->ready |= store_message(&h->store, text, (size_t)len, fds, n_fds);
	return true;
}

/* At most @max of them: a command that floods the socket must not delay signals. */
static void take_messages(struct holder *h, unsigned max)
{
	while (max && take_message(h))
		max--;
}

static void signal_child(const struct holder *h, int number)
{
	if (h->child)
		kill(h->child, number);
}

/* Returns an exit status, or -1. */
static int take_signals(struct holder *h)
{
	struct signalfd_siginfo info;
	int status, end = -1;

	while (read(h->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		switch (info.ssi_signo) {
		case SIGTERM:
		case SIGINT:
			h->stopping = true;
			signal_child(h, (int)info.ssi_signo);
			if (!h->child)
				end = 0;
			break;
		case SIGUSR1:
			h->renewing = h->child;
			signal_child(h, SIGTERM);
			break;
		case SIGHUP: signal_child(h, SIGHUP); break;
		default: break;
		}
	}
	if (h->child && waitpid(h->child, &status, WNOHANG) == h->child) {
		/* Messages sent before it exited still count. */
		take_messages(h, MAX_LEFT);
		end = on_end(h, status);
	}
	return end;
}

static int run(struct holder *h)
{
	int end = -1;

	start(h);
	while (end < 0) {
		struct pollfd p[2] = {{.fd = h->notify_fd, .events = POLLIN},
				      {.fd = h->signal_fd, .events = POLLIN}};
		int64_t wait = h->child ? -1 : h->start_at_ms - (int64_t)clock_ms();

		if (!h->child && wait <= 0) {
			start(h);
			continue;
		}
		if (poll(p, 2, (int)wait) < 0 && errno != EINTR) {
			log_message("poll: %s", strerror(errno));
			return EXIT_FAILURE;
		}
		take_messages(h, MAX_TAKEN);
		end = take_signals(h);
	}
	return end;
}

/* ---- the command line ------------------------------------------------------------------------ */

static const char help[] = "Usage: txda-holder [OPTION...] [--] COMMAND [ARGUMENT...]\n"
			   "\n"
			   "Runs a daemon, holds the file descriptors that it stores (sd_notify's "
			   "FDSTORE=1), and passes them to\n"
			   "the restarted daemon when it fails or is killed. The weights of "
			   "txdad's models thus stay in memory.\n"
			   "\n"
			   "  --max-fds N           maximum descriptors held (default: 512)\n"
			   "  --restart-delay SEC   longest delay before restarting a daemon that "
			   "fails early (default: 60)\n"
			   "  -h, --help\n"
			   "  -V, --version\n"
			   "\n"
			   "SIGTERM and SIGINT stop the daemon and the holder, SIGUSR1 restarts "
			   "the daemon, SIGHUP is passed on.\n";

static const struct option options[] = {
	{"max-fds", required_argument, NULL, 'm'},
	{"restart-delay", required_argument, NULL, 'd'},
	TOOL_OPTIONS_END,
};

static struct tool_line line = TOOL_LINE("txda-holder", help, options, "");

/* False: end with line.status. */
static bool read_options(int argc, char **argv, struct holder *h, unsigned *ret_max)
{
	unsigned seconds;
	int c;

	line.command = true;
	while ((c = tool_option(&line, argc, argv)) > 0) {
		if (c == 'm' ? !tool_number(&line, 0, STORE_MAX_FDS, ret_max)
			     : !tool_number(&line, 0, 86400, &seconds))
			return false;
		if (c == 'd')
			h->max_delay_ms = seconds * 1000;
	}
	if (!c && !line.n_words)
		tool_refuse(&line, "no command is given");
	h->command = line.words;
	return !c && line.n_words;
}

int main(int argc, char **argv)
{
	static struct holder h = {.max_delay_ms = 60000};
	unsigned max = 512;
	int error, status;

	if (!read_options(argc, argv, &h, &max))
		return tool_end("txda-holder", line.status, EXIT_FAILURE);
	error = store_init(&h.store, max);
	if (!error)
		error = raise_limit(&h);
	if (!error)
		error = open_signals(&h);
	if (!error)
		error = open_socket(&h);
	if (error)
		log_message("%s", strerror(-error));
	status = error ? EXIT_FAILURE : run(&h);
	remove_socket(&h);
	store_fini(&h.store);
	return status;
}
