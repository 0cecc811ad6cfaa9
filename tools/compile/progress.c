// SPDX-License-Identifier: MIT
#include "progress.h"
#include "clock.h"
#include "terminal.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BAR_WIDTH	40
#define BAR_PERIOD_NS	50000000u
#define PLAIN_PERIOD_NS 500000000u

enum progress_style progress_default_style(void)
{
	return terminal_is(stderr) ? PROGRESS_BAR : PROGRESS_NONE;
}

static void show_bar(struct progress *p, uint64_t now)
{
	double part = p->total ? (double)p->done / (double)p->total : 1;
	double seconds = (double)(now - p->start_ns) / 1e9;
	unsigned filled = (unsigned)(part * BAR_WIDTH), i;
	char bar[BAR_WIDTH + 1];

	for (i = 0; i < BAR_WIDTH; i++)
		bar[i] = i < filled ? '=' : i == filled ? '>' : ' ';
	bar[BAR_WIDTH] = 0;
	fprintf(stderr, "\r%s [%s] %3.0f%%  %.0f MB  %.0f MB/s ", p->what, bar, part * 100,
		(double)p->done / 1e6, seconds > 0 ? (double)p->done / 1e6 / seconds : 0);
	fflush(stderr);
	p->visible = true;
}

static void show(struct progress *p, bool now_or_never)
{
	uint64_t now;

	if (p->style == PROGRESS_NONE)
		return;
	now = clock_ns();
	if (!now_or_never &&
	    now - p->shown_ns < (p->style == PROGRESS_BAR ? BAR_PERIOD_NS : PLAIN_PERIOD_NS))
		return;
	p->shown_ns = now;
	if (p->style == PROGRESS_BAR)
		show_bar(p, now);
	else
		fprintf(stderr, "progress %llu %llu\n", (unsigned long long)p->done,
			(unsigned long long)p->total);
}

void progress_start(struct progress *p, const char *what, uint64_t total)
{
	p->what = what;
	p->total = total;
	p->done = 0;
	p->start_ns = clock_ns();
	show(p, true);
}

void progress_add(struct progress *p, uint64_t done)
{
	p->done += done;
	show(p, p->done == p->total);
}

void progress_end(struct progress *p)
{
	if (p->visible)
		fputc('\n', stderr);
	p->visible = false;
}

bool progress_interrupted(const struct progress *p)
{
	return p->interrupted && *p->interrupted;
}
