// SPDX-License-Identifier: MIT
#include "access.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdint.h>

#include "number.h"

/* The highest number is reserved for "none". */
#define ID_MAX (UINT32_MAX - 1)

int access_add_user(struct access_list *list, const char *name)
{
	const struct passwd *user;
	uint64_t id;

	if (list->n_uids == ACCESS_MAX)
		return -ENOSPC;
	if (!number_parse(name, ID_MAX, &id)) {
		user = getpwnam(name);
		if (!user)
			return -ENOENT;
		id = user->pw_uid;
	}
	list->uids[list->n_uids++] = (uint32_t)id;
	return 0;
}

int access_add_group(struct access_list *list, const char *name)
{
	const struct group *group;
	uint64_t id;

	if (list->n_gids == ACCESS_MAX)
		return -ENOSPC;
	if (!number_parse(name, ID_MAX, &id)) {
		group = getgrnam(name);
		if (!group)
			return -ENOENT;
		id = group->gr_gid;
	}
	list->gids[list->n_gids++] = (uint32_t)id;
	return 0;
}

static bool has_group(const struct access_list *list, gid_t gid)
{
	for (unsigned i = 0; i < list->n_gids; i++) {
		if (list->gids[i] == gid)
			return true;
	}
	return false;
}

bool access_has(const struct access_list *list, user_id uid, gid_t gid, const gid_t *groups,
		unsigned n)
{
	for (unsigned i = 0; i < list->n_uids; i++) {
		if (list->uids[i] == uid)
			return true;
	}
	if (has_group(list, gid))
		return true;
	for (unsigned i = 0; i < n; i++) {
		if (has_group(list, groups[i]))
			return true;
	}
	return false;
}
