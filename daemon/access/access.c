// SPDX-License-Identifier: MIT
#include "access.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdint.h>
#include <stdlib.h>

/* A number as ids are; false: it is none. */
static bool number(const char *name, uint32_t *ret)
{
	unsigned long long n;
	char *end;

	if (*name < '0' || *name > '9')
		return false;
	n = strtoull(name, &end, 10);
	/* The highest one means "none". */
	if (*end || n >= UINT32_MAX)
		return false;
	*ret = (uint32_t)n;
	return true;
}

int access_add_user(struct access_list *list, const char *name)
{
	const struct passwd *user;
	uint32_t id;

	if (list->n_uids == ACCESS_MAX)
		return -ENOSPC;
	if (!number(name, &id)) {
		user = getpwnam(name);
		if (!user)
			return -ENOENT;
		id = user->pw_uid;
	}
	list->uids[list->n_uids++] = id;
	return 0;
}

int access_add_group(struct access_list *list, const char *name)
{
	const struct group *group;
	uint32_t id;

	if (list->n_gids == ACCESS_MAX)
		return -ENOSPC;
	if (!number(name, &id)) {
		group = getgrnam(name);
		if (!group)
			return -ENOENT;
		id = group->gr_gid;
	}
	list->gids[list->n_gids++] = id;
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

bool access_has(const struct access_list *list, uid_t uid, gid_t gid, const gid_t *groups,
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
