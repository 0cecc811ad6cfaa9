// SPDX-License-Identifier: MIT
/*
 * The cache of models whose layers keep different things, under random load: prompts that begin
 * alike, forks, preemption, sequences that end, with and without shared prefixes. A plain record of
 * what each block holds stands for the chip: what a step reads must be what was computed for these
 * tokens at these positions, whoever has had the block since.
 */

#include "scheduler_world.h"

enum { SEQS = 12, CONTEXT = 96, BLOCKS = 256, ROUNDS = 4000, MAX_STATE = 5 };

/* What was computed for a position depends on all tokens up to it. */
struct content {
	unsigned position;
	uint64_t prefix;
};

static struct content chip[BLOCKS][BLOCK];
static const struct kv *world_kv;
static unsigned snapshots;

struct user_seq {
	struct sched_seq sched;
	int32_t prompt[CONTEXT], generated[CONTEXT];
	unsigned length; /* it ends there */
	bool live;
};

static int32_t token_of(const struct sched_seq *seq, unsigned i)
{
	return i < seq->n_prompt ? seq->prompt[i] : seq->generated[i - seq->n_prompt];
}

/* Says for each position of a sequence what is computed there. */
static void prefixes_of(const struct sched_seq *seq, unsigned n, uint64_t *prefix)
{
	uint64_t hash = 1;

	for (unsigned i = 0; i < n; i++) {
		hash = (hash ^ (uint64_t)token_of(seq, i)) * 0x9e3779b97f4a7c15ull + 1;
		prefix[i] = hash;
	}
}

static void put_state(const int32_t *blocks, unsigned n, unsigned tokens, uint64_t prefix)
{
	for (unsigned i = 0; i < n; i++)
		chip[blocks[i]][i % BLOCK] = (struct content){tokens, prefix};
}

/* The states of a step: from where it begins to where it ends, by way of a snapshot. */
static void run_state(const struct kv_layout *l, const struct sched_item *item,
		      const uint64_t *prefix)
{
	unsigned n = l->state_blocks, end = item->first + item->tokens, kept;
	int32_t row[1 + 3 * MAX_STATE];

	kv_seq_states(world_kv, &item->seq->cache, row);
	for (unsigned i = 0; item->first && i < n; i++) {
		const struct content *c = &chip[row[1 + i]][i % BLOCK];

		assert_int_equal(c->position, item->first);
		assert_true(c->prefix == prefix[item->first - 1]);
	}
	kept = (unsigned)row[0];
	assert_true(!kept || (kept > item->first && kept <= end && kept % BLOCK == 0));
	if (kept)
		put_state(row + 1 + 2 * n, n, kept, prefix[kept - 1]);
	put_state(row + 1 + n, n, end, prefix[end - 1]);
	snapshots += kept != 0;
}

/* A step of the chip: writes what is new, then reads all that the layers of each group see. */
static void run_item(const struct kv_layout *l, const struct sched_item *item)
{
	const struct kv_seq *cache = &item->seq->cache;
	unsigned end = item->first + item->tokens;
	uint64_t prefix[CONTEXT];

	prefixes_of(item->seq, end, prefix);
	if (l->state_blocks)
		run_state(l, item, prefix);
	for (unsigned g = 0; g < l->n_groups; g++) {
		unsigned seen = item->first + 1 > l->reach[g] ? item->first + 1 - l->reach[g] : 0;

		for (unsigned p = item->first; p < end; p++)
			chip[cache->blocks[g][p / BLOCK]][p % BLOCK] =
				(struct content){p, prefix[p]};
		for (unsigned p = l->reach[g] ? seen : 0; p < end; p++) {
			const struct content *c = &chip[cache->blocks[g][p / BLOCK]][p % BLOCK];

			assert_true(cache->first[g] <= p / BLOCK && p / BLOCK < cache->end[g]);
			assert_int_equal(c->position, p);
			assert_true(c->prefix == prefix[p]);
		}
	}
}

static void begin(struct scheduler *s, struct user_seq *seq)
{
	unsigned n_prompt = 1 + (unsigned)rand() % (CONTEXT / 2), kind = (unsigned)rand() % 3;

	memset(seq, 0, sizeof(*seq));
	for (unsigned i = 0; i < n_prompt; i++)
		seq->prompt[i] = (int32_t)(i % 20 < 16 ? kind : (unsigned)rand() % 2);
	seq->length = n_prompt + 1 + (unsigned)rand() % (CONTEXT - n_prompt - 1);
	seq->sched = (struct sched_seq){
		.uid = (uid_t)rand() % 2,
		.prompt = seq->prompt,
		.generated = seq->generated,
		.n_prompt = n_prompt,
		.n_total = n_prompt,
		.prompt_row = n_prompt,
	};
	seq->live = true;
	scheduler_add(s, &seq->sched);
}

static bool fork_of(struct scheduler *s, const struct user_seq *parent, struct user_seq *child)
{
	unsigned n = parent->sched.n_computed;

	if (!parent->live || n < parent->sched.n_prompt || n + 1 >= parent->length)
		return false;
	memcpy(child, parent, sizeof(*child));
	child->sched = (struct sched_seq){
		.uid = parent->sched.uid,
		.prompt = child->prompt,
		.generated = child->generated,
		.n_prompt = parent->sched.n_prompt,
		.n_total = n + 1,
		.prompt_row = parent->sched.n_prompt,
	};
	child->generated[n - child->sched.n_prompt] = 7;
	return scheduler_fork(s, &parent->sched, &child->sched);
}

static void run_step(struct world *w, struct user_seq *seqs)
{
	unsigned n = scheduler_plan(w->s, w->items), tokens = 0;

	for (unsigned i = 0; i < n; i++) {
		run_item(kv_layout(w->kv), &w->items[i]);
		tokens += w->items[i].tokens;
	}
	assert_true(n <= w->options.max_seqs && tokens <= w->options.max_tokens);
	scheduler_done(w->s, w->items, n);
	for (unsigned i = 0; i < SEQS; i++) {
		struct user_seq *seq = &seqs[i];

		if (!seq->live || seq->sched.n_computed < seq->sched.n_total)
			continue;
		if (seq->sched.n_total >= seq->length) {
			drop(w, &seq->sched);
			seq->live = false;
			continue;
		}
		seq->generated[seq->sched.n_total - seq->sched.n_prompt] = rand() % 2;
		seq->sched.n_total++;
	}
	assert_true(kv_check(w->kv));
}

static void random_load(const struct kv_layout *layout, unsigned n_blocks, bool prefix_caching)
{
	const struct scheduler_options options = {
		.max_seqs = 6,
		.max_users = 4,
		.max_tokens = layout->ahead,
		.max_rows = 16,
		.max_context = CONTEXT,
		.prefix_caching = prefix_caching,
	};
	static struct user_seq seqs[SEQS];
	struct world w = {.options = options};
	unsigned matched = 0, forks = 0;

	memset(seqs, 0, sizeof(seqs));
	assert_int_equal(kv_new(n_blocks, layout, &w.kv), 0);
	assert_int_equal(scheduler_new(&options, w.kv, &w.s), 0);
	world_kv = w.kv;
	snapshots = 0;
	for (unsigned round = 0; round < ROUNDS; round++) {
		struct user_seq *seq = &seqs[(unsigned)rand() % SEQS];

		if (!seq->live && rand() % 3)
			begin(w.s, seq);
		else if (!seq->live)
			forks += fork_of(w.s, &seqs[(unsigned)rand() % SEQS], seq);
		else if (rand() % 50 == 0) {
			drop(&w, &seq->sched);
			seq->live = false;
		}
		run_step(&w, seqs);
		matched += seq->live && seq->sched.n_matched;
	}
	assert_true(matched > 0 && forks > 0);
	assert_true(scheduler_preemptions(w.s) > 10);
	assert_true(!layout->state_blocks || snapshots > ROUNDS / 50);
	for (unsigned i = 0; i < SEQS; i++)
		if (seqs[i].live)
			drop(&w, &seqs[i].sched);
	for (unsigned g = 0; g <= layout->n_groups; g++)
		assert_int_equal(kv_used_blocks(w.kv, g), 0);
	close_world(&w);
}

#define LAYOUT .block_size = BLOCK, .key_words = BLOCK, .max_blocks = CONTEXT / BLOCK

static const struct kv_layout layouts[] = {
	{LAYOUT, .n_groups = 1, .ahead = 16},
	{LAYOUT, .n_groups = 1, .reach = {9}, .ahead = 16},
	{LAYOUT, .n_groups = 3, .reach = {0, 9, 9}, .ahead = 16},
	{LAYOUT, .n_groups = 4, .reach = {0, 1, 17, 40}, .ahead = 8},
	{LAYOUT, .n_groups = 1, .ahead = 16, .state_blocks = 1},
	{LAYOUT, .n_groups = 1, .ahead = 9, .state_blocks = MAX_STATE},
};

TEST(keeps_what_is_seen)
{
	srand(3);
	for (size_t i = 0; i < ARRAY_SIZE(layouts); i++) {
		/* Room for one sequence, and a little more. */
		unsigned least = (unsigned)kv_layout_need(&layouts[i], CONTEXT);

		for (unsigned more = 0; more < 2; more++) {
			random_load(&layouts[i], least * (2 + more) / 2, false);
			random_load(&layouts[i], least * (2 + more) / 2, true);
		}
	}
}

/* What a sequence holds of a window does not grow with its length. */
TEST(windows_give_back)
{
	const struct kv_layout layout = {
		.block_size = BLOCK,
		.key_words = BLOCK,
		.max_blocks = 1024,
		.n_groups = 2,
		.reach = {0, 10},
		.ahead = 8,
	};
	const struct scheduler_options options = {
		.max_seqs = 2,
		.max_users = 2,
		.max_tokens = 8,
		.max_rows = 8,
		.max_context = 4000,
	};
	struct world w = {.options = options};
	struct sched_seq seq;

	assert_int_equal(kv_layout_need(&layout, 4000), 1000 + kv_layout_window(&layout, 1));
	assert_int_equal(kv_layout_fit(&layout, 1000 + kv_layout_window(&layout, 1)), 4000);
	assert_int_equal(kv_new(1010, &layout, &w.kv), 0);
	assert_int_equal(scheduler_new(&options, w.kv, &w.s), 0);
	add(&w, &seq, 1, 0, 4000);
	while (seq.n_computed < seq.n_total) {
		unsigned n = scheduler_plan(w.s, w.items);

		assert_int_equal(n, 1);
		assert_true(kv_used_blocks(w.kv, 1) <= kv_layout_window(&layout, 1));
		scheduler_done(w.s, w.items, n);
	}
	assert_int_equal(kv_used_blocks(w.kv, 0), 1000);
	drop(&w, &seq);
	close_world(&w);
}

/* Two that compute the same at the same time hold it once, in each group. */
TEST(equal_sequences_share)
{
	const struct kv_layout layout = {
		.block_size = BLOCK,
		.key_words = BLOCK,
		.max_blocks = 64,
		.n_groups = 2,
		.reach = {0, 10},
		.ahead = 8,
		.state_blocks = 1,
	};
	const struct scheduler_options options = {
		.max_seqs = 2,
		.max_users = 2,
		.max_tokens = 16,
		.max_rows = 8,
		.max_context = 200,
		.prefix_caching = true,
	};
	struct world w = {.options = options};
	struct sched_seq seqs[2];
	unsigned n;

	assert_int_equal(kv_new(100, &layout, &w.kv), 0);
	assert_int_equal(scheduler_new(&options, w.kv, &w.s), 0);
	for (unsigned i = 0; i < 2; i++)
		add(&w, &seqs[i], 1, 0, 33);
	while ((n = scheduler_plan(w.s, w.items)) && seqs[1].n_computed < seqs[1].n_total)
		scheduler_done(w.s, w.items, n);
	assert_int_equal(seqs[0].n_matched + seqs[1].n_matched, 0);
	/* Eight full blocks, of which the window sees three, and one that is not full for each. */
	assert_int_equal(kv_used_blocks(w.kv, 0), 8 + 2);
	assert_int_equal(kv_used_blocks(w.kv, 1), 3 + 2);
	assert_int_equal(seqs[0].cache.snapshot.blocks[0], seqs[1].cache.snapshot.blocks[0]);
	assert_true(kv_check(w.kv));
	for (unsigned i = 0; i < 2; i++)
		drop(&w, &seqs[i]);
	close_world(&w);
}

TEST_MAIN
