/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Per-user limits on a chip, over all of a user's files, so that no user can take all of it.
 *
 * Address spaces and hardware queues are scarce: a user gets at most half of them, of the queues
 * for itself half as many as the chip has, shared ones counted; page tables in half of the DRAM
 * that the CPU can map, where all are; and a number of buffers and of queues that share hardware
 * far beyond any real need. A user whose jobs keep resetting the chip is banned from submitting
 * more for a while (ban.h). CAP_SYS_RESOURCE in the initial user namespace lifts the limits and
 * the ban.
 *
 * Lifetime: each file, each queue and each object charged to a struct txda_user holds a reference;
 * objects may outlive the file. A user with a ban, or with resets that may still lead to one, is
 * kept when the last reference is gone, until that has expired and a user is next looked up or
 * released, or the DRM device is freed. The same goes for one that had more than its part of the
 * shared queues, as long as others have work there that it is ahead of.
 * Threads: any; may sleep unless stated.
 */
#ifndef TXDA_USER_H
#define TXDA_USER_H

#include <linux/atomic.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/uidgid.h>

#include "ban.h"
#include "fair.h"
#include "file.h"

struct drm_printer;
struct txda_device;
struct txda_file;

enum txda_user_kind {
	TXDA_USER_VMS,
	TXDA_USER_COMPUTE_QUEUES,
	TXDA_USER_COPY_QUEUES,
	TXDA_USER_SHARED_QUEUES,
	TXDA_USER_BUFFERS,
	TXDA_USER_TABLES, /* page tables */
	TXDA_USER_KINDS
};

#define TXDA_USER_MAX_BUFFERS 32768
#define TXDA_USER_MAX_SHARED  64

#define TXDA_USER_BAN_MS     60000
#define TXDA_USER_MAX_BAN_MS 86400000

/**
 * struct txda_user - One user of one chip.
 */
struct txda_user {
	/** @ref: References; 0: only remembered. Changes from and to 0 under txda_users.lock. */
	refcount_t ref;

	/** @tdev: The chip; a reference to the DRM device is held unless @ref is 0. */
	struct txda_device *tdev;

	/** @uid: The user. */
	kuid_t uid;

	/** @count: Objects charged to it, by kind. */
	atomic_t count[TXDA_USER_KINDS];

	/** @fair: Its part of the shared queues of each class. Under txda_share.lock. */
	struct txda_fair_user fair[TXDA_CLASS_COUNT];

	/** @ban: Resets that its jobs caused. Under txda_users.lock. */
	struct txda_ban ban;

	/** @link: In txda_users.all. */
	struct list_head link;
};

/**
 * struct txda_users - The users of a chip.
 */
struct txda_users {
	/** @lock: Protects @all and the members that name it. */
	struct mutex lock;

	/** @all: struct txda_user. */
	struct list_head all;

	/** @ban_ms: How long a ban lasts, 0: there is none; a sysfs attribute. */
	u32 ban_ms;
};

int txda_users_init(struct txda_device *tdev);

/* The calling user, with a reference, or NULL if out of memory. */
struct txda_user *txda_user_get_current(struct txda_device *tdev);
void txda_user_get(struct txda_user *user);
void txda_user_put(struct txda_user *user);

/*
 * Charges one more of @kind to @user, until txda_user_uncharge(). -EDQUOT: over the limit.
 */
int txda_user_charge(struct txda_user *user, enum txda_user_kind kind);
void txda_user_uncharge(struct txda_user *user, enum txda_user_kind kind);

/*
 * A job of @user, submitted by the client with this id, made a chip reset necessary. Returns for
 * how many milliseconds the user is banned because of it, 0: it is not.
 */
u32 txda_user_blame(struct txda_user *user, u64 client_id);
/* For how many milliseconds the file's user cannot submit through it, capabilities aside. */
u32 txda_user_ban_left(struct txda_file *file);
/* -EPERM: the caller cannot submit through @file. */
int txda_user_may_submit(struct txda_file *file);
/* Sets txda_users.ban_ms; 0 also ends all bans. */
void txda_users_set_ban(struct txda_device *tdev, u32 ban_ms);
/* For debugfs. */
void txda_users_show(struct txda_device *tdev, struct drm_printer *p);

#endif /* TXDA_USER_H */
