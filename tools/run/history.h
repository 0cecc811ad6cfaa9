/* SPDX-License-Identifier: MIT */
/*
 * What was typed before, in $XDG_STATE_HOME/txda/history (~/.local/state/txda/history), which only
 * its owner may read. Each message is added when it is typed, so that nothing is lost if the
 * program is killed, or if several run at once. If the file cannot be used, this is reported once
 * and has no other effect.
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
