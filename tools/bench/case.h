/* SPDX-License-Identifier: MIT */
/*
 * Case dirs to measure: existing ones, or compiled from a checkpoint or a synthetic model and kept
 * for later runs.
 */
#ifndef TXDA_BENCH_CASE_H
#define TXDA_BENCH_CASE_H

#define CASE_PATH 4096

struct case_options {
	const char *dir;     /* where they are kept; NULL: txda/bench in the user's cache */
	const char *weights; /* as --weights of txda-compile */
	const char *tp;
};

/*
 * @model: a case dir, a checkpoint's directory, or the name of a synthetic model. @ret_dir has
 * CASE_PATH bytes. Errors are reported on stderr.
 */
int case_find(const char *model, const struct case_options *options, char *ret_dir);

#endif
