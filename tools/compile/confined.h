/* SPDX-License-Identifier: MIT */
/*
 * Confinement of the compiler after it has read its command line: it may read the model, write
 * beside the case dir, and use the CPU. An attacker who takes it over through a checkpoint has no
 * access to other models, devices, the network or other programs (confine.h).
 *
 * Before that it lists the model's directory. The param_dir in its config.json is read by a
 * separate process, which may only read the model.
 */
#ifndef TXDA_COMPILE_CONFINED_H
#define TXDA_COMPILE_CONFINED_H

#include "error.h"

struct compile_paths {
	const char *model;  /* read, including targets of links in it and param_dir; NULL: none */
	const char *output; /* written beside; NULL: nothing is written */
	const char *share;  /* a case dir whose weights are linked; or NULL */
};

/*
 * Call before the first thread is started. Files that cannot be made accessible are left out:
 * opening them reports why.
 */
int compile_confine(const struct compile_paths *paths, struct tool_error *error);

#endif
