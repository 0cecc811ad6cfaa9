/* SPDX-License-Identifier: MIT */
/*
 * Case dirs to measure: as they are, compiled from a checkpoint, or made up; the latter two are kept
 * for the next time.
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
 * @model: a case dir, a checkpoint's directory, or the name of a made-up model. @ret_dir has
 * CASE_PATH bytes. Says on stderr what failed.
 */
int case_find(const char *model, const struct case_options *options, char *ret_dir);

#endif
