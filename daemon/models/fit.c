// SPDX-License-Identifier: MIT
/*
 * Memory fit of a model: what it needs per chip, which group it is placed on, and which models
 * would have to be evicted.
 *
 * A map, or the list of chips that a model may use, divides the chips into groups. A model is
 * placed on a group with room for it; among these on the one that has its weights from the previous
 * daemon (keeper.h), then on the one whose chips have the fewest models, then on the one with the
 * most free memory. Replicas use separate groups. Models that are not loaded yet get a share:
 * memory left by weights is divided evenly among this model and those that will have to join it
 * there.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "keeper.h"
#include "models_internal.h"
#include "number.h"

/* With fewer a model is hardly useful; a smaller cache can be requested explicitly. */
#define MIN_KV_BLOCKS 64
/* Allowance for code, queues and page rounding. */
#define OVERHEAD (8ull << 20)

static uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

/* Bytes per chip, including the draft model's. */
struct sizes {
	uint64_t weights, scratch, io, kv_block;
	uint64_t blocks_min, blocks_max;
};

static void sizes_of(const struct served_model *m, struct sizes *ret)
{
	const struct txda_model_plan *plan = &m->found.plan, *draft = &m->found.draft_plan;
	uint64_t kv_limit = m->config->kv_memory;

	*ret = (struct sizes){
		.weights = plan->weight_bytes + draft->weight_bytes,
		.scratch = plan->scratch_bytes + draft->scratch_bytes,
		.io = plan->io_bytes + draft->io_bytes,
		.kv_block = plan->kv_block_bytes + draft->kv_block_bytes * draft->kv_groups,
		.blocks_max = plan->kv_blocks_at_limit,
	};
	if (!m->found.planned && !plan->tp)
		ret->weights = m->found.checkpoint_bytes;
	if (!ret->kv_block)
		return;
	if (kv_limit)
		ret->blocks_max = min_u64(ret->blocks_max, kv_limit / ret->kv_block);
	if (!ret->blocks_max)
		ret->blocks_max = 1;
	ret->blocks_min = min_u64(MIN_KV_BLOCKS + 3ull * plan->state_blocks, ret->blocks_max);
}

static uint64_t fixed_bytes(const struct served_model *m)
{
	struct sizes s;

	sizes_of(m, &s);
	return s.weights + s.scratch + s.io;
}

static uint64_t least_bytes(const struct served_model *m)
{
	struct sizes s;

	sizes_of(m, &s);
	return s.weights + s.scratch + s.io + s.blocks_min * s.kv_block + OVERHEAD;
}

/* Memory that a loaded replica holds on each of its chips, without shared weights. */
static uint64_t own_bytes(const struct replica *r)
{
	struct sizes s;

	sizes_of(r->model, &s);
	return s.scratch + s.io + r->on_chip.limits.kv_blocks * s.kv_block;
}

/* The weights of a model or of its draft: models with the same case dir share them on a group. */
struct weights {
	const char *case_dir; /* "": none */
	uint64_t bytes;
};

static struct weights weights_of(const struct served_model *m, bool draft)
{
	const struct model_found *f = &m->found;

	return draft ? (struct weights){f->draft_case_dir, f->draft_plan.weight_bytes}
		     : (struct weights){f->case_dir, f->plan.weight_bytes};
}

static bool has_weights(const struct served_model *m, const char *case_dir)
{
	return *case_dir &&
	       (!strcmp(m->found.case_dir, case_dir) || !strcmp(m->found.draft_case_dir, case_dir));
}

/* ---- a group --------------------------------------------------------------------------------- */

/* A group and the free memory of its chips. */
struct site {
	struct txda_group *group;
	uint64_t free_bytes[TXDA_MAX_CHIPS_PER_GROUP];
	bool gone[MODELS_MAX]; /* by index in the table: treated as unloaded */
};

int fit_group_new(const struct served_model *m, unsigned tp, unsigned i, struct txda_group **ret,
		  char *err, size_t errlen)
{
	struct txda_group_options options = TXDA_INIT(struct txda_group_options);
	const struct config_devices *chips = &m->config->devices;
	struct txda_context *context = m->table->options.context;
	int error;

	options.tp = tp;
	if (chips->n) {
		if (chips->n / tp <= i) {
			snprintf(err, errlen, "the model may use %u chips, in %u groups", chips->n,
				 chips->n / tp);
			return -ENODEV;
		}
		options.devices = chips->chips + (size_t)i * tp;
	} else {
		options.map = *m->config->map.text ? m->config->map.text : NULL;
		options.replica = i;
	}
	error = txda_group_new(context, &options, ret);
	if (error)
		snprintf(err, errlen, "%s", txda_context_error(context));
	return error;
}

static bool shares_chip(struct txda_group *a, struct txda_group *b)
{
	for (unsigned i = 0; i < txda_group_size(a); i++)
		for (unsigned j = 0; j < txda_group_size(b); j++)
			if (txda_group_device(a, i) == txda_group_device(b, j))
				return true;
	return false;
}

static bool is_same_group(struct txda_group *a, struct txda_group *b)
{
	for (unsigned i = 0; i < txda_group_size(a); i++)
		if (txda_group_size(a) != txda_group_size(b) ||
		    txda_group_device(a, i) != txda_group_device(b, i))
			return false;
	return true;
}

static bool is_on_group(const struct served_model *m, struct txda_group *group)
{
	for (unsigned k = 0; k < m->n_replicas; k++)
		if (m->replicas[k].on_chip.group &&
		    is_same_group(m->replicas[k].on_chip.group, group))
			return true;
	return false;
}

/* Whether the weights of a case dir are on every chip of @group, used by another model or kept. */
static bool weights_are_there(const struct served_model *m, const char *case_dir,
			      struct txda_group *group)
{
	const struct models *t = m->table;

	if (!*case_dir)
		return false;
	if (t->options.keeper && keeper_has(t->options.keeper, case_dir, group, false))
		return true;
	for (unsigned i = 0; i < t->n; i++) {
		const struct served_model *other = t->all[i];

		if (other != m && has_weights(other, case_dir) && is_on_group(other, group))
			return true;
	}
	return false;
}

/* Memory already used on the group: the model's own weights, and kept weights of others. */
static void measure_kept_weights(const struct served_model *m, struct site *s, struct fit_group *g)
{
	struct keeper *keeper = m->table->options.keeper;
	const struct model_found *f = &m->found;
	uint64_t spare[TXDA_MAX_CHIPS_PER_GROUP] = {0};

	g->bare_bytes = g->free_bytes;
	if (keeper) {
		keeper_spare_bytes(keeper, s->group, f->case_dir, f->draft_case_dir, spare);
		g->waits = keeper_has(keeper, f->case_dir, s->group, true);
	}
	/* Kept weights of others are dropped without further conditions. */
	g->free_bytes = UINT64_MAX;
	for (unsigned i = 0; i < g->n_chips; i++) {
		s->free_bytes[i] += spare[i];
		g->spare_bytes = spare[i] > g->spare_bytes ? spare[i] : g->spare_bytes;
		g->free_bytes = min_u64(g->free_bytes, s->free_bytes[i]);
	}
	g->there_bytes =
		(weights_are_there(m, f->case_dir, s->group) ? f->plan.weight_bytes : 0) +
		(weights_are_there(m, f->draft_case_dir, s->group) ? f->draft_plan.weight_bytes
								   : 0);
}

static void count_resident_models(const struct served_model *m, const struct replica *r,
				  const struct site *s, struct fit_group *g)
{
	const struct models *t = m->table;

	for (unsigned i = 0; i < t->n; i++) {
		for (unsigned k = 0; k < t->all[i]->n_replicas; k++) {
			const struct replica *other = &t->all[i]->replicas[k];

			if (other == r || !other->on_chip.group ||
			    !shares_chip(other->on_chip.group, s->group))
				continue;
			g->models++;
			g->taken |= t->all[i] == m;
		}
	}
}

/* Examines a group's chips and the models on them, other than @r. */
static void measure_group(const struct served_model *m, const struct replica *r, struct site *s,
			  struct fit_group *g)
{
	g->n_chips = txda_group_size(s->group);
	g->free_bytes = g->total_bytes = UINT64_MAX;
	for (unsigned i = 0; i < g->n_chips; i++) {
		struct txda_device_info info = TXDA_INIT(struct txda_device_info);
		struct txda_device_status status = TXDA_INIT(struct txda_device_status);
		struct txda_device *device = txda_group_device(s->group, i);

		if (txda_device_info(device, &info) < 0 ||
		    txda_device_status(device, &status) < 0 || status.lost)
			g->lost = true;
		g->chips[i] = info.index;
		s->free_bytes[i] = info.mem_bytes > status.mem_used_bytes
					   ? info.mem_bytes - status.mem_used_bytes
					   : 0;
		g->free_bytes = min_u64(g->free_bytes, s->free_bytes[i]);
		g->total_bytes = min_u64(g->total_bytes, info.mem_bytes);
	}
	if (g->lost) {
		g->free_bytes = g->total_bytes = 0;
		return;
	}
	measure_kept_weights(m, s, g);
	count_resident_models(m, r, s, g);
}

/* ---- victims --------------------------------------------------------------------------------- */

static bool has_room(const struct site *s, uint64_t need)
{
	for (unsigned i = 0; i < txda_group_size(s->group); i++)
		if (s->free_bytes[i] < need)
			return false;
	return true;
}

/*
 * Whether weights stay on a group without @m: @asking will use them, or another remaining model
 * does.
 */
static bool weights_stay(const struct site *s, const struct served_model *asking,
			 const struct served_model *m, const char *case_dir,
			 struct txda_group *group)
{
	const struct models *t = m->table;

	if (has_weights(asking, case_dir) && is_same_group(s->group, group))
		return true;
	for (unsigned i = 0; i < t->n; i++) {
		const struct served_model *other = t->all[i];

		if (other != m && !s->gone[i] && has_weights(other, case_dir) &&
		    is_on_group(other, group))
			return true;
	}
	return false;
}

/* Memory that unloading a replica would free on each of its chips. */
static uint64_t freed_bytes(const struct site *s, const struct served_model *asking,
			    const struct replica *r)
{
	uint64_t bytes = own_bytes(r);

	for (unsigned i = 0; i < 2; i++) {
		struct weights w = weights_of(r->model, i);

		if (*w.case_dir && !weights_stay(s, asking, r->model, w.case_dir, r->on_chip.group))
			bytes += w.bytes;
	}
	return bytes;
}

/* Frees, or takes again, a model's memory on the site's chips. */
static bool count_model(struct site *s, const struct served_model *asking,
			const struct served_model *m, bool gone)
{
	const struct models *t = m->table;
	bool any = false;

	for (unsigned n = 0; n < m->n_replicas; n++) {
		const struct replica *r = &m->replicas[n];
		uint64_t bytes = r->on_chip.group ? freed_bytes(s, asking, r) : 0;

		for (unsigned i = 0; bytes && i < txda_group_size(s->group); i++)
			for (unsigned k = 0; k < txda_group_size(r->on_chip.group); k++)
				if (txda_group_device(s->group, i) ==
				    txda_group_device(r->on_chip.group, k)) {
					s->free_bytes[i] += gone ? bytes : -bytes;
					any = true;
				}
	}
	for (unsigned i = 0; i < t->n; i++)
		if (t->all[i] == m)
			s->gone[i] = gone;
	return any;
}

static int by_use(const void *a, const void *b)
{
	const struct served_model *x = *(struct served_model *const *)a,
				  *y = *(struct served_model *const *)b;

	if (x->used_ns != y->used_ns)
		return x->used_ns < y->used_ns ? -1 : 1;
	return 0;
}

/* Models that may be evicted for @m, longest idle first. */
static unsigned list_evictable(const struct served_model *m, enum fit_victims who,
			       struct served_model **models)
{
	const struct models *t = m->table;
	unsigned n = 0;

	for (unsigned i = 0; i < t->n; i++) {
		struct served_model *other = t->all[i];

		if (other != m && !other->pinned && who != FIT_NOBODY &&
		    (who == FIT_BUSY || model_is_idle(other)))
			models[n++] = other;
	}
	qsort(models, n, sizeof(struct served_model *), by_use);
	return n;
}

/*
 * The fewest of @models that make room, preferring the first ones. Returns how many; 0: even all of
 * them do not.
 */
static unsigned find_victims(struct site *s, const struct served_model *m, uint64_t need,
			     struct served_model *const *models, unsigned n_models,
			     struct served_model **victims)
{
	unsigned n = 0, kept = 0;

	for (unsigned i = 0; i < n_models && !has_room(s, need); i++)
		if (count_model(s, m, models[i], true))
			victims[n++] = models[i];
	if (!has_room(s, need))
		return 0;
	/* Drop victims that turned out to be unnecessary: small ones before the large one. */
	for (unsigned i = n; i-- > 0;) {
		count_model(s, m, victims[i], false);
		if (has_room(s, need)) {
			victims[i] = NULL;
			continue;
		}
		count_model(s, m, victims[i], true);
	}
	for (unsigned i = 0; i < n; i++)
		if (victims[i])
			victims[kept++] = victims[i];
	return kept;
}

/* ---- result ---------------------------------------------------------------------------------- */

static bool is_better(const struct fit_group *a, const struct fit_group *b)
{
	if (a->waits != b->waits)
		return a->waits;
	return a->models != b->models ? a->models < b->models : a->free_bytes > b->free_bytes;
}

static void judge(struct site *s, const struct served_model *m, struct served_model *const *models,
		  unsigned n_models, struct model_fit *fit)
{
	struct served_model *victims[MODELS_MAX];
	struct fit_group *g = &fit->groups[fit->n_groups - 1];
	unsigned n;

	g->need_bytes = fit->need_bytes - (fit->exact ? g->there_bytes : 0);
	if (g->lost || g->taken)
		return;
	g->fits = has_room(s, g->need_bytes);
	if (g->fits && (!fit->fits || is_better(g, &fit->groups[fit->best])))
		fit->best = fit->n_groups - 1;
	fit->fits |= g->fits;
	n = fit->fits ? 0 : find_victims(s, m, g->need_bytes, models, n_models, victims);
	if (!n || (fit->n_victims && n >= fit->n_victims))
		return;
	fit->n_victims = n;
	memcpy(fit->victims, victims, n * sizeof(*victims));
}

static void fill_sizes(const struct served_model *m, struct model_fit *fit)
{
	struct sizes s;

	sizes_of(m, &s);
	fit->overhead_bytes = OVERHEAD;
	fit->exact = m->found.planned;
	fit->tp = m->found.plan.tp ? m->found.plan.tp : m->spec.tp;
	fit->weight_bytes = s.weights;
	fit->scratch_bytes = s.scratch;
	fit->io_bytes = s.io;
	fit->kv_block_bytes = s.kv_block;
	fit->kv_blocks_min = s.blocks_min;
	fit->kv_blocks_max = s.blocks_max;
	fit->need_bytes = least_bytes(m);
}

static int explain_no_room(const struct model_fit *fit, char *err, size_t errlen)
{
	uint64_t best = 0, need = fit->need_bytes;
	char t[7][NUMBER_SIZE_TEXT];

	for (unsigned i = 0; i < fit->n_groups; i++) {
		const struct fit_group *g = &fit->groups[i];

		if (!g->lost && !g->taken && g->free_bytes >= best) {
			best = g->free_bytes;
			need = g->need_bytes;
		}
	}
	snprintf(err, errlen,
		 "the model needs %s of a chip at least; %s are free, and evicting idle models "
		 "would not make enough room (weights %s, scratch %s, inputs and outputs %s, "
		 "%llu KV blocks of %s, code and queues %s)",
		 number_format_size((double)need, t[0]), number_format_size((double)best, t[1]),
		 number_format_size((double)fit->weight_bytes, t[2]),
		 number_format_size((double)fit->scratch_bytes, t[3]),
		 number_format_size((double)fit->io_bytes, t[4]),
		 (unsigned long long)fit->kv_blocks_min,
		 number_format_size((double)fit->kv_block_bytes, t[5]),
		 number_format_size((double)OVERHEAD, t[6]));
	return -ENOSPC;
}

/* Sets @err, which says why there are no more groups, to why the model does not fit. */
static int verdict(const struct served_model *m, const struct model_fit *fit, char *err,
		   size_t errlen)
{
	unsigned lost = 0, taken = 0, tp = fit->tp ? fit->tp : 1;
	char why[256];

	if (fit->resident || fit->fits || fit->n_victims) {
		/* It says how the search for groups ended. */
		err[0] = '\0';
		return 0;
	}
	for (unsigned i = 0; i < fit->n_groups; i++) {
		lost += fit->groups[i].lost;
		taken += fit->groups[i].taken;
	}
	if (!fit->n_groups) {
		snprintf(why, sizeof(why), "%s", err);
		snprintf(err, errlen, "model '%.200s' has no group of %u chips: %s", model_name(m),
			 tp, why);
		return -ENODEV;
	}
	if (lost + taken < fit->n_groups)
		return explain_no_room(fit, err, errlen);
	snprintf(err, errlen,
		 "model '%.200s' needs a group of %u chips; there are %u, %u of them with lost "
		 "chips, %u with a replica",
		 model_name(m), tp, fit->n_groups, lost, taken);
	return lost ? -EIO : -ENODEV;
}

/* A replica that is not placed yet, or NULL. */
static const struct replica *without_place(const struct served_model *m)
{
	for (unsigned i = 0; i < m->n_replicas; i++)
		if (!m->replicas[i].on_chip.engine)
			return &m->replicas[i];
	return NULL;
}

int models_fit(struct served_model *m, const struct replica *r, enum fit_victims who,
	       struct model_fit *ret, char *err, size_t errlen)
{
	struct served_model *models[MODELS_MAX];
	unsigned n_models = list_evictable(m, who, models);

	memset(ret, 0, sizeof(*ret));
	fill_sizes(m, ret);
	r = r ? r : without_place(m);
	while (ret->n_groups < MODELS_MAX_GROUPS) {
		struct site site = {0};

		if (fit_group_new(m, ret->tp ? ret->tp : 1, ret->n_groups, &site.group, err,
				  errlen))
			break;
		measure_group(m, r, &site, &ret->groups[ret->n_groups++]);
		judge(&site, m, models, n_models, ret);
		txda_group_unref(site.group);
	}
	ret->resident = !r || r->on_chip.engine;
	ret->fits |= ret->resident;
	if (ret->fits)
		ret->n_victims = 0;
	return verdict(m, ret, err, errlen);
}

/* ---- the share of a model -------------------------------------------------------------------- */

/* Whether one of the chips it was configured to use is in the group. */
static bool is_bound_to(const struct served_model *m, const struct fit_group *g)
{
	for (unsigned i = 0; i < g->n_chips; i++)
		for (unsigned k = 0; k < m->config->devices.n; k++)
			if (m->config->devices.chips[k] == g->chips[i])
				return true;
	return false;
}

/* Number of groups among chips: for models of the same group size that may use all of them. */
static unsigned count_groups(const struct served_model *m, const struct model_fit *fit)
{
	int chips = txda_context_device_count(m->table->options.context);
	unsigned all = chips > 0 ? (unsigned)chips / fit->tp : 0, groups = 0;

	for (unsigned i = 0; i < fit->n_groups; i++)
		groups += !fit->groups[i].lost;
	return m->config->devices.n && all > groups ? all : groups;
}

/* Whether a replica of the model is loaded. */
static bool is_loaded(const struct served_model *m)
{
	for (unsigned i = 0; i < m->n_replicas; i++)
		if (m->replicas[i].on_chip.group)
			return true;
	return false;
}

/*
 * Weights of the @at-th model, which is not loaded yet, that it will find on the only possible
 * group: those of @mine, of a loaded model, or of one before it in the table.
 */
static uint64_t shared_bytes(const struct served_model *mine, unsigned at)
{
	const struct models *t = mine->table;
	uint64_t bytes = 0;

	for (unsigned i = 0; i < 2; i++) {
		struct weights w = weights_of(t->all[at], i);
		bool shared = false;

		for (unsigned k = 0; k < t->n && !shared; k++) {
			const struct served_model *other = t->all[k];

			shared = k != at && has_weights(other, w.case_dir) &&
				 (other == mine || is_loaded(other) || (k < at && !other->retired));
		}
		if (shared)
			bytes += w.bytes;
	}
	return bytes;
}

/*
 * How much of a chip's memory to leave to the models that will be loaded onto it later, besides
 * what they already hold.
 */
static uint64_t reserve(const struct replica *r, const struct model_fit *fit)
{
	const struct fit_group *g = &fit->groups[fit->best];
	const struct models *t = r->model->table;
	uint64_t free_bytes = g->free_bytes + g->there_bytes, least = 0, theirs = 0, left;
	uint64_t mine = fixed_bytes(r->model), least_mine = least_bytes(r->model);
	unsigned others = 0, bound = 0, here, groups = count_groups(r->model, fit);

	for (unsigned i = 0; i < t->n; i++) {
		const struct served_model *m = t->all[i];
		bool is_bound = m->config->devices.n;
		uint64_t shared = groups == 1 ? shared_bytes(r->model, i) : 0;

		if (m->retired || (is_bound && !is_bound_to(m, g)))
			continue;
		for (unsigned k = 0; k < m->n_replicas; k++) {
			if (&m->replicas[k] == r || m->replicas[k].on_chip.engine)
				continue;
			others++;
			bound += is_bound;
			theirs += fixed_bytes(m) - shared;
			least += least_bytes(m) - shared;
		}
	}
	here = bound + (groups ? (others - bound) / groups : others - bound);
	if (!here || free_bytes < least_mine)
		return 0;
	theirs = theirs / others * here;
	if (free_bytes - least_mine < least / others * here)
		return 0; /* they do not fit together anyway */
	left = free_bytes - mine;
	theirs += (left - theirs) / (here + 1) * here;
	return theirs > g->spare_bytes ? theirs - g->spare_bytes : 0;
}

/* The largest number of KV blocks for which the model and its draft fit together. */
static uint64_t blocks_with_draft(const struct served_model *m, const struct fit_group *g,
				  uint64_t reserve_bytes)
{
	uint64_t fixed = fixed_bytes(m) - g->there_bytes + reserve_bytes;
	uint64_t slack = 8ull << 20; /* each slot is rounded up to pages */
	struct sizes s;

	sizes_of(m, &s);
	if (g->bare_bytes < fixed + slack || !s.kv_block)
		return 1; /* the load will report what is missing */
	return (g->bare_bytes - fixed - slack) / s.kv_block;
}

void fit_kv(const struct replica *r, const struct model_fit *fit, struct engine_options *options)
{
	uint64_t blocks = fit->kv_blocks_max, with_draft;

	options->kv_reserve_bytes = reserve(r, fit);
	if (*r->model->found.draft_path) {
		with_draft = blocks_with_draft(r->model, &fit->groups[fit->best],
					       options->kv_reserve_bytes);
		blocks = min_u64(blocks, with_draft ? with_draft : 1);
	}
	options->max_kv_blocks = (unsigned)min_u64(blocks, UINT32_MAX / 2);
}
