/* SPDX-License-Identifier: MIT */
/*
 * API keys and the users that they authenticate.
 *
 * The file has one key per line: USER:KEY, or USER:KEY:admin for an administrator. Blank lines and
 * lines that begin with '#' are ignored. If USER is an account, by name or number, the key's user
 * has that account's uid and groups, so that requests over TCP and over the Unix socket belong to
 * the same user. Any other name is a user of the daemon only (identity.h). A user may have several
 * keys.
 *
 * Timing does not reveal which keys exist: keys are stored as SHA-256 digests, and a received key
 * is compared with all of them in constant time. Errors contain no text of the file, only line
 * numbers, since a key may have been put where a name belongs.
 *
 * Threads: api_keys_load() and api_keys_parse() look up accounts, as access.h does; a set is
 * immutable.
 */
#ifndef TXDA_ACCESS_API_KEYS_H
#define TXDA_ACCESS_API_KEYS_H

#include <stddef.h>

#include "identity.h"

#define API_KEYS_MAX	   1024
#define API_KEYS_FILE	   ((size_t)256 << 10) /* bytes of the file */
#define API_KEYS_MIN_BYTES 16		       /* bytes of a key */
#define API_KEYS_MAX_BYTES 256

struct api_keys;

/*
 * Reads the file (secure_file.h). @before (may be NULL) is the set that is replaced: its users keep
 * their uids. -EINVAL: invalid contents; else as secure_file_read(). The message is in err; *ret is
 * untouched on failure.
 */
int api_keys_load(const char *path, const struct api_keys *before, struct api_keys **ret, char *err,
		  size_t errlen);
/* Parses a text; @name is used in errors. */
int api_keys_parse(const char *text, size_t len, const char *name, const struct api_keys *before,
		   struct api_keys **ret, char *err, size_t errlen);
/* NULL is accepted. */
void api_keys_free(struct api_keys *k);

/* The user that a key belongs to, or NULL. */
const struct identity *api_keys_find(const struct api_keys *k, const char *key, size_t len);
/* Whether the user has at least one key. */
bool api_keys_has_user(const struct api_keys *k, user_id uid);
unsigned api_keys_count(const struct api_keys *k);

#endif
