/* SPDX-License-Identifier: MIT */
/*
 * What was typed before, in $XDG_STATE_HOME/txda/history (~/.local/state/txda/history), which only
 * its owner may read. Each message is added when it was typed, so that a program that is killed,
 * or several at once, lose none. A file that cannot be used is said once and does no harm.
 */
#ifndef TXDA_RUN_HISTORY_H
#define TXDA_RUN_HISTORY_H

#include <histedit.h>

struct past {
	History *list; /* NULL: out of memory */
	char *path;    /* of the file; NULL: none */
};

void past_open(struct past *p);
void past_add(struct past *p, const char *message);
void past_close(struct past *p);

#endif
