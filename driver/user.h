/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Per-user limits on a chip, over all of a user's files, so that no user can take all of it.
 *
 * Address spaces and hardware queues are scarce: a user gets at most half of them, and a number of
 * buffers far beyond any real need. CAP_SYS_RESOURCE in the initial user namespace lifts the
 * limits.
 *
 * Lifetime: each file, each queue and each object charged to a struct txda_user holds a reference; objects may
 * outlive the file.
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

	/** @count: Objects charged to it, by kind. */
	atomic_t count[TXDA_USER_KINDS];

	/** @link: In txda_users.all. */
	struct list_head link;
};

/**
 * struct txda_users - The users of a chip.
 */
struct txda_users {
	/** @lock: Protects @all. */
	struct mutex lock;

	/** @all: struct txda_user. */
	struct list_head all;
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

#endif /* TXDA_USER_H */
