/* SPDX-License-Identifier: MIT */
/*
 * Weights that stay on the chips while the daemon restarts.
 *
 * When a model is loaded, an fd of each chip's weights and a manifest (manifest.h) go to whoever
 * started the daemon and keeps descriptors for it: systemd (FileDescriptorStoreMax=) or
 * txda-holder(1), by sd_notify(3)'s FDSTORE=1, both in one message, so that a store has all or
 * nothing of a load. The next daemon finds them among the descriptors that it is started with,
 * looks whether all is as it was, and takes the memory (txda_weights_import()). A model that is
 * loaded from the same file on the same chip then finds its weights there. Nobody looks at them by
 * model: the library knows a file's weights by themselves, and models may share them.
 *
 * What is adopted and not used yet is spare: it is of a configured model that is to be loaded on
 * demand, and goes when another one needs the room; or the model itself, if a load of it would not
 * take all of its ranks as they are.
 *
 * Whatever does not fit is dropped, with one line that says why; loading is always possible.
 * Threads: any, but for keeper_new(), keeper_take(), keeper_adopt() and keeper_retain(), which come
 * first, and keeper_free(). What changes the list or opens files is for one thread, the loader:
 * keeper_keep(), keeper_drop(), keeper_drop_spare(), keeper_look(), keeper_await(). The keeper's lock
 * is held for looks at memory alone.
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

/* Descriptors of this name belong to the keeper. */
#define KEEPER_NAME "txda-weights-"

struct keeper_options {
	struct txda_context *context; /* referenced */
	void (*log)(bool bad, const char *text);
};

int keeper_new(const struct keeper_options *options, struct keeper **ret);
/* Forgets all, but what is stored stays so. NULL is accepted. */
void keeper_free(struct keeper *k);
/* Whether somebody may keep descriptors for this process: it has a $NOTIFY_SOCKET, and no $FDSTORE
 * that says 0. */
bool keeper_is_possible(void);

/* A descriptor that the process was started with; taken over. */
void keeper_take(struct keeper *k, const char *name, int fd);
/* Adopts what was taken, or drops it. */
void keeper_adopt(struct keeper *k);
/* Drops what nobody uses and is of a directory for which @wanted is false, which must not call the
 * keeper. */
void keeper_retain(struct keeper *k, bool (*wanted)(void *arg, const char *source), void *arg);

/* Whose weights they are. */
struct keeper_weights {
	struct txda_weights *weights;
	const char *source, *case_dir;
	unsigned rank, tp;
	struct txda_device *device;
};
/*
 * Has weights kept from now on, until as many keeper_drop() have come. -ENOTSUP and others: they
 * are not, the log says why; a daemon can do without.
 */
int keeper_keep(struct keeper *k, const struct keeper_weights *w, struct keeper_entry **ret);
/* They leave the chip: with the last user the store gives them up. */
void keeper_drop(struct keeper *k, struct keeper_entry *entry);
/*
 * Waits until the store has closed what was given up so far, 5 s at most: the memory of real chips
 * is free only then. At once if nothing was. Not with a lock that others wait for.
 */
void keeper_await(struct keeper *k);

/* Looks whether the files are still those that the kept weights were loaded from. By the thread that
 * calls keeper_keep(). */
void keeper_look(struct keeper *k);
/* Whether all weights of a case dir lie on the chips of @group, kept, so that a load would take
 * them; @spare: and not used. */
bool keeper_has(struct keeper *k, const char *case_dir, struct txda_group *group, bool spare);
/* Bytes that spare weights take of each chip of @group, aside from those that a load of the two
 * case dirs ("": none) would use there. */
void keeper_spare_bytes(struct keeper *k, struct txda_group *group, const char *case_dir,
			const char *draft_case_dir, uint64_t *ret_bytes);
/* Gives them up. */
void keeper_drop_spare(struct keeper *k, struct txda_group *group, const char *case_dir,
		       const char *draft_case_dir);

#endif
