// SPDX-License-Identifier: MIT
/*
 * On which chips a model goes, and how much of their memory its KV cache may take.
 *
 * A map, or the list of chips that a model may use, divides the chips into groups; a model goes to
 * a group that has room for it, among these to the one that has its weights from the daemon before
 * this one (keeper.h), then to the one whose chips have the fewest models, then to the one with the
 * most free memory.
 * Replicas keep apart. Models that are still to come get their share: what weights leave free on
 * the chips is divided evenly among this model and those that will have to join it there.
 */
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "residency_internal.h"

/* systemd closes what it gives up in a thread of its own, after it has answered. */
#define TAKE_LOOKS 50
#define TAKE_NS	   20000000

struct candidate {
	struct txda_group *group;
	unsigned models;      /* that use one of its chips */
	uint64_t free_bytes;  /* of the chip that has least, spare weights of others included */
	uint64_t bare_bytes;  /* the same without them */
	uint64_t spare_bytes; /* of the chip that has most of them */
	uint64_t there_bytes; /* of its weights, on each chip */
	bool fits, taken;     /* it has room; a replica of the model is there */
	bool waits;	      /* its weights are there, and nobody uses them */
	uint64_t need_bytes;
};

bool place_shares_chip(struct txda_group *a, struct txda_group *b)
{
	for (unsigned i = 0; i < txda_group_size(a); i++)
		for (unsigned j = 0; j < txda_group_size(b); j++)
			if (txda_group_device(a, i) == txda_group_device(b, j))
				return true;
	return false;
}

/* Looks at a group's chips; -ENODEV if one of them is lost. */
static int look(struct residency *r, const struct residency_model *model, struct candidate *c)
{
	uint64_t spare[TXDA_MAX_CHIPS_PER_GROUP];

	room_spare(model, c->group, spare);
	c->models = 0;
	c->taken = false;
	c->free_bytes = c->bare_bytes = UINT64_MAX;
	c->spare_bytes = 0;
	for (unsigned i = 0; i < txda_group_size(c->group); i++) {
		struct txda_device_info info = TXDA_INIT(struct txda_device_info);
		struct txda_device_status status = TXDA_INIT(struct txda_device_status);
		struct txda_device *device = txda_group_device(c->group, i);
		uint64_t free_bytes;

		if (txda_device_info(device, &info) < 0 ||
		    txda_device_status(device, &status) < 0 || status.lost)
			return -ENODEV;
		free_bytes = info.mem_bytes > status.mem_used_bytes
				     ? info.mem_bytes - status.mem_used_bytes
				     : 0;
		c->bare_bytes = free_bytes < c->bare_bytes ? free_bytes : c->bare_bytes;
		free_bytes += spare[i];
		c->spare_bytes = spare[i] > c->spare_bytes ? spare[i] : c->spare_bytes;
		c->free_bytes = free_bytes < c->free_bytes ? free_bytes : c->free_bytes;
	}
	pthread_mutex_lock(&r->lock);
	for (struct residency_model *m = r->models; m; m = m->next) {
		if (!m->group || !place_shares_chip(m->group, c->group))
			continue;
		c->models++;
		c->taken |= *model->family && !strcmp(m->family, model->family);
	}
	c->waits =
		r->options.keeper && keeper_has(r->options.keeper, model->case_dir, c->group, true);
	c->there_bytes = room_weights_there(model, c->group);
	c->need_bytes = room_need(model, c->group);
	c->fits = c->need_bytes <= c->free_bytes;
	pthread_mutex_unlock(&r->lock);
	return 0;
}

static bool better(const struct candidate *a, const struct candidate *b)
{
	if (a->fits != b->fits)
		return a->fits;
	if (a->waits != b->waits)
		return a->waits;
	return a->models != b->models ? a->models < b->models : a->free_bytes > b->free_bytes;
}

int place_group(struct residency *r, const struct residency_chips *chips, unsigned tp, unsigned i,
		struct txda_group **ret, char *err, size_t errlen)
{
	struct txda_group_options options = TXDA_INIT(struct txda_group_options);
	int error;

	options.tp = tp;
	if (chips->n_devices) {
		if (chips->n_devices / tp <= i) {
			snprintf(err, errlen, "the model may use %u chips, which are %u groups",
				 chips->n_devices, chips->n_devices / tp);
			return -ENODEV;
		}
		options.devices = chips->devices + (size_t)i * tp;
	} else {
		options.map = *chips->map ? chips->map : NULL;
		options.replica = i;
	}
	error = txda_group_new(r->context, &options, ret);
	if (error)
		snprintf(err, errlen, "%s", txda_context_error(r->context));
	return error;
}

/* @err says why there are no more groups. */
static int no_group(const struct residency_model *m, unsigned lost, unsigned taken, int error,
		    char *err, size_t errlen)
{
	char why[MAX_TEXT];

	if (lost) {
		snprintf(err, errlen, "no group of %u chips is left: a chip of each is lost",
			 m->plan.tp);
		return -EIO;
	}
	if (taken) {
		snprintf(err, errlen,
			 "no group of %u chips is left for a replica: each of %u has one",
			 m->plan.tp, taken);
		return -ENODEV;
	}
	snprintf(why, sizeof(why), "%s", err);
	snprintf(err, errlen, "no group of %u chips: %s", m->plan.tp, why);
	return error;
}

/* The best group for a model; *ret_groups: how many there are. */
static int choose_group(struct residency *r, const struct residency_model *m,
			struct candidate *best, unsigned *ret_groups, char *err, size_t errlen)
{
	unsigned lost = 0, taken = 0, n;
	int error;

	best->group = NULL;
	for (n = 0;; n++) {
		struct candidate c;

		error = place_group(r, &m->chips, m->plan.tp, n, &c.group, err, errlen);
		if (error)
			break;
		if (look(r, m, &c)) {
			lost++;
			txda_group_unref(c.group);
		} else if (c.taken) {
			taken++;
			txda_group_unref(c.group);
		} else if (!best->group || better(&c, best)) {
			txda_group_unref(best->group);
			*best = c;
		} else {
			txda_group_unref(c.group);
		}
	}
	*ret_groups = n - lost;
	return best->group ? 0 : no_group(m, lost, taken, error, err, errlen);
}

uint64_t place_checkpoint_bytes(const struct residency_model *m)
{
	unsigned tp = m->wanted_tp ? m->wanted_tp : 1;
	char pattern[MAX_PATH + 16];
	uint64_t bytes = 0;
	struct stat st;
	glob_t files;

	snprintf(pattern, sizeof(pattern), "%s/*.safetensors", m->path);
	if (glob(pattern, GLOB_NOSORT, NULL, &files))
		return 0;
	for (size_t i = 0; i < files.gl_pathc; i++)
		bytes += !stat(files.gl_pathv[i], &st) && st.st_size > 0 ? (uint64_t)st.st_size : 0;
	globfree(&files);
	return bytes / tp;
}

static uint64_t fixed_bytes(const struct txda_model_plan *plan)
{
	return plan->weight_bytes + plan->scratch_bytes + plan->io_bytes;
}

/* The most KV blocks for which the model and its draft have room together. */
static unsigned blocks_with_draft(const struct residency_model *m, const struct candidate *c,
				  uint64_t reserve_bytes)
{
	const struct txda_model_plan *draft = &m->draft_plan;
	uint64_t free_bytes = c->bare_bytes, blocks;
	uint64_t fixed =
		fixed_bytes(&m->plan) + fixed_bytes(draft) - c->there_bytes + reserve_bytes;
	uint64_t slack = 8ull << 20; /* each slot is rounded up to pages */

	if (free_bytes < fixed + slack)
		return 1; /* the load will say what is missing */
	blocks = (free_bytes - fixed - slack) / (m->plan.kv_block_bytes + draft->kv_block_bytes);
	return blocks < UINT32_MAX / 2 ? (unsigned)blocks : UINT32_MAX / 2;
}

/* What a model that is to be loaded needs at least, as far as that is known. Locked. */
static uint64_t least_bytes(const struct residency_model *m)
{
	struct room room;

	if (!m->planned)
		return place_checkpoint_bytes(m) + ROOM_OVERHEAD;
	room_of(m, &room);
	return room.weights + room.scratch + room.io + room.blocks_min * room.kv_block +
	       ROOM_OVERHEAD;
}

/* Whether one of the chips that it was told to use is in the group. */
static bool is_bound_to(const struct residency_model *m, struct txda_group *group)
{
	for (unsigned i = 0; i < txda_group_size(group); i++) {
		struct txda_device_info info = TXDA_INIT(struct txda_device_info);

		if (txda_device_info(txda_group_device(group, i), &info) < 0)
			continue;
		for (unsigned k = 0; k < m->chips.n_devices; k++)
			if (m->chips.devices[k] == info.index)
				return true;
	}
	return false;
}

/* Groups of as many chips, where models go that may use all of them. */
static unsigned all_groups(const struct residency_model *m, unsigned groups)
{
	int chips = txda_context_device_count(m->residency->context);
	unsigned all = chips > 0 ? (unsigned)chips / m->plan.tp : 0;

	return m->chips.n_devices && all > groups ? all : groups;
}

/*
 * How much of a chip's memory to leave to the models that are still to be loaded onto it, beside
 * what they have of it already.
 */
static uint64_t reserve(struct residency *r, const struct residency_model *m,
			const struct candidate *c, unsigned groups)
{
	uint64_t mine = fixed_bytes(&m->plan) + fixed_bytes(&m->draft_plan), theirs = 0, left;
	uint64_t free_bytes = c->free_bytes + c->there_bytes, least = 0, least_mine;
	unsigned others = 0, bound = 0, here;

	pthread_mutex_lock(&r->lock);
	least_mine = least_bytes(m);
	for (const struct residency_model *other = r->models; other; other = other->next) {
		if (other == m || other->engine || other->removed)
			continue;
		if (other->chips.n_devices && !is_bound_to(other, c->group))
			continue;
		others++;
		bound += other->chips.n_devices != 0;
		theirs +=
			other->planned ? fixed_bytes(&other->plan) : place_checkpoint_bytes(other);
		least += least_bytes(other);
	}
	pthread_mutex_unlock(&r->lock);
	groups = all_groups(m, groups);
	here = bound + (groups ? (others - bound) / groups : others - bound);
	if (!here || free_bytes < least_mine)
		return 0;
	theirs = theirs / others * here;
	if (free_bytes - least_mine < least / others * here)
		return 0; /* they do not fit beside it anyway */
	left = free_bytes - mine;
	theirs += (left - theirs) / (here + 1) * here;
	return theirs > c->spare_bytes ? theirs - c->spare_bytes : 0;
}

static int no_room(const struct residency_model *m, const struct candidate *best, char *err,
		   size_t errlen)
{
	struct room room;

	room_of(m, &room);
	snprintf(err, errlen,
		 "it needs %llu bytes of a chip at least (weights %llu, scratch %llu, "
		 "inputs and outputs %llu, %llu KV blocks of %llu, code and queues %llu); "
		 "%llu are free on the best group",
		 (unsigned long long)best->need_bytes, (unsigned long long)room.weights,
		 (unsigned long long)room.scratch, (unsigned long long)room.io,
		 (unsigned long long)room.blocks_min, (unsigned long long)room.kv_block,
		 (unsigned long long)ROOM_OVERHEAD, (unsigned long long)best->free_bytes);
	return -ENOSPC;
}

/* Has what is kept for others given up, and looks at the chips until they have the room. */
static int take_spare(struct residency *r, const struct residency_model *m, struct candidate *best)
{
	const struct timespec pause = {.tv_nsec = TAKE_NS};
	int error;

	keeper_drop_spare(r->options.keeper, best->group, m->case_dir, m->draft_case_dir);
	keeper_await(r->options.keeper);
	error = look(r, m, best);
	for (unsigned i = 0; i < TAKE_LOOKS && !error && !best->fits; i++) {
		nanosleep(&pause, NULL);
		error = look(r, m, best);
	}
	return error;
}

int place_model(struct residency_model *m, struct txda_group **ret_group,
		struct engine_options *options, char *err, size_t errlen)
{
	struct residency *r = m->residency;
	struct candidate best = {0};
	struct room room;
	unsigned groups;
	int error;

	if (r->options.keeper)
		keeper_await(r->options.keeper);
	error = choose_group(r, m, &best, &groups, err, errlen);
	if (error)
		return error;
	/* What is kept for others stays if there is room for both. */
	if (best.fits && best.spare_bytes && best.need_bytes > best.bare_bytes &&
	    take_spare(r, m, &best)) {
		txda_group_unref(best.group);
		return no_group(m, 1, 0, -EIO, err, errlen);
	}
	if (!best.fits) {
		txda_group_unref(best.group);
		return no_room(m, &best, err, errlen);
	}
	room_of(m, &room);
	if (!options->max_kv_blocks) {
		options->max_kv_blocks = room.blocks_max < UINT32_MAX / 2
						 ? (unsigned)room.blocks_max
						 : UINT32_MAX / 2;
		options->kv_reserve_bytes += reserve(r, m, &best, groups);
	}
	if (*m->draft_path) {
		unsigned blocks = blocks_with_draft(m, &best, options->kv_reserve_bytes);

		if (options->max_kv_blocks > blocks)
			options->max_kv_blocks = blocks ? blocks : 1;
	}
	*ret_group = best.group;
	return 0;
}
