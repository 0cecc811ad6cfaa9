// SPDX-License-Identifier: MIT
#include "sim.h"

#include <err.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "../unit/kv_check.h"
#include "scheduler.h"

#define BLOCK	    16
#define MAX_CONTEXT 16384
#define MAX_LIVE    4096
#define FIRST_UID   1000
#define NS_PER_S    1e9

const struct sim_cost sim_flat = {.name = "flat", .token_us = 100};
const struct sim_cost sim_weight_bound = {
	.name = "weight-bound",
	.step_us = 20000,
	.token_us = 20,
};
const struct sim_cost sim_compute_bound = {
	.name = "compute-bound",
	.step_us = 2000,
	.token_us = 60,
	.context_us = 0.02,
};

struct request {
	struct sched_seq seq; /* first: the scheduler hands these out */
	LIST_ENTRY(request) link;
	struct user *user;
	unsigned group, ends; /* known tokens at its end */
	uint64_t arrived, last;
	bool choice; /* not the first one */
	bool ended;
	int32_t tokens[]; /* prompt, then output */
};

struct list { /* of doubles */
	double *values;
	size_t n, room;
};

/* A user of a group. */
struct user {
	unsigned group;
	user_id uid;
	uint64_t next;	 /* its next burst */
	uint64_t random; /* its own, so that one user's requests do not change another's */
};

struct sim {
	const struct sim_options *options;
	struct sim_result *result;
	struct kv *kv;
	struct scheduler *scheduler;
	unsigned max_seqs;
	struct sched_item *items[2]; /* [max_seqs] of the step that runs and of the next one */
	struct user *users;
	unsigned n_users;
	LIST_HEAD(, request) live;
	unsigned n_live;
	uint64_t now, requests;
	uint64_t computed[SIM_MAX_GROUPS], generated[SIM_MAX_GROUPS];
	uint64_t gaps[SIM_MAX_GROUPS];
	struct list ttft[SIM_MAX_GROUPS], steps;
};

static void *need(void *memory)
{
	if (!memory)
		err(1, "out of memory");
	return memory;
}

static void append(struct list *list, double value)
{
	if (list->n == list->room) {
		list->room = list->room ? 2 * list->room : 1024;
		list->values = need(realloc(list->values, list->room * sizeof(*list->values)));
	}
	list->values[list->n++] = value;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Empties the list. */
static void summarise(struct list *list, struct sim_times *ret)
{
	double sum = 0;

	*ret = (struct sim_times){0};
	if (list->n) {
		qsort(list->values, list->n, sizeof(*list->values), by_value);
		for (size_t i = 0; i < list->n; i++)
			sum += list->values[i];
		*ret = (struct sim_times){
			.mean = sum / (double)list->n,
			.p50 = list->values[list->n / 2],
			.p99 = list->values[list->n * 99 / 100],
			.max = list->values[list->n - 1],
		};
	}
	free(list->values);
}

/* splitmix64: no libc's own numbers. */
static uint64_t random_next(struct user *user)
{
	uint64_t x = user->random += 0x9e3779b97f4a7c15ull;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

static unsigned random_between(struct user *user, const unsigned limits[2])
{
	return limits[0] + (unsigned)(random_next(user) % (limits[1] - limits[0] + 1ull));
}

/* ---- requests -------------------------------------------------------------------------------- */

/* A request with room for all its tokens. */
static struct request *new_request(struct sim *s, struct user *user, unsigned n_prompt,
				   unsigned n_output)
{
	const struct sim_group *g = &s->options->groups[user->group];
	unsigned n = n_prompt + n_output;
	struct request *r = need(calloc(1, sizeof(*r) + n * sizeof(r->tokens[0])));
	int32_t own = (int32_t)(s->requests++ % INT32_MAX);

	for (unsigned i = 0; i < n; i++)
		r->tokens[i] = i < g->shared ? (int32_t)user->uid : own;
	r->user = user;
	r->group = user->group;
	r->ends = n;
	r->seq = (struct sched_seq){
		.uid = user->uid,
		.priority = g->priority,
		.prompt = r->tokens,
		.generated = r->tokens + n_prompt,
		.n_prompt = n_prompt,
		.n_total = n_prompt,
		.prompt_row = n_prompt,
	};
	if (n > MAX_CONTEXT || s->n_live == MAX_LIVE)
		errx(1, "the pattern is too large for the simulator");
	LIST_INSERT_HEAD(&s->live, r, link);
	s->n_live++;
	return r;
}

static void ask(struct sim *s, struct user *user, uint64_t when)
{
	const struct sim_group *g = &s->options->groups[user->group];
	unsigned n_prompt = random_between(user, g->prompt);
	struct request *r = new_request(s, user, n_prompt, random_between(user, g->output));

	r->arrived = when;
	scheduler_add(s->scheduler, &r->seq);
}

/* The other choices of a request whose first token is there; each has chosen one of its own. */
static void fork_choices(struct sim *s, const struct request *first)
{
	struct user *user = first->user;
	const struct sim_group *g = &s->options->groups[user->group];

	for (unsigned i = 1; i < g->choices; i++) {
		unsigned n_prompt = first->seq.n_prompt, n_output = random_between(user, g->output);
		struct request *r = new_request(s, user, n_prompt, n_output);

		memcpy(r->tokens, first->tokens, n_prompt * sizeof(r->tokens[0]));
		r->seq.n_total++;
		r->arrived = first->arrived;
		r->choice = true;
		r->last = s->now;
		scheduler_fork(s->scheduler, &first->seq, &r->seq);
	}
}

static void next_burst(const struct sim *s, struct user *user)
{
	double every = s->options->groups[user->group].every_s * NS_PER_S;

	user->next += (uint64_t)(every * (0.9 + (double)(random_next(user) % 2001) / 10000));
}

/* Requests that came until now. */
static void take_arrivals(struct sim *s)
{
	for (unsigned i = 0; i < s->n_users; i++) {
		struct user *user = &s->users[i];
		const struct sim_group *g = &s->options->groups[user->group];

		while (user->next <= s->now) {
			unsigned n = g->in_flight ? g->in_flight : g->burst ? g->burst : 1;

			while (n--)
				ask(s, user, user->next);
			if (g->in_flight || g->pause_s > 0)
				user->next = UINT64_MAX;
			else
				next_burst(s, user);
		}
	}
}

static uint64_t next_arrival(const struct sim *s)
{
	uint64_t next = UINT64_MAX;

	for (unsigned i = 0; i < s->n_users; i++) {
		if (s->users[i].next < next)
			next = s->users[i].next;
	}
	return next;
}

static void drop_request(struct sim *s, struct request *r)
{
	scheduler_remove(s->scheduler, &r->seq);
	LIST_REMOVE(r, link);
	s->n_live--;
	free(r);
}

static void end_request(struct sim *s, struct request *r)
{
	struct user *user = r->user;
	const struct sim_group *g = &s->options->groups[user->group];
	bool again = !r->choice;

	drop_request(s, r);
	if (again && g->in_flight)
		ask(s, user, s->now);
	else if (again && g->pause_s > 0)
		user->next = s->now + (uint64_t)(g->pause_s * NS_PER_S);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static double step_ns(const struct sim_cost *cost, const struct sched_item *items, unsigned n)
{
	double us = cost->step_us;

	for (unsigned i = 0; i < n; i++) {
		double tokens = items[i].tokens, first = items[i].first;

		us += tokens * cost->token_us;
		us += tokens * (first + (tokens - 1) / 2) * cost->context_us;
	}
	return us * 1000;
}

double sim_prefill_s(const struct sim_cost *cost, unsigned tokens)
{
	struct sched_item item = {.tokens = tokens};

	return step_ns(cost, &item, 1) / NS_PER_S;
}

static bool counts(const struct sim *s, uint64_t when)
{
	return (double)when >= s->options->warm_s * NS_PER_S;
}

/* A token of a request is there. */
static void note_token(struct sim *s, struct request *r)
{
	struct sim_group_result *g = &s->result->groups[r->group];
	double gap = (double)(s->now - r->last) / NS_PER_S;

	if (!r->last) {
		if (counts(s, r->arrived))
			append(&s->ttft[r->group], (double)(s->now - r->arrived) / NS_PER_S);
	} else if (counts(s, r->last)) {
		g->longest_gap_s = gap > g->longest_gap_s ? gap : g->longest_gap_s;
		g->gap_s += gap;
		s->gaps[r->group]++;
	}
	r->last = s->now;
	s->generated[r->group] += counts(s, s->now);
}

/* Runs the planned step; the next one is begun meanwhile, as in the engine. */
static void run_step(struct sim *s, unsigned n, unsigned turn)
{
	struct sched_item *items = s->items[turn];
	double ns = step_ns(s->options->cost, items, n);

	for (unsigned i = 0; i < n; i++) {
		struct request *r = (struct request *)items[i].seq;

		r->ended = items[i].sample && r->seq.n_total + 1 == r->ends;
		r->seq.n_total += items[i].sample && !r->ended;
	}
	scheduler_done(s->scheduler, items, n);
	scheduler_begin(s->scheduler, s->items[!turn]);
	s->now += (uint64_t)ns;
	scheduler_measured(s->scheduler, items, n, (uint64_t)ns);
	if (counts(s, s->now))
		append(&s->steps, ns / NS_PER_S);
	for (unsigned i = 0; i < n; i++) {
		struct request *r = (struct request *)items[i].seq;

		s->computed[r->group] += counts(s, s->now) ? items[i].tokens : 0;
		if (items[i].sample && !r->last)
			fork_choices(s, r);
		if (items[i].sample)
			note_token(s, r);
		if (r->ended)
			end_request(s, r);
	}
}

/* ---- a simulation ---------------------------------------------------------------------------- */

static void set_up(struct sim *s)
{
	const struct sim_options *o = s->options;
	struct scheduler_options limits = {
		.max_seqs = s->max_seqs,
		.max_users = MAX_LIVE,
		.max_tokens = o->max_tokens ? o->max_tokens : 2048,
		.max_rows = s->max_seqs,
		.max_context = MAX_CONTEXT,
		.max_stall_ns = (o->max_stall_ms ? o->max_stall_ms : 200) * 1000000ull,
		.max_decode_ns = o->max_decode_ms * 1000000ull,
		.fair_time = !o->no_fair_time,
		.prefix_caching = !o->no_prefix_caching,
	};
	const unsigned n_blocks = o->n_blocks ? o->n_blocks : 32768;

	if (kv_new(n_blocks,
		   &(struct kv_layout){
			   .block_size = BLOCK, .key_words = BLOCK, .max_blocks = n_blocks},
		   &s->kv) ||
	    scheduler_new(&limits, s->kv, &s->scheduler))
		errx(1, "these options are not possible");
	for (unsigned i = 0; i < 2; i++)
		s->items[i] = need(calloc(s->max_seqs, sizeof(*s->items[i])));
	for (unsigned g = 0; g < o->n_groups; g++)
		s->n_users += o->groups[g].users ? o->groups[g].users : 1;
	s->users = need(calloc(s->n_users, sizeof(*s->users)));
	for (unsigned g = 0, at = 0; g < o->n_groups; g++) {
		unsigned n = o->groups[g].users ? o->groups[g].users : 1;

		for (unsigned i = 0; i < n; i++, at++) {
			s->users[at] = (struct user){
				.group = g,
				.uid = at && o->groups[g].joins ? s->users[at - 1].uid
								: FIRST_UID + at,
				.next = (uint64_t)(o->groups[g].from_s * NS_PER_S),
				.random = at,
			};
			/* Users of a group do not come all at once. */
			if (i)
				next_burst(s, &s->users[at]);
		}
	}
}

static void tear_down(struct sim *s)
{
	while (!LIST_EMPTY(&s->live))
		drop_request(s, LIST_FIRST(&s->live));
	if (!kv_check(s->kv) || kv_free_blocks(s->kv) != kv_blocks(s->kv))
		errx(1, "blocks were lost");
	scheduler_free(s->scheduler);
	kv_free(s->kv);
	free(s->items[0]);
	free(s->items[1]);
	free(s->users);
}

static void conclude(struct sim *s)
{
	struct sim_result *result = s->result;
	double seconds = s->options->seconds - s->options->warm_s;
	uint64_t all = 0;

	for (unsigned g = 0; g < s->options->n_groups; g++)
		all += s->computed[g];
	for (unsigned g = 0; g < s->options->n_groups; g++) {
		struct sim_group_result *of = &result->groups[g];

		of->requests = (unsigned)s->ttft[g].n;
		summarise(&s->ttft[g], &of->ttft);
		of->gap_s = s->gaps[g] ? of->gap_s / (double)s->gaps[g] : 0;
		of->tokens_per_s = (double)s->generated[g] / seconds;
		of->computed = s->computed[g];
		of->share = all ? (double)s->computed[g] / (double)all : 0;
		result->tokens_per_s += of->tokens_per_s;
	}
	result->steps = s->steps.n;
	summarise(&s->steps, &result->step);
	result->preemptions = scheduler_preemptions(s->scheduler);
}

void sim_run(const struct sim_options *options, struct sim_result *ret)
{
	struct sim s = {
		.options = options,
		.result = ret,
		.max_seqs = options->max_seqs ? options->max_seqs : 256,
	};
	unsigned turn = 0, n;

	memset(ret, 0, sizeof(*ret));
	set_up(&s);
	while ((double)s.now < options->seconds * NS_PER_S) {
		take_arrivals(&s);
		n = scheduler_plan(s.scheduler, s.items[turn]);
		if (n) {
			run_step(&s, n, turn);
			turn = !turn;
		} else if (s.n_live) {
			errx(1, "requests wait and nothing runs");
		} else {
			s.now = next_arrival(&s);
		}
	}
	conclude(&s);
	tear_down(&s);
}
