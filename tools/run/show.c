// SPDX-License-Identifier: MIT
#include "show.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "interrupt.h"
#include "terminal.h"
#include "utf8.h"

#define BAR_WIDTH 30
#define MAX_NAME  30 /* bytes of a model's name beside the bar */

/* Writes without blocking: POLLOUT of a pipe guarantees room for PIPE_BUF bytes. */
static int write_out(const char *data, size_t len)
{
	while (len) {
		int r = interrupt_poll(STDOUT_FILENO, POLLOUT, -1);
		ssize_t n;

		if (r < 0)
			return r;
		if (!r)
			continue;
		n = write(STDOUT_FILENO, data, len < PIPE_BUF ? len : PIPE_BUF);
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (n < 0)
			return -errno;
		data += n;
		len -= (size_t)n;
	}
	return 0;
}

int show_answer(const char *text)
{
	bool terminal = isatty(STDOUT_FILENO);
	int r = 0;

	while (*text && !r) {
		size_t n = 0, skip = 0;

		while (text[n] && (!terminal || text[n] == '\n' || text[n] == '\t' ||
				   !(skip = utf8_control(text + n))))
			n++;
		r = write_out(text, n);
		text += n + (text[n] ? skip : 0);
	}
	if (r && r != -EINTR && r != -EPIPE)
		fprintf(stderr, "txda-run: cannot write the answer: %s\n", strerror(-r));
	return r;
}

void show_text(FILE *file, const char *text)
{
	while (*text) {
		size_t skip = utf8_control(text);

		fputc(skip ? ' ' : *text, file);
		text += skip ? skip : 1;
	}
}

void show_progress(const char *name, const char *phase, double part)
{
	char bar[BAR_WIDTH + 1];
	int filled = part > 0 ? (int)((part < 1 ? part : 1) * BAR_WIDTH) : 0;
	size_t n = strlen(name);

	if (!terminal_is(stderr))
		return;
	/* Does not cut within a character. */
	if (n > MAX_NAME)
		for (n = MAX_NAME; n && ((unsigned char)name[n] & 0xc0) == 0x80; n--)
			;
	for (int i = 0; i < BAR_WIDTH; i++)
		bar[i] = i < filled ? '=' : i == filled ? '>' : ' ';
	bar[BAR_WIDTH] = 0;
	show_progress_end();
	for (size_t i = 0; i < n; i++)
		fputc(utf8_control(name + i) ? ' ' : name[i], stderr);
	if (part > 0)
		fprintf(stderr, ": %s [%s] %3d%%", phase, bar, (int)(part * 100));
	else
		fprintf(stderr, ": %s ...", phase);
	fflush(stderr);
}

void show_progress_end(void)
{
	if (terminal_is(stderr))
		fputs("\r\033[K", stderr);
}
