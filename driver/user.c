// SPDX-License-Identifier: GPL-2.0
#include "user.h"

#include <linux/capability.h>
#include <linux/cred.h>
#include <drm/drm_drv.h>
#include <drm/drm_managed.h>
#include <drm/drm_print.h>

#include "compat/slab.h"
#include "device.h"

int txda_users_init(struct txda_device *tdev)
{
	INIT_LIST_HEAD(&tdev->users.all);
	return drmm_mutex_init(&tdev->drm, &tdev->users.lock);
}

/* ---- References ----------------------------------------------------------------------------- */

static struct txda_user *txda_user_find(struct txda_users *users, kuid_t uid)
{
	struct txda_user *user;

	lockdep_assert_held(&users->lock);
	list_for_each_entry(user, &users->all, link) {
		if (uid_eq(user->uid, uid))
			return user;
	}
	return NULL;
}

struct txda_user *txda_user_get_current(struct txda_device *tdev)
{
	struct txda_users *users = &tdev->users;
	struct txda_user *user, *fresh;

	/* Released outside of the lock, which a reset may wait for. */
	fresh = kzalloc_obj(*fresh, GFP_KERNEL_ACCOUNT);
	if (!fresh)
		return NULL;
	kref_init(&fresh->ref);
	fresh->tdev = tdev;
	fresh->uid = current_euid();

	mutex_lock(&users->lock);
	user = txda_user_find(users, fresh->uid);
	if (user) {
		kref_get(&user->ref);
	} else {
		list_add_tail(&fresh->link, &users->all);
		drm_dev_get(&tdev->drm);
		swap(user, fresh);
	}
	mutex_unlock(&users->lock);
	kfree(fresh);
	return user;
}

void txda_user_get(struct txda_user *user)
{
	kref_get(&user->ref);
}

/* Called with the lock, which it drops. */
static void txda_user_release(struct kref *ref)
{
	struct txda_user *user = container_of(ref, struct txda_user, ref);

	list_del(&user->link);
	mutex_unlock(&user->tdev->users.lock);
}

void txda_user_put(struct txda_user *user)
{
	struct drm_device *drm = &user->tdev->drm;

	if (!kref_put_mutex(&user->ref, txda_user_release, &user->tdev->users.lock))
		return;
	kfree(user);
	drm_dev_put(drm);
}

/* ---- Limits --------------------------------------------------------------------------------- */

/* Half of what clients can have, without the kernel's own share. */
static int txda_user_limit(const struct txda_device *tdev, enum txda_user_kind kind)
{
	u32 all = 0;

	switch (kind) {
	case TXDA_USER_VMS:
		all = tdev->info.max_vms - 1;
		break;
	case TXDA_USER_COMPUTE_QUEUES:
		all = tdev->compute_queues;
		break;
	case TXDA_USER_COPY_QUEUES:
		all = tdev->copy_queues - 1;
		break;
	default:
		return TXDA_USER_MAX_BUFFERS;
	}
	return max(all / 2, 1u);
}

int txda_user_charge(struct txda_user *user, enum txda_user_kind kind)
{
	static const char *const names[TXDA_USER_KINDS] = {
		[TXDA_USER_VMS] = "address spaces",
		[TXDA_USER_COMPUTE_QUEUES] = "compute queues",
		[TXDA_USER_COPY_QUEUES] = "copy queues",
		[TXDA_USER_BUFFERS] = "buffers",
	};
	int limit = txda_user_limit(user->tdev, kind);

	if (atomic_inc_return(&user->count[kind]) > limit && !capable(CAP_SYS_RESOURCE)) {
		atomic_dec(&user->count[kind]);
		drm_dbg(&user->tdev->drm, "user %u has %d %s, the limit per user\n",
			from_kuid(&init_user_ns, user->uid), limit, names[kind]);
		return -EDQUOT;
	}
	txda_user_get(user);
	return 0;
}

void txda_user_uncharge(struct txda_user *user, enum txda_user_kind kind)
{
	atomic_dec(&user->count[kind]);
	txda_user_put(user);
}
