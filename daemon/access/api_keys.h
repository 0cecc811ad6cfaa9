/* SPDX-License-Identifier: MIT */
/*
 * API keys, and the users that they stand for.
 *
 * The file has a key a line: USER:KEY, or USER:KEY:admin for an administrator. Blank lines and lines
 * that begin with '#' say nothing. USER is an account, by name or number, and then has that
 * account's uid and groups, so that its requests over TCP and over the Unix socket are one user's.
 * Any other name is a user of the daemon's own (identity.h). A user may have several keys.
 *
 * Who has keys is told by nothing that is measured: keys are held as SHA-256 digests, and a key that
 * comes is compared with all of them, byte for byte, whatever is found. No text of the file is in an
 * error: what is wrong is told by its line, as a key may stand where a name should.
 *
 * Threads: api_keys_load() and api_keys_parse() look accounts up, as access.h does; a set does not
 * change.
 */
#ifndef TXDA_SERVER_API_KEYS_H
#define TXDA_SERVER_API_KEYS_H

#include <stddef.h>

#include "identity.h"

#define API_KEYS_MAX	   1024
#define API_KEYS_FILE	   ((size_t)256 << 10) /* bytes of the file */
#define API_KEYS_MIN_BYTES 16		       /* of a key */
#define API_KEYS_MAX_BYTES 256

struct api_keys;

/*
 * Reads the file (secure_file.h). @before (may be NULL) is the set that the new one takes the place
 * of: users keep their uids. -EINVAL: the text is wrong; else as secure_file_read(). The words are
 * in err; *ret is untouched then.
 */
int api_keys_load(const char *path, const struct api_keys *before, struct api_keys **ret, char *err,
		  size_t errlen);
/* Of a text, @name being what errors call it. */
int api_keys_parse(const char *text, size_t len, const char *name, const struct api_keys *before,
		   struct api_keys **ret, char *err, size_t errlen);
/* NULL is accepted. */
void api_keys_free(struct api_keys *k);

/* The user of a key, or NULL. */
const struct identity *api_keys_find(const struct api_keys *k, const char *key, size_t len);
/* Whether the user has a key. */
bool api_keys_has_user(const struct api_keys *k, uid_t uid);
unsigned api_keys_count(const struct api_keys *k);

#endif
