/* SPDX-License-Identifier: MIT */
/*
 * Progress on standard error: a bar on a terminal, lines "progress DONE TOTAL" (bytes) for
 * programs, or nothing. Also tells a compile to stop. One thread at a time.
 */
#ifndef TXDA_COMPILE_PROGRESS_H
#define TXDA_COMPILE_PROGRESS_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

enum progress_style { PROGRESS_NONE, PROGRESS_PLAIN, PROGRESS_BAR };

struct progress {
	enum progress_style style;
	const char *what;
	uint64_t total, done;
	uint64_t start_ns, shown_ns;
	bool visible;			    /* a bar is on the screen */
	volatile sig_atomic_t *interrupted; /* set by a signal handler; NULL: never */
};

/* A bar on a terminal, nothing elsewhere. */
enum progress_style progress_default_style(void);
void progress_start(struct progress *p, const char *what, uint64_t total);
void progress_add(struct progress *p, uint64_t done);
/* Ends the bar's line. */
void progress_end(struct progress *p);
bool progress_interrupted(const struct progress *p);

#endif /* TXDA_COMPILE_PROGRESS_H */
