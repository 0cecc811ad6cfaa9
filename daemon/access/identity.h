/* SPDX-License-Identifier: MIT */
/*
 * Identity of a connection where the kernel does not provide it: over TCP, by API key (api_keys.h).
 */
#ifndef TXDA_ACCESS_IDENTITY_H
#define TXDA_ACCESS_IDENTITY_H

#include <stdbool.h>
#include <sys/types.h>

#define IDENTITY_NAME	64 /* bytes of a user's name, including NUL */
#define IDENTITY_GROUPS 64 /* supplementary groups of a user; with more, none are used */

/*
 * Users without accounts get uids starting here, a range that systems do not use. They are private
 * to the daemon: a name keeps its uid as long as it is among the keys. A process with such a uid,
 * for example in a container, is treated as unknown user, (uid_t)-1, and accounts with such a uid
 * cannot have keys.
 */
#define IDENTITY_OWN_UIDS ((uid_t)1 << 31)

struct identity {
	uid_t uid;
	gid_t gid; /* (gid_t)-1: none */
	bool admin;
	bool more_groups; /* there are some that are not listed */
	unsigned n_groups;
	gid_t groups[IDENTITY_GROUPS];
	char name[IDENTITY_NAME];
};

#endif
