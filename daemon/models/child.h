/* SPDX-License-Identifier: MIT */
/*
 * Runs a confined program, such as the compiler, as a child process: no shell, no inherited
 * descriptors, a minimal environment, its own process group, resource limits, low priority
 * (priority.h). It confines itself (confine.h). Any failure becomes an error message.
 *
 * Blocks; any thread.
 */
#ifndef TXDA_MODELS_CHILD_H
#define TXDA_MODELS_CHILD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "confine.h"

struct child_options {
	unsigned seconds; /* killed after this long */
	int input;	  /* descriptor that becomes standard input; 0: none */
	struct confine_limits limits;
	const atomic_bool *stop; /* killed soon after it becomes true */
	/* Called for each line "progress DONE TOTAL" on standard error. */
	void (*progress)(void *arg, uint64_t done, uint64_t total);
	void *progress_arg;
	/* NULL, or called for each line "note: TEXT", which is then no part of an error. */
	void (*note)(void *arg, const char *text);
	void *note_arg;
	/* NULL, or called about once a second; not 0: it is killed, with that error and @err. */
	int (*check)(void *arg, char *err, size_t errlen);
	void *check_arg;
};

/*
 * Runs argv[0], a path, with argv, NULL-terminated. Standard output goes to @out, NUL-terminated,
 * truncated to its size; *ret_n, unless NULL: bytes of it. 0 if it exited with status 0. -EIO: it
 * did not, err has the end of its standard error. -ETIMEDOUT, -ECANCELED: killed because of the
 * time limit or @stop; or the error of check(). Else it could not be started.
 */
int child_run(const struct child_options *options, char *const argv[], char *out, size_t outlen,
	      size_t *ret_n, char *err, size_t errlen);

#endif
