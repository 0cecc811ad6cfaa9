// SPDX-License-Identifier: MIT
/* Limits on the duration of steps shared by several users, from measured durations. */
#include <limits.h>
#include <math.h>
#include <stddef.h>

#include "scheduler_internal.h"

#define EFFICIENT    20	 /* a step this many times its fixed cost wastes a twentieth on it */
#define LEAST_ROWS   16	 /* decodes that such a step may always have */
#define LEAST_TOKENS 128 /* likewise, chunk tokens */
#define COMPANY_NS   10000000000ull /* of steps; users absent for longer do not count */
#define LEAD_TOKENS  512	    /* tolerated lead of a user over another, by their counters */
#define FADING	     0.98	    /* factor for the weight of earlier steps with each new one */
#define FORGOTTEN    0.1
#define OUTLIER	     4 /* longer measurements are limited to this many times the estimate */

/* ---- what steps take ------------------------------------------------------------------------- */

static double decodes_ns(const struct step_cost *c, double rows)
{
	return c->step_ns + c->row_ns * rows;
}

struct sums {
	double w, x, y, xx, xy;
};

/* Weighted by the inverse square of the time, so that relative errors count. */
static void sum_up(struct sums *sums, const struct step_size *size, double x, double y)
{
	double w = size->weight > 0 ? size->weight / (size->ns * size->ns) : 0;

	sums->w += w;
	sums->x += w * x;
	sums->y += w * y;
	sums->xx += w * x * x;
	sums->xy += w * x * y;
}

/* The slope of the fitted line, pulled towards @each if these steps determine it poorly. */
static double slope(const struct sums *sums, double each)
{
	double hint = 1 / (2 * each * each);
	double known = (sums->xy + hint * each) / (sums->xx + hint);

	return known > each / 8 ? known : each / 8;
}

/*
 * Fits a line to the times of steps of all sizes, in which decodes and chunk tokens count alike,
 * for the fixed cost of a step; then fits the rest for decodes and chunk tokens separately. If all
 * steps have one size, the fixed cost cannot be determined; larger steps will reveal it.
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
	/* An average at first; later, new measurements get a constant weight. */
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

/*
 * Counts each user's items on levels from @least to @most in wants; returns the number of other
 * items.
 */
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

/* The number of users with wants, except for user @but, and the smallest of their wants. */
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
 * The maximum duration of a step: @users times what the lightest of them, with @least decodes,
 * takes alone, less half a decode, in favour of users with few.
 */
static double shared_ns(const struct step_cost *c, unsigned users, unsigned least)
{
	return users * decodes_ns(c, least) - decodes_ns(c, 1) / 2;
}

/*
 * The time that a step has at least for the chunks of a heavy user, in relation to what the decodes
 * of the lightest user take, @least of them. If the heavy user has decodes, too, these give up
 * LESS_DECODES for it. That is not all of it, so that the heavy user keeps two fifths of its
 * throughput beside a stream that never ends.
 */
#define CHUNKS_ALONE	    (1.0 / 2)
#define CHUNKS_WITH_DECODES (1.0 / 3)
#define LESS_DECODES	    (1.0 / 4)

/* ---- turns ----------------------------------------------------------------------------------- */

/*
 * Whether a user with more than @least decodes, all of which are counted in wants, has prompts that
 * a step may compute, too.
 */
static bool heavy_has_chunks(const struct scheduler *s, unsigned least)
{
	for (unsigned i = 0; i < s->n_users; i++) {
		const struct user *user = &s->users[i];

		if (user->wants > least && (s->n_slots ? user->live : user->running) > user->wants)
			return true;
	}
	return false;
}

/*
 * The maximum number of decodes in a step of @users, of which the lightest has @least, with or
 * without @chunks of others.
 */
static double decode_limit(struct scheduler *s, unsigned users, unsigned least, bool chunks)
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
		shared = shared_ns(c, users, least);
		if (chunks)
			shared -= LESS_DECODES * decodes_ns(c, least);
		shared = (shared - c->step_ns) / c->row_ns;
		most = shared < most ? shared : most;
	}
	return c->guessed ? 2 * most : most;
}

/* The left-out decode of a heavy user that has waited longest for its turn; NULL: none. */
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

/*
 * Leaves out the items up to @level of users with more than @cap, except for @rows of them in
 * total.
 */
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
	/*
	 * Those with a turn come first, in the order of their turns, which is also the order of
	 * their next ones.
	 */
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
	double limit, progress;
	bool chunks;

	if (plan->n_items < 2 || !(plan->company || s->options.max_decode_ns))
		return;
	for (unsigned i = 0; i < plan->n_items; i++) {
		int of = plan->items[i].seq->level;

		level = of < level ? of : level;
	}
	/*
	 * Users may lower the priority of some requests: that must not exempt the others from
	 * sharing.
	 */
	if (level < 0)
		level = 0;
	count_planned(s, INT_MIN, INT_MAX);
	users = count_users(s, UINT_MAX, &least);
	chunks = users > 1 && heavy_has_chunks(s, least);
	others = count_planned(s, INT_MIN, level);
	limit = decode_limit(s, users, least, chunks);
	if (plan->n_items <= limit)
		return;
	limit = limit > others ? limit - others : 0;
	/* Rounded up, so that the lightest users give nothing up. */
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
	progress = chunks ? 0.25 : 0.5;
	/* They always progress; with max_decode_ns each of them in every step. */
	if (s->options.max_decode_ns)
		limit = limit > heavy ? limit : heavy;
	else
		limit = s->part_row + (limit > progress ? limit : progress);
	rows = (unsigned)limit;
	s->part_row = limit - rows;
	if (light + rows < plan->n_items - others) {
		plan->split = chunks;
		leave_out(s, level, cap, heavy, rows);
	}
}

/* ---- chunks ---------------------------------------------------------------------------------- */

/*
 * Whether the user's chunks should be limited in favour of another's decodes: it has more requests,
 * or as many and has received more.
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
	bool both;

	if (!s->plan.company || c->token_ns <= 0)
		return UINT_MAX;
	count_planned(s, seq->priority, INT_MAX);
	users = count_users(s, seq->user, &least);
	if (!users || !spares(s, seq->user))
		return UINT_MAX;
	if (!s->plan.shared) {
		s->plan.shared = true;
		ns = shared_ns(c, users + 1, least) - decodes_ns(c, s->plan.n_items);
		both = s->plan.split || s->users[seq->user].wants;
		part = (both ? CHUNKS_WITH_DECODES : CHUNKS_ALONE) * decodes_ns(c, least);
		/* Decodes that take turns leave too much in one step and too little in the next. */
		part = (ns > part && !s->plan.split ? ns : part) / c->token_ns;
		s->part_tokens += part;
		s->part_tokens = s->part_tokens < part + 1 ? s->part_tokens : part + 1;
	}
	if (s->part_tokens <= 0)
		return 0;
	return s->part_tokens < UINT_MAX ? (unsigned)s->part_tokens : UINT_MAX;
}
