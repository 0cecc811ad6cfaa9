// SPDX-License-Identifier: MIT
/* Users' shares of memory, and things kept for later requests, which give way to them. */
#include <stdatomic.h>

#include "unit.h"
#include "budget.h"

#define LIMIT (4096ull << 10)
#define KIB   1024ull

/* Charges its user as long as it exists, as a grammar does. */
struct thing {
	struct account *account;
	uint64_t bytes;
	unsigned refs;
};

static struct budget budget;
static unsigned n_things;

static void *ref_thing(void *arg)
{
	((struct thing *)arg)->refs++;
	return arg;
}

static void drop_thing(void *arg)
{
	struct thing *thing = arg;

	if (--thing->refs)
		return;
	budget_release(thing->account, thing->bytes);
	n_things--;
	free(thing);
}

static size_t thing_bytes(void *arg)
{
	return ((struct thing *)arg)->bytes;
}

static bool is_used(void *arg)
{
	return ((struct thing *)arg)->refs > 1;
}

static const struct kept_kind kind = {ref_thing, drop_thing, thing_bytes, is_used};

static struct thing *new_thing(struct account *a, uint64_t bytes)
{
	struct thing *thing = calloc(1, sizeof(*thing));

	*thing = (struct thing){a, bytes, 1};
	budget_add(a, bytes);
	n_things++;
	return thing;
}

/* Makes a thing for the user and keeps it, unused, under a key of one letter. */
static void keep(struct account *a, const void *owner, char letter, uint64_t bytes)
{
	struct thing *thing = new_thing(a, bytes);
	char *key = malloc(1);

	*key = letter;
	kept_add(a, owner, key, 1, &kind, thing);
	drop_thing(thing);
}

static bool is_kept(struct account *a, const void *owner, char letter)
{
	void *thing = kept_find(a, owner, &letter, 1);

	if (thing)
		drop_thing(thing);
	return thing;
}

static int setup(void **state)
{
	n_things = 0;
	budget_init(&budget, LIMIT);
	return 0;
}

static int teardown(void **state)
{
	budget_clear(&budget);
	assert_int_equal(n_things, 0);
	assert_int_equal(budget.used, 0);
	return 0;
}

TEST(a_user_holds_three_times_what_is_left)
{
	struct account *a = account_get(&budget, 1, ""), *b = account_get(&budget, 2, "");

	assert_false(budget_take(a, LIMIT / 4 * 3 + 4));
	assert_true(budget_take(a, LIMIT / 4 * 3));
	assert_false(budget_take(a, 4));
	/* There is room for another one. */
	assert_true(budget_take(b, LIMIT / 16 * 3));
	assert_false(budget_take(b, LIMIT / 16));
	budget_release(a, LIMIT / 4 * 3);
	budget_release(b, LIMIT / 16 * 3);
	account_unref(a);
	account_unref(b);
}

TEST(what_is_kept_counts_and_gives_way)
{
	struct account *a = account_get(&budget, 1, ""), *b = account_get(&budget, 2, "");
	int owner;

	keep(a, &owner, 'x', 256 * KIB);
	keep(a, &owner, 'y', 256 * KIB);
	keep(b, &owner, 'x', 256 * KIB);
	assert_true(a->held > 512 * KIB && b->held > 256 * KIB);
	assert_true(kept_unused(&budget.kept, NULL, NULL) == budget.used);
	/* Used again: 'y' is older. */
	assert_true(is_kept(a, &owner, 'x'));
	/* The user's own goes first, and no more than is needed. */
	assert_true(budget_take(a, 2500 * KIB));
	assert_false(is_kept(a, &owner, 'y'));
	assert_true(is_kept(a, &owner, 'x'));
	assert_true(is_kept(b, &owner, 'x'));
	/* Then what others keep. */
	assert_true(budget_take(a, LIMIT / 4 * 3 - 2500 * KIB));
	assert_false(is_kept(a, &owner, 'x'));
	assert_false(is_kept(b, &owner, 'x'));
	budget_release(a, LIMIT / 4 * 3);
	account_unref(a);
	account_unref(b);
}

TEST(nothing_is_freed_in_vain)
{
	struct account *a = account_get(&budget, 1, ""), *b = account_get(&budget, 2, "");
	char letter = 'x';
	struct thing *used;
	int owner;

	keep(a, &owner, 'x', 256 * KIB);
	keep(b, &owner, 'x', 256 * KIB);
	/* Never fits. */
	assert_false(budget_take(b, LIMIT));
	assert_false(budget_take(b, UINT64_MAX - KIB));
	assert_true(is_kept(a, &owner, 'x') && is_kept(b, &owner, 'x'));
	/* A request uses it: freeing it would free nothing. */
	used = kept_find(a, &owner, &letter, 1);
	assert_false(budget_take(b, LIMIT / 4 * 3));
	assert_true(is_kept(a, &owner, 'x') && is_kept(b, &owner, 'x'));
	drop_thing(used);
	assert_true(budget_take(b, LIMIT / 4 * 3));
	budget_release(b, LIMIT / 4 * 3);
	account_unref(a);
	account_unref(b);
}

TEST(all_that_is_kept_has_a_limit)
{
	struct account *a = account_get(&budget, 1, ""), *b = account_get(&budget, 2, "");
	int owner, other;

	keep(b, &owner, 'x', 64 * KIB);
	for (unsigned i = 0; i < 64; i++)
		keep(a, &owner, (char)('0' + i), 64 * KIB);
	assert_true(kept_unused(&budget.kept, NULL, NULL) <= LIMIT / KEPT_PART);
	assert_true(is_kept(a, &owner, '0' + 63));
	assert_false(is_kept(a, &owner, '0'));
	/* One user's many do not cost another's. */
	assert_true(is_kept(b, &owner, 'x'));
	/* Too large to be kept at all. */
	keep(a, &owner, 'z', LIMIT / 2);
	assert_true(kept_unused(&budget.kept, NULL, NULL) <= LIMIT / KEPT_PART);
	/* Nobody finds what others made. */
	assert_false(is_kept(b, &owner, '0' + 63));
	assert_false(is_kept(b, &other, 'x'));
	kept_forget(&budget.kept, &owner);
	assert_int_equal(kept_unused(&budget.kept, NULL, NULL), 0);
	account_unref(a);
	account_unref(b);
}

/* Things grow while they are used: the limit holds again when that has ended. */
TEST(what_has_grown_is_limited)
{
	struct account *a = account_get(&budget, 1, "");
	char letter = 'y';
	struct thing *grows;
	int owner;

	keep(a, &owner, 'x', 64 * KIB);
	keep(a, &owner, 'y', 64 * KIB);
	keep(a, &owner, 'z', 64 * KIB);
	kept_shrink(&budget.kept);
	assert_true(is_kept(a, &owner, 'x') && is_kept(a, &owner, 'z'));
	grows = kept_find(a, &owner, &letter, 1);
	assert_non_null(grows);
	budget_add(a, LIMIT / KEPT_PART);
	grows->bytes += LIMIT / KEPT_PART;
	drop_thing(grows);
	assert_true(kept_unused(&budget.kept, NULL, NULL) > LIMIT / KEPT_PART);
	kept_shrink(&budget.kept);
	assert_true(kept_unused(&budget.kept, NULL, NULL) <= LIMIT / KEPT_PART);
	assert_false(is_kept(a, &owner, 'y'));
	account_unref(a);
}

/* As requests go on using what they have found, it is the last to be thrown out. */
TEST(what_is_used_stays_longest)
{
	struct account *a = account_get(&budget, 1, ""), *b = account_get(&budget, 2, "");
	const uint64_t third = LIMIT / KEPT_PART / 3;
	struct thing *used[2];
	int owner;

	keep(b, &owner, 'x', KIB);
	for (unsigned i = 0; i < 2; i++) {
		char letter = (char)('0' + i);

		keep(a, &owner, letter, third);
		used[i] = kept_find(a, &owner, &letter, 1);
	}
	keep(a, &owner, '2', third / 2);
	/* Only what no request uses is free for others. */
	assert_true(kept_unused(&budget.kept, NULL, NULL) < third);
	keep(a, &owner, '3', third / 2);
	assert_true(is_kept(a, &owner, '0') && is_kept(a, &owner, '1'));
	assert_false(is_kept(a, &owner, '2'));
	assert_true(is_kept(a, &owner, '3'));
	/* Nobody else pays for what a user's requests use. */
	keep(a, &owner, '4', third);
	assert_false(is_kept(a, &owner, '3'));
	assert_true(is_kept(a, &owner, '4'));
	assert_true(is_kept(b, &owner, 'x'));
	drop_thing(used[0]);
	drop_thing(used[1]);
	assert_true(kept_unused(&budget.kept, NULL, NULL) <= LIMIT / KEPT_PART);
	account_unref(a);
	account_unref(b);
}

TEST(answers_are_ended_after_what_is_kept)
{
	struct account *a = account_get(&budget, 1, ""), *b = account_get(&budget, 2, "");
	int owner;

	keep(b, &owner, 'x', 256 * KIB);
	/* It would not be enough, so nothing is freed. */
	budget_add(a, LIMIT + KIB);
	assert_true(budget_is_exceeded(&budget));
	assert_true(is_kept(b, &owner, 'x'));
	budget_release(a, KIB);
	assert_false(budget_is_exceeded(&budget));
	assert_false(is_kept(b, &owner, 'x'));
	budget_add(a, KIB);
	assert_true(budget_is_exceeded(&budget));
	budget_release(a, LIMIT + KIB);
	account_unref(a);
	account_unref(b);
}

/* An account without requests stays as long as something is charged to it. */
TEST(what_is_kept_holds_its_account)
{
	struct account *a = account_get(&budget, 1, "");
	int owner;

	keep(a, &owner, 'x', KIB);
	account_unref(a);
	for (user_id uid = 2; uid < 2 + 2 * ACCOUNTS_KEPT; uid++)
		account_unref(account_get(&budget, uid, ""));
	assert_ptr_equal(account_get(&budget, 1, ""), a);
	assert_true(is_kept(a, &owner, 'x'));
	account_unref(a);
	kept_forget(&budget.kept, &owner);
	assert_int_equal(a->held, 0);
}

TEST_MAIN_EACH(setup, teardown)
