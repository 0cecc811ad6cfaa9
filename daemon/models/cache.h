/* SPDX-License-Identifier: MIT */
/*
 * The cache of compiled models: a directory of case dirs, each named by its key (txda-compile
 * --key: a hash of the source, its path and owner, the options and the compiler), so that no entry
 * is ever stale or another model's. A case dir appears there complete or not at all: the compiler
 * writes to a directory of its own, and has no access to other entries.
 */
#ifndef TXDA_MODELS_CACHE_H
#define TXDA_MODELS_CACHE_H

#include <stdbool.h>
#include <stddef.h>

#include "child.h"

/*
 * The directory by default; created if necessary, with its parents. Left-overs of killed compilers
 * are removed. -EPERM: everybody can rename entries in it.
 */
int cache_find(const char *wanted, char *path, size_t len, char *err, size_t errlen);

struct cache_source {
	const char *compiler;
	const char *path;    /* Hugging Face directory, absolute */
	unsigned tp;	     /* 0: the compiler's default */
	const char *weights; /* NULL: the compiler's default */
	const char *output;  /* --states, --mtp, or NULL */
	bool kv_int8;	     /* keys and values as int8 */
	bool whole_experts;  /* one expert on one chip each */
	bool ignore_unused;  /* tensors that may change results */
	uint64_t bytes;	     /* bytes of the checkpoint's weights, as far as known */
	uint64_t cache_size; /* size limit for all entries together; 0: none */
};

/*
 * Finds the case dir of a source in @cache, compiling it if it is not there, or if @again; unused
 * entries may be evicted for that. *ret holds it: cache_release() (cache_room.h). @options: its
 * limits are set here. Blocks; errors as child_run(), and those of cache_reserve().
 */
struct cache_use;
int cache_get(const char *cache, const struct cache_source *source, bool again,
	      const struct child_options *options, char *case_dir, size_t len,
	      struct cache_use **ret, char *err, size_t errlen);

#endif
