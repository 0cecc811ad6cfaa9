// SPDX-License-Identifier: MIT
/*
 * Somebody at a terminal: terminal COMMAND [ARGUMENT...] <SCRIPT
 *
 * Runs the command on a terminal of its own, 24 lines of 80 columns, and does what the script says, a
 * line each:
 *
 *   see TEXT      waits for TEXT on the screen, behind what was seen before
 *   type TEXT     types it; \r, \n, \t, \e, \\ and \xNN as in C
 *   run COMMAND   runs it by sh, with the pid of what is at the terminal as $pid; it must succeed
 *   signal N      sends signal N
 *   resize N      makes the screen N columns wide
 *   hangup        closes the terminal
 *   status N      waits for the end, with exit status N, or 128 + the number of a signal
 *
 * TEXT and COMMAND are the rest of the line. What the screen is told apart from text (escape
 * sequences, carriage returns, bells) is left out. Nothing is timed; what takes 120 seconds is not
 * going to happen, and the test fails with all that was on the screen.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SECONDS	   120
#define MAX_SCREEN (4u << 20)

static int master = -1;
static pid_t pid;
static char screen[MAX_SCREEN + 1];
static size_t len, seen;
static unsigned line_number;

__attribute__((noreturn)) static void fail(const char *what, const char *text)
{
	printf("FAIL: line %u of the script: %s %s\n--- the screen:\n", line_number, what, text);
	fwrite(screen, 1, len, stdout);
	printf("\n---\n");
	if (pid > 0)
		kill(pid, SIGKILL);
	exit(EXIT_FAILURE);
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* Keeps text: no CSI sequences, no other control characters but line breaks. */
static void take(const char *data, size_t n)
{
	static enum { TEXT, ESCAPE, SEQUENCE } state;

	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)data[i];

		if (state == ESCAPE) {
			state = c == '[' ? SEQUENCE : TEXT;
		} else if (state == SEQUENCE) {
			state = c >= 0x40 && c < 0x7f ? TEXT : SEQUENCE;
		} else if (c == '\033') {
			state = ESCAPE;
		} else if ((c >= ' ' || c == '\n') && len < MAX_SCREEN) {
			screen[len++] = (char)c;
			screen[len] = 0;
		}
	}
}

/* Reads what there is, or waits for more up to @deadline; false at the end of the terminal. */
static bool read_more(double deadline)
{
	struct pollfd p = {.fd = master, .events = POLLIN};
	double left = deadline - now();
	char buf[4096];
	ssize_t n;

	if (left <= 0)
		fail("nothing more within the time that a test may take", "");
	if (poll(&p, 1, (int)(left * 1000) + 1) <= 0)
		return true;
	n = read(master, buf, sizeof(buf));
	if (n <= 0)
		return n < 0 && errno == EINTR;
	take(buf, (size_t)n);
	return true;
}

static void see(const char *text)
{
	double deadline = now() + SECONDS;
	const char *at;

	while (!(at = strstr(screen + seen, text))) {
		if (now() > deadline)
			fail("not seen:", text);
		if (!read_more(deadline))
			fail("the terminal ended before", text);
	}
	seen = (size_t)(at - screen) + strlen(text);
}

static size_t unescape(char *text)
{
	char *out = text;

	for (const char *in = text; *in; in++) {
		char hex[3] = "";

		if (*in != '\\') {
			*out++ = *in;
			continue;
		}
		switch (*++in) {
		case 'r': *out++ = '\r'; break;
		case 'n': *out++ = '\n'; break;
		case 't': *out++ = '\t'; break;
		case 'e': *out++ = '\033'; break;
		case '\\': *out++ = '\\'; break;
		case 'x':
			snprintf(hex, sizeof(hex), "%.2s", in + 1);
			if (strlen(hex) < 2)
				fail("no two digits behind", "\\x");
			*out++ = (char)strtol(hex, NULL, 16);
			in += 2;
			break;
		default: fail("unknown: backslash before", in);
		}
	}
	return (size_t)(out - text);
}

/* The command may show something meanwhile: who waits for it to read must read, too. */
static void type(char *text)
{
	size_t n = unescape(text), done = 0;

	while (done < n) {
		struct pollfd p = {.fd = master, .events = POLLIN | POLLOUT};
		ssize_t wrote;

		poll(&p, 1, -1);
		if (p.revents & POLLIN && !read_more(now() + SECONDS))
			fail("the terminal ended before all was typed:", text);
		if (!(p.revents & POLLOUT))
			continue;
		wrote = write(master, text + done, n - done < 256 ? n - done : 256);
		if (wrote < 0 && errno != EINTR && errno != EAGAIN)
			fail("cannot type", strerror(errno));
		done += wrote > 0 ? (size_t)wrote : 0;
	}
}

static void wait_status(int wanted)
{
	double deadline = now() + SECONDS;
	char text[32];
	int status, got;

	while (master >= 0 && read_more(deadline))
		;
	/* Its terminal is closed: it has ended or is about to. */
	while (!waitpid(pid, &status, WNOHANG)) {
		if (now() > deadline)
			fail("it does not end", "");
		poll(NULL, 0, 10);
	}
	pid = 0;
	got = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	snprintf(text, sizeof(text), "%d, not %d", got, wanted);
	if (got != wanted)
		fail("exit status", text);
}

static void obey(char *line)
{
	char *rest = strchr(line, ' ');
	struct winsize size = {.ws_row = 24, .ws_col = 80};

	if (rest)
		*rest++ = 0;
	else
		rest = line + strlen(line);
	if (!strcmp(line, "see")) {
		see(rest);
	} else if (!strcmp(line, "type")) {
		type(rest);
	} else if (!strcmp(line, "run")) {
		if (system(rest) != 0)
			fail("failed:", rest);
	} else if (!strcmp(line, "signal")) {
		kill(pid, atoi(rest));
	} else if (!strcmp(line, "resize")) {
		size.ws_col = (unsigned short)atoi(rest);
		ioctl(master, TIOCSWINSZ, &size);
	} else if (!strcmp(line, "hangup")) {
		close(master);
		master = -1;
	} else if (!strcmp(line, "status")) {
		wait_status(atoi(rest));
	} else {
		fail("unknown:", line);
	}
}

int main(int argc, char **argv)
{
	const struct winsize size = {.ws_row = 24, .ws_col = 80};
	char *line = NULL, text[16];
	size_t cap = 0;
	ssize_t n;

	if (argc < 2) {
		fprintf(stderr, "usage: terminal COMMAND [ARGUMENT...] <SCRIPT\n");
		return 2;
	}
	pid = forkpty(&master, NULL, NULL, &size);
	if (pid < 0) {
		perror("forkpty");
		return EXIT_FAILURE;
	}
	if (!pid) {
		signal(SIGHUP, SIG_DFL); /* under nohup it is ignored */
		execvp(argv[1], argv + 1);
		perror(argv[1]);
		_exit(127);
	}
	fcntl(master, F_SETFD, FD_CLOEXEC);
	snprintf(text, sizeof(text), "%d", (int)pid);
	setenv("pid", text, 1);
	while ((n = getline(&line, &cap, stdin)) > 0) {
		line_number++;
		if (line[n - 1] == '\n')
			line[n - 1] = 0;
		if (*line && *line != '#')
			obey(line);
	}
	free(line);
	if (pid > 0)
		fail("it still runs at the end of", "the script");
	return EXIT_SUCCESS;
}
