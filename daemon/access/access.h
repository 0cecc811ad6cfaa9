/* SPDX-License-Identifier: MIT */
/*
 * Lists of users and groups, and who asks: the kernel's word (SO_PEERCRED, SO_PEERGROUPS), which a
 * client cannot forge.
 *
 * Pure, but for looking names up. Any thread.
 */
#ifndef TXDA_DAEMON_ACCESS_H
#define TXDA_DAEMON_ACCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define ACCESS_MAX 64 /* users, and groups, of a list */

struct access_list {
	uid_t uids[ACCESS_MAX];
	gid_t gids[ACCESS_MAX];
	unsigned n_uids, n_gids;
};

/* Add a user or a group by name or number. 0; -ENOENT: there is none of that name; -ENOSPC. */
int access_add_user(struct access_list *list, const char *name);
int access_add_group(struct access_list *list, const char *name);

static inline bool access_is_empty(const struct access_list *list)
{
	return !list->n_uids && !list->n_gids;
}

/* Whether one of the user, its group and its further groups [n] is in the list. */
bool access_has(const struct access_list *list, uid_t uid, gid_t gid, const gid_t *groups,
		unsigned n);

#endif
