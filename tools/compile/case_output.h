/* SPDX-License-Identifier: MIT */
/*
 * Creates a directory atomically: everything is written to a temporary directory beside the target,
 * synced, and renamed at the end. A lock file beside it excludes concurrent writers of one target;
 * the leftovers of a killed writer are removed by the next one.
 */
#ifndef TXDA_COMPILE_CASE_OUTPUT_H
#define TXDA_COMPILE_CASE_OUTPUT_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

#include "error.h"

struct case_output;

/*
 * Starts a new @path. -EEXIST if it exists, unless @force is set and it looks like a case dir or is
 * empty. Waits for another writer (@waiting is called once in that case) until *@interrupted is
 * set.
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
 * Replaces the file @name, which is written and closed, by a hard link to @path if both have the
 * same contents. -EINVAL if not; -EXDEV: they are on two file systems.
 */
int case_link(struct case_output *out, const char *name, const char *path,
	      struct tool_error *error);
/* Syncs the directories and renames the new one. case_end() must still be called. */
int case_commit(struct case_output *out, struct tool_error *error);
/* Removes what was not committed, and releases the lock. NULL is accepted. */
void case_end(struct case_output *out);

#endif /* TXDA_COMPILE_CASE_OUTPUT_H */
