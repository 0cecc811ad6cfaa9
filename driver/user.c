// SPDX-License-Identifier: GPL-2.0
#include "user.h"

#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/slab.h>
#include <drm/drm_drv.h>
#include <drm/drm_managed.h>
#include <drm/drm_print.h>

#include "compat/slab.h"
#include "device.h"
#include "file.h"

static void txda_users_release(struct drm_device *drm, void *data)
{
	struct txda_users *users = data;
	struct txda_user *user, *next;

	/* All others held the device. */
	list_for_each_entry_safe(user, next, &users->all, link)
		kfree(user);
}

int txda_users_init(struct txda_device *tdev)
{
	struct txda_users *users = &tdev->users;
	int err;

	INIT_LIST_HEAD(&users->all);
	users->ban_ms = TXDA_USER_BAN_MS;
	err = drmm_mutex_init(&tdev->drm, &users->lock);
	if (err)
		return err;
	return drmm_add_action_or_reset(&tdev->drm, txda_users_release, users);
}

/* ---- References ----------------------------------------------------------------------------- */

/* So that closing all files lifts no ban, and gives no new share of hardware. */
static bool txda_user_must_stay(struct txda_user *user, u64 now)
{
	u32 i;

	if (refcount_read(&user->ref) || !txda_ban_is_over(&user->ban, now))
		return true;
	for (i = 0; i < TXDA_CLASS_COUNT; i++) {
		if (txda_share_holds(&user->tdev->shares[i], &user->fair[i]))
			return true;
	}
	return false;
}

/* Frees users that need not be remembered any more. */
static void txda_users_prune(struct txda_users *users, u64 now)
{
	struct txda_user *user, *next;

	lockdep_assert_held(&users->lock);
	list_for_each_entry_safe(user, next, &users->all, link) {
		if (txda_user_must_stay(user, now))
			continue;
		list_del(&user->link);
		kfree(user);
	}
}

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
	fresh->tdev = tdev;
	fresh->uid = current_euid();

	mutex_lock(&users->lock);
	txda_users_prune(users, ktime_get_ns());
	user = txda_user_find(users, fresh->uid);
	if (!user) {
		list_add_tail(&fresh->link, &users->all);
		swap(user, fresh);
	}
	if (!refcount_inc_not_zero(&user->ref)) {
		refcount_set(&user->ref, 1);
		drm_dev_get(&tdev->drm);
	}
	mutex_unlock(&users->lock);
	kfree(fresh);
	return user;
}

void txda_user_get(struct txda_user *user)
{
	refcount_inc(&user->ref);
}

void txda_user_put(struct txda_user *user)
{
	struct txda_users *users = &user->tdev->users;
	struct drm_device *drm = &user->tdev->drm;

	if (!refcount_dec_and_mutex_lock(&user->ref, &users->lock))
		return;
	txda_users_prune(users, ktime_get_ns());
	mutex_unlock(&users->lock);
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
	case TXDA_USER_SHARED_QUEUES:
		return TXDA_USER_MAX_SHARED;
	case TXDA_USER_TABLES:
		all = min_t(u64, tdev->dram_mappable / TXDA_PT_BYTES, INT_MAX);
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
		[TXDA_USER_SHARED_QUEUES] = "shared queues",
		[TXDA_USER_BUFFERS] = "buffers",
		[TXDA_USER_TABLES] = "page tables",
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

/* ---- Bans ----------------------------------------------------------------------------------- */

static u32 txda_user_ms(u64 ns)
{
	return div_u64(ns + NSEC_PER_MSEC - 1, NSEC_PER_MSEC);
}

u32 txda_user_blame(struct txda_user *user, u64 client_id)
{
	struct txda_users *users = &user->tdev->users;
	u32 ban_ms;

	mutex_lock(&users->lock);
	ban_ms = users->ban_ms;
	if (!txda_ban_count(&user->ban, client_id, ktime_get_ns(), (u64)ban_ms * NSEC_PER_MSEC))
		ban_ms = 0;
	mutex_unlock(&users->lock);

	if (ban_ms)
		drm_notice(&user->tdev->drm,
			   "user %u is banned for %u ms: its jobs make chip resets necessary\n",
			   from_kuid(&init_user_ns, user->uid), ban_ms);
	return ban_ms;
}

u32 txda_user_ban_left(struct txda_file *file)
{
	struct txda_users *users = &file->tdev->users;
	struct txda_user *user = file->user;
	u64 left;

	/* The usual case, in the submission path. */
	if (!READ_ONCE(user->ban.until_ns))
		return 0;
	mutex_lock(&users->lock);
	left = txda_ban_left(&user->ban, file->drm->client_id, file->opened_ns, ktime_get_ns());
	mutex_unlock(&users->lock);
	return txda_user_ms(left);
}

int txda_user_may_submit(struct txda_file *file)
{
	return txda_user_ban_left(file) && !capable(CAP_SYS_RESOURCE) ? -EPERM : 0;
}

void txda_users_set_ban(struct txda_device *tdev, u32 ban_ms)
{
	struct txda_users *users = &tdev->users;
	struct txda_user *user;

	mutex_lock(&users->lock);
	WRITE_ONCE(users->ban_ms, ban_ms);
	if (!ban_ms) {
		list_for_each_entry(user, &users->all, link)
			WRITE_ONCE(user->ban.until_ns, 0);
	}
	mutex_unlock(&users->lock);
}

void txda_users_show(struct txda_device *tdev, struct drm_printer *p)
{
	struct txda_users *users = &tdev->users;
	struct txda_user *user;
	u64 now = ktime_get_ns(), left;

	mutex_lock(&users->lock);
	list_for_each_entry(user, &users->all, link) {
		drm_printf(p, "user %u: %d vms, %d compute queues, %d copy queues",
			   from_kuid(&init_user_ns, user->uid),
			   atomic_read(&user->count[TXDA_USER_VMS]),
			   atomic_read(&user->count[TXDA_USER_COMPUTE_QUEUES]),
			   atomic_read(&user->count[TXDA_USER_COPY_QUEUES]));
		drm_printf(p, ", %d shared queues, %d buffers, %d page tables",
			   atomic_read(&user->count[TXDA_USER_SHARED_QUEUES]),
			   atomic_read(&user->count[TXDA_USER_BUFFERS]),
			   atomic_read(&user->count[TXDA_USER_TABLES]));
		drm_printf(p, ", %u resets", user->ban.resets);
		left = txda_ban_left(&user->ban, 0, U64_MAX, now);
		if (left)
			drm_printf(p, ", banned for %u ms%s", txda_user_ms(left),
				   user->ban.all ? ", with all files" : "");
		drm_puts(p, "\n");
	}
	mutex_unlock(&users->lock);
}
