/* SPDX-License-Identifier: MIT */
/*
 * Lists of users and groups, matched against the peer's identity as the kernel reports it
 * (SO_PEERCRED, SO_PEERGROUPS), which a client cannot forge.
 *
 * Pure, except for name look-ups. Any thread.
 */
#ifndef TXDA_ACCESS_ACCESS_H
#define TXDA_ACCESS_ACCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "user_id.h"

#define ACCESS_MAX 64 /* users, and groups, in a list */

struct access_list {
	uid_t uids[ACCESS_MAX];
	gid_t gids[ACCESS_MAX];
	unsigned n_uids, n_gids;
};

/* Add a user or a group by name or number. 0; -ENOENT: the name does not exist; -ENOSPC. */
int access_add_user(struct access_list *list, const char *name);
int access_add_group(struct access_list *list, const char *name);

static inline bool access_is_empty(const struct access_list *list)
{
	return !list->n_uids && !list->n_gids;
}

/* Whether the user, its group or one of its supplementary groups [n] is in the list. */
bool access_has(const struct access_list *list, user_id uid, gid_t gid, const gid_t *groups,
		unsigned n);

#endif
