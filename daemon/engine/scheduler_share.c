// SPDX-License-Identifier: MIT
/* How long steps may be for the users who share them, by what steps took before. */
#include <limits.h>
#include <math.h>
#include <stddef.h>

#include "scheduler_internal.h"

#define EFFICIENT    20	 /* a step of so many times what any step takes wastes a twentieth */
#define LEAST_ROWS   16	 /* that count as such a step */
#define LEAST_TOKENS 128 /* likewise, of prompts */
#define COMPANY_NS   10000000000ull /* of steps; who has been away for longer is not expected */
#define LEAD_TOKENS  512  /* that a user may have had more than another, by their counters */
#define FADING	     0.98 /* what earlier steps weigh after one more */
#define FORGOTTEN    0.1
#define OUTLIER	     4 /* a step that took so many times what its like take counts as this */

/* ---- what steps take ------------------------------------------------------------------------- */

static double decodes_ns(const struct step_cost *c, double rows)
{
	return c->step_ns + c->row_ns * rows;
}

struct sums {
	double w, x, y, xx, xy;
};

/* Each weighed by its time, as it is by as much that a step is sooner or later. */
static void sum_up(struct sums *sums, const struct step_size *size, double x, double y)
{
	double w = size->weight > 0 ? size->weight / (size->ns * size->ns) : 0;

	sums->w += w;
	sums->x += w * x;
	sums->y += w * y;
	sums->xx += w * x * x;
	sums->xy += w * x * y;
}

/* How much each more of what was summed up takes; @each: as far as these steps hardly tell. */
static double slope(const struct sums *sums, double each)
{
	double hint = 1 / (2 * each * each);
	double known = (sums->xy + hint * each) / (sums->xx + hint);

	return known > each / 8 ? known : each / 8;
}

/*
 * A line through what steps of all sizes took says what they have in common, for which decodes and
 * tokens of chunks count alike; what is left is told apart. Of steps of one size it is not known what
 * they have in common: larger ones tell.
 */
static void fit(struct step_cost *c)
{
	struct sums all = {0}, rows = {0}, tokens = {0};
	double spread, each;

	for (unsigned i = 0; i < 2 * STEP_SIZES; i++) {
		const struct step_size *size = &c->sizes[i / STEP_SIZES][i % STEP_SIZES];

		sum_up(&all, size, size->rows + size->tokens, size->ns);
	}
	spread = all.w * all.xx - all.x * all.x;
	c->guessed = spread <= 1e-6 * all.w * all.xx;
	each = c->guessed ? INFINITY : (all.w * all.xy - all.x * all.y) / spread;
	each = each < all.xy / all.xx ? each : all.xy / all.xx;
	each = each > 0 ? each : 0;
	c->step_ns = (all.y - each * all.x) / all.w;
	c->step_ns = c->step_ns > 0 ? c->step_ns : 0;
	c->row_ns = c->token_ns = 0;
	if (each <= 0)
		return;
	for (unsigned i = 0; i < STEP_SIZES; i++)
		sum_up(&rows, &c->sizes[0][i], c->sizes[0][i].rows, c->sizes[0][i].ns - c->step_ns);
	c->row_ns = slope(&rows, each);
	for (unsigned i = 0; i < STEP_SIZES; i++) {
		const struct step_size *size = &c->sizes[1][i];

		sum_up(&tokens, size, size->tokens, size->ns - decodes_ns(c, size->rows));
	}
	c->token_ns = slope(&tokens, each);
}

void sched_cost_note(struct scheduler *s, unsigned rows, unsigned tokens, double ns)
{
	struct step_size *sizes = s->cost.sizes[tokens != 0], *size = sizes;
	double part;

	s->busy_ns += (uint64_t)ns;
	ns = ns > 1 ? ns : 1;
	for (unsigned i = rows + tokens; i > 1 && size < sizes + STEP_SIZES - 1; i /= 2)
		size++;
	for (unsigned i = 0; i < 2 * STEP_SIZES; i++) {
		double *weight = &s->cost.sizes[i / STEP_SIZES][i % STEP_SIZES].weight;

		*weight = *weight > FORGOTTEN ? *weight * FADING : 0;
	}
	if (size->weight > 0 && ns > OUTLIER * size->ns)
		ns = OUTLIER * size->ns;
	/* The mean at first, then the later ones count more. */
	size->weight = size->weight < 7 ? size->weight + 1 : 8;
	part = 1 / size->weight;
	size->rows += part * (rows - size->rows);
	size->tokens += part * (tokens - size->tokens);
	size->ns += part * (ns - size->ns);
	fit(&s->cost);
}

/* ---- users ----------------------------------------------------------------------------------- */

bool sched_has_company(struct scheduler *s)
{
	unsigned n = 0;

	for (unsigned i = 0; i < s->n_users; i++) {
		struct user *user = &s->users[i];

		if (user->live)
			user->seen_ns = s->busy_ns;
		n += user->live || (user->seen_ns && s->busy_ns - user->seen_ns < COMPANY_NS);
	}
	return n > 1;
}

/* Counts in wants what each user has in the plan on levels from @least to @most; returns how many
 * others there are. */
static unsigned count_planned(struct scheduler *s, int least, int most)
{
	const struct plan *plan = &s->plan;
	unsigned others = 0;

	for (unsigned i = 0; i < s->n_users; i++)
		s->users[i].wants = 0;
	for (unsigned i = 0; i < plan->n_items; i++) {
		const struct sched_seq *seq = plan->items[i].seq;

		if (seq->level >= least && seq->level <= most)
			s->users[seq->user].wants++;
		else
			others++;
	}
	return others;
}

/* How many users want some, and the least that one of them wants; @but: who does not count. */
static unsigned count_users(const struct scheduler *s, unsigned but, unsigned *ret_least)
{
	unsigned n = 0;

	*ret_least = UINT_MAX;
	for (unsigned i = 0; i < s->n_users; i++) {
		unsigned wants = i != but ? s->users[i].wants : 0;

		n += wants != 0;
		if (wants && wants < *ret_least)
			*ret_least = wants;
	}
	return n;
}

/*
 * The time of a step in which each of @users has as much as the lightest of them, who has @least
 * decodes, takes alone; half a decode is let off, as who has few is in a hurry.
 */
static double shared_ns(const struct step_cost *c, unsigned users, unsigned least)
{
	return users * decodes_ns(c, least) - decodes_ns(c, 1) / 2;
}

/* ---- turns ----------------------------------------------------------------------------------- */

/* How many decodes a step of @users may have of which the lightest has @least. */
static double decode_limit(struct scheduler *s, unsigned users, unsigned least)
{
	const struct step_cost *c = &s->cost;
	double most = LEAST_ROWS, shared;

	if (s->options.max_decode_ns)
		return users > 1 ? s->decode_rows : INFINITY;
	if (!s->plan.company || c->row_ns <= 0)
		return INFINITY;
	if ((EFFICIENT - 1) * c->step_ns > most * c->row_ns)
		most = (EFFICIENT - 1) * c->step_ns / c->row_ns;
	if (users > 1) {
		shared = (shared_ns(c, users, least) - c->step_ns) / c->row_ns;
		most = shared < most ? shared : most;
	}
	return c->guessed ? 2 * most : most;
}

/* The decode of a heavy user that is left out and whose last turn was longest ago; NULL: none. */
static struct sched_item *next_turn(const struct scheduler *s)
{
	const struct plan *plan = &s->plan;
	struct sched_item *next = NULL;

	for (unsigned i = 0; i < plan->n_items; i++) {
		const struct sched_seq *seq = plan->items[i].seq;

		if (!seq->planned && s->users[seq->user].wants &&
		    (!next || seq->turn < next->seq->turn))
			next = &plan->items[i];
	}
	return next;
}

/* Leaves out what users have up to @level, if that is more than @cap, but for so many rows of them all. */
static void leave_out(struct scheduler *s, int level, unsigned cap, unsigned heavy, unsigned rows)
{
	struct plan *plan = &s->plan;
	unsigned turn = 0;

	for (unsigned i = 0; i < plan->n_items; i++) {
		struct sched_seq *seq = plan->items[i].seq;

		if (seq->level <= level && s->users[seq->user].wants > cap)
			seq->planned = 0;
	}
	for (unsigned i = 0; i < s->n_users; i++)
		s->users[i].wants = rows / heavy + (rows % heavy != 0);
	/* They come first, in the order of their turns, which is that of their next ones. */
	for (; turn < rows; turn++) {
		struct sched_item *item = next_turn(s), other = plan->items[turn];

		if (!item)
			break;
		item->seq->planned = item->tokens;
		s->users[item->seq->user].wants--;
		plan->items[turn] = *item;
		*item = other;
	}
	sched_plan_drop(plan);
}

void sched_take_turns(struct scheduler *s)
{
	struct plan *plan = &s->plan;
	unsigned others, users, least, cap, light = 0, heavy = 0, rows;
	int level = INT_MAX;
	double limit;

	if (plan->n_items < 2 || !(plan->company || s->options.max_decode_ns))
		return;
	for (unsigned i = 0; i < plan->n_items; i++) {
		int of = plan->items[i].seq->level;

		level = of < level ? of : level;
	}
	/* Anybody may lower the priority of some: that must not free the rest from sharing. */
	if (level < 0)
		level = 0;
	count_planned(s, INT_MIN, INT_MAX);
	users = count_users(s, UINT_MAX, &least);
	others = count_planned(s, INT_MIN, level);
	limit = decode_limit(s, users, least);
	if (plan->n_items <= limit)
		return;
	limit = limit > others ? limit - others : 0;
	/* A part of one more counts: the lightest ones give nothing up. */
	cap = sched_fair_share(s, (unsigned)ceil(limit));
	for (unsigned i = 0; i < s->n_users; i++) {
		if (s->users[i].wants > cap)
			heavy++;
		else
			light += s->users[i].wants;
	}
	if (!heavy)
		return;
	limit -= light;
	/* They get on in any case, and each in every step where a time is asked for. */
	if (s->options.max_decode_ns)
		limit = limit > heavy ? limit : heavy;
	else
		limit = s->part_row + (limit > 0.5 ? limit : 0.5);
	rows = (unsigned)limit;
	s->part_row = limit - rows;
	if (light + rows < plan->n_items - others)
		leave_out(s, level, cap, heavy, rows);
}

/* ---- chunks ---------------------------------------------------------------------------------- */

/*
 * Whether the user's chunks are to spare the decodes of another: as it has more requests, or as many
 * and has had more.
 */
static bool spares(const struct scheduler *s, unsigned user)
{
	const struct user *u = &s->users[user];

	for (unsigned i = 0; i < s->n_users; i++) {
		const struct user *other = &s->users[i];

		if (i != user && other->wants &&
		    (u->live >= other->live + 2 ||
		     (u->live >= other->live && u->counter > other->counter + LEAD_TOKENS)))
			return true;
	}
	return false;
}

unsigned sched_chunk_limit(struct scheduler *s)
{
	const struct step_cost *c = &s->cost;
	double most = LEAST_TOKENS, ns = EFFICIENT * c->step_ns;

	if (!s->plan.company || c->token_ns <= 0)
		return UINT_MAX;
	ns -= decodes_ns(c, s->plan.n_items);
	if (ns > most * c->token_ns)
		most = ns / c->token_ns;
	return most < UINT_MAX ? (unsigned)most : UINT_MAX;
}

unsigned sched_chunk_share(struct scheduler *s, const struct sched_seq *seq)
{
	const struct step_cost *c = &s->cost;
	unsigned users, least;
	double ns, part;

	if (!s->plan.company || c->token_ns <= 0)
		return UINT_MAX;
	count_planned(s, seq->priority, INT_MAX);
	users = count_users(s, seq->user, &least);
	if (!users || !spares(s, seq->user))
		return UINT_MAX;
	if (!s->plan.shared) {
		s->plan.shared = true;
		ns = shared_ns(c, users + 1, least) - decodes_ns(c, s->plan.n_items);
		part = decodes_ns(c, least) / 2;
		part = (ns > part ? ns : part) / c->token_ns;
		s->part_tokens += part;
		s->part_tokens = s->part_tokens < part + 1 ? s->part_tokens : part + 1;
	}
	if (s->part_tokens <= 0)
		return 0;
	return s->part_tokens < UINT_MAX ? (unsigned)s->part_tokens : UINT_MAX;
}
