// SPDX-License-Identifier: MIT
/* What a model takes of a chip, and which idle models would have to go for it. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "residency_internal.h"

/* With fewer a model is of little use; a smaller cache can be asked for. */
#define MIN_KV_BLOCKS 64

static uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

void room_of(const struct residency_model *m, struct room *ret)
{
	const struct txda_model_plan *plan = &m->plan, *draft = &m->draft_plan;
	unsigned max = m->options.engine.max_kv_blocks;

	*ret = (struct room){
		.weights = plan->weight_bytes + draft->weight_bytes,
		.scratch = plan->scratch_bytes + draft->scratch_bytes,
		.io = plan->io_bytes + draft->io_bytes,
		.kv_block = plan->kv_block_bytes + draft->kv_block_bytes,
		.blocks_max = plan->kv_blocks_at_limit,
	};
	if (!ret->kv_block)
		return;
	if (max)
		ret->blocks_max = min_u64(ret->blocks_max, max);
	if (m->kv_limit)
		ret->blocks_max = min_u64(ret->blocks_max, m->kv_limit / ret->kv_block);
	if (!ret->blocks_max)
		ret->blocks_max = 1;
	ret->blocks_min = min_u64(MIN_KV_BLOCKS, ret->blocks_max);
}

/* Whether the weights of a case dir lie on every chip of @group, for another model than @m or kept.
 * Locked. */
static bool weights_are_there(const struct residency_model *m, const char *case_dir,
			      struct txda_group *group)
{
	struct keeper *keeper = m->residency->options.keeper;

	if (!*case_dir)
		return false;
	if (keeper && keeper_has(keeper, case_dir, group, false))
		return true;
	for (const struct residency_model *other = m->residency->models; other;
	     other = other->next) {
		bool same = other != m && other->group &&
			    (!strcmp(other->case_dir, case_dir) ||
			     !strcmp(other->draft_case_dir, case_dir)) &&
			    txda_group_size(other->group) == txda_group_size(group);

		for (unsigned i = 0; same && i < txda_group_size(group); i++)
			same = txda_group_device(other->group, i) == txda_group_device(group, i);
		if (same)
			return true;
	}
	return false;
}

uint64_t room_weights_there(const struct residency_model *m, struct txda_group *group)
{
	return (weights_are_there(m, m->case_dir, group) ? m->plan.weight_bytes : 0) +
	       (weights_are_there(m, m->draft_case_dir, group) ? m->draft_plan.weight_bytes : 0);
}

uint64_t room_need(const struct residency_model *m, struct txda_group *group)
{
	struct room room;

	room_of(m, &room);
	return room.weights - room_weights_there(m, group) + room.scratch + room.io +
	       room.blocks_min * room.kv_block + ROOM_OVERHEAD;
}

void room_spare(const struct residency_model *m, struct txda_group *group, uint64_t *ret_bytes)
{
	struct keeper *keeper = m->residency->options.keeper;

	if (keeper)
		keeper_spare_bytes(keeper, group, m->case_dir, m->draft_case_dir, ret_bytes);
	else
		memset(ret_bytes, 0, txda_group_size(group) * sizeof(*ret_bytes));
}

/* What a resident model has of each of its chips. Locked. */
static uint64_t held_bytes(const struct residency_model *m)
{
	struct room room;

	room_of(m, &room);
	return room.weights + room.scratch + room.io + m->limits.kv_blocks * room.kv_block;
}

/* ---- who has to go --------------------------------------------------------------------------- */

/* A group, the free memory of its chips. */
struct site {
	struct txda_group *group;
	uint64_t free_bytes[TXDA_MAX_CHIPS_PER_GROUP];
	uint64_t need;
};

static bool has_room(const struct site *s)
{
	for (unsigned i = 0; i < txda_group_size(s->group); i++)
		if (s->free_bytes[i] < s->need)
			return false;
	return true;
}

/* Gives back, or takes again, what a model has of the site's chips. Locked. */
static bool count_model(struct site *s, const struct residency_model *m, bool gone)
{
	uint64_t bytes = held_bytes(m);
	bool any = false;

	for (unsigned i = 0; i < txda_group_size(s->group); i++)
		for (unsigned k = 0; k < txda_group_size(m->group); k++)
			if (txda_group_device(s->group, i) == txda_group_device(m->group, k)) {
				s->free_bytes[i] += gone ? bytes : -bytes;
				any = true;
			}
	return any;
}

/* The fewest of @idle that make room, the first ones rather; false: all of them do not. Locked. */
static bool find_victims(struct residency *r, struct site *s, const char *const *idle,
			 unsigned n_idle, unsigned *victims, unsigned *ret_n)
{
	const struct residency_model *models[RESIDENCY_MAX_GROUPS];
	unsigned n = 0, kept = 0;

	for (unsigned i = 0; i < n_idle && n < RESIDENCY_MAX_GROUPS && !has_room(s); i++) {
		const struct residency_model *m = model_find(r, idle[i]);

		if (!m || !m->engine || !m->group || !count_model(s, m, true))
			continue;
		models[n] = m;
		victims[n++] = i;
	}
	if (!has_room(s))
		return false;
	/* Some were in vain: small ones before the large one that made the room. */
	for (unsigned i = n; i-- > 0;) {
		count_model(s, models[i], false);
		if (has_room(s)) {
			victims[i] = UINT_MAX;
			continue;
		}
		count_model(s, models[i], true);
	}
	for (unsigned i = 0; i < n; i++)
		if (victims[i] != UINT_MAX)
			victims[kept++] = victims[i];
	*ret_n = kept;
	return true;
}

/* ---- the plan -------------------------------------------------------------------------------- */

/* Looks at the chips of a group; not locked. */
static void look(struct site *s, struct residency_group *g)
{
	g->n_chips = txda_group_size(s->group);
	g->free_bytes = g->total_bytes = UINT64_MAX;
	for (unsigned i = 0; i < g->n_chips; i++) {
		struct txda_device_info info = TXDA_INIT(struct txda_device_info);
		struct txda_device_status status = TXDA_INIT(struct txda_device_status);
		struct txda_device *device = txda_group_device(s->group, i);

		if (txda_device_info(device, &info) < 0 ||
		    txda_device_status(device, &status) < 0 || status.lost) {
			g->lost = true;
			g->free_bytes = g->total_bytes = 0;
			return;
		}
		g->chips[i] = info.index;
		s->free_bytes[i] = info.mem_bytes > status.mem_used_bytes
					   ? info.mem_bytes - status.mem_used_bytes
					   : 0;
		g->free_bytes = min_u64(g->free_bytes, s->free_bytes[i]);
		g->total_bytes = min_u64(g->total_bytes, info.mem_bytes);
	}
}

/* Locked. */
static void plan_site(struct residency_model *m, struct site *s, struct residency_group *g,
		      const char *const *idle, unsigned n_idle, struct residency_plan *plan)
{
	unsigned victims[RESIDENCY_MAX_GROUPS], n;
	uint64_t spare[TXDA_MAX_CHIPS_PER_GROUP];

	for (struct residency_model *other = m->residency->models; other; other = other->next)
		g->taken |= other != m && other->group && *m->family &&
			    !strcmp(other->family, m->family) &&
			    place_shares_chip(other->group, s->group);
	/* What is kept for others goes without asking. */
	room_spare(m, s->group, spare);
	for (unsigned i = 0; i < g->n_chips && !g->lost; i++) {
		s->free_bytes[i] += spare[i];
		g->free_bytes = i ? min_u64(g->free_bytes, s->free_bytes[i]) : s->free_bytes[i];
	}
	s->need = g->need_bytes = plan->exact ? room_need(m, s->group) : plan->need_bytes;
	if (g->lost || g->taken)
		return;
	if (has_room(s)) {
		plan->fits = true;
		plan->n_victims = 0;
		return;
	}
	if (plan->fits || !find_victims(m->residency, s, idle, n_idle, victims, &n))
		return;
	if (!plan->n_victims || n < plan->n_victims) {
		plan->n_victims = n;
		memcpy(plan->victims, victims, n * sizeof(*victims));
	}
}

/* The sizes, from the model's plan or its files. Locked. */
static void fill_sizes(const struct residency_model *m, struct residency_plan *plan)
{
	struct room room;

	plan->resident = m->engine;
	plan->overhead_bytes = ROOM_OVERHEAD;
	plan->exact = m->planned && (!*m->draft_path || m->draft_plan.tp);
	plan->tp = m->planned ? m->plan.tp : m->wanted_tp;
	room_of(m, &room);
	if (!plan->exact)
		room.weights = place_checkpoint_bytes(m);
	plan->weight_bytes = room.weights;
	plan->scratch_bytes = room.scratch;
	plan->io_bytes = room.io;
	plan->kv_block_bytes = room.kv_block;
	plan->kv_blocks_min = room.blocks_min;
	plan->kv_blocks_max = room.blocks_max;
	plan->need_bytes = room.weights + room.scratch + room.io + room.blocks_min * room.kv_block +
			   ROOM_OVERHEAD;
}

static int verdict(const struct residency_plan *plan, const char *name, char *err, size_t errlen)
{
	uint64_t best = 0, need = plan->need_bytes;
	unsigned lost = 0, taken = 0;
	char why[256];

	if (plan->resident || plan->fits || plan->n_victims)
		return 0;
	for (unsigned i = 0; i < plan->n_groups; i++) {
		const struct residency_group *g = &plan->groups[i];

		lost += g->lost;
		taken += g->taken;
		if (!g->lost && !g->taken && g->free_bytes >= best) {
			best = g->free_bytes;
			need = g->need_bytes;
		}
	}
	if (!plan->n_groups) {
		snprintf(why, sizeof(why), "%s", err);
		snprintf(err, errlen, "model '%.200s' has no group of %u chips: %s", name,
			 plan->tp ? plan->tp : 1, why);
		return -ENOSPC;
	}
	if (lost + taken == plan->n_groups) {
		snprintf(err, errlen,
			 "model '%.200s' needs a group of %u chips; there are %u, %u of them with "
			 "lost chips, %u with a replica",
			 name, plan->tp ? plan->tp : 1, plan->n_groups, lost, taken);
		return lost ? -EIO : -ENOSPC;
	}
	snprintf(err, errlen,
		 "model '%.200s' needs %llu bytes of a chip at least; %llu are free, and no idle "
		 "models make room for it",
		 name, (unsigned long long)need, (unsigned long long)best);
	return -ENOSPC;
}

int residency_make_room(struct residency *r, const char *name, const char *const *idle,
			unsigned n_idle, struct residency_plan *ret, char *err, size_t errlen)
{
	struct residency_chips chips = {0};
	struct site sites[RESIDENCY_MAX_GROUPS] = {0};
	struct residency_plan plan = {0};
	struct residency_model *m;

	pthread_mutex_lock(&r->lock);
	m = model_find(r, name);
	if (m) {
		fill_sizes(m, &plan);
		chips = m->chips;
	}
	pthread_mutex_unlock(&r->lock);
	while (m && plan.n_groups < RESIDENCY_MAX_GROUPS) {
		struct site *s = &sites[plan.n_groups];

		if (place_group(r, &chips, plan.tp ? plan.tp : 1, plan.n_groups, &s->group, err,
				errlen))
			break;
		look(s, &plan.groups[plan.n_groups++]);
	}
	pthread_mutex_lock(&r->lock);
	m = model_find(r, name);
	plan.leaving = r->freeing || model_leaving(r);
	for (unsigned i = 0; m && i < plan.n_groups; i++)
		plan_site(m, &sites[i], &plan.groups[i], idle, n_idle, &plan);
	pthread_mutex_unlock(&r->lock);
	for (unsigned i = 0; i < plan.n_groups; i++)
		txda_group_unref(sites[i].group);
	if (!m) {
		snprintf(err, errlen, "there is no model '%.200s'", name);
		return -ENOENT;
	}
	if (plan.resident) {
		plan.fits = true;
		plan.n_victims = 0;
	}
	*ret = plan;
	return verdict(&plan, name, err, errlen);
}
