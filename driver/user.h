/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a user has of a chip, in all of his files together, so that none can take all of it.
 *
 * Address spaces and hardware queues are few: a user gets half of them, and buffers as many as
 * nobody needs. CAP_SYS_RESOURCE in the initial user namespace lifts the limits.
 *
 * Lifetime: a struct txda_user has a reference from each file and from each thing that is charged
 * to it, which may outlive the file.
 * Threads: any; may sleep unless stated.
 */
#ifndef TXDA_USER_H
#define TXDA_USER_H

#include <linux/atomic.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/uidgid.h>

struct txda_device;

enum txda_user_kind {
	TXDA_USER_VMS,
	TXDA_USER_COMPUTE_QUEUES,
	TXDA_USER_COPY_QUEUES,
	TXDA_USER_BUFFERS,
	TXDA_USER_KINDS
};

#define TXDA_USER_MAX_BUFFERS 32768

/**
 * struct txda_user - One user of one chip.
 */
struct txda_user {
	/** @ref: References. */
	struct kref ref;

	/** @tdev: The chip; a reference to the DRM device is held. */
	struct txda_device *tdev;

	/** @uid: The user. */
	kuid_t uid;

	/** @count: What is charged to it, by kind. */
	atomic_t count[TXDA_USER_KINDS];

	/** @link: In txda_users.all. */
	struct list_head link;
};

/**
 * struct txda_users - The users of a chip.
 */
struct txda_users {
	/** @lock: @all. */
	struct mutex lock;

	/** @all: struct txda_user. */
	struct list_head all;
};

int txda_users_init(struct txda_device *tdev);

/* The user that calls, with a reference, or NULL for want of memory. */
struct txda_user *txda_user_get_current(struct txda_device *tdev);
void txda_user_put(struct txda_user *user);

/*
 * One more of @kind for @user, which it holds until txda_user_uncharge(). -EDQUOT: that is too
 * many.
 */
int txda_user_charge(struct txda_user *user, enum txda_user_kind kind);
void txda_user_uncharge(struct txda_user *user, enum txda_user_kind kind);

#endif /* TXDA_USER_H */
