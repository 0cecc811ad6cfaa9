/* SPDX-License-Identifier: MIT */
/*
 * Keeps weights on the chips while the daemon restarts.
 *
 * When a model is loaded, an fd of each chip's weights and a manifest (manifest.h) are sent to a
 * process that keeps descriptors for the daemon: systemd (FileDescriptorStoreMax=) or
 * txda-holder(1), by sd_notify(3)'s FDSTORE=1, both in one message, so that a store has a load's
 * weights completely or not at all. The next daemon finds them among its inherited descriptors,
 * checks that all conditions still hold, and imports the memory (txda_weights_import()). A model
 * that is loaded from the same file on the same chip then finds its weights there. Entries are not
 * looked up by model: the library identifies weights by their file, and models may share them.
 *
 * Adopted weights that are not used yet are spare: they belong to a configured model that is loaded
 * on demand, and are dropped when another model needs the room, or when their own model's load
 * could not use all of its ranks as they are.
 *
 * Weights that do not match are dropped, with a log line that says why; loading is always possible.
 * Threads: any, except for keeper_new(), keeper_take() and keeper_adopt(), which are called first,
 * and keeper_free(). Functions that change the list or open files belong to one thread, which loads:
 * keeper_keep(), keeper_drop(), keeper_drop_unwanted(), keeper_drop_spare(), keeper_look(),
 * keeper_await(). The keeper's lock is held only for memory accesses.
 */
#ifndef TXDA_MODELS_KEEPER_H
#define TXDA_MODELS_KEEPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct keeper;
struct keeper_entry;
struct txda_context;
struct txda_device;
struct txda_group;
struct txda_weights;

/* Names of descriptors that belong to the keeper. */
#define KEEPER_NAME "txda-weights-"

struct keeper_options {
	struct txda_context *context; /* referenced */
	void (*log)(bool bad, const char *text);
};

int keeper_new(const struct keeper_options *options, struct keeper **ret);
/* Frees it; what is stored stays stored. NULL is accepted. */
void keeper_free(struct keeper *k);
/*
 * Whether a process may keep descriptors for this one: there is a $NOTIFY_SOCKET, and $FDSTORE is
 * not 0.
 */
bool keeper_is_possible(void);

/* Takes over an inherited descriptor. */
void keeper_take(struct keeper *k, const char *name, int fd);
/* Adopts what was taken, or drops it. */
void keeper_adopt(struct keeper *k);
/*
 * Sets the models that are served from now on: unused weights for which @wanted, which must not
 * call the keeper, is false will be dropped by keeper_drop_unwanted(). Returns whether there are
 * any.
 */
bool keeper_retain(struct keeper *k,
		   bool (*wanted)(void *arg, const char *source, const char *case_dir), void *arg);
void keeper_drop_unwanted(struct keeper *k);

/* Identifies the owner of weights. */
struct keeper_weights {
	struct txda_weights *weights;
	const char *source, *case_dir;
	unsigned rank, tp;
	struct txda_device *device;
};
/*
 * Keeps weights from now on, until keeper_drop() has been called as many times. -ENOTSUP and
 * others: they are not kept, the log says why; the daemon can continue.
 */
int keeper_keep(struct keeper *k, const struct keeper_weights *w, struct keeper_entry **ret);
/* They leave the chip: when the last user drops them they are removed from the store. */
void keeper_drop(struct keeper *k, struct keeper_entry *entry);
/*
 * Waits until the store has closed everything that was dropped so far, at most 5 s: only then is
 * memory of real chips free. Returns at once if there was nothing. Must not be called with a lock
 * that other threads need.
 */
void keeper_await(struct keeper *k);

/*
 * Checks whether the files are still those that the kept weights were loaded from. Called by the
 * thread that calls keeper_keep().
 */
void keeper_look(struct keeper *k);
/*
 * Whether all weights of a case dir are kept on the chips of @group, so that a load would use them;
 * @spare: and unused.
 */
bool keeper_has(struct keeper *k, const char *case_dir, struct txda_group *group, bool spare);
/*
 * Bytes of spare weights on each chip of @group, without those that a load of the two case dirs
 * ("": none) would use there.
 */
void keeper_spare_bytes(struct keeper *k, struct txda_group *group, const char *case_dir,
			const char *draft_case_dir, uint64_t *ret_bytes);
/* Drops them. */
void keeper_drop_spare(struct keeper *k, struct txda_group *group, const char *case_dir,
		       const char *draft_case_dir);

#endif
