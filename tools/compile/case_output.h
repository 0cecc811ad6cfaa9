/* SPDX-License-Identifier: MIT */
/*
 * A directory that appears whole or not at all: everything is written under a temporary name beside
 * it, synced, and renamed at the end. A lock beside it keeps two writers of one target apart; what
 * a killed one left behind is removed by the next.
 */
#ifndef TXDA_COMPILE_CASE_OUTPUT_H
#define TXDA_COMPILE_CASE_OUTPUT_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

#include "error.h"

struct case_output;

/*
 * Starts a new @path. -EEXIST if it is there, unless @force and it looks like a case dir or is
 * empty. Waits for another writer
 * (@waiting is called once if so) until *@interrupted.
 */
int case_begin(const char *path, bool force, volatile sig_atomic_t *interrupted,
	       void (*waiting)(const char *path), struct case_output **ret,
	       struct tool_error *error);
/* @name is relative to the new directory, here and below. */
int case_mkdir(struct case_output *out, const char *name, struct tool_error *error);
/* Opens a new file to be written and returns its fd; case_close() syncs it. */
int case_create(struct case_output *out, const char *name, struct tool_error *error);
int case_close(const struct case_output *out, int fd, const char *name, struct tool_error *error);
int case_write(struct case_output *out, const char *name, const void *data, size_t bytes,
	       struct tool_error *error);
/*
 * Makes the file @name, which is written and closed, another name of @path if both have the same
 * content. -EINVAL if not; -EXDEV: they are on two file systems.
 */
int case_link(struct case_output *out, const char *name, const char *path,
	      struct tool_error *error);
/* Syncs the directories and gives the new one its name. The output is freed by case_end() all the
 * same. */
int case_commit(struct case_output *out, struct tool_error *error);
/* Removes what was not committed, lets the lock go. NULL is fine. */
void case_end(struct case_output *out);

#endif /* TXDA_COMPILE_CASE_OUTPUT_H */
