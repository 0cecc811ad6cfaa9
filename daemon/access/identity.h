/* SPDX-License-Identifier: MIT */
/*
 * Identity of a connection where the kernel does not provide it: over TCP, by API key (api_keys.h).
 */
#ifndef TXDA_ACCESS_IDENTITY_H
#define TXDA_ACCESS_IDENTITY_H

#include <stdbool.h>
#include <sys/types.h>

#include "user_id.h"

#define IDENTITY_NAME	64 /* bytes of a user's name, including NUL */
#define IDENTITY_GROUPS 64 /* supplementary groups of a user; with more, none are used */

/*
 * Users without accounts get numbers starting here, which no process can have: uids have 32 bits.
 * They are private to the daemon: a name keeps its number as long as it is among the keys.
 */
#define IDENTITY_OWN_UIDS ((user_id)1 << 32)

struct identity {
	user_id uid;
	gid_t gid; /* (gid_t)-1: none */
	bool admin;
	bool more_groups; /* there are some that are not listed */
	unsigned n_groups;
	gid_t groups[IDENTITY_GROUPS];
	char name[IDENTITY_NAME];
};

#endif
