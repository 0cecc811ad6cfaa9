/* SPDX-License-Identifier: MIT */
/*
 * What the compiler may do once it has read its command line: read the model, write beside the case
 * dir, and use the CPU. Whoever takes it over through a checkpoint has no more than that: no other
 * model, no device, no network, no program to run (confine.h).
 *
 * Before that it lists the model's directory. Which param_dir its config.json names is read by a
 * process of its own, which may read the model and no more.
 */
#ifndef TXDA_COMPILE_CONFINED_H
#define TXDA_COMPILE_CONFINED_H

#include "error.h"

struct compile_paths {
	const char *model;  /* read, with what links in it and param_dir lead to; NULL: none */
	const char *output; /* written beside; NULL: nothing is written */
	const char *share;  /* a case dir whose weights are linked; or NULL */
};

/* Before the first thread. What cannot be made accessible is left out: to open it tells why. */
int compile_confine(const struct compile_paths *paths, struct tool_error *error);

#endif
