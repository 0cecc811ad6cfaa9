// SPDX-License-Identifier: MIT
#include "child.h"
#include "clock.h"
#include "priority.h"
#include "utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define POLL_MS	   100 /* interval of checks for timeout and stop */
#define CHECK_MS   1000
#define MAX_READS  128 /* bytes per read; at least as much as a pipe holds */
#define LINE_BYTES 2560
#define MAX_NOTES  16 /* of a child; more are left out */

struct child {
	pid_t pid;
	int out_fd, err_fd; /* -1: closed */
	char *out;
	size_t out_len, out_used;
	char line[LINE_BYTES]; /* of a line of standard error that is not complete yet */
	size_t line_used;
	unsigned notes;
	char *err;
	size_t err_len;
	char refused[LINE_BYTES]; /* message of check() */
};

/* ---- starting -------------------------------------------------------------------------------- */

static void copy_variable(char *buf, size_t len, const char *name, char **env, unsigned *n)
{
	const char *value = getenv(name);

	if (value && (size_t)snprintf(buf, len, "%s=%s", name, value) < len)
		env[(*n)++] = buf;
}

/*
 * Runs between vfork() and exec, in the daemon's memory: system calls only. Limits are set before
 * the program runs, since setting them from outside would race with the program's own changes.
 */
static int become(const struct child_options *o, char *const argv[], char *const env[], int out,
		  int err_fd)
{
	sigset_t none;
	int in;

	for (int i = 1; i < NSIG; i++)
		signal(i, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	in = o->input ? o->input : open("/dev/null", O_RDONLY);
	if (in < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err_fd, 2) < 0 || setpgid(0, 0) ||
	    close_range(3, ~0u, CLOSE_RANGE_CLOEXEC))
		return errno;
	confine_limit(&o->limits);
	priority_lower(0);
	execve(argv[0], argv, env);
	return errno;
}

static int spawn(struct child *c, const struct child_options *o, char *const argv[], int out,
		 int err_fd)
{
	static char locale[] = "LC_ALL=C";
	char path[4096], home[1024], tmp[1024];
	char *env[5] = {locale};
	unsigned n_env = 1;
	sigset_t all, before;
	int report[2], error = 0;

	if (pipe2(report, O_CLOEXEC))
		return -errno;
	copy_variable(path, sizeof(path), "PATH", env, &n_env);
	copy_variable(home, sizeof(home), "HOME", env, &n_env);
	copy_variable(tmp, sizeof(tmp), "TMPDIR", env, &n_env);
	/* Signal handlers of the daemon must not run in a child that shares its memory. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	c->pid = vfork();
	if (!c->pid) {
		error = become(o, argv, env, out, err_fd);
		_exit(write(report[1], &error, sizeof(error)) == sizeof(error) ? 127 : 126);
	}
	if (c->pid < 0)
		error = errno;
	close(report[1]);
	/* End of file means that the program was executed. */
	if (!error && read(report[0], &error, sizeof(error)) == sizeof(error))
		waitpid(c->pid, NULL, 0);
	close(report[0]);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return -error;
}

/* ---- output ---------------------------------------------------------------------------------- */

/* Keeps the end of its output: the last line is the error message. */
static void take_line(struct child *c, const struct child_options *o)
{
	static const char note[] = "note: ";
	unsigned long long done, total;
	size_t used, need;

	c->line[c->line_used] = '\0';
	if (sscanf(c->line, "progress %llu %llu", &done, &total) == 2) {
		if (o->progress)
			o->progress(o->progress_arg, done, total);
	} else if (o->note && !strncmp(c->line, note, sizeof(note) - 1)) {
		if (c->notes++ < MAX_NOTES)
			o->note(o->note_arg, c->line + sizeof(note) - 1);
	} else if (c->line_used && c->err_len) {
		utf8_tame(c->line, ' ');
		used = strlen(c->err);
		need = c->line_used + (used ? 2 : 0);
		if (used + need >= c->err_len)
			used = 0;
		snprintf(c->err + used, c->err_len - used, "%s%s", used ? "; " : "", c->line);
	}
	c->line_used = 0;
}

static void take_error(struct child *c, const struct child_options *o, const char *text, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (text[i] == '\n' || text[i] == '\r')
			take_line(c, o);
		else if (c->line_used + 1 < sizeof(c->line))
			c->line[c->line_used++] = text[i];
	}
}

static void take_output(struct child *c, const char *text, size_t n)
{
	if (n > c->out_len - 1 - c->out_used)
		n = c->out_len - 1 - c->out_used;
	memcpy(c->out + c->out_used, text, n);
	c->out_used += n;
	c->out[c->out_used] = '\0';
}

/*
 * Reads available output, up to a limit, as a child may write endlessly; closes the fd at end of
 * file.
 */
static void drain(struct child *c, const struct child_options *o, int *fd)
{
	char buf[1024];

	for (unsigned i = 0; i < MAX_READS && *fd >= 0; i++) {
		ssize_t n = read(*fd, buf, sizeof(buf));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n > 0 && fd == &c->out_fd) {
			take_output(c, buf, (size_t)n);
		} else if (n > 0) {
			take_error(c, o, buf, (size_t)n);
		} else {
			close(*fd);
			*fd = -1;
		}
	}
}

/*
 * Reads until the child has ended; kills its process group on timeout. Its descriptors may live on
 * in its own children, which are not waited for. Returns the wait status, -errno if there is none.
 */
static int listen_to(struct child *c, const struct child_options *o, int *ret_status)
{
	uint64_t start = clock_ms(), end = start + 1000ull * o->seconds, next = start + CHECK_MS;
	int killed = 0;
	pid_t ended = 0;

	while (!ended) {
		struct pollfd fds[] = {{c->out_fd, POLLIN, 0}, {c->err_fd, POLLIN, 0}};

		/* Both closed: it is about to exit. */
		poll(fds, 2, c->out_fd < 0 && c->err_fd < 0 ? 1 : POLL_MS);
		drain(c, o, &c->out_fd);
		drain(c, o, &c->err_fd);
		if (!killed && (atomic_load(o->stop) || clock_ms() >= end)) {
			killed = atomic_load(o->stop) ? -ECANCELED : -ETIMEDOUT;
			kill(-c->pid, SIGKILL);
		}
		if (!killed && o->check && clock_ms() >= next) {
			next = clock_ms() + CHECK_MS;
			killed = o->check(o->check_arg, c->refused, sizeof(c->refused));
			if (killed)
				kill(-c->pid, SIGKILL);
		}
		ended = waitpid(c->pid, ret_status, WNOHANG);
		if (ended < 0 && errno == EINTR)
			ended = 0;
	}
	if (ended < 0)
		return -errno;
	drain(c, o, &c->out_fd);
	drain(c, o, &c->err_fd);
	take_line(c, o);
	return killed;
}

static void close_fd(int fd)
{
	if (fd >= 0)
		close(fd);
}

/* Describes the result, with the child's own message if there is one. */
static int judge(struct child *c, const struct child_options *o, const char *program, int how,
		 int status)
{
	char said[LINE_BYTES];

	if (!how && WIFEXITED(status) && !WEXITSTATUS(status))
		return 0;
	snprintf(said, sizeof(said), "%s", c->err);
	if (how == -ETIMEDOUT) {
		snprintf(c->err, c->err_len, "%s did not end within %u seconds", program,
			 o->seconds);
	} else if (how && *c->refused) {
		snprintf(c->err, c->err_len, "%s was stopped: %s", program, c->refused);
	} else if (how == -ECANCELED) {
		snprintf(c->err, c->err_len, "%s was stopped", program);
	} else if (how) {
		snprintf(c->err, c->err_len, "cannot wait for %s: %s", program, strerror(-how));
	} else if (WIFSIGNALED(status)) {
		snprintf(c->err, c->err_len, "%s was killed by signal %d (%s)%s%s", program,
			 WTERMSIG(status), strsignal(WTERMSIG(status)), *said ? ": " : "", said);
	} else if (!*said) {
		snprintf(c->err, c->err_len, "%s exited with status %d without a message", program,
			 WEXITSTATUS(status));
	}
	return how ? how : -EIO;
}

int child_run(const struct child_options *options, char *const argv[], char *out, size_t outlen,
	      size_t *ret_n, char *err, size_t errlen)
{
	struct child c = {.out_fd = -1,
			  .err_fd = -1,
			  .out = out,
			  .out_len = outlen,
			  .err = err,
			  .err_len = errlen};
	int out_pipe[2] = {-1, -1}, err_pipe[2] = {-1, -1}, status = 0, error = 0;

	*out = *err = '\0';
	if (pipe2(out_pipe, O_CLOEXEC) || pipe2(err_pipe, O_CLOEXEC))
		error = -errno;
	if (!error)
		error = spawn(&c, options, argv, out_pipe[1], err_pipe[1]);
	close_fd(out_pipe[1]);
	close_fd(err_pipe[1]);
	if (error) {
		close_fd(out_pipe[0]);
		close_fd(err_pipe[0]);
		snprintf(err, errlen, "cannot run %s: %s", argv[0], strerror(-error));
		return error;
	}
	c.out_fd = out_pipe[0];
	c.err_fd = err_pipe[0];
	fcntl(c.out_fd, F_SETFL, O_NONBLOCK);
	fcntl(c.err_fd, F_SETFL, O_NONBLOCK);
	error = listen_to(&c, options, &status);
	close_fd(c.out_fd);
	close_fd(c.err_fd);
	if (ret_n)
		*ret_n = c.out_used;
	return judge(&c, options, argv[0], error, status);
}
