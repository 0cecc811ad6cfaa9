/* SPDX-License-Identifier: MIT */
/*
 * The cache of compiled models: a directory of case dirs, each named by its key (txda-compile
 * --key: a hash of the source, where it lies and whose it is, the options and the compiler), so that
 * none is ever stale or another model's. A case dir appears there whole or not at all: the compiler
 * writes into a directory of its own, and sees no other entry.
 */
#ifndef TXDA_RESIDENCY_CACHE_H
#define TXDA_RESIDENCY_CACHE_H

#include <stdbool.h>
#include <stddef.h>

#include "child.h"

/*
 * The directory by default; made if need be, with its parents. What killed compilers left in it is
 * removed. -EPERM: everybody can rename what is in it.
 */
int cache_find(const char *wanted, char *path, size_t len, char *err, size_t errlen);

/* Whether @path is a case dir. */
bool cache_is_case(const char *path);

struct cache_source {
	const char *compiler;
	const char *path;    /* Hugging Face directory, absolute */
	unsigned tp;	     /* 0: the compiler decides */
	const char *weights; /* NULL: the compiler decides */
	const char *output;  /* --states, --mtp, or NULL */
	bool kv_int8;	     /* keys and values as int8 */
	bool whole_experts;  /* on a chip each */
	uint64_t bytes;	     /* of the checkpoint's weights, as far as they are known */
	uint64_t cache_size; /* limit of all entries together; 0: none */
};

/*
 * Finds the case dir of a source in @cache, compiling it if it is not there, or if @again; for that
 * others that nobody uses may go. @options: its limits are set here. Blocks; errors as child_run(), and
 * -ENOSPC: there is no room.
 */
int cache_get(const char *cache, const struct cache_source *source, bool again,
	      const struct child_options *options, char *case_dir, size_t len, char *err,
	      size_t errlen);

#endif
