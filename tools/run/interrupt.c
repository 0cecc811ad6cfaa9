// SPDX-License-Identifier: MIT
#include "interrupt.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <time.h>

volatile sig_atomic_t interrupt_stop, interrupt_end;

static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
static sigset_t before;

static void on_signal(int number)
{
	if (number == SIGINT)
		interrupt_stop = 1;
	else
		interrupt_end = number;
}

void interrupt_init(void)
{
	struct sigaction action = {.sa_handler = on_signal}, old;
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
		/* Signals ignored by nohup(1), or by a shell for background jobs, stay ignored. */
		if (sigaction(numbers[i], NULL, &old) || old.sa_handler == SIG_IGN)
			continue;
		sigaction(numbers[i], &action, NULL);
		sigaddset(&set, numbers[i]);
	}
	sigprocmask(SIG_BLOCK, &set, &before);
	signal(SIGPIPE, SIG_IGN);
}

void interrupt_restore(void)
{
	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
		signal(numbers[i], SIG_DFL);
	signal(SIGPIPE, SIG_DFL);
	sigprocmask(SIG_SETMASK, &before, NULL);
}

bool interrupted(void)
{
	return interrupt_stop || interrupt_end;
}

int interrupt_poll(int fd, short events, int timeout_ms)
{
	struct pollfd p = {.fd = fd, .events = events};
	struct timespec timeout = {.tv_sec = timeout_ms / 1000,
				   .tv_nsec = timeout_ms % 1000 * 1000000L};
	int r;

	if (interrupted())
		return -EINTR;
	r = ppoll(&p, fd >= 0, timeout_ms < 0 ? NULL : &timeout, &before);
	if (r < 0 && errno == EINTR)
		return interrupted() ? -EINTR : 0;
	return r < 0 ? -errno : r;
}
