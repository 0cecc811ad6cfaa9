/* SPDX-License-Identifier: MIT */
/* Whom a connection speaks for where the kernel cannot say: over TCP, by its API key (api_keys.h). */
#ifndef TXDA_SERVER_IDENTITY_H
#define TXDA_SERVER_IDENTITY_H

#include <stdbool.h>
#include <sys/types.h>

#define IDENTITY_NAME	64 /* bytes of a user's name, with its end */
#define IDENTITY_GROUPS 64 /* further groups of a user; of one with more none counts */

/*
 * Users that are no accounts have uids from here on, which systems leave alone. They are the
 * daemon's own: a name has the same one as long as it stays among the keys. A process that has such
 * a uid, say in a container, is an unknown user, (uid_t)-1, and an account that has one gets no key.
 */
#define IDENTITY_OWN_UIDS ((uid_t)1 << 31)

struct identity {
	uid_t uid;
	gid_t gid; /* (gid_t)-1: none */
	bool admin;
	unsigned n_groups;
	gid_t groups[IDENTITY_GROUPS];
	char name[IDENTITY_NAME];
};

#endif
